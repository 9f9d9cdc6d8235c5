package memory

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"testing"

	"rocet/internal/invariants"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func newPool(t testing.TB, cfg Config) *Pool {
	t.Helper()
	cfg.Log = quiet
	if cfg.HugePages == HugeAuto {
		cfg.HugePages = HugeNever // the same on every machine
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// rounds are fewer in debug builds, which are slow.
func rounds(n int) int {
	if invariants.Enabled {
		return n / 5
	}
	return n
}

// verify checks the cache's own books.
func (c *Cache) verify(t testing.TB) {
	t.Helper()
	free, whole, quick := 0, 0, 0
	var mask uint32
	seen := map[uint32]bool{}
	note := func(page uint32, order int) {
		if page%(1<<order) != 0 {
			t.Fatalf("free block %d of order %d is not aligned", page, order)
		}
		for i := page; i < page+1<<order; i++ {
			if seen[i] {
				t.Fatalf("page %d is free twice", i)
			}
			seen[i] = true
		}
		free += 1 << order
	}
	for order, page := range c.heads {
		prev := uint32(noPage)
		for ; page != noPage; page = c.links[page].next {
			if c.state[page] != uint8(order+1) || c.links[page].prev != prev {
				t.Fatalf("block %d in list %d: state %d, prev %d", page, order, c.state[page], c.links[page].prev)
			}
			mask |= 1 << order
			if order == chunkOrder {
				whole++
			} else if buddy := page ^ 1<<order; c.state[buddy] == uint8(order+1) {
				t.Fatalf("blocks %d and %d of order %d are free and not joined", page, buddy, order)
			}
			note(page, order)
			prev = page
		}
	}
	for order := range c.quick {
		for _, page := range c.quick[order].pages[:c.quick[order].n] {
			note(page, order)
			quick += 1 << order
		}
	}
	if free != c.freePages || whole != c.whole || mask != c.mask || quick != c.quickPages {
		t.Fatalf("free %d, whole %d, mask %#x, quick %d; the books say %d, %d, %#x, %d", free, whole, mask, quick, c.freePages, c.whole, c.mask, c.quickPages)
	}
}

// model is a set of live allocations, each filled with its own pattern.
type model struct {
	t     testing.TB
	cache *Cache
	live  []allocation
	owner map[uintptr]int // page address → allocation id
	next  int
}

type allocation struct {
	id   int
	segs []Segment
	n    uint32
}

func (m *model) alloc(n uint32, maxSegs int, class Class) bool {
	m.t.Helper()
	segs := make([]Segment, maxSegs)
	before := m.cache.Usage().UsedBytes
	used, ok := m.cache.Alloc(segs, n, class)
	if !ok {
		if used != 0 || m.cache.Usage().UsedBytes != before {
			m.t.Fatalf("a failed Alloc used %d segments and %d bytes", used, m.cache.Usage().UsedBytes-before)
		}
		return false
	}
	segs = segs[:used]
	if Length(segs) != uint64(n) {
		m.t.Fatalf("%d bytes wanted, %d got in %d segments", n, Length(segs), used)
	}
	a := allocation{id: m.next, segs: segs, n: n}
	m.next++
	for i, s := range segs {
		if s.Addr%PageSize != 0 || (i+1 < used && s.Len%PageSize != 0) || s.Len == 0 || s.Len > ChunkSize {
			m.t.Fatalf("segment %d of %d: address %#x, length %d", i, used, s.Addr, s.Len)
		}
		slab := m.cache.pool.Slab(s.Slab)
		if s.Addr < slab.Base || s.Addr+uintptr(s.Len) > slab.Base+uintptr(slab.Size) {
			m.t.Fatalf("segment %#x+%d lies outside slab %d", s.Addr, s.Len, s.Slab)
		}
		for page := s.Addr; page < s.Addr+uintptr(s.Len); page += PageSize {
			if other, taken := m.owner[page]; taken {
				m.t.Fatalf("page %#x belongs to allocations %d and %d", page, other, a.id)
			}
			m.owner[page] = a.id
		}
		b := s.Bytes()
		b[0], b[len(b)-1] = byte(a.id), byte(a.id)
	}
	m.live = append(m.live, a)
	return true
}

func (m *model) free(i int) {
	m.t.Helper()
	a := m.live[i]
	for _, s := range a.segs {
		if b := s.Bytes(); b[0] != byte(a.id) || b[len(b)-1] != byte(a.id) {
			m.t.Fatalf("allocation %d was overwritten", a.id)
		}
		for page := s.Addr; page < s.Addr+uintptr(s.Len); page += PageSize {
			delete(m.owner, page)
		}
	}
	m.cache.Free(a.segs)
	m.live[i] = m.live[len(m.live)-1]
	m.live = m.live[:len(m.live)-1]
}

// finish frees everything and checks that memory is whole again.
func (m *model) finish() {
	m.t.Helper()
	for len(m.live) > 0 {
		m.free(len(m.live) - 1)
	}
	m.cache.verify(m.t)
	m.cache.Trim()
	m.cache.verify(m.t)
	if m.cache.whole != m.cache.held || m.cache.held != m.cache.heldMin {
		m.t.Fatalf("all is free, and %d of %d chunks are whole (%d wanted)", m.cache.whole, m.cache.held, m.cache.heldMin)
	}
}

// playground is small enough to run dry.
var playground = Config{Size: 8 * ChunkSize, Reserve: 64 << 10}

// play runs operations out of bytes: two per operation.
func play(t testing.TB, p *Pool, program []byte) {
	m := &model{t: t, cache: p.NewCache(), owner: map[uintptr]int{}}
	defer func() {
		m.cache.Close()
		if st := p.Stats(); st.FreeBytes != st.Bytes {
			t.Errorf("%d bytes free of %d", st.FreeBytes, st.Bytes)
		}
	}()
	for i := 0; i+1 < len(program); i += 2 {
		op, arg := program[i], uint32(program[i+1])
		switch {
		case op < 96:
			m.alloc((arg+1)*PageSize>>(op%3), 16, ClassIO)
		case op < 112:
			m.alloc((arg+1)*16*PageSize-uint32(op), 16, ClassIO) // up to 16 MiB
		case op < 128:
			m.alloc((arg%8+1)*PageSize, 1+int(op%3), ClassAdmin)
		case op < 132:
			m.cache.Trim()
		default:
			if len(m.live) > 0 {
				m.free(int(arg) % len(m.live))
			}
		}
		if i%64 == 0 {
			m.cache.verify(t)
		}
	}
	m.finish()
}

func FuzzCache(f *testing.F) {
	f.Add([]byte{0, 0, 200, 0, 1, 255, 100, 255, 97, 3, 255, 1})
	rnd := rand.New(rand.NewPCG(3, 4))
	long := make([]byte, 600)
	for i := range long {
		long[i] = byte(rnd.Uint32())
	}
	f.Add(long)
	p := newPool(f, playground)
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) > 4096 {
			return
		}
		play(t, p, program)
	})
}

