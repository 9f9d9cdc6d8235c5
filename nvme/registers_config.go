package nvme

import "time"

// CC is the Controller Configuration property: Base 2.1 figure "Offset 14h: CC".
type CC uint32

// Fields of CC.
const (
	ccCSSShift    = 4
	ccMPSShift    = 7
	ccAMSShift    = 11
	ccSHNShift    = 14
	ccIOSQESShift = 16
	ccIOCQESShift = 20

	CCEnable CC = 1 << 0  // EN
	CCCRIME  CC = 1 << 24 // controller ready independent of media
)

// Values of CC.CSS.
const (
	CCCSSNVM       = 0 // NVM command set
	CCCSSAll       = 6 // all supported I/O command sets
	CCCSSAdminOnly = 7
)

// Values of CC.SHN.
const (
	ShutdownNone   = 0
	ShutdownNormal = 1
	ShutdownAbrupt = 2
)

// Entry sizes of I/O queues as CC.IOSQES and CC.IOCQES have them (powers of two).
const (
	IOSQES = 6
	IOCQES = 4
)

func (c CC) field(shift, bits uint) uint8 { return uint8(c >> shift & (1<<bits - 1)) }

func (c CC) with(shift, bits uint, v uint8) CC {
	mask := CC(1<<bits-1) << shift
	return c&^mask | CC(v)<<shift&mask
}

// EN returns the enable bit.
func (c CC) EN() bool { return c&CCEnable != 0 }

// WithEN returns c with the enable bit set or cleared.
func (c CC) WithEN(on bool) CC { return c&^CCEnable | CC(bit(on)) }

// CSS returns the I/O command set selected.
func (c CC) CSS() uint8 { return c.field(ccCSSShift, 3) }

// WithCSS returns c with the I/O command set selected.
func (c CC) WithCSS(v uint8) CC { return c.with(ccCSSShift, 3, v) }

// MPS returns the memory page size: 2^(12+MPS) bytes.
func (c CC) MPS() uint8 { return c.field(ccMPSShift, 4) }

// WithMPS returns c with the memory page size.
func (c CC) WithMPS(v uint8) CC { return c.with(ccMPSShift, 4, v) }

// AMS returns the arbitration mechanism.
func (c CC) AMS() uint8 { return c.field(ccAMSShift, 3) }

// WithAMS returns c with the arbitration mechanism.
func (c CC) WithAMS(v uint8) CC { return c.with(ccAMSShift, 3, v) }

// SHN returns the shutdown notification, ShutdownNone and so on.
func (c CC) SHN() uint8 { return c.field(ccSHNShift, 2) }

// WithSHN returns c with a shutdown notification.
func (c CC) WithSHN(v uint8) CC { return c.with(ccSHNShift, 2, v) }

// IOSQES returns the I/O submission queue entry size as a power of two.
func (c CC) IOSQES() uint8 { return c.field(ccIOSQESShift, 4) }

// WithIOSQES returns c with the I/O submission queue entry size.
func (c CC) WithIOSQES(v uint8) CC { return c.with(ccIOSQESShift, 4, v) }

// IOCQES returns the I/O completion queue entry size as a power of two.
func (c CC) IOCQES() uint8 { return c.field(ccIOCQESShift, 4) }

// WithIOCQES returns c with the I/O completion queue entry size.
func (c CC) WithIOCQES(v uint8) CC { return c.with(ccIOCQESShift, 4, v) }

// CRIME returns the controller ready independent of media enable bit.
func (c CC) CRIME() bool { return c&CCCRIME != 0 }

// CSTS is the Controller Status property: Base 2.1 figure "Offset 1Ch: CSTS".
type CSTS uint32

// Bits of CSTS.
const (
	CSTSReady            CSTS = 1 << 0 // RDY
	CSTSFatal            CSTS = 1 << 1 // CFS
	CSTSSubsystemReset   CSTS = 1 << 4 // NSSRO
	CSTSProcessingPaused CSTS = 1 << 5 // PP
	CSTSShutdownType     CSTS = 1 << 6 // ST: the shutdown is of the NVM subsystem
	cstsSHSTShift             = 2
	cstsSHSTMask         CSTS = 3 << cstsSHSTShift
)

// Values of CSTS.SHST.
const (
	ShutdownStatusNormal     = 0 // no shutdown requested
	ShutdownStatusProcessing = 1
	ShutdownStatusComplete   = 2
)

