package nvme

import (
	"bytes"
	"reflect"
	"testing"
)

func TestArrayLogs(t *testing.T) {
	var s, s2 SupportedLogs
	s[LogDiscovery] = LogPageSupported | LogDiscoveryExtended
	s[255] = LogPageIndexOffset
	b := filled(SupportedLogsSize)
	s.MarshalTo(b)
	if b[0x70*4] != 1 || b[0x70*4+2] != 1 || b[1020] != 2 || b[0] != 0 {
		t.Errorf("Supported Log Pages: % x", b)
	}
	if err := s2.UnmarshalBinary(b); err != nil || s2 != s {
		t.Error(err)
	}
	if err := s2.UnmarshalBinary(b[1:]); err == nil {
		t.Error("a short log was accepted")
	}
	var f, f2 FeatureEffectsLog
	f[FeatureNSWriteProtect] = FeatureSupported | FeatureScopeNamespace
	f[0] = FeatureScopeControllerQueue
	b = filled(FeatureEffectsSize)
	f.MarshalTo(b)
	if got, want := b[0x84*4:0x84*4+4], []byte{1, 0, 0x10, 0}; !bytes.Equal(got, want) || b[3] != 4 {
		t.Errorf("Feature effects: % x", got)
	}
	if err := f2.UnmarshalBinary(b); err != nil || f2 != f {
		t.Error(err)
	}
	if err := f2.UnmarshalBinary(b[1:]); err == nil {
		t.Error("a short log was accepted")
	}
}

func TestANALog(t *testing.T) {
	in := ANALog{ChangeCount: 7, Groups: []ANAGroup{
		{ID: 1, ChangeCount: 3, State: ANAOptimized, NSIDs: []uint32{1, 0x01020304}},
		{ID: 2, State: ANAChange},
	}}
	if in.Size() != 16+32+8+32 {
		t.Errorf("size %d", in.Size())
	}
	b := filled(in.Size() + 1)
	in.MarshalTo(b)
	want := unhex(t, 88, `0700000000000000 0200 000000000000
		01000000 02000000 0300000000000000 01 000000000000000000000000000000 01000000 04030201
		02000000 00000000 0000000000000000 0f`)
	if !bytes.Equal(b, append(want, 0x55)) {
		t.Errorf("first difference at byte %d", firstDifference(b, want))
	}
	var out ANALog
	if err := out.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(in, out) {
		t.Errorf("%+v, %v", out, err)
	}
	for n := range len(want) {
		if err := out.UnmarshalBinary(want[:n]); err == nil {
			t.Errorf("%d of %d bytes accepted", n, len(want))
		}
	}
	if !reflect.DeepEqual(in, out) {
		t.Errorf("a failed read changed the log: %+v", out)
	}
	// A namespace count whose bytes overflow 32 bits.
	copy(want[20:24], []byte{1, 0, 0, 0x40})
	if err := out.UnmarshalBinary(want); err == nil {
		t.Error("2^30+1 namespaces accepted")
	}
	if (&ANALog{}).Size() != 16 {
		t.Error("an empty log has a header")
	}
}

