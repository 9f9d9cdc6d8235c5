package rdma

import (
	"fmt"
	"sync"

	"rocet/memory"
)

// capsuleSlabSize is what the capsule memory grows by: big, because every slab is
// a memory region of every device.
const capsuleSlabSize = 16 << 20

// capsules hands out the memory that hosts' capsules arrive in and responses leave
// from: one contiguous run per queue or shared receive queue, in slabs that are
// registered with every device and mapped for every drive, so that data which came
// in a capsule goes to the drive from where the NIC put it. Control plane only.
type capsules struct {
	pool *memory.Pool

	mu    sync.Mutex
	slabs []*capsuleSlab
}

type capsuleSlab struct {
	slab *memory.Slab
	free []span // by offset; neighbours are joined
	used uint64
}

type span struct{ off, size uint64 }

// region is a run of capsule memory.
type region struct {
	slab *capsuleSlab
	span
}

func (r region) segment(off uint64, n uint32) memory.Segment {
	return r.slab.slab.Segment(r.off+off, n)
}

func (c *capsules) alloc(size uint64) (region, error) {
	size = roundUp(size, memory.PageSize)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.slabs {
		if off, ok := s.take(size); ok {
			return region{s, span{off, size}}, nil
		}
	}
	slab, err := c.pool.NewSlab(max(size, capsuleSlabSize))
	if err != nil {
		return region{}, fmt.Errorf("rdma: %d bytes for capsules: %w", size, err)
	}
	s := &capsuleSlab{slab: slab, free: []span{{0, slab.Size}}}
	c.slabs = append(c.slabs, s)
	off, _ := s.take(size)
	return region{s, span{off, size}}, nil
}

// take finds the first run that is long enough.
func (s *capsuleSlab) take(size uint64) (uint64, bool) {
	for i := range s.free {
		f := &s.free[i]
		if f.size < size {
			continue
		}
		off := f.off
		f.off += size
		f.size -= size
		if f.size == 0 {
			s.free = append(s.free[:i], s.free[i+1:]...)
		}
		s.used += size
		return off, true
	}
	return 0, false
}

// free takes a region back. A slab that becomes empty goes back to the system,
// unless it is the last one, which the next connection will want.
func (c *capsules) free(r region) {
	if r.slab == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := r.slab
	s.used -= r.size
	i := 0
	for i < len(s.free) && s.free[i].off < r.off {
		i++
	}
	s.free = append(s.free, span{})
	copy(s.free[i+1:], s.free[i:])
	s.free[i] = r.span
	if i+1 < len(s.free) && s.free[i].off+s.free[i].size == s.free[i+1].off {
		s.free[i].size += s.free[i+1].size
		s.free = append(s.free[:i+1], s.free[i+2:]...)
	}
	if i > 0 && s.free[i-1].off+s.free[i-1].size == s.free[i].off {
		s.free[i-1].size += s.free[i].size
		s.free = append(s.free[:i], s.free[i+1:]...)
	}
	if s.used == 0 && len(c.slabs) > 1 {
		c.drop(s)
	}
}

// usage is the bytes handed out and the bytes of the slabs.
func (c *capsules) usage() (used, size uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.slabs {
		used += s.used
		size += s.slab.Size
	}
	return used, size
}

// close gives every slab back; what is still in use stays and is an error.
func (c *capsules) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.slabs) - 1; i >= 0; i-- {
		if c.slabs[i].used == 0 {
			c.drop(c.slabs[i])
		}
	}
	if n := len(c.slabs); n != 0 {
		return fmt.Errorf("rdma: %d slabs of capsule memory are still in use", n)
	}
	return nil
}

func (c *capsules) drop(s *capsuleSlab) {
	for i := range c.slabs {
		if c.slabs[i] == s {
			c.slabs = append(c.slabs[:i], c.slabs[i+1:]...)
			break
		}
	}
	c.pool.FreeSlab(s.slab)
}

func roundUp(n, unit uint64) uint64 { return (n + unit - 1) / unit * unit }
