package vfio

import (
	"fmt"
	"slices"
	"sync"

	"rocet/memory"
)

// addressSpace is one of the kernel's two interfaces to an IOMMU.
type addressSpace interface {
	name() string
	// attach lets a function's DMA go through the space, and returns its device file. The release function gives both
	// back and returns whether the kernel has dropped all mappings, as it does when type1's last group goes.
	attach(f *Function) (fd int, release func() (dropped bool), err error)
	// limits asks for the ranges of I/O addresses and how many more mappings the kernel takes (-1: it does not say).
	limits() (ranges []Range, avail int64, err error)
	mapDMA(vaddr uintptr, iova, size uint64) error
	unmapDMA(iova, size uint64) error
	close()
}

// Space is an address space that the DMA of all its devices goes through. The pool's slabs are mapped once for all of
// them. Its methods are control plane, for any goroutine but a reactor's.
//
// It is one of memory's Registrants: it may be added to the pool before the first device is open. The kernel takes
// mappings only while there is a device, so until then slabs are noted, and mapped with the first one.
type Space struct {
	host  *Host
	table Table

	mu      sync.Mutex
	io      addressSpace // nil: no device yet
	addr    addresses
	slabs   map[uint32]*mapping
	devices int
	closed  bool
}

type mapping struct {
	slab *memory.Slab
	iova uint64
	live bool // the kernel has it
}

// NewSpace makes an empty address space. Nothing of vfio is touched before the first OpenDevice.
func (h *Host) NewSpace() *Space {
	return &Space{host: h, slabs: make(map[uint32]*mapping)}
}

// Table returns the table of the slabs' I/O addresses.
func (s *Space) Table() *Table { return &s.table }

// Host returns the machine the space belongs to.
func (s *Space) Host() *Host { return s.host }

func (s *Space) String() string { return "IOMMU" }

// Mapped returns how many bytes are mapped for DMA, and in how many pieces.
func (s *Space) Mapped() (bytes uint64, pieces int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.slabs {
		if m.live {
			bytes += m.slab.Size
			pieces++
		}
	}
	return bytes, pieces
}

// RegisterSlab maps a slab for every device, or notes it until there is one.
func (s *Space) RegisterSlab(slab *memory.Slab) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("the I/O address space is closed")
	}
	if s.slabs[slab.Index] != nil {
		return fmt.Errorf("slab %d is mapped already", slab.Index)
	}
	m := &mapping{slab: slab}
	if s.devices > 0 {
		if err := s.mapSlab(m); err != nil {
			return err
		}
	}
	s.slabs[slab.Index] = m
	return nil
}

// UnregisterSlab takes the mapping away: the devices' DMA no longer reaches the slab.
func (s *Space) UnregisterSlab(slab *memory.Slab) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.slabs[slab.Index]
	if m == nil {
		return
	}
	delete(s.slabs, slab.Index)
	s.unmapSlab(m)
}

func (s *Space) mapSlab(m *mapping) error {
	slab := m.slab
	iova, ok := uint64(0), false
	for _, align := range []uint64{1 << 30, 2 << 20, 4 << 10} {
		if align > slab.Size && align > memory.PageSize {
			continue
		}
		if iova, ok = s.addr.take(slab.Size, uint64(slab.Base), align); ok {
			break
		}
	}
	if !ok {
		return &SpaceError{Size: slab.Size, Ranges: s.addr.ranges}
	}
	if err := s.io.mapDMA(slab.Base, iova, slab.Size); err != nil {
		s.addr.give(iova)
		return s.explainMap(slab, iova, err)
	}
	m.iova, m.live = iova, true
	s.table.Set(slab, iova)
	return nil
}

func (s *Space) unmapSlab(m *mapping) {
	if !m.live {
		return
	}
	s.table.Clear(m.slab)
	m.live = false
	if err := s.io.unmapDMA(m.iova, m.slab.Size); err != nil {
		// The kernel may still have it: memory that a device could reach must not go back to the system.
		panic(fmt.Sprintf("vfio: unmapping %d bytes at I/O address %#x: %v", m.slab.Size, m.iova, err))
	}
	s.addr.give(m.iova)
}

// OpenDevice opens a function that a vfio driver has, and lets its DMA go through the space.
func (s *Space) OpenDevice(address string) (*Device, error) {
	f, err := s.host.Function(address)
	if err != nil {
		return nil, err
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("%s: the I/O address space is closed", f.Address)
	}
	if s.io == nil {
		s.io = s.host.chooseIO(&f)
	}
	fd, release, err := s.io.attach(&f)
	if err != nil {
		s.dropUnused()
		return nil, fmt.Errorf("%s: %w", f.Address, err)
	}
	s.devices++
	if err := s.settle(); err != nil {
		s.released(release())
		return nil, fmt.Errorf("%s: %w", f.Address, err)
	}
	d, err := newDevice(s.host.kernel, f, fd)
	if err != nil {
		s.released(release())
		return nil, fmt.Errorf("%s: %w", f.Address, err)
	}
	d.release = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.released(release())
	}
	return d, nil
}

// settle asks for the ranges anew, since each device can narrow them, and maps what is not mapped yet.
func (s *Space) settle() error {
	ranges, avail, err := s.io.limits()
	if err != nil {
		return fmt.Errorf("%s: asking for the I/O address ranges: %w", s.io.name(), err)
	}
	s.addr.setRanges(ranges)
	for _, used := range s.addr.used {
		if !s.addr.contains(used) {
			return fmt.Errorf("its IOMMU reaches %s only, and memory is mapped at %#x for other drives: open this drive first", rangesText(ranges), used.Start)
		}
	}
	missing := 0
	var order []uint32
	for index, m := range s.slabs {
		if !m.live {
			missing++
			order = append(order, index)
		}
	}
	if avail >= 0 && int64(missing) > avail {
		return &LimitError{Err: fmt.Errorf("%d mappings wanted, %d left", missing, avail)}
	}
	slices.Sort(order)
	for _, index := range order {
		if err := s.mapSlab(s.slabs[index]); err != nil {
			return err
		}
	}
	return nil
}

// released notes that a device has gone.
func (s *Space) released(dropped bool) {
	s.devices--
	if dropped {
		for _, m := range s.slabs {
			if m.live {
				s.table.Clear(m.slab)
				s.addr.give(m.iova)
				m.live = false
			}
		}
	}
	s.dropUnused()
}

// dropUnused forgets the kernel's interface when no device is left, so that the next one chooses afresh.
func (s *Space) dropUnused() {
	if s.devices > 0 || s.io == nil {
		return
	}
	for _, m := range s.slabs {
		s.unmapSlab(m)
	}
	s.io.close()
	s.io = nil
}

// Close ends the space. Every device must be closed, and the space removed from the pool.
func (s *Space) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.devices > 0 {
		return fmt.Errorf("the I/O address space still has %d devices", s.devices)
	}
	s.closed = true
	s.dropUnused()
	return nil
}
