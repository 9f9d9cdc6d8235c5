// Package backendtest holds what every implementation of target.Backend must pass, and the reactors, buffers and calls that
// tests of backends need.
package backendtest

import (
	"io"
	"log/slog"
	"testing"

	"rocet/memory"
	"rocet/nvme"
	"rocet/reactor"
	"rocet/target"
)

// Rig is a few reactors with their poll groups, over one pool.
type Rig struct {
	Pool   *memory.Pool
	Groups []*target.PollGroup
}

// NewRig starts the reactors. They end with the test.
func NewRig(t testing.TB, reactors int) *Rig {
	t.Helper()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	pool, err := memory.New(memory.Config{Size: uint64(reactors) * 32 << 20, HugePages: memory.HugeNever, Reserve: 64 << 10, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	group, err := reactor.NewGroup(reactor.Config{Count: reactors, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := group.Start(); err != nil {
		t.Fatal(err)
	}
	rig := &Rig{Pool: pool}
	for i, r := range group.Reactors() {
		rig.Groups = append(rig.Groups, &target.PollGroup{Reactor: r, Mem: pool.NewCache(), Index: i})
	}
	t.Cleanup(func() {
		for _, g := range rig.Groups {
			g.Reactor.Call(func() {
				if used := g.Mem.Usage().UsedBytes; used != 0 {
					t.Errorf("reactor %d: %d bytes of buffers were not freed", g.Index, used)
				}
				g.Mem.Close()
			})
		}
		group.Stop()
		pool.Close()
	})
	return rig
}

// Queue is a backend's queue on one of the rig's reactors.
type Queue struct {
	Group *target.PollGroup

	t     testing.TB
	info  target.Info
	queue target.BackendQueue
}

// OpenQueue opens the backend on reactor i. The test closes it.
func (rig *Rig) OpenQueue(t testing.TB, b target.Backend, i int) *Queue {
	t.Helper()
	q, err := b.OpenQueue(rig.Groups[i])
	if err != nil {
		t.Fatal(err)
	}
	return &Queue{Group: rig.Groups[i], t: t, info: b.Info(), queue: q}
}

// Close closes the queue and waits.
func (q *Queue) Close() {
	done := make(chan struct{})
	q.Group.Reactor.Call(func() { q.queue.Close(func() { close(done) }) })
	<-done
}

// Call is one operation under way.
type Call struct {
	IO     target.IO
	Status nvme.Status
	Out    []byte // what a read got

	queue *Queue
	own   []memory.Segment
	room  [target.MaxSegments]memory.Segment
	ended int
	done  chan struct{}
	then  func(*Call) // on the reactor
}

// Layout says how a call's buffers lie.
type Layout uint8

// Layouts.
const (
	Whole     Layout = iota // as few segments as the pool gives
	Scattered               // many segments of odd lengths, in blocks of 512 bytes
)

// Start submits an operation, from any goroutine but the reactor's. For writes, compares and deallocations data is what
// the buffers hold.
func (q *Queue) Start(op target.Op, flags target.IOFlags, lba uint64, blocks uint32, data []byte, layout Layout) *Call {
	c := q.prepare(op, flags, lba, blocks)
	q.Group.Reactor.Call(func() {
		c.fill(data, layout)
		q.queue.Submit(&c.IO)
	})
	return c
}

func (q *Queue) prepare(op target.Op, flags target.IOFlags, lba uint64, blocks uint32) *Call {
	c := &Call{queue: q, done: make(chan struct{})}
	c.IO.Init(c)
	c.IO.Op, c.IO.Flags, c.IO.LBA, c.IO.Blocks = op, flags, lba, blocks
	return c
}

// fill allocates the buffers and copies data into them, on the reactor.
func (c *Call) fill(data []byte, layout Layout) {
	q := c.queue
	n := len(data)
	if c.IO.Op == target.OpRead {
		if q.info.LendsReads {
			c.IO.Data = c.room[:0]
			return
		}
		n = int(c.IO.Blocks * q.info.BlockSize)
	}
	if n == 0 {
		return
	}
	used, ok := q.Group.Mem.Alloc(c.room[:], uint32(n), memory.ClassIO)
	if !ok {
		q.t.Errorf("no buffer of %d bytes", n)
		return
	}
	c.own = append(c.own, c.room[:used]...)
	segs := c.own
	if layout == Scattered {
		segs = scatter(c.own)
	}
	c.IO.Data = segs
	for _, s := range segs {
		data = data[copy(s.Bytes(), data):]
	}
}

// scatter cuts segments into up to MaxSegments of 512 bytes, 1024, 1536 and so on.
func scatter(segs []memory.Segment) []memory.Segment {
	var out []memory.Segment
	room := target.MaxSegments - len(segs)
	for _, s := range segs {
		for n := uint32(512); s.Len > n && room > 0; n += 512 {
			out = append(out, s.Slice(0, n))
			s = s.Slice(n, s.Len-n)
			room--
		}
		out = append(out, s)
	}
	return out
}

// IODone collects the result, on the reactor.
func (c *Call) IODone(io *target.IO, st nvme.Status) {
	q := c.queue
	q.Group.Reactor.Check()
	if io != &c.IO {
		q.t.Error("an IO was completed with another's")
	}
	if c.ended++; c.ended != 1 {
		q.t.Errorf("%v of %d blocks at %d was completed %d times", io.Op, io.Blocks, io.LBA, c.ended)
		return
	}
	c.Status = st
	if io.Op == target.OpRead && st == nvme.StatusSuccess {
		if n, want := memory.Length(io.Data), uint64(io.Blocks)*uint64(q.info.BlockSize); n != want {
			q.t.Errorf("a read of %d bytes gave %d", want, n)
		}
		for _, s := range io.Data {
			c.Out = append(c.Out, s.Bytes()...)
		}
	}
	q.Group.Mem.Free(c.own)
	c.own = nil
	if c.then != nil {
		c.then(c)
	}
	close(c.done)
}

// Wait waits for the end.
func (c *Call) Wait() (nvme.Status, []byte) {
	<-c.done
	return c.Status, c.Out
}

// Do submits an operation and waits for it.
func (q *Queue) Do(op target.Op, flags target.IOFlags, lba uint64, blocks uint32, data []byte) (nvme.Status, []byte) {
	return q.Start(op, flags, lba, blocks, data, Whole).Wait()
}

// Must is Do for what must succeed.
func (q *Queue) Must(op target.Op, flags target.IOFlags, lba uint64, blocks uint32, data []byte) []byte {
	q.t.Helper()
	st, out := q.Do(op, flags, lba, blocks, data)
	if st != nvme.StatusSuccess {
		q.t.Fatalf("%v of %d blocks at %d: %v", op, blocks, lba, st)
	}
	return out
}

// Write writes whole blocks.
func (q *Queue) Write(lba uint64, data []byte) {
	q.t.Helper()
	q.Must(target.OpWrite, 0, lba, uint32(len(data))/q.info.BlockSize, data)
}

// Read reads whole blocks.
func (q *Queue) Read(lba uint64, blocks uint32) []byte {
	q.t.Helper()
	return q.Must(target.OpRead, 0, lba, blocks, nil)
}

// Ranges encodes a Dataset Management range list: pairs of LBA and blocks.
func Ranges(pairs ...uint64) []byte {
	b := make([]byte, len(pairs)/2*nvme.DSMRangeSize)
	for i := 0; i < len(pairs); i += 2 {
		r := (*nvme.DSMRange)(b[i/2*nvme.DSMRangeSize:])
		r.SetSLBA(pairs[i])
		r.SetNLB(uint32(pairs[i+1]))
	}
	return b
}

// Pattern is n bytes that tell where they were written and by whom.
func Pattern(seed uint64, n int) []byte {
	b := make([]byte, n)
	x := seed*0x9e3779b97f4a7c15 + 1
	for i := 0; i+8 <= n; i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		for j := range 8 {
			b[i+j] = byte(x >> (8 * j))
		}
	}
	return b
}
