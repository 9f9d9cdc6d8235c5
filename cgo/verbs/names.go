package verbs

import "fmt"

// name looks v up; what isn't there shows as its kind and number.
func name[T ~uint32](names []string, kind string, v T) string {
	if int(v) < len(names) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%s %d", kind, uint32(v))
}

var opcodeNames = []string{
	OpRDMAWrite: "RDMA_WRITE", OpSend: "SEND", OpRDMARead: "RDMA_READ",
	OpLocalInv: "LOCAL_INV", OpBindMW: "BIND_MW", OpSendWithInv: "SEND_WITH_INV",
}

func (o Opcode) String() string { return name(opcodeNames, "opcode", o) }

var wcOpcodeNames = []string{
	WCSend: "SEND", WCRDMAWrite: "RDMA_WRITE", WCRDMARead: "RDMA_READ",
	WCBindMW: "BIND_MW", WCLocalInv: "LOCAL_INV", WCRecv: "RECV",
}

func (o WCOpcode) String() string { return name(wcOpcodeNames, "opcode", o) }

var statusNames = []string{
	StatusSuccess: "success", StatusLocLenErr: "local length error",
	StatusLocQPOpErr: "local QP operation error", 3: "local EE context operation error",
	StatusLocProtErr: "local protection error", StatusWRFlushErr: "flushed",
	StatusMWBindErr: "memory window bind error", StatusBadRespErr: "bad response",
	StatusLocAccessErr: "local access error", StatusRemInvReqErr: "remote invalid request",
	StatusRemAccessErr: "remote access error", StatusRemOpErr: "remote operation error",
	StatusRetryExcErr: "transport retries exceeded", StatusRNRRetryExcErr: "receiver not ready retries exceeded",
	14: "local RDD violation", 15: "remote invalid RD request", StatusRemAbortErr: "aborted by the peer",
	17: "invalid EE context number", 18: "invalid EE context state",
	StatusFatalErr: "fatal error", StatusRespTimeoutErr: "response timeout", StatusGeneralErr: "general error",
}

func (s WCStatus) String() string { return name(statusNames, "status", s) }

var qpStateNames = []string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

func (s QPState) String() string { return name(qpStateNames, "state", s) }

var eventNames = []string{
	EventAddrResolved: "ADDR_RESOLVED", EventAddrError: "ADDR_ERROR",
	EventRouteResolved: "ROUTE_RESOLVED", EventRouteError: "ROUTE_ERROR",
	EventConnectRequest: "CONNECT_REQUEST", EventConnectResponse: "CONNECT_RESPONSE",
	EventConnectError: "CONNECT_ERROR", EventUnreachable: "UNREACHABLE", EventRejected: "REJECTED",
	EventEstablished: "ESTABLISHED", EventDisconnected: "DISCONNECTED",
	EventDeviceRemoval: "DEVICE_REMOVAL", EventAddrChange: "ADDR_CHANGE", EventTimewaitExit: "TIMEWAIT_EXIT",
}

func (t EventType) String() string { return name(eventNames, "event", t) }

var asyncNames = []string{
	"CQ_ERR", "QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR", "COMM_EST", "SQ_DRAINED", "PATH_MIG",
	"PATH_MIG_ERR", "DEVICE_FATAL", "PORT_ACTIVE", "PORT_ERR", "LID_CHANGE", "PKEY_CHANGE",
	"SM_CHANGE", "SRQ_ERR", "SRQ_LIMIT_REACHED", "QP_LAST_WQE_REACHED", "CLIENT_REREGISTER",
	"GID_CHANGE", "WQ_FATAL",
}

func (t AsyncType) String() string { return name(asyncNames, "asynchronous event", t) }

var rejectNames = []string{
	RejectNoQP: "no queue pair", RejectNoResources: "no resources", RejectTimeout: "timeout",
	RejectUnsupported: "unsupported request", RejectInvalidCommID: "invalid communication ID",
	RejectInvalidServiceID: "nobody listens there", RejectInvalidTransport: "invalid transport service type",
	RejectStaleConn: "stale connection", RejectInvalidGID: "invalid GID", RejectInvalidMTU: "invalid MTU",
	RejectRespResources: "insufficient responder resources", RejectConsumer: "refused by the peer",
}

func (r RejectReason) String() string { return name(rejectNames, "reason", uint32(r)) }

var portStateNames = []string{"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"}

func (s PortState) String() string { return name(portStateNames, "state", s) }

func (l LinkLayer) String() string {
	return name([]string{"unspecified", "InfiniBand", "Ethernet"}, "link layer", uint32(l))
}

func (t GIDType) String() string {
	return name([]string{"IB", "RoCE v1", "RoCE v2"}, "GID type", t)
}

func (t Transport) String() string {
	return name([]string{"unknown", "IB", "iWARP", "usNIC", "usNIC UDP", "unspecified"}, "transport", uint32(t+1))
}
