package verbs

import (
	"net/netip"
	"time"
)

// Provider gives access to the RDMA devices of a machine, or to fake ones.
// Its methods may be called from any goroutine.
type Provider interface {
	// Devices lists the devices that are there now, in the order of the
	// library. It may be called again to find devices that were plugged in
	// later; a device seen before is the same Device.
	Devices() ([]Device, error)
	// NewEventChannel opens a channel for rdma_cm events.
	NewEventChannel() (EventChannel, error)
	// Post executes ops in order, in one crossing: of each, first the receive
	// chain, then the send chain. A chain that fails stops there and says so
	// in its op (see PostOp); the ops after it are executed nevertheless. The
	// result is how many ops failed. Hot: no allocation, no lock of its own.
	// Ops of one queue must come from one goroutine at a time.
	Post(ops []PostOp) (failed int)
}

// Device is one opened RDMA device. Methods may be called from any goroutine,
// AsyncEvent from one at a time.
type Device interface {
	Name() string
	Attr() DeviceAttr
	// Port describes port n; ports count from 1.
	Port(n int) (PortAttr, error)
	// GIDs lists the valid entries of a port's address table.
	GIDs(port int) ([]GID, error)
	// NUMANode is the node that the device is attached to, or -1.
	NUMANode() int
	AllocPD() (PD, error)
	CreateCQ(CQAttr) (CQ, error)
	// AsyncFD is readable while asynchronous events wait.
	AsyncFD() int
	// AsyncEvent takes the next asynchronous event and acknowledges it. It
	// never blocks: ErrAgain when there is none.
	AsyncEvent() (AsyncEvent, error)
	// Close gives up a device that is gone, once nothing made on it is left;
	// should it come back, Devices makes a new Device of it.
	Close() error
}

// PD is a protection domain.
type PD interface {
	Device() Device
	// RegMR registers size bytes at addr, which must stay mapped until Dereg.
	// Takes time in proportion to the number of pages: never on a reactor.
	RegMR(addr uintptr, size uint64, access Access) (MR, error)
	// AllocMW makes a type 2 memory window, to be bound by OpBindMW.
	AllocMW() (MW, error)
	CreateSRQ(SRQAttr) (SRQ, error)
	Dealloc() error
}

// MR is a registered memory region.
type MR interface {
	Handle() uintptr // for SendWR.BindMR
	LKey() uint32
	RKey() uint32
	Dereg() error
}

// MW is a type 2 memory window. RKey is the key it was allocated with; the
// key of a bind is chosen by the one who posts it: NextKey(RKey) first.
type MW interface {
	Handle() uintptr // for SendWR.BindMW
	RKey() uint32
	Dealloc() error
}

// NextKey is the key that follows key for the next bind of a window: the low
// byte counts, the rest stays (ibv_inc_rkey).
func NextKey(key uint32) uint32 { return key&^0xff | (key+1)&0xff }

// CQAttr says what completion queue to create.
type CQAttr struct {
	Entries int  // at least 1; a device may grant more
	Vector  int  // completion vector, below DeviceAttr.CompVectors
	Events  bool // with a completion channel: Arm, FD and Ack work
}

// CQ is a completion queue, with a completion channel of its own if asked
// for. One goroutine at a time; Destroy after that goroutine is done with it.
type CQ interface {
	Device() Device
	// Poll fills wc and returns how many there were. With none it tries up to
	// spin more times, pausing the processor in between, and then returns 0.
	// Negative: the queue is broken (it overran, or the device is gone) and
	// nothing more will come. Hot: one crossing, no allocation.
	Poll(wc []WC, spin int) int
	// Entries is the granted size.
	Entries() int
	// Arm asks for one event on the channel at the next completion. Poll once
	// more afterwards: completions that came before it don't cause one.
	Arm() error
	// FD is the channel's descriptor, readable after an event; -1 without.
	FD() int
	// Ack takes all events off the channel. Never blocks.
	Ack() error
	// Destroy fails with EBUSY while queue pairs use the queue.
	Destroy() error
}

