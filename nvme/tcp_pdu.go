package nvme

import "encoding/binary"

// PDUs of NVMe/TCP: TCP Transport 1.1 section 3.6.2. Each header is a byte view.
//
//	| CH, 8 bytes | PSH | HDGST, 4 bytes, if HDGSTF | PAD | DATA | DDGST, 4 bytes, if DDGSTF |
//	|<------- HLEN ---->|                                 ^ PDO
//	|<------------------------------------ PLEN ------------------------------------------->|

// TCPPDUType is byte 0 of a PDU.
type TCPPDUType uint8

// PDU types: TCP Transport 1.1 section 3.3.
const (
	TCPTypeICReq       TCPPDUType = 0x00
	TCPTypeICResp      TCPPDUType = 0x01
	TCPTypeH2CTermReq  TCPPDUType = 0x02
	TCPTypeC2HTermReq  TCPPDUType = 0x03
	TCPTypeCapsuleCmd  TCPPDUType = 0x04
	TCPTypeCapsuleResp TCPPDUType = 0x05
	TCPTypeH2CData     TCPPDUType = 0x06
	TCPTypeC2HData     TCPPDUType = 0x07
	TCPTypeR2T         TCPPDUType = 0x09
)

func (t TCPPDUType) String() string {
	switch t {
	case TCPTypeICReq:
		return "ICReq"
	case TCPTypeICResp:
		return "ICResp"
	case TCPTypeH2CTermReq:
		return "H2CTermReq"
	case TCPTypeC2HTermReq:
		return "C2HTermReq"
	case TCPTypeCapsuleCmd:
		return "CapsuleCmd"
	case TCPTypeCapsuleResp:
		return "CapsuleResp"
	case TCPTypeH2CData:
		return "H2CData"
	case TCPTypeC2HData:
		return "C2HData"
	case TCPTypeR2T:
		return "R2T"
	}
	return unknownName("PDU type", uint64(t))
}

// HLEN returns the header length of the PDU type, or 0 for an unknown type.
func (t TCPPDUType) HLEN() int {
	switch t {
	case TCPTypeICReq, TCPTypeICResp:
		return TCPICSize
	case TCPTypeH2CTermReq, TCPTypeC2HTermReq:
		return TCPTermReqSize
	case TCPTypeCapsuleCmd:
		return TCPCapsuleCmdSize
	case TCPTypeCapsuleResp:
		return TCPCapsuleRespSize
	case TCPTypeH2CData, TCPTypeC2HData:
		return TCPDataSize
	case TCPTypeR2T:
		return TCPR2TSize
	}
	return 0
}

// Header lengths and limits.
const (
	TCPHeaderSize      = 8
	TCPICSize          = 128
	TCPTermReqSize     = 24
	TCPCapsuleCmdSize  = TCPHeaderSize + CommandSize
	TCPCapsuleRespSize = TCPHeaderSize + CompletionSize
	TCPDataSize        = 24
	TCPR2TSize         = 24
	TCPDigestSize      = 4
	TCPTermMaxData     = 128                             // of the offending PDU's header
	TCPTermMaxPLEN     = TCPTermReqSize + TCPTermMaxData // a longer one is ignored
	TCPMaxDataAlign    = 31                              // HPDA and CPDA, 0-based dwords
	TCPMinMAXH2CDATA   = 4096
	TCPAdminInCapsule  = 8192 // in-capsule data of an admin or fabrics command, always allowed
	TCPPort            = 4420
	TCPDiscoveryPort   = 8009
)

// FLAGS of the common header.
const (
	TCPFlagHDGST   = 1 << 0 // a header digest follows the header
	TCPFlagDDGST   = 1 << 1 // a data digest follows the data
	TCPFlagLast    = 1 << 2 // H2CData, C2HData: last of its R2T or command
	TCPFlagSuccess = 1 << 3 // C2HData: stands for a successful response capsule
)

// DGST of ICReq and ICResp.
const (
	TCPDigestHeader = 1 << 0
	TCPDigestData   = 1 << 1
)

// Offsets of header fields, as FEI names them.
const (
	TCPOffsetType  = 0
	TCPOffsetFlags = 1
	TCPOffsetHLEN  = 2
	TCPOffsetPDO   = 3
	TCPOffsetPLEN  = 4
	TCPOffsetPFV   = 8  // ICReq, ICResp
	TCPOffsetPDA   = 10 // HPDA of ICReq, CPDA of ICResp
	TCPOffsetDGST  = 11
	TCPOffsetMAX   = 12 // MAXR2T of ICReq, MAXH2CDATA of ICResp
	TCPOffsetCCCID = 8  // data PDUs and R2T
	TCPOffsetTTAG  = 10
	TCPOffsetDATAO = 12 // R2TO of R2T
	TCPOffsetDATAL = 16 // R2TL of R2T
)

// TCPHeader is the common header (CH) of every PDU.
type TCPHeader [TCPHeaderSize]byte

