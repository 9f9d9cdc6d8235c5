//go:build cgo && linux

/* rdma_cm: events, ids and their queue pairs. */
#include "shim.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>

/* rdma_cm returns -1 with errno set. */
static int cm(int rc)
{
	if (!rc)
		return 0;
	return errno ? errno : EIO;
}

#define CM(call) (errno = 0, cm(call))

/* ---- events ---- */

int rocet_create_channel(struct rdma_event_channel **ch)
{
	int fl, rc;

	errno = 0;
	*ch = rdma_create_event_channel();
	if (!*ch)
		return cm(-1);
	fl = fcntl((*ch)->fd, F_GETFL);
	if (fl >= 0 && fcntl((*ch)->fd, F_SETFL, fl | O_NONBLOCK) >= 0)
		return 0;
	rc = cm(-1);
	rdma_destroy_event_channel(*ch);
	return rc;
}

int rocet_next_event(struct rdma_event_channel *ch, struct rocet_event *out)
{
	struct rdma_cm_event *ev;
	struct rdma_conn_param *p;
	int rc = CM(rdma_get_cm_event(ch, &ev));

	if (rc)
		return rc == EWOULDBLOCK ? EAGAIN : rc;
	memset(out, 0, offsetof(struct rocet_event, data));
	out->raw = (uintptr_t)ev;
	out->id = (uintptr_t)ev->id;
	out->type = ev->event;
	out->status = ev->status;
	switch (ev->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		out->listen_id = (uintptr_t)ev->listen_id;
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
	case RDMA_CM_EVENT_ESTABLISHED:
	case RDMA_CM_EVENT_REJECTED:
		break;
	default:
		return 0;	/* no parameters */
	}
	p = &ev->param.conn;
	out->resp_res = p->responder_resources;
	out->init_depth = p->initiator_depth;
	out->flow = p->flow_control;
	out->retry = p->retry_count;
	out->rnr_retry = p->rnr_retry_count;
	out->srq = p->srq;
	out->qp_num = p->qp_num;
	if (p->private_data && p->private_data_len) {
		out->data_len = p->private_data_len;
		memcpy(out->data, p->private_data, p->private_data_len);
	}
	return 0;
}

int rocet_ack_event(uintptr_t raw)
{
	return CM(rdma_ack_cm_event((struct rdma_cm_event *)raw));
}

/* ---- ids ---- */

int rocet_create_id(struct rdma_event_channel *ch, struct rdma_cm_id **id)
{
	return CM(rdma_create_id(ch, id, NULL, RDMA_PS_TCP));
}

int rocet_destroy_id(struct rdma_cm_id *id)
{
	return CM(rdma_destroy_id(id));
}

int rocet_set_option(struct rdma_cm_id *id, int option, int value, int size)
{
	uint8_t byte = (uint8_t)value;

	return CM(rdma_set_option(id, RDMA_OPTION_ID, option,
				  size == 1 ? (void *)&byte : (void *)&value, (size_t)size));
}

int rocet_bind(struct rdma_cm_id *id, const void *addr)
{
	return CM(rdma_bind_addr(id, (struct sockaddr *)addr));
}

int rocet_listen(struct rdma_cm_id *id, int backlog)
{
	return CM(rdma_listen(id, backlog));
}

int rocet_resolve_addr(struct rdma_cm_id *id, const void *src, const void *dst, int ms)
{
	return CM(rdma_resolve_addr(id, (struct sockaddr *)src, (struct sockaddr *)dst, ms));
}

int rocet_resolve_route(struct rdma_cm_id *id, int ms)
{
	return CM(rdma_resolve_route(id, ms));
}

static struct rdma_conn_param param(const struct rocet_conn *p)
{
	return (struct rdma_conn_param){
		.private_data = p->data_len ? p->data : NULL,
		.private_data_len = p->data_len,
		.responder_resources = p->resp_res,
		.initiator_depth = p->init_depth,
		.flow_control = p->flow,
		.retry_count = p->retry,
		.rnr_retry_count = p->rnr_retry,
	};
}

int rocet_connect(struct rdma_cm_id *id, const struct rocet_conn *p)
{
	struct rdma_conn_param c = param(p);

	return CM(rdma_connect(id, &c));
}

