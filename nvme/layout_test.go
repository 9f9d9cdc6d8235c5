package nvme

import (
	"bytes"
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// structure is what every wire structure of fixed size implements.
type structure interface {
	MarshalTo([]byte) int
	encoding.BinaryUnmarshaler
}

// layouts has the byte offset and length of every field, as the figures of the
// specifications give them: "name offset length". It was written from the
// specifications and checked against the offsets that a C compiler computes for
// the structures of a public header; it knows nothing of the layout methods.
var layouts = []struct {
	new    func() structure
	size   int
	fields string
}{
	{func() structure { return new(IdentifyController) }, 4096, `
		VID 0 2; SSVID 2 2; SN 4 20; MN 24 40; FR 64 8; RAB 72 1; IEEE 73 3; CMIC 76 1; MDTS 77 1;
		CNTLID 78 2; VER 80 4; RTD3R 84 4; RTD3E 88 4; OAES 92 4; CTRATT 96 4; RRLS 100 2; BPCAP 102 1;
		NSSL 104 4; PLSI 110 1; CNTRLTYPE 111 1; FGUID 112 16; CRDT 128 6; CRCAP 134 1; NVMSR 253 1;
		VWCI 254 1; MEC 255 1; OACS 256 2; ACL 258 1; AERL 259 1; FRMW 260 1; LPA 261 1; ELPE 262 1;
		NPSS 263 1; AVSCC 264 1; APSTA 265 1; WCTEMP 266 2; CCTEMP 268 2; MTFA 270 2; HMPRE 272 4;
		HMMIN 276 4; TNVMCAP 280 16; UNVMCAP 296 16; RPMBS 312 4; EDSTT 316 2; DSTO 318 1; FWUG 319 1;
		KAS 320 2; HCTMA 322 2; MNTMT 324 2; MXTMT 326 2; SANICAP 328 4; HMMINDS 332 4; HMMAXD 336 2;
		NSETIDMAX 338 2; ENDGIDMAX 340 2; ANATT 342 1; ANACAP 343 1; ANAGRPMAX 344 4; NANAGRPID 348 4;
		PELS 352 4; DOMAINID 356 2; KPIOC 358 1; MPTFAWR 360 2; MEGCAP 368 16; TMPTHHA 384 1; CQT 386 2;
		SQES 512 1; CQES 513 1; MAXCMD 514 2; NN 516 4; ONCS 520 2; FUSES 522 2; FNA 524 1; VWC 525 1;
		AWUN 526 2; AWUPF 528 2; ICSVSCC 530 1; NWPC 531 1; ACWU 532 2; CDFS 534 2; SGLS 536 4;
		MNAN 540 4; MAXDNA 544 16; MAXCNA 560 4; OAQD 564 4; RHIRI 568 1; HIRT 569 1; CMMRTD 570 2;
		NMMRTD 572 2; MINMRTG 574 1; MAXMRTG 575 1; TRATTR 576 1; MCUDMQ 578 2; MNSUDMQ 580 2;
		MCMR 582 2; NMCMR 584 2; MCDQPC 586 2; SUBNQN 768 256; IOCCSZ 1792 4; IORCSZ 1796 4;
		ICDOFF 1800 2; FCATT 1802 1; MSDBD 1803 1; OFCS 1804 2; DCTYPE 1806 1; VS 3072 1024`},
	{func() structure { return new(NVMIdentifyController) }, 4096, `
		VSL 0 1; WZSL 1 1; WUSL 2 1; DMRL 3 1; DMRSL 4 4; DMSL 8 8; KPIOCAP 16 1; WZDSL 17 1; AOCS 18 2;
		VER 20 4; LBAMQF 24 1`},
	{func() structure { return new(IdentifyNamespace) }, 4096, `
		NSZE 0 8; NCAP 8 8; NUSE 16 8; NSFEAT 24 1; NLBAF 25 1; FLBAS 26 1; MC 27 1; DPC 28 1; DPS 29 1;
		NMIC 30 1; RESCAP 31 1; FPI 32 1; DLFEAT 33 1; NAWUN 34 2; NAWUPF 36 2; NACWU 38 2; NABSN 40 2;
		NABO 42 2; NABSPF 44 2; NOIOB 46 2; NVMCAP 48 16; NPWG 64 2; NPWA 66 2; NPDG 68 2; NPDA 70 2;
		NOWS 72 2; MSSRL 74 2; MCL 76 4; MSRC 80 1; KPIOS 81 1; NULBAF 82 1; KPIODAAG 84 4;
		ANAGRPID 92 4; NSATTR 99 1; NVMSETID 100 2; ENDGID 102 2; NGUID 104 16; EUI64 120 8;
		LBAF 128 256; VS 384 3712`},
	{func() structure { return new(NVMIdentifyNamespace) }, 4096, `
		LBSTM 0 8; PIC 8 1; PIFA 9 1; ELBAF 12 256; NPDGL 268 4; NPRG 272 4; NPRA 276 4; NORS 280 4;
		NPDAL 284 4; LBAPSS 288 4; TLBAAG 292 4`},
	{func() structure { return new(IndependentNamespace) }, 4096, `
		NSFEAT 0 1; NMIC 1 1; RESCAP 2 1; FPI 3 1; ANAGRPID 4 4; NSATTR 8 1; NVMSETID 10 2; ENDGID 12 2;
		NSTAT 14 1; KPIOS 15 1; MAXKT 16 2; RGRPID 20 4`},
	{func() structure { return new(NamespaceGranularities) }, 4096, `
		Attributes 0 4; Last 4 1; Entries 32 256`},
	{func() structure { return new(ConnectData) }, 1024, `
		HostID 0 16; CNTLID 16 2; SubNQN 256 256; HostNQN 512 256`},
	{func() structure { return new(RDMACMRequest) }, 32, `
		RECFMT 0 2; QID 2 2; HRQSIZE 4 2; HSQSIZE 6 2; CNTLID 8 2`},
	{func() structure { return new(RDMACMAccept) }, 32, `RECFMT 0 2; CRQSIZE 2 2`},
	{func() structure { return new(RDMACMReject) }, 4, `RECFMT 0 2; Status 2 2`},
	{func() structure { return new(SMARTLog) }, 512, `
		CriticalWarning 0 1; Temperature 1 2; AvailableSpare 3 1; SpareThreshold 4 1; PercentageUsed 5 1;
		EnduranceWarning 6 1; DataUnitsRead 32 16; DataUnitsWritten 48 16; HostReads 64 16;
		HostWrites 80 16; BusyTime 96 16; PowerCycles 112 16; PowerOnHours 128 16;
		UnsafeShutdowns 144 16; MediaErrors 160 16; ErrorLogEntries 176 16;
		WarningTemperatureTime 192 4; CriticalTemperatureTime 196 4; TemperatureSensor 200 16;
		ThermalTransitions 216 8; ThermalTime 224 8`},
	{func() structure { return new(FirmwareSlotLog) }, 512, `AFI 0 1; Slot 8 56`},
	{func() structure { return new(ReservationLog) }, 64, `Count 0 8; Type 8 1; Available 9 1; NSID 12 4`},
	{func() structure { return new(CommandEffectsLog) }, 4096, `Admin 0 1024; IO 1024 1024`},
	{func() structure { return new(DiscoveryHeader) }, 1024, `GENCTR 0 8; NUMREC 8 8; RECFMT 16 2`},
	{func() structure { return new(DiscoveryEntry) }, 1024, `
		TRTYPE 0 1; ADRFAM 1 1; SUBTYPE 2 1; TREQ 3 1; PORTID 4 2; CNTLID 6 2; ASQSZ 8 2; EFLAGS 10 2;
		TRSVCID 32 32; SUBNQN 256 256; TRADDR 512 256; TSAS 768 256`},
	{func() structure { return new(HostBehavior) }, 512, `
		ACRE 0 1; ETDAS 1 1; LBAFEE 2 1; HDISNS 3 1; CDFE 4 2`},
	{func() structure { return new(ReservationKeys) }, 16, `CRKEY 0 8; NRKEY 8 8`},
	{func() structure { return new(ErrorLogEntry) }, 64, `
		Count 0 8; SQID 8 2; CID 10 2; Location 14 2; LBA 16 8; NSID 24 4; VendorLog 28 1; TRTYPE 29 1;
		CSI 30 1; Opcode 31 1; Specific 32 8; TRTYPEInfo 40 2; PageVersion 63 1`},
}

// Fields that layouts cannot describe: they are parts of bytes, have holes or
// are tested by themselves.
var specialFields = map[string]string{
	"IdentifyController.PSD": "TestPowerStateLayout",
	"ErrorLogEntry.Status":   "TestErrorLogEntryStatus",
	"ErrorLogEntry.Phase":    "TestErrorLogEntryStatus",
}

// setOnes sets all bits of v.
func setOnes(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1<<v.Type().Bits() - 1)
	case reflect.Array:
		for i := range v.Len() {
			setOnes(t, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			setOnes(t, v.Field(i))
		}
	default:
		t.Fatalf("field of kind %s: the test has to be taught about it", v.Kind())
	}
}

