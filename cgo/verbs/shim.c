//go:build cgo && linux

/* Devices, memory and queues. */
#include "shim.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* For calls that report by errno; some forget to set it. */
static int last(void)
{
	return errno ? errno : EIO;
}

static int nonblock(int fd)
{
	int fl = fcntl(fd, F_GETFL);

	if (fl < 0 || fcntl(fd, F_SETFL, fl | O_NONBLOCK) < 0)
		return last();
	return 0;
}

/* ---- devices ---- */

/* rdma_cm's own contexts: only domains made on those go with its ids. Each
 * listed context is referenced until it is freed by rdma_free_devices. */
int rocet_devices(struct ibv_context ***list, int *n)
{
	errno = 0;
	*list = rdma_get_devices(n);
	if (!*list)
		return errno ? errno : ENODEV;
	for (int i = 0; i < *n; i++) {
		int rc = nonblock((*list)[i]->async_fd);

		if (rc) {
			rdma_free_devices(*list);
			return rc;
		}
	}
	return 0;
}

/* Frees the list, but for the references to the contexts marked in keep. */
void rocet_keep_devices(struct ibv_context **list, const uint8_t *keep)
{
	int n = 0;

	for (int i = 0; list[i]; i++)
		if (!keep[i])
			list[n++] = list[i];
	list[n] = NULL;
	rdma_free_devices(list);
}

/* Drops the one reference that was kept. */
int rocet_release_device(struct ibv_context *c)
{
	struct ibv_context **list = calloc(2, sizeof(*list));

	if (!list)
		return ENOMEM;
	list[0] = c;
	rdma_free_devices(list);
	return 0;
}

int rocet_query_port(struct ibv_context *c, int port, struct ibv_port_attr *a)
{
	return rocet_errno(ibv_query_port(c, (uint8_t)port, a));
}

int rocet_query_gids(struct ibv_context *c, struct rocet_gid *out, int max, int *n)
{
	struct ibv_gid_entry *e = calloc((size_t)max + 1, sizeof(*e));
	ssize_t got;

	*n = 0;
	if (!e)
		return ENOMEM;
	got = ibv_query_gid_table(c, e, (size_t)max, 0);
	for (ssize_t i = 0; i < got; i++) {
		memcpy(out[i].raw, e[i].gid.raw, 16);
		out[i].index = e[i].gid_index;
		out[i].port = e[i].port_num;
		out[i].type = e[i].gid_type;
		out[i].ifindex = e[i].ndev_ifindex;
	}
	free(e);
	if (got < 0)
		return (int)-got;
	*n = (int)got;
	return 0;
}

/* The event stays unacknowledged, so that its object stays. */
int rocet_get_async(struct ibv_context *c, struct ibv_async_event *ev, struct rocet_async *out)
{
	errno = 0;
	if (ibv_get_async_event(c, ev))
		return last();
	memset(out, 0, sizeof(*out));
	out->type = ev->event_type;
	switch (ev->event_type) {
	case IBV_EVENT_CQ_ERR:
		out->kind = ROCET_ASYNC_CQ;
		out->object = (uintptr_t)ev->element.cq;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		out->kind = ROCET_ASYNC_QP;
		out->object = (uintptr_t)ev->element.qp;
		out->qp_num = ev->element.qp->qp_num;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		out->kind = ROCET_ASYNC_SRQ;
		out->object = (uintptr_t)ev->element.srq;
		break;
	default:
		out->kind = ROCET_ASYNC_PORT;
		out->port = ev->element.port_num;
	}
	return 0;
}

/* ---- memory ---- */

int rocet_alloc_pd(struct ibv_context *c, struct ibv_pd **pd)
{
	errno = 0;
	*pd = ibv_alloc_pd(c);
	return *pd ? 0 : last();
}

int rocet_reg_mr(struct ibv_pd *pd, uintptr_t addr, size_t len, unsigned access,
		 struct ibv_mr **mr)
{
	errno = 0;
	*mr = ibv_reg_mr(pd, (void *)addr, len, access);
	return *mr ? 0 : last();
}

int rocet_alloc_mw(struct ibv_pd *pd, struct ibv_mw **mw)
{
	errno = 0;
	*mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	return *mw ? 0 : last();
}

int rocet_dealloc_mw(struct ibv_mw *mw)
{
	return rocet_errno(ibv_dealloc_mw(mw));
}

int rocet_dereg_mr(struct ibv_mr *mr)
{
	return rocet_errno(ibv_dereg_mr(mr));
}

int rocet_dealloc_pd(struct ibv_pd *pd)
{
	return rocet_errno(ibv_dealloc_pd(pd));
}

int rocet_destroy_srq(struct ibv_srq *srq)
{
	return rocet_errno(ibv_destroy_srq(srq));
}

int rocet_create_srq(struct ibv_pd *pd, uint32_t *wr, uint32_t *sge, struct ibv_srq **srq)
{
	struct ibv_srq_init_attr a = { .attr = { .max_wr = *wr, .max_sge = *sge } };

	errno = 0;
	*srq = ibv_create_srq(pd, &a);
	if (!*srq)
		return last();
	*wr = a.attr.max_wr;
	*sge = a.attr.max_sge;
	return 0;
}

int rocet_limit_srq(struct ibv_srq *srq, uint32_t limit)
{
	struct ibv_srq_attr a = { .srq_limit = limit };

	return rocet_errno(ibv_modify_srq(srq, &a, IBV_SRQ_LIMIT));
}

/* ---- completion queues, each with a channel of its own ---- */

int rocet_create_cq(struct ibv_context *c, int entries, int vector, int events,
		    struct ibv_cq **cq)
{
	struct ibv_comp_channel *ch = NULL;
	int rc = 0;

	errno = 0;
	if (events) {
		ch = ibv_create_comp_channel(c);
		if (!ch)
			return last();
		rc = nonblock(ch->fd);
	}
	*cq = rc ? NULL : ibv_create_cq(c, entries, NULL, ch, vector);
	if (*cq)
		return 0;
	if (!rc)
		rc = last();
	if (ch)
		ibv_destroy_comp_channel(ch);
	return rc;
}

int rocet_arm_cq(struct ibv_cq *cq)
{
	return rocet_errno(ibv_req_notify_cq(cq, 0));
}

/* Takes up to max events off the channel; the caller acknowledges them. */
int rocet_drain_cq_events(struct ibv_cq *cq, int max, int *n)
{
	struct ibv_cq *got;
	void *context;

	for (*n = 0; *n < max; ++*n) {
		errno = 0;
		if (ibv_get_cq_event(cq->channel, &got, &context))
			return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : last();
	}
	return 0;
}

int rocet_destroy_cq(struct ibv_cq *cq, unsigned unacked)
{
	struct ibv_comp_channel *ch = cq->channel;
	int rc;

	/* Destroying waits for each event that was taken to be acknowledged. */
	if (unacked)
		ibv_ack_cq_events(cq, unacked);
	rc = ibv_destroy_cq(cq);
	if (!rc && ch)
		rc = ibv_destroy_comp_channel(ch);
	return rocet_errno(rc);
}
