package nvme

import (
	"encoding/binary"
	"fmt"
)

// Reservation commands: Base 2.1 sections 7.5 to 7.8.

// ReservationType is RTYPE.
type ReservationType uint8

// Reservation types; 0 is none.
const (
	ReservationNone               ReservationType = 0
	ReservationWriteExclusive     ReservationType = 1
	ReservationExclusiveAccess    ReservationType = 2
	ReservationWriteExclusiveReg  ReservationType = 3 // registrants only
	ReservationExclusiveAccessReg ReservationType = 4 // registrants only
	ReservationWriteExclusiveAll  ReservationType = 5 // all registrants
	ReservationExclusiveAccessAll ReservationType = 6 // all registrants
)

func (t ReservationType) String() string {
	switch t {
	case ReservationNone:
		return "none"
	case ReservationWriteExclusive:
		return "Write Exclusive"
	case ReservationExclusiveAccess:
		return "Exclusive Access"
	case ReservationWriteExclusiveReg:
		return "Write Exclusive - Registrants Only"
	case ReservationExclusiveAccessReg:
		return "Exclusive Access - Registrants Only"
	case ReservationWriteExclusiveAll:
		return "Write Exclusive - All Registrants"
	case ReservationExclusiveAccessAll:
		return "Exclusive Access - All Registrants"
	}
	return unknownName("reservation type", uint64(t))
}

// Actions: RREGA of Register, RACQA of Acquire, RRELA of Release.
const (
	ReservationRegister        = 0
	ReservationUnregister      = 1
	ReservationReplace         = 2
	ReservationAcquire         = 0
	ReservationPreempt         = 1
	ReservationPreemptAndAbort = 2
	ReservationRelease         = 0
	ReservationClear           = 1
)

// CPTPL of Register: change of the persist through power loss state.
const (
	ReservationPersistNoChange = 0
	ReservationPersistClear    = 2
	ReservationPersistSet      = 3
)

// ReservationAction returns RREGA, RACQA or RRELA, CDW10 bits 2:0.
func (c *Command) ReservationAction() uint8 { return c[40] & 7 }

// IgnoreExistingKey returns IEKEY, CDW10 bit 3.
func (c *Command) IgnoreExistingKey() bool { return c[40]&8 != 0 }

// ReservationRTYPE returns RTYPE of Acquire and Release, CDW10 bits 15:8.
func (c *Command) ReservationRTYPE() ReservationType { return ReservationType(c[41]) }

// ReservationCPTPL returns CPTPL of Register, CDW10 bits 31:30.
func (c *Command) ReservationCPTPL() uint8 { return c[43] >> 6 }

// SetReservation sets CDW10 of Register, Acquire and Release.
func (c *Command) SetReservation(action uint8, ignoreKey bool, rtype ReservationType, cptpl uint8) {
	c.SetCDW(10, uint32(action&7)|uint32(bit(ignoreKey))<<3|uint32(rtype)<<8|uint32(cptpl&3)<<30)
}

// ReportLength returns how many bytes a Reservation Report asks for: CDW10,
// 0-based in dwords on the wire.
func (c *Command) ReportLength() uint64 { return (uint64(c.CDW(10)) + 1) * 4 }

// ReportExtended returns EDS of Reservation Report, CDW11 bit 0: 128-bit host
// identifiers. It must be set by hosts that have them.
func (c *Command) ReportExtended() bool { return c[44]&1 != 0 }

// SetReport sets CDW10 and CDW11 of Reservation Report; length is a multiple of 4.
func (c *Command) SetReport(length uint64, extended bool) {
	c.SetCDW(10, uint32(length/4-1))
	c.SetCDW(11, uint32(bit(extended)))
}

// Lengths of the reservation commands' data.
const (
	ReservationRegisterSize = 16
	ReservationAcquireSize  = 16
	ReservationReleaseSize  = 8
)

// ReservationKeys is the data of Register (current and new key), Acquire
// (current key and the key to preempt), and Release (current key alone).
type ReservationKeys struct {
	CRKEY uint64
	NRKEY uint64 // Register: NRKEY. Acquire: PRKEY
}

// MarshalTo writes ReservationRegisterSize bytes.
func (k *ReservationKeys) MarshalTo(b []byte) int {
	b = b[:ReservationRegisterSize]
	binary.LittleEndian.PutUint64(b[0:8], k.CRKEY)
	binary.LittleEndian.PutUint64(b[8:16], k.NRKEY)
	return ReservationRegisterSize
}

