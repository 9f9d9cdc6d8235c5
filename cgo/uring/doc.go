// Package uring is the shim over liburing: one io_uring, used by one thread, without a system call or a crossing into C
// for anything but what a turn submits and reaps.
//
//	Next() ──▶ *SQE in the ring's own memory, filled by Go        (no crossing)
//	   ...                                                         as many as the turn makes
//	Enter() ─▶ one crossing: one io_uring_enter for all of them, and the completions that are there
//	Pending() ▶ two loads of the ring's memory: is there anything to reap?   (no crossing)
//
// A ring is opened disabled, so that any thread may register buffers and files, and is enabled by the thread that uses it
// from then on: the kernel then runs completions in that thread only, and only inside Enter.
//
// A reactor that wants to sleep arms the ring and waits for FD.
package uring
