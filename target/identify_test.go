package target_test

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"rocet/nvme"
	"rocet/target"
	tt "rocet/target/targettest"
)

func idCtrl(t *testing.T, a *tt.Association) nvme.IdentifyController {
	t.Helper()
	var id nvme.IdentifyController
	if err := id.UnmarshalBinary(ok(t, "Identify Controller", a.Admin.Do(tt.Identify(nvme.CNSController, 0), nil)).Data); err != nil {
		t.Fatal(err)
	}
	return id
}

func idNS(t *testing.T, a *tt.Association, nsid uint32) nvme.IdentifyNamespace {
	t.Helper()
	var id nvme.IdentifyNamespace
	if err := id.UnmarshalBinary(ok(t, "Identify Namespace", a.Admin.Do(tt.Identify(nvme.CNSNamespace, nsid), nil)).Data); err != nil {
		t.Fatal(err)
	}
	return id
}

// Facts 23, 24 and 31: what Identify Controller says, and that its parts agree.
func TestFact31IdentifyController(t *testing.T) {
	h, _, _ := start(t, tt.Options{InCapsule: 4096, Target: target.Options{Firmware: "1.2.3"}})
	a := h.Connect(subNQN, tt.Host("one"))
	id := idCtrl(t, a)
	capabilities := nvme.CAP(a.Admin.Do(tt.PropertyGet(nvme.RegCAP, 8), nil).Result64())
	for what, ok := range map[string]bool{
		"IOCCSZ is (64 + in-capsule data)/16": id.IOCCSZ == (64+4096)/16,
		"IORCSZ is 1":                         id.IORCSZ == 1,
		"ICDOFF is 0":                         id.ICDOFF == 0,
		"MAXCMD is there":                     id.MAXCMD == 128,
		"MAXCMD is not above MQES":            id.MAXCMD <= capabilities.MQES()+1,
		"MDTS is 1 MiB":                       1<<id.MDTS*4096 == 1<<20,
		"CNTLID":                              id.CNTLID == a.CNTLID,
		"VER is VS":                           id.VER == nvme.Version21,
		"KAS is there":                        id.KAS != 0,
		"SUBNQN":                              id.SUBNQN.String() == subNQN,
		"model":                               nvme.ASCII(id.MN[:]) == "Rocet",
		"serial":                              len(nvme.ASCII(id.SN[:])) == 20,
		"firmware":                            nvme.ASCII(id.FR[:]) == "1.2.3",
		"FUSES only with Compare":             id.FUSES == 0,
		"entry sizes":                         id.SQES == 0x66 && id.CQES == 0x44,
		"128-bit host identifiers":            id.CTRATT&nvme.CTRATTHostID128 != 0,
		"traffic based keep alive":            id.CTRATT&nvme.CTRATTTrafficKeepAlive != 0,
		"ANA in CMIC":                         id.CMIC&nvme.CMICANA != 0,
		"ANATT":                               id.ANATT != 0,
		"ANA groups":                          id.NANAGRPID != 0 && id.NANAGRPID <= id.ANAGRPMAX,
		"namespaces":                          id.MNAN != 0 && id.MNAN <= id.NN,
		"no optional admin commands":          id.OACS == 0,
		"ONCS":                                id.ONCS == nvme.ONCSCompare|nvme.ONCSDatasetManagement|nvme.ONCSWriteZeroes|nvme.ONCSVerify|nvme.ONCSSaveFeatures|nvme.ONCSTimestamp,
		"VWC":                                 id.VWC == nvme.VWCPresent|nvme.VWCFlushAllAccepted,
		"extended log data":                   id.LPA&nvme.LPAExtendedData != 0,
		"OAES":                                id.OAES == nvme.OAESNamespaceAttribute|nvme.OAESANAChange,
		"SGLS is the transport's":             id.SGLS == nvme.SGLSSupported|nvme.SGLSKeyed|nvme.SGLSOffset,
		"MSDBD":                               id.MSDBD == 1,
		"Disconnect":                          id.OFCS == nvme.OFCSDisconnect,
		"dynamic controllers":                 id.FCATT == 0,
		"I/O controller":                      id.CNTRLTYPE == nvme.ControllerIO,
		"one firmware slot, read-only":        id.FRMW == 1<<1|1,
		"no write protection, sanitize or reserve": id.NWPC == 0 && id.SANICAP == 0 && id.ONCS&nvme.ONCSReservations == 0,
	} {
		if !ok {
			t.Errorf("not so: %s; %+v", what, id)
		}
	}
}

