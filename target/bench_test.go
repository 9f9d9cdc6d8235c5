package target

import (
	"io"
	"log/slog"
	"testing"

	"rocet/internal/invariants"
	"rocet/memory"
	"rocet/nvme"
	"rocet/reactor"
)

// instant is a backend that does nothing, at once.
type instant struct{ lends bool }

func (b instant) Info() Info {
	return Info{
		Geometry: Geometry{BlockSize: 4096, Blocks: 1 << 20}, LendsReads: b.lends, VolatileWriteCache: true,
		Ops: Ops(OpWriteZeroes, OpDeallocate, OpCompare, OpVerify),
	}
}
func (b instant) OpenQueue(*PollGroup) (BackendQueue, error) { return instantQueue(b), nil }
func (b instant) Watch(func(Event))                          {}
func (b instant) SMART() (nvme.SMARTLog, bool)               { return nvme.SMARTLog{}, false }
func (b instant) Close() error                               { return nil }

type instantQueue instant

func (q instantQueue) Close(done func()) { done() }
func (q instantQueue) Submit(io *IO) {
	if q.lends && io.Op == OpRead {
		io.Data = append(io.Data, memory.Segment{Addr: 4096, Len: io.Blocks * 4096})
	}
	io.Complete(nvme.StatusSuccess)
}

// benchConn is a transport with one slot and no wire.
type benchConn struct {
	g         *PollGroup
	q         *Queue
	r         Request
	cmd       nvme.Command
	now       int64
	responses int
	last      nvme.Status
}

func (c *benchConn) Respond(r *Request) {
	c.responses++
	c.last = r.Cqe.Status()
	c.g.Account(r, c.now+1000)
	r.End()
}

func (c *benchConn) Close(error) {
	c.q.Close()
	c.q.Release()
}

// run is one command's way through the target.
func (c *benchConn) run() {
	r := &c.r
	c.now += 2000
	r.Begin(c.now)
	r.Cmd = &c.cmd
	if st := c.q.Prepare(r); st != nvme.StatusSuccess {
		c.q.Fail(r, st)
		return
	}
	if r.Length != 0 && !r.Lent {
		r.SetData(1)
	}
	c.q.Execute(r)
}

// hotPath makes a live I/O queue as Connect would, and a command for it.
func hotPath(tb testing.TB, lends bool, cmd nvme.Command) *benchConn {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	pool, err := memory.New(memory.Config{Size: 8 << 20, HugePages: memory.HugeNever, Log: log})
	if err != nil {
		tb.Fatal(err)
	}
	rg, err := reactor.NewGroup(reactor.Config{Count: 1, Mode: reactor.Interrupt, Log: log})
	if err != nil {
		tb.Fatal(err)
	}
	if err := rg.Start(); err != nil {
		tb.Fatal(err)
	}
	t, err := New(Options{Reactors: rg.Reactors(), Pool: pool, Log: log})
	if err != nil {
		tb.Fatal(err)
	}
	s, err := t.AddSubsystem(SubsystemConfig{NQN: "nqn.2026-01.io.rocet:bench", AllowAnyHost: true})
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := s.AddNamespace(NamespaceConfig{NSID: 1, Backend: instant{lends}}); err != nil {
		tb.Fatal(err)
	}
	l, err := t.AddListener(ListenerInfo{TrType: nvme.TransportLoop, TrAddr: "192.0.2.1", TrSvcID: "1"})
	if err != nil {
		tb.Fatal(err)
	}
	c := &benchConn{g: t.Groups()[0], cmd: cmd}
	c.cmd.SetPSDT(nvme.PSDTSGL)
	c.r.Segs[0] = memory.Segment{Addr: 4096, Len: 4096}
	if c.q, err = t.NewQueue(QueueOptions{Group: c.g, Conn: c, Listener: l, QID: QIDUnknown}); err != nil {
		tb.Fatal(err)
	}
	x := &control{q: c.q, cmd: connectCommand()}
	ctrl := &Controller{target: t, sub: s, id: 1, listener: l, admin: c.q}
	c.g.call(func() { c.q.state = queueConnecting })
	t.mu.Lock()
	ctrl.reset()
	x.connected(ctrl)
	t.mu.Unlock()
	c.g.call(func() {
		if c.q.state != queueLive {
			tb.Errorf("the queue is in state %d", c.q.state)
		}
	})
	tb.Cleanup(func() {
		c.g.call(func() { c.q.end(ErrTargetClosed) })
		rg.Stop()
		pool.Close()
	})
	return c
}

func connectCommand() (c nvme.Command) {
	c.SetOpcode(nvme.OpFabrics)
	c.SetFCType(nvme.FabricsConnect)
	c.SetQID(1)
	c.SetSQSIZE(127)
	return c
}

func ioCommand(op nvme.Opcode, blocks uint32) (c nvme.Command) {
	c.SetOpcode(op)
	c.SetNSID(1)
	c.SetSLBA(77)
	c.SetNLB(blocks)
	return c
}

var hotCases = []struct {
	name  string
	lends bool
	cmd   nvme.Command
}{
	{"read", false, ioCommand(nvme.OpRead, 1)},
	{"read-lent", true, ioCommand(nvme.OpRead, 1)},
	{"write", false, ioCommand(nvme.OpWrite, 1)},
	{"flush", false, ioCommand(nvme.OpFlush, 1)},
	{"write-zeroes", false, ioCommand(nvme.OpWriteZeroes, 8)},
	{"too-long", false, ioCommand(nvme.OpRead, 65536)},
}

// The way of an I/O command allocates nothing, not even when it fails.
func TestHotPathAllocatesNothing(t *testing.T) {
	for _, test := range hotCases {
		t.Run(test.name, func(t *testing.T) {
			c := hotPath(t, test.lends, test.cmd)
			c.g.call(func() {
				if n := testing.AllocsPerRun(1000, c.run); n != 0 && !invariants.Enabled {
					t.Errorf("%v allocations per command", n)
				}
			})
			if c.responses != 1001 {
				t.Errorf("%d responses to 1001 commands", c.responses)
			}
			if c.last.IsOK() == (test.name == "too-long") {
				t.Errorf("status %v", c.last)
			}
			c.g.call(func() {
				if c.q.nbusy != 0 || c.q.busy != nil {
					t.Errorf("%d commands are under way", c.q.nbusy)
				}
				if n := c.q.space.find(1).inflight; n != 0 {
					t.Errorf("%d commands are in flight", n)
				}
			})
		})
	}
}

// BenchmarkHotPath is what the target itself costs per I/O: Prepare, Execute, the
// backend's completion, Respond, Account, End.
func BenchmarkHotPath(b *testing.B) {
	for _, test := range hotCases {
		b.Run(test.name, func(b *testing.B) {
			c := hotPath(b, test.lends, test.cmd)
			b.ReportAllocs()
			c.g.call(func() {
				for b.Loop() {
					c.run()
				}
			})
		})
	}
}
