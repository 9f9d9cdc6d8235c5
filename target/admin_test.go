package target_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"rocet/nvme"
	"rocet/target"
	tt "rocet/target/targettest"
)

// Fact 29: lengths and offsets of Get Log Page.
func TestFact29GetLogPage(t *testing.T) {
	h, _, _ := start(t, tt.Options{Target: target.Options{MDTS: 65536}})
	a := h.Connect(subNQN, tt.Host("one"))
	whole := a.Log(nvme.LogCommandEffects, nvme.CommandEffectsSize)
	for _, p := range []struct{ off, n int }{{0, 4}, {4, 4}, {1000, 96}, {4092, 4}, {4000, 96}} {
		r := ok(t, "piece", a.Admin.Do(tt.GetLog(nvme.LogCommandEffects, p.n, uint64(p.off)), nil))
		if !bytes.Equal(r.Data, whole[p.off:p.off+p.n]) {
			t.Errorf("%d bytes from %d differ", p.n, p.off)
		}
	}
	r := ok(t, "beyond the end", a.Admin.Do(tt.GetLog(nvme.LogCommandEffects, 8192, 4000), nil))
	if !bytes.Equal(r.Data[:96], whole[4000:]) || len(bytes.Trim(r.Data[96:], "\x00")) != 0 || len(r.Data) != 8192 {
		t.Error("a read beyond the end is not padded with zeros")
	}
	want(t, "offset past the end", a.Admin.Do(tt.GetLog(nvme.LogCommandEffects, 4, 4100), nil), nvme.StatusInvalidField, true)
	want(t, "offset far past the end", a.Admin.Do(tt.GetLog(nvme.LogCommandEffects, 4, 1<<63), nil), nvme.StatusInvalidField, true)
	want(t, "offset not aligned", a.Admin.Do(tt.GetLog(nvme.LogCommandEffects, 4, 2), nil), nvme.StatusInvalidField, true)
	want(t, "longer than MDTS", a.Admin.Do(tt.GetLog(nvme.LogCommandEffects, 65540, 0), nil), nvme.StatusInvalidField, true)
	c := tt.GetLog(nvme.LogCommandEffects, 4, 0)
	c.SetCDW(11, 0xffff) // NUMDU: 2^32 dwords
	want(t, "as long as can be", a.Admin.Do(c, nil), nvme.StatusInvalidField, true)
	c = tt.GetLog(nvme.LogCommandEffects, 4, 0)
	c.SetCDW(14, 1<<23)
	want(t, "index offset", a.Admin.Do(c, nil), nvme.StatusInvalidField, true)
	c.SetCDW(14, uint32(nvme.CSIZoned)<<24)
	want(t, "effects of another command set", a.Admin.Do(c, nil), nvme.StatusInvalidField, true)

	// The log of supported logs says what there is.
	var l nvme.SupportedLogs
	if err := l.UnmarshalBinary(a.Log(nvme.LogSupportedPages, nvme.SupportedLogsSize)); err != nil {
		t.Fatal(err)
	}
	for id := range 256 {
		r := a.Admin.Do(tt.GetLog(nvme.LogID(id), 64, 0), nil)
		if (l[id]&nvme.LogPageSupported != 0) != (r.Status == nvme.StatusSuccess) {
			t.Errorf("log page %#x: supported %v, status %v", id, l[id], r.Status)
		}
		if r.Status != nvme.StatusSuccess {
			want(t, "a log page that isn't there", r, nvme.StatusInvalidLogPage, true)
		}
	}
	for _, id := range []nvme.LogID{nvme.LogError, nvme.LogSMART, nvme.LogFirmwareSlot, nvme.LogChangedNamespaces, nvme.LogCommandEffects, nvme.LogANA, nvme.LogFeatureEffects} {
		if l[id]&nvme.LogPageSupported == 0 {
			t.Errorf("log page %#x is missing", id)
		}
	}
	var fw nvme.FirmwareSlotLog
	if err := fw.UnmarshalBinary(a.Log(nvme.LogFirmwareSlot, nvme.FirmwareSlotLogSize)); err != nil || fw.AFI != 1 || nvme.ASCII(fw.Slot[0][:]) != "1" {
		t.Errorf("firmware slots %+v, %v", fw, err)
	}
}

