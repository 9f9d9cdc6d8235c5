package nvme

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
)

func filled(n int) []byte { return bytes.Repeat([]byte{0x55}, n) }

func TestNSIDList(t *testing.T) {
	b := filled(IdentifySize)
	PutNSIDList(b, []uint32{1, 2, 0x01020304})
	if want := unhex(t, IdentifySize, "01000000 02000000 04030201"); !bytes.Equal(b, want) {
		t.Errorf("first difference at byte %d", firstDifference(b, want))
	}
	if ids, err := ParseNSIDList(b); err != nil || !slices.Equal(ids, []uint32{1, 2, 0x01020304}) {
		t.Errorf("%v, %v", ids, err)
	}
	many := make([]uint32, MaxNSIDList+1)
	for i := range many {
		many[i] = uint32(i) + 1
	}
	PutNSIDList(b, many)
	if ids, err := ParseNSIDList(b); err != nil || !slices.Equal(ids, many[:1024]) {
		t.Errorf("a full list: %d namespaces, %v", len(ids), err)
	}
	PutNSIDList(b, nil)
	if ids, err := ParseNSIDList(b); err != nil || len(ids) != 0 || !bytes.Equal(b, make([]byte, IdentifySize)) {
		t.Errorf("an empty list: %v, %v", ids, err)
	}
	if _, err := ParseNSIDList(b[1:]); err == nil {
		t.Error("a short list was accepted")
	}
}

func TestControllerList(t *testing.T) {
	b := filled(IdentifySize)
	PutControllerList(b, []uint16{1, 0x0203})
	if want := unhex(t, IdentifySize, "0200 0100 0302"); !bytes.Equal(b, want) {
		t.Errorf("first difference at byte %d", firstDifference(b, want))
	}
	if ids, err := ParseControllerList(b); err != nil || !slices.Equal(ids, []uint16{1, 0x0203}) {
		t.Errorf("%v, %v", ids, err)
	}
	many := make([]uint16, 3000)
	PutControllerList(b, many)
	if ids, err := ParseControllerList(b); err != nil || len(ids) != 2047 {
		t.Errorf("a full list: %d controllers, %v", len(ids), err)
	}
	b[0], b[1] = 0x00, 0x08 // 2048
	if _, err := ParseControllerList(b); err == nil {
		t.Error("2048 controllers accepted")
	}
	if _, err := ParseControllerList(b[1:]); err == nil {
		t.Error("a short list was accepted")
	}
}

func TestNamespaceIDs(t *testing.T) {
	x := NamespaceIDs{
		EUI64: EUI64{0xab, 0xcd, 0xef, 1, 2, 3, 4, 5},
		NGUID: NGUID{0: 0x10, 15: 0x1f},
		UUID:  UUID{0: 0x20, 15: 0x2f},
		CSI:   CSIZoned,
	}
	b := filled(IdentifySize)
	x.MarshalTo(b)
	want := unhex(t, IdentifySize, `
		01 08 0000 abcdef0102030405
		02 10 0000 1000000000000000000000000000001f
		03 10 0000 2000000000000000000000000000002f
		04 01 0000 02`)
	if !bytes.Equal(b, want) {
		t.Errorf("first difference at byte %d", firstDifference(b, want))
	}
	var back NamespaceIDs
	if err := back.UnmarshalBinary(b); err != nil || back != x {
		t.Errorf("%+v, %v", back, err)
	}
	(&NamespaceIDs{}).MarshalTo(b)
	if want := unhex(t, IdentifySize, "04 01 0000 00"); !bytes.Equal(b, want) {
		t.Errorf("no identifiers: % x...", b[:16])
	}

	for _, c := range []struct {
		name, wire string
		want       NamespaceIDs
		ok         bool
	}{
		{"unknown type", "77 03 0000 010203 04 01 0000 01", NamespaceIDs{CSI: CSIKeyValue}, true},
		{"ends at length 0", "04 01 0000 01 00 00 0000 04 01 0000 02", NamespaceIDs{CSI: CSIKeyValue}, true},
		{"empty", "", NamespaceIDs{}, true},
		{"EUI64 of 16 bytes", "01 10 0000", NamespaceIDs{}, false},
		{"NGUID of 8 bytes", "02 08 0000", NamespaceIDs{}, false},
		{"UUID of 15 bytes", "03 0f 0000", NamespaceIDs{}, false},
		{"CSI of 2 bytes", "04 02 0000", NamespaceIDs{}, false},
	} {
		x := NamespaceIDs{CSI: 0x99}
		err := x.UnmarshalBinary(unhex(t, IdentifySize, c.wire))
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil && x != c.want || err != nil && x != (NamespaceIDs{CSI: 0x99}) {
			t.Errorf("%s: %+v", c.name, x)
		}
	}
	// A descriptor that runs past the end of the list.
	b = make([]byte, IdentifySize)
	for n := 0; n+204 <= len(b); n += 204 {
		b[n], b[n+1] = 0x77, 200
	}
	b[4080], b[4081] = 0x77, 12 // the last 16 bytes, exactly
	if err := back.UnmarshalBinary(b); err != nil {
		t.Error(err)
	}
	b[4081] = 13
	if err := back.UnmarshalBinary(b); err == nil {
		t.Error("a descriptor past the end was accepted")
	}
	if err := back.UnmarshalBinary(b[1:]); err == nil {
		t.Error("a short list was accepted")
	}
}

