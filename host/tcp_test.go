package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"rocet/nvme"
)

// mover moves random extents through a queue, deep, and holds what it reads against a copy of the namespace.
type mover struct {
	q     *Queue
	mem   *Memory
	rng   *rand.Rand
	block int
	max   int    // bytes of a command
	from  uint64 // the mover's own blocks
	model []byte
}

func newMover(t testing.TB, c *Controller, q *Queue, block, max int, from uint64, size int) *mover {
	t.Helper()
	m, err := c.NewMemory(q.Depth() * max)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = q.Close()
		if err := m.Free(); err != nil {
			t.Error(err)
		}
	})
	return &mover{q: q, mem: m, rng: rand.New(rand.NewPCG(1, from)), block: block, max: max, from: from, model: make([]byte, size)}
}

// run does n commands. Those under way at the same time touch different blocks.
func (m *mover) run(n int) error {
	type job struct {
		io   IO
		busy bool
	}
	depth := m.q.Depth()
	jobs := make([]job, depth)
	part := len(m.model) / depth / m.block * m.block // each job has its own part
	if part < m.block {
		return fmt.Errorf("%d bytes are too few for %d commands", len(m.model), depth)
	}
	done := make([]*IO, 7)
	out, started := 0, 0
	at := func(io *IO) []byte {
		return m.model[int(io.Cmd.SLBA()-m.from)*m.block:][:io.Len]
	}
	for started < n || out > 0 {
		for i := range jobs {
			j := &jobs[i]
			if j.busy || started == n {
				continue
			}
			most := min(m.max, part) / m.block
			blocks := 1 + m.rng.IntN(most)
			if m.rng.IntN(3) == 0 {
				blocks = most
			}
			lba := i*part/m.block + m.rng.IntN(part/m.block-blocks+1)
			op := nvme.OpRead
			if m.rng.IntN(2) == 0 {
				op = nvme.OpWrite
			}
			j.io.SetRW(op, 1, m.from+uint64(lba), uint32(blocks))
			j.io.SetData(m.mem, uint32(i*m.max), uint32(blocks*m.block))
			j.io.Tag = uint64(i)
			b := j.io.data()
			if op == nvme.OpWrite {
				for k := 0; k < len(b); k += 8 {
					b[k] = byte(m.rng.Uint32())
				}
				copy(at(&j.io), b)
			} else {
				clear(b)
			}
			if err := m.q.Submit(&j.io); err != nil {
				return err
			}
			j.busy = true
			out++
			started++
		}
		if err := m.q.Flush(); err != nil {
			return err
		}
		k, err := m.q.Poll(done)
		if err != nil {
			return err
		}
		if k == 0 {
			if err := m.q.Wait(time.Second); err != nil {
				return err
			}
		}
		for _, io := range done[:k] {
			jobs[io.Tag].busy = false
			out--
			if !io.Status.IsOK() {
				return fmt.Errorf("%s of %d bytes: %v", io.Cmd.Opcode().Name(false), io.Len, io.Status)
			}
			if io.Cmd.Opcode() == nvme.OpRead && !bytes.Equal(io.data(), at(io)) {
				return fmt.Errorf("a read of %d blocks at %d brought other data than was written", io.Len/uint32(m.block), io.Cmd.SLBA())
			}
		}
	}
	return nil
}

