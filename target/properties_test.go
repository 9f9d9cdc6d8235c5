package target_test

import (
	"errors"
	"testing"
	"time"

	"rocet/nvme"
	"rocet/target"
	tt "rocet/target/targettest"
)

// Fact 22: each property has its size, and a wrong one is an invalid field.
func TestFact22PropertySizes(t *testing.T) {
	h, _, _ := start(t, tt.Options{})
	a := h.ConnectOnly(subNQN, tt.Host("one"), 0, tt.DialOptions{})
	for _, test := range []struct {
		name   string
		offset uint32
		size   int // 0: there is none
	}{
		{"CAP", nvme.RegCAP, 8}, {"VS", nvme.RegVS, 4}, {"CC", nvme.RegCC, 4}, {"CSTS", nvme.RegCSTS, 4}, {"CRTO", nvme.RegCRTO, 4},
		{"NSSR", nvme.RegNSSR, 0}, {"NSSD", nvme.RegNSSD, 0}, {"INTMS", nvme.RegINTMS, 0}, {"AQA", nvme.RegAQA, 0}, {"CAP + 4", 4, 0}, {"far away", 0x1000, 0},
	} {
		for _, size := range []int{4, 8} {
			st := nvme.StatusInvalidField
			if size == test.size {
				st = nvme.StatusSuccess
			}
			want(t, test.name, a.Admin.Do(tt.PropertyGet(test.offset, size), nil), st, true)
		}
		for attrib := range uint8(8) {
			c := tt.PropertySet(test.offset, 0)
			c.SetATTRIB(attrib)
			st := nvme.StatusInvalidField
			if test.offset == nvme.RegCC && attrib == nvme.PropertySize4 {
				st = nvme.StatusSuccess
			}
			want(t, "set "+test.name, a.Admin.Do(c, nil), st, true)
		}
	}
	c := tt.PropertyGet(nvme.RegCAP, 8)
	c.SetATTRIB(5)
	want(t, "reserved size", a.Admin.Do(c, nil), nvme.StatusInvalidField, true)

	capabilities := nvme.CAP(a.Admin.Do(tt.PropertyGet(nvme.RegCAP, 8), nil).Result64())
	if !capabilities.CQR() || capabilities.MQES() != 127 || capabilities.TO() == 0 || capabilities.MPSMIN() != 0 ||
		capabilities.CRMS() != nvme.CAPCRMSWithMedia || capabilities.CSS() != nvme.CAPCSSNVM || capabilities.NSSRS() {
		t.Errorf("CAP is %#x", uint64(capabilities))
	}
	if v := nvme.Version(a.Admin.Do(tt.PropertyGet(nvme.RegVS, 4), nil).DW0()); v != nvme.Version21 {
		t.Errorf("VS is %s", v)
	}
	if crto := nvme.CRTO(a.Admin.Do(tt.PropertyGet(nvme.RegCRTO, 4), nil).DW0()); crto.CRWMT() != uint16(capabilities.TO()) {
		t.Errorf("CRTO is %#x", uint32(crto))
	}
}

func TestInvalidCC(t *testing.T) {
	h, _, _ := start(t, tt.Options{})
	a := h.ConnectOnly(subNQN, tt.Host("one"), 0, tt.DialOptions{})
	for name, cc := range map[string]nvme.CC{
		"page size":       tt.EnableCC.WithMPS(1),
		"arbitration":     tt.EnableCC.WithAMS(1),
		"command set 1":   tt.EnableCC.WithCSS(1),
		"admin only":      tt.EnableCC.WithCSS(nvme.CCCSSAdminOnly),
		"vendor arbiters": tt.EnableCC.WithAMS(7),
		"all sets":        tt.EnableCC.WithCSS(nvme.CCCSSAll),
	} {
		want(t, name, a.Admin.Do(tt.PropertySet(nvme.RegCC, uint64(cc)), nil), nvme.StatusInvalidField, true)
		if a.CSTS() != 0 {
			t.Errorf("%s: CSTS is %#x", name, a.CSTS())
		}
	}
	ok(t, "the only command set", a.Admin.Do(tt.PropertySet(nvme.RegCC, uint64(tt.EnableCC)), nil))
	want(t, "another page size while enabled", a.Admin.Do(tt.PropertySet(nvme.RegCC, uint64(tt.EnableCC.WithMPS(1))), nil), nvme.StatusInvalidField, true)
	if cc := nvme.CC(a.Admin.Do(tt.PropertyGet(nvme.RegCC, 4), nil).DW0()); cc != tt.EnableCC {
		t.Errorf("CC reads %#x", uint32(cc))
	}
}

