package backendtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"rocet/internal/invariants"
	"rocet/nvme"
	"rocet/target"
)

// Subject is a backend to be tested.
type Subject struct {
	// Open makes a fresh backend of at least 8 MiB. The suite closes it.
	Open func(t testing.TB, rig *Rig) target.Backend
	// Forgets: reads give anything (the null namespace).
	Forgets bool
	// Zeroed: a fresh backend reads as zeroes.
	Zeroed bool
	// Seams are byte offsets where the backend's own parts meet.
	Seams []uint64
}

// Run runs the whole suite.
func Run(t *testing.T, s Subject) {
	for _, test := range []struct {
		name string
		f    func(*testing.T, Subject)
	}{
		{"info", testInfo},
		{"read after write", testReadAfterWrite},
		{"scattered buffers", testScattered},
		{"fresh", when(s.Zeroed, testFresh)},
		{"seams", when(len(s.Seams) > 0, testSeams)},
		{"compare", testCompare},
		{"write zeroes", testWriteZeroes},
		{"deallocate", testDeallocate},
		{"flush, verify, FUA", testPlainOps},
		{"out of range", when(!s.Forgets, testOutOfRange)},
		{"many at once", testManyAtOnce},
		{"submit from completion", testChain},
		{"close with commands under way", testCloseOutstanding},
		{"random operations", testRandom},
		{"several reactors", testReactors},
	} {
		if test.f != nil {
			t.Run(test.name, func(t *testing.T) { test.f(t, s) })
		}
	}
}

// when leaves a test out that has no meaning for a backend.
func when(applies bool, test func(*testing.T, Subject)) func(*testing.T, Subject) {
	if applies {
		return test
	}
	return nil
}

// open makes a rig, a backend, and its queue on reactor 0, all closed with the test.
func (s Subject) open(t *testing.T) (*Rig, target.Backend, *Queue) {
	t.Helper()
	rig := NewRig(t, 1)
	b := s.backend(t, rig)
	q := rig.OpenQueue(t, b, 0)
	t.Cleanup(q.Close)
	return rig, b, q
}

func (s Subject) backend(t testing.TB, rig *Rig) target.Backend {
	t.Helper()
	b := s.Open(t, rig)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

func (s Subject) expect(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if s.Forgets || bytes.Equal(got, want) {
		return
	}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("%s: differs at byte %d of %d", what, i, len(want))
		}
	}
	t.Fatalf("%s: %d bytes, want %d", what, len(got), len(want))
}

func testInfo(t *testing.T, s Subject) {
	_, b, _ := s.open(t)
	info := b.Info()
	if info.BlockSize < 512 || info.BlockSize&(info.BlockSize-1) != 0 || info.Bytes() < 8<<20 {
		t.Errorf("%d blocks of %d bytes", info.Blocks, info.BlockSize)
	}
	if info.MaxTransfer != 0 && info.MaxTransfer < 1<<20 {
		t.Errorf("transfers of %d bytes at most, the target's default MDTS is 1 MiB", info.MaxTransfer)
	}
	for _, op := range []target.Op{target.OpRead, target.OpWrite, target.OpFlush} {
		if info.Ops.Has(op) {
			t.Errorf("%v is no optional operation", op)
		}
	}
	if again := b.Info(); again != info {
		t.Errorf("Info changed from %+v to %+v", info, again)
	}
	b.Watch(func(target.Event) {})
	b.Watch(nil)
	b.SMART()
}

func testReadAfterWrite(t *testing.T, s Subject) {
	_, b, q := s.open(t)
	info := b.Info()
	bs := int(info.BlockSize)
	most := 1 << 20 / bs
	for i, blocks := range []int{1, 2, 3, 7, 8, 31, 32, 128, most / 2, most} {
		if blocks > most {
			continue
		}
		for _, lba := range []uint64{0, 1, 5, 1000, info.Blocks - uint64(blocks)} {
			want := Pattern(uint64(i)<<32+lba, blocks*bs)
			q.Write(lba, want)
			s.expect(t, fmt.Sprintf("%d blocks at %d", blocks, lba), q.Read(lba, uint32(blocks)), want)
		}
	}
	// Neighbours stay as they are.
	want := Pattern(99, 9*bs)
	q.Write(100, want)
	fresh := Pattern(98, bs)
	q.Write(104, fresh)
	copy(want[4*bs:], fresh)
	s.expect(t, "after a write in the middle", q.Read(100, 9), want)
}

