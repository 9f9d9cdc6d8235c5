package target_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"rocet/nvme"
	"rocet/target"
	tt "rocet/target/targettest"
)

const subNQN = "nqn.2026-01.io.rocet:test"

// start is a target with one subsystem and one namespace of 256 blocks of 4 KiB.
func start(t testing.TB, o tt.Options) (*tt.Harness, *target.Subsystem, *tt.RAM) {
	h := tt.New(t, o)
	s := h.Subsystem(subNQN)
	b := tt.NewRAM(4096, 256)
	h.Namespace(s, 1, b)
	return h, s, b
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

func want(t *testing.T, what string, r tt.Reply, st nvme.Status, dnr bool) {
	t.Helper()
	if r.Status != st || r.DNR != dnr && st != nvme.StatusSuccess {
		t.Errorf("%s: status %v, DNR %v; want %v, DNR %v", what, r.Status, r.DNR, st, dnr)
	}
}

func ok(t *testing.T, what string, r tt.Reply) tt.Reply {
	t.Helper()
	want(t, what, r, nvme.StatusSuccess, false)
	return r
}

// The transcript of a host that connects, works and leaves.
func TestTranscript(t *testing.T) {
	h, _, _ := start(t, tt.Options{})
	a := h.Connect(subNQN, tt.Host("one"))
	if a.CNTLID == 0 || a.CNTLID > nvme.CNTLIDMax {
		t.Errorf("CNTLID %#x", a.CNTLID)
	}
	r := ok(t, "number of queues", a.Admin.Do(tt.SetFeature(nvme.FeatureNumberOfQueues, 3|3<<16), nil))
	if q := nvme.QueueCounts(r.DW0()); q.Submission() != 4 || q.Completion() != 4 {
		t.Errorf("granted %d and %d queues, asked for 4", q.Submission(), q.Completion())
	}
	io := a.IO(1)
	data := pattern(8192)
	ok(t, "write", io.Do(tt.Write(1, 3, 2), data))
	r = ok(t, "read", io.Do(tt.Read(1, 3, 2), nil))
	if !bytes.Equal(r.Data, data) {
		t.Error("read returns something else than was written")
	}
	ok(t, "flush", io.Do(tt.Flush(1), nil))
	ok(t, "disconnect", io.Do(tt.Disconnect(), nil))
	ok(t, "shutdown", a.Admin.Do(tt.PropertySet(nvme.RegCC, uint64(tt.EnableCC.WithSHN(nvme.ShutdownNormal))), nil))
	if st := a.CSTS(); st.SHST() != nvme.ShutdownStatusComplete {
		t.Errorf("CSTS %#x after the shutdown", st)
	}
	io.Drop()
	a.Admin.Drop()
	a.Admin.WaitReleased()
	h.Eventually("the controller is freed", func() bool { return len(h.Target.Controllers()) == 0 })
}

// Facts 20 and 21: what is wrong with a Connect is said to the byte.
func TestFact20ConnectErrors(t *testing.T) {
	h, s, _ := start(t, tt.Options{})
	s.SetAllowAnyHost(false)
	good := tt.Host("good")
	if err := s.AllowHost(good.NQN); err != nil {
		t.Fatal(err)
	}
	fill := func(field []byte) {
		for i := range field {
			field[i] = 'x'
		}
	}
	const bad = nvme.StatusConnectInvalidParameters
	tests := []struct {
		name string
		o    tt.DialOptions
		edit func(c *nvme.Command, data []byte)
		st   nvme.Status
		dw0  uint32
	}{
		{"record format", tt.DialOptions{}, func(c *nvme.Command, _ []byte) { c.SetRECFMT(1) }, nvme.StatusConnectIncompatibleFormat, 0},
		{"SQSIZE 0", tt.DialOptions{}, func(c *nvme.Command, _ []byte) { c.SetSQSIZE(0) }, bad, 44},
		{"SQSIZE above MQES", tt.DialOptions{}, func(c *nvme.Command, _ []byte) { c.SetSQSIZE(128) }, bad, 44},
		{"SQSIZE above the transport's queue", tt.DialOptions{Depth: 31}, func(*nvme.Command, []byte) {}, bad, 44},
		{"QID is not the transport's", tt.DialOptions{QID: 1, KnowQID: true}, func(*nvme.Command, []byte) {}, bad, 42},
		{"CNTLID of a static controller", tt.DialOptions{}, func(_ *nvme.Command, d []byte) { d[16], d[17] = 5, 0 }, bad, 16 | 1<<16},
		{"CNTLID any static", tt.DialOptions{}, func(_ *nvme.Command, d []byte) { d[16], d[17] = 0xfe, 0xff }, bad, 16 | 1<<16},
		{"SUBNQN without NUL", tt.DialOptions{}, func(_ *nvme.Command, d []byte) { fill(d[256:512]) }, bad, 256 | 1<<16},
		{"SUBNQN of 224 bytes", tt.DialOptions{}, func(_ *nvme.Command, d []byte) { fill(d[256:480]) }, bad, 256 | 1<<16},
		{"SUBNQN empty", tt.DialOptions{}, func(_ *nvme.Command, d []byte) { clear(d[256:512]) }, bad, 256 | 1<<16},
		{"SUBNQN unknown", tt.DialOptions{}, func(_ *nvme.Command, d []byte) { d[256] = 'x' }, bad, 256 | 1<<16},
		{"HOSTNQN without NUL", tt.DialOptions{}, func(_ *nvme.Command, d []byte) { fill(d[512:768]) }, bad, 512 | 1<<16},
		{"HOSTNQN empty", tt.DialOptions{}, func(_ *nvme.Command, d []byte) { clear(d[512:768]) }, bad, 512 | 1<<16},
		{"HOSTNQN not UTF-8", tt.DialOptions{}, func(_ *nvme.Command, d []byte) { d[512] = 0xff }, bad, 512 | 1<<16},
		{"host not allowed", tt.DialOptions{}, func(_ *nvme.Command, d []byte) { d[512] = 'x' }, nvme.StatusConnectInvalidHost, 0},
		{"I/O queue of no controller", tt.DialOptions{}, func(c *nvme.Command, d []byte) { c.SetQID(1); d[16], d[17] = 99, 0 }, bad, 16 | 1<<16},
		{"I/O queue of FFFFh", tt.DialOptions{}, func(c *nvme.Command, _ []byte) { c.SetQID(1) }, bad, 16 | 1<<16},
		{"reserved attributes are ignored", tt.DialOptions{}, func(c *nvme.Command, _ []byte) { c.SetCATTR(0xf0) }, 0, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := h.Dial(test.o)
			cmd, data := tt.Connect(0, 31, 0), tt.ConnectData(subNQN, good, nvme.CNTLIDDynamic)
			test.edit(&cmd, data)
			r := c.Do(cmd, data)
			want(t, "Connect", r, test.st, true)
			if test.st != 0 && r.DW0() != test.dw0 {
				t.Errorf("dword 0 is %#x, want %#x", r.DW0(), test.dw0)
			}
			if test.st != 0 {
				// The queue is as good as new.
				ok(t, "second Connect", h.Dial(tt.DialOptions{}).Do(tt.Connect(0, 31, 0), tt.ConnectData(subNQN, good, nvme.CNTLIDDynamic)))
				r := c.Do(tt.Connect(0, 30, 0), tt.ConnectData(subNQN, good, nvme.CNTLIDDynamic))
				if test.o == (tt.DialOptions{}) || test.o.Depth != 0 {
					ok(t, "Connect on the same queue", r)
				}
			}
			c.Drop()
			c.WaitReleased()
		})
	}
	t.Run("length of the data", func(t *testing.T) {
		want(t, "Connect", h.Dial(tt.DialOptions{}).Do(tt.Connect(0, 31, 0), make([]byte, 1020)), nvme.StatusSGLDataLength, true)
	})
}