// RDY returns the ready bit.
func (c CSTS) RDY() bool { return c&CSTSReady != 0 }

// CFS returns the controller fatal status bit.
func (c CSTS) CFS() bool { return c&CSTSFatal != 0 }

// SHST returns the shutdown status.
func (c CSTS) SHST() uint8 { return uint8(c & cstsSHSTMask >> cstsSHSTShift) }

// NSSRO reports that an NVM subsystem reset occurred.
func (c CSTS) NSSRO() bool { return c&CSTSSubsystemReset != 0 }

// PP reports that processing is paused.
func (c CSTS) PP() bool { return c&CSTSProcessingPaused != 0 }

// ST returns the shutdown type bit.
func (c CSTS) ST() bool { return c&CSTSShutdownType != 0 }

// WithRDY returns c with the ready bit set or cleared.
func (c CSTS) WithRDY(on bool) CSTS { return c&^CSTSReady | CSTS(bit(on)) }

// WithCFS returns c with the fatal bit set or cleared.
func (c CSTS) WithCFS(on bool) CSTS { return c&^CSTSFatal | CSTS(bit(on))<<1 }

// WithSHST returns c with a shutdown status.
func (c CSTS) WithSHST(v uint8) CSTS { return c&^cstsSHSTMask | CSTS(v)<<cstsSHSTShift&cstsSHSTMask }

// CRTO is the Controller Ready Timeouts property: Base 2.1 figure "Offset 68h: CRTO".
type CRTO uint32

// MakeCRTO builds CRTO of the two timeouts, in 500 ms units.
func MakeCRTO(withMedia, independent uint16) CRTO { return CRTO(withMedia) | CRTO(independent)<<16 }

// CRWMT returns the ready-with-media timeout in 500 ms units.
func (c CRTO) CRWMT() uint16 { return uint16(c) }

// CRIMT returns the ready-independent-of-media timeout in 500 ms units.
func (c CRTO) CRIMT() uint16 { return uint16(c >> 16) }

// WithMediaTimeout returns CRWMT as a duration.
func (c CRTO) WithMediaTimeout() time.Duration {
	return time.Duration(c.CRWMT()) * 500 * time.Millisecond
}

// IndependentTimeout returns CRIMT as a duration.
func (c CRTO) IndependentTimeout() time.Duration {
	return time.Duration(c.CRIMT()) * 500 * time.Millisecond
}

// AQA is the Admin Queue Attributes property: Base 2.1 figure "Offset 24h: AQA".
type AQA uint32

// MakeAQA builds AQA of the queues' numbers of entries, 2 to 4096.
func MakeAQA(sqEntries, cqEntries uint16) AQA {
	return AQA((sqEntries-1)&0xfff) | AQA((cqEntries-1)&0xfff)<<16
}

// ASQS returns the admin submission queue's size, 0-based.
func (a AQA) ASQS() uint16 { return uint16(a & 0xfff) }

// ACQS returns the admin completion queue's size, 0-based.
func (a AQA) ACQS() uint16 { return uint16(a >> 16 & 0xfff) }

// CMBLOC is the Controller Memory Buffer Location property.
type CMBLOC uint32

// BIR returns the base address register that holds the buffer.
func (c CMBLOC) BIR() uint8 { return uint8(c & 7) }

// OFST returns the buffer's offset in the BAR, in CMBSZ units.
func (c CMBLOC) OFST() uint32 { return uint32(c >> 12) }

// CMBSZ is the Controller Memory Buffer Size property.
type CMBSZ uint32

// What a controller memory buffer may hold: bits of CMBSZ.
const (
	CMBSubmissionQueues CMBSZ = 1 << 0
	CMBCompletionQueues CMBSZ = 1 << 1
	CMBLists            CMBSZ = 1 << 2 // PRP and SGL lists
	CMBReadData         CMBSZ = 1 << 3
	CMBWriteData        CMBSZ = 1 << 4
)

// UnitSize returns the unit of CMBSZ.SZ and CMBLOC.OFST in bytes: 4 KiB times
// 16 for each step of SZU, which is reserved above 6.
func (c CMBSZ) UnitSize() uint64 { return 1 << (12 + 4*(c>>8&0xf)) }

// Units returns SZ, the size in units.
func (c CMBSZ) Units() uint32 { return uint32(c >> 12) }
