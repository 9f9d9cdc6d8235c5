package rdma

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"rocet/cgo/verbs"
	"rocet/memory"
	"rocet/nvme"
	"rocet/reactor"
	"rocet/target"
)

const testNQN = "nqn.2026-01.io.rocet:test"

// testBackend keeps blocks in a slab. It can lend reads, hold operations back, and
// be a null device.
type testBackend struct {
	info  target.Info
	slab  *memory.Slab
	null  bool
	hold  atomic.Bool
	count atomic.Int64 // operations outstanding
	parts int          // a lent read is cut into so many segments
	q     []*testQueue
}

func (b *testBackend) Info() target.Info                   { return b.info }
func (b *testBackend) Watch(func(target.Event))            {}
func (b *testBackend) SMART() (log nvme.SMARTLog, ok bool) { return log, false }
func (b *testBackend) Close() error                        { return nil }
func (b *testBackend) OpenQueue(g *target.PollGroup) (target.BackendQueue, error) {
	q := &testQueue{b: b, g: g}
	b.q = append(b.q, q)
	return q, nil
}

// release lets go of what is held, on every reactor, and holds nothing more.
func (b *testBackend) release() {
	b.hold.Store(false)
	for _, q := range b.q {
		q.g.Reactor.Call(q.run)
	}
}

type testQueue struct {
	b    *testBackend
	g    *target.PollGroup
	held []*target.IO
}

func (q *testQueue) Close(done func()) { done() }

func (q *testQueue) Submit(io *target.IO) {
	if q.b.null {
		io.Complete(nvme.StatusSuccess)
		return
	}
	q.b.count.Add(1)
	if q.b.hold.Load() {
		q.held = append(q.held, io)
		return
	}
	q.serve(io)
}

func (q *testQueue) run() {
	for len(q.held) > 0 {
		io := q.held[0]
		q.held = q.held[1:]
		q.serve(io)
	}
}

func (q *testQueue) serve(io *target.IO) {
	b := q.b
	off := io.LBA * uint64(b.info.BlockSize)
	n := uint32(io.Blocks) * b.info.BlockSize
	switch io.Op {
	case target.OpRead:
		if b.info.LendsReads {
			parts := max(1, b.parts)
			step := (n/uint32(parts) + 3) &^ 3
			for n > 0 {
				m := min(step, n)
				io.Data = append(io.Data, b.slab.Segment(off, m))
				off, n = off+uint64(m), n-m
			}
			break
		}
		for _, s := range io.Data {
			copy(s.Bytes(), b.slab.Segment(off, s.Len).Bytes())
			off += uint64(s.Len)
		}
	case target.OpWrite:
		for _, s := range io.Data {
			copy(b.slab.Segment(off, s.Len).Bytes(), s.Bytes())
			off += uint64(s.Len)
		}
	}
	b.count.Add(-1)
	io.Complete(nvme.StatusSuccess)
}

// world is a target with the transport on a provider.
type world struct {
	t        testing.TB
	provider verbs.Provider
	pool     *memory.Pool
	group    *reactor.Group
	target   *target.Target
	tr       *Transport
	backend  *testBackend
	listener *Listener
	addr     netip.AddrPort
	free     uint64
	hosts    []*host
	down     bool
}

// worldConfig says what to make. Zero values: see newWorld.
type worldConfig struct {
	rdma     Config
	provider verbs.Provider
	addr     string
	reactors int
	mode     reactor.Mode
	pool     uint64
	block    uint32
	lends    bool
	parts    int
	null     bool
	bytes    uint64
	noListen bool
	log      io.Writer
	target   target.Options
}

func newWorld(t testing.TB, c worldConfig) *world {
	t.Helper()
	if c.reactors == 0 {
		c.reactors = 1
	}
	if c.pool == 0 {
		c.pool = 16 << 20
	}
	if c.block == 0 {
		c.block = 512
	}
	if c.bytes == 0 {
		c.bytes = 8 << 20
	}
	if c.addr == "" {
		c.addr = "127.0.0.1"
	}
	level := slog.LevelError
	if os.Getenv("ROCET_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	if c.log == nil {
		c.log = os.Stderr
	}
	log := slog.New(slog.NewTextHandler(c.log, &slog.HandlerOptions{Level: level}))
	w := &world{t: t, provider: c.provider}
	var err error
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w.pool, err = memory.New(memory.Config{Size: c.pool, HugePages: memory.HugeNever, Reserve: 1 << 20, Log: log})
	check(err)
	w.group, err = reactor.NewGroup(reactor.Config{Count: c.reactors, Mode: c.mode, Log: log})
	check(err)
	check(w.group.Start())
	o := c.target
	o.Reactors, o.Pool, o.Log = w.group.Reactors(), w.pool, log
	w.target, err = target.New(o)
	check(err)
	w.tr, err = New(Options{Target: w.target, Pool: w.pool, Provider: c.provider, Config: c.rdma, Log: log})
	check(err)
	sub, err := w.target.AddSubsystem(target.SubsystemConfig{NQN: testNQN, AllowAnyHost: true})
	check(err)
	w.backend = &testBackend{null: c.null, parts: c.parts}
	w.backend.info = target.Info{
		Geometry: target.Geometry{BlockSize: c.block, Blocks: c.bytes / uint64(c.block)}, LendsReads: c.lends,
	}
	w.backend.slab, err = w.pool.NewSlab(c.bytes)
	check(err)
	_, err = sub.AddNamespace(target.NamespaceConfig{NSID: 1, Backend: w.backend})
	check(err)
	w.addr = netip.AddrPortFrom(netip.MustParseAddr(c.addr), 4420)
	if !c.noListen {
		w.listener, err = w.tr.Listen(c.addr, 4420)
		check(err)
	}
	w.free = w.inUse()
	t.Cleanup(w.close)
	return w
}

