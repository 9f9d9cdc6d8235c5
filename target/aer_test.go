package target_test

import (
	"context"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"rocet/nvme"
	"rocet/target"
	tt "rocet/target/targettest"
)

const allNotices = nvme.OAESNamespaceAttribute | nvme.OAESANAChange

func configureAER(t *testing.T, a *tt.Association, bits uint32) {
	t.Helper()
	ok(t, "Asynchronous Event Configuration", a.Admin.Do(tt.SetFeature(nvme.FeatureAsyncEventConfig, bits), nil))
}

func event(t *testing.T, p *tt.Pending) nvme.AsyncEvent {
	t.Helper()
	return nvme.AsyncEvent(ok(t, "AER", p.Wait()).DW0())
}

func aer(a *tt.Association) *tt.Pending { return a.Admin.Send(tt.Admin(nvme.AdminAER), nil) }

// quiet checks that nothing is reported.
func quiet(t *testing.T, h *tt.Harness, p *tt.Pending, why string) {
	t.Helper()
	h.Settle()
	time.Sleep(10 * time.Millisecond)
	h.Settle()
	if p.Done() {
		t.Fatalf("%s: reported %#x", why, p.Wait().DW0())
	}
}

// Fact 28: one AER more than AERL + 1 is refused.
func TestFact28Limit(t *testing.T) {
	h, _, _ := start(t, tt.Options{})
	a := h.Connect(subNQN, tt.Host("one"))
	var id nvme.IdentifyController
	if err := id.UnmarshalBinary(ok(t, "Identify", a.Admin.Do(tt.Identify(nvme.CNSController, 0), nil)).Data); err != nil {
		t.Fatal(err)
	}
	var parked []*tt.Pending
	for range int(id.AERL) + 1 {
		parked = append(parked, aer(a))
	}
	want(t, "one more", aer(a).Wait(), nvme.StatusAERLimitExceeded, false)
	for _, p := range parked {
		quiet(t, h, p, "a parked AER")
	}
	// Parked requests don't hold a reset up.
	ok(t, "CC.EN = 0", a.Admin.Do(tt.PropertySet(nvme.RegCC, 0), nil))
	for _, p := range parked {
		want(t, "AER", p.Wait(), nvme.StatusAbortedByRequest, false)
	}
	if a.CSTS() != 0 {
		t.Errorf("CSTS is %#x", a.CSTS())
	}
}

// Fact 28: events are masked until their log is read, kept meanwhile, coalesced;
// fact 33: they go to every controller of every host.
func TestFact28MaskAndCoalesce(t *testing.T) {
	h, s, _ := start(t, tt.Options{})
	a, b := h.Connect(subNQN, tt.Host("one")), h.Connect(subNQN, tt.Host("two"))
	deaf := h.Connect(subNQN, tt.Host("three"))
	configureAER(t, a, allNotices)
	configureAER(t, b, allNotices)
	deafAER := aer(deaf)
	p := aer(a)

	h.Namespace(s, 2, tt.NewRAM(512, 8))
	if e := event(t, p); e != nvme.AsyncNamespaceChanged {
		t.Errorf("event %#x", e)
	}
	quiet(t, h, deafAER, "a host that did not enable events")

	p = aer(a)
	h.Namespace(s, 3, tt.NewRAM(512, 8))
	h.Namespace(s, 4, tt.NewRAM(512, 8))
	quiet(t, h, p, "masked")
	// Reading with RAE leaves the mask.
	c := tt.GetLog(nvme.LogChangedNamespaces, nvme.ChangedNSLogSize, 0)
	c.SetLog(nvme.LogChangedNamespaces, 0, true, nvme.ChangedNSLogSize, 0)
	log := ok(t, "log with RAE", a.Admin.Do(c, nil)).Data
	if ids, err := nvme.ParseNSIDList(log); err != nil || !slices.Equal(ids, []uint32{2, 3, 4}) {
		t.Errorf("changed namespaces %v, %v", ids, err)
	}
	quiet(t, h, p, "still masked")
	// Another kind is not masked.
	if err := s.SetANAState(nil, 1, nvme.ANANonOptimized); err != nil {
		t.Fatal(err)
	}
	if e := event(t, p); e != nvme.AsyncANAChange {
		t.Errorf("event %#x", e)
	}
	p = aer(a)
	log = a.Log(nvme.LogChangedNamespaces, nvme.ChangedNSLogSize)
	if ids, _ := nvme.ParseNSIDList(log); !slices.Equal(ids, []uint32{2, 3, 4}) {
		t.Errorf("changed namespaces %v", ids)
	}
	// What came while masked is reported once.
	if e := event(t, p); e != nvme.AsyncNamespaceChanged {
		t.Errorf("event %#x", e)
	}
	p = aer(a)
	log = a.Log(nvme.LogChangedNamespaces, nvme.ChangedNSLogSize)
	if ids, _ := nvme.ParseNSIDList(log); len(ids) != 0 {
		t.Errorf("changed namespaces %v after they were read", ids)
	}
	quiet(t, h, p, "nothing new")

	// The other host had no request: its event waited.
	if e := event(t, aer(b)); e != nvme.AsyncNamespaceChanged {
		t.Errorf("event %#x", e)
	}
	if e := event(t, aer(b)); e != nvme.AsyncANAChange {
		t.Errorf("event %#x", e)
	}
	if ids, _ := nvme.ParseNSIDList(b.Log(nvme.LogChangedNamespaces, nvme.ChangedNSLogSize)); !slices.Equal(ids, []uint32{2, 3, 4}) {
		t.Errorf("changed namespaces of the other host %v", ids)
	}
	// Switched off, nothing comes; what was kept is gone.
	configureAER(t, a, 0)
	h.Namespace(s, 5, tt.NewRAM(512, 8))
	configureAER(t, a, allNotices)
	quiet(t, h, p, "it happened while events were off")
}

