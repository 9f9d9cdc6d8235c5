package nvme

import (
	"testing"
	"time"
)

// TestCAPGolden takes apart the CAP of an emulated drive (QEMU 7.2).
func TestCAPGolden(t *testing.T) {
	c := CAP(0x004018200f0107ff)
	if c.MQES() != 2047 || !c.CQR() || c.AMS() != 0 || c.TO() != 15 || c.Timeout() != 7500*time.Millisecond ||
		c.DSTRD() != 0 || c.NSSRS() || c.CSS() != CAPCSSNVM|CAPCSSIOCSS|CAPCSSNone || c.BPS() || c.CPS() != 0 ||
		c.MPSMIN() != 0 || c.MPSMAX() != 4 || c.PMRS() || c.CMBS() || c.NSSS() || c.CRMS() != 0 || c.NSSES() {
		t.Errorf("%#x taken apart wrongly", uint64(c))
	}
}

// TestCAPFields: Base 2.1, figure "Offset 0h: CAP".
func TestCAPFields(t *testing.T) {
	for _, f := range []struct {
		name      string
		high, low uint
		get       func(CAP) uint64
		set       func(CAP, uint64) CAP
	}{
		{"MQES", 15, 0, func(c CAP) uint64 { return uint64(c.MQES()) }, func(c CAP, v uint64) CAP { return c.WithMQES(uint16(v)) }},
		{"CQR", 16, 16, func(c CAP) uint64 { return bit(c.CQR()) }, func(c CAP, v uint64) CAP { return c.WithCQR(v != 0) }},
		{"AMS", 18, 17, func(c CAP) uint64 { return uint64(c.AMS()) }, func(c CAP, v uint64) CAP { return c.WithAMS(uint8(v)) }},
		{"TO", 31, 24, func(c CAP) uint64 { return uint64(c.TO()) }, func(c CAP, v uint64) CAP { return c.WithTO(uint8(v)) }},
		{"DSTRD", 35, 32, func(c CAP) uint64 { return uint64(c.DSTRD()) }, func(c CAP, v uint64) CAP { return c.WithDSTRD(uint8(v)) }},
		{"NSSRS", 36, 36, func(c CAP) uint64 { return bit(c.NSSRS()) }, func(c CAP, v uint64) CAP { return c.WithNSSRS(v != 0) }},
		{"CSS", 44, 37, func(c CAP) uint64 { return uint64(c.CSS()) }, func(c CAP, v uint64) CAP { return c.WithCSS(uint8(v)) }},
		{"BPS", 45, 45, func(c CAP) uint64 { return bit(c.BPS()) }, nil},
		{"CPS", 47, 46, func(c CAP) uint64 { return uint64(c.CPS()) }, nil},
		{"MPSMIN", 51, 48, func(c CAP) uint64 { return uint64(c.MPSMIN()) }, func(c CAP, v uint64) CAP { return c.WithMPS(uint8(v), c.MPSMAX()) }},
		{"MPSMAX", 55, 52, func(c CAP) uint64 { return uint64(c.MPSMAX()) }, func(c CAP, v uint64) CAP { return c.WithMPS(c.MPSMIN(), uint8(v)) }},
		{"PMRS", 56, 56, func(c CAP) uint64 { return bit(c.PMRS()) }, nil},
		{"CMBS", 57, 57, func(c CAP) uint64 { return bit(c.CMBS()) }, nil},
		{"NSSS", 58, 58, func(c CAP) uint64 { return bit(c.NSSS()) }, nil},
		{"CRMS", 60, 59, func(c CAP) uint64 { return uint64(c.CRMS()) }, func(c CAP, v uint64) CAP { return c.WithCRMS(uint8(v)) }},
		{"NSSES", 61, 61, func(c CAP) uint64 { return bit(c.NSSES()) }, nil},
	} {
		ones := uint64(1)<<(f.high-f.low+1) - 1
		mask := ones << f.low
		if got := f.get(CAP(mask)); got != ones {
			t.Errorf("%s: %#x of its own bits, want %#x", f.name, got, ones)
		}
		if got := f.get(CAP(^mask)); got != 0 {
			t.Errorf("%s: %#x of the other bits", f.name, got)
		}
		if f.set == nil {
			continue
		}
		if got := uint64(f.set(0, ones)); got != mask {
			t.Errorf("%s set: %#x, want %#x", f.name, got, mask)
		}
		if got := uint64(f.set(^CAP(0), 0)); got != ^mask {
			t.Errorf("%s cleared: %#x, want %#x", f.name, got, ^mask)
		}
	}
}

