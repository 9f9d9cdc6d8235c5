package nvme

import "encoding/binary"

// TCPData is the header of H2CData and C2HData: TCP Transport 1.1 sections
// 3.6.2.8 and 3.6.2.9.
type TCPData [TCPDataSize]byte

// Header returns the common header.
func (p *TCPData) Header() *TCPHeader { return (*TCPHeader)(p[:TCPHeaderSize]) }

// CCCID returns the command's identifier.
func (p *TCPData) CCCID() uint16 { return binary.LittleEndian.Uint16(p[8:10]) }

// TTAG returns the transfer tag of H2CData; it is reserved in C2HData.
func (p *TCPData) TTAG() uint16 { return binary.LittleEndian.Uint16(p[10:12]) }

// DATAO returns the data's offset in the command's buffer.
func (p *TCPData) DATAO() uint32 { return binary.LittleEndian.Uint32(p[12:16]) }

// DATAL returns the data's length.
func (p *TCPData) DATAL() uint32 { return binary.LittleEndian.Uint32(p[16:20]) }

// SetFields writes all of the PDU specific header.
func (p *TCPData) SetFields(cccid, ttag uint16, datao, datal uint32) {
	binary.LittleEndian.PutUint16(p[8:10], cccid)
	binary.LittleEndian.PutUint16(p[10:12], ttag)
	binary.LittleEndian.PutUint32(p[12:16], datao)
	binary.LittleEndian.PutUint32(p[16:20], datal)
	p[20], p[21], p[22], p[23] = 0, 0, 0, 0
}

// TCPR2T is Ready to Transfer: TCP Transport 1.1 section 3.6.2.10.
type TCPR2T [TCPR2TSize]byte

// Header returns the common header.
func (p *TCPR2T) Header() *TCPHeader { return (*TCPHeader)(p[:TCPHeaderSize]) }

// CCCID returns the command's identifier.
func (p *TCPR2T) CCCID() uint16 { return binary.LittleEndian.Uint16(p[8:10]) }

// TTAG returns the transfer tag that H2CData repeats.
func (p *TCPR2T) TTAG() uint16 { return binary.LittleEndian.Uint16(p[10:12]) }

// R2TO returns the offset of the data asked for.
func (p *TCPR2T) R2TO() uint32 { return binary.LittleEndian.Uint32(p[12:16]) }

// R2TL returns the length of the data asked for.
func (p *TCPR2T) R2TL() uint32 { return binary.LittleEndian.Uint32(p[16:20]) }

// SetFields writes all of the PDU specific header.
func (p *TCPR2T) SetFields(cccid, ttag uint16, r2to, r2tl uint32) {
	binary.LittleEndian.PutUint16(p[8:10], cccid)
	binary.LittleEndian.PutUint16(p[10:12], ttag)
	binary.LittleEndian.PutUint32(p[12:16], r2to)
	binary.LittleEndian.PutUint32(p[16:20], r2tl)
	p[20], p[21], p[22], p[23] = 0, 0, 0, 0
}

// TCPFatalStatus is FES of the Terminate Connection Requests.
type TCPFatalStatus uint16

// Fatal error statuses: TCP Transport 1.1 sections 3.6.2.4 and 3.6.2.5. 05h is
// Data Transfer Limit Exceeded from a controller and R2T Limit Exceeded from a
// host.
const (
	TCPFESInvalidHeaderField   TCPFatalStatus = 0x01 // FEI: the field's offset
	TCPFESSequenceError        TCPFatalStatus = 0x02
	TCPFESHeaderDigest         TCPFatalStatus = 0x03 // FEI: the digest received
	TCPFESOutOfRange           TCPFatalStatus = 0x04
	TCPFESLimitExceeded        TCPFatalStatus = 0x05
	TCPFESUnsupportedParameter TCPFatalStatus = 0x06 // FEI: the field's offset
)

func (s TCPFatalStatus) String() string {
	switch s {
	case TCPFESInvalidHeaderField:
		return "Invalid PDU Header Field"
	case TCPFESSequenceError:
		return "PDU Sequence Error"
	case TCPFESHeaderDigest:
		return "Header Digest Error"
	case TCPFESOutOfRange:
		return "Data Transfer Out of Range"
	case TCPFESLimitExceeded:
		return "Data Transfer or R2T Limit Exceeded"
	case TCPFESUnsupportedParameter:
		return "Unsupported Parameter"
	}
	return unknownName("fatal error status", uint64(s))
}

// TCPTermReq is the header of H2CTermReq and C2HTermReq. The first bytes of the
// PDU at fault follow as its data, at most TCPTermMaxData. FEI is at byte 10
// and so not aligned: hosts exist that put it at byte 12.
type TCPTermReq [TCPTermReqSize]byte

// Header returns the common header.
func (p *TCPTermReq) Header() *TCPHeader { return (*TCPHeader)(p[:TCPHeaderSize]) }

// FES returns the fatal error status.
func (p *TCPTermReq) FES() TCPFatalStatus {
	return TCPFatalStatus(binary.LittleEndian.Uint16(p[8:10]))
}

// FEI returns the fatal error information.
func (p *TCPTermReq) FEI() uint32 { return binary.LittleEndian.Uint32(p[10:14]) }

// Set writes the whole header; dataLen is the number of bytes that follow it.
func (p *TCPTermReq) Set(t TCPPDUType, fes TCPFatalStatus, fei uint32, dataLen int) {
	*p = TCPTermReq{}
	p.Header().Set(t, 0, 0, uint32(TCPTermReqSize+dataLen))
	binary.LittleEndian.PutUint16(p[8:10], uint16(fes))
	binary.LittleEndian.PutUint32(p[10:14], fei)
}