// Fact 31: ONCS, VWC and the effects log say what every namespace has.
func TestFact31CapabilitiesFollowBackends(t *testing.T) {
	h := tt.New(t, tt.Options{})
	s := h.Subsystem(subNQN)
	a := h.Connect(subNQN, tt.Host("one"))
	effects := func() nvme.CommandEffectsLog {
		var l nvme.CommandEffectsLog
		if err := l.UnmarshalBinary(a.Log(nvme.LogCommandEffects, nvme.CommandEffectsSize)); err != nil {
			t.Fatal(err)
		}
		return l
	}
	all := uint16(nvme.ONCSCompare | nvme.ONCSDatasetManagement | nvme.ONCSWriteZeroes | nvme.ONCSVerify)
	fixed := uint16(nvme.ONCSSaveFeatures | nvme.ONCSTimestamp)
	if id := idCtrl(t, a); id.ONCS != all|fixed || id.VWC&nvme.VWCPresent != 0 {
		t.Errorf("without namespaces ONCS is %#x, VWC %#x", id.ONCS, id.VWC)
	}
	want(t, "VWC feature without a cache", a.Admin.Do(tt.GetFeature(nvme.FeatureVolatileWriteCache, nvme.FeatureCurrent, 0), nil), nvme.StatusInvalidField, true)
	h.Namespace(s, 1, tt.NewRAM(512, 8))
	h.Namespace(s, 2, tt.NewRAM(512, 8).Change(func(i *target.Info) { i.Ops = target.Ops(target.OpDeallocate) }))
	if id := idCtrl(t, a); id.ONCS != nvme.ONCSDatasetManagement|fixed || id.VWC&nvme.VWCPresent == 0 {
		t.Errorf("ONCS is %#x, VWC %#x", id.ONCS, id.VWC)
	}
	l := effects()
	for op, there := range map[nvme.Opcode]bool{
		nvme.OpRead: true, nvme.OpWrite: true, nvme.OpFlush: true, nvme.OpDatasetManagement: true,
		nvme.OpCompare: false, nvme.OpWriteZeroes: false, nvme.OpVerify: false, nvme.OpWriteUncorrectable: false, nvme.OpCopy: false,
	} {
		if (l.IO[op]&nvme.EffectSupported != 0) != there {
			t.Errorf("effects log: %s is %#x", op.Name(false), l.IO[op])
		}
		if there && (l.IO[op]&nvme.EffectBlockContent != 0) != (op == nvme.OpWrite || op == nvme.OpDatasetManagement) {
			t.Errorf("effects log: %s changes user data: %#x", op.Name(false), l.IO[op])
		}
	}
	// What the log says of admin commands is what happens.
	for op := range 256 {
		op := nvme.Opcode(op)
		if op == nvme.AdminAER || op == nvme.OpFabrics {
			continue
		}
		c := tt.Admin(op)
		var data []byte
		if op == nvme.AdminSetFeatures {
			c = tt.SetFeature(nvme.FeatureArbitration, 0)
		}
		st := a.Admin.Do(c, data).Status
		if (l.Admin[op]&nvme.EffectSupported != 0) == (st == nvme.StatusInvalidOpcode) {
			t.Errorf("%s: effects log %#x, status %v", op.Name(true), l.Admin[op], st)
		}
	}
	io := a.IO(1)
	for op := range 256 {
		op := nvme.Opcode(op)
		if op == nvme.OpFabrics {
			continue
		}
		c := tt.IO(op, 2, 0, 1)
		r := io.Do(c, make([]byte, 512))
		if (l.IO[op]&nvme.EffectSupported != 0) == (r.Status == nvme.StatusInvalidOpcode) {
			t.Errorf("%s: effects log %#x, status %v", op.Name(false), l.IO[op], r.Status)
		}
	}
}