int rocet_accept(struct rdma_cm_id *id, const struct rocet_conn *p)
{
	struct rdma_conn_param c = param(p);

	return CM(rdma_accept(id, &c));
}

int rocet_reject(struct rdma_cm_id *id, const void *data, int len)
{
	return CM(rdma_reject(id, len ? data : NULL, (uint8_t)len));
}

int rocet_disconnect(struct rdma_cm_id *id)
{
	return CM(rdma_disconnect(id));
}

int rocet_notify_est(struct rdma_cm_id *id)
{
	return CM(rdma_notify(id, IBV_EVENT_COMM_EST));
}

int rocet_migrate(struct rdma_cm_id *id, struct rdma_event_channel *ch)
{
	return CM(rdma_migrate_id(id, ch));
}

void rocet_addr(struct rdma_cm_id *id, int peer, uint8_t *out)
{
	struct sockaddr *a = peer ? rdma_get_peer_addr(id) : rdma_get_local_addr(id);

	memset(out, 0, sizeof(struct sockaddr_in6));
	if (a && a->sa_family == AF_INET)
		memcpy(out, a, sizeof(struct sockaddr_in));
	else if (a && a->sa_family == AF_INET6)
		memcpy(out, a, sizeof(struct sockaddr_in6));
}

/* ---- queue pairs ---- */

int rocet_create_qp(struct rdma_cm_id *id, struct rocet_qp_attr *a)
{
	struct ibv_qp_init_attr at = {
		.qp_type = IBV_QPT_RC,
		.send_cq = a->send_cq, .recv_cq = a->recv_cq, .srq = a->srq,
		.sq_sig_all = a->sig_all,
		.cap = {
			.max_send_wr = a->send_wr, .max_recv_wr = a->recv_wr,
			.max_send_sge = a->send_sge, .max_recv_sge = a->recv_sge,
			.max_inline_data = a->inl,
		},
	};
	int rc = CM(rdma_create_qp(id, a->pd, &at));

	if (rc)
		return rc;
	a->send_wr = at.cap.max_send_wr;
	a->recv_wr = at.cap.max_recv_wr;
	a->send_sge = at.cap.max_send_sge;
	a->recv_sge = at.cap.max_recv_sge;
	a->inl = at.cap.max_inline_data;
	a->qp_num = id->qp->qp_num;
	return 0;
}

int rocet_qp_state(struct ibv_qp *qp, int *state)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr ia;
	int rc = ibv_query_qp(qp, &a, IBV_QP_STATE, &ia);

	*state = rc ? -1 : (int)a.qp_state;
	return rocet_errno(rc);
}

int rocet_qp_error(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };

	return rocet_errno(ibv_modify_qp(qp, &a, IBV_QP_STATE));
}

/* ---- values that consts.go repeats ---- */

#define SAME(name, n) _Static_assert((int)(name) == (n), #name)

