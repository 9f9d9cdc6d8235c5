package rdma

import (
	"fmt"

	"rocet/nvme"
)

// proposal is what a host's connect request asks for, checked.
type proposal struct {
	qid       uint16
	depth     uint16 // commands the host may have outstanding: receives to post
	responses uint16 // responses the host can take: hrqsize
	readDepth uint8  // READs the host serves at once
}

func (p *proposal) admin() bool { return p.qid == 0 }

// refusal is why a connection is refused, with the status that says so.
type refusal struct {
	status nvme.RDMACMStatus
	reason string
}

func (r *refusal) Error() string { return fmt.Sprintf("%v: %s", r.status, r.reason) }

func refuse(st nvme.RDMACMStatus, format string, args ...any) *refusal {
	return &refusal{status: st, reason: fmt.Sprintf(format, args...)}
}

// parseRequest checks a connect request's private data (RDMA Transport 1.1
// section 3.2) against what this side can do. readDepth is initiator_depth as the
// event has it: READs the host serves at once.
func parseRequest(data []byte, readDepth uint8, maxDepth, maxQID uint16) (proposal, *refusal) {
	var p proposal
	if len(data) < nvme.RDMACMRequestSize {
		return p, refuse(nvme.RDMACMInvalidPrivateDataLength, "%d bytes of private data, want at least %d", len(data), nvme.RDMACMRequestSize)
	}
	var req nvme.RDMACMRequest
	if err := req.UnmarshalBinary(data[:nvme.RDMACMRequestSize]); err != nil {
		return p, refuse(nvme.RDMACMInvalidPrivateDataLength, "%v", err)
	}
	if req.RECFMT != 0 {
		return p, refuse(nvme.RDMACMInvalidRECFMT, "record format %d, want 0", req.RECFMT)
	}
	if req.QID > maxQID {
		return p, refuse(nvme.RDMACMInvalidQID, "queue %d, the largest is %d", req.QID, maxQID)
	}
	if req.HSQSIZE == 0 || req.HSQSIZE >= maxDepth {
		return p, refuse(nvme.RDMACMInvalidHSQSIZE, "a send queue of %d entries, want 2 to %d", int(req.HSQSIZE)+1, maxDepth)
	}
	if req.HRQSIZE == 0 {
		return p, refuse(nvme.RDMACMInvalidHRQSIZE, "a receive queue of no entries")
	}
	if readDepth == 0 {
		return p, refuse(nvme.RDMACMInvalidIRD, "the host serves no RDMA READ, writes would be impossible")
	}
	// Linux hosts before 6.x leave cntlid 0 and nothing requires it; a value that
	// no controller can have is a mistake all the same.
	if req.QID != 0 && req.CNTLID > maxCNTLID {
		return p, refuse(nvme.RDMACMInvalidCNTLID, "controller %#x, the largest is %#x", req.CNTLID, maxCNTLID)
	}
	return proposal{qid: req.QID, depth: req.HSQSIZE + 1, responses: req.HRQSIZE, readDepth: readDepth}, nil
}

// maxCNTLID is the largest controller identifier (Base 2.1 section 3.1).
const maxCNTLID = 0xffef

func acceptData(depth uint16) []byte {
	a := nvme.RDMACMAccept{CRQSIZE: depth}
	b := make([]byte, nvme.RDMACMAcceptSize)
	a.MarshalTo(b)
	return b
}

func rejectData(st nvme.RDMACMStatus) []byte {
	r := nvme.RDMACMReject{Status: st}
	b := make([]byte, nvme.RDMACMRejectSize)
	r.MarshalTo(b)
	return b
}