func TestConnectMisplaced(t *testing.T) {
	h, _, _ := start(t, tt.Options{})
	host := tt.Host("one")
	c := h.Dial(tt.DialOptions{})
	want(t, "Identify before Connect", c.Do(tt.Identify(nvme.CNSController, 0), nil), nvme.StatusCommandSequenceError, true)
	want(t, "Property Get before Connect", c.Do(tt.PropertyGet(nvme.RegCAP, 8), nil), nvme.StatusCommandSequenceError, true)
	want(t, "Read before Connect", c.Do(tt.Read(1, 0, 1), nil), nvme.StatusCommandSequenceError, true)
	a := h.ConnectOnly(subNQN, host, 0, tt.DialOptions{})
	want(t, "Connect again", a.Admin.Do(tt.Connect(0, 31, 0), tt.ConnectData(subNQN, host, nvme.CNTLIDDynamic)), nvme.StatusCommandSequenceError, true)
	want(t, "Identify before CC.EN", a.Admin.Do(tt.Identify(nvme.CNSController, 0), nil), nvme.StatusCommandSequenceError, true)
	want(t, "Keep Alive before CC.EN", a.Admin.Do(tt.Admin(nvme.AdminKeepAlive), nil), nvme.StatusCommandSequenceError, true)
	a.Enable()
	io := a.IO(1)
	want(t, "Connect on an I/O queue", io.Do(tt.Connect(1, 31, 0), tt.ConnectData(subNQN, host, a.CNTLID)), nvme.StatusCommandSequenceError, true)
	want(t, "Property Get on an I/O queue", io.Do(tt.PropertyGet(nvme.RegCAP, 8), nil), nvme.StatusInvalidOpcode, true)
	want(t, "Disconnect on the admin queue", a.Admin.Do(tt.Disconnect(), nil), nvme.StatusInvalidQueueType, true)
	d := tt.Disconnect()
	d.SetRECFMT(1)
	want(t, "Disconnect of another format", io.Do(d, nil), nvme.StatusConnectIncompatibleFormat, true)

	// Two Connects at once: one wins.
	c = h.Dial(tt.DialOptions{})
	p1 := c.Hold(tt.Connect(0, 31, 0), tt.ConnectData(subNQN, host, nvme.CNTLIDDynamic))
	p2 := c.Hold(tt.Connect(0, 31, 0), tt.ConnectData(subNQN, host, nvme.CNTLIDDynamic))
	p1.Continue()
	p2.Continue()
	ok(t, "the first", p1.Wait())
	want(t, "the second", p2.Wait(), nvme.StatusCommandSequenceError, true)
}