func TestTCPConversation(t *testing.T) {
	for _, test := range []struct {
		name string
		peer func(*peer)
		host func(*Options)
	}{
		{"plain", nil, nil},
		{"digests", nil, func(o *Options) { o.HeaderDigest, o.DataDigest = true, true }},
		{"header digest", func(p *peer) { p.success = true }, func(o *Options) { o.HeaderDigest = true }},
		{"data digest", func(p *peer) { p.success, p.chunk = true, 4096 }, func(o *Options) { o.DataDigest = true }},
		{"SUCCESS", func(p *peer) { p.success = true }, nil},
		{"chunks", func(p *peer) { p.chunk, p.r2t = 1536, 2048 }, nil},
		{"several R2Ts", func(p *peer) { p.r2t = 1024 }, func(o *Options) { o.MaxR2T = 3 }},
		{"small H2CData", func(p *peer) { p.maxData = 4096 }, func(o *Options) { o.DataDigest = true }},
		{"no capsules", nil, func(o *Options) { o.NoInCapsule = true }},
		{"target takes no capsules", func(p *peer) { p.capsule = 0 }, nil},
		{"alignment", func(p *peer) { p.cpda, p.r2t = 31, 8192 }, func(o *Options) { o.DataAlign, o.HeaderDigest, o.DataDigest = 31, true, true }},
		{"a byte at a time", func(p *peer) { p.slow, p.success = true, true }, func(o *Options) { o.HeaderDigest = true }},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPeer(t, 6<<20)
			if test.peer != nil {
				test.peer(p)
			}
			o := p.options()
			if test.host != nil {
				test.host(&o)
			}
			c := dialPeer(t, o)
			if c.CNTLID() != 7 || c.Version() != nvme.Version14 || c.MaxTransfer() != 1<<20 || c.MaxDepth() != 127 {
				t.Errorf("controller %d, version %v, transfers of %d, depth %d", c.CNTLID(), c.Version(), c.MaxTransfer(), c.MaxDepth())
			}
			ns, err := c.Namespace(context.Background(), 1)
			if err != nil || ns.Bytes() != 6<<20 || ns.BlockSize != 512 {
				t.Fatalf("namespace %+v, %v", ns, err)
			}
			for i, max := range []int{512, 16 << 10, 256 << 10} {
				q := openQueue(t, c, 8)
				if err := newMover(t, c, q, 512, max, uint64(i)*4096, 2<<20).run(100); err != nil {
					t.Fatalf("up to %d bytes: %v", max, err)
				}
				_ = q.Close()
			}
		})
	}
}

func TestDepthAndQueues(t *testing.T) {
	p := newPeer(t, 1<<20)
	p.granted = 2
	o := p.options()
	o.IOQueues = 5
	c := dialPeer(t, o)
	if c.IOQueues() != 2 {
		t.Errorf("%d I/O queues are granted, want 2", c.IOQueues())
	}
	if _, err := c.NewQueue(context.Background(), 128); err == nil {
		t.Error("a queue is deeper than CAP.MQES allows")
	}
	q := openQueue(t, c, 127)
	openQueue(t, c, 1)
	if _, err := c.NewQueue(context.Background(), 1); err == nil || !strings.Contains(err.Error(), "granted") {
		t.Errorf("a third queue: %v", err)
	}
	_ = q.Close()
	q = openQueue(t, c, 3)
	if q.ID() != 1 {
		t.Errorf("the identifier of a closed queue is not used again: %d", q.ID())
	}
	m, err := c.NewMemory(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	ios := make([]IO, 4)
	for i := range ios {
		ios[i].SetRW(nvme.OpRead, 1, 0, 8)
		ios[i].SetData(m, 0, 4096)
		if err := q.Submit(&ios[i]); (i == 3) != errors.Is(err, ErrFull) {
			t.Errorf("command %d: %v", i, err)
		}
	}
	if q.Outstanding() != 3 {
		t.Errorf("%d are under way", q.Outstanding())
	}
	_ = q.Close()
	done := make([]*IO, 2)
	total := 0
	for {
		n, err := q.Poll(done)
		if err != nil {
			if !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
			break
		}
		for _, io := range done[:n] {
			if io.Status != nvme.StatusHostPath {
				t.Errorf("status %v", io.Status)
			}
		}
		total += n
	}
	if total != 3 || q.Outstanding() != 0 {
		t.Errorf("%d commands came back of 3, %d are under way", total, q.Outstanding())
	}
}

func TestSubmitRefuses(t *testing.T) {
	p := newPeer(t, 1<<20)
	c := dialPeer(t, p.options())
	q := openQueue(t, c, 4)
	m, err := c.NewMemory(8192)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	for _, test := range []struct {
		name string
		io   func(*IO)
	}{
		{"no memory", func(io *IO) { io.Mem = nil }},
		{"past the end", func(io *IO) { io.Off = 4097 }},
		{"wraps", func(io *IO) { io.Off = 1<<32 - 4096 }},
		{"a command without a direction", func(io *IO) { io.Cmd.SetOpcode(nvme.OpWriteZeroes) }},
	} {
		var io IO
		io.SetRW(nvme.OpRead, 1, 0, 8)
		io.SetData(m, 0, 4096)
		test.io(&io)
		if err := q.Submit(&io); err == nil {
			t.Errorf("%s is taken", test.name)
		}
	}
	if q.Outstanding() != 0 {
		t.Errorf("%d commands are under way", q.Outstanding())
	}
	if _, err := c.NewMemory(0); err == nil {
		t.Error("memory of 0 bytes")
	}
}

func TestErrorStatus(t *testing.T) {
	p := newPeer(t, 1<<20)
	c := dialPeer(t, p.options())
	q := openQueue(t, c, 4)
	m, _ := c.NewMemory(4096)
	defer m.Free()
	for _, op := range []nvme.Opcode{nvme.OpRead, nvme.OpWrite} {
		var io IO
		io.SetRW(op, 1, 1<<40, 8)
		io.SetData(m, 0, 4096)
		if err := q.execute(context.Background(), &io); err != nil {
			t.Fatal(err)
		}
		if io.Status != nvme.StatusLBAOutOfRange.WithDNR() {
			t.Errorf("%s past the end: %v", op.Name(false), io.Status)
		}
	}
}

func TestConnectStatuses(t *testing.T) {
	for _, test := range []struct {
		st   nvme.Status
		dw0  uint32
		want string
	}{
		{nvme.StatusConnectInvalidHost, 0, "not allowed"},
		{nvme.StatusConnectControllerBusy, 0, "busy"},
		{nvme.StatusConnectIncompatibleFormat, 0, "record format"},
		{nvme.StatusConnectRestartDiscovery, 0, "discover again"},
		{nvme.StatusAuthRequired, 0, "authentication"},
		{nvme.StatusConnectInvalidParameters, nvme.ConnectInvalidParameter(nvme.ConnectDataOffsetSUBNQN, true), "SUBNQN (there is no such subsystem"},
		{nvme.StatusConnectInvalidParameters, nvme.ConnectInvalidParameter(nvme.ConnectOffsetSQSIZE, false), "lower the queue depth"},
		{nvme.StatusConnectInvalidParameters, nvme.ConnectInvalidParameter(99, false), "byte 99 of the command"},
		{nvme.StatusInternalError, 0, "Internal Error"},
		{nvme.StatusSuccess, nvme.ConnectAuthATR | 1, "authentication"},
	} {
		p := newPeer(t, 1<<20)
		p.connect = func(*nvme.Command) (nvme.Status, uint32) { return test.st, test.dw0 }
		_, err := Dial(context.Background(), p.options())
		var ce *ConnectError
		if !errors.As(err, &ce) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("status %v, dword 0 %#x: %v, want %q in it", test.st, test.dw0, err, test.want)
		}
	}
}

