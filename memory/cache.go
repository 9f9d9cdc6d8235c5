package memory

import (
	"math/bits"
	"sync/atomic"

	"rocet/internal/invariants"
)

const (
	// Blocks of a power of two pages up to 1 MiB wait in quick lists before they are joined with their buddies, so that
	// the usual turnover of equal sizes neither splits nor joins.
	quickOrders = 9
	quickDepth  = 64
	// maxQuickPages bounds what all quick lists of a cache hold: they keep chunks from being given back.
	maxQuickPages = 4 << 20 >> pageShift
	// oneTransfer is what a cache can always serve to ClassIO out of the chunks that it never gives back: the target's
	// default MDTS. So it makes progress even while the others have everything else.
	oneTransfer = 1 << 20
	// complainEvery is how many failed allocations pass between two calls for the others' spare chunks.
	complainEvery = 1024
)

// quickList is a stack of free blocks of one order.
type quickList struct {
	n     uint32
	pages [quickDepth]uint32
}

// Cache hands out the memory of one reactor, and is used by that reactor only.
//
// It is a buddy allocator over the chunks that it took from the pool. A wholly free chunk goes back to the pool, but for
// a few that are kept so that a busy cache does not take and give the same chunk over and over; those go back too as soon
// as another cache runs dry. The chunks of its guaranteed share (the reserve and one transfer) stay for ever.
type Cache struct {
	_     [128]byte // no other writer's line
	owner invariants.Owner
	pool  *Pool
	buddies

	freePages  int // in the lists and the quick lists
	reserve    int // pages that ClassIO leaves
	quickPages int
	quickMax   int
	held       int // chunks
	heldMin    int
	seenHunger uint32
	complaints uint32
	quick      [quickOrders]quickList

	stats cacheCounters
	_     [128]byte
}

// cacheCounters are written by the owner and read by Pool.Stats. They change with chunks and failures only, never with
// an allocation that works.
type cacheCounters struct {
	held        atomic.Int64
	taken       atomic.Uint64
	given       atomic.Uint64
	failures    [numClasses]atomic.Uint64
	fragmented  atomic.Uint64
	reserveUsed atomic.Uint64
}

// NewCache makes the cache of one reactor and takes its guaranteed share of the pool. If the pool has not that much, the
// cache starts with less and says so in the log.
func (p *Pool) NewCache() *Cache {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &Cache{
		pool:     p,
		reserve:  int(roundUp(p.cfg.Reserve, PageSize) >> pageShift),
		heldMin:  int(roundUp(p.cfg.Reserve+oneTransfer, ChunkSize) >> chunkShift),
		quickMax: min(maxQuickPages, int(p.stack.total)*chunkPages/8),
	}
	c.buddies.init(&p.blocks)
	for c.held < c.heldMin && c.takeChunk() {
	}
	if c.held < c.heldMin {
		p.log.Warn("the memory pool is too small for its reactors: I/O will wait for memory",
			"pool_bytes", uint64(p.stack.total)*ChunkSize, "reactors", len(p.caches)+1,
			"remedy", "a memory.size of at least 4 MiB and the reserve for each reactor")
	}
	p.caches = append(p.caches, c)
	p.stack.spare.Store(int32(max(1, min(4, int(p.stack.total)/(4*len(p.caches))))))
	return c
}

// Alloc fills segs with memory for n bytes: page-aligned runs, as few as possible, the last one's length cut to n. It
// allocates all or nothing, and at most len(segs) runs; n of 0 needs none. It does not clear the memory.
func (c *Cache) Alloc(segs []Segment, n uint32, class Class) (used int, ok bool) {
	c.owner.Check()
	pages := uint32((uint64(n) + PageSize - 1) >> pageShift)
	if order := bits.Len32(pages) - 1; pages&(pages-1) == 0 && uint(order) < quickOrders && len(segs) != 0 {
		q := &c.quick[order]
		if q.n != 0 && (class != ClassIO || c.freePages-int(pages) >= c.reserve) {
			q.n--
			page := q.pages[q.n%quickDepth]
			c.freePages -= int(pages)
			c.quickPages -= int(pages)
			if invariants.Enabled {
				c.markUsed(page, pages)
			}
			segs[0] = c.pool.segment(page, n)
			return 1, true
		}
	}
	return c.allocSlow(segs, n, pages, class)
}

func (c *Cache) allocSlow(segs []Segment, n, pages uint32, class Class) (int, bool) {
	if pages == 0 {
		return 0, true
	}
	floor := 0
	if class == ClassIO {
		floor = c.reserve
	}
	for c.freePages-int(pages) < floor {
		if !c.grow() {
			c.stats.failures[class].Add(1)
			return 0, false
		}
	}
	if c.freePages-int(pages) < c.reserve {
		c.stats.reserveUsed.Add(1)
	}
	used, left := 0, pages
	for left > 0 && used < len(segs) {
		page, got := c.piece(min(left, chunkPages))
		if got < min(left, chunkPages) {
			c.stats.fragmented.Add(1)
		}
		c.freePages -= int(got)
		left -= got
		segs[used] = c.pool.segment(page, got<<pageShift)
		if invariants.Enabled {
			c.markUsed(page, got)
		}
		used++
	}
	if left > 0 { // too scattered for so few segments
		c.Free(segs[:used])
		c.stats.failures[class].Add(1)
		return 0, false
	}
	segs[used-1].Len -= pages<<pageShift - n
	return used, true
}

