package vfio

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// iommufd is the kernel's newer interface: devices have files of their own, and are attached to an I/O address space.
type iommufd struct {
	host *Host
	fd   int
	ioas uint32
}

// chooseIO takes iommufd where the kernel offers it for the function and this process may use it; type1 else.
func (h *Host) chooseIO(f *Function) addressSpace {
	if f.Node == "" {
		return newType1(h)
	}
	// Opened for a moment only: what is wrong with type1 is what the user is told, since it is what most have.
	probe, err := h.kernel.open(h.devicePath(f), unix.O_RDWR)
	if err != nil {
		return newType1(h)
	}
	_ = h.kernel.close(probe)
	i, err := newIOMMUFD(h)
	if err != nil {
		return newType1(h)
	}
	return i
}

func (h *Host) devicePath(f *Function) string { return h.root + "/dev/vfio/devices/" + f.Node }

func newIOMMUFD(h *Host) (*iommufd, error) {
	path := h.root + "/dev/iommu"
	fd, err := h.kernel.open(path, unix.O_RDWR)
	if err != nil {
		return nil, explainOpen(path, err)
	}
	alloc := ioasAlloc{size: uint32(unsafe.Sizeof(ioasAlloc{}))}
	if _, err := h.kernel.ioctlPtr(fd, ioctlIOASAlloc, unsafe.Pointer(&alloc)); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: allocating an address space: %w", path, err), h.kernel.close(fd))
	}
	return &iommufd{host: h, fd: fd, ioas: alloc.outID}, nil
}

func (i *iommufd) name() string { return "iommufd" }

func (i *iommufd) attach(f *Function) (int, func() bool, error) {
	k := i.host.kernel
	if f.Node == "" {
		return -1, nil, fmt.Errorf("the kernel has no file in /dev/vfio/devices for it, which the other drives use")
	}
	path := i.host.devicePath(f)
	fd, err := k.open(path, unix.O_RDWR)
	if err != nil {
		return -1, nil, explainOpen(path, err)
	}
	release := func() bool {
		_ = k.close(fd)
		return false // the address space keeps its mappings
	}
	bind := bindIOMMUFD{argsz: uint32(unsafe.Sizeof(bindIOMMUFD{})), iommufd: int32(i.fd)}
	if _, err := k.ioctlPtr(fd, ioctlDeviceBindIOMMUFD, unsafe.Pointer(&bind)); err != nil {
		release()
		switch {
		case errors.Is(err, unix.EBUSY):
			return -1, nil, &BusyError{Address: f.Address, Path: path}
		case errors.Is(err, unix.EPERM), errors.Is(err, unix.EINVAL):
			if shared := f.checkGroup(); shared != nil {
				return -1, nil, shared
			}
		}
		return -1, nil, fmt.Errorf("%s: binding it to iommufd: %w", path, err)
	}
	attach := attachPT{argsz: uint32(unsafe.Sizeof(attachPT{})), ptID: i.ioas}
	if _, err := k.ioctlPtr(fd, ioctlDeviceAttachPT, unsafe.Pointer(&attach)); err != nil {
		release()
		return -1, nil, fmt.Errorf("%s: it cannot join the address space of the other drives: %w", path, err)
	}
	return fd, release, nil
}

func (i *iommufd) limits() ([]Range, int64, error) {
	for n := 16; ; {
		ranges := make([]Range, n)
		q := ioasRanges{size: uint32(unsafe.Sizeof(ioasRanges{})), ioas: i.ioas, num: uint32(n)}
		err := i.askRanges(&q, ranges)
		if err == nil {
			return ranges[:min(int(q.num), n)], -1, nil
		}
		if !errors.Is(err, unix.EMSGSIZE) || int(q.num) <= n || q.num > 1<<16 {
			return nil, 0, err
		}
		n = int(q.num)
	}
}

func (i *iommufd) mapDMA(vaddr uintptr, iova, size uint64) error {
	m := ioasMap{size: uint32(unsafe.Sizeof(ioasMap{})), flags: ioasMapFixed | ioasMapWrite | ioasMapRead, ioas: i.ioas,
		vaddr: uint64(vaddr), length: size, iova: iova}
	_, err := i.host.kernel.ioctlPtr(i.fd, ioctlIOASMap, unsafe.Pointer(&m))
	return err
}

func (i *iommufd) unmapDMA(iova, size uint64) error {
	m := ioasUnmap{size: uint32(unsafe.Sizeof(ioasUnmap{})), ioas: i.ioas, iova: iova, length: size}
	if _, err := i.host.kernel.ioctlPtr(i.fd, ioctlIOASUnmap, unsafe.Pointer(&m)); err != nil {
		return err
	}
	if m.length != size {
		return fmt.Errorf("%d bytes of %d were mapped", m.length, size)
	}
	return nil
}

func (i *iommufd) close() {
	if i.fd >= 0 {
		_ = i.host.kernel.close(i.fd) // and its address space
		i.fd = -1
	}
}
