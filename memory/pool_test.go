package memory

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"rocet/internal/invariants"
)

// fakeDevice registers slabs and can be told to fail.
type fakeDevice struct {
	name    string
	keys    map[uint32]*Slab
	failAt  int // the how-many-th registration fails; 0: none
	calls   int
	err     error
	history []string
}

func (d *fakeDevice) String() string { return d.name }

func (d *fakeDevice) RegisterSlab(s *Slab) error {
	d.calls++
	if d.calls == d.failAt {
		return d.err
	}
	if d.keys == nil {
		d.keys = map[uint32]*Slab{}
	}
	if d.keys[s.Index] != nil {
		return fmt.Errorf("slab %d is registered twice", s.Index)
	}
	d.keys[s.Index] = s
	d.history = append(d.history, fmt.Sprint("+", s.Index))
	return nil
}

func (d *fakeDevice) UnregisterSlab(s *Slab) {
	if d.keys[s.Index] != s {
		panic(fmt.Sprintf("%s: slab %d is unregistered and was not registered", d.name, s.Index))
	}
	s.Segment(0, 1).Bytes()[0] = 0 // still mapped
	delete(d.keys, s.Index)
	d.history = append(d.history, fmt.Sprint("-", s.Index))
}

func TestRegistrantsSeeEverySlab(t *testing.T) {
	p := newPool(t, Config{Size: 2 * ChunkSize})
	a, b := &fakeDevice{name: "a"}, &fakeDevice{name: "b"}
	if err := p.AddRegistrant(a); err != nil {
		t.Fatal(err)
	}
	if err := p.AddRegistrant(a); err == nil {
		t.Error("one device was added twice")
	}
	first, err := p.NewSlab(3 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if first.Size != 4<<20 || first.Index != 1 || p.Slab(1) != first {
		t.Errorf("slab %+v", first)
	}
	if err := p.AddRegistrant(b); err != nil {
		t.Fatal(err)
	}
	second, err := p.NewSlab(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []*fakeDevice{a, b} {
		if len(d.keys) != 3 {
			t.Errorf("%s has %d slabs of 3", d.name, len(d.keys))
		}
	}
	if st := p.Stats(); st.Slabs != 3 || st.SlabBytes != 6<<20 || st.Bytes != 4<<20 || st.Registered != 2 {
		t.Errorf("stats: %+v", st)
	}
	p.FreeSlab(first)
	p.RemoveRegistrant(a)
	p.RemoveRegistrant(a) // gone already
	if len(a.keys) != 0 || len(b.keys) != 2 {
		t.Errorf("a has %d slabs, b %d; want 0 and 2", len(a.keys), len(b.keys))
	}
	// A device that comes back is taken up again, and an index is used again.
	if err := p.AddRegistrant(a); err != nil {
		t.Fatal(err)
	}
	third, err := p.NewSlab(1)
	if err != nil {
		t.Fatal(err)
	}
	if third.Index != first.Index || len(a.keys) != 3 {
		t.Errorf("the new slab has index %d, a has %d slabs", third.Index, len(a.keys))
	}
	for _, s := range []*Slab{second, third} {
		p.FreeSlab(s)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a slab was freed twice")
			}
		}()
		p.FreeSlab(second)
	}()
	p.Close()
	if len(a.keys)+len(b.keys) != 0 {
		t.Error("registered after Close")
	}
	if _, err := p.NewSlab(1); err == nil {
		t.Error("a slab from a closed pool")
	}
	if err := p.AddRegistrant(a); err == nil {
		t.Error("a registrant of a closed pool")
	}
}

