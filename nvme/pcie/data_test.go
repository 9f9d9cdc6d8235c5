package pcie

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"rocet/memory"
	"rocet/nvme"
	"rocet/nvme/pcie/sim"
)

// shape cuts a slab into segments: offset into a page and length of each, a page apart at least.
type shape struct {
	name string
	segs [][2]uint32
}

func (s shape) of(slab *memory.Slab) []memory.Segment {
	var out []memory.Segment
	at := uint64(1 << 20)
	for _, p := range s.segs {
		out = append(out, slab.Segment(at+uint64(p[0]), p[1]))
		at += uint64(p[0]+p[1]+pageSize-1)&^(pageSize-1) + pageSize
	}
	return out
}

var shapes = []shape{
	{"a block", [][2]uint32{{0, 512}}},
	{"a page", [][2]uint32{{0, 4096}}},
	{"inside a page", [][2]uint32{{64, 1024}}},
	{"across a page", [][2]uint32{{3584, 1024}}},
	{"page from the middle of one", [][2]uint32{{64, 4096}}},
	{"two pages", [][2]uint32{{0, 8192}}},
	{"three pages", [][2]uint32{{0, 12288}}},
	{"two pages from the middle", [][2]uint32{{64, 8192}}},
	{"64 KiB", [][2]uint32{{0, 65536}}},
	{"odd end", [][2]uint32{{0, 65536 + 512}}},
	{"pages apart", [][2]uint32{{0, 4096}, {0, 4096}, {0, 4096}, {0, 512}}},
	{"middle, then pages", [][2]uint32{{3584, 512}, {0, 4096}, {0, 1536}}},
	{"long pieces", [][2]uint32{{0, 65536}, {0, 131072}, {0, 65536}}},
	// Pieces that PRPs cannot describe in one command, and SGLs can.
	{"gap in the middle", [][2]uint32{{0, 1024}, {0, 1024}}},
	{"not at a page", [][2]uint32{{0, 4096}, {512, 1024}, {512, 3584 + 4096}, {3584, 8192}}},
}

// Pieces that need bytes of any address, or blocks that lie in two pieces.
var odd = []shape{
	{"not of dwords", [][2]uint32{{2, 1024}}},
	{"a block in two pieces", [][2]uint32{{0, 256}, {0, 256}}},
}

// cut makes many neighbours of one segment, ends at no page.
func cut(s memory.Segment) []memory.Segment {
	var out []memory.Segment
	for n := uint32(512); s.Len > n; n += 512 {
		out = append(out, s.Slice(0, n))
		s = s.Slice(n, s.Len-n)
	}
	return append(out, s)
}

func TestShapes(t *testing.T) {
	for _, kind := range []struct {
		name string
		sgls uint32
	}{{"PRP", nvme.SGLSNotSupported}, {"SGL", nvme.SGLSSupported}, {"SGL of dwords", nvme.SGLSDwordAligned},
		{"SGL, slower from two descriptors on", nvme.SGLSSupported | 1<<nvme.SGLSThresholdShift}} {
		t.Run(kind.name, func(t *testing.T) {
			r := newRig(t, sim.Config{SGLS: kind.sgls}, nil)
			slab, err := r.pool.NewSlab(4 << 20)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.pool.FreeSlab(slab) })
			for i, s := range shapes {
				r.roundTrip(uint64(i), s.of(slab), uint64(i))
			}
			r.roundTrip(3, cut(slab.Segment(1<<20+64, 64<<10)), 50)
			before := r.dev.Counts()
			if (before.SGL > 0) != (kind.sgls != 0) {
				t.Errorf("%d commands with an SGL", before.SGL)
			}
			if r.q.Stats().Misaligned != 0 {
				t.Errorf("%d requests were taken for misaligned", r.q.Stats().Misaligned)
			}
			for i, s := range odd {
				takes := kind.sgls&3 == nvme.SGLSSupported || kind.sgls == nvme.SGLSDwordAligned && i == 1
				if takes {
					r.roundTrip(100, s.of(slab), uint64(i))
					continue
				}
				segs := s.of(slab)
				if st := r.do(nvme.OpWrite, 0, uint32(memory.Length(segs))/512, segs); st.Code() != nvme.StatusInternalError || !st.DNR() {
					t.Errorf("%s: %v", s.name, st)
				}
			}
		})
	}
}

// Data that is too short, or no slab's that is mapped, never becomes a command.
func TestBadData(t *testing.T) {
	for _, sgls := range []uint32{0, nvme.SGLSSupported} {
		r := newRig(t, sim.Config{SGLS: sgls}, nil)
		segs := r.alloc(8192)
		for name, data := range map[string][]memory.Segment{
			"none": nil, "short": segs, "unmapped": {{Addr: segs[0].Addr, Len: 65536, Slab: 77}},
		} {
			if st := r.do(nvme.OpRead, 0, 32, data); st.Code() != nvme.StatusInternalError {
				t.Errorf("%s: %v", name, st)
			}
		}
		if st := r.do(nvme.OpRead, 0, 0, segs); st.Code() != nvme.StatusInvalidField {
			t.Errorf("no blocks: %v", st)
		}
		if st := r.do(nvme.OpReservationReport, 0, 1, segs); st.Code() != nvme.StatusInvalidOpcode {
			t.Errorf("an opcode that is not for it: %v", st)
		}
		if got := r.dev.Counts().Commands; got != [256]uint64{} {
			t.Errorf("the drive got commands: %v", got[:16])
		}
		r.cache.Free(segs)
	}
}