func TestCacheRandomly(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	p := newPool(t, playground)
	for range rounds(20) {
		program := make([]byte, 3000)
		for i := range program {
			program[i] = byte(rnd.Uint32())
		}
		play(t, p, program)
	}
}

func TestAllocShapes(t *testing.T) {
	p := newPool(t, Config{Size: 16 * ChunkSize})
	c := p.NewCache()
	for _, want := range []struct {
		n    uint32
		used int
	}{
		{0, 0}, {1, 1}, {512, 1}, {4096, 1}, {4097, 1}, {12 << 10, 1}, {128 << 10, 1}, {132 << 10, 1},
		{1 << 20, 1}, {1<<20 + 512, 1}, {2 << 20, 1}, {2<<20 + 1, 2}, {5 << 20, 3},
	} {
		var segs [16]Segment
		used, ok := c.Alloc(segs[:], want.n, ClassIO)
		if !ok || used != want.used || Length(segs[:used]) != uint64(want.n) {
			t.Errorf("%d bytes: %d segments of %d bytes, %v; want %d segments", want.n, used, Length(segs[:used]), ok, want.used)
		}
		pages := (uint64(want.n) + PageSize - 1) / PageSize
		if u := c.Usage(); u.UsedBytes != pages*PageSize {
			t.Errorf("%d bytes use %d", want.n, u.UsedBytes)
		}
		c.verify(t)
		c.Free(segs[:used])
		c.verify(t)
	}
	if used, ok := c.Alloc(nil, 4096, ClassIO); ok || used != 0 {
		t.Error("allocated into no segments")
	}
	var one [1]Segment
	if used, ok := c.Alloc(one[:], 2<<20+1, ClassIO); ok || used != 0 {
		t.Error("put more than a chunk into one segment")
	}
	if u := c.Usage(); u.UsedBytes != 0 {
		t.Errorf("%d bytes leaked", u.UsedBytes)
	}
}