SAME(IBV_WR_RDMA_WRITE, 0);
SAME(IBV_WR_SEND, 2);
SAME(IBV_WR_RDMA_READ, 4);
SAME(IBV_WR_LOCAL_INV, 7);
SAME(IBV_WR_BIND_MW, 8);
SAME(IBV_WR_SEND_WITH_INV, 9);
SAME(IBV_SEND_FENCE, 1);
SAME(IBV_SEND_SIGNALED, 2);
SAME(IBV_SEND_SOLICITED, 4);
SAME(IBV_SEND_INLINE, 8);
SAME(IBV_WC_SEND, 0);
SAME(IBV_WC_RDMA_WRITE, 1);
SAME(IBV_WC_RDMA_READ, 2);
SAME(IBV_WC_BIND_MW, 5);
SAME(IBV_WC_LOCAL_INV, 6);
SAME(IBV_WC_RECV, 128);
SAME(IBV_WC_WITH_IMM, 2);
SAME(IBV_WC_WITH_INV, 8);
SAME(IBV_WC_SUCCESS, 0);
SAME(IBV_WC_LOC_LEN_ERR, 1);
SAME(IBV_WC_LOC_QP_OP_ERR, 2);
SAME(IBV_WC_LOC_PROT_ERR, 4);
SAME(IBV_WC_WR_FLUSH_ERR, 5);
SAME(IBV_WC_MW_BIND_ERR, 6);
SAME(IBV_WC_BAD_RESP_ERR, 7);
SAME(IBV_WC_LOC_ACCESS_ERR, 8);
SAME(IBV_WC_REM_INV_REQ_ERR, 9);
SAME(IBV_WC_REM_ACCESS_ERR, 10);
SAME(IBV_WC_REM_OP_ERR, 11);
SAME(IBV_WC_RETRY_EXC_ERR, 12);
SAME(IBV_WC_RNR_RETRY_EXC_ERR, 13);
SAME(IBV_WC_REM_ABORT_ERR, 16);
SAME(IBV_WC_FATAL_ERR, 19);
SAME(IBV_WC_RESP_TIMEOUT_ERR, 20);
SAME(IBV_WC_GENERAL_ERR, 21);
SAME(IBV_ACCESS_LOCAL_WRITE, 1);
SAME(IBV_ACCESS_REMOTE_WRITE, 2);
SAME(IBV_ACCESS_REMOTE_READ, 4);
SAME(IBV_ACCESS_MW_BIND, 16);
SAME(IBV_ACCESS_ZERO_BASED, 32);
SAME(IBV_ACCESS_HUGETLB, 128);
SAME(IBV_ACCESS_RELAXED_ORDERING, 1 << 20);
SAME(IBV_QPS_RESET, 0);
SAME(IBV_QPS_RTS, 3);
SAME(IBV_QPS_ERR, 6);
SAME(RDMA_CM_EVENT_ADDR_RESOLVED, 0);
SAME(RDMA_CM_EVENT_ADDR_ERROR, 1);
SAME(RDMA_CM_EVENT_ROUTE_RESOLVED, 2);
SAME(RDMA_CM_EVENT_ROUTE_ERROR, 3);
SAME(RDMA_CM_EVENT_CONNECT_REQUEST, 4);
SAME(RDMA_CM_EVENT_CONNECT_RESPONSE, 5);
SAME(RDMA_CM_EVENT_CONNECT_ERROR, 6);
SAME(RDMA_CM_EVENT_UNREACHABLE, 7);
SAME(RDMA_CM_EVENT_REJECTED, 8);
SAME(RDMA_CM_EVENT_ESTABLISHED, 9);
SAME(RDMA_CM_EVENT_DISCONNECTED, 10);
SAME(RDMA_CM_EVENT_DEVICE_REMOVAL, 11);
SAME(RDMA_CM_EVENT_ADDR_CHANGE, 14);
SAME(RDMA_CM_EVENT_TIMEWAIT_EXIT, 15);
SAME(IBV_EVENT_CQ_ERR, 0);
SAME(IBV_EVENT_QP_FATAL, 1);
SAME(IBV_EVENT_QP_REQ_ERR, 2);
SAME(IBV_EVENT_QP_ACCESS_ERR, 3);
SAME(IBV_EVENT_COMM_EST, 4);
SAME(IBV_EVENT_DEVICE_FATAL, 8);
SAME(IBV_EVENT_PORT_ACTIVE, 9);
SAME(IBV_EVENT_PORT_ERR, 10);
SAME(IBV_EVENT_SRQ_ERR, 14);
SAME(IBV_EVENT_SRQ_LIMIT_REACHED, 15);
SAME(IBV_EVENT_QP_LAST_WQE_REACHED, 16);
SAME(IBV_EVENT_GID_CHANGE, 18);
SAME(IBV_EVENT_WQ_FATAL, 19);
SAME(IBV_DEVICE_SRQ_RESIZE, 1 << 13);
SAME(IBV_DEVICE_MEM_WINDOW, 1 << 17);
SAME(IBV_DEVICE_MEM_MGT_EXTENSIONS, 1 << 21);
SAME(IBV_DEVICE_MEM_WINDOW_TYPE_2A, 1 << 23);
SAME(IBV_DEVICE_MEM_WINDOW_TYPE_2B, 1 << 24);
SAME(IBV_TRANSPORT_IWARP, 1);
SAME(IBV_PORT_ACTIVE, 4);
SAME(IBV_LINK_LAYER_ETHERNET, 2);
SAME(IBV_GID_TYPE_ROCE_V2, 2);
SAME(RDMA_OPTION_ID_TOS, 0);
SAME(RDMA_OPTION_ID_REUSEADDR, 1);
SAME(RDMA_OPTION_ID_AFONLY, 2);