// Fact 21: what an I/O queue's Connect needs.
func TestFact21IOConnect(t *testing.T) {
	h, _, _ := start(t, tt.Options{Target: target.Options{DuplicateQID: 100 * time.Millisecond}})
	host := tt.Host("one")
	a := h.ConnectOnly(subNQN, host, 0, tt.DialOptions{})
	const bad = nvme.StatusConnectInvalidParameters
	try := func(what string, qid uint16, as target.HostIdentity, sub string, st nvme.Status, dw0 uint32) {
		t.Helper()
		c := h.Dial(tt.DialOptions{})
		r := c.Do(tt.Connect(qid, 31, 0), tt.ConnectData(sub, as, a.CNTLID))
		want(t, what, r, st, true)
		if r.DW0() != dw0 {
			t.Errorf("%s: dword 0 is %#x, want %#x", what, r.DW0(), dw0)
		}
		c.Drop()
	}
	h.Subsystem("nqn.2026-01.io.rocet:other")
	try("CC.EN is 0", 1, host, subNQN, bad, 42)
	ok(t, "CC.EN without entry sizes", a.Admin.Do(tt.PropertySet(nvme.RegCC, uint64(nvme.CCEnable)), nil))
	try("IOSQES is 0", 1, host, subNQN, bad, 42)
	ok(t, "CC", a.Admin.Do(tt.PropertySet(nvme.RegCC, 0), nil))
	a.Enable()
	try("another host NQN", 1, target.HostIdentity{NQN: tt.Host("two").NQN, ID: host.ID}, subNQN, bad, 512|1<<16)
	try("another host ID", 1, target.HostIdentity{NQN: host.NQN, ID: tt.Host("two").ID}, subNQN, bad, 0|1<<16)
	try("another subsystem", 1, host, "nqn.2026-01.io.rocet:other", bad, 16|1<<16)
	try("QID above the maximum", 129, host, subNQN, bad, 42)
	ok(t, "number of queues", a.Admin.Do(tt.SetFeature(nvme.FeatureNumberOfQueues, 1|1<<16), nil))
	try("QID above what was granted", 3, host, subNQN, bad, 42)
	a.IO(2)
	tcp, err := h.Target.AddListener(target.ListenerInfo{TrType: nvme.TransportTCP, TrAddr: "192.0.2.1", TrSvcID: "4420"})
	if err != nil {
		t.Fatal(err)
	}
	_, over := a.TryIO(1, tt.DialOptions{Listener: tcp})
	want(t, "another transport than the admin queue's", over, bad, true)

	begin := time.Now()
	c, r := a.TryIO(2, tt.DialOptions{})
	want(t, "a QID that is in use", r, nvme.StatusCommandSequenceError, true)
	if d := time.Since(begin); d < 100*time.Millisecond {
		t.Errorf("refused after %v without waiting for the old queue to go", d)
	}
	c.Drop()
}

