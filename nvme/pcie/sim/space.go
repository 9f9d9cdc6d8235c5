package sim

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"rocet/memory"
	"rocet/nvme/vfio"
)

// Space is the IOMMU: it maps the pool's slabs at addresses that have nothing to do with the processor's.
type Space struct {
	table  vfio.Table
	mu     sync.Mutex
	next   uint64
	maps   []mapping
	faults atomic.Uint64
}

type mapping struct {
	iova uint64
	slab *memory.Slab
}

// gap is left between slabs, so that running over one's end is a fault.
const gap = 1 << 30

// NewSpace returns an empty address space.
func NewSpace() *Space { return &Space{next: 5 * gap} }

// Table is what the driver looks addresses up in.
func (s *Space) Table() *vfio.Table { return &s.table }

// Faults returns how many accesses went to where nothing is mapped.
func (s *Space) Faults() uint64 { return s.faults.Load() }

// RegisterSlab maps a slab.
func (s *Space) RegisterSlab(slab *memory.Slab) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maps = append(s.maps, mapping{iova: s.next, slab: slab})
	s.table.Set(slab, s.next)
	s.next += (slab.Size+gap-1)/gap*gap + gap
	return nil
}

// Remap moves everything to other addresses, as happens when the last device leaves an address space.
func (s *Space) Remap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.maps {
		m := &s.maps[i]
		m.iova = s.next
		s.table.Set(m.slab, m.iova)
		s.next += (m.slab.Size+gap-1)/gap*gap + gap
	}
}

// UnregisterSlab takes the mapping away.
func (s *Space) UnregisterSlab(slab *memory.Slab) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.maps {
		if s.maps[i].slab == slab {
			s.maps = append(s.maps[:i], s.maps[i+1:]...)
			break
		}
	}
	s.table.Clear(slab)
}

// bytes is the memory at an I/O address.
func (s *Space) bytes(iova uint64, n uint32) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.maps {
		if iova >= m.iova && iova-m.iova+uint64(n) <= m.slab.Size {
			return m.slab.Segment(iova-m.iova, n).Bytes(), true
		}
	}
	s.faults.Add(1)
	return nil, false
}

func (s *Space) word(iova uint64) (*uint32, bool) {
	b, ok := s.bytes(iova, 4)
	if !ok {
		return nil, false
	}
	return (*uint32)(unsafe.Pointer(&b[0])), true
}