// TestScattered forces allocations out of single pages.
func TestScattered(t *testing.T) {
	p := newPool(t, Config{Size: ChunkSize})
	c := p.NewCache()
	pages := make([]Segment, chunkPages)
	for i := range pages {
		if used, ok := c.Alloc(pages[i:i+1], PageSize, ClassIO); !ok || used != 1 {
			t.Fatalf("page %d: %d, %v", i, used, ok)
		}
	}
	var segs [16]Segment
	if _, ok := c.Alloc(segs[:], 1, ClassIO); ok {
		t.Fatal("allocated from an empty pool")
	}
	for i := 0; i < len(pages); i += 2 { // every second page, by address
		c.Free(pages[i : i+1])
	}
	c.flushQuick()
	c.verify(t)
	if used, ok := c.Alloc(segs[:], 17*PageSize, ClassIO); ok {
		t.Errorf("17 scattered pages fit in %d segments", used)
	}
	if u := c.Usage(); u.UsedBytes != ChunkSize/2 {
		t.Errorf("%d bytes in use after a failure", u.UsedBytes)
	}
	used, ok := c.Alloc(segs[:], 16*PageSize-100, ClassIO)
	if !ok || used < 8 || Length(segs[:used]) != 16*PageSize-100 {
		t.Errorf("16 scattered pages: %d segments, %v", used, ok)
	}
	if st := p.Stats().Caches[0]; st.Fragmented == 0 || st.FailuresIO != 2 {
		t.Errorf("stats: %+v", st)
	}
	c.Free(segs[:used])
	for i := 1; i < len(pages); i += 2 {
		c.Free(pages[i : i+1])
	}
	c.flushQuick()
	c.verify(t)
	if c.whole != 1 {
		t.Error("all free, and not joined to a chunk")
	}
}

func TestReserveIsForAdmin(t *testing.T) {
	const reserve = 256 << 10
	p := newPool(t, Config{Size: 2 * ChunkSize, Reserve: reserve})
	c := p.NewCache()
	var io []Segment
	for {
		var s [1]Segment
		if _, ok := c.Alloc(s[:], 64<<10, ClassIO); !ok {
			break
		}
		io = append(io, s[0])
	}
	if got, want := len(io), (2*ChunkSize-reserve)/(64<<10); got != want {
		t.Errorf("I/O got %d buffers of 64 KiB, want %d", got, want)
	}
	var admin []Segment
	for {
		var s [1]Segment
		if _, ok := c.Alloc(s[:], 4096, ClassAdmin); !ok {
			break
		}
		admin = append(admin, s[0])
	}
	if got, want := len(admin), reserve/4096; got != want {
		t.Errorf("admin got %d pages of the reserve, want %d", got, want)
	}
	// What admin gives back does not become I/O's, quick lists or not.
	c.Free(admin)
	var s [1]Segment
	if _, ok := c.Alloc(s[:], 4096, ClassIO); ok {
		t.Error("I/O got a page of the reserve")
	}
	c.Free(io[:1])
	if _, ok := c.Alloc(s[:], 64<<10, ClassIO); !ok {
		t.Error("I/O did not get back what it freed")
	}
	if st := p.Stats().Caches[0]; st.ReserveUsed == 0 || st.FailuresIO != 2 || st.FailuresAdmin != 1 {
		t.Errorf("stats: %+v", st)
	}
}

