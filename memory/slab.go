package memory

import "fmt"

// Slab is one big mapping. It stays where it is and keeps its Index until FreeSlab.
type Slab struct {
	Index    uint32 // below MaxSlabs; reused after FreeSlab
	Base     uintptr
	Size     uint64
	PageSize uint32 // of the mapping: 4 KiB (or what the kernel has), 2 MiB, 1 GiB
	Node     int    // NUMA node its memory was bound to, -1 if it was not

	raw []byte // the mapping; under the race detector the Go object that the slab lies in
}

// Segment is a part of the slab, n bytes from off on. It panics past the end: such a segment would be somebody else's
// memory.
func (s *Slab) Segment(off uint64, n uint32) Segment {
	if off > s.Size || uint64(n) > s.Size-off {
		panic(fmt.Sprintf("memory: segment [%d, +%d) lies outside a slab of %d bytes", off, n, s.Size))
	}
	return Segment{Addr: s.Base + uintptr(off), Len: n, Slab: s.Index}
}

// Registrant makes slabs reachable for a device's DMA: an RDMA device (a memory region per slab), an IOMMU container
// (a mapping per slab). It keeps its own table of keys by Slab.Index. The pool calls it from the control plane, one call
// at a time; it must not call the pool back.
type Registrant interface {
	RegisterSlab(*Slab) error
	UnregisterSlab(*Slab) // after a successful RegisterSlab, once; the slab's memory is still there
}