// Fact 25: CC.EN 1 to 0 drops the I/O queues, and CSTS.RDY falls when they are gone.
func TestFact25Reset(t *testing.T) {
	h, s, b := start(t, tt.Options{})
	a := h.Connect(subNQN, tt.Host("one"))
	io, io2 := a.IO(1), a.IO(2)
	h.Namespace(s, 2, tt.NewRAM(512, 8))
	aer := a.Admin.Send(tt.Admin(nvme.AdminAER), nil)
	ok(t, "AEC", a.Admin.Do(tt.SetFeature(nvme.FeatureAsyncEventConfig, nvme.OAESNamespaceAttribute), nil))
	b.Hold(true)
	write := io.Send(tt.Write(1, 0, 1), pattern(4096))
	h.Settle()
	ok(t, "CC.EN = 0", a.Admin.Do(tt.PropertySet(nvme.RegCC, 0), nil))
	if err := io.WaitClosed(); !errors.Is(err, target.ErrControllerReset) {
		t.Errorf("queue 1 closed because %v", err)
	}
	io2.WaitReleased()
	if !a.CSTS().RDY() {
		t.Error("CSTS.RDY fell while a write is in flight")
	}
	want(t, "AER of before the reset", aer.Wait(), nvme.StatusAbortedByRequest, false)
	want(t, "Identify meanwhile", a.Admin.Do(tt.Identify(nvme.CNSController, 0), nil), nvme.StatusCommandSequenceError, true)
	want(t, "CC.EN = 1 meanwhile", a.Admin.Do(tt.PropertySet(nvme.RegCC, uint64(tt.EnableCC)), nil), nvme.StatusCommandSequenceError, true)
	_, r := a.TryIO(1, tt.DialOptions{})
	want(t, "Connect meanwhile", r, nvme.StatusConnectControllerBusy, false)
	b.Hold(false)
	ok(t, "the write ends as the backend says", write.Wait())
	h.Eventually("CSTS.RDY falls", func() bool { return a.CSTS() == 0 })
	a.Enable()
	r = ok(t, "AEC", a.Admin.Do(tt.GetFeature(nvme.FeatureAsyncEventConfig, nvme.FeatureCurrent, 0), nil))
	if r.DW0() != 0 {
		t.Errorf("Asynchronous Event Configuration is %#x after a reset", r.DW0())
	}
	if ids, _ := nvme.ParseNSIDList(a.Log(nvme.LogChangedNamespaces, nvme.ChangedNSLogSize)); len(ids) != 0 {
		t.Errorf("changed namespaces %v after a reset", ids)
	}
	ok(t, "read", a.IO(1).Do(tt.Read(1, 0, 1), nil))
}

// Fact 25: CC.SHN finishes what is under way, then CSTS.SHST is 2.
func TestFact25Shutdown(t *testing.T) {
	h, _, b := start(t, tt.Options{})
	a := h.Connect(subNQN, tt.Host("one"))
	io := a.IO(1)
	b.Hold(true)
	write := io.Send(tt.Write(1, 0, 1), pattern(4096))
	h.Settle()
	shn := tt.EnableCC.WithSHN(nvme.ShutdownNormal)
	ok(t, "CC.SHN", a.Admin.Do(tt.PropertySet(nvme.RegCC, uint64(shn)), nil))
	if s := a.CSTS().SHST(); s != nvme.ShutdownStatusProcessing {
		t.Errorf("SHST is %d with a write in flight", s)
	}
	want(t, "Identify", a.Admin.Do(tt.Identify(nvme.CNSController, 0), nil), nvme.StatusCommandSequenceError, true)
	b.Hold(false)
	ok(t, "the write", write.Wait())
	h.Eventually("SHST is 2", func() bool { return a.CSTS().SHST() == nvme.ShutdownStatusComplete })
	_, r := a.TryIO(1, tt.DialOptions{})
	want(t, "Connect", r, nvme.StatusConnectInvalidParameters, true)
	ok(t, "CC.EN = 0", a.Admin.Do(tt.PropertySet(nvme.RegCC, 0), nil))
	if s := a.CSTS(); s != 0 {
		t.Errorf("CSTS is %#x after the reset", s)
	}
	a.Enable()
	ok(t, "read", a.IO(1).Do(tt.Read(1, 0, 1), nil))
}

