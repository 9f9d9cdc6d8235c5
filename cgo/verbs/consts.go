package verbs

// The values are those of <infiniband/verbs.h> and <rdma/rdma_cma.h>; the
// native files assert it.

// Opcode is enum ibv_wr_opcode.
type Opcode uint32

const (
	OpRDMAWrite   Opcode = 0
	OpSend        Opcode = 2
	OpRDMARead    Opcode = 4
	OpLocalInv    Opcode = 7
	OpBindMW      Opcode = 8
	OpSendWithInv Opcode = 9
)

// SendFlags is enum ibv_send_flags.
type SendFlags uint32

const (
	SendFence     SendFlags = 1 << 0 // not before earlier READs are done
	SendSignaled  SendFlags = 1 << 1 // completes with a WC even if all went well
	SendSolicited SendFlags = 1 << 2
	SendInline    SendFlags = 1 << 3 // data is copied by the post; keys don't count
)

// WCOpcode is enum ibv_wc_opcode.
type WCOpcode uint32

const (
	WCSend      WCOpcode = 0
	WCRDMAWrite WCOpcode = 1
	WCRDMARead  WCOpcode = 2
	WCBindMW    WCOpcode = 5
	WCLocalInv  WCOpcode = 6
	WCRecv      WCOpcode = 128
)

// WCFlags is enum ibv_wc_flags.
type WCFlags uint32

const (
	WCWithImm       WCFlags = 1 << 1
	WCWithInv       WCFlags = 1 << 3
	wcKernelWithInv WCFlags = 1 << 2
)

// WCStatus is enum ibv_wc_status.
type WCStatus uint32

const (
	StatusSuccess        WCStatus = 0
	StatusLocLenErr      WCStatus = 1
	StatusLocQPOpErr     WCStatus = 2
	StatusLocProtErr     WCStatus = 4
	StatusWRFlushErr     WCStatus = 5
	StatusMWBindErr      WCStatus = 6
	StatusBadRespErr     WCStatus = 7
	StatusLocAccessErr   WCStatus = 8
	StatusRemInvReqErr   WCStatus = 9
	StatusRemAccessErr   WCStatus = 10
	StatusRemOpErr       WCStatus = 11
	StatusRetryExcErr    WCStatus = 12
	StatusRNRRetryExcErr WCStatus = 13
	StatusRemAbortErr    WCStatus = 16
	StatusFatalErr       WCStatus = 19
	StatusRespTimeoutErr WCStatus = 20
	StatusGeneralErr     WCStatus = 21
)

// Access is enum ibv_access_flags.
type Access uint32

const (
	AccessLocalWrite   Access = 1 << 0
	AccessRemoteWrite  Access = 1 << 1 // needs AccessLocalWrite
	AccessRemoteRead   Access = 1 << 2
	AccessMWBind       Access = 1 << 4
	AccessZeroBased    Access = 1 << 5
	AccessHugeTLB      Access = 1 << 7
	AccessRelaxedOrder Access = 1 << 20 // a device without it ignores it
)

// QPState is enum ibv_qp_state.
type QPState uint32

const (
	QPReset QPState = 0
	QPInit  QPState = 1
	QPRTR   QPState = 2
	QPRTS   QPState = 3
	QPSQD   QPState = 4
	QPSQE   QPState = 5
	QPError QPState = 6
)

// EventType is enum rdma_cm_event_type.
type EventType uint32

const (
	EventAddrResolved    EventType = 0
	EventAddrError       EventType = 1
	EventRouteResolved   EventType = 2
	EventRouteError      EventType = 3
	EventConnectRequest  EventType = 4
	EventConnectResponse EventType = 5
	EventConnectError    EventType = 6
	EventUnreachable     EventType = 7
	EventRejected        EventType = 8
	EventEstablished     EventType = 9
	EventDisconnected    EventType = 10
	EventDeviceRemoval   EventType = 11
	EventAddrChange      EventType = 14
	EventTimewaitExit    EventType = 15
)

// AsyncType is enum ibv_event_type.
type AsyncType uint32

const (
	AsyncCQErr            AsyncType = 0
	AsyncQPFatal          AsyncType = 1
	AsyncQPReqErr         AsyncType = 2
	AsyncQPAccessErr      AsyncType = 3
	AsyncCommEst          AsyncType = 4
	AsyncSQDrained        AsyncType = 5
	AsyncPathMig          AsyncType = 6
	AsyncPathMigErr       AsyncType = 7
	AsyncDeviceFatal      AsyncType = 8
	AsyncPortActive       AsyncType = 9
	AsyncPortErr          AsyncType = 10
	AsyncLIDChange        AsyncType = 11
	AsyncPKeyChange       AsyncType = 12
	AsyncSMChange         AsyncType = 13
	AsyncSRQErr           AsyncType = 14
	AsyncSRQLimitReached  AsyncType = 15
	AsyncQPLastWQEReached AsyncType = 16
	AsyncClientReregister AsyncType = 17
	AsyncGIDChange        AsyncType = 18
	AsyncWQFatal          AsyncType = 19
)

// RejectReason says why a connection was refused (InfiniBand Architecture
// Specification vol. 1, 12.6.7.2).
type RejectReason int

const (
	RejectNoQP             RejectReason = 1
	RejectNoResources      RejectReason = 3
	RejectTimeout          RejectReason = 4
	RejectUnsupported      RejectReason = 5
	RejectInvalidCommID    RejectReason = 6
	RejectInvalidServiceID RejectReason = 8 // nobody listens
	RejectInvalidTransport RejectReason = 9
	RejectStaleConn        RejectReason = 10
	RejectInvalidGID       RejectReason = 12
	RejectInvalidMTU       RejectReason = 26
	RejectRespResources    RejectReason = 27
	RejectConsumer         RejectReason = 28 // ID.Reject, with private data
)

// DeviceFlags are bits of ibv_device_attr's device_cap_flags.
type DeviceFlags uint32

const (
	DeviceSRQResize        DeviceFlags = 1 << 13
	DeviceMemWindow        DeviceFlags = 1 << 17
	DeviceMemMgtExtensions DeviceFlags = 1 << 21 // SEND_WITH_INV, LOCAL_INV
	DeviceMemWindow2A      DeviceFlags = 1 << 23
	DeviceMemWindow2B      DeviceFlags = 1 << 24
)

// Transport is enum ibv_transport_type.
type Transport int32

const (
	TransportUnknown Transport = -1
	TransportIB      Transport = 0 // InfiniBand and RoCE
	TransportIWARP   Transport = 1
)

// PortState is enum ibv_port_state.
type PortState uint32

const (
	PortDown   PortState = 1
	PortInit   PortState = 2
	PortArmed  PortState = 3
	PortActive PortState = 4
)

// LinkLayer is IBV_LINK_LAYER_*.
type LinkLayer uint8

const (
	LinkUnspecified LinkLayer = 0
	LinkInfiniBand  LinkLayer = 1
	LinkEthernet    LinkLayer = 2
)

// GIDType is enum ibv_gid_type.
type GIDType uint32

const (
	GIDInfiniBand GIDType = 0
	GIDRoCEv1     GIDType = 1
	GIDRoCEv2     GIDType = 2
)