// SRQAttr says what shared receive queue to create.
type SRQAttr struct {
	MaxWR  uint32
	MaxSGE uint32
}

// SRQ is a shared receive queue.
type SRQ interface {
	Handle() uintptr // for PostOp.SRQ
	Attr() SRQAttr   // as granted
	// SetLimit asks for one AsyncSRQLimitReached once fewer than n receives
	// are left. 0 takes it back.
	SetLimit(n uint32) error
	Destroy() error
}

// QPCaps are the sizes of a queue pair.
type QPCaps struct {
	MaxSendWR, MaxRecvWR   uint32 // MaxRecvWR is ignored with an SRQ
	MaxSendSGE, MaxRecvSGE uint32
	MaxInline              uint32 // bytes of a send that OpFlagInline may carry
}

// QPAttr says what reliable connected queue pair to create.
type QPAttr struct {
	PD             PD
	SendCQ, RecvCQ CQ
	SRQ            SRQ // or nil
	Caps           QPCaps
	SignalAll      bool // every send completes, whatever its flags
}

// QP is a reliable connected queue pair. It belongs to an ID, which creates,
// connects and destroys it.
type QP interface {
	Handle() uintptr // for PostOp.QP
	Num() uint32
	Caps() QPCaps // as granted
	State() (QPState, error)
	// ToError moves the queue pair to the error state: what is posted, and
	// what will be, completes with StatusWRFlushErr.
	ToError() error
}

// EventChannel delivers the rdma_cm events of its IDs. Next may be called
// from one goroutine at a time.
type EventChannel interface {
	// FD is readable while events wait.
	FD() int
	// Next takes the next event. It never blocks: ErrAgain when there is none.
	Next() (*Event, error)
	// NewID makes an ID that reports to this channel (RDMA_PS_TCP).
	NewID() (ID, error)
	// Close fails with EBUSY while IDs report to the channel.
	Close() error
}

// ID is an rdma_cm identifier: a listener or one end of a connection. Calls
// for one ID must not overlap, except Disconnect and QP's methods.
type ID interface {
	// Context is whatever SetContext stored: the way from an event to what it
	// is about.
	Context() any
	SetContext(any)

	// Device is the device the ID is bound to, nil as long as there is none
	// (a wildcard listener has none).
	Device() Device
	PortNum() int // device's port, 0 if unbound
	LocalAddr() netip.AddrPort
	RemoteAddr() netip.AddrPort

	// These go before Bind or ResolveAddr. With AFOnly a listener on [::]
	// leaves IPv4 to another.
	SetReuseAddr(on bool) error
	SetAFOnly(on bool) error
	SetTOS(tos uint8) error

	Bind(addr netip.AddrPort) error
	Listen(backlog int) error

	// ResolveAddr ends with EventAddrResolved or EventAddrError. src may be
	// the zero AddrPort.
	ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error
	// ResolveRoute ends with EventRouteResolved or EventRouteError.
	ResolveRoute(timeout time.Duration) error
	// Connect needs a queue pair. It ends with EventEstablished,
	// EventRejected, EventUnreachable or EventConnectError.
	Connect(ConnParam) error

	// Accept answers EventConnectRequest; it needs a queue pair, and ends
	// with EventEstablished, EventUnreachable or EventConnectError. Receives
	// are posted before.
	Accept(ConnParam) error
	// Reject refuses EventConnectRequest; at most MaxRejectData bytes.
	Reject(private []byte) error
	// Disconnect moves the queue pair to the error state and tells the peer,
	// or answers the peer's EventDisconnected.
	Disconnect() error
	// NotifyCommEst tells the connection manager of an AsyncCommEst: the peer
	// sends already, so the connection is established although the message
	// that says so was lost.
	NotifyCommEst() error

	// CreateQP makes the queue pair, ready for receives to be posted.
	CreateQP(QPAttr) (QP, error)
	QP() QP // nil without
	// DestroyQP does nothing without a queue pair.
	DestroyQP() error

	// Migrate moves the ID, with the events that wait, to another channel.
	// Every event taken so far must have been acknowledged (else EBUSY).
	Migrate(EventChannel) error
	// Destroy ends the ID, from any state, without a queue pair on it and
	// with every event taken acknowledged (else EBUSY).
	Destroy() error
}