func TestSplitByMDTSAndBoundary(t *testing.T) {
	for _, c := range []struct {
		mdts  uint8
		noiob uint16
		depth int
		most  uint64 // blocks of a command
	}{
		{mdts: 5, depth: 32, most: 256},
		{mdts: 1, depth: 2, most: 16}, // one slot: part after part
		{mdts: 0, depth: 8, most: MaxTransfer / 512},
		{mdts: 0, noiob: 64, depth: 8, most: 64},
		{mdts: 4, noiob: 100, depth: 5, most: 100}, // no power of two
	} {
		t.Run(fmt.Sprintf("MDTS %d NOIOB %d depth %d", c.mdts, c.noiob, c.depth), func(t *testing.T) {
			r := newRig(t, sim.Config{MDTS: c.mdts, NOIOB: c.noiob, SGLS: nvme.SGLSSupported}, func(cfg *Config) { cfg.Depth = c.depth })
			for _, n := range []uint32{512, 65536, 200 * 512, 1 << 20, 1<<20 + 512} {
				segs := r.alloc(n)
				r.roundTrip(37, segs, uint64(n))
				r.cache.Free(segs)
			}
			if got := r.dev.Counts().Blocks; got > c.most || got < c.most/2 {
				t.Errorf("the longest command had %d blocks, want at most %d", got, c.most)
			}
			if r.q.Stats().Split == 0 {
				t.Error("no request was split")
			}
			if r.q.Outstanding() != 0 || r.q.Busy() {
				t.Error("something is left")
			}
		})
	}
}

// A write that the drive does atomically is not cut at the boundary.
func TestAtomicWriteStaysWhole(t *testing.T) {
	r := newRig(t, sim.Config{NOIOB: 8, AWUN: 15}, nil)
	segs := r.alloc(32 * 512)
	r.mustDo(nvme.OpWrite, 4, 16, []memory.Segment{segs[0].Slice(0, 16*512)})
	if n := r.dev.Counts().Commands[nvme.OpWrite]; n != 1 {
		t.Errorf("16 blocks, atomic: %d commands", n)
	}
	r.mustDo(nvme.OpWrite, 4, 17, []memory.Segment{segs[0].Slice(0, 17*512)})
	if n := r.dev.Counts().Commands[nvme.OpWrite]; n != 1+3 {
		t.Errorf("17 blocks from 4 on: %d commands, want 3", n-1)
	}
	r.mustDo(nvme.OpRead, 4, 16, []memory.Segment{segs[0].Slice(0, 16*512)})
	if n := r.dev.Counts().Commands[nvme.OpRead]; n != 3 {
		t.Errorf("a read of 16 blocks from 4 on: %d commands, want 3", n)
	}
	r.cache.Free(segs)
}

// Many requests of random shapes at once, through a shallow queue.
func TestRandomLoad(t *testing.T) {
	for _, cfg := range []sim.Config{
		{MDTS: 3, NOIOB: 48, SGLS: nvme.SGLSSupported, Shadow: true, Blocks: 1 << 16},
		{MDTS: 5, DSTRD: 2, Blocks: 1 << 16},
	} {
		r := newRig(t, cfg, func(c *Config) { c.Depth = 6 })
		rng := rand.New(rand.NewPCG(1, uint64(cfg.MDTS)))
		type flight struct {
			*request
			segs []memory.Segment
			want []byte
		}
		var waiting []*flight
		const stripe = 1 << 10 // blocks that belong to one request
		for round := range 40 {
			waiting = waiting[:0]
			for k := range 12 {
				n := uint32(rng.IntN(120)+1) * 512
				segs := r.alloc(n)
				f := &flight{segs: segs, want: fill(segs, uint64(round*100+k))}
				f.request = r.newRequest(nvme.OpWrite, uint64(k)*stripe+rng.Uint64N(64), n/512, segs)
				waiting = append(waiting, f)
			}
			for _, op := range []nvme.Opcode{nvme.OpWrite, nvme.OpRead} {
				for _, f := range waiting {
					f.Op, f.ended = op, 0
					if op == nvme.OpRead {
						wipe(f.segs)
					}
					r.send(f.request)
				}
				r.pump("the round", func() bool {
					for _, f := range waiting {
						if f.ended == 0 {
							return false
						}
					}
					return true
				})
			}
			for _, f := range waiting {
				if f.ended != 1 || !f.status.IsOK() || !bytes.Equal(gather(f.segs), f.want) {
					t.Fatalf("round %d: ended %d times, status %v, or other data", round, f.ended, f.status)
				}
				r.cache.Free(f.segs)
			}
		}
		s := r.q.Stats()
		if cfg.Shadow && (r.dev.Counts().Shadowed == 0 || s.Shadowed == 0 || s.Doorbells > s.Shadowed/4) {
			t.Errorf("shadow doorbells spared %d of %d register writes", s.Shadowed, s.Doorbells+s.Shadowed)
		}
		if s.Completed != s.Submitted || s.Failed != 0 {
			t.Errorf("statistics: %+v", s)
		}
	}
}

