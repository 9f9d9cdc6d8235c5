//go:build cgo && linux

#include "shim.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of kernels newer than the header may be. */
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif

int rocet_uring_open(struct rocet_uring **out, uint32_t entries, uint32_t completions)
{
	/* Best first: completions run in the thread's own enter (6.1), or when it next enters the kernel (5.19). */
	const unsigned tries[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
		IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
		0,
	};
	struct rocet_uring *u = calloc(1, sizeof(*u));
	int rc = -EINVAL;

	if (!u)
		return -ENOMEM;
	for (size_t i = 0; rc == -EINVAL && i < sizeof(tries) / sizeof(*tries); i++) {
		struct io_uring_params p;

		memset(&p, 0, sizeof(p));
		p.flags = tries[i] | IORING_SETUP_R_DISABLED | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP;
		p.cq_entries = completions;
		rc = io_uring_queue_init_params(entries, &u->ring, &p);
	}
	if (rc)
		goto no_ring;
	u->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (u->event_fd < 0) {
		rc = -errno;
		goto no_event;
	}
	rc = io_uring_register_eventfd(&u->ring, u->event_fd);
	if (rc)
		goto no_registration;
	*out = u;
	return 0;

no_registration:
	close(u->event_fd);
no_event:
	io_uring_queue_exit(&u->ring);
no_ring:
	free(u);
	return rc;
}

/* liburing's own io_uring_enable_rings is missing from the symbols of its version 2.3. */
int rocet_uring_enable(struct rocet_uring *u)
{
	if (syscall(__NR_io_uring_register, u->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0))
		return -errno;
	return 0;
}

void rocet_uring_close(struct rocet_uring *u)
{
	io_uring_queue_exit(&u->ring);
	close(u->event_fd);
	free(u);
}

static void reap(struct rocet_uring *u)
{
	struct io_uring_cqe *cqe;
	unsigned head, n = 0;

	io_uring_for_each_cqe(&u->ring, head, cqe) {
		if (n == ROCET_URING_REAP)
			break;
		u->out[n++] = *cqe;
	}
	if (n)
		io_uring_cq_advance(&u->ring, n);
	u->reaped = n;
}

int rocet_uring_enter(struct rocet_uring *u, uint32_t made)
{
	struct io_uring *ring = &u->ring;
	int rc = 0;

	ring->sq.sqe_tail += made;
	if (io_uring_sq_ready(ring))
		rc = io_uring_submit_and_get_events(ring);
	else if (IO_URING_READ_ONCE(*ring->sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW))
		rc = io_uring_get_events(ring);
	reap(u);
	return rc < 0 ? rc : 0;
}