// Fact 25: an association that doesn't come back is removed, and while it is
// disabled its keep alive timeout does not matter.
func TestFact25IdleAssociation(t *testing.T) {
	h, _, _ := start(t, tt.Options{Target: target.Options{IdleAssociation: 300 * time.Millisecond}})
	never := h.ConnectOnly(subNQN, tt.Host("never"), 100, tt.DialOptions{})
	a := h.ConnectWith(subNQN, tt.Host("one"), 10000, tt.DialOptions{})
	ok(t, "CC.SHN", a.Admin.Do(tt.PropertySet(nvme.RegCC, uint64(tt.EnableCC.WithSHN(nvme.ShutdownAbrupt))), nil))
	stays := h.Connect(subNQN, tt.Host("stays"))
	time.Sleep(150 * time.Millisecond)
	if never.Admin.IsClosed() || a.Admin.IsClosed() {
		t.Error("removed too early")
	}
	for _, c := range []*tt.Conn{never.Admin, a.Admin} {
		if err := c.WaitClosed(); !errors.Is(err, target.ErrAssociationIdle) {
			t.Errorf("closed because %v", err)
		}
	}
	ok(t, "Identify on the one that is in use", stays.Admin.Do(tt.Identify(nvme.CNSController, 0), nil))
}

// Fact 26: without a keep alive CSTS.CFS is set and every queue goes.
func TestFact26KeepAliveExpires(t *testing.T) {
	h, _, _ := start(t, tt.Options{})
	a := h.ConnectWith(subNQN, tt.Host("one"), 200, tt.DialOptions{})
	io := a.IO(1)
	for range 5 { // longer than the timeout in all
		time.Sleep(80 * time.Millisecond)
		ok(t, "Keep Alive", a.Admin.Do(tt.Admin(nvme.AdminKeepAlive), nil))
	}
	if err := a.Admin.WaitClosed(); !errors.Is(err, target.ErrKeepAliveExpired) {
		t.Errorf("admin queue closed because %v", err)
	}
	if err := io.WaitClosed(); !errors.Is(err, target.ErrKeepAliveExpired) {
		t.Errorf("I/O queue closed because %v", err)
	}
	h.Eventually("the controller is freed", func() bool { return len(h.Target.Controllers()) == 0 })
}

// Fact 26: with traffic based keep alive any command restarts the timer.
func TestFact26Traffic(t *testing.T) {
	h, _, _ := start(t, tt.Options{Reactors: 2})
	a := h.ConnectWith(subNQN, tt.Host("one"), 100, tt.DialOptions{})
	io := a.IOOn(1, 1)
	for range 20 {
		time.Sleep(25 * time.Millisecond)
		ok(t, "read", io.Do(tt.Read(1, 0, 1), nil))
	}
	begin := time.Now()
	if err := a.Admin.WaitClosed(); !errors.Is(err, target.ErrKeepAliveExpired) {
		t.Errorf("closed because %v", err)
	}
	if d := time.Since(begin); d > 2*time.Second {
		t.Errorf("it took %v to find out", d)
	}
}

// Fact 26: KATO is rounded up to KAS's granularity, and can be changed and switched off.
func TestFact26Granularity(t *testing.T) {
	h, _, _ := start(t, tt.Options{})
	a := h.ConnectWith(subNQN, tt.Host("one"), 10001, tt.DialOptions{})
	get := func() uint32 {
		return ok(t, "KATO", a.Admin.Do(tt.GetFeature(nvme.FeatureKeepAliveTimer, nvme.FeatureCurrent, 0), nil)).DW0()
	}
	if v := get(); v != 10100 {
		t.Errorf("KATO is %d, want 10100", v)
	}
	for in, out := range map[uint32]uint32{1: 100, 100: 100, 101: 200, 0xffffffff: 0xffffffff / 100 * 100, 0: 0} {
		ok(t, "set KATO", a.Admin.Do(tt.SetFeature(nvme.FeatureKeepAliveTimer, in), nil))
		if v := get(); v != out {
			t.Errorf("KATO %d reads %d, want %d", in, v, out)
		}
	}
	ok(t, "set KATO", a.Admin.Do(tt.SetFeature(nvme.FeatureKeepAliveTimer, 100), nil))
	if err := a.Admin.WaitClosed(); !errors.Is(err, target.ErrKeepAliveExpired) {
		t.Errorf("closed because %v", err)
	}
}