// Fact 21: the old queue of a QID is on its way out, and the Connect waits for it.
func TestFact21DuplicateQIDWaits(t *testing.T) {
	h, _, _ := start(t, tt.Options{})
	a := h.Connect(subNQN, tt.Host("one"))
	old, r := a.TryIO(1, tt.DialOptions{HoldRelease: true})
	ok(t, "Connect", r)
	old.Drop()
	next := h.Dial(tt.DialOptions{})
	p := next.Send(tt.Connect(1, 31, 0), tt.ConnectData(subNQN, a.Host, a.CNTLID))
	time.Sleep(20 * time.Millisecond)
	if p.Done() {
		t.Fatal("the Connect did not wait")
	}
	old.LetGo()
	ok(t, "Connect after the old queue is gone", p.Wait())
	ok(t, "read", next.Do(tt.Read(1, 0, 1), nil))
}

func TestConnectTimeout(t *testing.T) {
	h, _, _ := start(t, tt.Options{Target: target.Options{ConnectTimeout: 50 * time.Millisecond}})
	c := h.Dial(tt.DialOptions{})
	if err := c.WaitClosed(); !errors.Is(err, target.ErrConnectTimeout) {
		t.Errorf("closed because %v", err)
	}
	c.WaitReleased()
	// A queue that did connect is left alone.
	a := h.Connect(subNQN, tt.Host("one"))
	time.Sleep(100 * time.Millisecond)
	ok(t, "Identify", a.Admin.Do(tt.Identify(nvme.CNSController, 0), nil))
}

