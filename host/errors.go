package host

import (
	"errors"
	"fmt"

	"rocet/cgo/verbs"
	"rocet/nvme"
)

var (
	// ErrClosed is what calls after Close return.
	ErrClosed = errors.New("host: closed")
	// ErrFull says that a queue has as many commands under way as it may have.
	ErrFull = errors.New("host: the queue is full: poll it first")

	errTargetClosed = errors.New("the target closed the connection")
)

// StatusError is a command that the target answered with an error.
type StatusError struct {
	Command string
	Status  nvme.Status
	Result  uint64 // dwords 0 and 1 of the response
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s: %v (SCT %xh, SC %02xh)", e.Command, e.Status, e.Status.SCT(), e.Status.SC())
}

// ConnectError is a Connect command that was refused.
type ConnectError struct {
	NQN    string
	QID    uint16
	Status nvme.Status
	DW0    uint32
}

func (e *ConnectError) Error() string {
	s := fmt.Sprintf("the target refused to connect queue %d to %s: SCT %xh, SC %02xh", e.QID, e.NQN, e.Status.SCT(), e.Status.SC())
	switch e.Status.Code() {
	case nvme.StatusConnectIncompatibleFormat:
		return s + ": incompatible record format"
	case nvme.StatusConnectControllerBusy:
		return s + ": controller busy: try again later, or let other hosts disconnect"
	case nvme.StatusConnectInvalidParameters:
		return s + ": invalid parameter: " + e.field()
	case nvme.StatusConnectRestartDiscovery:
		return s + ": the subsystem moved: discover again"
	case nvme.StatusConnectInvalidHost:
		return s + ": this host is not allowed: add its NQN to the subsystem's hosts, or connect with hostnqn= of one that is"
	case nvme.StatusAuthRequired:
		return s + ": the target wants authentication, which this host does not do"
	}
	return s + ": " + e.Status.String()
}

// Offset is where the invalid parameter begins, in the command or in its data.
func (e *ConnectError) Offset() (offset uint16, inData bool) { return uint16(e.DW0), e.DW0>>16&1 != 0 }

func (e *ConnectError) field() string {
	offset, inData := e.Offset()
	if inData {
		switch offset {
		case nvme.ConnectDataOffsetHostID:
			return "HOSTID (is it that of the admin queue?)"
		case nvme.ConnectDataOffsetCNTLID:
			return "CNTLID (there is no such controller)"
		case nvme.ConnectDataOffsetSUBNQN:
			return "SUBNQN (there is no such subsystem at this address: rocet discover lists them)"
		case nvme.ConnectDataOffsetHOSTNQN:
			return "HOSTNQN"
		}
		return fmt.Sprintf("byte %d of the data", offset)
	}
	switch offset {
	case nvme.ConnectOffsetRECFMT:
		return "RECFMT"
	case nvme.ConnectOffsetQID:
		return "QID (more queues than were granted, or the controller is not enabled)"
	case nvme.ConnectOffsetSQSIZE:
		return "SQSIZE (the queue is deeper than the target takes: lower the queue depth)"
	case nvme.ConnectOffsetCATTR:
		return "CATTR"
	case nvme.ConnectOffsetKATO:
		return "KATO (change the keep alive timeout)"
	}
	return fmt.Sprintf("byte %d of the command", offset)
}

// RejectError is an RDMA connection that was refused.
type RejectError struct {
	Address string
	Reason  verbs.RejectReason
	Status  nvme.RDMACMStatus // 0: the refusal has none
}

func (e *RejectError) Error() string {
	s := fmt.Sprintf("%s refused the RDMA connection: %v", e.Address, e.Reason)
	if e.Status == 0 {
		if e.Reason == verbs.RejectInvalidServiceID {
			s += ": is the target up, and its port right?"
		}
		return s
	}
	s += fmt.Sprintf(": %v (status %d)", e.Status, uint16(e.Status))
	switch e.Status {
	case nvme.RDMACMInvalidHSQSIZE, nvme.RDMACMInvalidHRQSIZE:
		s += ": the queue is deeper than the target takes: lower the queue depth"
	case nvme.RDMACMNoResources:
		s += ": the target has as many connections as it takes"
	case nvme.RDMACMInvalidIRD, nvme.RDMACMInvalidORD:
		s += ": this device serves no RDMA READs"
	}
	return s
}

// TerminatedError is a connection that the target ended with a C2HTermReq PDU.
type TerminatedError struct {
	Status nvme.TCPFatalStatus
	Info   uint32
	PDU    nvme.TCPPDUType // of the PDU at fault, if WithPDU
	HasPDU bool
}

func (e *TerminatedError) Error() string {
	s := fmt.Sprintf("the target ended the connection: %v (FES %02xh, FEI %#x)", e.Status, uint16(e.Status), e.Info)
	if e.HasPDU {
		s += fmt.Sprintf(", about a PDU %v", e.PDU)
	}
	return s
}

// ProtocolError is something that the target must not have sent. Over TCP it was told so, by an H2CTermReq PDU.
type ProtocolError struct {
	What   string
	Status nvme.TCPFatalStatus // TCP
	Info   uint32              // TCP: FEI
}

func (e *ProtocolError) Error() string { return "the target broke the protocol: " + e.What }

func protocolf(st nvme.TCPFatalStatus, info uint32, format string, args ...any) error {
	return &ProtocolError{What: fmt.Sprintf(format, args...), Status: st, Info: info}
}

// TimeoutError is a command without an answer.
type TimeoutError struct {
	QID, CID uint16
	Opcode   nvme.Opcode
	After    string
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("queue %d: no answer to command %d (%s) within %s, nor to its Abort: the target or the network hangs, or raise the timeout",
		e.QID, e.CID, e.Opcode.Name(e.QID == 0), e.After)
}