// Private data that fits into a message of the connection manager over
// RDMA_PS_TCP (InfiniBand Architecture Specification vol. 1, 12.6, less the
// 36 bytes of header that annex A11 puts into a request).
const (
	MaxConnectData = 56
	MaxAcceptData  = 196
	MaxRejectData  = 148
)

// ConnParam is what Connect and Accept propose.
type ConnParam struct {
	PrivateData        []byte
	ResponderResources uint8 // RDMA READs of the peer that this side serves at once
	InitiatorDepth     uint8 // RDMA READs that this side has outstanding at most
	FlowControl        bool
	RetryCount         uint8 // 0 to 7; Connect only
	RNRRetryCount      uint8 // 0 to 7, 7 is without end
}

// Event is one rdma_cm event, copied out of the library. It must be
// acknowledged with Ack, before its ID (or, for a connect request, the
// listener as well) is destroyed.
type Event struct {
	Type   EventType
	Status int // EventRejected: a RejectReason; else 0 or a negative errno
	ID     ID  // EventConnectRequest: the new ID
	Listen ID  // EventConnectRequest: the listener, nil if it is being destroyed

	// Parameters of EventConnectRequest, EventConnectResponse,
	// EventEstablished, EventRejected; the depths as seen from this side.
	PrivateData        []byte // a copy, padded by the connection manager
	ResponderResources uint8  // READs that the peer may want to have outstanding here
	InitiatorDepth     uint8  // READs that the peer serves at once
	FlowControl        bool
	RetryCount         uint8
	RNRRetryCount      uint8
	PeerSRQ            bool
	PeerQPNum          uint32

	ack func()
}

// SetAck stores what Ack will do: for implementations of EventChannel.
func (e *Event) SetAck(f func()) { e.ack = f }

// Ack gives the event back to the library. Once is enough, more does no harm.
func (e *Event) Ack() {
	if f := e.ack; f != nil {
		e.ack = nil
		f()
	}
}

// AsyncEvent is an asynchronous event of a device. Of QP, CQ and SRQ the one
// that Type is about is set, unless it is being destroyed.
type AsyncEvent struct {
	Type  AsyncType
	QP    QP
	QPNum uint32 // also set when QP is nil
	CQ    CQ
	SRQ   SRQ
	Port  int
}

// DeviceAttr describes a device.
type DeviceAttr struct {
	Transport    Transport
	Firmware     string
	NodeGUID     uint64
	SysImageGUID uint64
	VendorID     uint32
	VendorPartID uint32
	HWVersion    uint32
	Ports        int
	CompVectors  int

	MaxMRSize uint64
	MaxQP     int
	MaxQPWR   int
	MaxSGE    int
	MaxSGERd  int // SGEs of an RDMA READ
	MaxCQ     int
	MaxCQE    int
	MaxMR     int
	MaxMW     int
	MaxPD     int
	MaxSRQ    int // 0: the device has none
	MaxSRQWR  int
	MaxSRQSGE int

	MaxQPRdAtom     int // READs that a queue pair serves at once (as responder)
	MaxResRdAtom    int // READs that the device serves at once
	MaxQPInitRdAtom int // READs that a queue pair has outstanding (as initiator)

	Flags DeviceFlags
}

// PortAttr describes a port.
type PortAttr struct {
	State      PortState
	LinkLayer  LinkLayer
	MaxMTU     int // bytes
	ActiveMTU  int // bytes
	GIDs       int // entries of the address table
	LID        uint16
	ActiveMbps int // data rate: speed by width, 0 if unknown
}

// GID is an entry of a port's address table.
type GID struct {
	Index   int
	Raw     [16]byte
	Type    GIDType
	Netdev  string // name of the network device, if any
	IfIndex int    // its index, 0 if none
}

// Addr is the IP address that a RoCE v2 GID stands for (IPv4 unmapped).
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g.Raw).Unmap() }
