package stripe

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"rocet/backend/backendtest"
	bmemory "rocet/backend/memory"
	"rocet/nvme"
	"rocet/reactor"
	"rocet/target"
)

// slow is a member that takes buffers, as drives do, and completes later, the latest first.
type slow struct {
	info   target.Info
	data   []byte
	fail   map[target.Op]nvme.Status
	flushs int
	watch  func(target.Event)
	health *nvme.SMARTLog
	closed bool
	mu     sync.Mutex // data
}

func newSlow(blocks uint64, block uint32) *slow {
	return &slow{info: target.Info{
		Geometry: target.Geometry{BlockSize: block, Blocks: blocks},
		Ops:      target.Ops(target.OpWriteZeroes, target.OpDeallocate, target.OpCompare, target.OpVerify),
	}, data: make([]byte, blocks*uint64(block)), fail: map[target.Op]nvme.Status{}}
}

func (s *slow) Info() target.Info          { return s.info }
func (s *slow) Watch(f func(target.Event)) { s.watch = f }
func (s *slow) Close() error               { s.closed = true; return nil }
func (s *slow) SMART() (nvme.SMARTLog, bool) {
	if s.health == nil {
		return nvme.SMARTLog{}, false
	}
	return *s.health, true
}

func (s *slow) OpenQueue(g *target.PollGroup) (target.BackendQueue, error) {
	q := &slowQueue{s: s, r: g.Reactor}
	q.timer.Fire = q.fire
	return q, nil
}

type slowQueue struct {
	s      *slow
	r      *reactor.Reactor
	timer  reactor.Timer
	list   *target.IO // the latest first
	n      int
	closed func()
}

func (q *slowQueue) Submit(io *target.IO) {
	io.Next, q.list = q.list, io
	if q.n++; !q.timer.Scheduled() {
		q.r.Schedule(&q.timer, 50*time.Microsecond)
	}
}

func (q *slowQueue) fire() {
	for io := q.list; io != nil; io = q.list {
		q.list = io.Next
		q.n--
		io.Complete(q.do(io))
	}
	if q.closed != nil && q.n == 0 {
		q.closed()
	}
}

func (q *slowQueue) Close(done func()) {
	if q.n > 0 {
		q.closed = done
		return
	}
	done()
}

func (q *slowQueue) do(io *target.IO) nvme.Status {
	s := q.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if st, ok := s.fail[io.Op]; ok {
		return st
	}
	block := uint64(s.info.BlockSize)
	if io.Op == target.OpFlush {
		s.flushs++
		return nvme.StatusSuccess
	}
	if io.Op == target.OpDeallocate {
		for i := range int(io.Blocks) {
			r := (*nvme.DSMRange)(io.Data[0].Bytes()[i*nvme.DSMRangeSize:])
			clear(s.data[r.SLBA()*block:][:uint64(r.NLB())*block])
		}
		return nvme.StatusSuccess
	}
	if io.LBA+uint64(io.Blocks) > s.info.Blocks {
		return nvme.StatusLBAOutOfRange
	}
	at := s.data[io.LBA*block:][:uint64(io.Blocks)*block]
	switch io.Op {
	case target.OpWriteZeroes:
		clear(at)
	case target.OpRead, target.OpWrite, target.OpCompare:
		for _, seg := range io.Data {
			b := seg.Bytes()
			switch io.Op {
			case target.OpRead:
				copy(b, at)
			case target.OpWrite:
				copy(at, b)
			default:
				if !bytes.Equal(b, at[:len(b)]) {
					return nvme.StatusCompareFailure
				}
			}
			at = at[len(b):]
		}
		if len(at) != 0 {
			return nvme.StatusInternalError
		}
	}
	return nvme.StatusSuccess
}

func stripeOf(t testing.TB, size uint64, members ...target.Backend) *Backend {
	t.Helper()
	b, err := New(Config{StripeSize: size, Members: members})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func overMemory(size uint64, members int, block uint32) backendtest.Subject {
	return backendtest.Subject{
		Zeroed: true, Seams: []uint64{size, size * uint64(members)},
		Open: func(t testing.TB, rig *backendtest.Rig) target.Backend {
			t.Helper()
			var all []target.Backend
			for range members {
				m, err := bmemory.New(bmemory.Config{Pool: rig.Pool, Size: 8 << 20, BlockSize: block})
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, m)
			}
			return &withMembers{stripeOf(t, size, all...)}
		},
	}
}

func overSlow(size uint64, members int, block uint32) backendtest.Subject {
	return backendtest.Subject{
		Zeroed: true, Seams: []uint64{size, size * uint64(members)},
		Open: func(t testing.TB, _ *backendtest.Rig) target.Backend {
			var all []target.Backend
			for i := range members { // of different sizes
				all = append(all, newSlow((8<<20+uint64(i)*100<<10)/uint64(block), block))
			}
			return &withMembers{stripeOf(t, size, all...)}
		},
	}
}

// withMembers closes the members too, which is the opener's part.
type withMembers struct{ *Backend }

