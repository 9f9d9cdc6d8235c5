package target_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"rocet/memory"
	"rocet/nvme"
	"rocet/reactor"
	"rocet/target"
	tt "rocet/target/targettest"
)

// Fact 33: a resize reaches every controller; shrinking must be forced.
func TestFact33Resize(t *testing.T) {
	h, s, b := start(t, tt.Options{Reactors: 2})
	a, c := h.Connect(subNQN, tt.Host("one")), h.Connect(subNQN, tt.Host("two"))
	for _, x := range []*tt.Association{a, c} {
		configureAER(t, x, allNotices)
	}
	io := a.IOOn(1, 1)
	pa, pc := aer(a), aer(c)
	want(t, "read past the end", io.Do(tt.Read(1, 300, 1), nil), nvme.StatusLBAOutOfRange, true)
	if err := s.ResizeNamespace(1, 512, false); err != nil {
		t.Fatal(err)
	}
	ok(t, "read of what is new", io.Do(tt.Read(1, 511, 1), nil))
	for _, p := range []*tt.Pending{pa, pc} {
		if e := event(t, p); e != nvme.AsyncNamespaceChanged {
			t.Errorf("event %#x", e)
		}
	}
	if id := idNS(t, a, 1); id.NSZE != 512 {
		t.Errorf("NSZE %d", id.NSZE)
	}
	if err := s.ResizeNamespace(1, 100, false); err == nil {
		t.Error("shrunk without force")
	}
	ok(t, "read", io.Do(tt.Read(1, 511, 1), nil))
	b.OnResize = func() {
		want(t, "read past the new end before the backend begins", io.Do(tt.Read(1, 100, 1), nil), nvme.StatusLBAOutOfRange, true)
	}
	if err := s.ResizeNamespace(1, 100, true); err != nil {
		t.Error(err)
	}
	b.OnResize = nil
	want(t, "read past the new end", io.Do(tt.Read(1, 100, 1), nil), nvme.StatusLBAOutOfRange, true)
	if err := s.ResizeNamespace(1, 0, true); err == nil {
		t.Error("shrunk to nothing")
	}
	if err := s.ResizeNamespace(2, 10, true); err == nil {
		t.Error("a namespace that isn't there was resized")
	}
	// A device that grows by itself.
	if err := b.Resize(400); err != nil {
		t.Fatal(err)
	}
	h.Eventually("the new size shows", func() bool { return s.Namespace(1).Info().Blocks == 400 })
	ok(t, "read", io.Do(tt.Read(1, 399, 1), nil))
	// A geometry that can't be taken over leaves the namespace as it is.
	b.Change(func(i *target.Info) { i.BlockSize = 512 })
	b.Emit(target.EventResized)
	b.Change(func(i *target.Info) { i.BlockSize = 4096; i.ReadOnly = true })
	b.Emit(target.EventResized)
	h.Eventually("read-only shows", func() bool { return s.Namespace(1).Info().ReadOnly })
	want(t, "write", io.Do(tt.Write(1, 0, 1), make([]byte, 4096)), nvme.StatusNamespaceWriteProtected, true)
}