func TestDisconnectCommand(t *testing.T) {
	h, _, b := start(t, tt.Options{Target: target.Options{DisconnectTimeout: 500 * time.Millisecond}})
	a := h.Connect(subNQN, tt.Host("one"))
	io := a.IO(1)
	b.Hold(true)
	read := io.Send(tt.Read(1, 0, 1), nil)
	dis := io.Send(tt.Disconnect(), nil)
	time.Sleep(10 * time.Millisecond)
	if dis.Done() {
		t.Error("Disconnect completed before a command that was under way")
	}
	want(t, "a second Disconnect", io.Do(tt.Disconnect(), nil), nvme.StatusCommandSequenceError, true)
	b.Hold(false)
	ok(t, "read", read.Wait())
	ok(t, "Disconnect", dis.Wait())
	want(t, "a command after it", io.Do(tt.Read(1, 0, 1), nil), nvme.StatusCommandSequenceError, true)
	a.IO(1)
	if io.IsClosed() {
		t.Error("the QID was free only after the connection was gone")
	}
	if err := io.WaitClosed(); !errors.Is(err, target.ErrDisconnected) {
		t.Errorf("closed because %v", err)
	}
	ok(t, "Identify", a.Admin.Do(tt.Identify(nvme.CNSController, 0), nil))
}

func TestMaxQueues(t *testing.T) {
	h, _, _ := start(t, tt.Options{Target: target.Options{MaxQueues: 2}})
	h.Dial(tt.DialOptions{})
	c := h.Dial(tt.DialOptions{})
	if _, err := h.TryDial(tt.DialOptions{}); err == nil {
		t.Error("a third queue was taken")
	}
	if n := h.Target.RefusedConnections(); n != 1 {
		t.Errorf("%d refusals counted", n)
	}
	c.Drop()
	c.WaitReleased()
	h.Eventually("there is room again", func() bool {
		_, err := h.TryDial(tt.DialOptions{})
		return err == nil
	})
}

// Controller identifiers come from the subsystem's range, in turn, and run out.
func TestCNTLIDRange(t *testing.T) {
	h := tt.New(t, tt.Options{})
	if _, err := h.Target.AddSubsystem(target.SubsystemConfig{NQN: subNQN, AllowAnyHost: true, MinCNTLID: 10, MaxCNTLID: 12}); err != nil {
		t.Fatal(err)
	}
	var as []*tt.Association
	for i := range uint16(3) {
		a := h.Connect(subNQN, tt.Host("one"))
		if a.CNTLID != 10+i {
			t.Errorf("controller %d has CNTLID %d", i, a.CNTLID)
		}
		as = append(as, a)
	}
	r := h.Dial(tt.DialOptions{}).Do(tt.Connect(0, 31, 0), tt.ConnectData(subNQN, tt.Host("one"), nvme.CNTLIDDynamic))
	want(t, "a fourth", r, nvme.StatusConnectControllerBusy, false)
	as[1].Admin.Drop()
	h.Eventually("its controller is freed", func() bool { return len(h.Target.Controllers()) == 2 })
	if a := h.Connect(subNQN, tt.Host("one")); a.CNTLID != 11 {
		t.Errorf("CNTLID %d, only 11 is free", a.CNTLID)
	}
}

func TestSubsystemConfig(t *testing.T) {
	h := tt.New(t, tt.Options{})
	for name, c := range map[string]target.SubsystemConfig{
		"no NQN":          {},
		"bad NQN":         {NQN: "foo"},
		"discovery NQN":   {NQN: nvme.DiscoveryNQN},
		"long serial":     {NQN: subNQN, Serial: "123456789012345678901"},
		"serial not text": {NQN: subNQN, Serial: "\x01"},
		"long model":      {NQN: subNQN, Model: "12345678901234567890123456789012345678901"},
		"empty host":      {NQN: subNQN, Hosts: []string{""}},
		"range":           {NQN: subNQN, MinCNTLID: 5, MaxCNTLID: 4},
	} {
		if _, err := h.Target.AddSubsystem(c); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	h.Subsystem(subNQN)
	if _, err := h.Target.AddSubsystem(target.SubsystemConfig{NQN: subNQN}); err == nil {
		t.Error("the same name twice: taken")
	}
	if err := h.Target.RemoveSubsystem(context.Background(), "nqn.2026-01.io.rocet:none"); err == nil {
		t.Error("a subsystem that isn't there was removed")
	}
}
