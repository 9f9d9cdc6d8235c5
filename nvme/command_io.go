package nvme

import "encoding/binary"

// Fields of the NVM command set's I/O commands: NVM Command Set 1.1 section 3.3
// (Read, Write, Compare, Write Zeroes, Write Uncorrectable, Verify share the
// layout of CDW10..CDW15; Dataset Management has its own).

// Bits of CDW12 in Read, Write, Compare, Write Zeroes and Verify.
const (
	CDW12LR   = 1 << 31 // limited retry
	CDW12FUA  = 1 << 30 // force unit access
	CDW12DEAC = 1 << 25 // Write Zeroes: deallocate
	CDW12STC  = 1 << 24 // storage tag check
	CDW12NSZ  = 1 << 23 // Write Zeroes: namespace zeroes

	prinfoShift = 26
	prinfoMask  = 0xf << prinfoShift
)

// Bits of PRINFO, the protection information field.
const (
	PRInfoCheckRef   = 1 << 0
	PRInfoCheckApp   = 1 << 1
	PRInfoCheckGuard = 1 << 2
	PRInfoAct        = 1 << 3
)

// SLBA returns the starting logical block address, CDW10 and CDW11.
func (c *Command) SLBA() uint64 { return binary.LittleEndian.Uint64(c[40:48]) }

// SetSLBA sets the starting logical block address.
func (c *Command) SetSLBA(lba uint64) { binary.LittleEndian.PutUint64(c[40:48], lba) }

// NLB returns the number of logical blocks, 1 to 65536: the wire holds it less one.
func (c *Command) NLB() uint32 { return uint32(binary.LittleEndian.Uint16(c[48:50])) + 1 }

// SetNLB sets the number of logical blocks, 1 to 65536.
func (c *Command) SetNLB(n uint32) { binary.LittleEndian.PutUint16(c[48:50], uint16(n-1)) }

// FUA returns the force unit access bit.
func (c *Command) FUA() bool { return c[51]&(CDW12FUA>>24) != 0 }

// SetFUA sets or clears the force unit access bit.
func (c *Command) SetFUA(on bool) {
	c[51] &^= CDW12FUA >> 24
	if on {
		c[51] |= CDW12FUA >> 24
	}
}

// LR returns the limited retry bit.
func (c *Command) LR() bool { return c[51]&(CDW12LR>>24) != 0 }

// PRINFO returns the protection information field, CDW12 bits 29:26.
func (c *Command) PRINFO() uint8 { return uint8(c.CDW(12) & prinfoMask >> prinfoShift) }

// SetPRINFO sets the protection information field.
func (c *Command) SetPRINFO(p uint8) {
	c.SetCDW(12, c.CDW(12)&^prinfoMask|uint32(p)<<prinfoShift&prinfoMask)
}

// DEAC returns Write Zeroes' deallocate bit.
func (c *Command) DEAC() bool { return c[51]&(CDW12DEAC>>24) != 0 }

// SetDEAC sets or clears Write Zeroes' deallocate bit.
func (c *Command) SetDEAC(on bool) {
	c[51] &^= CDW12DEAC >> 24
	if on {
		c[51] |= CDW12DEAC >> 24
	}
}

// DSMRanges returns Dataset Management's number of ranges, 1 to 256.
func (c *Command) DSMRanges() int { return int(c[40]) + 1 }

// SetDSMRanges sets Dataset Management's number of ranges, 1 to 256.
func (c *Command) SetDSMRanges(n int) { c[40] = byte(n - 1) }

// Attributes of Dataset Management, CDW11.
const (
	DSMIntegralRead  = 1 << 0
	DSMIntegralWrite = 1 << 1
	DSMDeallocate    = 1 << 2
)

// DSMAttributes returns Dataset Management's attributes, CDW11 bits 2:0.
func (c *Command) DSMAttributes() uint8 { return c[44] & 7 }

// SetDSMAttributes sets Dataset Management's attributes.
func (c *Command) SetDSMAttributes(a uint8) { c[44] = c[44]&^7 | a&7 }