// A partial read of the Changed Namespace List keeps it.
func TestChangedListPartialRead(t *testing.T) {
	h, s, _ := start(t, tt.Options{})
	a := h.Connect(subNQN, tt.Host("one"))
	h.Namespace(s, 7, tt.NewRAM(512, 8))
	part := a.Log(nvme.LogChangedNamespaces, 8)
	if binary.LittleEndian.Uint32(part) != 7 {
		t.Errorf("the list begins with % x", part)
	}
	if ids, _ := nvme.ParseNSIDList(a.Log(nvme.LogChangedNamespaces, nvme.ChangedNSLogSize)); !slices.Equal(ids, []uint32{7}) {
		t.Errorf("changed namespaces %v", ids)
	}
	if err := s.RemoveNamespace(context.Background(), 7); err != nil {
		t.Fatal(err)
	}
	if ids, _ := nvme.ParseNSIDList(a.Log(nvme.LogChangedNamespaces, nvme.ChangedNSLogSize)); !slices.Equal(ids, []uint32{7}) {
		t.Errorf("changed namespaces after a removal %v", ids)
	}
}

func TestAEConfigChecked(t *testing.T) {
	h, _, _ := start(t, tt.Options{})
	a := h.Connect(subNQN, tt.Host("one"))
	want(t, "an event that isn't there", a.Admin.Do(tt.SetFeature(nvme.FeatureAsyncEventConfig, nvme.OAESFirmwareActivation), nil), nvme.StatusInvalidField, true)
	want(t, "discovery change on an I/O controller", a.Admin.Do(tt.SetFeature(nvme.FeatureAsyncEventConfig, nvme.OAESDiscoveryChange), nil), nvme.StatusInvalidField, true)
	configureAER(t, a, allNotices|nvme.SMARTSpareLow|nvme.SMARTTemperature|nvme.SMARTDegraded)
	if v := a.Admin.Do(tt.GetFeature(nvme.FeatureAsyncEventConfig, nvme.FeatureCurrent, 0), nil).DW0(); v != allNotices|7 {
		t.Errorf("reads %#x", v)
	}
}

