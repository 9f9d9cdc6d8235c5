package rdma

import (
	"math/rand/v2"
	"testing"

	"rocet/cgo/verbs"
	"rocet/memory"
	"rocet/nvme"
	"rocet/target"
)

func TestWRID(t *testing.T) {
	for _, k := range []wrKind{wrRecv, wrSend, wrWrite, wrRead} {
		id := makeID(k, 0x3abc, 0xbeef, 0xfffe, 0x1234)
		if id.kind() != k || id.slotGen() != 0x3abc || id.queueGen() != 0xbeef || id.queue() != 0xfffe || id.slot() != 0x1234 {
			t.Errorf("%v: %#x does not read back", k, uint64(id))
		}
	}
	if id := makeID(wrRecv, 0xffff, 0, 0, 0); id.kind() != wrRecv || id.slotGen() != 0x3fff {
		t.Errorf("a generation runs into the kind: %#x", uint64(id))
	}
}

func testPool(t testing.TB, size uint64) *memory.Pool {
	t.Helper()
	p, err := memory.New(memory.Config{Size: size, HugePages: memory.HugeNever, Reserve: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestCapsules(t *testing.T) {
	c := &capsules{pool: testPool(t, 4<<20)}
	rng := rand.New(rand.NewPCG(1, 2))
	var live []region
	overlap := func(r region) bool {
		for _, o := range live {
			if o.slab == r.slab && r.off < o.off+o.size && o.off < r.off+r.size {
				return true
			}
		}
		return false
	}
	for range 3000 {
		if len(live) < 40 && rng.IntN(2) == 0 {
			r, err := c.alloc(1 + rng.Uint64N(1<<20))
			if err != nil {
				t.Fatal(err)
			}
			if overlap(r) || r.off%memory.PageSize != 0 || r.off+r.size > r.slab.slab.Size {
				t.Fatalf("bad region %+v", r.span)
			}
			live = append(live, r)
		} else if len(live) > 0 {
			i := rng.IntN(len(live))
			c.free(live[i])
			live = append(live[:i], live[i+1:]...)
		}
		var want uint64
		for _, r := range live {
			want += r.size
		}
		if used, size := c.usage(); used != want || used > size {
			t.Fatalf("%d of %d bytes used, want %d", used, size, want)
		}
	}
	for _, r := range live {
		c.free(r)
	}
	if len(c.slabs) != 1 || len(c.slabs[0].free) != 1 || c.slabs[0].free[0].size != c.slabs[0].slab.Size {
		t.Errorf("after everything was freed: %d slabs, free %v", len(c.slabs), c.slabs[0].free)
	}
	big, err := c.alloc(capsuleSlabSize + 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.close(); err == nil {
		t.Error("closed while a region is in use")
	}
	c.free(big)
	if err := c.close(); err != nil {
		t.Error(err)
	}
}

func TestQPNTable(t *testing.T) {
	var tab qpnTable
	rng := rand.New(rand.NewPCG(3, 4))
	want := map[uint32]*queue{}
	if tab.find(1) != nil {
		t.Error("found in an empty table")
	}
	for range 4000 {
		n := rng.Uint32N(600) * 0x01000100 // collides in the low bits
		if want[n] == nil && rng.IntN(2) == 0 {
			q := &queue{qpn: n}
			want[n] = q
			tab.put(n, q)
		} else if want[n] != nil && rng.IntN(3) == 0 {
			delete(want, n)
			tab.drop(n)
		}
		if got := tab.find(n); got != want[n] {
			t.Fatalf("queue pair %#x: %p, want %p", n, got, want[n])
		}
	}
	for n, q := range want {
		if tab.find(n) != q {
			t.Fatalf("queue pair %#x is lost", n)
		}
	}
}

func TestTurns(t *testing.T) {
	var l turns
	qs := make([]queue, 4)
	for i := range qs {
		l.push(&qs[i])
	}
	l.drop(&qs[1])
	l.drop(&qs[3]) // the tail
	l.push(&qs[1])
	l.drop(&qs[0]) // the head
	for _, want := range []*queue{&qs[2], &qs[1]} {
		if q := l.pop(); q != want || q.inTurn {
			t.Errorf("the turns are out of order")
		}
	}
	if l.head != nil || l.tail != nil {
		t.Error("turns are left")
	}
}

func TestSlotList(t *testing.T) {
	var l slotList
	s := make([]slot, 3)
	l.push(&s[1])
	l.pushFront(&s[0])
	l.push(&s[2])
	for i := range s {
		if l.n != 3-i || l.pop() != &s[i] {
			t.Fatalf("slot %d is out of order", i)
		}
	}
	l.pushFront(&s[0])
	l.push(&s[1])
	if l.pop(); l.pop() != &s[1] || l.tail != nil {
		t.Error("a list that began by pushFront")
	}
}

// TestBuild cuts transfers of every shape and puts them together again.
func TestBuild(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	lkeys := []uint32{100, 101, 102}
	for range 20000 {
		maxSGE := 1 + rng.IntN(inlineSGEs)
		nd := 1 + rng.IntN(MaxDescriptors)
		wrs, sges := wideSizes(MaxDescriptors, maxSGE)
		s := &slot{ndesc: uint8(nd), wr: new(slotWR)}
		descs := make([]nvme.SGLDescriptor, nd)
		total := uint32(0)
		for i := range descs {
			n := rng.Uint32N(5) * 100
			descs[i].SetKeyed(nvme.SGLAddress, uint64(i)<<32, n, uint32(i))
			total += n
		}
		s.desc = &descs[0]
		if total == 0 {
			continue
		}
		length := total - rng.Uint32N(min(total, 50)) // longer descriptions than needed are allowed
		var segs []memory.Segment
		for left := length; left > 0; {
			n := left
			if len(segs) < target.MaxSegments-1 {
				n = 1 + rng.Uint32N(left)
			}
			segs = append(segs, memory.Segment{Addr: uintptr(len(segs)+1) << 24, Len: n, Slab: uint32(len(segs) % 3)})
			left -= n
		}
		b := &wideBlock{wrs: make([]verbs.SendWR, wrs), sges: make([]verbs.SGE, sges)}
		s.build(b, transfer{verbs.OpRDMAWrite, 9, length, maxSGE}, segs, lkeys)
		checkTransfer(t, b.wrs[:b.n], b.sges, descs, segs, length, maxSGE)
	}
}

// checkTransfer walks both sides byte run by byte run.
func checkTransfer(t *testing.T, wrs []verbs.SendWR, sges []verbs.SGE, descs []nvme.SGLDescriptor, segs []memory.Segment, length uint32, maxSGE int) {
	t.Helper()
	seg, segOff, desc, descOff, done, at := 0, uint32(0), 0, uint32(0), uint32(0), 0
	for i := range wrs {
		w := &wrs[i]
		for descs[desc].KeyedLength() == descOff {
			desc, descOff = desc+1, 0
		}
		d := &descs[desc]
		if w.RemoteAddr != d.Address()+uint64(descOff) || w.RKey != d.Key() || w.NumSGE < 1 || int(w.NumSGE) > maxSGE || w.ID != 9 {
			t.Fatalf("work request %d: %+v does not continue descriptor %d at %d", i, w, desc, descOff)
		}
		if i+1 < len(wrs) && w.Next != sendAddr(&wrs[i+1]) {
			t.Fatalf("work request %d is not chained", i)
		}
		if w.SGList != sgeAddr(&sges[at]) {
			t.Fatalf("work request %d has another one's segments", i)
		}
		for range w.NumSGE {
			e := sges[at]
			at++
			s := segs[seg]
			if e.Addr != uint64(s.Addr)+uint64(segOff) || e.LKey != 100+s.Slab || e.Length == 0 || segOff+e.Length > s.Len {
				t.Fatalf("segment %+v does not continue %+v at %d", e, s, segOff)
			}
			descOff += e.Length
			done += e.Length
			if segOff += e.Length; segOff == s.Len {
				seg, segOff = seg+1, 0
			}
		}
		if descOff > d.KeyedLength() {
			t.Fatalf("work request %d runs over its descriptor", i)
		}
	}
	if done != length {
		t.Fatalf("%d bytes of %d are transferred", done, length)
	}
}

func TestConfig(t *testing.T) {
	c := Config{}
	if err := c.setDefaults(); err != nil || c.InCapsuleData != 4096 || c.MaxQueueDepth != 128 || c.descriptors() != MaxDescriptors {
		t.Errorf("defaults: %v, %+v, %d descriptors", err, c, c.descriptors())
	}
	// The combination that some hosts corrupt data with is never offered.
	for _, in := range []int{NoInCapsuleData, 16, 64, 4096, 4112, 8192, 65536} {
		c := Config{InCapsuleData: in}
		if err := c.setDefaults(); err != nil {
			t.Fatal(err)
		}
		d := c.descriptors()
		if c.InCapsuleData > 4096 && d > 1 || d < 1 || d > 1 && d*16 > c.InCapsuleData {
			t.Errorf("in-capsule data %d with %d descriptors", in, d)
		}
	}
	for _, bad := range []Config{{InCapsuleData: -2}, {InCapsuleData: 100}, {InCapsuleData: 1 << 20}, {MaxQueueDepth: 31}, {MaxQueueDepth: 5000}, {SRQDepth: 100}, {CQEntries: 1}, {DrainTimeout: -1}} {
		if err := bad.setDefaults(); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	for _, p := range []SRQPolicy{SRQAuto, SRQOn, SRQOff} {
		if got, err := ParseSRQPolicy(p.String()); err != nil || got != p {
			t.Errorf("policy %v reads back as %v, %v", p, got, err)
		}
	}
	if _, err := ParseSRQPolicy("maybe"); err == nil {
		t.Error("policy maybe is accepted")
	}
}

// TestQueueSpec holds the sizes against the limits that they must keep.
func TestQueueSpec(t *testing.T) {
	for depth := 2; depth <= 1024; depth *= 2 {
		for _, sge := range []int{1, 3, 16} {
			for _, reads := range []int{1, 16, 128} {
				for _, max := range []int{8192, 1 << 20} {
					s := queueSpec{depth: depth, readDepth: reads, maxSGE: sge, maxReadSGE: sge, maxDesc: MaxDescriptors, sendMax: max}
					wrs, _ := wideSizes(MaxDescriptors, sge)
					if s.responses() < wrs+1 {
						t.Errorf("%+v: the largest response has %d work requests, room is for %d", s, wrs+1, s.responses())
					}
					if s.sendWRs() > max {
						t.Errorf("%+v: %d send work requests, the device has %d", s, s.sendWRs(), max)
					}
					if s.slots() < depth || s.cqes(false) < s.cqes(true)+depth {
						t.Errorf("%+v: slots %d", s, s.slots())
					}
				}
			}
		}
	}
}
