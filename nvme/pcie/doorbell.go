package pcie

import (
	"sync/atomic"
	"unsafe"

	"rocet/internal/mmio"
)

// doorbell is a queue's tail or head register, with its shadow where the drive has one.
type doorbell struct {
	reg    unsafe.Pointer
	shadow *uint32 // nil: the register alone
	event  *uint32 // the drive wants the register written when the value passes this
	rung   uint32  // last value
}

// ring tells the drive a new value, and returns whether that took a register write. What the value stands for was
// stored before: both kinds of store keep that order (see package mmio; sync/atomic's are sequentially consistent).
func (b *doorbell) ring(v uint32) bool {
	old := b.rung
	b.rung = v
	if b.shadow != nil {
		// The value must be visible before the event index is read, or both sides could wait for each other:
		// sync/atomic puts a full barrier between the two. This is memory, not a register.
		atomic.StoreUint32(b.shadow, v)
		if !needsEvent(atomic.LoadUint32(b.event), v, old) {
			return false
		}
	}
	mmio.Store32(b.reg, v)
	return true
}

// needsEvent tells whether event lies in [old, new): Base 2.1 section 5.2.5.
func needsEvent(event, new, old uint32) bool {
	return uint16(new-event-1) < uint16(new-old)
}