// piece finds a run of pages: out of what is there, out of the quick lists, out of a new chunk; and if all that is no
// help, a shorter run. The caller has seen that enough pages are free.
func (c *Cache) piece(pages uint32) (page, got uint32) {
	page, ok := c.take(pages)
	if !ok && c.quickPages > 0 {
		c.flushQuick()
		page, ok = c.take(pages)
	}
	if !ok && c.grow() {
		page, ok = c.take(pages)
	}
	if ok {
		return page, pages
	}
	page, got, ok = c.largest()
	invariants.Assert(ok, "free pages counted and none found")
	return page, got
}

// Free takes back what Alloc filled in. The segments' lengths must be as Alloc set them, or at least fill the same pages.
func (c *Cache) Free(segs []Segment) {
	c.owner.Check()
	for i := range segs {
		s := &segs[i]
		pages := uint32((uint64(s.Len) + PageSize - 1) >> pageShift)
		page := c.pool.page(s)
		if invariants.Enabled {
			c.markFree(page, pages)
			invariants.Poison(c.pool.segment(page, pages<<pageShift).Bytes())
		}
		c.freePages += int(pages)
		order := bits.Len32(pages) - 1
		if pages&(pages-1) == 0 && uint(order) < quickOrders && c.quickPages+int(pages) <= c.quickMax {
			if q := &c.quick[order]; q.n < quickDepth {
				q.pages[q.n] = page
				q.n++
				c.quickPages += int(pages)
				continue
			}
		}
		c.insertRun(page, pages)
	}
	if c.whole > 0 || c.seenHunger != c.pool.stack.hunger.Load() {
		c.shrink()
	}
}

// CanGrow tells, by one load, whether the pool has a chunk left: a reactor whose requests wait for memory, with none of
// its own outstanding, tries again when it has.
func (c *Cache) CanGrow() bool { return !c.pool.stack.empty() }

// Trim gives back every chunk above the guaranteed share that is wholly free. A reactor calls it now and then, because
// what it hoards after a burst is otherwise given up only when another one is short.
func (c *Cache) Trim() {
	c.owner.Check()
	c.flushQuick()
	c.giveChunks(0)
}

// Close gives all chunks back. Everything allocated must have been freed.
func (c *Cache) Close() {
	c.owner.Check()
	c.flushQuick()
	c.heldMin = 0
	c.giveChunks(0)
	invariants.Assert(c.held == 0, "a cache is closed while its memory is in use")
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, have := range p.caches {
		if have == c {
			p.caches = append(p.caches[:i], p.caches[i+1:]...)
			return
		}
	}
}

// shrink follows a Free: a free chunk may be one too many, or another cache be short.
func (c *Cache) shrink() {
	if hunger := c.pool.stack.hunger.Load(); hunger != c.seenHunger {
		c.seenHunger = hunger
		c.flushQuick()
		c.giveChunks(0)
		return
	}
	c.giveChunks(int(c.pool.stack.spare.Load()))
}

func (c *Cache) giveChunks(keep int) {
	for c.whole > keep && c.held > c.heldMin {
		page := c.heads[chunkOrder]
		c.unlink(page, chunkOrder)
		c.freePages -= chunkPages
		c.held--
		c.stats.held.Store(int64(c.held))
		c.stats.given.Add(1)
		c.pool.stack.push(page >> chunkOrder)
	}
}

// grow takes a chunk, or calls on the others to give theirs back.
func (c *Cache) grow() bool {
	if c.takeChunk() {
		c.complaints = 0
		return true
	}
	if c.complaints%complainEvery == 0 {
		// The own spare chunks are not what is missing: they would have been used.
		c.seenHunger = c.pool.stack.hunger.Add(1)
	}
	c.complaints++
	return false
}

func (c *Cache) takeChunk() bool {
	chunk, ok := c.pool.stack.pop()
	if !ok {
		return false
	}
	c.held++
	c.freePages += chunkPages
	c.stats.held.Store(int64(c.held))
	c.stats.taken.Add(1)
	c.push(chunk<<chunkOrder, chunkOrder)
	return true
}

func (c *Cache) flushQuick() {
	for o := range c.quick {
		q := &c.quick[o]
		for ; q.n > 0; q.n-- {
			c.insert(q.pages[q.n-1], o)
		}
	}
	c.quickPages = 0
}

// markUsed notes what is handed out, in debug builds, to find what is freed twice.
func (c *Cache) markUsed(page, pages uint32) {
	for i := page; i < page+pages; i++ {
		invariants.Assert(c.state[i] == pageInside, "a page is handed out twice")
		c.state[i] = pageUsed
	}
}

func (c *Cache) markFree(page, pages uint32) {
	for i := page; i < page+pages; i++ {
		invariants.Assert(c.state[i] == pageUsed, "a page is freed that is not in use")
		c.state[i] = pageInside
	}
}

// segment makes the segment of n bytes that starts with a page.
func (p *Pool) segment(page, n uint32) Segment {
	const perSlab = maxBufferSlab >> pageShift
	slab := page / perSlab
	return Segment{Addr: p.arenas[slab].base + uintptr(page%perSlab)<<pageShift, Len: n, Slab: slab}
}

// page is the number of a segment's first page.
func (p *Pool) page(s *Segment) uint32 {
	const perSlab = maxBufferSlab >> pageShift
	return s.Slab*perSlab + uint32((s.Addr-p.arenas[s.Slab].base)>>pageShift)
}
