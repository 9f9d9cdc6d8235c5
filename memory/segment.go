package memory

import "unsafe"

// Sizes of the pool's units.
const (
	PageSize  = 4 << 10 // smallest block, and the alignment of every segment a Cache hands out
	ChunkSize = 2 << 20 // what a Cache takes from the Pool
	MaxSlabs  = 4096    // Slab.Index is below this
)

// Segment is a run of registered memory. It holds no Go pointer: Addr is outside the Go heap (under the race detector
// inside a Go object that the slab keeps alive), so segments may lie in memory that the collector does not scan.
type Segment struct {
	Addr uintptr
	Len  uint32
	Slab uint32 // Slab.Index, by which each Registrant finds its key
}

var _ [16]byte = [unsafe.Sizeof(Segment{})]byte{}

// Slice is the part of the segment from off on, n bytes long.
func (s Segment) Slice(off, n uint32) Segment {
	if uint64(off)+uint64(n) > uint64(s.Len) {
		panic("memory: slice of a segment reaches past its end")
	}
	return Segment{Addr: s.Addr + uintptr(off), Len: n, Slab: s.Slab}
}

// Length adds up the lengths of segments.
func Length(segs []Segment) uint64 {
	var n uint64
	for i := range segs {
		n += uint64(segs[i].Len)
	}
	return n
}