func (w *withMembers) Close() error {
	err := w.Backend.Close()
	for _, m := range w.members {
		err = errors.Join(err, m.Close())
	}
	return err
}

func TestConformance(t *testing.T) {
	for name, s := range map[string]backendtest.Subject{
		"memory 2 of 64 KiB":  overMemory(64<<10, 2, 4096),
		"memory 3 of 4 KiB":   overMemory(4<<10, 3, 512),
		"slow 2 of 128 KiB":   overSlow(128<<10, 2, 4096),
		"slow 5 of 4 KiB":     overSlow(4<<10, 5, 512),
		"slow 3 of one block": overSlow(4<<10, 3, 4096),
		"slow 2 of 1 MiB":     overSlow(1<<20, 2, 512),
	} {
		t.Run(name, func(t *testing.T) { backendtest.Run(t, s) })
	}
}

func TestNothingIsAllocated(t *testing.T) {
	backendtest.CheckAllocs(t, overMemory(64<<10, 2, 4096))
	backendtest.CheckAllocs(t, overSlow(64<<10, 2, 4096))
}

func wait(c *backendtest.Call) nvme.Status {
	st, _ := c.Wait()
	return st
}

// The stripe's bytes lie where everybody else's RAID-0 has them.
func TestWhereBytesLie(t *testing.T) {
	rig := backendtest.NewRig(t, 1)
	a, b := newSlow(64, 4096), newSlow(64, 4096)
	s := stripeOf(t, 8192, a, b)
	q := rig.OpenQueue(t, s, 0)
	data := backendtest.Pattern(1, 5*8192)
	if got := wait(q.Start(target.OpWrite, 0, 0, 10, data, backendtest.Whole)); !got.IsOK() {
		t.Fatal(got)
	}
	q.Close()
	for i := range 5 {
		m := []*slow{a, b}[i%2]
		if !bytes.Equal(m.data[i/2*8192:][:8192], data[i*8192:][:8192]) {
			t.Errorf("unit %d is not on member %d", i, i%2)
		}
	}
}

func TestErrors(t *testing.T) {
	rig := backendtest.NewRig(t, 1)
	a, b, c := newSlow(256, 4096), newSlow(256, 4096), newSlow(256, 4096)
	q := rig.OpenQueue(t, stripeOf(t, 4096, a, b, c), 0)
	defer q.Close()
	b.fail[target.OpRead], c.fail[target.OpRead] = nvme.StatusUnrecoveredRead, nvme.StatusInternalError
	for range 10 {
		// The members answer in the reverse order; the foremost failure is reported all the same.
		if got := wait(q.Start(target.OpRead, 0, 0, 30, nil, backendtest.Whole)); got.Code() != nvme.StatusUnrecoveredRead {
			t.Fatalf("a read ended with %v, want the foremost part's", got)
		}
	}
	if got := wait(q.Start(target.OpRead, 0, 0, 1, nil, backendtest.Whole)); !got.IsOK() {
		t.Errorf("a read from a sound member ended with %v", got)
	}
	c.fail[target.OpFlush] = nvme.StatusWriteFault
	if got := wait(q.Start(target.OpFlush, 0, 0, 0, nil, backendtest.Whole)); got.Code() != nvme.StatusWriteFault {
		t.Errorf("a flush that one member failed ended with %v", got)
	}
	if a.flushs != 1 || b.flushs != 1 {
		t.Errorf("the other members were flushed %d and %d times", a.flushs, b.flushs)
	}
}