// TestLayouts sets one field after the other to all ones and wants exactly the
// bytes of that field to be ones; then it decodes them again.
func TestLayouts(t *testing.T) {
	for _, l := range layouts {
		name := reflect.TypeOf(l.new()).Elem().Name()
		t.Run(name, func(t *testing.T) {
			seen := map[string]bool{}
			for row := range strings.SplitSeq(l.fields, ";") {
				var field string
				var off, n int
				if _, err := fmt.Sscan(row, &field, &off, &n); err != nil {
					t.Fatalf("row %q: %v", row, err)
				}
				seen[field] = true
				x := l.new()
				f := reflect.ValueOf(x).Elem().FieldByName(field)
				if !f.IsValid() {
					t.Fatalf("no field %s", field)
				}
				setOnes(t, f)
				got := bytes.Repeat([]byte{0x55}, l.size+8) // reserved bytes must be written
				if w := x.MarshalTo(got); w != l.size {
					t.Fatalf("%s: MarshalTo wrote %d bytes, want %d", field, w, l.size)
				}
				want := make([]byte, l.size)
				for i := range n {
					want[off+i] = 0xff
				}
				want = append(want, bytes.Repeat([]byte{0x55}, 8)...)
				if !bytes.Equal(got, want) {
					t.Fatalf("%s: first difference at byte %d", field, firstDifference(got, want))
				}
				if name == "NamespaceGranularities" && field == "Last" {
					continue // 255 is out of its range: TestGranularityCount
				}
				y := l.new()
				if err := y.UnmarshalBinary(want); err != nil {
					t.Fatalf("%s: %v", field, err)
				}
				if !reflect.DeepEqual(x, y) {
					t.Fatalf("%s: decoding gives %+v", field, y)
				}
			}
			for i := range reflect.TypeOf(l.new()).Elem().NumField() {
				f := reflect.TypeOf(l.new()).Elem().Field(i).Name
				if !seen[f] && specialFields[name+"."+f] == "" {
					t.Errorf("field %s has no row in the table", f)
				}
			}
		})
	}
}