// TestEveryCacheMakesProgress: one cache that takes all it can get leaves the others their share, and the chunks that it
// holds on to for speed come back when another one is short.
func TestEveryCacheMakesProgress(t *testing.T) {
	p := newPool(t, Config{Size: 32 * ChunkSize, Reserve: 128 << 10})
	greedy, modest := p.NewCache(), p.NewCache()
	var all []Segment
	for {
		var s [1]Segment
		if _, ok := greedy.Alloc(s[:], 64<<10, ClassIO); !ok {
			break
		}
		all = append(all, s[0])
	}
	var s [16]Segment
	used, ok := modest.Alloc(s[:], 1<<20, ClassIO)
	if !ok {
		t.Fatal("no room for one transfer")
	}
	if _, ok := modest.Alloc(s[used:], 1<<20, ClassIO); ok {
		t.Fatal("the greedy cache left too much")
	}
	if modest.CanGrow() {
		t.Error("CanGrow with an empty pool")
	}
	// The greedy one frees nearly everything; its quick lists and spare chunks would keep the rest.
	greedy.Free(all[1:])
	if !modest.CanGrow() {
		t.Error("nothing came back although another cache was short")
	}
	if _, ok := modest.Alloc(s[used:], 1<<20, ClassIO); !ok {
		t.Error("no memory although it is free")
	}
	greedy.verify(t)
	modest.verify(t)
	if p.Stats().Hunger == 0 {
		t.Error("the shortage was not counted")
	}
}

// TestBusyCacheKeepsItsChunks: a load that swings does not move chunks.
func TestBusyCacheKeepsItsChunks(t *testing.T) {
	p := newPool(t, Config{Size: 64 * ChunkSize})
	c := p.NewCache()
	var segs [8]Segment
	swing := func() {
		for i := range segs {
			if _, ok := c.Alloc(segs[i:i+1], 1<<20, ClassIO); !ok {
				t.Fatal("no memory")
			}
		}
		c.Free(segs[:])
	}
	swing()
	before := p.Stats().Caches[0]
	for range 100 {
		swing()
	}
	after := p.Stats().Caches[0]
	if moved := after.ChunksTaken - before.ChunksTaken; moved > 2 {
		t.Errorf("%d chunks moved", moved)
	}
	if after.HeldBytes > 8*ChunkSize {
		t.Errorf("it holds %d bytes for 8 MiB of load", after.HeldBytes)
	}
	c.Trim()
	if st := p.Stats(); st.Caches[0].HeldBytes != ChunkSize || st.FreeBytes != st.Bytes-ChunkSize {
		t.Errorf("after Trim: %+v", st)
	}
	c.Close()
	if st := p.Stats(); len(st.Caches) != 0 || st.FreeBytes != st.Bytes {
		t.Errorf("after Close: %+v", st)
	}
}

func TestTooSmallPoolWarnsAndWorks(t *testing.T) {
	p := newPool(t, Config{Size: 1, Reserve: 4096})
	p.NewCache()
	c := p.NewCache() // nothing is left for it
	var s [1]Segment
	if _, ok := c.Alloc(s[:], 1, ClassAdmin); ok {
		t.Error("memory out of nothing")
	}
}

func TestMisuseIsFound(t *testing.T) {
	p := newPool(t, Config{Size: 4 * ChunkSize})
	c := p.NewCache()
	var s [1]Segment
	c.Alloc(s[:], 8192, ClassIO)
	b := s[0].Bytes()
	b[0], b[8191] = 1, 1
	c.Free(s[:])
	if invariants.Enabled {
		if b[0] != invariants.PoisonByte || b[8191] != invariants.PoisonByte {
			t.Error("freed memory is not poisoned")
		}
		for _, misuse := range []func(){
			func() { c.Free(s[:]) },
			func() { other := Segment{Addr: s[0].Addr + ChunkSize, Len: 4096}; c.Free([]Segment{other}) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Error("memory that is not in use was freed")
					}
				}()
				misuse()
			}()
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a segment of no buffer slab was freed")
		}
	}()
	c.Free([]Segment{{Addr: s[0].Addr, Len: 4096, Slab: 7}})
}