// TestCCFields: Base 2.1, figure "Offset 14h: CC".
func TestCCFields(t *testing.T) {
	for _, f := range []struct {
		name      string
		high, low uint
		get       func(CC) uint8
		set       func(CC, uint8) CC
	}{
		{"EN", 0, 0, func(c CC) uint8 { return uint8(bit(c.EN())) }, func(c CC, v uint8) CC { return c.WithEN(v != 0) }},
		{"CSS", 6, 4, CC.CSS, CC.WithCSS},
		{"MPS", 10, 7, CC.MPS, CC.WithMPS},
		{"AMS", 13, 11, CC.AMS, CC.WithAMS},
		{"SHN", 15, 14, CC.SHN, CC.WithSHN},
		{"IOSQES", 19, 16, CC.IOSQES, CC.WithIOSQES},
		{"IOCQES", 23, 20, CC.IOCQES, CC.WithIOCQES},
		{"CRIME", 24, 24, func(c CC) uint8 { return uint8(bit(c.CRIME())) }, nil},
	} {
		ones := uint8(1)<<(f.high-f.low+1) - 1
		mask := CC(ones) << f.low
		if f.get(mask) != ones || f.get(^mask) != 0 {
			t.Errorf("%s reads %#x of %#x and %#x of the rest", f.name, f.get(mask), uint32(mask), f.get(^mask))
		}
		if f.set != nil && (f.set(0, ones) != mask || f.set(^CC(0), 0) != ^mask) {
			t.Errorf("%s writes %#x and clears to %#x", f.name, uint32(f.set(0, ones)), uint32(f.set(^CC(0), 0)))
		}
	}
	// What the Linux host writes to enable a fabrics controller.
	if c := CC(0).WithEN(true).WithIOSQES(IOSQES).WithIOCQES(IOCQES); c != 0x460001 {
		t.Errorf("CC is %#x, want 0x460001", uint32(c))
	}
}

func TestCSTS(t *testing.T) {
	c := CSTS(0).WithRDY(true).WithSHST(ShutdownStatusComplete)
	if c != 0x9 || !c.RDY() || c.CFS() || c.SHST() != ShutdownStatusComplete || c.NSSRO() || c.PP() || c.ST() {
		t.Errorf("CSTS %#x", uint32(c))
	}
	if c = c.WithRDY(false).WithSHST(ShutdownStatusNormal).WithCFS(true); c != CSTSFatal || !c.CFS() {
		t.Errorf("CSTS %#x", uint32(c))
	}
	if c = c.WithCFS(false); c != 0 {
		t.Errorf("CSTS %#x", uint32(c))
	}
	c = CSTSSubsystemReset | CSTSProcessingPaused | CSTSShutdownType
	if c != 0x70 || !c.NSSRO() || !c.PP() || !c.ST() {
		t.Errorf("CSTS %#x", uint32(c))
	}
}

func TestOtherRegisters(t *testing.T) {
	if c := MakeCRTO(0x1e, 0x2); c != 0x2001e || c.CRWMT() != 0x1e || c.CRIMT() != 2 ||
		c.WithMediaTimeout() != 15*time.Second || c.IndependentTimeout() != time.Second {
		t.Errorf("CRTO %#x", uint32(c))
	}
	if a := MakeAQA(32, 4096); a != 0x0fff001f || a.ASQS() != 31 || a.ACQS() != 4095 {
		t.Errorf("AQA %#x", uint32(a))
	}
	if c := CMBLOC(0x12345002); c.BIR() != 2 || c.OFST() != 0x12345 {
		t.Errorf("CMBLOC %#x", uint32(c))
	}
	if c := CMBSZ(0x0004021f); c.UnitSize() != 1<<20 || c.Units() != 0x40 || c&CMBLists == 0 {
		t.Errorf("CMBSZ %#x", uint32(c))
	}
	for _, d := range []struct {
		qid    uint16
		dstrd  uint8
		sq, cq uint32
	}{{0, 0, 0x1000, 0x1004}, {1, 0, 0x1008, 0x100c}, {3, 4, 0x1000 + 6*64, 0x1000 + 7*64}, {65535, 0, 0x1000 + 65535*8, 0x1004 + 65535*8}} {
		if DoorbellSQ(d.qid, d.dstrd) != d.sq || DoorbellCQ(d.qid, d.dstrd) != d.cq {
			t.Errorf("doorbells of queue %d, stride %d: %#x %#x", d.qid, d.dstrd, DoorbellSQ(d.qid, d.dstrd), DoorbellCQ(d.qid, d.dstrd))
		}
	}
	for v, want := range map[Version]string{Version14: "1.4", Version21: "2.1", 0x010201: "1.2.1"} {
		if v.String() != want {
			t.Errorf("version %#x is %s, want %s", uint32(v), v, want)
		}
	}
}
