package nvme

import (
	"encoding/binary"
	"fmt"
)

// Lists that Identify returns. Each is IdentifySize bytes; entries that are not
// used are zero.

// MaxNSIDList is how many namespaces a list holds.
const MaxNSIDList = IdentifySize / 4

// PutNSIDList writes a namespace list (CNS 02h, 07h, 10h and 1Ah, and the
// Changed Namespace List log): Base 2.1 section 4.6. The caller sorts it and
// leaves out what is not above the command's NSID. Of more than MaxNSIDList
// namespaces the first are written.
func PutNSIDList(b []byte, nsids []uint32) int {
	b = b[:IdentifySize]
	n := 0
	for _, id := range nsids[:min(len(nsids), MaxNSIDList)] {
		binary.LittleEndian.PutUint32(b[n:], id)
		n += 4
	}
	clear(b[n:])
	return IdentifySize
}

// ParseNSIDList returns the namespaces before the first zero.
func ParseNSIDList(b []byte) ([]uint32, error) {
	if len(b) < IdentifySize {
		return nil, tooShort("namespace list", len(b), IdentifySize)
	}
	var ids []uint32
	for n := 0; n < IdentifySize; n += 4 {
		id := binary.LittleEndian.Uint32(b[n:])
		if id == 0 {
			break
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// MaxControllerList is how many controllers a list holds.
const MaxControllerList = IdentifySize/2 - 1

// PutControllerList writes a controller list (CNS 12h and 13h): Base 2.1 section
// 4.6. The caller sorts it. Of more than MaxControllerList controllers the
// first are written.
func PutControllerList(b []byte, cntlids []uint16) int {
	b = b[:IdentifySize]
	cntlids = cntlids[:min(len(cntlids), MaxControllerList)]
	binary.LittleEndian.PutUint16(b, uint16(len(cntlids)))
	n := 2
	for _, id := range cntlids {
		binary.LittleEndian.PutUint16(b[n:], id)
		n += 2
	}
	clear(b[n:])
	return IdentifySize
}

// ParseControllerList returns the controllers of a list.
func ParseControllerList(b []byte) ([]uint16, error) {
	if len(b) < IdentifySize {
		return nil, tooShort("controller list", len(b), IdentifySize)
	}
	n := int(binary.LittleEndian.Uint16(b))
	if n > MaxControllerList {
		return nil, fmt.Errorf("controller list: %d identifiers, at most %d fit", n, MaxControllerList)
	}
	ids := make([]uint16, n)
	for i := range ids {
		ids[i] = binary.LittleEndian.Uint16(b[2+2*i:])
	}
	return ids, nil
}

// NIDType is a namespace identifier type: Base 2.1 section 5.1.13.2.3, figure
// "Namespace Identification Descriptor".
type NIDType uint8

// Namespace identifier types.
const (
	NIDEUI64 NIDType = 1 // 8 bytes
	NIDNGUID NIDType = 2 // 16 bytes
	NIDUUID  NIDType = 3 // 16 bytes
	NIDCSI   NIDType = 4 // 1 byte
)

func (t NIDType) length() int {
	switch t {
	case NIDEUI64:
		return 8
	case NIDNGUID, NIDUUID:
		return 16
	case NIDCSI:
		return 1
	}
	return 0
}

// NamespaceIDs is a list of namespace identification descriptors, CNS 03h. Zero
// identifiers are left out of the list; the command set is always in it.
type NamespaceIDs struct {
	EUI64 EUI64
	NGUID NGUID
	UUID  UUID
	CSI   CSI
}

const nidHeaderSize = 4

// MarshalTo writes IdentifySize bytes.
func (x *NamespaceIDs) MarshalTo(b []byte) int {
	b = b[:IdentifySize]
	n := 0
	put := func(t NIDType, id []byte) {
		b[n], b[n+1], b[n+2], b[n+3] = byte(t), byte(len(id)), 0, 0
		n += nidHeaderSize + copy(b[n+nidHeaderSize:], id)
	}
	if !x.EUI64.IsZero() {
		put(NIDEUI64, x.EUI64[:])
	}
	if !x.NGUID.IsZero() {
		put(NIDNGUID, x.NGUID[:])
	}
	if !x.UUID.IsZero() {
		put(NIDUUID, x.UUID[:])
	}
	put(NIDCSI, []byte{byte(x.CSI)})
	clear(b[n:])
	return IdentifySize
}

// UnmarshalBinary reads the descriptors before the first of length 0. Unknown
// types are skipped, as the specification asks; a known type with another
// length than its own, or one that ends past the list, is an error.
func (x *NamespaceIDs) UnmarshalBinary(b []byte) error {
	if len(b) < IdentifySize {
		return tooShort("namespace identification descriptors", len(b), IdentifySize)
	}
	b = b[:IdentifySize]
	var ids NamespaceIDs
	for n := 0; n+nidHeaderSize <= len(b) && b[n+1] != 0; {
		t, l := NIDType(b[n]), int(b[n+1])
		if want := t.length(); want != 0 && l != want {
			return fmt.Errorf("namespace identification descriptor at byte %d: type %d has %d bytes, want %d", n, t, l, want)
		}
		n += nidHeaderSize
		if n+l > len(b) {
			return fmt.Errorf("namespace identification descriptor at byte %d: its %d bytes end past the list", n-nidHeaderSize, l)
		}
		switch id := b[n : n+l]; t {
		case NIDEUI64:
			copy(ids.EUI64[:], id)
		case NIDNGUID:
			copy(ids.NGUID[:], id)
		case NIDUUID:
			copy(ids.UUID[:], id)
		case NIDCSI:
			ids.CSI = CSI(id[0])
		}
		n += l
	}
	*x = ids
	return nil
}

// MaxUUIDList is how many entries a UUID list holds.
const MaxUUIDList = 127

// Associations of a UUID list entry.
const (
	UUIDNoAssociation   = 0
	UUIDVendor          = 1 // of VID
	UUIDSubsystemVendor = 2 // of SSVID
)

// UUIDEntry is an entry of a UUID list.
type UUIDEntry struct {
	Association uint8
	UUID        UUID
}

// PutUUIDList writes a UUID list (CNS 17h): Base 2.1 section 5.1.13.2.14. Of
// more than MaxUUIDList entries the first are written.
func PutUUIDList(b []byte, entries []UUIDEntry) int {
	b = b[:IdentifySize]
	clear(b)
	for i, e := range entries[:min(len(entries), MaxUUIDList)] {
		p := b[32+32*i:]
		p[0] = e.Association & 3
		copy(p[16:32], e.UUID[:])
	}
	return IdentifySize
}

// ParseUUIDList returns the entries before the first zero UUID.
func ParseUUIDList(b []byte) ([]UUIDEntry, error) {
	if len(b) < IdentifySize {
		return nil, tooShort("UUID list", len(b), IdentifySize)
	}
	var entries []UUIDEntry
	for i := range MaxUUIDList {
		p := b[32+32*i:]
		e := UUIDEntry{Association: p[0] & 3, UUID: UUID(p[16:32])}
		if e.UUID.IsZero() {
			break
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// MaxCommandSetCombinations is how many combinations the structure holds.
const MaxCommandSetCombinations = IdentifySize / 8

// CommandSetCombination is a set of I/O command sets that can be used at once;
// bit n is CSI n.
type CommandSetCombination uint64

// CombinationNVM has the NVM command set alone.
const CombinationNVM CommandSetCombination = 1 << CSINVM

// PutCommandSetCombinations writes the Identify I/O Command Set data structure
// (CNS 1Ch): Base 2.1 section 5.1.13.2.19. Of more than
// MaxCommandSetCombinations the first are written.
func PutCommandSetCombinations(b []byte, sets []CommandSetCombination) int {
	b = b[:IdentifySize]
	n := 0
	for _, s := range sets[:min(len(sets), MaxCommandSetCombinations)] {
		binary.LittleEndian.PutUint64(b[n:], uint64(s))
		n += 8
	}
	clear(b[n:])
	return IdentifySize
}

// ParseCommandSetCombinations returns the combinations before the first zero.
func ParseCommandSetCombinations(b []byte) ([]CommandSetCombination, error) {
	if len(b) < IdentifySize {
		return nil, tooShort("I/O command set combinations", len(b), IdentifySize)
	}
	var sets []CommandSetCombination
	for n := 0; n < IdentifySize; n += 8 {
		s := CommandSetCombination(binary.LittleEndian.Uint64(b[n:]))
		if s == 0 {
			break
		}
		sets = append(sets, s)
	}
	return sets, nil
}

// MaxGranularities is how many descriptors a namespace granularity list holds.
const MaxGranularities = 16

// GranularityMatchesFormats in NamespaceGranularities.Attributes: descriptor n
// is that of LBA format n. Otherwise the one descriptor is that of all formats.
const GranularityMatchesFormats = 1 << 0

// Granularity is a namespace granularity descriptor, in bytes; 0: not reported.
type Granularity struct{ Size, Capacity uint64 }

// NamespaceGranularities is the namespace granularity list, CNS 16h: Base 2.1
// section 5.1.13.2.13. It has one descriptor at least.
type NamespaceGranularities struct {
	Attributes uint32
	Last       uint8 // number of descriptors, 0-based, below MaxGranularities
	Entries    [MaxGranularities]Granularity
}

func (x *NamespaceGranularities) layout(c *codec) {
	c.u32(&x.Attributes)
	c.u8(&x.Last)
	c.reserved(32)
	for i := range x.Entries {
		c.u64(&x.Entries[i].Size)
		c.u64(&x.Entries[i].Capacity)
	}
	c.at(288)
	c.reserved(IdentifySize)
}

// MarshalTo writes IdentifySize bytes.
func (x *NamespaceGranularities) MarshalTo(b []byte) int { return encodeTo(b, IdentifySize, x) }

// UnmarshalBinary reads IdentifySize bytes.
func (x *NamespaceGranularities) UnmarshalBinary(b []byte) error {
	if err := decodeFrom(b, IdentifySize, "namespace granularity list", x); err != nil {
		return err
	}
	if x.Last >= MaxGranularities {
		return fmt.Errorf("namespace granularity list: %d descriptors, at most %d fit", int(x.Last)+1, MaxGranularities)
	}
	return nil
}