// host makes a host that is closed with the world.
func (w *world) host(name string) *host {
	w.t.Helper()
	h := newHost(w.t, w.provider, name)
	w.hosts = append(w.hosts, h)
	return h
}

// inUse is the pool memory that is handed out, in all caches.
func (w *world) inUse() (n uint64) {
	for _, g := range w.target.Groups() {
		g.Reactor.Call(func() { n += g.Mem.Usage().UsedBytes })
	}
	return n
}

// close ends everything and looks for what is left over.
func (w *world) close() {
	if w.down {
		return
	}
	w.down = true
	for _, h := range w.hosts {
		h.close()
	}
	w.backend.release()
	w.settled()
	if err := w.tr.Close(); err != nil {
		w.t.Errorf("close the transport: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), hostPatience)
	defer cancel()
	if err := w.target.Close(ctx); err != nil {
		w.t.Errorf("close the target: %v", err)
	}
	w.pool.FreeSlab(w.backend.slab)
	for _, g := range w.target.Groups() {
		g.Reactor.Call(g.Mem.Close)
	}
	w.group.Stop()
	w.pool.Close()
}

// settled waits until no connection is left, and then nothing that belonged to one.
func (w *world) settled() {
	w.t.Helper()
	w.eventually("connections end", func() error {
		w.tr.mu.Lock()
		defer w.tr.mu.Unlock()
		if n := len(w.tr.conns); n != 0 || w.tr.halfOpen != 0 || len(w.tr.hosts) != 0 {
			return fmt.Errorf("%d connections, %d half-open, hosts %v", n, w.tr.halfOpen, w.tr.hosts)
		}
		for i, s := range w.tr.shards {
			if s.load != 0 {
				return fmt.Errorf("reactor %d still carries weight %d", i, s.load)
			}
		}
		return nil
	})
	if n := w.inUse(); n != w.free {
		w.t.Errorf("%d bytes of pool memory are in use, %d were at the start", n, w.free)
	}
	for _, l := range w.tr.Stats().Lanes {
		if l.Queues != 0 || l.InUse != 0 || l.Executing != 0 || l.Waiting != 0 {
			w.t.Errorf("a lane without connections has %+v", l)
		}
	}
}

// eventually waits until ok returns nil.
func (w *world) eventually(what string, ok func() error) {
	w.t.Helper()
	var err error
	for end := time.Now().Add(hostPatience); time.Now().Before(end); time.Sleep(200 * time.Microsecond) {
		if err = ok(); err == nil {
			return
		}
	}
	w.t.Errorf("%s: not within %v: %v", what, hostPatience, err)
}

// lanes sums the counters of all lanes.
func (w *world) lanes() (sum LaneStats) {
	st := w.tr.Stats()
	sum.Add(st.Past)
	for _, l := range st.Lanes {
		sum.Add(l.LaneStats)
	}
	return sum
}

// connected attaches a host and gives it an I/O queue.
func (w *world) connected(name string, ask queueAsk) (*controller, *hostQueue) {
	w.t.Helper()
	c, err := w.host(name).attach(w.addr, testNQN)
	if err != nil {
		w.t.Fatal(err)
	}
	if ask.qid == 0 {
		ask.qid = 1
	}
	q, err := c.ioQueue(ask)
	if err != nil {
		w.t.Fatal(err)
	}
	return c, q
}

// slots counts the slots in a state, and what is parked.
func (w *world) slots(st slotState) (n, parked int) {
	w.tr.mu.Lock()
	var ds []*device
	for _, d := range w.tr.devices {
		ds = append(ds, d)
	}
	w.tr.mu.Unlock()
	for _, d := range ds {
		d.mu.Lock()
		for s, lanes := range d.lanes {
			s.r.Call(func() {
				for _, l := range lanes {
					for _, q := range l.queues {
						if q == nil {
							continue
						}
						parked += q.parkedN
						for i := range q.slots {
							if q.slots[i].state == st {
								n++
							}
						}
					}
				}
			})
		}
		d.mu.Unlock()
	}
	return n, parked
}

func (w *world) reaches(st slotState, want int) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%d slots are %v", want, st), func() error {
		if n, _ := w.slots(st); n < want {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
}

// device is the world's only device.
func (w *world) device() *device {
	w.tr.mu.Lock()
	defer w.tr.mu.Unlock()
	for _, d := range w.tr.devices {
		return d
	}
	return nil
}