func TestTooShort(t *testing.T) {
	for _, l := range layouts {
		name := reflect.TypeOf(l.new()).Elem().Name()
		short := make([]byte, l.size-1)
		if err := l.new().UnmarshalBinary(short); err == nil {
			t.Errorf("%s: %d bytes accepted, %d are needed", name, len(short), l.size)
		}
		if err := l.new().UnmarshalBinary(nil); err == nil {
			t.Errorf("%s: nothing accepted", name)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: MarshalTo %d bytes did not panic", name, len(short))
				}
			}()
			l.new().MarshalTo(short[:len(short):len(short)])
		}()
	}
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

func TestPowerStateLayout(t *testing.T) {
	// Base 2.1, figure "Power State Descriptor Data Structure".
	rows := `MP 0 2; Flags 3 1; ENLAT 4 4; EXLAT 8 4; RRT 12 1; RRL 13 1; RWT 14 1; RWL 15 1; IDLP 16 2;
		IPS 18 1; ACTP 20 2; APWS 22 1; EPFRT 23 1; FQVT 24 1; EPFVT 25 1; EPFRFQVTS 26 1; EPFVTS 27 1`
	if n := strings.Count(rows, ";") + 1; n != reflect.TypeOf(PowerState{}).NumField() {
		t.Fatalf("%d rows for %d fields", n, reflect.TypeOf(PowerState{}).NumField())
	}
	for _, index := range []int{0, 1, 31} {
		for row := range strings.SplitSeq(rows, ";") {
			var field string
			var off, n int
			if _, err := fmt.Sscan(row, &field, &off, &n); err != nil {
				t.Fatal(err)
			}
			var x, y IdentifyController
			setOnes(t, reflect.ValueOf(&x.PSD[index]).Elem().FieldByName(field))
			got, want := make([]byte, 4096), make([]byte, 4096)
			x.MarshalTo(got)
			for i := range n {
				want[2048+32*index+off+i] = 0xff
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("PSD[%d].%s: first difference at byte %d", index, field, firstDifference(got, want))
			}
			if err := y.UnmarshalBinary(want); err != nil || x != y {
				t.Fatalf("PSD[%d].%s: %v, decoding gives %+v", index, field, err, y.PSD[index])
			}
		}
	}
}

func TestErrorLogEntryStatus(t *testing.T) {
	e := ErrorLogEntry{Status: StatusInvalidField.WithDNR().WithMore(), Phase: true}
	var b [64]byte
	e.MarshalTo(b[:])
	if b[12] != 0x05 || b[13] != 0xc0 {
		t.Errorf("bytes 12 and 13 are % x, want 05 c0", b[12:14])
	}
	var back ErrorLogEntry
	if err := back.UnmarshalBinary(b[:]); err != nil || back != e {
		t.Errorf("decoding gives %+v, %v", back, err)
	}
}

func TestGranularityCount(t *testing.T) {
	b := make([]byte, IdentifySize)
	b[4] = 15
	var x NamespaceGranularities
	if err := x.UnmarshalBinary(b); err != nil || x.Last != 15 {
		t.Errorf("16 descriptors: %v", err)
	}
	b[4] = 16
	if err := x.UnmarshalBinary(b); err == nil {
		t.Error("17 descriptors accepted")
	}
}