// Fact 26: Keep Alive is served while a control command hangs and the data queue is full.
func TestFact26ServedWhileBusy(t *testing.T) {
	h, _, b := start(t, tt.Options{})
	a := h.ConnectWith(subNQN, tt.Host("one"), 300, tt.DialOptions{})
	io := a.IO(1)
	b.Hold(true)
	var stuck []*tt.Pending
	for range 31 {
		stuck = append(stuck, io.Send(tt.Write(1, 0, 1), pattern(4096)))
	}
	for range 6 {
		time.Sleep(100 * time.Millisecond)
		ok(t, "Keep Alive", a.Admin.Do(tt.Admin(nvme.AdminKeepAlive), nil))
	}
	b.Hold(false)
	for _, p := range stuck {
		ok(t, "write", p.Wait())
	}
}

// Fact 26: discovery controllers with KATO 0 have a bounded life.
func TestFact26Discovery(t *testing.T) {
	h, _, _ := start(t, tt.Options{Target: target.Options{DiscoveryKATO: 100 * time.Millisecond}})
	a := h.Connect(nvme.DiscoveryNQN, tt.Host("one"))
	if err := a.Admin.WaitClosed(); !errors.Is(err, target.ErrKeepAliveExpired) {
		t.Errorf("closed because %v", err)
	}
}

// Fact 27: with the admin queue everything goes.
func TestFact27AdminQueueLost(t *testing.T) {
	h, _, b := start(t, tt.Options{Reactors: 2})
	a := h.Connect(subNQN, tt.Host("one"))
	io, slow := a.IOOn(1, 1), a.IO(2)
	aer := a.Admin.Send(tt.Admin(nvme.AdminAER), nil)
	b.Hold(true)
	write := slow.Send(tt.Write(1, 0, 1), pattern(4096))
	h.Settle()
	a.Admin.Drop()
	want(t, "AER", aer.Wait(), nvme.StatusAbortedSQDeletion, false)
	for _, c := range []*tt.Conn{io, slow} {
		if err := c.WaitClosed(); !errors.Is(err, target.ErrAdminQueueLost) {
			t.Errorf("closed because %v", err)
		}
	}
	_, r := a.TryIO(3, tt.DialOptions{})
	want(t, "a new I/O queue", r, nvme.StatusConnectInvalidParameters, true)
	if r.DW0() != 16|1<<16 {
		t.Errorf("dword 0 is %#x", r.DW0())
	}
	if n := len(h.Target.Controllers()); n != 1 {
		t.Errorf("%d controllers while one has a write in flight", n)
	}
	b.Hold(false)
	write.Wait()
	h.Eventually("the controller is freed", func() bool { return len(h.Target.Controllers()) == 0 })
}

// Fact 24: without SQ flow control SQHD is FFFFh in the Connect response, and
// nothing later; with it, it goes round.
func TestFact24FlowControl(t *testing.T) {
	h, _, _ := start(t, tt.Options{})
	a := h.Connect(subNQN, tt.Host("one"))
	c := h.Dial(tt.DialOptions{})
	cmd := tt.Connect(1, 31, 0)
	cmd.SetCATTR(nvme.ConnectDisableSQFlow)
	r := ok(t, "Connect", c.Do(cmd, tt.ConnectData(subNQN, a.Host, a.CNTLID)))
	if r.SQHD() != 0xffff {
		t.Errorf("SQHD is %#x in the Connect response", r.SQHD())
	}
	for range 3 {
		if r := ok(t, "read", c.Do(tt.Read(1, 0, 1), nil)); r.SQHD() != 0 {
			t.Errorf("SQHD is %#x", r.SQHD())
		}
	}
	c = h.Dial(tt.DialOptions{})
	r = ok(t, "Connect", c.Do(tt.Connect(2, 2, 0), tt.ConnectData(subNQN, a.Host, a.CNTLID)))
	heads := []uint16{r.SQHD()}
	for range 5 {
		r := c.Do(tt.Read(1, 0, 1), nil)
		heads = append(heads, r.SQHD())
		if r.SQID() != 0 {
			t.Errorf("SQID is %d", r.SQID())
		}
	}
	for i, want := range []uint16{1, 2, 0, 1, 2, 0} {
		if heads[i] != want {
			t.Errorf("SQHDs are %v", heads)
			break
		}
	}
}
