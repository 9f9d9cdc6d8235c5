package nvme

import (
	"fmt"
	"time"
)

// Offsets of controller properties: PCIe memory-mapped registers, and OFST of
// the fabrics Property commands. Base 2.1 section 3.1.4, figure "Property
// Definition". On fabrics only CAP, VS, CC, CSTS, NSSR, NSSD and CRTO exist.
const (
	RegCAP     = 0x00 // 8 bytes
	RegVS      = 0x08 // 4
	RegINTMS   = 0x0c // 4
	RegINTMC   = 0x10 // 4
	RegCC      = 0x14 // 4
	RegCSTS    = 0x1c // 4
	RegNSSR    = 0x20 // 4
	RegAQA     = 0x24 // 4
	RegASQ     = 0x28 // 8
	RegACQ     = 0x30 // 8
	RegCMBLOC  = 0x38 // 4
	RegCMBSZ   = 0x3c // 4
	RegBPINFO  = 0x40 // 4
	RegBPRSEL  = 0x44 // 4
	RegBPMBL   = 0x48 // 8
	RegCMBMSC  = 0x50 // 8
	RegCMBSTS  = 0x58 // 4
	RegCMBEBS  = 0x5c // 4
	RegCMBSWTP = 0x60 // 4
	RegNSSD    = 0x64 // 4
	RegCRTO    = 0x68 // 4
	RegPMRCAP  = 0xe00
	RegPMRCTL  = 0xe04
	RegPMRSTS  = 0xe08

	// RegDoorbells is where the doorbells of the PCIe transport begin.
	RegDoorbells = 0x1000
)

// NSSRMagic ("NVMe") written to NSSR resets the NVM subsystem.
const NSSRMagic = 0x4e564d65

// DoorbellSQ returns the offset of a submission queue's tail doorbell for a
// CAP.DSTRD: PCIe Transport 1.1, figure "Submission Queue y Tail Doorbell".
func DoorbellSQ(qid uint16, dstrd uint8) uint32 {
	return RegDoorbells + uint32(qid)*2*(4<<dstrd)
}

// DoorbellCQ returns the offset of a completion queue's head doorbell.
func DoorbellCQ(qid uint16, dstrd uint8) uint32 {
	return RegDoorbells + (uint32(qid)*2+1)*(4<<dstrd)
}

// CAP is the Controller Capabilities property: Base 2.1 figure "Offset 0h: CAP".
type CAP uint64

// Fields of CAP.
const (
	capMQESShift   = 0
	capCQRShift    = 16
	capAMSShift    = 17
	capTOShift     = 24
	capDSTRDShift  = 32
	capNSSRSShift  = 36
	capCSSShift    = 37
	capBPSShift    = 45
	capCPSShift    = 46
	capMPSMINShift = 48
	capMPSMAXShift = 52
	capPMRSShift   = 56
	capCMBSShift   = 57
	capNSSSShift   = 58
	capCRMSShift   = 59
	capNSSESShift  = 61
)

// Bits of CAP.CSS.
const (
	CAPCSSNVM   = 1 << 0 // NVM command set
	CAPCSSIOCSS = 1 << 6 // one or more I/O command sets, chosen by CC.CSS = 110b
	CAPCSSNone  = 1 << 7 // no I/O command set
)

// Bits of CAP.CRMS.
const (
	CAPCRMSWithMedia   = 1 << 0 // CRWMS
	CAPCRMSIndependent = 1 << 1 // CRIMS
)

func capField(c CAP, shift, bits uint) uint64 { return uint64(c) >> shift & (1<<bits - 1) }

// MQES returns the largest queue size, 0-based.
func (c CAP) MQES() uint16 { return uint16(capField(c, capMQESShift, 16)) }

// CQR reports that queues must be physically contiguous.
func (c CAP) CQR() bool { return capField(c, capCQRShift, 1) != 0 }

// AMS returns the arbitration mechanisms beside round robin.
func (c CAP) AMS() uint8 { return uint8(capField(c, capAMSShift, 2)) }

// TO returns the worst-case time for CSTS.RDY to follow CC.EN, in 500 ms units.
func (c CAP) TO() uint8 { return uint8(capField(c, capTOShift, 8)) }

// Timeout returns TO as a duration.
func (c CAP) Timeout() time.Duration { return time.Duration(c.TO()) * 500 * time.Millisecond }

// DSTRD returns the doorbell stride: 2^(2+DSTRD) bytes.
func (c CAP) DSTRD() uint8 { return uint8(capField(c, capDSTRDShift, 4)) }