// Facts 30 and 31: namespaces and their identifiers.
func TestFact30IdentifyNamespace(t *testing.T) {
	h := tt.New(t, tt.Options{})
	s := h.Subsystem(subNQN)
	ns := h.Namespace(s, 3, tt.NewRAM(512, 1000).Change(func(i *target.Info) {
		i.Atomic = target.AtomicUnits{Normal: 8, PowerFail: 4, Boundary: 16}
		i.WriteGranularity, i.OptimalWriteSize = 8, 256
		i.OptimalIOBoundary = 256
		i.EUI64 = nvme.EUI64{1, 2, 3, 4, 5, 6, 7, 8}
	}))
	a := h.Connect(subNQN, tt.Host("one"))
	id := idNS(t, a, 3)
	for what, ok := range map[string]bool{
		"size":                  id.NSZE == 1000 && id.NCAP == 1000 && id.NUSE == 1000 && id.NVMCAP.Lo == 512000,
		"format":                id.BlockSize() == 512 && id.NLBAF == 0 && id.FormatIndex() == 0,
		"shared":                id.NMIC == nvme.NMICShared,
		"optimized ANA group":   id.ANAGRPID == 1,
		"NGUID":                 id.NGUID == ns.NGUID() && !id.NGUID.IsZero(),
		"EUI64 of the device":   id.EUI64 == nvme.EUI64{1, 2, 3, 4, 5, 6, 7, 8},
		"atomic units":          id.NSFEAT&nvme.NSFEATAtomicUnits != 0 && id.NAWUN == 7 && id.NAWUPF == 3 && id.NACWU == 0 && id.NABSN == 15,
		"preferred sizes":       id.NSFEAT&nvme.NSFEATOptimalUnits != 0 && id.NPWG == 7 && id.NPWA == 0 && id.NOWS == 255,
		"NOIOB":                 id.NOIOB == 256,
		"no protection":         id.DPC == 0 && id.DPS == 0 && id.MC == 0,
		"deallocated reads":     id.DLFEAT == nvme.DLFEATReadZeroes|nvme.DLFEATWriteZeroesDealloc,
		"not write protected":   id.NSATTR == 0,
		"no reservations":       id.RESCAP == 0,
		"no thin provisioning ": id.NSFEAT&nvme.NSFEATThinProvisioning == 0,
	} {
		if !ok {
			t.Errorf("not so: %s; %+v", what, id)
		}
	}
	var ids nvme.NamespaceIDs
	if err := ids.UnmarshalBinary(ok(t, "descriptors", a.Admin.Do(tt.Identify(nvme.CNSNamespaceDescriptors, 3), nil)).Data); err != nil {
		t.Fatal(err)
	}
	if ids.UUID != ns.UUID() || ids.UUID.IsZero() || ids.NGUID != ns.NGUID() || ids.CSI != nvme.CSINVM {
		t.Errorf("descriptors %+v", ids)
	}
	zeros := make([]byte, nvme.IdentifySize)
	for _, cns := range []nvme.CNS{nvme.CNSNamespace, nvme.CNSCommandSetNamespace, nvme.CNSIndependentNamespace, nvme.CNSAllocatedNamespace, nvme.CNSIndependentAllocatedNS, nvme.CNSCommandSetAllocatedNSData} {
		for _, nsid := range []uint32{1, 2, 4, target.MaxNamespaces} {
			if r := ok(t, "inactive", a.Admin.Do(tt.Identify(cns, nsid), nil)); !slices.Equal(r.Data, zeros) {
				t.Errorf("CNS %#x of inactive namespace %d is not zero", cns, nsid)
			}
		}
		for _, nsid := range []uint32{0, target.MaxNamespaces + 1, nvme.NSIDMax, nvme.NSIDAll} {
			want(t, "impossible NSID", a.Admin.Do(tt.Identify(cns, nsid), nil), nvme.StatusInvalidNamespace, true)
		}
		if cns != nvme.CNSCommandSetNamespace && cns != nvme.CNSCommandSetAllocatedNSData {
			if r := ok(t, "active", a.Admin.Do(tt.Identify(cns, 3), nil)); slices.Equal(r.Data, zeros) {
				t.Errorf("CNS %#x of an active namespace is zero", cns)
			}
		}
	}
	want(t, "descriptors of an inactive namespace", a.Admin.Do(tt.Identify(nvme.CNSNamespaceDescriptors, 1), nil), nvme.StatusInvalidNamespace, true)
	io := a.IO(1)
	for _, nsid := range []uint32{0, 1, 2, 4, target.MaxNamespaces + 1, nvme.NSIDMax, nvme.NSIDAll} {
		want(t, "I/O to an inactive namespace", io.Do(tt.Read(nsid, 0, 1), nil), nvme.StatusInvalidNamespace, true)
	}
}