// Type returns the PDU type.
func (h *TCPHeader) Type() TCPPDUType { return TCPPDUType(h[0]) }

// Flags returns FLAGS.
func (h *TCPHeader) Flags() uint8 { return h[1] }

// HLEN returns the header's length without its digest.
func (h *TCPHeader) HLEN() uint8 { return h[2] }

// PDO returns where the data begins.
func (h *TCPHeader) PDO() uint8 { return h[3] }

// PLEN returns the length of the whole PDU.
func (h *TCPHeader) PLEN() uint32 { return binary.LittleEndian.Uint32(h[4:8]) }

// SetFlags sets FLAGS.
func (h *TCPHeader) SetFlags(f uint8) { h[1] = f }

// SetPDO sets where the data begins.
func (h *TCPHeader) SetPDO(o uint8) { h[3] = o }

// SetPLEN sets the length of the whole PDU.
func (h *TCPHeader) SetPLEN(n uint32) { binary.LittleEndian.PutUint32(h[4:8], n) }

// Set writes all five fields; HLEN follows from the type.
func (h *TCPHeader) Set(t TCPPDUType, flags, pdo uint8, plen uint32) {
	h[0], h[1], h[2], h[3] = byte(t), flags, byte(t.HLEN()), pdo
	h.SetPLEN(plen)
}

// TCPDataOffset returns PDO for a header of hlen bytes: after the header digest,
// if there is one, at the next multiple of the receiver's data alignment (HPDA
// or CPDA as on the wire).
func TCPDataOffset(hlen int, headerDigest bool, pda uint8) int {
	n := hlen
	if headerDigest {
		n += TCPDigestSize
	}
	align := (int(pda) + 1) * 4
	return (n + align - 1) / align * align
}

// TCPICReq is the Initialize Connection Request.
type TCPICReq [TCPICSize]byte

// Header returns the common header.
func (p *TCPICReq) Header() *TCPHeader { return (*TCPHeader)(p[:TCPHeaderSize]) }

// PFV returns the PDU format version; 0 is the only one.
func (p *TCPICReq) PFV() uint16 { return binary.LittleEndian.Uint16(p[8:10]) }

// HPDA returns the host's data alignment in dwords, 0-based.
func (p *TCPICReq) HPDA() uint8 { return p[10] }

// DGST returns the digests that the host asks for.
func (p *TCPICReq) DGST() uint8 { return p[11] }

// MAXR2T returns how many R2Ts the host takes at once for a command, 0-based.
func (p *TCPICReq) MAXR2T() uint32 { return binary.LittleEndian.Uint32(p[12:16]) }

// Set writes the whole PDU.
func (p *TCPICReq) Set(hpda, dgst uint8, maxR2T uint32) {
	*p = TCPICReq{10: hpda, 11: dgst}
	binary.LittleEndian.PutUint32(p[12:16], maxR2T)
	p.Header().Set(TCPTypeICReq, 0, 0, TCPICSize)
}

// TCPICResp is the Initialize Connection Response.
type TCPICResp [TCPICSize]byte

// Header returns the common header.
func (p *TCPICResp) Header() *TCPHeader { return (*TCPHeader)(p[:TCPHeaderSize]) }

// PFV returns the PDU format version; 0 is the only one.
func (p *TCPICResp) PFV() uint16 { return binary.LittleEndian.Uint16(p[8:10]) }

// CPDA returns the controller's data alignment in dwords, 0-based.
func (p *TCPICResp) CPDA() uint8 { return p[10] }

// DGST returns the digests that are used.
func (p *TCPICResp) DGST() uint8 { return p[11] }

// MAXH2CDATA returns the most data bytes that an H2CData PDU may have.
func (p *TCPICResp) MAXH2CDATA() uint32 { return binary.LittleEndian.Uint32(p[12:16]) }

// Set writes the whole PDU.
func (p *TCPICResp) Set(cpda, dgst uint8, maxH2CData uint32) {
	*p = TCPICResp{10: cpda, 11: dgst}
	binary.LittleEndian.PutUint32(p[12:16], maxH2CData)
	p.Header().Set(TCPTypeICResp, 0, 0, TCPICSize)
}

// TCPCapsuleCmd is the header of a command capsule.
type TCPCapsuleCmd [TCPCapsuleCmdSize]byte

// Header returns the common header.
func (p *TCPCapsuleCmd) Header() *TCPHeader { return (*TCPHeader)(p[:TCPHeaderSize]) }

// Command returns the submission queue entry.
func (p *TCPCapsuleCmd) Command() *Command { return (*Command)(p[TCPHeaderSize:]) }

// TCPCapsuleResp is the header of a response capsule.
type TCPCapsuleResp [TCPCapsuleRespSize]byte

// Header returns the common header.
func (p *TCPCapsuleResp) Header() *TCPHeader { return (*TCPHeader)(p[:TCPHeaderSize]) }

// Completion returns the completion queue entry.
func (p *TCPCapsuleResp) Completion() *Completion { return (*Completion)(p[TCPHeaderSize:]) }
