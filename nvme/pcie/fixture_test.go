package pcie

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"rocet/memory"
	"rocet/nvme"
	"rocet/nvme/pcie/sim"
)

// rig is a simulated drive with a driver on it, and one queue that the test's goroutine owns.
type rig struct {
	t     testing.TB
	pool  *memory.Pool
	space *sim.Space
	dev   *sim.Controller
	drive *Drive
	ns    *Namespace
	q     *Queue
	cache *memory.Cache

	mu     sync.Mutex
	posted []func()
	events []Event
	log    strings.Builder
}

// Post is the queue's Executor: what is posted runs when the test pumps.
func (r *rig) Post(fn func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.posted = append(r.posted, fn)
	return true
}

func (r *rig) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *rig) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

func newPool(t testing.TB, space *sim.Space) *memory.Pool {
	t.Helper()
	pool, err := memory.New(memory.Config{Size: 16 << 20, HugePages: memory.HugeNever, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() { // then the driver may still use it
			pool.Close()
		}
	})
	if err := pool.AddRegistrant(space); err != nil {
		t.Fatal(err)
	}
	return pool
}

// newRig makes the drive and starts it; edit may change the driver's configuration.
func newRig(t testing.TB, cfg sim.Config, edit func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, space: sim.NewSpace()}
	r.pool = newPool(t, r.space)
	r.dev = sim.New(r.space, cfg)
	r.dev.Run()
	t.Cleanup(r.dev.Stop)
	c := Config{
		Open:   func() (Function, error) { f, err := r.dev.Open(); return f, err },
		Table:  r.space.Table(),
		Memory: r.pool,
		Queues: 2,
		Depth:  32,
		Log:    slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Notify: func(e Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, e)
		},
	}
	if edit != nil {
		edit(&c)
	}
	var err error
	if r.drive, err = Open(c); err != nil {
		t.Fatal(err)
	}
	if r.ns, err = r.drive.Namespace(1); err != nil {
		t.Fatal(err)
	}
	r.open()
	r.cache = r.pool.NewCache()
	t.Cleanup(func() {
		r.close()
		if t.Failed() {
			t.Logf("the driver's log:\n%s", r.logged())
		}
	})
	return r
}

func (r *rig) open() {
	r.t.Helper()
	q, err := r.drive.OpenQueue(r, true)
	if err != nil {
		r.t.Fatal(err)
	}
	r.q = q
}

func (r *rig) closeQueue() {
	r.t.Helper()
	closed := false
	r.q.Close(func() { closed = true })
	r.pump("the queue to close", func() bool { return closed })
	r.q = nil
}

func (r *rig) close() {
	r.t.Helper()
	if r.q != nil {
		r.closeQueue()
	}
	if err := r.drive.Close(); err != nil {
		r.t.Error(err)
	}
	if n := r.space.Faults(); n > 0 {
		r.t.Errorf("%d IOMMU faults", n)
	}
}

// turn does what a reactor's turn does.
func (r *rig) turn() int {
	r.mu.Lock()
	posted := r.posted
	r.posted = nil
	r.mu.Unlock()
	for _, fn := range posted {
		fn()
	}
	n := len(posted)
	if r.q != nil {
		n += r.q.Poll()
		r.q.Flush()
	}
	return n
}

// pump takes turns until done.
func (r *rig) pump(what string, done func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			r.t.Fatalf("waited 20 s for %s; the driver's log:\n%s", what, r.logged())
		}
		if r.turn() == 0 {
			time.Sleep(20 * time.Microsecond)
		}
	}
}

// age makes everything outstanding look as old as d.
func (r *rig) age(d time.Duration) {
	for range ticks(d) + 2 {
		r.q.Tick()
	}
}

func (r *rig) sawEvent(e Event) func() bool {
	return func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, have := range r.events {
			if have == e {
				return true
			}
		}
		return false
	}
}

// request is an I/O of a test.
type request struct {
	Request
	ended  int
	status nvme.Status
	onEnd  func()
}

func (r *request) Complete(st nvme.Status) {
	r.ended++
	r.status = st
	if r.onEnd != nil {
		r.onEnd()
	}
}

func (r *rig) newRequest(op nvme.Opcode, lba uint64, blocks uint32, data []memory.Segment) *request {
	q := &request{Request: Request{NS: r.ns, Op: op, LBA: lba, Blocks: blocks, Data: data}}
	q.Done = q
	return q
}

// send submits a request, waiting for room.
func (r *rig) send(q *request) {
	r.t.Helper()
	r.pump("room", func() bool { return r.q.TrySubmit(&q.Request) })
	r.q.Flush()
}

// do runs a request to its end.
func (r *rig) do(op nvme.Opcode, lba uint64, blocks uint32, data []memory.Segment) nvme.Status {
	r.t.Helper()
	q := r.newRequest(op, lba, blocks, data)
	r.send(q)
	r.pump(op.Name(false), func() bool { return q.ended > 0 })
	if q.ended != 1 {
		r.t.Fatalf("%s ended %d times", op.Name(false), q.ended)
	}
	return q.status
}

func (r *rig) mustDo(op nvme.Opcode, lba uint64, blocks uint32, data []memory.Segment) {
	r.t.Helper()
	if st := r.do(op, lba, blocks, data); !st.IsOK() {
		r.t.Fatalf("%s of %d blocks at %d: %v", op.Name(false), blocks, lba, st)
	}
}

// alloc takes n bytes from the pool.
func (r *rig) alloc(n uint32) []memory.Segment {
	r.t.Helper()
	var segs [64]memory.Segment
	used, ok := r.cache.Alloc(segs[:], n, memory.ClassIO)
	if !ok {
		r.t.Fatalf("no %d bytes in the pool", n)
	}
	return append([]memory.Segment(nil), segs[:used]...)
}

func fill(segs []memory.Segment, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	var all []byte
	for _, s := range segs {
		b := s.Bytes()
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		all = append(all, b...)
	}
	return all
}

func gather(segs []memory.Segment) []byte {
	var all []byte
	for _, s := range segs {
		all = append(all, s.Bytes()...)
	}
	return all
}

func wipe(segs []memory.Segment) {
	for _, s := range segs {
		clear(s.Bytes())
	}
}

// roundTrip writes random data, looks at the media, reads it back and compares it in the drive.
func (r *rig) roundTrip(lba uint64, segs []memory.Segment, seed uint64) {
	r.t.Helper()
	want := fill(segs, seed)
	blocks := uint32(len(want)) >> r.ns.shift
	r.mustDo(nvme.OpWrite, lba, blocks, segs)
	r.dev.Media(func(m []byte) {
		if !bytes.Equal(m[lba<<r.ns.shift:][:len(want)], want) {
			r.t.Fatalf("the media has other data after a write of %v", describe(segs))
		}
	})
	r.mustDo(nvme.OpCompare, lba, blocks, segs)
	wipe(segs)
	r.mustDo(nvme.OpRead, lba, blocks, segs)
	if !bytes.Equal(gather(segs), want) {
		r.t.Fatalf("a read into %v got other data", describe(segs))
	}
}

func describe(segs []memory.Segment) string {
	var b strings.Builder
	for _, s := range segs {
		fmt.Fprintf(&b, "[%#x +%d]", s.Addr&0xffff, s.Len)
	}
	return b.String()
}