// Identifiers are stable, come from the device where it has them, and never twice.
func TestNamespaceIdentifiers(t *testing.T) {
	make2 := func() (u nvme.UUID, g nvme.NGUID) {
		h := tt.New(t, tt.Options{})
		ns := h.Namespace(h.Subsystem(subNQN), 1, tt.NewRAM(512, 8))
		return ns.UUID(), ns.NGUID()
	}
	u1, g1 := make2()
	if u2, g2 := make2(); u1 != u2 || g1 != g2 {
		t.Error("identifiers change with a restart")
	}
	if u1[6]>>4 != 8 || u1[8]>>6 != 2 {
		t.Errorf("UUID %s is not of version 8", u1)
	}
	h := tt.New(t, tt.Options{})
	s := h.Subsystem(subNQN)
	dev := func() *tt.RAM {
		return tt.NewRAM(512, 8).Change(func(i *target.Info) { i.NGUID = nvme.NGUID{9, 9} })
	}
	if ns := h.Namespace(s, 1, dev()); ns.NGUID() != (nvme.NGUID{9, 9}) {
		t.Errorf("NGUID %s is not the device's", ns.NGUID())
	}
	if ns := h.Namespace(s, 2, dev()); ns.NGUID() == (nvme.NGUID{9, 9}) || ns.NGUID().IsZero() {
		t.Errorf("the device's NGUID is there twice, or none: %s", ns.NGUID())
	}
	uuid := nvme.UUID{1, 2, 3}
	if _, err := s.AddNamespace(target.NamespaceConfig{Backend: tt.NewRAM(512, 8), UUID: uuid}); err != nil {
		t.Error(err)
	}
	if _, err := s.AddNamespace(target.NamespaceConfig{Backend: tt.NewRAM(512, 8), UUID: uuid}); err == nil {
		t.Error("a UUID was taken twice")
	}
	if s.Namespace(3) == nil {
		t.Error("NSID 0 did not take the lowest free")
	}
}

