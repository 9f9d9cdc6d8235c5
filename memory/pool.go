package memory

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
)

// maxBufferSlab bounds one slab of buffers, so that block numbers find their slab by a shift.
const maxBufferSlab = 16 << 30

// Config describes a Pool.
type Config struct {
	Size      uint64 // bytes for buffers, rounded up to chunks of 2 MiB
	HugePages HugePolicy
	Reserve   uint64       // bytes that each Cache keeps for ClassAdmin
	NUMANodes []int        // nodes to take the memory from; none: wherever the kernel likes
	Shared    bool         // shared mappings even where that loses transparent hugepages: a verbs stand-in reaches them from another process
	Log       *slog.Logger // nil: slog.Default()
}

// Pool is the memory of one process. Its methods are control plane, for any goroutine but a reactor's.
type Pool struct {
	cfg Config
	log *slog.Logger

	arenas []arena // the slabs of buffers, by Slab.Index; fixed after New
	stack  chunkStack
	blocks blockTable

	slabs [MaxSlabs]atomic.Pointer[Slab]

	mu          sync.Mutex // serializes everything below, and every call of a Registrant
	registrants []Registrant
	caches      []*Cache
	slabBytes   uint64 // of NewSlab's slabs
	closed      bool
}

// arena is what the caches need to know of a slab of buffers.
type arena struct {
	base uintptr
	slab *Slab
}

// New maps the pool's buffers. Nothing is registered yet.
func New(cfg Config) (*Pool, error) {
	if cfg.Size == 0 {
		return nil, errors.New("memory: the pool's size is 0: give it at least a few MiB per reactor")
	}
	p := &Pool{cfg: cfg, log: cfg.Log}
	if p.log == nil {
		p.log = slog.Default()
	}
	raiseMemlock()
	size := roundUp(cfg.Size, ChunkSize)
	if size>>pageShift >= noPage {
		return nil, fmt.Errorf("memory: the pool's size %d is more than 16 TiB", cfg.Size)
	}
	for done := uint64(0); done < size; {
		s, err := p.newSlab(min(size-done, maxBufferSlab), size-done)
		if err != nil {
			p.release()
			return nil, fmt.Errorf("memory: map %d bytes of buffers: %w", size, err)
		}
		p.arenas = append(p.arenas, arena{base: s.Base, slab: s})
		done += s.Size
	}
	p.blocks.init(uint32(size >> pageShift))
	p.stack.init(uint32(size / ChunkSize))
	return p, nil
}

// NewSlab maps a slab of its own, zeroed, for a namespace in memory, and registers it with every registrant.
func (p *Pool) NewSlab(size uint64) (*Slab, error) {
	if size == 0 {
		return nil, errors.New("memory: a slab of 0 bytes")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.New("memory: the pool is closed")
	}
	s, err := p.newSlab(roundUp(size, ChunkSize), 0)
	if err != nil {
		return nil, fmt.Errorf("memory: map a slab of %d bytes: %w", size, err)
	}
	for i, r := range p.registrants {
		if err := r.RegisterSlab(s); err != nil {
			for j := i - 1; j >= 0; j-- {
				p.registrants[j].UnregisterSlab(s)
			}
			p.dropSlab(s)
			return nil, fmt.Errorf("memory: register a slab of %d bytes with %v: %w", size, r, p.explain(err, size))
		}
	}
	p.slabBytes += s.Size
	return s, nil
}

// FreeSlab unregisters and unmaps a slab of NewSlab. No segment of it may be in use any more.
func (p *Pool) FreeSlab(s *Slab) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if int(s.Index) < len(p.arenas) || p.slabs[s.Index].Load() != s {
		panic(fmt.Sprintf("memory: FreeSlab of slab %d, which is no slab of NewSlab's or was freed before", s.Index))
	}
	for i := len(p.registrants) - 1; i >= 0; i-- {
		p.registrants[i].UnregisterSlab(s)
	}
	p.slabBytes -= s.Size
	p.dropSlab(s)
}

// Slab finds a slab by its index; nil if there is none. Any goroutine may call it.
func (p *Pool) Slab(index uint32) *Slab {
	if index >= MaxSlabs {
		return nil
	}
	return p.slabs[index].Load()
}

// AddRegistrant registers every present slab with r, and every later one. On an error nothing stays registered. A
// device that went away and came back is removed and added again.
func (p *Pool) AddRegistrant(r Registrant) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errors.New("memory: the pool is closed")
	}
	for _, have := range p.registrants {
		if have == r {
			return fmt.Errorf("memory: %v is registered already", r)
		}
	}
	var done []*Slab
	var bytes uint64
	for i := range p.slabs {
		s := p.slabs[i].Load()
		if s == nil {
			continue
		}
		bytes += s.Size
		if err := r.RegisterSlab(s); err != nil {
			for j := len(done) - 1; j >= 0; j-- {
				r.UnregisterSlab(done[j])
			}
			return fmt.Errorf("memory: register slab %d of %d bytes with %v: %w", s.Index, s.Size, r, p.explain(err, bytes))
		}
		done = append(done, s)
	}
	p.registrants = append(p.registrants, r)
	return nil
}

// RemoveRegistrant unregisters every slab from r. No DMA of its device may be under way.
func (p *Pool) RemoveRegistrant(r Registrant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, have := range p.registrants {
		if have != r {
			continue
		}
		p.unregisterAll(r)
		p.registrants = append(p.registrants[:i], p.registrants[i+1:]...)
		return
	}
}

// Close unregisters and unmaps everything. Every cache's memory and every slab must be out of use.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	for i := len(p.registrants) - 1; i >= 0; i-- {
		p.unregisterAll(p.registrants[i])
	}
	p.registrants = nil
	p.release()
}

func (p *Pool) unregisterAll(r Registrant) {
	for i := MaxSlabs - 1; i >= 0; i-- {
		if s := p.slabs[i].Load(); s != nil {
			r.UnregisterSlab(s)
		}
	}
}

func (p *Pool) release() {
	for i := range p.slabs {
		if s := p.slabs[i].Load(); s != nil {
			p.dropSlab(s)
		}
	}
	p.blocks.free()
}

// newSlab maps and numbers a slab. The size is a multiple of ChunkSize. More slabs may be to come: total, if not 0, is how
// much memory there must be.
func (p *Pool) newSlab(size, total uint64) (*Slab, error) {
	index := uint32(0)
	for p.slabs[index].Load() != nil {
		if index++; index == MaxSlabs {
			return nil, fmt.Errorf("all %d slabs are in use: use fewer and bigger memory namespaces", MaxSlabs)
		}
	}
	s, err := mapSlab(size, max(size, total), &p.cfg, p.log)
	if err != nil {
		return nil, err
	}
	s.Index = index
	p.slabs[index].Store(s)
	return s, nil
}

func (p *Pool) dropSlab(s *Slab) {
	p.slabs[s.Index].Store(nil)
	unmapSlab(s)
}

func roundUp(n, unit uint64) uint64 { return (n + unit - 1) / unit * unit }

// BufferSlabs are the slabs that the caches allocate from, by Slab.Index. They stay until Close.
func (p *Pool) BufferSlabs() []*Slab {
	slabs := make([]*Slab, len(p.arenas))
	for i := range p.arenas {
		slabs[i] = p.arenas[i].slab
	}
	return slabs
}
