package vfio

import (
	"sync/atomic"

	"rocet/memory"
)

// Table tells at which I/O addresses the pool's slabs are. Queues read it on their reactors, without a lock; a slab's
// entry is there before the slab is handed out, and until it was taken back.
type Table struct {
	delta [memory.MaxSlabs]uint64 // I/O address - address + 1, both being multiples of the page; 0: not mapped
}

// IOVA returns the I/O address of a segment's first byte, and whether it has one.
func (t *Table) IOVA(s memory.Segment) (uint64, bool) {
	d := atomic.LoadUint64(&t.delta[s.Slab%memory.MaxSlabs])
	return uint64(s.Addr) + d - 1, d != 0
}

// Set notes that the slab is mapped at an I/O address. It is for what maps: a Space, or a simulated one.
func (t *Table) Set(s *memory.Slab, iova uint64) {
	atomic.StoreUint64(&t.delta[s.Index], iova-uint64(s.Base)+1)
}

// Clear notes that the slab is not mapped.
func (t *Table) Clear(s *memory.Slab) { atomic.StoreUint64(&t.delta[s.Index], 0) }