func TestIdentifyLists(t *testing.T) {
	h := tt.New(t, tt.Options{})
	s := h.Subsystem(subNQN)
	for _, nsid := range []uint32{5, 1, 1024, 7} {
		h.Namespace(s, nsid, tt.NewRAM(512, 8))
	}
	a := h.Connect(subNQN, tt.Host("one"))
	b := h.Connect(subNQN, tt.Host("two"))
	for _, cns := range []nvme.CNS{nvme.CNSActiveNamespaces, nvme.CNSCommandSetActiveNS, nvme.CNSAllocatedNamespaces, nvme.CNSCommandSetAllocatedNS} {
		for above, ids := range map[uint32][]uint32{0: {1, 5, 7, 1024}, 1: {5, 7, 1024}, 6: {7, 1024}, 1024: nil, 0xfffffffd: nil} {
			got, err := nvme.ParseNSIDList(ok(t, "list", a.Admin.Do(tt.Identify(cns, above), nil)).Data)
			if err != nil || !slices.Equal(got, ids) {
				t.Errorf("CNS %#x above %d: %v, want %v", cns, above, got, ids)
			}
		}
		for _, above := range []uint32{nvme.NSIDMax, nvme.NSIDAll} {
			want(t, "list", a.Admin.Do(tt.Identify(cns, above), nil), nvme.StatusInvalidNamespace, true)
		}
	}
	controllers := func(cns nvme.CNS, nsid uint32, from uint16, ids ...uint16) {
		t.Helper()
		c := tt.Identify(cns, nsid)
		c.SetIdentify(cns, from, nvme.CSINVM, 0)
		got, err := nvme.ParseControllerList(ok(t, "controllers", a.Admin.Do(c, nil)).Data)
		if err != nil || !slices.Equal(got, ids) {
			t.Errorf("controllers from %d: %v, want %v", from, got, ids)
		}
	}
	controllers(nvme.CNSControllers, 0, 0, a.CNTLID, b.CNTLID)
	controllers(nvme.CNSControllers, 0, b.CNTLID, b.CNTLID)
	controllers(nvme.CNSNamespaceControllers, 5, 0, a.CNTLID, b.CNTLID)
	want(t, "controllers of an inactive namespace", a.Admin.Do(tt.Identify(nvme.CNSNamespaceControllers, 2), nil), nvme.StatusInvalidNamespace, true)

	sets, err := nvme.ParseCommandSetCombinations(func() []byte {
		c := tt.Identify(nvme.CNSCommandSetCombinations, 0)
		c.SetIdentify(nvme.CNSCommandSetCombinations, 0xffff, nvme.CSINVM, 0)
		return ok(t, "combinations", a.Admin.Do(c, nil)).Data
	}())
	if err != nil || len(sets) != 1 || sets[0] != nvme.CombinationNVM {
		t.Errorf("combinations %v, %v", sets, err)
	}
	var nvm nvme.NVMIdentifyController
	if err := nvm.UnmarshalBinary(ok(t, "CNS 06h", a.Admin.Do(tt.Identify(nvme.CNSCommandSetController, 0), nil)).Data); err != nil || nvm.WZSL != 8 || nvm.VSL != 8 {
		t.Errorf("CNS 06h: %+v, %v", nvm, err)
	}
	for _, cns := range []nvme.CNS{nvme.CNSNVMSetList, nvme.CNSNamespaceGranularity, nvme.CNSUUIDList, nvme.CNSPrimaryControllerCaps,
		nvme.CNSSecondaryControllers, nvme.CNSDomainList, nvme.CNSEnduranceGroupList, nvme.CNSNamespaceFormat, nvme.CNSPorts, 0x55, 0xff} {
		want(t, "unknown CNS", a.Admin.Do(tt.Identify(cns, 1), nil), nvme.StatusInvalidField, true)
	}
	for _, cns := range []nvme.CNS{nvme.CNSCommandSetNamespace, nvme.CNSCommandSetController, nvme.CNSCommandSetActiveNS} {
		c := tt.Identify(cns, 1)
		c.SetIdentify(cns, 0, nvme.CSIZoned, 0)
		want(t, "another command set", a.Admin.Do(c, nil), nvme.StatusInvalidField, true)
	}
}

