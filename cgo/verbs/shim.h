//go:build cgo && linux

/* What the Go side calls: libibverbs and librdmacm behind plain functions that
 * return 0 or an errno, and the two hot ones. Handles are addresses of the
 * libraries' objects. */
#ifndef ROCET_SHIM_H
#define ROCET_SHIM_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>

/* Verbs return an errno; some providers -1 with errno set, or -errno. */
static inline int rocet_errno(int rc)
{
	if (rc >= 0)
		return rc;
	if (rc == -1 && errno)
		return errno;
	return -rc;
}

/* ---- hot ---- */

/* PostOp in wr.go. No pointer types: cgo has nothing to check. */
struct rocet_op {
	uintptr_t qp, srq;
	uintptr_t send, recv;
	uintptr_t bad_send, bad_recv;
	int32_t err, pad;
};

int rocet_post(struct rocet_op *ops, int n);
int rocet_poll(uintptr_t cq, struct ibv_wc *wc, int n, int spin);

/* ---- devices ---- */

struct rocet_gid {
	uint8_t raw[16];
	uint32_t index, port, type, ifindex;
};

struct rocet_async {
	uintptr_t object;	/* ibv_qp, ibv_cq or ibv_srq, by kind */
	uint32_t qp_num;
	int32_t type, kind, port;
};
enum { ROCET_ASYNC_PORT, ROCET_ASYNC_QP, ROCET_ASYNC_CQ, ROCET_ASYNC_SRQ };

int rocet_devices(struct ibv_context ***list, int *n);
void rocet_keep_devices(struct ibv_context **list, const uint8_t *keep);
int rocet_release_device(struct ibv_context *c);
int rocet_query_port(struct ibv_context *c, int port, struct ibv_port_attr *a);
int rocet_query_gids(struct ibv_context *c, struct rocet_gid *out, int max, int *n);
int rocet_get_async(struct ibv_context *c, struct ibv_async_event *ev, struct rocet_async *out);

/* ---- memory, queues ---- */

int rocet_alloc_pd(struct ibv_context *c, struct ibv_pd **pd);
int rocet_reg_mr(struct ibv_pd *pd, uintptr_t addr, size_t len, unsigned access,
		 struct ibv_mr **mr);
int rocet_alloc_mw(struct ibv_pd *pd, struct ibv_mw **mw);
int rocet_dealloc_mw(struct ibv_mw *mw);
int rocet_dereg_mr(struct ibv_mr *mr);
int rocet_dealloc_pd(struct ibv_pd *pd);
int rocet_destroy_srq(struct ibv_srq *srq);
int rocet_create_srq(struct ibv_pd *pd, uint32_t *wr, uint32_t *sge, struct ibv_srq **srq);
int rocet_limit_srq(struct ibv_srq *srq, uint32_t limit);

int rocet_create_cq(struct ibv_context *c, int entries, int vector, int events,
		    struct ibv_cq **cq);
int rocet_arm_cq(struct ibv_cq *cq);
int rocet_drain_cq_events(struct ibv_cq *cq, int max, int *n);
int rocet_destroy_cq(struct ibv_cq *cq, unsigned unacked);

/* ---- rdma_cm ---- */

struct rocet_event {
	uintptr_t raw, id, listen_id;
	int32_t type, status;
	uint32_t qp_num;
	uint8_t resp_res, init_depth, flow, retry, rnr_retry, srq;
	uint8_t data_len;
	uint8_t data[256];
};

struct rocet_conn {
	uint8_t resp_res, init_depth, flow, retry, rnr_retry;
	uint8_t data_len;
	uint8_t data[256];
};

int rocet_create_channel(struct rdma_event_channel **ch);
int rocet_next_event(struct rdma_event_channel *ch, struct rocet_event *out);
int rocet_ack_event(uintptr_t raw);

int rocet_create_id(struct rdma_event_channel *ch, struct rdma_cm_id **id);
int rocet_destroy_id(struct rdma_cm_id *id);
int rocet_set_option(struct rdma_cm_id *id, int option, int value, int size);
int rocet_bind(struct rdma_cm_id *id, const void *addr);
int rocet_listen(struct rdma_cm_id *id, int backlog);
int rocet_resolve_addr(struct rdma_cm_id *id, const void *src, const void *dst, int ms);
int rocet_resolve_route(struct rdma_cm_id *id, int ms);
int rocet_connect(struct rdma_cm_id *id, const struct rocet_conn *p);
int rocet_accept(struct rdma_cm_id *id, const struct rocet_conn *p);
int rocet_reject(struct rdma_cm_id *id, const void *data, int len);
int rocet_disconnect(struct rdma_cm_id *id);
int rocet_notify_est(struct rdma_cm_id *id);
int rocet_migrate(struct rdma_cm_id *id, struct rdma_event_channel *ch);
void rocet_addr(struct rdma_cm_id *id, int peer, uint8_t *out);	/* 28 bytes */

struct rocet_qp_attr {
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	uint32_t send_wr, recv_wr, send_sge, recv_sge, inl;	/* in: wanted, out: granted */
	uint32_t qp_num;
	int sig_all;
};

int rocet_create_qp(struct rdma_cm_id *id, struct rocet_qp_attr *a);
int rocet_qp_state(struct ibv_qp *qp, int *state);
int rocet_qp_error(struct ibv_qp *qp);

#endif