func TestHalfDoneRegistrationIsUndone(t *testing.T) {
	p := newPool(t, Config{Size: ChunkSize})
	for range 3 {
		if _, err := p.NewSlab(1); err != nil {
			t.Fatal(err)
		}
	}
	broken := errors.New("device says no")
	for failAt := 1; failAt <= 4; failAt++ {
		d := &fakeDevice{name: "d", failAt: failAt, err: broken}
		err := p.AddRegistrant(d)
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "slab") {
			t.Errorf("error %v", err)
		}
		if len(d.keys) != 0 || len(d.history) != 2*(failAt-1) {
			t.Errorf("failed at %d: %d slabs left, history %v", failAt, len(d.keys), d.history)
		}
		if _, err := p.NewSlab(1); err != nil { // goes past the device that was not added
			t.Error(err)
		}
	}
	if p.Stats().Registered != 0 {
		t.Error("a broken device is registered")
	}
	// The second of two devices refuses a new slab: the first forgets it again.
	good, bad := &fakeDevice{name: "good"}, &fakeDevice{name: "bad", err: broken}
	for _, d := range []*fakeDevice{good, bad} {
		if err := p.AddRegistrant(d); err != nil {
			t.Fatal(err)
		}
	}
	before := p.Stats()
	bad.failAt = bad.calls + 1
	if _, err := p.NewSlab(1); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if after := p.Stats(); after.Slabs != before.Slabs || after.SlabBytes != before.SlabBytes || len(good.keys) != len(bad.keys) {
		t.Errorf("before %+v, after %+v, %d and %d slabs", before, after, len(good.keys), len(bad.keys))
	}
}

func TestSlabsAndRegistrantsInParallel(t *testing.T) {
	p := newPool(t, Config{Size: ChunkSize})
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			for range 30 {
				d := &fakeDevice{name: fmt.Sprint(g)}
				if err := p.AddRegistrant(d); err != nil {
					t.Error(err)
				}
				p.RemoveRegistrant(d)
				if len(d.keys) != 0 {
					t.Errorf("%d slabs left", len(d.keys))
				}
			}
		})
		wg.Go(func() {
			for range 30 {
				s, err := p.NewSlab(1)
				if err != nil {
					t.Error(err)
					return
				}
				p.Stats()
				p.FreeSlab(s)
			}
		})
	}
	wg.Wait()
	if st := p.Stats(); st.Slabs != 1 || st.Registered != 0 {
		t.Errorf("left over: %+v", st)
	}
}

func TestSlabsRunOut(t *testing.T) {
	if invariants.Enabled {
		t.Skip("needs 8 GiB of Go memory under the race detector")
	}
	p := newPool(t, Config{Size: ChunkSize})
	for i := 1; i < MaxSlabs; i++ { // fill the table without mapping
		p.slabs[i].Store(&Slab{Index: uint32(i)})
	}
	if _, err := p.NewSlab(1); err == nil || !strings.Contains(err.Error(), "4096 slabs are in use") {
		t.Errorf("error %v", err)
	}
	for i := 1; i < MaxSlabs; i++ {
		p.slabs[i].Store(nil)
	}
}

func TestSlabsAreZeroedAndBounded(t *testing.T) {
	p := newPool(t, Config{Size: ChunkSize})
	s, err := p.NewSlab(2 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if b := s.Segment(0, 2<<20).Bytes(); len(bytes.Trim(b, "\x00")) != 0 {
		t.Error("a new slab is not zero")
	}
	if s.Base%ChunkSize != 0 {
		t.Errorf("base %#x is not aligned to 2 MiB", s.Base)
	}
	for _, bad := range []struct {
		off uint64
		n   uint32
	}{{2 << 20, 1}, {2<<20 - 1, 2}, {math.MaxUint64, 2}, {0, 2<<20 + 1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("segment [%d, +%d) of a slab of 2 MiB", bad.off, bad.n)
				}
			}()
			s.Segment(bad.off, bad.n)
		}()
	}
	seg := s.Segment(4096, 8192)
	if sub := seg.Slice(4096, 4096); sub.Addr != s.Base+8192 || sub.Len != 4096 || sub.Slab != s.Index {
		t.Errorf("slice %+v", sub)
	}
	defer func() {
		if recover() == nil {
			t.Error("a slice past the segment's end")
		}
	}()
	seg.Slice(8000, math.MaxUint32)
}

