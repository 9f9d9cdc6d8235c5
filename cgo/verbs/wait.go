//go:build linux

package verbs

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Waiter parks goroutines until a descriptor of this package (EventChannel.FD,
// Device.AsyncFD, CQ.FD) is readable, by the Go runtime's poller: no thread
// waits. It has a duplicate of the descriptor, so that Close is safe whatever
// becomes of the original.
type Waiter struct {
	f  *os.File
	rc syscall.RawConn
}

// NewWaiter makes a waiter for fd.
func NewWaiter(fd int) (*Waiter, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("verbs: duplicate of descriptor %d: %w", fd, err)
	}
	f := os.NewFile(uintptr(dup), "verbs")
	rc, err := f.SyscallConn()
	if err == nil {
		err = f.SetReadDeadline(time.Time{}) // fails if the poller doesn't take it
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("verbs: descriptor %d cannot be polled: %w", fd, err)
	}
	return &Waiter{f: f, rc: rc}, nil
}

// Wait returns nil once the descriptor is readable, or an error after Close
// (os.ErrClosed) or a deadline.
func (w *Waiter) Wait() error {
	return w.rc.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
}

// SetDeadline lets Wait fail with os.ErrDeadlineExceeded at t; zero: never.
func (w *Waiter) SetDeadline(t time.Time) error { return w.f.SetReadDeadline(t) }

// Close wakes those who wait.
func (w *Waiter) Close() error { return w.f.Close() }
