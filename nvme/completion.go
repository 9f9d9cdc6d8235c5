package nvme

import "encoding/binary"

// CompletionSize is the length of a completion queue entry: Base 2.1 section 4.2.
const CompletionSize = 16

// Completion is a completion queue entry as it stands on the wire:
//
//	byte  0..3  4..7  8..9  10..11  12..13  14..15
//	      DW0   DW1   SQHD  SQID    CID     status << 1 | phase
//
// In a fabrics response the phase bit and SQID are reserved and stay 0.
type Completion [CompletionSize]byte

// SQHDInvalid is SQHD in responses on a queue whose flow control is disabled.
const SQHDInvalid = 0xffff

// Result64 returns dwords 0 and 1 as one value.
func (c *Completion) Result64() uint64 { return binary.LittleEndian.Uint64(c[0:8]) }

// SetResult64 sets dwords 0 and 1.
func (c *Completion) SetResult64(v uint64) { binary.LittleEndian.PutUint64(c[0:8], v) }

// DW0 returns dword 0.
func (c *Completion) DW0() uint32 { return binary.LittleEndian.Uint32(c[0:4]) }

// SetDW0 sets dword 0.
func (c *Completion) SetDW0(v uint32) { binary.LittleEndian.PutUint32(c[0:4], v) }

// DW1 returns dword 1.
func (c *Completion) DW1() uint32 { return binary.LittleEndian.Uint32(c[4:8]) }

// SetDW1 sets dword 1.
func (c *Completion) SetDW1(v uint32) { binary.LittleEndian.PutUint32(c[4:8], v) }

// SQHD returns the submission queue head.
func (c *Completion) SQHD() uint16 { return binary.LittleEndian.Uint16(c[8:10]) }

// SetSQHD sets the submission queue head.
func (c *Completion) SetSQHD(h uint16) { binary.LittleEndian.PutUint16(c[8:10], h) }

// SQID returns the submission queue identifier.
func (c *Completion) SQID() uint16 { return binary.LittleEndian.Uint16(c[10:12]) }

// SetSQID sets the submission queue identifier.
func (c *Completion) SetSQID(q uint16) { binary.LittleEndian.PutUint16(c[10:12], q) }

// CID returns the command identifier.
func (c *Completion) CID() uint16 { return binary.LittleEndian.Uint16(c[12:14]) }

// SetCID sets the command identifier.
func (c *Completion) SetCID(cid uint16) { binary.LittleEndian.PutUint16(c[12:14], cid) }

// Status returns the status field without the phase bit.
func (c *Completion) Status() Status {
	return Status(binary.LittleEndian.Uint16(c[14:16]) >> 1)
}

// SetStatus sets the status field and clears the phase bit.
func (c *Completion) SetStatus(s Status) { binary.LittleEndian.PutUint16(c[14:16], s.Wire()) }

// Phase returns the phase bit of a PCIe completion.
func (c *Completion) Phase() bool { return c[14]&1 != 0 }

// SetPhase sets the phase bit of a PCIe completion; call it after SetStatus.
func (c *Completion) SetPhase(on bool) {
	c[14] &^= 1
	if on {
		c[14] |= 1
	}
}

// Reset makes every byte 0.
func (c *Completion) Reset() { *c = Completion{} }

// ConnectInvalidParameter is dword 0 of a Connect response with
// StatusConnectInvalidParameters (Base 2.1 section 6.3): the offset of the first
// byte at fault, in the command or (inData) in the Connect data.
func ConnectInvalidParameter(offset uint16, inData bool) uint32 {
	v := uint32(offset)
	if inData {
		v |= 1 << 16
	}
	return v
}

// AUTHREQ bits of a successful Connect response's dword 0; bits 15:0 are CNTLID.
const (
	ConnectAuthATR  = 1 << 17 // an in-band authentication transaction is required
	ConnectAuthASCR = 1 << 18 // it is, followed by a secure channel
)