// Critical warnings of a backend's device become SMART events.
func TestSMARTEvents(t *testing.T) {
	h, _, b := start(t, tt.Options{})
	a := h.Connect(subNQN, tt.Host("one"))
	configureAER(t, a, nvme.SMARTSpareLow|nvme.SMARTTemperature|nvme.SMARTDegraded|nvme.SMARTReadOnly)
	p := aer(a)
	b.Emit(target.EventHealth)
	quiet(t, h, p, "no SMART at all")
	b.SetSMART(&nvme.SMARTLog{AvailableSpare: 1, SpareThreshold: 10, CriticalWarning: nvme.SMARTSpareLow | nvme.SMARTReadOnly, Temperature: 300})
	b.Emit(target.EventHealth)
	got := []nvme.AsyncEvent{event(t, p), event(t, aer(a))}
	wantEvents := []nvme.AsyncEvent{
		nvme.MakeAsyncEvent(nvme.EventSMART, nvme.EventSMARTReliability, nvme.LogSMART),
		nvme.MakeAsyncEvent(nvme.EventSMART, nvme.EventSMARTSpare, nvme.LogSMART),
	}
	if !slices.Equal(got, wantEvents) {
		t.Errorf("events %#x, want %#x", got, wantEvents)
	}
	var l nvme.SMARTLog
	if err := l.UnmarshalBinary(a.Log(nvme.LogSMART, nvme.SMARTLogSize)); err != nil {
		t.Fatal(err)
	}
	if l.CriticalWarning != nvme.SMARTSpareLow|nvme.SMARTReadOnly || l.AvailableSpare != 1 || l.Temperature != 300 {
		t.Errorf("SMART log %+v", l)
	}
	p = aer(a)
	b.Emit(target.EventHealth)
	quiet(t, h, p, "a warning that was reported before")
	// A threshold that the host sets.
	ok(t, "threshold", a.Admin.Do(tt.SetFeature(nvme.FeatureTemperatureThreshold, 299), nil))
	b.Emit(target.EventHealth)
	if e := event(t, p); e != nvme.MakeAsyncEvent(nvme.EventSMART, nvme.EventSMARTTemperature, nvme.LogSMART) {
		t.Errorf("event %#x", e)
	}
	if err := l.UnmarshalBinary(a.Log(nvme.LogSMART, nvme.SMARTLogSize)); err != nil || l.CriticalWarning&nvme.SMARTTemperature == 0 {
		t.Errorf("SMART log %+v, %v", l, err)
	}
}

// Fact 32: Abort really looks for the command.
func TestFact32Abort(t *testing.T) {
	h, _, b := start(t, tt.Options{Reactors: 2})
	a := h.Connect(subNQN, tt.Host("one"))
	io := a.IOOn(1, 1)
	abort := func(what string, sqid, cid uint16, result uint32) {
		t.Helper()
		if r := ok(t, what, a.Admin.Do(tt.Abort(sqid, cid), nil)); r.DW0() != result {
			t.Errorf("%s: dword 0 is %d, want %d", what, r.DW0(), result)
		}
	}
	abort("no such queue", 9, 1, 1)
	abort("no such command", 0, 0x7777, 1)
	abort("no such I/O command", 1, 0x7777, 1)
	p := aer(a)
	h.Settle()
	abort("AER", 0, p.CID(), 0)
	want(t, "the AER", p.Wait(), nvme.StatusAbortedByRequest, false)

	held := io.Hold(tt.Write(1, 0, 1), pattern(4096))
	abort("a write whose data is on its way", 1, held.CID(), 1)
	want(t, "the write", held.Continue().Wait(), nvme.StatusAbortedByRequest, false)
	if r := ok(t, "read", io.Do(tt.Read(1, 0, 1), nil)); r.Data[1] != 0 {
		t.Error("the aborted write was executed")
	}

	b.Hold(true)
	w := io.Send(tt.Write(1, 0, 1), pattern(4096))
	h.Settle()
	abort("a write that the backend has", 1, w.CID(), 1)
	// More Aborts than ACL + 1: the other reactor has to answer each.
	block, entered := make(chan struct{}), make(chan struct{})
	h.Target.Groups()[1].Reactor.Post(func() { close(entered); <-block })
	<-entered
	var aborts []*tt.Pending
	for range 4 {
		aborts = append(aborts, a.Admin.Send(tt.Abort(1, 0x7777), nil))
	}
	want(t, "one Abort too many", a.Admin.Do(tt.Abort(1, 0x7777), nil), nvme.StatusAbortLimitExceeded, false)
	close(block)
	for _, p := range aborts {
		ok(t, "Abort", p.Wait())
	}
	ok(t, "Abort again", a.Admin.Do(tt.Abort(1, 0x7777), nil))
	b.Hold(false)
	ok(t, "the write", w.Wait())
}