func testScattered(t *testing.T, s Subject) {
	_, b, q := s.open(t)
	bs := int(b.Info().BlockSize)
	for _, n := range []int{bs, 4 * bs, 64 << 10, 1 << 20} {
		n = n / bs * bs
		want := Pattern(uint64(n), n)
		if st, _ := q.Start(target.OpWrite, 0, 3, uint32(n/bs), want, Scattered).Wait(); st != nvme.StatusSuccess {
			t.Fatalf("write of %d bytes: %v", n, st)
		}
		s.expect(t, "read whole", q.Read(3, uint32(n/bs)), want)
		st, got := q.Start(target.OpRead, 0, 3, uint32(n/bs), nil, Scattered).Wait()
		if st != nvme.StatusSuccess {
			t.Fatalf("read of %d bytes: %v", n, st)
		}
		s.expect(t, "read scattered", got, want)
		if b.Info().Ops.Has(target.OpCompare) {
			if st, _ := q.Start(target.OpCompare, 0, 3, uint32(n/bs), want, Scattered).Wait(); st != nvme.StatusSuccess {
				t.Errorf("compare of %d bytes: %v", n, st)
			}
		}
	}
}

func testFresh(t *testing.T, s Subject) {
	_, b, q := s.open(t)
	info := b.Info()
	blocks := uint32(1 << 20 / info.BlockSize)
	for _, lba := range []uint64{0, info.Blocks - uint64(blocks)} {
		s.expect(t, "fresh", q.Read(lba, blocks), make([]byte, 1<<20))
	}
}

func testSeams(t *testing.T, s Subject) {
	_, b, q := s.open(t)
	bs := uint64(b.Info().BlockSize)
	for _, seam := range s.Seams {
		for _, blocks := range []uint64{1, 2, 16, 1 << 20 / bs} {
			for _, before := range []uint64{0, 1, blocks / 2, blocks} {
				lba := seam/bs - before
				if before > seam/bs || lba+blocks > b.Info().Blocks {
					continue
				}
				want := Pattern(seam+before, int(blocks*bs))
				q.Write(lba, want)
				s.expect(t, fmt.Sprintf("%d blocks, %d of them before %d", blocks, before, seam), q.Read(lba, uint32(blocks)), want)
				for i := range blocks { // one by one
					s.expect(t, "one block", q.Read(lba+i, 1), want[i*bs:(i+1)*bs])
				}
			}
		}
	}
}

func testCompare(t *testing.T, s Subject) {
	_, b, q := s.open(t)
	if !b.Info().Ops.Has(target.OpCompare) {
		return // an optional operation
	}
	bs := int(b.Info().BlockSize)
	for _, blocks := range []int{1, 17, 1 << 20 / bs} {
		data := Pattern(7, blocks*bs)
		q.Write(11, data)
		q.Must(target.OpCompare, 0, 11, uint32(blocks), data)
		for _, at := range []int{0, len(data) / 2, len(data) - 1} {
			data[at] ^= 0x10
			if st, _ := q.Do(target.OpCompare, 0, 11, uint32(blocks), data); st.Code() != nvme.StatusCompareFailure {
				t.Errorf("%d blocks that differ at byte %d: %v", blocks, at, st)
			}
			data[at] ^= 0x10
		}
		q.Must(target.OpCompare, 0, 11, uint32(blocks), data)
	}
}