// TestManyCaches moves chunks between goroutines as fast as it goes.
func TestManyCaches(t *testing.T) {
	p := newPool(t, Config{Size: 24 * ChunkSize, Reserve: 64 << 10})
	done := make(chan struct{})
	for g := range 4 {
		c := p.NewCache()
		go func() {
			defer func() { done <- struct{}{} }()
			m := &model{t: t, cache: c, owner: map[uintptr]int{}}
			rnd := rand.New(rand.NewPCG(uint64(g), 7))
			for range rounds(3000) {
				if rnd.IntN(2) == 0 {
					m.alloc(uint32(rnd.IntN(3<<20)), 16, ClassIO)
				} else if len(m.live) > 0 {
					m.free(rnd.IntN(len(m.live)))
				}
			}
			m.finish()
		}()
	}
	for range 4 {
		<-done
	}
	if st := p.Stats(); st.FreeBytes != st.Bytes-4*ChunkSize {
		t.Errorf("after all: %+v", st)
	}
}

func TestChunkStack(t *testing.T) {
	var s chunkStack
	s.init(5)
	for want := range uint32(5) {
		if got, ok := s.pop(); !ok || got != want {
			t.Fatalf("popped %d, %v; want %d", got, ok, want)
		}
	}
	if _, ok := s.pop(); ok || !s.empty() || s.free.Load() != 0 {
		t.Fatal("not empty")
	}
	done := make(chan map[uint32]bool)
	for c := range uint32(5) {
		s.push(c)
	}
	for range 4 {
		go func() {
			for range 20_000 {
				a, okA := s.pop()
				b, okB := s.pop()
				if okA && okB && a == b {
					t.Error("one chunk popped twice")
				}
				if okA {
					s.push(a)
				}
				if okB {
					s.push(b)
				}
			}
			done <- nil
		}()
	}
	for range 4 {
		<-done
	}
	seen := map[uint32]bool{}
	for c, ok := s.pop(); ok; c, ok = s.pop() {
		if seen[c] {
			t.Fatalf("chunk %d is there twice", c)
		}
		seen[c] = true
	}
	if len(seen) != 5 {
		t.Fatalf("%d chunks left of 5", len(seen))
	}
}

func TestNothingIsAllocated(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the assertions of debug builds allocate")
	}
	p := newPool(t, Config{Size: 16 * ChunkSize, Reserve: 64 << 10})
	c := p.NewCache()
	var segs [16]Segment
	for _, n := range []uint32{512, 4096, 12 << 10, 128 << 10, 1 << 20, 5 << 20, 40 << 20} {
		if a := testing.AllocsPerRun(100, func() {
			if used, ok := c.Alloc(segs[:], n, ClassIO); ok {
				c.Free(segs[:used])
			}
		}); a != 0 {
			t.Errorf("%d bytes: %v allocations", n, a)
		}
	}
}

func BenchmarkAllocFree(b *testing.B) {
	for _, n := range []uint32{4 << 10, 12 << 10, 128 << 10, 1 << 20, 2 << 20} {
		b.Run(fmt.Sprintf("%dKiB", n>>10), func(b *testing.B) {
			b.ReportAllocs()
			c := newPool(b, Config{Size: 16 * ChunkSize}).NewCache()
			var segs [16]Segment
			for b.Loop() {
				used, _ := c.Alloc(segs[:], n, ClassIO)
				c.Free(segs[:used])
			}
		})
	}
}

// BenchmarkDepth turns over 128 buffers at a time, mixed sizes, as a busy queue does.
func BenchmarkDepth(b *testing.B) {
	b.ReportAllocs()
	c := newPool(b, Config{Size: 64 * ChunkSize}).NewCache()
	var segs [128][16]Segment
	var used [128]int
	sizes := [...]uint32{4 << 10, 4 << 10, 16 << 10, 128 << 10, 4 << 10, 20 << 10}
	i := 0
	for b.Loop() {
		k := i * 37 % 128
		c.Free(segs[k][:used[k]])
		used[k], _ = c.Alloc(segs[k][:], sizes[i%len(sizes)], ClassIO)
		i++
	}
}