// UnmarshalBinary reads 16 bytes, or the 8 of a Release, whose NRKEY is then 0.
func (k *ReservationKeys) UnmarshalBinary(b []byte) error {
	if len(b) < ReservationReleaseSize || len(b) > ReservationReleaseSize && len(b) < ReservationRegisterSize {
		return fmt.Errorf("reservation keys: %d bytes, want %d or %d", len(b), ReservationReleaseSize, ReservationRegisterSize)
	}
	*k = ReservationKeys{CRKEY: binary.LittleEndian.Uint64(b)}
	if len(b) >= ReservationRegisterSize {
		k.NRKEY = binary.LittleEndian.Uint64(b[8:16])
	}
	return nil
}

// Registrant is a registered controller in a reservation report.
type Registrant struct {
	CNTLID uint16 // CNTLIDDynamic if the registrant has no controller now
	Holder bool   // RCSTS bit 0
	HostID UUID   // all of it in an extended report, else the first 8 bytes
	Key    uint64
}

// ReservationReport is the reservation status data structure, plain or
// extended: Base 2.1 section 7.8.
type ReservationReport struct {
	Extended    bool // 128-bit host identifiers; not on the wire
	Generation  uint32
	Type        ReservationType
	Persist     bool // PTPLS
	Registrants []Registrant
}

const (
	reportHeaderSize         = 24
	reportExtendedHeaderSize = 64
	registrantSize           = 24
	registrantExtendedSize   = 64
)

func (r *ReservationReport) sizes() (header, entry int) {
	if r.Extended {
		return reportExtendedHeaderSize, registrantExtendedSize
	}
	return reportHeaderSize, registrantSize
}

// Size returns how many bytes MarshalTo writes.
func (r *ReservationReport) Size() int {
	header, entry := r.sizes()
	return header + entry*len(r.Registrants)
}

// MarshalTo writes Size bytes. At most 65535 registrants can be reported.
func (r *ReservationReport) MarshalTo(b []byte) int {
	size := r.Size()
	header, entry := r.sizes()
	b = b[:size]
	clear(b)
	binary.LittleEndian.PutUint32(b[0:4], r.Generation)
	b[4] = byte(r.Type)
	binary.LittleEndian.PutUint16(b[5:7], uint16(len(r.Registrants)))
	b[9] = byte(bit(r.Persist))
	for i := range r.Registrants {
		g, p := &r.Registrants[i], b[header+i*entry:]
		binary.LittleEndian.PutUint16(p[0:2], g.CNTLID)
		p[2] = byte(bit(g.Holder))
		if r.Extended {
			binary.LittleEndian.PutUint64(p[8:16], g.Key)
			copy(p[16:32], g.HostID[:])
			continue
		}
		copy(p[8:16], g.HostID[:8])
		binary.LittleEndian.PutUint64(p[16:24], g.Key)
	}
	return size
}

// UnmarshalBinary reads a whole report of the kind that Extended says; bytes
// after it are ignored.
func (r *ReservationReport) UnmarshalBinary(b []byte) error {
	header, entry := r.sizes()
	if len(b) < header {
		return tooShort("reservation report", len(b), header)
	}
	n := int(binary.LittleEndian.Uint16(b[5:7]))
	if n*entry > len(b)-header {
		return fmt.Errorf("reservation report: %d registrants, %d bytes are left for them", n, len(b)-header)
	}
	report := ReservationReport{
		Extended:   r.Extended,
		Generation: binary.LittleEndian.Uint32(b[0:4]),
		Type:       ReservationType(b[4]),
		Persist:    b[9]&1 != 0,
	}
	for i := range n {
		p := b[header+i*entry:]
		g := Registrant{CNTLID: binary.LittleEndian.Uint16(p[0:2]), Holder: p[2]&1 != 0}
		if r.Extended {
			g.Key = binary.LittleEndian.Uint64(p[8:16])
			copy(g.HostID[:], p[16:32])
		} else {
			copy(g.HostID[:8], p[8:16])
			g.Key = binary.LittleEndian.Uint64(p[16:24])
		}
		report.Registrants = append(report.Registrants, g)
	}
	*r = report
	return nil
}
