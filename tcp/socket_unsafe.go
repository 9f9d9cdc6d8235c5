package tcp

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"rocet/memory"
)

// The sockets don't block, so the calls on them go past the scheduler: on the way
// through it each would cost as much again.

// iovec is struct iovec without a Go pointer: what it names is outside the Go heap,
// or kept alive by the shard.
type iovec struct{ base, len uintptr }

var _ = [1]struct{}{}[unsafe.Sizeof(iovec{})-unsafe.Sizeof(unix.Iovec{})]

// msghdr is struct msghdr, which escapes to no heap when it is part of the shard.
type msghdr struct{ h unix.Msghdr }

// sendmsg sends without a signal for a connection that is gone.
func sendmsg(fd int32, m *msghdr, iov []iovec) (int, unix.Errno) {
	m.h.Iov = (*unix.Iovec)(unsafe.Pointer(unsafe.SliceData(iov)))
	m.h.SetIovlen(len(iov))
	n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(m)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
	return int(n), errno
}

func readv(fd int32, iov []iovec) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(iov))), uintptr(len(iov)))
	return int(n), errno
}

// epollWait looks without waiting.
func epollWait(fd int32, evs []unix.EpollEvent) int {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(evs))), uintptr(len(evs)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// epollToken is what an event carries.
func epollToken(ev *unix.EpollEvent) uint64 {
	return uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32
}

func setToken(ev *unix.EpollEvent, t uint64) { ev.Fd, ev.Pad = int32(uint32(t)), int32(uint32(t>>32)) }

func addrOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// at is n bytes of b from off on, of which the caller knows that they are there.
func segIovec(s memory.Segment, off, n uint32) iovec {
	return iovec{s.Addr + uintptr(off), uintptr(n)}
}

// offHeapBytes is memory that does not move and the collector does not look at.
func offHeapBytes(n int) []byte { return unsafe.Slice((*byte)(memory.OffHeap(n)), n) }

func freeOffHeap(b []byte) { memory.FreeOffHeap(unsafe.Pointer(unsafe.SliceData(b)), len(b)) }
