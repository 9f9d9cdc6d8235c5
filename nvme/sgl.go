package nvme

import "encoding/binary"

// SGLDescriptorSize is the length of every SGL descriptor: Base 2.1 section 4.3.2.
const SGLDescriptorSize = 16

// SGLDescriptor is one SGL descriptor as it stands on the wire:
//
//	byte  0..7     8..11        12..14    15
//	      address  length       reserved  type << 4 | subtype
//	keyed 0..7     8..10  11..14          15
//	      address  length key             type << 4 | subtype
type SGLDescriptor [SGLDescriptorSize]byte

// SGLType is an SGL descriptor's type, byte 15 bits 7:4.
type SGLType uint8

// SGL descriptor types: Base 2.1, figure "SGL Descriptor Type".
const (
	SGLDataBlock          SGLType = 0x0
	SGLBitBucket          SGLType = 0x1
	SGLSegment            SGLType = 0x2
	SGLLastSegment        SGLType = 0x3
	SGLKeyedDataBlock     SGLType = 0x4
	SGLTransportDataBlock SGLType = 0x5
	SGLVendorSpecific     SGLType = 0xf
)

// SGLSubtype is an SGL descriptor's subtype, byte 15 bits 3:0.
type SGLSubtype uint8

// SGL descriptor subtypes: Base 2.1, figure "SGL Descriptor Sub Type Values";
// Ah to Fh belong to the transport.
const (
	SGLAddress    SGLSubtype = 0x0 // address is a memory address
	SGLOffset     SGLSubtype = 0x1 // address is an offset into the capsule's data
	SGLTransport  SGLSubtype = 0xa // NVMe/TCP: data travels in data PDUs
	SGLInvalidate SGLSubtype = 0xf // NVMe/RDMA: invalidate the key with the response
)

// SGLMaxKeyedLength is the largest length of a keyed data block.
const SGLMaxKeyedLength = 1<<24 - 1

// Type returns the descriptor's type.
func (d *SGLDescriptor) Type() SGLType { return SGLType(d[15] >> 4) }

// Subtype returns the descriptor's subtype.
func (d *SGLDescriptor) Subtype() SGLSubtype { return SGLSubtype(d[15] & 0xf) }

// Identifier returns byte 15, type and subtype together: compare it with
// SGLIdentifier's results.
func (d *SGLDescriptor) Identifier() uint8 { return d[15] }

// SetType sets type and subtype.
func (d *SGLDescriptor) SetType(t SGLType, s SGLSubtype) { d[15] = SGLIdentifier(t, s) }

// SGLIdentifier packs a type and a subtype as byte 15 has them.
func SGLIdentifier(t SGLType, s SGLSubtype) uint8 { return uint8(t)<<4 | uint8(s)&0xf }

// Address returns the address, or the offset for subtype SGLOffset.
func (d *SGLDescriptor) Address() uint64 { return binary.LittleEndian.Uint64(d[0:8]) }

// SetAddress sets the address or offset.
func (d *SGLDescriptor) SetAddress(a uint64) { binary.LittleEndian.PutUint64(d[0:8], a) }

// Length32 returns the length of every type but SGLKeyedDataBlock.
func (d *SGLDescriptor) Length32() uint32 { return binary.LittleEndian.Uint32(d[8:12]) }

// SetLength32 sets the length of every type but SGLKeyedDataBlock.
func (d *SGLDescriptor) SetLength32(n uint32) { binary.LittleEndian.PutUint32(d[8:12], n) }

// KeyedLength returns the 24-bit length of a keyed data block.
func (d *SGLDescriptor) KeyedLength() uint32 {
	return binary.LittleEndian.Uint32(d[8:12]) & SGLMaxKeyedLength
}

// SetKeyedLength sets the length of a keyed data block, at most SGLMaxKeyedLength.
func (d *SGLDescriptor) SetKeyedLength(n uint32) {
	d[8], d[9], d[10] = byte(n), byte(n>>8), byte(n>>16)
}

// Key returns the key of a keyed data block.
func (d *SGLDescriptor) Key() uint32 { return binary.LittleEndian.Uint32(d[11:15]) }

// SetKey sets the key of a keyed data block.
func (d *SGLDescriptor) SetKey(k uint32) { binary.LittleEndian.PutUint32(d[11:15], k) }

// SetDataBlock makes d a data block descriptor (or any other unkeyed type).
func (d *SGLDescriptor) SetDataBlock(t SGLType, s SGLSubtype, address uint64, length uint32) {
	d.SetAddress(address)
	d.SetLength32(length)
	d[12], d[13], d[14] = 0, 0, 0
	d.SetType(t, s)
}

// SetKeyed makes d a keyed data block descriptor.
func (d *SGLDescriptor) SetKeyed(s SGLSubtype, address uint64, length, key uint32) {
	d.SetAddress(address)
	d.SetKeyedLength(length)
	d.SetKey(key)
	d.SetType(SGLKeyedDataBlock, s)
}
