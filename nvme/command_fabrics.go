package nvme

import "encoding/binary"

// Fields of fabrics commands: Base 2.1 section 6. They are valid only where
// Opcode is OpFabrics.

// FabricsType is the fabrics command type, byte 4 of a fabrics command.
type FabricsType uint8

// Fabrics command types. Bits 1:0 are the data transfer direction.
const (
	FabricsPropertySet  FabricsType = 0x00
	FabricsConnect      FabricsType = 0x01
	FabricsPropertyGet  FabricsType = 0x04
	FabricsAuthSend     FabricsType = 0x05
	FabricsAuthReceive  FabricsType = 0x06
	FabricsDisconnect   FabricsType = 0x08
	FabricsVendorLowest FabricsType = 0xc0
)

func (t FabricsType) String() string {
	switch t {
	case FabricsPropertySet:
		return "Property Set"
	case FabricsConnect:
		return "Connect"
	case FabricsPropertyGet:
		return "Property Get"
	case FabricsAuthSend:
		return "Authentication Send"
	case FabricsAuthReceive:
		return "Authentication Receive"
	case FabricsDisconnect:
		return "Disconnect"
	}
	return unknownName("fabrics type", uint64(t))
}

// FCType returns the fabrics command type.
func (c *Command) FCType() FabricsType { return FabricsType(c[4]) }

// SetFCType sets the fabrics command type.
func (c *Command) SetFCType(t FabricsType) { c[4] = byte(t) }

// Offsets of the Connect command's fields: what Invalid Connect Parameters
// names in IPO when IATTR is 0 (Base 2.1 section 6.3).
const (
	ConnectOffsetRECFMT = 40
	ConnectOffsetQID    = 42
	ConnectOffsetSQSIZE = 44
	ConnectOffsetCATTR  = 46
	ConnectOffsetKATO   = 48
)

// Bits of Connect's CATTR.
const (
	ConnectPriorityMask    = 3 << 0 // PRIOCLASS, of I/O queues
	ConnectDisableSQFlow   = 1 << 2 // DISSQFC
	ConnectIOQueueDeletion = 1 << 3 // INDIVIOQDELS: the host sends Disconnect
	ConnectFromDiscovery   = 1 << 4 // CONNENT: a discovery controller connects
)

// RECFMT returns the record format of Connect and Disconnect; 0 is the only one.
func (c *Command) RECFMT() uint16 { return binary.LittleEndian.Uint16(c[40:42]) }

// SetRECFMT sets the record format of Connect and Disconnect.
func (c *Command) SetRECFMT(f uint16) { binary.LittleEndian.PutUint16(c[40:42], f) }

// QID returns Connect's queue identifier, 0 for the admin queue.
func (c *Command) QID() uint16 { return binary.LittleEndian.Uint16(c[42:44]) }

// SetQID sets Connect's queue identifier.
func (c *Command) SetQID(q uint16) { binary.LittleEndian.PutUint16(c[42:44], q) }

// SQSIZE returns Connect's submission queue size as on the wire: 0-based, and 0
// is invalid.
func (c *Command) SQSIZE() uint16 { return binary.LittleEndian.Uint16(c[44:46]) }

// SetSQSIZE sets Connect's submission queue size, 0-based.
func (c *Command) SetSQSIZE(s uint16) { binary.LittleEndian.PutUint16(c[44:46], s) }

// CATTR returns Connect's attributes.
func (c *Command) CATTR() uint8 { return c[46] }

// SetCATTR sets Connect's attributes.
func (c *Command) SetCATTR(a uint8) { c[46] = a }

// KATO returns Connect's keep alive timeout in milliseconds.
func (c *Command) KATO() uint32 { return binary.LittleEndian.Uint32(c[48:52]) }

// SetKATO sets Connect's keep alive timeout in milliseconds.
func (c *Command) SetKATO(ms uint32) { binary.LittleEndian.PutUint32(c[48:52], ms) }

// Sizes of a property in ATTRIB bits 2:0.
const (
	PropertySize4 = 0
	PropertySize8 = 1
)

// ATTRIB returns the size field of Property Get and Set, PropertySize4 or
// PropertySize8; other values are reserved.
func (c *Command) ATTRIB() uint8 { return c[40] & 7 }

// SetATTRIB sets the size field of Property Get and Set.
func (c *Command) SetATTRIB(a uint8) { c[40] = a & 7 }

// OFST returns the property's offset in Property Get and Set.
func (c *Command) OFST() uint32 { return binary.LittleEndian.Uint32(c[44:48]) }

// SetOFST sets the property's offset in Property Get and Set.
func (c *Command) SetOFST(o uint32) { binary.LittleEndian.PutUint32(c[44:48], o) }

// VALUE returns the value of Property Set; a 4-byte property uses the low half.
func (c *Command) VALUE() uint64 { return binary.LittleEndian.Uint64(c[48:56]) }

// SetVALUE sets the value of Property Set.
func (c *Command) SetVALUE(v uint64) { binary.LittleEndian.PutUint64(c[48:56], v) }

// SPSP0 returns the security protocol specific byte 0 of Authentication Send and
// Receive (Base 2.1 sections 6.1 and 6.2); 01h for NVMe in-band authentication.
func (c *Command) SPSP0() uint8 { return c[41] }

// SPSP1 returns the security protocol specific byte 1; 01h for in-band authentication.
func (c *Command) SPSP1() uint8 { return c[42] }

// SECP returns the security protocol; AuthSecurityProtocol for in-band authentication.
func (c *Command) SECP() uint8 { return c[43] }

// AuthLength returns the transfer length (Send) or allocation length (Receive).
func (c *Command) AuthLength() uint32 { return binary.LittleEndian.Uint32(c[44:48]) }

// AuthSecurityProtocol is SECP of NVMe over Fabrics in-band authentication.
const AuthSecurityProtocol = 0xe9

// SetAuth sets bytes 41 to 47 of Authentication Send and Receive.
func (c *Command) SetAuth(secp, spsp0, spsp1 uint8, length uint32) {
	c[41], c[42], c[43] = spsp0, spsp1, secp
	binary.LittleEndian.PutUint32(c[44:48], length)
}