func testWriteZeroes(t *testing.T, s Subject) {
	_, b, q := s.open(t)
	info := b.Info()
	if !info.Ops.Has(target.OpWriteZeroes) {
		return // an optional operation
	}
	bs := int(info.BlockSize)
	for _, flags := range []target.IOFlags{0, target.Deallocate, target.FUA, target.FUA | target.Deallocate} {
		for _, blocks := range []uint32{1, 9, uint32(1 << 20 / bs)} {
			want := Pattern(5, (int(blocks)+2)*bs)
			q.Write(20, want)
			q.Must(target.OpWriteZeroes, flags, 21, blocks, nil)
			clear(want[bs : len(want)-bs])
			s.expect(t, fmt.Sprintf("flags %d, %d blocks", flags, blocks), q.Read(20, blocks+2), want)
		}
	}
	q.Must(target.OpWriteZeroes, 0, info.Blocks-1, 1, nil)
}

func testDeallocate(t *testing.T, s Subject) {
	_, b, q := s.open(t)
	info := b.Info()
	if !info.Ops.Has(target.OpDeallocate) {
		return // an optional operation
	}
	bs := int(info.BlockSize)
	want := Pattern(6, 1<<20)
	blocks := uint32(1 << 20 / bs)
	check := func(what string) {
		t.Helper()
		got := q.Read(0, blocks)
		if !info.ReadsZeroesAfterDeallocate {
			// A deallocated block may read as it was, too; nothing else may change.
			for i := range want {
				if want[i] == 0 {
					got[i] = 0
				}
			}
		}
		s.expect(t, what, got, want)
	}
	q.Write(0, want)
	deallocate := func(pairs ...uint64) {
		t.Helper()
		for i := 0; i < len(pairs); i += 2 {
			clear(want[pairs[i]*uint64(bs) : (pairs[i]+pairs[i+1])*uint64(bs)])
		}
		q.Must(target.OpDeallocate, 0, 0, uint32(len(pairs)/2), Ranges(pairs...))
	}
	deallocate(3, 1)
	check("one block")
	deallocate(8, 8, 0, 0, 32, 5, 100, 16)
	check("several ranges, one empty")
	var all []uint64
	for i := range uint64(nvme.DSMMaxRanges) {
		all = append(all, i*uint64(blocks)/nvme.DSMMaxRanges, uint64(blocks)/nvme.DSMMaxRanges/2)
	}
	deallocate(all...)
	check("as many ranges as there may be")
	// All of it, several times at once, with reads in between.
	var calls []*Call
	for range 5 {
		calls = append(calls, q.Start(target.OpDeallocate, 0, 0, 1, Ranges(0, info.Blocks), Whole))
		calls = append(calls, q.Start(target.OpRead, 0, info.Blocks-1, 1, nil, Whole))
	}
	for _, c := range calls {
		if st, _ := c.Wait(); st != nvme.StatusSuccess {
			t.Errorf("%v: %v", c.IO.Op, st)
		}
	}
	clear(want)
	check("everything")
}

func testPlainOps(t *testing.T, s Subject) {
	_, b, q := s.open(t)
	info := b.Info()
	data := Pattern(8, int(info.BlockSize)*4)
	q.Must(target.OpWrite, target.FUA, 40, 4, data)
	q.Must(target.OpFlush, 0, 0, 0, nil)
	s.expect(t, "read with FUA", q.Must(target.OpRead, target.FUA|target.LimitedRetry, 40, 4, nil), data)
	if info.Ops.Has(target.OpVerify) {
		q.Must(target.OpVerify, 0, 40, 4, nil)
		q.Must(target.OpVerify, 0, 0, uint32(1<<20/info.BlockSize), nil)
	}
}

// testOutOfRange is what may happen after a shrink: an error, and no harm.
func testOutOfRange(t *testing.T, s Subject) {
	_, b, q := s.open(t)
	info := b.Info()
	data := make([]byte, 4*info.BlockSize)
	for _, lba := range []uint64{info.Blocks - 3, info.Blocks, info.Blocks + 1<<20} {
		for op := range target.Op(target.NumOps) {
			blocks, d := uint32(4), data
			switch op {
			case target.OpFlush:
				continue
			case target.OpDeallocate:
				blocks, d = 1, Ranges(lba, 4)
			case target.OpRead, target.OpWriteZeroes, target.OpVerify:
				d = nil
			}
			if op > target.OpFlush && !info.Ops.Has(op) {
				continue
			}
			if op == target.OpDeallocate {
				if st, _ := q.Do(op, 0, 0, blocks, d); st == nvme.StatusSuccess {
					t.Errorf("%v at %d of %d blocks succeeded", op, lba, info.Blocks)
				}
				continue
			}
			if st, _ := q.Do(op, 0, lba, blocks, d); st.Code() != nvme.StatusLBAOutOfRange {
				t.Errorf("%v at %d of %d blocks: %v", op, lba, info.Blocks, st)
			}
		}
	}
}

