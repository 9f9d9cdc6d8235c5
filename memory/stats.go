package memory

// Stats is the state of a pool. The counters of caches are read while they change, so sums may be off by what moves.
type Stats struct {
	Bytes      uint64 // of buffers
	FreeBytes  uint64 // of buffers that no cache holds
	SlabBytes  uint64 // of memory namespaces
	Slabs      int
	PageSize   uint32 // of the buffers' mapping; the smallest, if they differ
	Registered int    // registrants
	Hunger     uint64 // how often a cache asked the others for memory
	Caches     []CacheStats
}

// CacheStats is what can be known of a cache from another goroutine.
type CacheStats struct {
	HeldBytes     uint64 // chunks it took from the pool
	ChunksTaken   uint64
	ChunksGiven   uint64
	FailuresIO    uint64 // allocations that found no memory
	FailuresAdmin uint64
	Fragmented    uint64 // pieces shorter than wanted, because memory was scattered
	ReserveUsed   uint64 // admin allocations that only the reserve made possible
}

// Usage is the exact state of a cache, as its own reactor sees it.
type Usage struct {
	HeldBytes uint64
	UsedBytes uint64 // handed out, in whole pages
}

// Stats reads the counters. Any goroutine may call it; it waits for a registration under way.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := Stats{
		Bytes:      uint64(p.stack.total) * ChunkSize,
		FreeBytes:  uint64(max(p.stack.free.Load(), 0)) * ChunkSize,
		SlabBytes:  p.slabBytes,
		Registered: len(p.registrants),
		Hunger:     uint64(p.stack.hunger.Load()),
		Caches:     make([]CacheStats, 0, len(p.caches)),
	}
	for i := range p.slabs {
		if p.slabs[i].Load() != nil {
			st.Slabs++
		}
	}
	for i := range p.arenas {
		if size := p.arenas[i].slab.PageSize; st.PageSize == 0 || size < st.PageSize {
			st.PageSize = size
		}
	}
	for _, c := range p.caches {
		st.Caches = append(st.Caches, CacheStats{
			HeldBytes:     uint64(c.stats.held.Load()) * ChunkSize,
			ChunksTaken:   c.stats.taken.Load(),
			ChunksGiven:   c.stats.given.Load(),
			FailuresIO:    c.stats.failures[ClassIO].Load(),
			FailuresAdmin: c.stats.failures[ClassAdmin].Load(),
			Fragmented:    c.stats.fragmented.Load(),
			ReserveUsed:   c.stats.reserveUsed.Load(),
		})
	}
	return st
}

// Usage tells how much of the cache's memory is in use. Its reactor calls it.
func (c *Cache) Usage() Usage {
	c.owner.Check()
	held := uint64(c.held) * ChunkSize
	return Usage{HeldBytes: held, UsedBytes: held - uint64(c.freePages)<<pageShift}
}