func TestDiscoveryLog(t *testing.T) {
	in := DiscoveryLog{GENCTR: 5, Entries: make([]DiscoveryEntry, 2)}
	e := &in.Entries[1]
	*e = DiscoveryEntry{
		TRTYPE: TransportRDMA, ADRFAM: AddressIPv4, SUBTYPE: SubsystemNVM, TREQ: TREQSecureNotRequired | TREQDisableSQFlow,
		PORTID: 1, CNTLID: CNTLIDDynamic, ASQSZ: 32, EFLAGS: EFLAGSDuplicateInfo | EFLAGSPersistentConnection,
		SUBNQN: MakeNQNField(DiscoveryNQN),
		TSAS:   RDMATSAS(RDMAQPTypeConnected, RDMAProviderRoCEv2, RDMACMSRDMACM, 0x1234),
	}
	PutASCII(e.TRSVCID[:], "4420")
	PutASCII(e.TRADDR[:], "10.9.0.1")
	b := filled(in.Size() + 1)
	if n := in.MarshalTo(b); n != 3072 || in.Size() != 3072 || b[3072] != 0x55 {
		t.Fatalf("wrote %d bytes", n)
	}
	if want := unhex(t, 1024, "0500000000000000 0200000000000000 0000"); !bytes.Equal(b[:1024], want) {
		t.Errorf("header: % x", b[:32])
	}
	p := b[2048:]
	if want := unhex(t, 32, "01 01 02 06 0100 ffff 2000 0300"); !bytes.Equal(p[:32], want) {
		t.Errorf("entry: % x", p[:32])
	}
	if string(p[32:64]) != "4420                            " || string(p[256:293]) != DiscoveryNQN+"\x00" ||
		string(p[512:521]) != "10.9.0.1 " || !bytes.Equal(p[768:780], unhex(t, 12, "01 04 01 0000000000 3412 0000")) {
		t.Error("entry's strings or TSAS")
	}
	var out DiscoveryLog
	if err := out.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(in, out) {
		t.Errorf("%v", err)
	}
	for _, n := range []int{0, 1023, 1024, 3071} {
		if err := out.UnmarshalBinary(b[:n]); err == nil {
			t.Errorf("%d bytes accepted", n)
		}
	}
	b[15] = 0x80 // NUMREC of 2^63
	if err := out.UnmarshalBinary(b); err == nil {
		t.Error("2^63 records accepted")
	}
	b[15], b[16] = 0, 1
	if err := out.UnmarshalBinary(b); err == nil {
		t.Error("record format 1 accepted")
	}
	if TCPTSAS(TCPSecurityTLS13) != (TSAS{2}) {
		t.Error("TSAS of TCP")
	}
}

func TestReservationReport(t *testing.T) {
	for _, extended := range []bool{false, true} {
		in := ReservationReport{Extended: extended, Generation: 9, Type: ReservationExclusiveAccessAll, Persist: true,
			Registrants: []Registrant{
				{CNTLID: 1, Holder: true, HostID: UUID{0: 0xa0, 7: 0xa7}, Key: 0x0102030405060708},
				{CNTLID: CNTLIDDynamic, HostID: UUID{0: 0xb0}, Key: 2},
			}}
		want := unhex(t, 72, `09000000 06 0200 0000 01 0000000000000000000000000000
			0100 01 0000000000 a0000000000000a7 0807060504030201
			ffff 00 0000000000 b000000000000000 0200000000000000`)
		if extended {
			in.Registrants[0].HostID[15] = 0xaf
			want = unhex(t, 192, `09000000 06 0200 0000 01 0000000000000000000000000000
				00000000000000000000000000000000000000000000000000000000000000000000000000000000
				0100 01 0000000000 0807060504030201 a0000000000000a700000000000000af
				0000000000000000000000000000000000000000000000000000000000000000
				ffff 00 0000000000 0200000000000000 b0`)
		}
		b := filled(in.Size() + 1)
		if n := in.MarshalTo(b); n != len(want) || in.Size() != n {
			t.Fatalf("extended %t: %d bytes, want %d", extended, n, len(want))
		}
		if !bytes.Equal(b, append(want, 0x55)) {
			t.Errorf("extended %t: first difference at byte %d\n% x\n% x", extended, firstDifference(b, want), b, want)
		}
		out := ReservationReport{Extended: extended}
		if err := out.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(in, out) {
			t.Errorf("extended %t: %+v, %v", extended, out, err)
		}
		for n := range len(want) {
			if err := out.UnmarshalBinary(want[:n]); err == nil {
				t.Errorf("extended %t: %d of %d bytes accepted", extended, n, len(want))
			}
		}
	}
}

func TestReservationKeys(t *testing.T) {
	var k ReservationKeys
	b := unhex(t, 16, "0807060504030201 1817161514131211")
	if err := k.UnmarshalBinary(b); err != nil || k != (ReservationKeys{0x0102030405060708, 0x1112131415161718}) {
		t.Errorf("%+v, %v", k, err)
	}
	if err := k.UnmarshalBinary(b[:8]); err != nil || k != (ReservationKeys{CRKEY: 0x0102030405060708}) {
		t.Errorf("Release: %+v, %v", k, err)
	}
	for _, n := range []int{0, 7, 9, 15} {
		if err := k.UnmarshalBinary(b[:n]); err == nil {
			t.Errorf("%d bytes accepted", n)
		}
	}
}