// testManyAtOnce submits far more than any queue holds.
func testManyAtOnce(t *testing.T, s Subject) {
	_, b, q := s.open(t)
	bs := int(b.Info().BlockSize)
	const n = 1500
	var calls []*Call
	q.Group.Reactor.Call(func() {
		for i := range n {
			c := q.prepare(target.OpWrite, 0, uint64(i), 1)
			c.fill(Pattern(uint64(i), bs), Whole)
			calls = append(calls, c)
		}
		for _, c := range calls {
			q.queue.Submit(&c.IO)
		}
	})
	for _, c := range calls {
		if st, _ := c.Wait(); st != nvme.StatusSuccess {
			t.Fatalf("block %d: %v", c.IO.LBA, st)
		}
	}
	for i := range n {
		calls[i] = q.Start(target.OpRead, 0, uint64(i), 1, nil, Whole)
	}
	for i, c := range calls {
		st, got := c.Wait()
		if st != nvme.StatusSuccess {
			t.Fatalf("block %d: %v", i, st)
		}
		s.expect(t, fmt.Sprint("block ", i), got, Pattern(uint64(i), bs))
	}
}

// testChain submits the next operation out of the end of the one before.
func testChain(t *testing.T, s Subject) {
	_, b, q := s.open(t)
	bs := int(b.Info().BlockSize)
	done := make(chan struct{})
	left := 300
	var next func(*Call)
	next = func(prev *Call) {
		if prev != nil && prev.Status != nvme.StatusSuccess {
			t.Errorf("%v: %v", prev.IO.Op, prev.Status)
		}
		if left == 0 {
			close(done)
			return
		}
		left--
		op := []target.Op{target.OpWrite, target.OpRead, target.OpFlush}[left%3]
		c := q.prepare(op, 0, uint64(left), 1)
		if op == target.OpFlush {
			c.IO.LBA, c.IO.Blocks = 0, 0
		}
		c.then = next
		var data []byte
		if op == target.OpWrite {
			data = Pattern(uint64(left), bs)
		}
		c.fill(data, Whole)
		q.queue.Submit(&c.IO)
	}
	q.Group.Reactor.Call(func() { next(nil) })
	<-done
}

// testCloseOutstanding closes the queue in the same breath: everything ends first, and the queue after that.
func testCloseOutstanding(t *testing.T, s Subject) {
	rig := NewRig(t, 1)
	b := s.backend(t, rig)
	for round := range 5 {
		q := rig.OpenQueue(t, b, 0)
		closed := make(chan struct{})
		var calls []*Call
		ended := 0
		q.Group.Reactor.Call(func() {
			for i := range 200 * round {
				op := []target.Op{target.OpWrite, target.OpRead, target.OpFlush}[i%3]
				c := q.prepare(op, 0, uint64(i), 1)
				if op == target.OpFlush {
					c.IO.LBA, c.IO.Blocks = 0, 0
				}
				c.then = func(*Call) { ended++ }
				var data []byte
				if op == target.OpWrite {
					data = make([]byte, b.Info().BlockSize)
				}
				c.fill(data, Whole)
				calls = append(calls, c)
				q.queue.Submit(&c.IO)
			}
			if b.Info().Ops.Has(target.OpDeallocate) {
				c := q.prepare(target.OpDeallocate, 0, 0, 1)
				c.then = func(*Call) { ended++ }
				c.fill(Ranges(0, b.Info().Blocks), Whole)
				calls = append(calls, c)
				q.queue.Submit(&c.IO)
			}
			q.queue.Close(func() {
				if ended != len(calls) {
					t.Errorf("closed after %d of %d operations", ended, len(calls))
				}
				close(closed)
			})
		})
		<-closed
		for _, c := range calls {
			if st, _ := c.Wait(); st != nvme.StatusSuccess {
				t.Errorf("%v: %v", c.IO.Op, st)
			}
		}
	}
}

