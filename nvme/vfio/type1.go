package vfio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// type1 is vfio's own interface: a container that IOMMU groups join.
type type1 struct {
	host      *Host
	container int // -1: not open
	set       bool
	groups    map[string]*group
}

type group struct {
	fd    int
	users int // devices of the group that are open
}

func newType1(h *Host) *type1 {
	return &type1{host: h, container: -1, groups: make(map[string]*group)}
}

func (t *type1) name() string { return "vfio type1" }

func (t *type1) open() error {
	if t.container >= 0 {
		return nil
	}
	k := t.host.kernel
	path := t.host.root + "/dev/vfio/vfio"
	fd, err := k.open(path, unix.O_RDWR)
	if err != nil {
		return explainOpen(path, err)
	}
	version, err := k.ioctl(fd, ioctlGetAPIVersion, 0)
	if err == nil && version != apiVersion {
		err = fmt.Errorf("vfio has interface version %d, this program speaks %d", version, apiVersion)
	}
	if err == nil {
		var has int
		if has, err = k.ioctl(fd, ioctlCheckExtension, type1v2IOMMU); err == nil && has == 0 {
			err = errors.New("vfio has no TYPE1v2 IOMMU here: modprobe vfio_iommu_type1, and see that the IOMMU is switched on")
		}
	}
	if err != nil {
		return errors.Join(err, k.close(fd))
	}
	t.container = fd
	return nil
}

func (t *type1) attach(f *Function) (int, func() bool, error) {
	if err := t.open(); err != nil {
		return -1, nil, err
	}
	g, err := t.join(f)
	if err != nil {
		return -1, nil, err
	}
	g.users++
	release := func() bool { return t.leave(f.Group, g) }
	name, err := unix.BytePtrFromString(f.Address)
	if err != nil {
		release()
		return -1, nil, err
	}
	fd, err := t.host.kernel.ioctlPtr(g.fd, ioctlGroupGetDeviceFD, unsafe.Pointer(name))
	if err != nil {
		release()
		return -1, nil, fmt.Errorf("vfio does not hand the device out: %w", err)
	}
	return fd, func() bool {
		_ = t.host.kernel.close(fd)
		return release()
	}, nil
}

// join opens the function's group and puts it into the container, unless it is there.
func (t *type1) join(f *Function) (*group, error) {
	if g := t.groups[f.Group]; g != nil {
		return g, nil
	}
	k := t.host.kernel
	path := t.host.root + "/dev/vfio/" + f.Group
	fd, err := k.open(path, unix.O_RDWR)
	if err != nil {
		if errors.Is(err, unix.EBUSY) {
			return nil, &BusyError{Address: f.Address, Path: path}
		}
		return nil, explainOpen(path, err)
	}
	if err := t.admit(f, fd); err != nil {
		return nil, errors.Join(err, k.close(fd))
	}
	g := &group{fd: fd}
	t.groups[f.Group] = g
	return g, nil
}

func (t *type1) admit(f *Function, fd int) error {
	k := t.host.kernel
	status := groupStatus{argsz: uint32(unsafe.Sizeof(groupStatus{}))}
	if _, err := k.ioctlPtr(fd, ioctlGroupGetStatus, unsafe.Pointer(&status)); err != nil {
		return fmt.Errorf("IOMMU group %s: asking for its status: %w", f.Group, err)
	}
	if status.flags&groupViable == 0 {
		if err := f.checkGroup(); err != nil {
			return err
		}
		return fmt.Errorf("IOMMU group %s is not viable: a function in it is bound to a driver that is not vfio's", f.Group)
	}
	container := int32(t.container)
	if _, err := k.ioctlPtr(fd, ioctlGroupSetContainer, unsafe.Pointer(&container)); err != nil {
		return fmt.Errorf("IOMMU group %s cannot join the address space of the other drives (%d groups): %w", f.Group, len(t.groups), err)
	}
	if t.set {
		return nil
	}
	if _, err := k.ioctl(t.container, ioctlSetIOMMU, type1v2IOMMU); err != nil {
		_, _ = k.ioctl(fd, ioctlGroupUnset, 0)
		return fmt.Errorf("IOMMU group %s: setting up the IOMMU: %w", f.Group, err)
	}
	t.set = true
	return nil
}

// leave ends a device's use of its group. With the last group the container loses its IOMMU and all mappings.
func (t *type1) leave(name string, g *group) bool {
	g.users--
	if g.users > 0 {
		return false
	}
	k := t.host.kernel
	_, _ = k.ioctl(g.fd, ioctlGroupUnset, 0)
	_ = k.close(g.fd)
	delete(t.groups, name)
	if len(t.groups) > 0 {
		return false
	}
	t.set = false
	return true
}

// The info structure grows by capabilities; argsz comes back as what it needs.
func (t *type1) limits() ([]Range, int64, error) {
	buf, err := infoWithCaps(t.host.kernel, t.container, ioctlIOMMUGetInfo, int(unsafe.Sizeof(iommuInfo{})), nil)
	if err != nil {
		return nil, 0, err
	}
	info := (*iommuInfo)(unsafe.Pointer(&buf[0]))
	var ranges []Range
	avail := int64(-1)
	if info.flags&iommuInfoCaps != 0 {
		err = eachCap(buf, info.capOffset, func(id uint16, body []byte) error {
			switch id {
			case iommuCapRanges:
				if len(body) < 8 {
					return errors.New("the IOVA range capability is cut off")
				}
				n := int(binary.NativeEndian.Uint32(body))
				if len(body)-8 < n*16 {
					return errors.New("the IOVA range capability is cut off")
				}
				for i := range n {
					p := body[8+16*i:]
					ranges = append(ranges, Range{binary.NativeEndian.Uint64(p), binary.NativeEndian.Uint64(p[8:])})
				}
			case iommuCapAvail:
				if len(body) < 4 {
					return errors.New("the DMA available capability is cut off")
				}
				avail = int64(binary.NativeEndian.Uint32(body))
			}
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
	}
	if ranges == nil {
		// Kernels before 5.4 do not say. 39 bits are what the narrowest IOMMUs have; the hole is x86's for interrupts.
		ranges = []Range{{0, 0xfedfffff}, {0xfef00000, 1<<39 - 1}}
	}
	return ranges, avail, nil
}

func (t *type1) mapDMA(vaddr uintptr, iova, size uint64) error {
	m := dmaMap{argsz: uint32(unsafe.Sizeof(dmaMap{})), flags: dmaMapRead | dmaMapWrite, vaddr: uint64(vaddr), iova: iova, size: size}
	_, err := t.host.kernel.ioctlPtr(t.container, ioctlIOMMUMapDMA, unsafe.Pointer(&m))
	return err
}

func (t *type1) unmapDMA(iova, size uint64) error {
	m := dmaUnmap{argsz: uint32(unsafe.Sizeof(dmaUnmap{})), iova: iova, size: size}
	if _, err := t.host.kernel.ioctlPtr(t.container, ioctlIOMMUUnmapDMA, unsafe.Pointer(&m)); err != nil {
		return err
	}
	if m.size != size { // it comes back as what was unmapped
		return fmt.Errorf("%d bytes of %d were mapped", m.size, size)
	}
	return nil
}

func (t *type1) close() {
	if t.container >= 0 {
		_ = t.host.kernel.close(t.container)
		t.container = -1
	}
}