func readErrors(t *testing.T, a *tt.Association, n int) []nvme.ErrorLogEntry {
	t.Helper()
	b := a.Log(nvme.LogError, n*nvme.ErrorLogEntrySize)
	list := make([]nvme.ErrorLogEntry, n)
	for i := range list {
		if err := list[i].UnmarshalBinary(b[i*nvme.ErrorLogEntrySize:]); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// The Error Information log has real entries, the newest first, of all queues.
func TestErrorLog(t *testing.T) {
	h, _, _ := start(t, tt.Options{Reactors: 2})
	a := h.Connect(subNQN, tt.Host("one"))
	io := a.IOOn(3, 1)
	if e := readErrors(t, a, 1)[0]; e.Count != 0 {
		t.Errorf("an entry without an error: %+v", e)
	}
	p := io.Send(tt.Read(1, 1000, 1), nil)
	r := p.Wait()
	want(t, "read past the end", r, nvme.StatusLBAOutOfRange, true)
	if !r.Cqe.Status().More() {
		t.Error("More is not set, but the log has an entry")
	}
	want(t, "an unknown CNS", a.Admin.Do(tt.Identify(0x99, 0), nil), nvme.StatusInvalidField, true)
	log := readErrors(t, a, 3)
	if e := log[0]; e.Count != 2 || e.SQID != 0 || e.Status.Code() != nvme.StatusInvalidField || e.Location != 40 || e.Opcode != nvme.AdminIdentify || e.PageVersion != 1 {
		t.Errorf("entry 0: %+v", e)
	}
	if e := log[1]; e.Count != 1 || e.SQID != 3 || e.CID != p.CID() || e.Status.Code() != nvme.StatusLBAOutOfRange || !e.Status.DNR() || e.LBA != 1000 || e.NSID != 1 || e.Location != 40 {
		t.Errorf("entry 1: %+v", e)
	}
	if log[2].Count != 0 {
		t.Errorf("entry 2: %+v", log[2])
	}
	// Errors outlive their queue, and the counter goes on.
	io.Drop()
	io.WaitReleased()
	h.Eventually("the controller has the queue's errors", func() bool { return readErrors(t, a, 2)[1].SQID == 3 })
	for range 100 {
		a.Admin.Do(tt.Identify(0x99, 0), nil)
	}
	log = readErrors(t, a, 64)
	for i, e := range log[:32] {
		if e.Count != uint64(102-i) {
			t.Fatalf("entry %d has count %d", i, e.Count)
		}
	}
	var smart nvme.SMARTLog
	if err := smart.UnmarshalBinary(a.Log(nvme.LogSMART, nvme.SMARTLogSize)); err != nil || smart.ErrorLogEntries.Lo != 102 {
		t.Errorf("SMART counts %d errors, %v", smart.ErrorLogEntries.Lo, err)
	}
	// Another controller has its own log.
	if e := readErrors(t, h.Connect(subNQN, tt.Host("two")), 1)[0]; e.Count != 0 {
		t.Errorf("another host sees %+v", e)
	}
}

// SMART counts what hosts did, by namespace and in all, and passes on the devices'.
func TestSMARTLog(t *testing.T) {
	h, s, b1 := start(t, tt.Options{Reactors: 2})
	b2 := tt.NewRAM(512, 8192)
	h.Namespace(s, 2, b2)
	a := h.Connect(subNQN, tt.Host("one"))
	io, io2 := a.IOOn(1, 0), a.IOOn(2, 1)
	for range 3 {
		ok(t, "write", io.Do(tt.Write(1, 0, 250), make([]byte, 1024000)))
		ok(t, "write", io2.Do(tt.Write(2, 0, 2), make([]byte, 1024)))
	}
	ok(t, "read", io2.Do(tt.Read(2, 0, 2), nil))
	io.Do(tt.Read(1, 1<<40, 1), nil)
	read := func(nsid uint32) (l nvme.SMARTLog) {
		c := tt.GetLog(nvme.LogSMART, nvme.SMARTLogSize, 0)
		c.SetNSID(nsid)
		if err := l.UnmarshalBinary(ok(t, "SMART", a.Admin.Do(c, nil)).Data); err != nil {
			t.Fatal(err)
		}
		return l
	}
	for nsid, x := range map[uint32][4]uint64{1: {0, 3, 0, 6}, 2: {1, 3, 1, 1}, nvme.NSIDAll: {1, 6, 1, 7}, 0: {1, 6, 1, 7}} {
		l := read(nsid)
		if got := [4]uint64{l.HostReads.Lo, l.HostWrites.Lo, l.DataUnitsRead.Lo, l.DataUnitsWritten.Lo}; got != x {
			t.Errorf("namespace %#x: reads, writes, units read, units written %v, want %v", nsid, got, x)
		}
		if l.AvailableSpare != 100 || l.CriticalWarning != 0 {
			t.Errorf("%+v", l)
		}
	}
	c := tt.GetLog(nvme.LogSMART, 512, 0)
	c.SetNSID(9)
	want(t, "SMART of no namespace", a.Admin.Do(c, nil), nvme.StatusInvalidNamespace, true)
	b1.SetSMART(&nvme.SMARTLog{AvailableSpare: 90, SpareThreshold: 10, PercentageUsed: 3, Temperature: 310, MediaErrors: nvme.Uint128{Lo: 1<<64 - 1}, PowerOnHours: nvme.Uint128{Lo: 5}})
	b2.SetSMART(&nvme.SMARTLog{AvailableSpare: 80, SpareThreshold: 20, PercentageUsed: 9, Temperature: 300, MediaErrors: nvme.Uint128{Lo: 2}, PowerOnHours: nvme.Uint128{Lo: 7}, CriticalWarning: 4})
	l := read(nvme.NSIDAll)
	if l.AvailableSpare != 80 || l.SpareThreshold != 20 || l.PercentageUsed != 9 || l.Temperature != 310 || l.CriticalWarning != 4 ||
		l.MediaErrors != (nvme.Uint128{Lo: 1, Hi: 1}) || l.PowerOnHours.Lo != 7 {
		t.Errorf("merged: %+v", l)
	}
	if l := read(1); l.AvailableSpare != 90 || l.CriticalWarning != 0 || l.PowerOnHours.Lo != 5 {
		t.Errorf("of namespace 1: %+v", l)
	}
}

// Every feature that is there: current, default, saved, capabilities.
func TestFeatures(t *testing.T) {
	h, _, _ := start(t, tt.Options{})
	a := h.ConnectWith(subNQN, tt.Host("one"), 5000, tt.DialOptions{})
	const cur, dflt, saved, caps = nvme.FeatureCurrent, nvme.FeatureDefault, nvme.FeatureSaved, nvme.FeatureCapabilities
	get := func(id nvme.FeatureID, sel nvme.FeatureSelect, cdw11 uint32) uint32 {
		t.Helper()
		c := tt.GetFeature(id, sel, cdw11)
		c.SetNSID(nvme.NSIDAll)
		return ok(t, "Get Features", a.Admin.Do(c, nil)).DW0()
	}
	for _, f := range []struct {
		id                 nvme.FeatureID
		dflt, set, current uint32
		caps               uint32
	}{
		{nvme.FeatureArbitration, 7, 0x01020305, 0x01020305, 4},
		{nvme.FeaturePowerManagement, 0, 1 << 5, 1 << 5, 4},
		{nvme.FeatureErrorRecovery, 0, 50, 50, 6},
		{nvme.FeatureVolatileWriteCache, 1, 0, 0, 4},
		{nvme.FeatureNumberOfQueues, 127 | 127<<16, 7 | 3<<16, 3 | 3<<16, 4},
		{nvme.FeatureWriteAtomicity, 0, 1, 1, 4},
		{nvme.FeatureAsyncEventConfig, 0, 0x100, 0x100, 4},
		{nvme.FeatureKeepAliveTimer, 0, 7000, 7000, 4},
		{nvme.FeatureTemperatureThreshold, 0xffff, 350, 350, 4},
		{nvme.FeatureCommandSetProfile, 0, 0, 0, 4},
	} {
		if v := get(f.id, dflt, 0); v != f.dflt {
			t.Errorf("feature %#x: default %#x, want %#x", f.id, v, f.dflt)
		}
		if v := get(f.id, cur, 0); v != f.dflt && f.id != nvme.FeatureKeepAliveTimer {
			t.Errorf("feature %#x: at first %#x, want %#x", f.id, v, f.dflt)
		}
		c := tt.SetFeature(f.id, f.set)
		c.SetNSID(nvme.NSIDAll)
		ok(t, "Set Features", a.Admin.Do(c, nil))
		if v := get(f.id, cur, 0); v != f.current {
			t.Errorf("feature %#x: current %#x, want %#x", f.id, v, f.current)
		}
		if v := get(f.id, saved, 0); v != f.dflt {
			t.Errorf("feature %#x: saved %#x, want %#x", f.id, v, f.dflt)
		}
		if v := get(f.id, caps, 0); v != f.caps {
			t.Errorf("feature %#x: capabilities %#x, want %#x", f.id, v, f.caps)
		}
		c.SetCDW(10, uint32(f.id)|1<<31)
		want(t, "saving", a.Admin.Do(c, nil), nvme.StatusFeatureNotSaveable, true)
	}
	// The effects log and the features agree.
	var l nvme.FeatureEffectsLog
	if err := l.UnmarshalBinary(a.Log(nvme.LogFeatureEffects, nvme.FeatureEffectsSize)); err != nil {
		t.Fatal(err)
	}
	for id := range 256 {
		r := a.Admin.Do(tt.GetFeature(nvme.FeatureID(id), caps, 0), nil)
		if (l[id]&nvme.FeatureSupported != 0) != (r.Status == nvme.StatusSuccess) {
			t.Errorf("feature %#x: effects %#x, status %v", id, l[id], r.Status)
		}
	}
	// A reset brings the defaults, but not for the keep alive.
	ok(t, "CC.EN = 0", a.Admin.Do(tt.PropertySet(nvme.RegCC, 0), nil))
	a.Enable()
	if v := get(nvme.FeatureArbitration, cur, 0); v != 7 {
		t.Errorf("arbitration %#x after a reset", v)
	}
	if v := get(nvme.FeatureKeepAliveTimer, cur, 0); v != 7000 {
		t.Errorf("KATO %d after a reset", v)
	}
}

func TestFeatureErrors(t *testing.T) {
	h, _, _ := start(t, tt.Options{})
	a := h.Connect(subNQN, tt.Host("one"))
	set := func(what string, id nvme.FeatureID, nsid, v uint32, data []byte, st nvme.Status) {
		t.Helper()
		c := tt.SetFeature(id, v)
		c.SetNSID(nsid)
		want(t, what, a.Admin.Do(c, data), st, true)
	}
	set("unknown", 0x77, 0, 0, nil, nvme.StatusInvalidField)
	set("interrupt coalescing", nvme.FeatureInterruptCoalescing, 0, 0, nil, nvme.StatusInvalidField)
	set("power state 1", nvme.FeaturePowerManagement, 0, 1, nil, nvme.StatusInvalidField)
	set("DULBE", nvme.FeatureErrorRecovery, nvme.NSIDAll, nvme.ErrorRecoveryDULBE, nil, nvme.StatusInvalidField)
	set("error recovery of no namespace", nvme.FeatureErrorRecovery, 5, 0, nil, nvme.StatusInvalidNamespace)
	set("error recovery of NSID 0", nvme.FeatureErrorRecovery, 0, 0, nil, nvme.StatusInvalidNamespace)
	set("arbitration of a namespace", nvme.FeatureArbitration, 1, 0, nil, nvme.StatusFeatureNotPerNamespace)
	set("queues: FFFFh", nvme.FeatureNumberOfQueues, 0, 0xffff, nil, nvme.StatusInvalidField)
	set("queues: FFFFh", nvme.FeatureNumberOfQueues, 0, 0xffff<<16, nil, nvme.StatusInvalidField)
	set("temperature sensor 1", nvme.FeatureTemperatureThreshold, 0, uint32(nvme.MakeTemperatureThreshold(300, 1, 0)), nil, nvme.StatusInvalidField)
	set("temperature kind 2", nvme.FeatureTemperatureThreshold, 0, uint32(nvme.MakeTemperatureThreshold(300, 0, 2)), nil, nvme.StatusInvalidField)
	set("command set combination 1", nvme.FeatureCommandSetProfile, 0, 1, nil, nvme.StatusCommandSetCombination)
	set("host behavior: extended formats", nvme.FeatureHostBehavior, 0, 0, append([]byte{0, 0, 1}, make([]byte, 509)...), nvme.StatusInvalidField)
	set("host behavior: short", nvme.FeatureHostBehavior, 0, 0, make([]byte, 511), nvme.StatusSGLDataLength)
	c := tt.GetFeature(nvme.FeatureArbitration, 4, 0)
	want(t, "reserved SEL", a.Admin.Do(c, nil), nvme.StatusInvalidField, true)
	want(t, "error recovery of NSID 0", a.Admin.Do(tt.GetFeature(nvme.FeatureErrorRecovery, 0, 0), nil), nvme.StatusInvalidNamespace, true)

	a.IO(1)
	set("queues while there are some", nvme.FeatureNumberOfQueues, 0, 3|3<<16, nil, nvme.StatusCommandSequenceError)
}

// Fact 30: the host identifier came with Connect and stays.
func TestFact30HostIdentifier(t *testing.T) {
	h, _, _ := start(t, tt.Options{})
	a := h.Connect(subNQN, tt.Host("one"))
	r := ok(t, "get", a.Admin.Do(tt.GetFeature(nvme.FeatureHostIdentifier, nvme.FeatureCurrent, nvme.HostIDExtended), nil))
	if !bytes.Equal(r.Data, a.Host.ID[:]) {
		t.Errorf("host identifier % x", r.Data)
	}
	want(t, "64 bits", a.Admin.Do(tt.GetFeature(nvme.FeatureHostIdentifier, nvme.FeatureCurrent, 0), nil), nvme.StatusInvalidField, true)
	want(t, "set", a.Admin.Do(tt.SetFeature(nvme.FeatureHostIdentifier, nvme.HostIDExtended), make([]byte, 16)), nvme.StatusCommandSequenceError, true)
	if v := ok(t, "capabilities", a.Admin.Do(tt.GetFeature(nvme.FeatureHostIdentifier, nvme.FeatureCapabilities, 0), nil)).DW0(); v != 0 {
		t.Errorf("capabilities %#x", v)
	}
}

func TestTimestampAndBehavior(t *testing.T) {
	h, _, _ := start(t, tt.Options{})
	a := h.Connect(subNQN, tt.Host("one"))
	stamp := func(sel nvme.FeatureSelect) (ts nvme.Timestamp) {
		if err := ts.UnmarshalBinary(ok(t, "get", a.Admin.Do(tt.GetFeature(nvme.FeatureTimestamp, sel, 0), nil)).Data); err != nil {
			t.Fatal(err)
		}
		return ts
	}
	if ts := stamp(nvme.FeatureCurrent); ts.Origin != nvme.TimestampOriginReset || ts.Milliseconds > 60000 {
		t.Errorf("%+v", ts)
	}
	b := binary.LittleEndian.AppendUint64(nil, 1_800_000_000_000)
	ok(t, "set", a.Admin.Do(tt.SetFeature(nvme.FeatureTimestamp, 0), b))
	if ts := stamp(nvme.FeatureCurrent); ts.Origin != nvme.TimestampOriginSetFeatures || ts.Milliseconds < 1_800_000_000_000 || ts.Milliseconds > 1_800_000_060_000 {
		t.Errorf("%+v", ts)
	}
	if ts := stamp(nvme.FeatureDefault); ts.Milliseconds != 0 {
		t.Errorf("default %+v", ts)
	}
	hb := make([]byte, nvme.HostBehaviorSize)
	hb[0] = 1
	ok(t, "set", a.Admin.Do(tt.SetFeature(nvme.FeatureHostBehavior, 0), hb))
	if r := ok(t, "get", a.Admin.Do(tt.GetFeature(nvme.FeatureHostBehavior, nvme.FeatureCurrent, 0), nil)); !bytes.Equal(r.Data, hb) {
		t.Errorf("host behavior % x", r.Data[:8])
	}
}

// The ANA log, and what the states do to I/O.
func TestANA(t *testing.T) {
	h, s, _ := start(t, tt.Options{Reactors: 2})
	if _, err := s.AddNamespace(target.NamespaceConfig{NSID: 2, Backend: tt.NewRAM(512, 8), ANAGroup: 7}); err != nil {
		t.Fatal(err)
	}
	h.Namespace(s, 9, tt.NewRAM(512, 8))
	l2 := h.AddListener("192.0.2.2", "4420", 0)
	a := h.Connect(subNQN, tt.Host("one"))
	b := h.ConnectWith(subNQN, tt.Host("two"), 0, tt.DialOptions{Listener: l2})
	read := func(a *tt.Association, rgo bool) nvme.ANALog {
		t.Helper()
		c := tt.GetLog(nvme.LogANA, 4096, 0)
		if rgo {
			c.SetLog(nvme.LogANA, nvme.ANAReturnGroupsOnly, false, 4096, 0)
		}
		var l nvme.ANALog
		if err := l.UnmarshalBinary(ok(t, "ANA log", a.Admin.Do(c, nil)).Data); err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := read(a, false)
	if len(l.Groups) != 2 || l.Groups[0].ID != 1 || !slices.Equal(l.Groups[0].NSIDs, []uint32{1, 9}) || l.Groups[0].State != nvme.ANAOptimized ||
		l.Groups[1].ID != 7 || !slices.Equal(l.Groups[1].NSIDs, []uint32{2}) {
		t.Errorf("%+v", l)
	}
	if l := read(a, true); len(l.Groups) != 2 || len(l.Groups[0].NSIDs) != 0 {
		t.Errorf("groups only: %+v", l)
	}
	io, iob := a.IOOn(1, 1), b.IO(1)
	before := l.ChangeCount
	for state, st := range map[nvme.ANAState]nvme.Status{
		nvme.ANANonOptimized:   nvme.StatusSuccess,
		nvme.ANAInaccessible:   nvme.StatusANAInaccessible,
		nvme.ANAPersistentLoss: nvme.StatusANAPersistentLoss,
		nvme.ANAChange:         nvme.StatusANATransition,
	} {
		if err := s.SetANAState(h.Listener, 7, state); err != nil {
			t.Fatal(err)
		}
		h.Settle()
		want(t, "read through "+state.String(), io.Do(tt.Read(2, 0, 1), nil), st, state == nvme.ANAPersistentLoss)
		ok(t, "another group", io.Do(tt.Read(1, 0, 1), nil))
		ok(t, "another listener", iob.Do(tt.Read(2, 0, 1), nil))
		l := read(a, false)
		if l.Groups[1].State != state || l.ChangeCount <= before || l.Groups[1].ChangeCount == 0 {
			t.Errorf("%+v", l)
		}
		before = l.ChangeCount
		// A queue that connects later sees the same.
		late := a.IO(2)
		want(t, "read on a new queue", late.Do(tt.Read(2, 0, 1), nil), st, state == nvme.ANAPersistentLoss)
		late.Drop()
		late.WaitReleased()
	}
	if read(b, false).Groups[1].State != nvme.ANAOptimized {
		t.Error("the state of one listener shows at another")
	}
	for _, g := range []uint32{0, target.MaxANAGroups + 1} {
		if s.SetANAState(nil, g, nvme.ANAOptimized) == nil {
			t.Errorf("group %d was taken", g)
		}
	}
	if s.SetANAState(nil, 1, 9) == nil {
		t.Error("state 9 was taken")
	}
}
