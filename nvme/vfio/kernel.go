package vfio

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernel is what the package asks of the operating system. Tests put a model of vfio and iommufd in its place.
type kernel interface {
	open(path string, flags int) (int, error)
	close(fd int) error
	// ioctl passes a number or, in ioctlPtr, a structure that the kernel may write to.
	ioctl(fd int, request, arg uintptr) (int, error)
	ioctlPtr(fd int, request uintptr, arg unsafe.Pointer) (int, error)
	pread(fd int, b []byte, offset int64) (int, error)
	pwrite(fd int, b []byte, offset int64) (int, error)
	reserve(size uintptr) (unsafe.Pointer, error) // address space without memory
	mapAt(at unsafe.Pointer, size uintptr, fd int, offset int64) error
	unmap(at unsafe.Pointer, size uintptr) error
	eventfd() (int, error)
	memlock() (limit, locked uint64, exempt bool) // of this process
}

type linux struct{}

func (linux) open(path string, flags int) (int, error) {
	return ignoringEINTR(func() (int, error) { return unix.Open(path, flags|unix.O_CLOEXEC, 0) })
}

func (linux) close(fd int) error { return unix.Close(fd) }

func (linux) ioctl(fd int, request, arg uintptr) (int, error) {
	return ignoringEINTR(func() (int, error) {
		r, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, arg)
		if errno != 0 {
			return -1, errno
		}
		return int(r), nil
	})
}

func (linux) ioctlPtr(fd int, request uintptr, arg unsafe.Pointer) (int, error) {
	return ignoringEINTR(func() (int, error) {
		r, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg))
		if errno != 0 {
			return -1, errno
		}
		return int(r), nil
	})
}

func (linux) pread(fd int, b []byte, offset int64) (int, error) {
	return ignoringEINTR(func() (int, error) { return unix.Pread(fd, b, offset) })
}

func (linux) pwrite(fd int, b []byte, offset int64) (int, error) {
	return ignoringEINTR(func() (int, error) { return unix.Pwrite(fd, b, offset) })
}

func (linux) reserve(size uintptr) (unsafe.Pointer, error) {
	return unix.MmapPtr(-1, 0, nil, size, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
}

func (linux) mapAt(at unsafe.Pointer, size uintptr, fd int, offset int64) error {
	_, err := unix.MmapPtr(fd, offset, at, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
	return err
}

func (linux) unmap(at unsafe.Pointer, size uintptr) error { return unix.MunmapPtr(at, size) }

func (linux) eventfd() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK) }

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
