package nvme

import "encoding/binary"

// Fields of admin commands, CDW10 to CDW15: Base 2.1 section 5.

// CNS returns Identify's controller or namespace structure, CDW10 bits 7:0.
func (c *Command) CNS() CNS { return CNS(c[40]) }

// CNTID returns Identify's controller identifier, CDW10 bits 31:16.
func (c *Command) CNTID() uint16 { return binary.LittleEndian.Uint16(c[42:44]) }

// CNSSpecificID returns Identify's CNS specific identifier, CDW11 bits 15:0.
func (c *Command) CNSSpecificID() uint16 { return binary.LittleEndian.Uint16(c[44:46]) }

// CSI returns Identify's command set identifier, CDW11 bits 31:24.
func (c *Command) CSI() CSI { return CSI(c[47]) }

// SetIdentify sets CDW10 and CDW11 of an Identify command.
func (c *Command) SetIdentify(cns CNS, cntid uint16, csi CSI, specific uint16) {
	c.SetCDW(10, uint32(cns)|uint32(cntid)<<16)
	c.SetCDW(11, uint32(specific)|uint32(csi)<<24)
}

// UUIDIndex returns the UUID index of Identify, Get/Set Features and Get Log
// Page, CDW14 bits 6:0.
func (c *Command) UUIDIndex() uint8 { return c[56] & 0x7f }

// LID returns Get Log Page's log page identifier, CDW10 bits 7:0.
func (c *Command) LID() LogID { return LogID(c[40]) }

// LSP returns Get Log Page's log specific parameter, CDW10 bits 14:8.
func (c *Command) LSP() uint8 { return c[41] & 0x7f }

// RAE returns Get Log Page's retain asynchronous event bit, CDW10 bit 15.
func (c *Command) RAE() bool { return c[41]&0x80 != 0 }

// LogLength returns how many bytes of a log page are asked for: NUMDL and
// NUMDU, 0-based, in dwords on the wire. It is at least 4 and at most 2^34.
func (c *Command) LogLength() uint64 {
	n := uint32(binary.LittleEndian.Uint16(c[42:44])) | uint32(binary.LittleEndian.Uint16(c[44:46]))<<16
	return (uint64(n) + 1) * 4
}

// LSI returns Get Log Page's log specific identifier, CDW11 bits 31:16.
func (c *Command) LSI() uint16 { return binary.LittleEndian.Uint16(c[46:48]) }

// LogOffset returns Get Log Page's offset, CDW12 and CDW13: bytes, or an index
// where LogOffsetIsIndex says so.
func (c *Command) LogOffset() uint64 { return binary.LittleEndian.Uint64(c[48:56]) }

// LogOffsetIsIndex returns Get Log Page's offset type, CDW14 bit 23.
func (c *Command) LogOffsetIsIndex() bool { return c[58]&0x80 != 0 }

// LogCSI returns Get Log Page's command set identifier, CDW14 bits 31:24.
func (c *Command) LogCSI() CSI { return CSI(c[59]) }

// SetLog sets CDW10 to CDW13 of a Get Log Page command that reads length bytes
// (a multiple of 4, at least 4) from a byte offset.
func (c *Command) SetLog(lid LogID, lsp uint8, rae bool, length uint64, offset uint64) {
	n := uint32(length/4 - 1)
	w := uint32(lid) | uint32(lsp&0x7f)<<8 | n<<16
	if rae {
		w |= 1 << 15
	}
	c.SetCDW(10, w)
	c.SetCDW(11, c.CDW(11)&0xffff0000|n>>16)
	binary.LittleEndian.PutUint64(c[48:56], offset)
}

// FID returns the feature identifier of Get and Set Features, CDW10 bits 7:0.
func (c *Command) FID() FeatureID { return FeatureID(c[40]) }

// FeatureSelect returns Get Features' SEL, CDW10 bits 10:8.
func (c *Command) FeatureSelect() FeatureSelect { return FeatureSelect(c[41] & 7) }

// FeatureSave returns Set Features' SV, CDW10 bit 31.
func (c *Command) FeatureSave() bool { return c[43]&0x80 != 0 }

// AbortSQID returns the submission queue that an Abort names, CDW10 bits 15:0.
func (c *Command) AbortSQID() uint16 { return binary.LittleEndian.Uint16(c[40:42]) }

// AbortCID returns the command that an Abort names, CDW10 bits 31:16.
func (c *Command) AbortCID() uint16 { return binary.LittleEndian.Uint16(c[42:44]) }

// SetAbort sets the command to abort.
func (c *Command) SetAbort(sqid, cid uint16) { c.SetCDW(10, uint32(sqid)|uint32(cid)<<16) }

// SetCreateCQ sets CDW10 and CDW11 of a Create I/O Completion Queue command for
// a physically contiguous queue; size is the number of entries (1-based).
func (c *Command) SetCreateCQ(qid uint16, size uint32, interrupts bool, vector uint16) {
	c.SetCDW(10, uint32(qid)|(size-1)<<16)
	w := uint32(1) | uint32(vector)<<16
	if interrupts {
		w |= 2
	}
	c.SetCDW(11, w)
}

// SetCreateSQ sets CDW10 and CDW11 of a Create I/O Submission Queue command for
// a physically contiguous queue of urgent priority; size is the number of
// entries (1-based).
func (c *Command) SetCreateSQ(qid uint16, size uint32, cqid uint16) {
	c.SetCDW(10, uint32(qid)|(size-1)<<16)
	c.SetCDW(11, 1|uint32(cqid)<<16)
}

// SetDeleteQueue sets the queue of Delete I/O Submission/Completion Queue.
func (c *Command) SetDeleteQueue(qid uint16) { c.SetCDW(10, uint32(qid)) }
