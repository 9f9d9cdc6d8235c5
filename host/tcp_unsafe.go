package host

import (
	"net"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The sockets don't block, so their calls go past the scheduler: that saves about 50 ns each.

// sendv is sendmsg without a signal for a connection that is gone.
func sendv(fd int, iov []unix.Iovec) (int, unix.Errno) {
	h := unix.Msghdr{Iov: &iov[0]}
	h.SetIovlen(len(iov))
	n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&h)), unix.MSG_NOSIGNAL)
	return int(n), errno
}

func readv(fd int, iov []unix.Iovec) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&iov[0])), uintptr(len(iov)))
	return int(n), errno
}

// iovec is b for the kernel; it is not empty.
func iovec(b []byte) unix.Iovec {
	v := unix.Iovec{Base: unsafe.SliceData(b)}
	v.SetLen(len(b))
	return v
}

// advance takes n bytes off an entry, which has more.
func advance(v *unix.Iovec, n int) {
	v.Base = (*byte)(unsafe.Add(unsafe.Pointer(v.Base), n))
	v.SetLen(int(v.Len) - n)
}

// endsAt says whether last is an entry's last byte.
func endsAt(v *unix.Iovec, last *byte) bool {
	return (*byte)(unsafe.Add(unsafe.Pointer(v.Base), int(v.Len)-1)) == last
}

// zoneID is the interface of an IPv6 zone, 0 if there is none.
func zoneID(zone string) uint32 {
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n)
	}
	ifc, err := net.InterfaceByName(zone)
	if err != nil {
		return 0
	}
	return uint32(ifc.Index)
}
