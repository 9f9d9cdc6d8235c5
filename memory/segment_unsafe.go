package memory

import "unsafe"

// Bytes is the processor's view of the segment. It must not outlive the slab.
func (s Segment) Bytes() []byte {
	return unsafe.Slice((*byte)(pointerTo(s.Addr)), s.Len)
}

// Pointer is the segment's start.
func (s Segment) Pointer() unsafe.Pointer { return pointerTo(s.Addr) }

// pointerTo turns an address outside the Go heap into a pointer. The address is not of an object that could move.
func pointerTo(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }
