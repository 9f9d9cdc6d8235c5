package vfio

import (
	"runtime"
	"unsafe"
)

// askRanges passes the kernel an array by its address inside a structure, which keeps nothing alive by itself.
func (i *iommufd) askRanges(q *ioasRanges, ranges []Range) error {
	var pin runtime.Pinner
	pin.Pin(&ranges[0])
	defer pin.Unpin()
	q.ranges = uint64(uintptr(unsafe.Pointer(&ranges[0])))
	_, err := i.host.kernel.ioctlPtr(i.fd, ioctlIOASRanges, unsafe.Pointer(q))
	return err
}
