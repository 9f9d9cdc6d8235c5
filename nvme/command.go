package nvme

import "encoding/binary"

// CommandSize is the length of a submission queue entry: Base 2.1 section 4.1.
const CommandSize = 64

// Command is a submission queue entry as it stands on the wire, little-endian.
// Methods with pointer receivers read and write it in place, so a capsule that
// a transport received can be used without a copy:
//
//	byte  0      1          2..3  4..7   8..15    16..23  24..39      40..63
//	      opcode FUSE|PSDT  CID   NSID   CDW2,3   MPTR    PRP1+2/SGL  CDW10..15
//
// In a fabrics command byte 4 is FCTYPE and bytes 40..63 depend on it.
type Command [CommandSize]byte

// Direction says which way a command moves data: Base 2.1 figures for the opcode
// field's "Data Transfer Direction", bits 1:0.
type Direction uint8

// Data transfer directions.
const (
	DirNone             Direction = 0
	DirHostToController Direction = 1
	DirControllerToHost Direction = 2
	DirBidirectional    Direction = 3
)

func (d Direction) String() string {
	switch d {
	case DirNone:
		return "none"
	case DirHostToController:
		return "host to controller"
	case DirControllerToHost:
		return "controller to host"
	case DirBidirectional:
		return "bidirectional"
	}
	return "invalid"
}

// DataDirection returns the way in which the command moves data, as bits 1:0 of
// its opcode (or of FCTYPE, for fabrics commands) define it. On an admin queue
// Create I/O Submission/Completion Queue yield DirNone: their pointer names the
// queue's memory and not data of the command.
func DataDirection(admin bool, c *Command) Direction {
	op := c.Opcode()
	if op == OpFabrics {
		return Direction(c.FCType() & 3)
	}
	if admin && (op == AdminCreateSQ || op == AdminCreateCQ) {
		return DirNone
	}
	return Direction(op & 3)
}

// FUSE values: Command Dword 0 bits 09:08.
const (
	FuseNone   = 0
	FuseFirst  = 1
	FuseSecond = 2
)

// PSDT values: Command Dword 0 bits 15:14. On fabrics only PSDTSGL and
// PSDTSGLMetadata are allowed.
const (
	PSDTPRP         = 0 // PRPs
	PSDTSGL         = 1 // SGL; MPTR is one contiguous buffer
	PSDTSGLMetadata = 2 // SGL; MPTR addresses an SGL segment
	psdtShift       = 6
	psdtMask        = 3 << psdtShift
	fuseMask        = 3
)

// Opcode returns byte 0.
func (c *Command) Opcode() Opcode { return Opcode(c[0]) }

// SetOpcode sets byte 0.
func (c *Command) SetOpcode(op Opcode) { c[0] = byte(op) }

// Fuse returns the fused operation field, FuseNone to FuseSecond.
func (c *Command) Fuse() uint8 { return c[1] & fuseMask }

// SetFuse sets the fused operation field.
func (c *Command) SetFuse(f uint8) { c[1] = c[1]&^fuseMask | f&fuseMask }

// PSDT returns the "PRP or SGL for Data Transfer" field.
func (c *Command) PSDT() uint8 { return c[1] >> psdtShift }

// SetPSDT sets the "PRP or SGL for Data Transfer" field.
func (c *Command) SetPSDT(p uint8) { c[1] = c[1]&^psdtMask | p<<psdtShift }

// CID returns the command identifier.
func (c *Command) CID() uint16 { return binary.LittleEndian.Uint16(c[2:4]) }

// SetCID sets the command identifier.
func (c *Command) SetCID(cid uint16) { binary.LittleEndian.PutUint16(c[2:4], cid) }

// NSID returns the namespace identifier.
func (c *Command) NSID() uint32 { return binary.LittleEndian.Uint32(c[4:8]) }

// SetNSID sets the namespace identifier.
func (c *Command) SetNSID(nsid uint32) { binary.LittleEndian.PutUint32(c[4:8], nsid) }

// MPTR returns the metadata pointer.
func (c *Command) MPTR() uint64 { return binary.LittleEndian.Uint64(c[16:24]) }

// SetMPTR sets the metadata pointer.
func (c *Command) SetMPTR(p uint64) { binary.LittleEndian.PutUint64(c[16:24], p) }

// PRP1 returns the first physical region page entry.
func (c *Command) PRP1() uint64 { return binary.LittleEndian.Uint64(c[24:32]) }

// SetPRP1 sets the first physical region page entry.
func (c *Command) SetPRP1(p uint64) { binary.LittleEndian.PutUint64(c[24:32], p) }

// PRP2 returns the second physical region page entry (or the list's address).
func (c *Command) PRP2() uint64 { return binary.LittleEndian.Uint64(c[32:40]) }

// SetPRP2 sets the second physical region page entry (or the list's address).
func (c *Command) SetPRP2(p uint64) { binary.LittleEndian.PutUint64(c[32:40], p) }

// SGL returns a view of SGL Entry 1, bytes 24 to 39 of the command.
func (c *Command) SGL() *SGLDescriptor { return (*SGLDescriptor)(c[24:40]) }

// CDW returns command dword n, 0 to 15; it panics for any other n.
func (c *Command) CDW(n int) uint32 { return binary.LittleEndian.Uint32(c[n*4 : n*4+4]) }

// SetCDW sets command dword n, 0 to 15; it panics for any other n.
func (c *Command) SetCDW(n int, v uint32) { binary.LittleEndian.PutUint32(c[n*4:n*4+4], v) }
