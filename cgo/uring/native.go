//go:build cgo && linux

package uring

/*
#cgo CFLAGS: -std=c11 -D_GNU_SOURCE -Wall -Wextra
#cgo LDFLAGS: -luring
#cgo noescape rocet_uring_enter
#cgo nocallback rocet_uring_enter
#include "shim.h"
#include <stdlib.h>
#include <sys/uio.h>

_Static_assert(sizeof(struct io_uring_sqe) == 64, "size of an SQE");
_Static_assert(sizeof(struct io_uring_cqe) == 16, "size of a CQE");
_Static_assert(__builtin_offsetof(struct io_uring_sqe, fd) == 4, "fd");
_Static_assert(__builtin_offsetof(struct io_uring_sqe, off) == 8, "off");
_Static_assert(__builtin_offsetof(struct io_uring_sqe, addr) == 16, "addr");
_Static_assert(__builtin_offsetof(struct io_uring_sqe, len) == 24, "len");
_Static_assert(__builtin_offsetof(struct io_uring_sqe, rw_flags) == 28, "rw_flags");
_Static_assert(__builtin_offsetof(struct io_uring_sqe, fsync_flags) == 28, "fsync_flags");
_Static_assert(__builtin_offsetof(struct io_uring_sqe, user_data) == 32, "user_data");
_Static_assert(__builtin_offsetof(struct io_uring_sqe, buf_index) == 40, "buf_index");
_Static_assert(IORING_OP_NOP == 0 && IORING_OP_READV == 1 && IORING_OP_WRITEV == 2 && IORING_OP_FSYNC == 3 &&
	IORING_OP_READ_FIXED == 4 && IORING_OP_WRITE_FIXED == 5 && IORING_OP_FALLOCATE == 17 &&
	IORING_OP_READ == 22 && IORING_OP_WRITE == 23, "opcodes");
_Static_assert(sizeof(struct iovec) == 16 && __builtin_offsetof(struct iovec, iov_len) == 8, "an iovec is a Buffer");
_Static_assert(IOSQE_FIXED_FILE == 1 && IORING_FSYNC_DATASYNC == 1 && RWF_DSYNC == 2, "flags");
_Static_assert(IORING_CQ_EVENTFD_DISABLED == 1, "flags of the completion ring");
_Static_assert(IORING_SQ_TASKRUN == 4 && IORING_SQ_CQ_OVERFLOW == 2, "flags of the submission ring");
*/
import "C"

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// Ring is an io_uring. After Enable it belongs to one thread.
type Ring struct {
	u    *C.struct_rocet_uring
	sqes []SQE
	mask uint32
	tail uint32 // of the entries that Next gave out
	made uint32 // of those, since the last Enter

	sqHead  *uint32 // the kernel's words
	sqFlags *uint32
	cqHead  *uint32
	cqTail  *uint32
	cqFlags *uint32
	out     []CQE
}

const (
	sqWork  = 2 | 4 // IORING_SQ_CQ_OVERFLOW, IORING_SQ_TASKRUN: the kernel asks for an Enter
	cqQuiet = 1     // IORING_CQ_EVENTFD_DISABLED
)

// Open makes a ring, disabled.
func Open(o Options) (*Ring, error) {
	r := &Ring{}
	if rc := C.rocet_uring_open(&r.u, C.uint32_t(o.Entries), C.uint32_t(o.Completions)); rc != 0 {
		errno := syscall.Errno(-rc)
		switch errno {
		case syscall.ENOSYS, syscall.EPERM:
			return nil, fmt.Errorf("io_uring: %w: the kernel has none or forbids it (sysctl kernel.io_uring_disabled, or a container's seccomp profile)", errno)
		case syscall.ENOMEM:
			return nil, fmt.Errorf("io_uring of %d entries: %w (raise the locked-memory limit)", o.Entries, errno)
		}
		return nil, fmt.Errorf("io_uring of %d entries: %w", o.Entries, errno)
	}
	sq, cq := &r.u.ring.sq, &r.u.ring.cq
	n := uint32(*sq.kring_entries)
	r.sqes = unsafe.Slice((*SQE)(unsafe.Pointer(sq.sqes)), n)
	r.mask = n - 1
	r.sqHead, r.sqFlags = (*uint32)(unsafe.Pointer(sq.khead)), (*uint32)(unsafe.Pointer(sq.kflags))
	r.cqHead, r.cqTail = (*uint32)(unsafe.Pointer(cq.khead)), (*uint32)(unsafe.Pointer(cq.ktail))
	r.cqFlags = (*uint32)(unsafe.Pointer(cq.kflags))
	atomic.StoreUint32(r.cqFlags, cqQuiet)
	r.out = unsafe.Slice((*CQE)(unsafe.Pointer(&r.u.out[0])), C.ROCET_URING_REAP)
	return r, nil
}