func TestReadOnlyNamespace(t *testing.T) {
	h := tt.New(t, tt.Options{})
	s := h.Subsystem(subNQN)
	if _, err := s.AddNamespace(target.NamespaceConfig{NSID: 1, Backend: tt.NewRAM(512, 8), ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	a := h.Connect(subNQN, tt.Host("one"))
	if id := idNS(t, a, 1); id.NSATTR != nvme.NSATTRWriteProtected {
		t.Errorf("NSATTR %#x", id.NSATTR)
	}
	io := a.IO(1)
	ok(t, "read", io.Do(tt.Read(1, 0, 1), nil))
	ok(t, "flush", io.Do(tt.Flush(1), nil))
	ok(t, "compare", io.Do(tt.IO(nvme.OpCompare, 1, 0, 1), make([]byte, 512)))
	want(t, "write", io.Do(tt.Write(1, 0, 1), make([]byte, 512)), nvme.StatusNamespaceWriteProtected, true)
	want(t, "write zeroes", io.Do(tt.IO(nvme.OpWriteZeroes, 1, 0, 1), nil), nvme.StatusNamespaceWriteProtected, true)
	c, data := tt.Deallocate(1, tt.Range(0, 1))
	want(t, "deallocate", io.Do(c, data), nvme.StatusNamespaceWriteProtected, true)
	c.SetDSMAttributes(nvme.DSMIntegralRead)
	ok(t, "a hint", io.Do(c, data))
}

// The discovery subsystem and its log.
func discover(t *testing.T, h *tt.Harness, host target.HostIdentity, o tt.DialOptions) nvme.DiscoveryLog {
	t.Helper()
	a := h.ConnectWith(nvme.DiscoveryNQN, host, 0, o)
	return readDiscovery(t, a)
}

func readDiscovery(t *testing.T, a *tt.Association) nvme.DiscoveryLog {
	t.Helper()
	header := a.Log(nvme.LogDiscovery, nvme.DiscoveryHeaderSize)
	n := int(binary.LittleEndian.Uint64(header[8:]))
	var log nvme.DiscoveryLog
	if err := log.UnmarshalBinary(a.Log(nvme.LogDiscovery, nvme.DiscoveryHeaderSize+n*nvme.DiscoveryEntrySize)); err != nil {
		t.Fatal(err)
	}
	return log
}

func entries(log nvme.DiscoveryLog) (list []string) {
	for i := range log.Entries {
		e := &log.Entries[i]
		list = append(list, strings.Join([]string{e.SUBNQN.String(), nvme.ASCII(e.TRADDR[:]), nvme.ASCII(e.TRSVCID[:])}, " "))
	}
	return list
}

func TestDiscovery(t *testing.T) {
	h, s, _ := start(t, tt.Options{})
	other := h.Subsystem("nqn.2026-01.io.rocet:other")
	l2 := h.AddListener("192.0.2.2", "4421", 0)
	wild := h.AddListener("0.0.0.0", "4422", 0)
	h.AddListener("127.0.0.1", "4423", 0)
	log := discover(t, h, tt.Host("one"), tt.DialOptions{})
	got := entries(log)
	wantList := []string{
		nvme.DiscoveryNQN + " 192.0.2.1 4420",
		"nqn.2026-01.io.rocet:other 192.0.2.1 4420", subNQN + " 192.0.2.1 4420",
		"nqn.2026-01.io.rocet:other 192.0.2.2 4421", subNQN + " 192.0.2.2 4421",
		"nqn.2026-01.io.rocet:other 192.0.2.1 4422", subNQN + " 192.0.2.1 4422",
	}
	if !slices.Equal(got, wantList) {
		t.Errorf("entries\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(wantList, "\n"))
	}
	e := log.Entries[0]
	if e.SUBTYPE != nvme.SubsystemCurrentDiscovery || e.EFLAGS&nvme.EFLAGSPersistentConnection == 0 || e.CNTLID != 0xffff || e.ASQSZ < 32 || e.TRTYPE != nvme.TransportLoop {
		t.Errorf("own entry %+v", e)
	}
	if e := log.Entries[1]; e.SUBTYPE != nvme.SubsystemNVM || e.PORTID != h.Listener.PortID() {
		t.Errorf("entry %+v", e)
	}
	if log.Entries[3].PORTID != l2.PortID() || l2.PortID() == h.Listener.PortID() || wild.PortID() == l2.PortID() {
		t.Error("port ids are wrong")
	}
	// Hosts see what they may see, where they may reach it.
	other.SetAllowAnyHost(false)
	s.SetListeners(l2)
	got = entries(discover(t, h, tt.Host("one"), tt.DialOptions{Listener: wild, LocalAddr: "127.0.0.1"}))
	wantList = []string{subNQN + " 192.0.2.2 4421", nvme.DiscoveryNQN + " 127.0.0.1 4422"}
	if !slices.Equal(got, wantList) {
		t.Errorf("entries\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(wantList, "\n"))
	}
	r := h.Dial(tt.DialOptions{}).Do(tt.Connect(0, 31, 0), tt.ConnectData(subNQN, tt.Host("one"), nvme.CNTLIDDynamic))
	want(t, "Connect where the subsystem is not", r, nvme.StatusConnectInvalidParameters, true)
	h.ConnectWith(subNQN, tt.Host("one"), 0, tt.DialOptions{Listener: l2})
	// Entries of this port only.
	a := h.Connect(nvme.DiscoveryNQN, tt.Host("one"))
	c := tt.GetLog(nvme.LogDiscovery, 4096, 0)
	c.SetLog(nvme.LogDiscovery, nvme.DiscoveryLSPPortLocal, false, 4096, 0)
	if err := log.UnmarshalBinary(ok(t, "port local", a.Admin.Do(c, nil)).Data); err != nil || len(log.Entries) != 1 {
		t.Errorf("port local: %v, %v", entries(log), err)
	}
	c.SetLog(nvme.LogDiscovery, nvme.DiscoveryLSPExtended, false, 4096, 0)
	want(t, "extended entries", a.Admin.Do(c, nil), nvme.StatusInvalidField, true)
}

func TestDiscoveryController(t *testing.T) {
	h, _, _ := start(t, tt.Options{})
	a := h.Connect(nvme.DiscoveryNQN, tt.Host("one"))
	id := idCtrl(t, a)
	if id.CNTRLTYPE != nvme.ControllerDiscovery || id.OAES != nvme.OAESDiscoveryChange || id.SUBNQN.String() != nvme.DiscoveryNQN || id.MAXCMD == 0 || id.LPA&nvme.LPAExtendedData == 0 {
		t.Errorf("%+v", id)
	}
	want(t, "Identify Namespace", a.Admin.Do(tt.Identify(nvme.CNSNamespace, 1), nil), nvme.StatusInvalidField, true)
	want(t, "SMART", a.Admin.Do(tt.GetLog(nvme.LogSMART, 512, 0), nil), nvme.StatusInvalidLogPage, true)
	want(t, "number of queues", a.Admin.Do(tt.SetFeature(nvme.FeatureNumberOfQueues, 0), nil), nvme.StatusInvalidField, true)
	ok(t, "Keep Alive", a.Admin.Do(tt.Admin(nvme.AdminKeepAlive), nil))
	_, r := a.TryIO(1, tt.DialOptions{})
	want(t, "an I/O queue", r, nvme.StatusConnectInvalidParameters, true)
	b := h.Connect(subNQN, tt.Host("one"))
	want(t, "discovery log of an I/O controller", b.Admin.Do(tt.GetLog(nvme.LogDiscovery, 1024, 0), nil), nvme.StatusInvalidLogPage, true)
}

// Fact 29: pieces of the discovery log belong together; GENCTR tells of changes.
func TestFact29DiscoveryConsistent(t *testing.T) {
	h, _, _ := start(t, tt.Options{})
	a := h.ConnectWith(nvme.DiscoveryNQN, tt.Host("one"), 60000, tt.DialOptions{})
	ok(t, "AEC", a.Admin.Do(tt.SetFeature(nvme.FeatureAsyncEventConfig, nvme.OAESDiscoveryChange), nil))
	p := aer(a)
	first := readDiscovery(t, a)
	if len(first.Entries) != 2 {
		t.Fatalf("%v", entries(first))
	}
	header := a.Log(nvme.LogDiscovery, nvme.DiscoveryHeaderSize)
	h.Subsystem("nqn.2026-01.io.rocet:a-before-all")
	if e := event(t, p); e != nvme.AsyncDiscoveryChange {
		t.Errorf("event %#x", e)
	}
	// The host reads the entries of the header that it has.
	r := ok(t, "entries", a.Admin.Do(tt.GetLog(nvme.LogDiscovery, 2048, nvme.DiscoveryHeaderSize), nil))
	var log nvme.DiscoveryLog
	if err := log.UnmarshalBinary(append(header, r.Data...)); err != nil || !slices.Equal(entries(log), entries(first)) {
		t.Errorf("entries %v, want %v", entries(log), entries(first))
	}
	second := readDiscovery(t, a)
	if second.GENCTR == first.GENCTR || len(second.Entries) != 3 {
		t.Errorf("GENCTR %d and %d, entries %v", first.GENCTR, second.GENCTR, entries(second))
	}
	// A host without a keep alive timeout gets no change notices.
	b := h.Connect(nvme.DiscoveryNQN, tt.Host("two"))
	ok(t, "AEC", b.Admin.Do(tt.SetFeature(nvme.FeatureAsyncEventConfig, nvme.OAESDiscoveryChange), nil))
	pb := aer(b)
	h.AddListener("192.0.2.7", "1", 0)
	if e := event(t, aer(a)); e != nvme.AsyncDiscoveryChange {
		t.Errorf("event %#x", e)
	}
	quiet(t, h, pb, "KATO 0")
}
