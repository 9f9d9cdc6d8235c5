/* One io_uring for one thread. See doc.go. */
#ifndef ROCET_URING_H
#define ROCET_URING_H

#include <liburing.h>
#include <stdint.h>

enum { ROCET_URING_REAP = 256 };

struct rocet_uring {
	struct io_uring ring;
	int event_fd; /* signalled with completions while armed */
	struct io_uring_cqe out[ROCET_URING_REAP]; /* what the last enter reaped */
	uint32_t reaped;
};

int rocet_uring_open(struct rocet_uring **out, uint32_t entries, uint32_t completions);
int rocet_uring_enable(struct rocet_uring *u);
void rocet_uring_close(struct rocet_uring *u);

/* rocet_uring_enter makes `made` new entries visible, has the kernel take all that it has not taken, and reaps. */
int rocet_uring_enter(struct rocet_uring *u, uint32_t made);

#endif