func TestFeatureValues(t *testing.T) {
	if q := MakeQueueCounts(8, 16); q != 0x000f0007 || q.Submission() != 8 || q.Completion() != 16 {
		t.Errorf("queue counts %#x", uint32(q))
	}
	if q := QueueCounts(0xffffffff); q.Submission() != 65536 || q.Completion() != 65536 {
		t.Errorf("queue counts %#x", uint32(q))
	}
	if l, m, h := Arbitration(0x04030207).Weights(); l != 2 || m != 3 || h != 4 || Arbitration(0x04030207).Burst() != ArbitrationNoLimit {
		t.Error("arbitration")
	}
	if x := MakeTemperatureThreshold(345, 2, TemperatureUnder); x != 0x00120159 || x.Kelvin() != 345 || x.Sensor() != 2 ||
		x.Kind() != TemperatureUnder || x.Hysteresis() != 0 || (x|3<<22).Hysteresis() != 3 {
		t.Errorf("temperature threshold %#x", uint32(x))
	}
	if i := InterruptCoalescing(0x0a07); i.Threshold() != 7 || i.Time().Microseconds() != 1000 {
		t.Error("interrupt coalescing")
	}
	in := Timestamp{Milliseconds: 0x010203040506, Origin: TimestampOriginSetFeatures, Stopped: true}
	b := filled(8)
	in.MarshalTo(b)
	if want := unhex(t, 8, "060504030201 03 00"); !bytes.Equal(b, want) {
		t.Errorf("timestamp % x", b)
	}
	var out Timestamp
	if err := out.UnmarshalBinary(b); err != nil || out != in {
		t.Errorf("timestamp %+v, %v", out, err)
	}
	if err := out.UnmarshalBinary(b[1:]); err == nil {
		t.Error("a short timestamp was accepted")
	}
	(&Timestamp{Milliseconds: 1 << 48}).MarshalTo(b)
	if !bytes.Equal(b, make([]byte, 8)) {
		t.Errorf("49 bits spill: % x", b)
	}
}

func TestAsyncEvents(t *testing.T) {
	for _, c := range []struct {
		event AsyncEvent
		wire  uint32
	}{
		{AsyncNamespaceChanged, 0x00040002},
		{AsyncANAChange, 0x000c0302},
		{AsyncDiscoveryChange, 0x0070f002},
		{AsyncReservationLog, 0x00800006},
		{MakeAsyncEvent(EventSMART, EventSMARTSpare, LogSMART), 0x00020201},
	} {
		if uint32(c.event) != c.wire {
			t.Errorf("%#x, want %#x", uint32(c.event), c.wire)
		}
		if e := c.event; MakeAsyncEvent(e.Type(), e.Info(), e.Log()) != e {
			t.Errorf("%#x taken apart wrongly", uint32(e))
		}
	}
	c := AsyncEventConfig(OAESNamespaceAttribute | SMARTSpareLow)
	if !c.Has(OAESNamespaceAttribute) || !c.Has(SMARTSpareLow) || c.Has(OAESANAChange) || c.Has(OAESANAChange|SMARTSpareLow) {
		t.Error("configuration")
	}
}

func TestDSMRange(t *testing.T) {
	var r DSMRange
	r.SetAttributes(0x01020304)
	r.SetNLB(0x05060708)
	r.SetSLBA(0x090a0b0c0d0e0f10)
	if want := DSMRange(unhex(t, 16, "04030201 08070605 100f0e0d0c0b0a09")); r != want {
		t.Errorf("% x", r)
	}
	if r.Attributes() != 0x01020304 || r.NLB() != 0x05060708 || r.SLBA() != 0x090a0b0c0d0e0f10 {
		t.Errorf("% x reads back wrong", r)
	}
}