func TestUUIDList(t *testing.T) {
	in := []UUIDEntry{{UUIDVendor, UUID{1}}, {UUIDNoAssociation, UUID{15: 2}}}
	b := filled(IdentifySize)
	PutUUIDList(b, in)
	want := make([]byte, IdentifySize)
	want[32], want[48], want[64+16+15] = 1, 1, 2
	if !bytes.Equal(b, want) {
		t.Errorf("first difference at byte %d", firstDifference(b, want))
	}
	if out, err := ParseUUIDList(b); err != nil || !reflect.DeepEqual(in, out) {
		t.Errorf("%v, %v", out, err)
	}
	many := make([]UUIDEntry, 200)
	for i := range many {
		many[i].UUID[0] = byte(i) + 1
	}
	PutUUIDList(b, many)
	if out, err := ParseUUIDList(b); err != nil || !reflect.DeepEqual(many[:127], out) {
		t.Errorf("a full list: %d entries, %v", len(out), err)
	}
	if _, err := ParseUUIDList(b[1:]); err == nil {
		t.Error("a short list was accepted")
	}
}

func TestCommandSetCombinations(t *testing.T) {
	b := filled(IdentifySize)
	PutCommandSetCombinations(b, []CommandSetCombination{CombinationNVM, CombinationNVM | 1<<CSIZoned})
	if want := unhex(t, IdentifySize, "0100000000000000 05"); !bytes.Equal(b, want) {
		t.Errorf("first difference at byte %d", firstDifference(b, want))
	}
	if sets, err := ParseCommandSetCombinations(b); err != nil || !slices.Equal(sets, []CommandSetCombination{1, 5}) {
		t.Errorf("%v, %v", sets, err)
	}
	many := slices.Repeat([]CommandSetCombination{1}, 600)
	PutCommandSetCombinations(b, many)
	if sets, err := ParseCommandSetCombinations(b); err != nil || len(sets) != 512 {
		t.Errorf("a full list: %d, %v", len(sets), err)
	}
	if _, err := ParseCommandSetCombinations(b[1:]); err == nil {
		t.Error("a short list was accepted")
	}
}

func TestNamespaceFormat(t *testing.T) {
	var x IdentifyNamespace
	x.LBAF[0] = LBAFormat{LBADS: 9}
	x.LBAF[1] = LBAFormat{MS: 8, LBADS: 12, RP: 1}
	x.LBAF[0x31] = LBAFormat{LBADS: 31}
	for _, c := range []struct {
		flbas uint8
		index int
		size  uint32
	}{{0, 0, 512}, {1, 1, 4096}, {1 | FLBASMetadataInEnd, 1, 4096}, {0x61, 0x31, 1 << 31}, {2, 2, 0}} {
		x.FLBAS = c.flbas
		if x.FormatIndex() != c.index || x.BlockSize() != c.size || x.Format() != x.LBAF[c.index] {
			t.Errorf("FLBAS %#x: format %d, block size %d", c.flbas, x.FormatIndex(), x.BlockSize())
		}
	}
	for _, ds := range []uint8{8, 32, 255} {
		x.FLBAS, x.LBAF[0].LBADS = 0, ds
		if x.BlockSize() != 0 {
			t.Errorf("LBADS %d: block size %d", ds, x.BlockSize())
		}
	}
	b := make([]byte, IdentifySize)
	x.MarshalTo(b)
	if got := [4]byte(b[132:136]); got != [4]byte{8, 0, 12, 1} {
		t.Errorf("LBA format: % x", got)
	}
}
