package nvme

import "encoding/binary"

// DSMRangeSize is the length of a Dataset Management range.
const DSMRangeSize = 16

// DSMMaxRanges is how many ranges one command may have.
const DSMMaxRanges = 256

// DSMRange is a Dataset Management range as it stands on the wire: NVM Command
// Set 1.1 section 3.3.3, figure "Dataset Management - Range Definition".
//
//	byte  0..3                4..7                    8..15
//	      context attributes  length in blocks        starting LBA
type DSMRange [DSMRangeSize]byte

// Attributes returns the context attributes.
func (r *DSMRange) Attributes() uint32 { return binary.LittleEndian.Uint32(r[0:4]) }

// SetAttributes sets the context attributes.
func (r *DSMRange) SetAttributes(v uint32) { binary.LittleEndian.PutUint32(r[0:4], v) }

// NLB returns the length in logical blocks; unlike in Read it is 1-based.
func (r *DSMRange) NLB() uint32 { return binary.LittleEndian.Uint32(r[4:8]) }

// SetNLB sets the length in logical blocks.
func (r *DSMRange) SetNLB(n uint32) { binary.LittleEndian.PutUint32(r[4:8], n) }

// SLBA returns the starting logical block.
func (r *DSMRange) SLBA() uint64 { return binary.LittleEndian.Uint64(r[8:16]) }

// SetSLBA sets the starting logical block.
func (r *DSMRange) SetSLBA(lba uint64) { binary.LittleEndian.PutUint64(r[8:16], lba) }