// A write that was prepared before a shrink does not reach the backend after it.
func TestShrinkBetweenPrepareAndExecute(t *testing.T) {
	h, s, b := start(t, tt.Options{})
	io := h.Connect(subNQN, tt.Host("one")).IO(1)
	p := io.Hold(tt.Write(1, 200, 1), make([]byte, 4096))
	gone := io.Hold(tt.Write(1, 0, 1), make([]byte, 4096))
	if err := s.ResizeNamespace(1, 100, true); err != nil {
		t.Fatal(err)
	}
	b.Record()
	want(t, "the write", p.Continue().Wait(), nvme.StatusLBAOutOfRange, true)
	if err := s.RemoveNamespace(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	want(t, "a write to a namespace that went meanwhile", gone.Continue().Wait(), nvme.StatusInvalidNamespace, true)
	if seen := b.Record(); len(seen) != 0 {
		t.Errorf("the backend saw %+v", seen)
	}
}

// A removal waits for what is in flight, on every reactor.
func TestRemoveNamespaceDrains(t *testing.T) {
	h, s, b := start(t, tt.Options{Reactors: 2})
	a := h.Connect(subNQN, tt.Host("one"))
	configureAER(t, a, allNotices)
	p := aer(a)
	io0, io1 := a.IOOn(1, 0), a.IOOn(2, 1)
	b.Hold(true)
	w0 := io0.Send(tt.Write(1, 0, 1), pattern(4096))
	w1 := io1.Send(tt.Write(1, 1, 1), pattern(4096))
	h.Settle()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := s.RemoveNamespace(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("removal with writes in flight: %v", err)
	}
	if e := event(t, p); e != nvme.AsyncNamespaceChanged {
		t.Errorf("event %#x", e)
	}
	want(t, "read meanwhile", io0.Do(tt.Read(1, 0, 1), nil), nvme.StatusInvalidNamespace, true)
	if b.OpenQueues() != 2 {
		t.Errorf("%d queues are open", b.OpenQueues())
	}
	// The NSID is free at once.
	nb := tt.NewRAM(512, 8)
	h.Namespace(s, 1, nb)
	ok(t, "read of the new one", io1.Do(tt.Read(1, 0, 8), nil))
	b.Hold(false)
	ok(t, "write", w0.Wait())
	ok(t, "write", w1.Wait())
	h.Eventually("the backend's queues are closed", func() bool { return b.OpenQueues() == 0 })
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := s.RemoveNamespace(context.Background(), 1); err != nil {
		t.Error(err)
	}
	if err := nb.Close(); err != nil {
		t.Error(err)
	}
	if err := s.RemoveNamespace(context.Background(), 1); err == nil {
		t.Error("removed twice")
	}
}

func TestAddNamespaceErrors(t *testing.T) {
	h, s, _ := start(t, tt.Options{Reactors: 2})
	bad := func(name string, c target.NamespaceConfig) {
		t.Helper()
		if _, err := s.AddNamespace(c); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	info := func(f func(*target.Info)) target.Backend { return tt.NewRAM(512, 8).Change(f) }
	bad("no backend", target.NamespaceConfig{NSID: 5})
	bad("NSID too large", target.NamespaceConfig{NSID: target.MaxNamespaces + 1, Backend: tt.NewRAM(512, 8)})
	bad("NSID twice", target.NamespaceConfig{NSID: 1, Backend: tt.NewRAM(512, 8)})
	bad("ANA group", target.NamespaceConfig{ANAGroup: 33, Backend: tt.NewRAM(512, 8)})
	bad("block size 0", target.NamespaceConfig{Backend: info(func(i *target.Info) { i.BlockSize = 0 })})
	bad("block size 256", target.NamespaceConfig{Backend: info(func(i *target.Info) { i.BlockSize = 256 })})
	bad("block size 520", target.NamespaceConfig{Backend: info(func(i *target.Info) { i.BlockSize = 520 })})
	bad("blocks above MDTS", target.NamespaceConfig{Backend: info(func(i *target.Info) { i.BlockSize = 2 << 20 })})
	bad("no blocks", target.NamespaceConfig{Backend: info(func(i *target.Info) { i.Blocks = 0 })})
	bad("too many blocks", target.NamespaceConfig{Backend: info(func(i *target.Info) { i.Blocks = 1 << 62 })})
	bad("small transfers", target.NamespaceConfig{Backend: info(func(i *target.Info) { i.MaxTransfer = 65536 })})
	// A queue that doesn't open on the second reactor closes the first.
	b := tt.NewRAM(512, 8)
	b.RefuseQueues(1, errors.New("no more queues"))
	bad("queue", target.NamespaceConfig{NSID: 2, Backend: b})
	if b.OpenQueues() != 0 || s.Namespace(2) != nil {
		t.Errorf("%d queues are left", b.OpenQueues())
	}
	if len(s.Namespaces()) != 1 {
		t.Errorf("%d namespaces", len(s.Namespaces()))
	}
	if h.Target.Subsystem("nqn.2026-01.io.rocet:none") != nil || len(h.Target.Subsystems()) != 1 {
		t.Error("subsystems")
	}
}

// Hosts are let in and shut out while they are connected.
func TestHosts(t *testing.T) {
	h, s, _ := start(t, tt.Options{})
	one, two := tt.Host("one"), tt.Host("two")
	a, b := h.Connect(subNQN, one), h.Connect(subNQN, two)
	ioa := a.IO(1)
	if err := s.AllowHost(two.NQN); err != nil {
		t.Fatal(err)
	}
	s.SetAllowAnyHost(false)
	if err := a.Admin.WaitClosed(); !errors.Is(err, target.ErrHostNotAllowed) {
		t.Errorf("closed because %v", err)
	}
	if err := ioa.WaitClosed(); !errors.Is(err, target.ErrHostNotAllowed) {
		t.Errorf("I/O queue closed because %v", err)
	}
	ok(t, "Identify of the allowed host", b.Admin.Do(tt.Identify(nvme.CNSController, 0), nil))
	if log := discover(t, h, one, tt.DialOptions{}); len(log.Entries) != 1 {
		t.Errorf("the other host discovers %v", entries(log))
	}
	if log := discover(t, h, two, tt.DialOptions{}); len(log.Entries) != 2 {
		t.Errorf("the allowed host discovers %v", entries(log))
	}
	if err := s.AllowHost(one.NQN); err != nil {
		t.Fatal(err)
	}
	h.Connect(subNQN, one)
	if hosts, any := s.Hosts(); any || !slices.Equal(hosts, []string{one.NQN, two.NQN}) {
		t.Errorf("hosts %v, %v", hosts, any)
	}
	s.DisallowHost(two.NQN)
	if err := b.Admin.WaitClosed(); !errors.Is(err, target.ErrHostNotAllowed) {
		t.Errorf("closed because %v", err)
	}
	if n := s.Disconnect(one.NQN); n != 1 {
		t.Errorf("%d associations ended", n)
	}
	h.Eventually("all are freed", func() bool {
		for _, c := range h.Target.Controllers() {
			if !c.Discovery {
				return false
			}
		}
		return true
	})
	if err := s.AllowHost(""); err == nil {
		t.Error("an empty host NQN was taken")
	}
}

// Fact 35: a listener that is removed is a path that is lost.
func TestFact35ListenerRemoved(t *testing.T) {
	h, s, _ := start(t, tt.Options{})
	l2 := h.AddListener("192.0.2.2", "4420", 0)
	if _, err := h.Target.AddListener(l2.Info()); err == nil {
		t.Error("an address was taken twice")
	}
	d := h.ConnectWith(nvme.DiscoveryNQN, tt.Host("two"), 60000, tt.DialOptions{})
	ok(t, "AEC", d.Admin.Do(tt.SetFeature(nvme.FeatureAsyncEventConfig, nvme.OAESDiscoveryChange), nil))
	p := aer(d)
	a := h.ConnectWith(subNQN, tt.Host("one"), 0, tt.DialOptions{Listener: l2})
	b := h.Connect(subNQN, tt.Host("two"))
	fresh := h.Dial(tt.DialOptions{Listener: l2})
	h.Target.RemoveListener(l2)
	for _, c := range []*tt.Conn{a.Admin, fresh} {
		if err := c.WaitClosed(); !errors.Is(err, target.ErrListenerRemoved) {
			t.Errorf("closed because %v", err)
		}
	}
	if e := event(t, p); e != nvme.AsyncDiscoveryChange {
		t.Errorf("event %#x", e)
	}
	ok(t, "the other path", b.Admin.Do(tt.Identify(nvme.CNSController, 0), nil))
	if _, err := h.TryDial(tt.DialOptions{Listener: l2}); !errors.Is(err, target.ErrListenerRemoved) {
		t.Errorf("a new connection at the removed listener: %v", err)
	}
	if len(h.Target.Listeners()) != 1 {
		t.Error("the listener is still listed")
	}
	h.Target.RemoveListener(l2)
	if l3 := h.AddListener("192.0.2.3", "4420", 0); l3.PortID() != 2 {
		t.Errorf("port id %d, 2 is free", l3.PortID())
	}
	s.SetListeners(l2) // the restriction to a listener that isn't there: nobody reaches it
	if err := b.Admin.WaitClosed(); !errors.Is(err, target.ErrListenerRemoved) {
		t.Errorf("closed because %v", err)
	}
}

func TestRemoveSubsystem(t *testing.T) {
	h, s, b := start(t, tt.Options{})
	a := h.Connect(subNQN, tt.Host("one"))
	io := a.IO(1)
	b.Hold(true)
	w := io.Send(tt.Write(1, 0, 1), pattern(4096))
	h.Settle()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := h.Target.RemoveSubsystem(ctx, subNQN); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("removal with a write in flight: %v", err)
	}
	if err := io.WaitClosed(); !errors.Is(err, target.ErrSubsystemRemoved) {
		t.Errorf("closed because %v", err)
	}
	r := h.Dial(tt.DialOptions{}).Do(tt.Connect(0, 31, 0), tt.ConnectData(subNQN, tt.Host("one"), nvme.CNTLIDDynamic))
	want(t, "Connect", r, nvme.StatusConnectInvalidParameters, true)
	if _, err := s.AddNamespace(target.NamespaceConfig{Backend: tt.NewRAM(512, 8)}); !errors.Is(err, target.ErrSubsystemRemoved) {
		t.Errorf("AddNamespace: %v", err)
	}
	b.Hold(false)
	w.Wait()
	h.Eventually("the controller is freed", func() bool { return len(h.Target.Controllers()) == 0 })
	if err := s.RemoveNamespace(context.Background(), 1); err != nil {
		t.Error(err)
	}
	h.Subsystem(subNQN)
}

func TestDeviceGoneAndBack(t *testing.T) {
	h, s, b := start(t, tt.Options{})
	a := h.Connect(subNQN, tt.Host("one"))
	configureAER(t, a, allNotices)
	p := aer(a)
	independent := func() (i nvme.IndependentNamespace) {
		if err := i.UnmarshalBinary(a.Admin.Do(tt.Identify(nvme.CNSIndependentNamespace, 1), nil).Data); err != nil {
			t.Fatal(err)
		}
		return i
	}
	if i := independent(); i.NSTAT&nvme.NSTATReady == 0 || i.NMIC != nvme.NMICShared || i.ANAGRPID != 1 {
		t.Errorf("%+v", i)
	}
	b.Emit(target.EventGone)
	if e := event(t, p); e != nvme.AsyncNamespaceChanged {
		t.Errorf("event %#x", e)
	}
	if s.Namespace(1).Ready() || independent().NSTAT != 0 {
		t.Error("the namespace is ready")
	}
	b.Emit(target.EventBack)
	h.Eventually("the namespace is ready", func() bool { return independent().NSTAT != 0 })
}

func TestTargetClose(t *testing.T) {
	h, _, b := start(t, tt.Options{})
	a := h.Connect(subNQN, tt.Host("one"))
	fresh := h.Dial(tt.DialOptions{})
	if err := h.Target.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*tt.Conn{a.Admin, fresh} {
		if err := c.WaitClosed(); !errors.Is(err, target.ErrTargetClosed) {
			t.Errorf("closed because %v", err)
		}
	}
	if b.OpenQueues() != 0 {
		t.Errorf("%d backend queues are open", b.OpenQueues())
	}
	if _, err := h.TryDial(tt.DialOptions{}); !errors.Is(err, target.ErrTargetClosed) {
		t.Errorf("a new connection: %v", err)
	}
	if _, err := h.Target.AddSubsystem(target.SubsystemConfig{NQN: "nqn.2026-01.io.rocet:late"}); !errors.Is(err, target.ErrTargetClosed) {
		t.Errorf("a new subsystem: %v", err)
	}
}

func TestOptions(t *testing.T) {
	pool, err := memory.New(memory.Config{Size: 4 << 20, HugePages: memory.HugeNever})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	g, err := reactor.NewGroup(reactor.Config{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]target.Options{
		"no reactors":   {Pool: pool},
		"no pool":       {Reactors: g.Reactors()},
		"MDTS 5000":     {Reactors: g.Reactors(), Pool: pool, MDTS: 5000},
		"MDTS 2 KiB":    {Reactors: g.Reactors(), Pool: pool, MDTS: 2048},
		"MDTS 32 MiB":   {Reactors: g.Reactors(), Pool: pool, MDTS: 32 << 20},
		"shallow queue": {Reactors: g.Reactors(), Pool: pool, MaxQueueDepth: 16},
	} {
		if _, err := target.New(o); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// What changes while a Connect is on its way back to its reactor is not undone by it.
func TestChangeDuringConnect(t *testing.T) {
	h, s, b := start(t, tt.Options{Reactors: 2})
	a := h.Connect(subNQN, tt.Host("one"))
	c := h.Dial(tt.DialOptions{Group: 1})
	p := c.Send(tt.Connect(1, 31, 0), tt.ConnectData(subNQN, a.Host, a.CNTLID))
	block := make(chan struct{})
	h.Target.Groups()[1].Reactor.Post(func() { <-block })
	h.Eventually("the queue has joined its controller", func() bool { return h.Target.Controllers()[0].IOQueues == 1 })
	if err := s.SetANAState(nil, 1, nvme.ANAInaccessible); err != nil {
		t.Fatal(err)
	}
	ok(t, "WCE = 0", a.Admin.Do(tt.SetFeature(nvme.FeatureVolatileWriteCache, 0), nil))
	close(block)
	ok(t, "Connect", p.Wait())
	want(t, "read", c.Do(tt.Read(1, 0, 1), nil), nvme.StatusANAInaccessible, false)
	if err := s.SetANAState(nil, 1, nvme.ANAOptimized); err != nil {
		t.Fatal(err)
	}
	h.Settle()
	b.Record()
	ok(t, "write", c.Do(tt.Write(1, 0, 1), make([]byte, 4096)))
	if seen := b.Record(); seen[0].Flags != target.FUA {
		t.Errorf("the backend saw %+v", seen)
	}
}

// A host that gives up while its Connect waits for the old queue of its QID does
// not have to wait for the end of that.
func TestDropDuringDuplicateWait(t *testing.T) {
	h, _, _ := start(t, tt.Options{Target: target.Options{DuplicateQID: time.Hour}})
	a := h.Connect(subNQN, tt.Host("one"))
	a.IO(1)
	c := h.Dial(tt.DialOptions{})
	p := c.Send(tt.Connect(1, 31, 0), tt.ConnectData(subNQN, a.Host, a.CNTLID))
	time.Sleep(10 * time.Millisecond)
	c.Drop()
	want(t, "Connect", p.Wait(), nvme.StatusAbortedSQDeletion, false)
	c.WaitReleased()
	// So does one whose controller goes.
	c = h.Dial(tt.DialOptions{})
	p = c.Send(tt.Connect(1, 31, 0), tt.ConnectData(subNQN, a.Host, a.CNTLID))
	time.Sleep(10 * time.Millisecond)
	a.Admin.Drop()
	want(t, "Connect", p.Wait(), nvme.StatusConnectInvalidParameters, true)
}

// The log has one line for each event of a connection, and none for an I/O.
func TestLogLines(t *testing.T) {
	h, _, b := start(t, tt.Options{})
	lines := func() int { return strings.Count(h.Log.String(), "\n") }
	n := lines()
	step := func(what string, want int) {
		t.Helper()
		h.Eventually(what, func() bool { return lines() >= n+want })
		time.Sleep(5 * time.Millisecond)
		if got := lines() - n; got != want {
			t.Errorf("%s: %d lines, want %d:\n%s", what, got, want, h.Log)
		}
		n = lines()
	}
	a := h.Connect(subNQN, tt.Host("one"))
	step("connected, enabled", 2)
	io := a.IO(1)
	step("queue connected", 1)
	b.Fail(nvme.StatusWriteFault)
	for range 50 {
		io.Do(tt.Write(1, 0, 1), make([]byte, 4096))
		io.Do(tt.Read(9, 0, 1), nil)
		a.Admin.Do(tt.Identify(0x99, 0), nil)
	}
	step("150 errors", 0)
	io.Drop()
	step("queue closed", 1)
	c := h.Dial(tt.DialOptions{})
	for range 100 {
		c.Do(tt.Connect(0, 0, 0), tt.ConnectData(subNQN, tt.Host("one"), 0xffff))
	}
	step("a hundred refused Connects", 7)
	c.Drop()
	step("connection closed", 1)
	a.Admin.Drop()
	step("association ends and is freed", 2)
}
