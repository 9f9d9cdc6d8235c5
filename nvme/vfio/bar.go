package vfio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"
)

// BAR is a mapped base address register. Where the kernel allows only parts of it to be mapped, the rest is a hole: ask
// Mapped before going there.
type BAR struct {
	Base  unsafe.Pointer
	Size  uint64
	areas []area
}

type area struct{ offset, size uint64 }

// PlainBAR is memory that stands for a BAR without holes.
func PlainBAR(base unsafe.Pointer, size uint64) *BAR {
	return &BAR{Base: base, Size: size, areas: []area{{0, size}}}
}

// Mapped tells whether n bytes from offset on may be touched.
func (b *BAR) Mapped(offset, n uint64) bool {
	end := offset + n
	if end < offset || end > b.Size {
		return false
	}
	for _, a := range b.areas { // sorted
		if offset >= a.offset && offset < a.offset+a.size {
			offset = a.offset + a.size
			if offset >= end {
				return true
			}
		}
	}
	return n == 0
}

// MapBAR maps a memory BAR. Calling it again returns the same mapping.
func (d *Device) MapBAR(index int) (*BAR, error) {
	if index < 0 || index >= numBARs {
		return nil, fmt.Errorf("%s: there is no BAR %d", d.function.Address, index)
	}
	if d.bars[index] != nil {
		return d.bars[index], nil
	}
	b, err := d.mapBAR(uint32(index))
	if err != nil {
		return nil, fmt.Errorf("%s: BAR %d: %w", d.function.Address, index, err)
	}
	d.bars[index] = b
	return b, nil
}

func (d *Device) mapBAR(index uint32) (*BAR, error) {
	buf, err := infoWithCaps(d.kernel, d.fd, ioctlDeviceGetRegion, int(unsafe.Sizeof(regionInfo{})), func(buf []byte) {
		binary.NativeEndian.PutUint32(buf[8:], index)
	})
	if err != nil {
		return nil, fmt.Errorf("asking vfio about the region: %w", err)
	}
	info := *(*regionInfo)(unsafe.Pointer(&buf[0]))
	if info.size == 0 {
		return nil, errors.New("the device has no such BAR")
	}
	if info.flags&(regionMmap|regionRead|regionWrite) != regionMmap|regionRead|regionWrite {
		return nil, fmt.Errorf("vfio does not allow to map it (it is %d bytes; one smaller than a page must be alone in its page)", info.size)
	}
	b := &BAR{Size: info.size, areas: []area{{0, info.size}}}
	if info.flags&regionCaps != 0 {
		if b.areas, err = sparseAreas(buf, info); err != nil {
			return nil, err
		}
	}
	page := uint64(os.Getpagesize())
	if b.Base, err = d.kernel.reserve(uintptr(info.size)); err != nil {
		return nil, fmt.Errorf("reserving %d bytes of address space: %w", info.size, err)
	}
	for _, a := range b.areas {
		if a.offset%page != 0 || a.offset+a.size > info.size {
			err = fmt.Errorf("the area %#x+%#x is not one of pages inside the BAR", a.offset, a.size)
		} else {
			err = d.kernel.mapAt(unsafe.Add(b.Base, a.offset), uintptr(a.size), d.fd, int64(info.offset+a.offset))
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("mapping %#x+%#x: %w", a.offset, a.size, err), d.kernel.unmap(b.Base, uintptr(info.size)))
		}
	}
	return b, nil
}

// sparseAreas returns the parts of a region that may be mapped: all of it, unless a capability lists them.
func sparseAreas(buf []byte, info regionInfo) ([]area, error) {
	areas := []area{{0, info.size}}
	err := eachCap(buf, info.capOffset, func(id uint16, body []byte) error {
		if id != regionCapSparse {
			return nil
		}
		if len(body) < 8 {
			return errors.New("the sparse mapping capability is cut off")
		}
		n := int(binary.NativeEndian.Uint32(body))
		if (len(body)-8)/16 < n {
			return errors.New("the sparse mapping capability is cut off")
		}
		areas = areas[:0]
		end := uint64(0)
		for i := range n {
			a := area{binary.NativeEndian.Uint64(body[8+16*i:]), binary.NativeEndian.Uint64(body[16+16*i:])}
			if a.offset < end || a.offset+a.size < a.offset {
				return errors.New("the areas of the sparse mapping capability overlap")
			}
			end = a.offset + a.size
			if a.size > 0 {
				areas = append(areas, a)
			}
		}
		return nil
	})
	return areas, err
}