func TestOtherOperations(t *testing.T) {
	limits := nvme.NVMIdentifyController{WZSL: 2, VSL: 1, DMRL: 5, DMRSL: 100, DMSL: 250}
	r := newRig(t, sim.Config{Limits: limits, MDTS: 5}, nil)
	segs := r.alloc(64 * 512)
	fill(segs, 9)
	r.mustDo(nvme.OpWrite, 1000, 64, segs)
	r.mustDo(nvme.OpWriteZeroes, 1000, 33, nil) // WZSL is 16 KiB
	r.mustDo(nvme.OpVerify, 0, 33, nil)         // VSL is 8 KiB
	c := r.dev.Counts()
	if c.Commands[nvme.OpWriteZeroes] != 2 || c.Commands[nvme.OpVerify] != 3 {
		t.Errorf("%d Write Zeroes, %d Verify", c.Commands[nvme.OpWriteZeroes], c.Commands[nvme.OpVerify])
	}
	if st := r.do(nvme.OpCompare, 1000, 64, segs); st.Code() != nvme.StatusCompareFailure {
		t.Errorf("compare with what was zeroed: %v", st)
	}
	r.mustDo(nvme.OpFlush, 0, 0, nil)
	if n := r.dev.Counts().Commands[nvme.OpFlush]; n != 1 {
		t.Errorf("%d flushes", n)
	}
	if st := r.do(nvme.OpRead, 8190, 8, []memory.Segment{segs[0].Slice(0, 4096)}); st != nvme.StatusLBAOutOfRange|nvme.StatusDNR {
		t.Errorf("past the end: %v", st)
	}

	// 12 ranges, two of them longer than a command's whole.
	ranges := segs[0].Slice(0, 12*nvme.DSMRangeSize)
	for i := range 12 {
		d := (*nvme.DSMRange)(ranges.Bytes()[i*nvme.DSMRangeSize:])
		*d = nvme.DSMRange{}
		d.SetSLBA(uint64(i) * 600)
		d.SetNLB(10)
		if i == 3 || i == 7 {
			d.SetNLB(600)
		}
		if i == 5 {
			d.SetNLB(0)
		}
	}
	r.dev.Media(func(m []byte) {
		for i := range m {
			m[i] = 1
		}
	})
	q := r.newRequest(nvme.OpDatasetManagement, 0, 12, []memory.Segment{ranges})
	q.Flags = nvme.DSMDeallocate
	r.send(q)
	r.pump("Dataset Management", func() bool { return q.ended > 0 })
	if !q.status.IsOK() {
		t.Fatalf("Dataset Management: %v", q.status)
	}
	r.dev.Media(func(m []byte) {
		for lba := range 8192 {
			i, k := lba/600, lba%600
			gone := i < 12 && (k < 10 && i != 5 || i == 3 || i == 7)
			if got := m[lba*512] == 0; got != gone {
				t.Fatalf("block %d (range %d, %d) deallocated: %v, want %v", lba, i, k, got, gone)
			}
		}
	})
	if st := r.do(nvme.OpDatasetManagement, 0, 12, []memory.Segment{ranges.Slice(0, 16)}); st.Code() != nvme.StatusInvalidField {
		t.Errorf("fewer ranges than said: %v", st)
	}
	r.cache.Free(segs)
}

func TestFlushWithoutCache(t *testing.T) {
	r := newRig(t, sim.Config{NoCache: true}, nil)
	r.mustDo(nvme.OpFlush, 0, 0, nil)
	if n := r.dev.Counts().Commands[nvme.OpFlush]; n != 0 {
		t.Errorf("a drive without a volatile cache got %d flushes", n)
	}
	if on, err := r.drive.WriteCacheOn(); on || err != nil {
		t.Errorf("write cache %v, %v", on, err)
	}
}

// What refers to the drive's own logs and delays is not the host's business.
func TestStatusIsStripped(t *testing.T) {
	r := newRig(t, sim.Config{}, nil)
	r.dev.SetHook(func(qid uint16, _ *nvme.Command) sim.Verdict {
		if qid == 0 {
			return sim.Execute
		}
		return sim.FailMedia
	})
	segs := r.alloc(4096)
	if st := r.do(nvme.OpRead, 0, 8, segs); st != nvme.StatusUnrecoveredRead {
		t.Errorf("status %#x", uint16(st))
	}
	r.dev.SetHook(nil)
	r.mustDo(nvme.OpRead, 0, 8, segs)
	r.cache.Free(segs)
}