func TestEvents(t *testing.T) {
	a, b := newSlow(256, 4096), newSlow(300, 4096)
	s := stripeOf(t, 8192, a, b)
	var got []target.Event
	s.Watch(func(e target.Event) { got = append(got, e) })
	expect := func(what string, want ...target.Event) {
		t.Helper()
		if len(got) != len(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		got = nil
	}
	a.watch(target.EventGone)
	a.watch(target.EventGone)
	b.watch(target.EventGone)
	expect("both gone", target.EventGone)
	a.watch(target.EventBack)
	expect("one back")
	b.watch(target.EventBack)
	b.watch(target.EventBack)
	expect("both back", target.EventBack)
	b.info.Blocks = 400
	b.watch(target.EventResized)
	expect("the larger one grew")
	a.info.Blocks = 400
	a.watch(target.EventResized)
	expect("both grew", target.EventResized)
	if n := s.Info().Blocks; n != 800 {
		t.Errorf("%d blocks, want 800", n)
	}
	a.watch(target.EventHealth)
	expect("health", target.EventHealth)
	if err := s.Close(); err != nil || a.watch != nil {
		t.Errorf("closed: %v, still watching: %v", err, a.watch != nil)
	}
}

func TestShrunk(t *testing.T) {
	rig := backendtest.NewRig(t, 1)
	a, b := newSlow(256, 4096), newSlow(256, 4096)
	s := stripeOf(t, 8192, a, b)
	q := rig.OpenQueue(t, s, 0)
	defer q.Close()
	a.info.Blocks = 128
	a.watch(target.EventResized)
	if got := wait(q.Start(target.OpRead, 0, 300, 1, nil, backendtest.Whole)); got.Code() != nvme.StatusLBAOutOfRange {
		t.Errorf("a read beyond the end ended with %v", got)
	}
	if got := wait(q.Start(target.OpDeallocate, 0, 0, 1, backendtest.Ranges(250, 20), backendtest.Whole)); got.Code() != nvme.StatusLBAOutOfRange {
		t.Errorf("a deallocation across the new end ended with %v", got)
	}
}

func TestJoinedInfo(t *testing.T) {
	a, b := newSlow(1000, 4096), newSlow(2000, 4096)
	a.info.Atomic = target.AtomicUnits{Normal: 64, PowerFail: 8}
	b.info.Atomic = target.AtomicUnits{Normal: 32, PowerFail: 16, Boundary: 24}
	b.info.VolatileWriteCache, b.info.MaxTransfer = true, 16<<10
	b.info.Ops = target.Ops(target.OpWriteZeroes)
	got := stripeOf(t, 64<<10, a, b).Info()
	if got.Blocks != 1000/16*16*2 || !got.VolatileWriteCache || got.Ops != target.Ops(target.OpWriteZeroes) || got.MaxTransfer != 16<<10 ||
		got.OptimalIOBoundary != 16 || got.OptimalWriteSize != 32 || got.LendsReads {
		t.Errorf("%+v", got)
	}
	if want := (target.AtomicUnits{Normal: 16, PowerFail: 8, Boundary: 8, BoundaryPowerFail: 16}); got.Atomic != want {
		t.Errorf("atomic units %+v, want %+v", got.Atomic, want)
	}
	a.info.WriteGranularity, b.info.WriteAlignment = 4, 16
	a.info.DeallocGranularity, b.info.DeallocAlignment = 64, 60000
	got = stripeOf(t, 64<<10, a, b).Info()
	// What a member has in one unit the stripe has too; what takes several, it has across all members.
	if got.WriteGranularity != 4 || got.WriteAlignment != 16 || got.DeallocGranularity != 128 || got.DeallocAlignment != 0 {
		t.Errorf("preferred sizes %d, %d, %d, %d", got.WriteGranularity, got.WriteAlignment, got.DeallocGranularity, got.DeallocAlignment)
	}
	a.info.Atomic, b.info.Atomic = target.AtomicUnits{Compare: 64}, target.AtomicUnits{Compare: 64}
	if got, want := stripeOf(t, 64<<10, a, b).Info().Atomic, (target.AtomicUnits{Compare: 16, Boundary: 16, BoundaryPowerFail: 16}); got != want {
		t.Errorf("atomic units %+v, want %+v", got, want)
	}
	a.info.Atomic.BoundaryOffset = 3
	if got := stripeOf(t, 64<<10, a, b).Info().Atomic; got != (target.AtomicUnits{}) {
		t.Errorf("atomic units across shifted boundaries: %+v", got)
	}
}

func TestJoinedSMART(t *testing.T) {
	a, b, c := newSlow(64, 4096), newSlow(64, 4096), newSlow(64, 4096)
	s := stripeOf(t, 4096, a, b, c)
	if _, ok := s.SMART(); ok {
		t.Error("health of members that have none")
	}
	a.health = &nvme.SMARTLog{Temperature: 300, AvailableSpare: 90, HostReads: nvme.Uint128{Lo: ^uint64(0)}, PowerCycles: nvme.Uint128{Lo: 5}}
	c.health = &nvme.SMARTLog{CriticalWarning: 4, Temperature: 320, AvailableSpare: 40, HostReads: nvme.Uint128{Lo: 2}, PowerCycles: nvme.Uint128{Lo: 3}}
	got, ok := s.SMART()
	if !ok || got.CriticalWarning != 4 || got.Temperature != 320 || got.AvailableSpare != 40 ||
		got.HostReads != (nvme.Uint128{Lo: 1, Hi: 1}) || got.PowerCycles != (nvme.Uint128{Lo: 5}) {
		t.Errorf("%v %+v", ok, got)
	}
}

func TestConfigErrors(t *testing.T) {
	a, b, odd := newSlow(64, 4096), newSlow(64, 4096), newSlow(64, 512)
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{8192, []target.Backend{a}}, "1 members"},
		{Config{5000, []target.Backend{a, b}}, "a stripe size of 5000 bytes"},
		{Config{2048, []target.Backend{a, b}}, "a stripe size of 2048 bytes"},
		{Config{8192, []target.Backend{a, odd}}, "member 1 has blocks of 512 bytes"},
		{Config{1 << 20, []target.Backend{a, b}}, "smaller than a stripe"},
	} {
		if _, err := New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	b.Run("4KiB", func(b *testing.B) { backendtest.Bench(b, overMemory(128<<10, 2, 4096), target.OpRead, 4<<10, 32) })
	b.Run("1MiB", func(b *testing.B) { backendtest.Bench(b, overMemory(128<<10, 2, 4096), target.OpRead, 1<<20, 8) })
}
