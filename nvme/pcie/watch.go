package pcie

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// watchFD calls fn whenever an eventfd becomes readable, on a goroutine of its own, until the returned file is closed.
// The eventfd itself stays the caller's.
func watchFD(fd int, fn func()) (*os.File, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	f := os.NewFile(uintptr(own), "eventfd") // non-blocking: waits in the runtime's poller, without a thread
	go func() {
		var count [8]byte
		for {
			if _, err := f.Read(count[:]); err != nil {
				return
			}
			fn()
		}
	}()
	return f, nil
}