// NSSRS reports that NVM Subsystem Reset is supported.
func (c CAP) NSSRS() bool { return capField(c, capNSSRSShift, 1) != 0 }

// CSS returns the command sets supported, CAPCSSNVM and so on.
func (c CAP) CSS() uint8 { return uint8(capField(c, capCSSShift, 8)) }

// BPS reports boot partition support.
func (c CAP) BPS() bool { return capField(c, capBPSShift, 1) != 0 }

// CPS returns the controller power scope.
func (c CAP) CPS() uint8 { return uint8(capField(c, capCPSShift, 2)) }

// MPSMIN returns the smallest memory page size: 2^(12+MPSMIN) bytes.
func (c CAP) MPSMIN() uint8 { return uint8(capField(c, capMPSMINShift, 4)) }

// MPSMAX returns the largest memory page size: 2^(12+MPSMAX) bytes.
func (c CAP) MPSMAX() uint8 { return uint8(capField(c, capMPSMAXShift, 4)) }

// PMRS reports a persistent memory region.
func (c CAP) PMRS() bool { return capField(c, capPMRSShift, 1) != 0 }

// CMBS reports a controller memory buffer.
func (c CAP) CMBS() bool { return capField(c, capCMBSShift, 1) != 0 }

// NSSS reports NVM Subsystem Shutdown support.
func (c CAP) NSSS() bool { return capField(c, capNSSSShift, 1) != 0 }

// CRMS returns the controller ready modes, CAPCRMSWithMedia and so on.
func (c CAP) CRMS() uint8 { return uint8(capField(c, capCRMSShift, 2)) }

// NSSES reports the NVM Subsystem Shutdown Enhancements.
func (c CAP) NSSES() bool { return capField(c, capNSSESShift, 1) != 0 }

func (c CAP) with(shift, bits uint, v uint64) CAP {
	mask := CAP(1<<bits-1) << shift
	return c&^mask | CAP(v)<<shift&mask
}

func bit(on bool) uint64 {
	if on {
		return 1
	}
	return 0
}

// WithMQES returns c with the largest queue size, 0-based.
func (c CAP) WithMQES(v uint16) CAP { return c.with(capMQESShift, 16, uint64(v)) }

// WithCQR returns c with CQR set or cleared.
func (c CAP) WithCQR(on bool) CAP { return c.with(capCQRShift, 1, bit(on)) }

// WithAMS returns c with the arbitration mechanisms.
func (c CAP) WithAMS(v uint8) CAP { return c.with(capAMSShift, 2, uint64(v)) }

// WithTO returns c with the ready timeout in 500 ms units.
func (c CAP) WithTO(v uint8) CAP { return c.with(capTOShift, 8, uint64(v)) }

// WithDSTRD returns c with the doorbell stride.
func (c CAP) WithDSTRD(v uint8) CAP { return c.with(capDSTRDShift, 4, uint64(v)) }

// WithNSSRS returns c with NSSRS set or cleared.
func (c CAP) WithNSSRS(on bool) CAP { return c.with(capNSSRSShift, 1, bit(on)) }

// WithCSS returns c with the command sets supported.
func (c CAP) WithCSS(v uint8) CAP { return c.with(capCSSShift, 8, uint64(v)) }

// WithMPS returns c with the smallest and largest memory page size.
func (c CAP) WithMPS(minimum, maximum uint8) CAP {
	return c.with(capMPSMINShift, 4, uint64(minimum)).with(capMPSMAXShift, 4, uint64(maximum))
}

// WithCRMS returns c with the controller ready modes.
func (c CAP) WithCRMS(v uint8) CAP { return c.with(capCRMSShift, 2, uint64(v)) }

// Version is the VS property and Identify Controller's VER.
type Version uint32

// Versions of the base specification.
const (
	Version10 Version = 0x010000
	Version11 Version = 0x010100
	Version12 Version = 0x010200
	Version13 Version = 0x010300
	Version14 Version = 0x010400
	Version20 Version = 0x020000
	Version21 Version = 0x020100
)

// Major returns the major version.
func (v Version) Major() uint16 { return uint16(v >> 16) }

// Minor returns the minor version.
func (v Version) Minor() uint8 { return uint8(v >> 8) }

// Tertiary returns the tertiary version.
func (v Version) Tertiary() uint8 { return uint8(v) }

func (v Version) String() string {
	if v.Tertiary() != 0 {
		return fmt.Sprintf("%d.%d.%d", v.Major(), v.Minor(), v.Tertiary())
	}
	return fmt.Sprintf("%d.%d", v.Major(), v.Minor())
}