func TestKeepAlive(t *testing.T) {
	p := newPeer(t, 1<<20)
	kato := uint32(0)
	p.connect = func(cmd *nvme.Command) (nvme.Status, uint32) { kato = cmd.KATO(); return 0, 7 }
	o := p.options()
	o.KeepAlive = 150 * time.Millisecond
	c := dialPeer(t, o)
	for end := time.Now().Add(5 * time.Second); p.keepAlives.Load() < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d Keep Alives came", p.keepAlives.Load())
		}
	}
	if kato != 150 {
		t.Errorf("KATO %d", kato)
	}
	if err := c.Err(); err != nil {
		t.Error(err)
	}
	p.drop()
	for end := time.Now().Add(5 * time.Second); c.Err() == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a lost controller is not noticed")
		}
	}
	if _, err := c.Property(context.Background(), nvme.RegVS); err == nil {
		t.Error("an admin command on a lost controller ends well")
	}
}

func TestTargetGoes(t *testing.T) {
	p := newPeer(t, 1<<20)
	p.setHook(func(c *peerConn, cmd *nvme.Command) bool { return c.qid != 0 && cmd.Opcode() == nvme.OpRead })
	c := dialPeer(t, p.options())
	q := openQueue(t, c, 8)
	m, _ := c.NewMemory(8 * 4096)
	defer m.Free()
	ios := make([]IO, 8)
	for i := range ios {
		ios[i].SetRW(nvme.OpRead, 1, 0, 8)
		ios[i].SetData(m, uint32(i*4096), 4096)
		if err := q.Submit(&ios[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Flush(); err != nil {
		t.Fatal(err)
	}
	p.drop()
	done := make([]*IO, 16)
	total := 0
	for {
		n, err := q.Poll(done)
		if err != nil {
			break
		}
		total += n
		_ = q.Wait(10 * time.Millisecond)
	}
	if total != 8 {
		t.Errorf("%d commands came back, want 8", total)
	}
	if err := q.Submit(&ios[0]); err == nil {
		t.Error("a queue without a connection takes commands")
	}
}

func TestTimeoutAborts(t *testing.T) {
	p := newPeer(t, 1<<20)
	p.setHook(func(c *peerConn, cmd *nvme.Command) bool { return c.qid != 0 && cmd.Opcode() == nvme.OpRead })
	o := p.options()
	o.Timeout = 80 * time.Millisecond
	o.KeepAlive = -1
	c := dialPeer(t, o)
	q := openQueue(t, c, 8)
	m, _ := c.NewMemory(4096)
	defer m.Free()
	var io IO
	io.SetRW(nvme.OpRead, 1, 0, 8)
	io.SetData(m, 0, 4096)
	err := q.execute(context.Background(), &io)
	var te *TimeoutError
	if !errors.As(err, &te) || te.QID != 1 {
		t.Errorf("got %v", err)
	}
	if p.aborts.Load() != 1 {
		t.Errorf("%d Aborts were sent", p.aborts.Load())
	}
	if io.Status != nvme.StatusHostPath {
		t.Errorf("status %v", io.Status)
	}
}

func TestDialLimits(t *testing.T) {
	p := newPeer(t, 1<<20)
	p.setHook(func(*peerConn, *nvme.Command) bool { return true })
	o := p.options()
	o.Connect = 50 * time.Millisecond
	if _, err := Dial(context.Background(), o); err == nil || !strings.Contains(err.Error(), "does not answer within 50ms") {
		t.Errorf("a target that says nothing: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	o.Connect = 0
	if _, err := Dial(ctx, o); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a context that ends: %v", err)
	}
	p.close()
	if _, err := Dial(context.Background(), o); err == nil || !strings.Contains(err.Error(), "is the target up") {
		t.Errorf("nobody listens: %v", err)
	}
}

func TestDigestRefused(t *testing.T) {
	p := newPeer(t, 1<<20)
	p.refuse = nvme.TCPDigestData
	o := p.options()
	o.HeaderDigest, o.DataDigest = true, true
	if _, err := Dial(context.Background(), o); err == nil || !strings.Contains(err.Error(), "connect without") {
		t.Errorf("got %v", err)
	}
}

func TestDiscover(t *testing.T) {
	p := newPeer(t, 1<<20)
	long := &nvme.DiscoveryLog{GENCTR: 3, Entries: make([]nvme.DiscoveryEntry, 21)}
	for i := range long.Entries {
		long.Entries[i].PORTID = uint16(i)
		long.Entries[i].SUBNQN = nvme.MakeNQNField(fmt.Sprint("nqn.2026-01.io.rocet:", i))
	}
	short := &nvme.DiscoveryLog{GENCTR: 4, Entries: long.Entries[:2]}
	p.log.Store(long)
	c := dialPeer(t, p.options())
	d, err := c.Discover(context.Background())
	if err != nil || d.GENCTR != 3 || len(d.Entries) != 21 || d.Entries[20].PORTID != 20 {
		t.Fatalf("%+v, %v", d, err)
	}
	// It shrinks while it is read.
	n := 0
	p.setHook(func(_ *peerConn, cmd *nvme.Command) bool {
		if cmd.Opcode() == nvme.AdminGetLogPage {
			if n++; n == 10 {
				p.log.Store(short)
			}
		}
		return false
	})
	if d, err = c.Discover(context.Background()); err != nil || d.GENCTR != 4 || len(d.Entries) != 2 {
		t.Errorf("%+v, %v", d, err)
	}
	// It never rests.
	p.setHook(func(*peerConn, *nvme.Command) bool {
		l := *p.log.Load()
		l.GENCTR++
		p.log.Store(&l)
		return false
	})
	if _, err = c.Discover(context.Background()); err == nil || !strings.Contains(err.Error(), "changed") {
		t.Errorf("got %v", err)
	}
}

func TestManyAdminCommands(t *testing.T) {
	p := newPeer(t, 1<<20)
	c := dialPeer(t, p.options())
	errs := make(chan error)
	for range 50 { // more than the queue holds
		go func() {
			for range 10 {
				if _, err := c.IdentifyNamespace(context.Background(), 1); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range 50 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// An admin command whose caller leaves must not be taken for another one.
func TestDesertedAdminCommand(t *testing.T) {
	p := newPeer(t, 1<<20)
	held := make(chan func(), 1)
	p.setHook(func(c *peerConn, cmd *nvme.Command) bool {
		if cmd.Opcode() != nvme.AdminGetFeatures || c.qid != 0 {
			return false
		}
		cid := cmd.CID()
		held <- func() { _ = c.respond(cid, 0, 42) }
		return true
	})
	c := dialPeer(t, p.options())
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if _, err := c.Feature(ctx, nvme.FeatureArbitration, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	(<-held)()
	for range 40 {
		if _, err := c.IdentifyNamespace(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.admin.free); n != c.opts.AdminDepth {
		t.Errorf("%d slots of %d are free", n, c.opts.AdminDepth)
	}
}