// Enable starts the ring. The calling thread is the one that uses it from now on.
func (r *Ring) Enable() error { return result("enable io_uring", C.rocet_uring_enable(r.u)) }

// Close frees the ring. Nothing may be under way. Any thread may call it.
func (r *Ring) Close() {
	C.rocet_uring_close(r.u)
	r.u = nil
}

// FD becomes readable with the first completion after Arm. It is an event descriptor: the ring's own does not wake epoll
// while completions wait for the ring's thread to run them.
func (r *Ring) FD() int { return int(r.u.event_fd) }

// Arm asks for FD to become readable. It returns false if something is pending already.
func (r *Ring) Arm() bool {
	atomic.StoreUint32(r.cqFlags, 0) // a full barrier: what comes later signals, what came before shows in Pending
	return !r.Pending()
}

// Disarm ends Arm, and empties FD.
func (r *Ring) Disarm() {
	atomic.StoreUint32(r.cqFlags, cqQuiet)
	var count [8]byte
	_, _ = syscall.Read(int(r.u.event_fd), count[:]) // EAGAIN if nothing came
}

// RegisterBuffers pins memory for OpReadFixed and OpWriteFixed. SQE.BufIndex is the index here. No
// buffer is bigger than MaxBuffer. Before Enable any thread may call it.
func (r *Ring) RegisterBuffers(buffers []Buffer) error {
	if len(buffers) == 0 {
		return nil
	}
	rc := C.io_uring_register_buffers(&r.u.ring, (*C.struct_iovec)(unsafe.Pointer(unsafe.SliceData(buffers))), C.uint(len(buffers)))
	return result("register buffers with io_uring", rc)
}

// RegisterFiles makes a table of n empty slots for FixedFile. Before Enable any thread may call it.
func (r *Ring) RegisterFiles(n int) error {
	empty := make([]int32, n)
	for i := range empty {
		empty[i] = -1
	}
	rc := C.io_uring_register_files(&r.u.ring, (*C.int)(unsafe.Pointer(unsafe.SliceData(empty))), C.uint(n))
	return result("register files with io_uring", rc)
}

// SetFile puts a descriptor into a slot, or -1 to empty it. After Enable only the ring's thread may call it.
func (r *Ring) SetFile(slot, fd int) error {
	v := C.int(fd)
	rc := C.io_uring_register_files_update(&r.u.ring, C.uint(slot), &v, 1)
	if rc > 0 {
		rc = 0
	}
	return result("change a file of io_uring", rc)
}

// Next is the next free entry of the submission ring, or nil if it is full until Enter. What stands in it is old.
func (r *Ring) Next() *SQE {
	if r.tail-atomic.LoadUint32(r.sqHead) > r.mask {
		return nil
	}
	s := &r.sqes[r.tail&r.mask]
	r.tail++
	r.made++
	return s
}

// Made is how many entries the kernel has not taken yet.
func (r *Ring) Made() int { return int(r.tail - atomic.LoadUint32(r.sqHead)) }

// Pending tells whether there is something to reap.
func (r *Ring) Pending() bool {
	return atomic.LoadUint32(r.cqTail) != atomic.LoadUint32(r.cqHead) || atomic.LoadUint32(r.sqFlags)&sqWork != 0
}

// Enter submits what Next gave out, and returns completions, at most 256, that are there. They are good until the next
// Enter. An error says that the kernel did not take everything (EAGAIN, EBUSY: it will with a later Enter); there may be
// completions all the same.
func (r *Ring) Enter() ([]CQE, error) {
	made := r.made
	r.made = 0
	rc := C.rocet_uring_enter(r.u, C.uint32_t(made))
	runtime.KeepAlive(r)
	if rc != 0 {
		return r.out[:r.u.reaped], syscall.Errno(-rc)
	}
	return r.out[:r.u.reaped], nil
}

func result(what string, rc C.int) error {
	if rc == 0 {
		return nil
	}
	errno := syscall.Errno(-rc)
	if errno == syscall.ENOMEM {
		return fmt.Errorf("%s: %w (raise the locked-memory limit)", what, errno)
	}
	return fmt.Errorf("%s: %w", what, errno)
}
