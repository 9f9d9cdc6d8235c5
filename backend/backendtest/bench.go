package backendtest

import (
	"testing"

	"rocet/internal/invariants"
	"rocet/memory"
	"rocet/nvme"
	"rocet/target"
)

// loop keeps a number of equal operations under way on one queue, and allocates nothing.
type loop struct {
	q     *Queue
	slots []slot
	left  int // to submit
	out   int // under way
	lbas  uint64
	next  uint64
	busy  bool // inside Submit, whose completions run does not answer by itself
	done  chan struct{}
	bad   nvme.Status
}

type slot struct {
	io    target.IO
	loop  *loop
	room  [target.MaxSegments]memory.Segment
	used  int
	ready bool
}

func newLoop(q *Queue, op target.Op, bytes, depth int) *loop {
	blocks := uint32(bytes) / q.info.BlockSize
	l := &loop{q: q, slots: make([]slot, depth), lbas: q.info.Blocks/uint64(blocks) - 1, done: make(chan struct{}, 1)}
	q.Group.Reactor.Call(func() {
		for i := range l.slots {
			s := &l.slots[i]
			s.loop, s.ready = l, true
			s.io.Init(s)
			s.io.Op, s.io.Blocks = op, blocks
			if op == target.OpRead && q.info.LendsReads {
				continue
			}
			used, ok := q.Group.Mem.Alloc(s.room[:], uint32(bytes), memory.ClassIO)
			if !ok {
				q.t.Fatal("no buffers")
			}
			s.used = used
		}
	})
	return l
}

// run does n operations and waits for them.
func (l *loop) run(n int) nvme.Status {
	l.left = n
	l.q.Group.Reactor.Call(l.submit)
	<-l.done
	return l.bad
}

func (l *loop) submit() {
	l.busy = true
	for again := true; again; {
		again = false
		for i := range l.slots {
			s := &l.slots[i]
			if !s.ready || l.left == 0 {
				continue
			}
			l.left--
			l.out++
			s.ready = false
			s.io.Data = s.room[:s.used]
			s.io.LBA = l.next % l.lbas * uint64(s.io.Blocks)
			l.next += 7919
			l.q.queue.Submit(&s.io)
			again = again || s.ready
		}
	}
	l.busy = false
	if l.left == 0 && l.out == 0 {
		l.done <- struct{}{}
	}
}

// IODone is the end of one.
func (s *slot) IODone(_ *target.IO, st nvme.Status) {
	l := s.loop
	if st != nvme.StatusSuccess {
		l.bad = st
	}
	s.ready = true
	l.out--
	if !l.busy {
		l.submit()
	}
}

func (l *loop) free() {
	l.q.Group.Reactor.Call(func() {
		for i := range l.slots {
			l.q.Group.Mem.Free(l.slots[i].room[:l.slots[i].used])
		}
	})
}

// Bench measures operations at a depth, on one reactor.
func Bench(b *testing.B, s Subject, op target.Op, bytes, depth int) {
	rig := NewRig(b, 1)
	be := s.backend(b, rig)
	q := rig.OpenQueue(b, be, 0)
	b.Cleanup(q.Close)
	l := newLoop(q, op, bytes, depth)
	defer l.free()
	if st := l.run(2 * depth); st != nvme.StatusSuccess {
		b.Fatal(st)
	}
	b.ReportAllocs()
	b.SetBytes(int64(bytes))
	b.ResetTimer()
	l.run(b.N)
}

// CheckAllocs fails the test if reads, writes or flushes allocate.
func CheckAllocs(t *testing.T, s Subject) {
	t.Helper()
	if invariants.Enabled {
		t.Skip("the assertions of debug builds allocate")
	}
	rig := NewRig(t, 1)
	b := s.backend(t, rig)
	q := rig.OpenQueue(t, b, 0)
	t.Cleanup(q.Close)
	const n = 500
	for _, op := range []target.Op{target.OpRead, target.OpWrite} {
		l := newLoop(q, op, 16<<10, 8)
		l.run(n)
		// The round trip that starts and ends a run allocates; n operations must not.
		if a := testing.AllocsPerRun(5, func() { l.run(n) }); a > n/20 {
			t.Errorf("%v: %v allocations in %d operations", op, a, n)
		}
		l.free()
	}
}
