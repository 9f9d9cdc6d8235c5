package nvme

// Private data of the RDMA connection manager: RDMA Transport 1.1 section 3.1.

// Lengths of the RDMA CM's private data.
const (
	RDMACMRequestSize = 32
	RDMACMAcceptSize  = 32
	RDMACMRejectSize  = 4
)

// RDMACMRequest is the private data of a connect request. A connection manager
// may pad it, so longer data is accepted.
type RDMACMRequest struct {
	RECFMT  uint16 // 0
	QID     uint16
	HRQSIZE uint16 // host's receive queue depth, 1-based
	HSQSIZE uint16 // host's send queue depth, 0-based
	CNTLID  uint16 // I/O queues only; older hosts leave 0
}

func (r *RDMACMRequest) layout(c *codec) {
	c.u16(&r.RECFMT)
	c.u16(&r.QID)
	c.u16(&r.HRQSIZE)
	c.u16(&r.HSQSIZE)
	c.u16(&r.CNTLID)
	c.reserved(RDMACMRequestSize)
}

// MarshalTo writes RDMACMRequestSize bytes.
func (r *RDMACMRequest) MarshalTo(b []byte) int { return encodeTo(b, RDMACMRequestSize, r) }

// UnmarshalBinary reads RDMACMRequestSize bytes.
func (r *RDMACMRequest) UnmarshalBinary(b []byte) error {
	return decodeFrom(b, RDMACMRequestSize, "RDMA CM request private data", r)
}

// RDMACMAccept is the private data of an accept.
type RDMACMAccept struct {
	RECFMT  uint16 // 0
	CRQSIZE uint16 // controller's receive queue depth, 1-based
}

func (a *RDMACMAccept) layout(c *codec) {
	c.u16(&a.RECFMT)
	c.u16(&a.CRQSIZE)
	c.reserved(RDMACMAcceptSize)
}

// MarshalTo writes RDMACMAcceptSize bytes.
func (a *RDMACMAccept) MarshalTo(b []byte) int { return encodeTo(b, RDMACMAcceptSize, a) }

// UnmarshalBinary reads RDMACMAcceptSize bytes.
func (a *RDMACMAccept) UnmarshalBinary(b []byte) error {
	return decodeFrom(b, RDMACMAcceptSize, "RDMA CM accept private data", a)
}

// RDMACMStatus is the status of a reject.
type RDMACMStatus uint16

// Reject statuses: RDMA Transport 1.1, figure "RDMA Transport Errors".
const (
	RDMACMInvalidPrivateDataLength RDMACMStatus = 1
	RDMACMInvalidRECFMT            RDMACMStatus = 2
	RDMACMInvalidQID               RDMACMStatus = 3
	RDMACMInvalidHSQSIZE           RDMACMStatus = 4
	RDMACMInvalidHRQSIZE           RDMACMStatus = 5
	RDMACMNoResources              RDMACMStatus = 6
	RDMACMInvalidIRD               RDMACMStatus = 7
	RDMACMInvalidORD               RDMACMStatus = 8
	RDMACMInvalidCNTLID            RDMACMStatus = 9
)

func (s RDMACMStatus) String() string {
	switch s {
	case RDMACMInvalidPrivateDataLength:
		return "Invalid Private Data Length"
	case RDMACMInvalidRECFMT:
		return "Invalid RECFMT"
	case RDMACMInvalidQID:
		return "Invalid QID"
	case RDMACMInvalidHSQSIZE:
		return "Invalid HSQSIZE"
	case RDMACMInvalidHRQSIZE:
		return "Invalid HRQSIZE"
	case RDMACMNoResources:
		return "No Resources"
	case RDMACMInvalidIRD:
		return "Invalid IRD"
	case RDMACMInvalidORD:
		return "Invalid ORD"
	case RDMACMInvalidCNTLID:
		return "Invalid Controller ID"
	}
	return unknownName("RDMA CM status", uint64(s))
}

// RDMACMReject is the private data of a reject.
type RDMACMReject struct {
	RECFMT uint16 // 0
	Status RDMACMStatus
}

func (r *RDMACMReject) layout(c *codec) {
	c.u16(&r.RECFMT)
	c.u16((*uint16)(&r.Status))
}

// MarshalTo writes RDMACMRejectSize bytes.
func (r *RDMACMReject) MarshalTo(b []byte) int { return encodeTo(b, RDMACMRejectSize, r) }

// UnmarshalBinary reads RDMACMRejectSize bytes.
func (r *RDMACMReject) UnmarshalBinary(b []byte) error {
	return decodeFrom(b, RDMACMRejectSize, "RDMA CM reject private data", r)
}