func TestConfigErrors(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("a pool of no size")
	}
	if _, err := New(Config{Size: 1 << 50, HugePages: HugeNever}); err == nil {
		t.Error("a pool of a PiB")
	}
	if invariants.Enabled {
		return // slabs are Go memory
	}
	if _, err := New(Config{Size: 1 << 42, HugePages: HugeNever}); err == nil || !strings.Contains(err.Error(), "available") {
		t.Errorf("a pool of 4 TiB: error %v", err)
	}
	if _, err := New(Config{Size: ChunkSize, HugePages: HugeNever, NUMANodes: []int{1000}}); err == nil || !strings.Contains(err.Error(), "NUMA") {
		t.Errorf("NUMA node 1000: error %v", err)
	}
	if _, err := New(Config{Size: ChunkSize, HugePages: HugeNever, NUMANodes: []int{-1}}); err == nil {
		t.Error("NUMA node -1 exists")
	}
	p, err := New(Config{Size: ChunkSize, HugePages: HugeNever, NUMANodes: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	if node := p.Slab(0).Node; node != 0 {
		t.Errorf("bound to node %d", node)
	}
	p.Close()
}

// TestHugePages wants more than any machine has reserved, and then what there is.
func TestHugePages(t *testing.T) {
	if invariants.Enabled {
		t.Skip("slabs are Go memory under the race detector")
	}
	free := readHuge("free_hugepages")
	size := (free + 1) * ChunkSize
	if _, err := New(Config{Size: size, HugePages: HugeRequire}); err == nil || !strings.Contains(err.Error(), "vm.nr_hugepages=") {
		t.Errorf("required and missing: error %v", err)
	}
	if have, _ := availableMemory(); have > 2*size {
		var logged bytes.Buffer
		p, err := New(Config{Size: size, HugePages: HugeAuto, Log: slog.New(slog.NewTextHandler(&logged, nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if got := p.Stats().PageSize; int(got) != unix.Getpagesize() {
			t.Errorf("page size %d", got)
		}
		if lines := strings.Count(logged.String(), "\n"); lines != 1 || !strings.Contains(logged.String(), "vm.nr_hugepages") {
			t.Errorf("%d log lines: %s", lines, logged.String())
		}
	}
	if free == 0 {
		return
	}
	p, err := New(Config{Size: ChunkSize, HugePages: HugeRequire})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if got := p.Stats().PageSize; got != ChunkSize {
		t.Errorf("page size %d", got)
	}
}

func TestExplainMemlock(t *testing.T) {
	for _, c := range []struct {
		err          error
		bytes, limit uint64
		hint         bool
	}{
		{unix.ENOMEM, 1 << 20, 64 << 10, true},
		{fmt.Errorf("ibv_reg_mr: %w", unix.EAGAIN), 1 << 20, 64 << 10, true},
		{unix.ENOMEM, 1 << 20, math.MaxUint64, false},
		{unix.EINVAL, 1 << 20, 64 << 10, false},
		{unix.ENOMEM, 1 << 10, 64 << 10, false},
	} {
		got := explainMemlock(c.err, c.bytes, c.limit)
		if !errors.Is(got, c.err) || strings.Contains(got.Error(), "ulimit -l") != c.hint {
			t.Errorf("%v for %d bytes of %d: %v", c.err, c.bytes, c.limit, got)
		}
	}
	if Memlock() == 0 {
		t.Error("nothing may be locked here")
	}
}

func TestParseAvailable(t *testing.T) {
	for _, c := range []struct {
		text string
		want uint64
		ok   bool
	}{
		{"MemTotal:  100 kB\nMemAvailable:   12345 kB\nBuffers: 1 kB\n", 12345 << 10, true},
		{"MemTotal: 1 kB\n", 0, false},
		{"MemAvailable:", 0, false},
		{"MemAvailable: x kB", 0, false},
	} {
		if got, ok := parseAvailable(c.text); got != c.want || ok != c.ok {
			t.Errorf("%q: %d, %v", c.text, got, ok)
		}
	}
}

func TestOffHeap(t *testing.T) {
	for _, size := range []int{0, 1, 64, 4096, 5000, 3 << 20} {
		p := OffHeap(size)
		if uintptr(p)%64 != 0 {
			t.Errorf("%d bytes at %p", size, p)
		}
		b := unsafe.Slice((*byte)(p), size)
		if len(bytes.Trim(b, "\x00")) != 0 {
			t.Errorf("%d bytes are not zero", size)
		}
		for i := range b {
			b[i] = 0xAA
		}
		FreeOffHeap(p, size)
	}
	FreeOffHeap(nil, 100)
}

func TestPolicyWords(t *testing.T) {
	for h, want := range map[HugePolicy]string{HugeAuto: "auto", HugeRequire: "require", HugeNever: "never", 9: "unknown"} {
		if h.String() != want {
			t.Errorf("%d is %q", h, h)
		}
	}
}