// region is a part of a backend with a copy of what must be in it.
type region struct {
	s     Subject
	q     *Queue
	info  target.Info
	first uint64
	want  []byte
	rnd   *rand.Rand
}

func newRegion(s Subject, q *Queue, info target.Info, first uint64, bytes int, seed uint64) *region {
	r := &region{s: s, q: q, info: info, first: first, want: Pattern(seed, bytes), rnd: rand.New(rand.NewPCG(seed, 1))}
	bs := int(info.BlockSize)
	for off := 0; off < bytes; off += 256 << 10 {
		q.Write(first+uint64(off/bs), r.want[off:min(off+256<<10, bytes)])
	}
	return r
}

// step does one random operation and checks it.
func (r *region) step(t testing.TB) {
	bs := int(r.info.BlockSize)
	total := len(r.want) / bs
	blocks := 1 + r.rnd.IntN(min(total, 64))
	if r.rnd.IntN(10) == 0 {
		blocks = min(total, 1<<20/bs)
	}
	at := r.rnd.IntN(total - blocks + 1)
	want := r.want[at*bs : (at+blocks)*bs]
	lba, n := r.first+uint64(at), uint32(blocks)
	switch op := target.Op(r.rnd.IntN(target.NumOps)); {
	case op == target.OpWrite:
		fresh := Pattern(r.rnd.Uint64(), len(want))
		copy(want, fresh)
		if st, _ := r.q.Start(op, 0, lba, n, fresh, Layout(r.rnd.IntN(2))).Wait(); st != nvme.StatusSuccess {
			t.Errorf("write: %v", st)
		}
	case op == target.OpFlush:
		r.q.Must(op, 0, 0, 0, nil)
	case op == target.OpWriteZeroes && r.info.Ops.Has(op):
		r.q.Must(op, target.IOFlags(r.rnd.IntN(4)), lba, n, nil)
		clear(want)
	case op == target.OpDeallocate && r.info.Ops.Has(op) && r.info.ReadsZeroesAfterDeallocate:
		r.q.Must(op, 0, 0, 1, Ranges(lba, uint64(n)))
		clear(want)
	case op == target.OpCompare && r.info.Ops.Has(op):
		r.q.Must(op, 0, lba, n, want)
	case op == target.OpVerify && r.info.Ops.Has(op):
		r.q.Must(op, 0, lba, n, nil)
	default:
		r.s.expect(t, fmt.Sprintf("%d blocks at %d", n, lba), r.q.Read(lba, n), want)
	}
}

func steps(n int) int {
	if invariants.Enabled {
		return n / 4
	}
	return n
}

func testRandom(t *testing.T, s Subject) {
	_, b, q := s.open(t)
	r := newRegion(s, q, b.Info(), 0, 6<<20, 11)
	for range steps(400) {
		r.step(t)
	}
	bs := uint32(b.Info().BlockSize)
	for off := 0; off < len(r.want); off += 1 << 20 {
		s.expect(t, "in the end", q.Read(uint64(off)/uint64(bs), 1<<20/bs), r.want[off:off+1<<20])
	}
}

// testReactors has three reactors at work, each in a region of its own.
func testReactors(t *testing.T, s Subject) {
	rig := NewRig(t, 3)
	b := s.backend(t, rig)
	info := b.Info()
	var wg sync.WaitGroup
	for i := range rig.Groups {
		q := rig.OpenQueue(t, b, i)
		wg.Go(func() {
			defer q.Close()
			size := 2 << 20
			r := newRegion(s, q, info, uint64(i*size)/uint64(info.BlockSize), size, uint64(i)+20)
			for range steps(150) {
				if r.step(t); t.Failed() {
					return
				}
			}
		})
	}
	wg.Wait()
}
