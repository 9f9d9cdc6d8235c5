//go:build cgo && linux

/* The hot calls, and the proof that Go and C mean the same layouts. */
#include "shim.h"
#include <stddef.h>

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb" ::: "memory");
#endif
}

static int post_recv(struct rocet_op *op)
{
	struct ibv_recv_wr *head = (struct ibv_recv_wr *)op->recv, *bad = head;
	int rc;

	if (op->srq)
		rc = ibv_post_srq_recv((struct ibv_srq *)op->srq, head, &bad);
	else
		rc = ibv_post_recv((struct ibv_qp *)op->qp, head, &bad);
	if (!rc)
		return 0;
	op->bad_recv = (uintptr_t)bad;
	op->bad_send = op->send;
	return rocet_errno(rc);
}

static int post_send(struct rocet_op *op)
{
	struct ibv_send_wr *head = (struct ibv_send_wr *)op->send, *bad = head;
	int rc = ibv_post_send((struct ibv_qp *)op->qp, head, &bad);

	if (!rc)
		return 0;
	op->bad_send = (uintptr_t)bad;
	return rocet_errno(rc);
}

int rocet_post(struct rocet_op *op, int n)
{
	int failed = 0;

	for (; n > 0; n--, op++) {
		int rc = 0;

		op->bad_send = op->bad_recv = 0;
		if (op->recv)
			rc = post_recv(op);
		if (op->send && !rc)
			rc = post_send(op);
		op->err = rc;
		failed += rc != 0;
	}
	return failed;
}

int rocet_poll(uintptr_t handle, struct ibv_wc *wc, int n, int spin)
{
	struct ibv_cq *cq = (struct ibv_cq *)handle;
	int got = ibv_poll_cq(cq, n, wc);

	while (!got && spin-- > 0) {
		relax();
		got = ibv_poll_cq(cq, n, wc);
	}
	return got;
}

/* ---- layouts: the numbers are those that wr.go asserts ---- */

#define SIZE(type, n)	_Static_assert(sizeof(type) == (n), "size of " #type)
#define AT(type, f, n)	_Static_assert(offsetof(type, f) == (n), #type "." #f)

SIZE(struct ibv_sge, 16);
AT(struct ibv_sge, addr, 0);
AT(struct ibv_sge, length, 8);
AT(struct ibv_sge, lkey, 12);

SIZE(struct ibv_send_wr, 128);
AT(struct ibv_send_wr, wr_id, 0);
AT(struct ibv_send_wr, next, 8);
AT(struct ibv_send_wr, sg_list, 16);
AT(struct ibv_send_wr, num_sge, 24);
AT(struct ibv_send_wr, opcode, 28);
AT(struct ibv_send_wr, send_flags, 32);
AT(struct ibv_send_wr, invalidate_rkey, 36);
AT(struct ibv_send_wr, wr.rdma.remote_addr, 40);
AT(struct ibv_send_wr, wr.rdma.rkey, 48);
AT(struct ibv_send_wr, bind_mw.mw, 80);
AT(struct ibv_send_wr, bind_mw.rkey, 88);
AT(struct ibv_send_wr, bind_mw.bind_info.mr, 96);
AT(struct ibv_send_wr, bind_mw.bind_info.addr, 104);
AT(struct ibv_send_wr, bind_mw.bind_info.length, 112);
AT(struct ibv_send_wr, bind_mw.bind_info.mw_access_flags, 120);

SIZE(struct ibv_recv_wr, 32);
AT(struct ibv_recv_wr, wr_id, 0);
AT(struct ibv_recv_wr, next, 8);
AT(struct ibv_recv_wr, sg_list, 16);
AT(struct ibv_recv_wr, num_sge, 24);

SIZE(struct ibv_wc, 48);
AT(struct ibv_wc, wr_id, 0);
AT(struct ibv_wc, status, 8);
AT(struct ibv_wc, opcode, 12);
AT(struct ibv_wc, vendor_err, 16);
AT(struct ibv_wc, byte_len, 20);
AT(struct ibv_wc, invalidated_rkey, 24);
AT(struct ibv_wc, qp_num, 28);
AT(struct ibv_wc, src_qp, 32);
AT(struct ibv_wc, wc_flags, 36);
AT(struct ibv_wc, pkey_index, 40);
AT(struct ibv_wc, slid, 42);
AT(struct ibv_wc, sl, 44);
AT(struct ibv_wc, dlid_path_bits, 45);

SIZE(struct rocet_op, 56);
AT(struct rocet_op, qp, 0);
AT(struct rocet_op, srq, 8);
AT(struct rocet_op, send, 16);
AT(struct rocet_op, recv, 24);
AT(struct rocet_op, bad_send, 32);
AT(struct rocet_op, bad_recv, 40);
AT(struct rocet_op, err, 48);
