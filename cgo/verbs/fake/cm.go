package fake

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"rocet/cgo/verbs"
)

// Channel is an event channel.
type Channel struct {
	f      *Fabric
	bell   bell
	events []*verbs.Event
	ids    int
}

// NewEventChannel implements verbs.Provider.
func (f *Fabric) NewEventChannel() (verbs.EventChannel, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fails("rdma_create_event_channel", ""); err != nil {
		return nil, err
	}
	f.chans++
	return &Channel{f: f, bell: newBell()}, nil
}

// FD implements verbs.EventChannel.
func (ch *Channel) FD() int { return ch.bell.fd }

// Next implements verbs.EventChannel.
func (ch *Channel) Next() (*verbs.Event, error) {
	ch.f.mu.Lock()
	defer ch.f.mu.Unlock()
	if len(ch.events) == 0 {
		return nil, verbs.ErrAgain
	}
	ev := ch.events[0]
	ch.events = ch.events[1:]
	if len(ch.events) == 0 {
		ch.bell.still()
	}
	owner := ev.ID.(*ID)
	if ev.Type == verbs.EventConnectRequest {
		owner = ev.Listen.(*ID)
	}
	owner.unacked++
	ev.SetAck(func() {
		ch.f.mu.Lock()
		owner.unacked--
		ch.f.mu.Unlock()
	})
	return ev, nil
}

// NewID implements verbs.EventChannel.
func (ch *Channel) NewID() (verbs.ID, error) {
	ch.f.mu.Lock()
	defer ch.f.mu.Unlock()
	if err := ch.f.fails("rdma_create_id", ""); err != nil {
		return nil, err
	}
	return ch.f.newID(ch), nil
}

// Close implements verbs.EventChannel.
func (ch *Channel) Close() error {
	ch.f.mu.Lock()
	defer ch.f.mu.Unlock()
	if ch.ids != 0 {
		return &verbs.Error{Call: "rdma_destroy_event_channel", Object: fmt.Sprintf("%d ids report to it", ch.ids), Errno: syscall.EBUSY}
	}
	ch.bell.close()
	ch.f.chans--
	return nil
}

type idState uint8

const (
	idIdle idState = iota
	idBound
	idListening
	idResolved  // address
	idRouted    // and route
	idAsking    // sent a connect request
	idAsked     // was sent one
	idAccepted  // answered it
	idConnected // both
	idOver
	idDestroyed
)

// ID is a connection identifier.
type ID struct {
	f       *Fabric
	ch      *Channel
	context any
	dev     *Device
	local   netip.AddrPort
	remote  netip.AddrPort
	state   idState
	passive bool
	reuse   bool
	qp      *QP
	peer    *ID
	asked   verbs.ConnParam // what Connect proposed
	unacked int
}

var _ verbs.ID = (*ID)(nil)

func (f *Fabric) newID(ch *Channel) *ID {
	x := &ID{f: f, ch: ch}
	f.ids = append(f.ids, x)
	ch.ids++
	return x
}

// event tells an id.
func (f *Fabric) event(x *ID, ev *verbs.Event) {
	f.tell(Happening{CM: true, Event: ev.Type, ID: x}, func() {
		one := *ev
		f.queue(x, &one)
	})
}

func (f *Fabric) queue(x *ID, ev *verbs.Event) {
	on := x
	if ev.Type == verbs.EventConnectRequest {
		on = ev.Listen.(*ID)
	}
	if on.state == idDestroyed {
		return
	}
	ev.ID = x
	on.ch.events = append(on.ch.events, ev)
	on.ch.bell.ring()
}

// Passive tells whether the id came out of a connect request. It may be asked in
// a Filter.
func (x *ID) Passive() bool { return x.passive }

// Context implements verbs.ID.
func (x *ID) Context() any {
	x.f.mu.Lock()
	defer x.f.mu.Unlock()
	return x.context
}

// SetContext implements verbs.ID.
func (x *ID) SetContext(c any) {
	x.f.mu.Lock()
	defer x.f.mu.Unlock()
	x.context = c
}

// Device implements verbs.ID.
func (x *ID) Device() verbs.Device {
	x.f.mu.Lock()
	defer x.f.mu.Unlock()
	if x.dev == nil {
		return nil
	}
	return x.dev
}

// PortNum implements verbs.ID.
func (x *ID) PortNum() int {
	if x.Device() == nil {
		return 0
	}
	return 1
}

// LocalAddr implements verbs.ID.
func (x *ID) LocalAddr() netip.AddrPort {
	x.f.mu.Lock()
	defer x.f.mu.Unlock()
	return x.local
}

// RemoteAddr implements verbs.ID.
func (x *ID) RemoteAddr() netip.AddrPort {
	x.f.mu.Lock()
	defer x.f.mu.Unlock()
	return x.remote
}

// SetReuseAddr implements verbs.ID.
func (x *ID) SetReuseAddr(on bool) error {
	x.f.mu.Lock()
	defer x.f.mu.Unlock()
	x.reuse = on
	return nil
}

// SetTOS implements verbs.ID.
func (x *ID) SetTOS(uint8) error { return nil }

func (x *ID) fail(call string, e syscall.Errno) error {
	return &verbs.Error{Call: call, Object: fmt.Sprintf("id %v to %v", x.local, x.remote), Errno: e}
}

// deviceOf finds the device that has an address.
func (f *Fabric) deviceOf(a netip.Addr) *Device {
	for _, d := range f.devices {
		if !d.gone && slices.Contains(d.addrs, a) {
			return d
		}
	}
	return nil
}

// Bind implements verbs.ID.
func (x *ID) Bind(a netip.AddrPort) error {
	x.f.mu.Lock()
	defer x.f.mu.Unlock()
	if e := x.f.errno("rdma_bind_addr"); e != 0 {
		return x.fail("rdma_bind_addr", e)
	}
	if x.state != idIdle {
		return x.fail("rdma_bind_addr", syscall.EINVAL)
	}
	var d *Device
	if !a.Addr().IsUnspecified() {
		if d = x.f.deviceOf(a.Addr()); d == nil {
			return &verbs.Error{Call: "rdma_bind_addr", Object: a.String(), Errno: syscall.EADDRNOTAVAIL}
		}
	}
	if a.Port() == 0 {
		a = netip.AddrPortFrom(a.Addr(), x.f.ephemeral())
	}
	for _, o := range x.f.ids {
		if o == x || o.passive || o.local.Port() != a.Port() || o.state < idBound || o.state > idListening {
			continue
		}
		same := o.local.Addr() == a.Addr() || o.local.Addr().IsUnspecified() || a.Addr().IsUnspecified()
		if same && !(x.reuse && o.reuse && o.state != idListening) {
			return &verbs.Error{Call: "rdma_bind_addr", Object: a.String(), Errno: syscall.EADDRINUSE}
		}
	}
	x.dev, x.local, x.state = d, a, idBound
	return nil
}

// ephemeral is the next port for who asks for none.
func (f *Fabric) ephemeral() uint16 {
	if f.port++; f.port < 32768 {
		f.port = 32768
	}
	return f.port
}

// Listen implements verbs.ID.
func (x *ID) Listen(int) error {
	x.f.mu.Lock()
	defer x.f.mu.Unlock()
	if e := x.f.errno("rdma_listen"); e != 0 {
		return x.fail("rdma_listen", e)
	}
	if x.state != idBound {
		return x.fail("rdma_listen", syscall.EINVAL)
	}
	x.state = idListening
	return nil
}

// ResolveAddr implements verbs.ID.
func (x *ID) ResolveAddr(src, dst netip.AddrPort, _ time.Duration) error {
	x.f.mu.Lock()
	defer x.f.mu.Unlock()
	if e := x.f.errno("rdma_resolve_addr"); e != 0 {
		return x.fail("rdma_resolve_addr", e)
	}
	from := dst.Addr()
	if src.IsValid() {
		from = src.Addr()
	}
	d := x.f.deviceOf(from)
	if d == nil {
		x.f.event(x, &verbs.Event{Type: verbs.EventAddrError, Status: -int(syscall.ENODEV)})
		return nil
	}
	x.dev, x.state = d, idResolved
	x.local, x.remote = netip.AddrPortFrom(from, x.f.ephemeral()), dst
	x.f.event(x, &verbs.Event{Type: verbs.EventAddrResolved})
	return nil
}

// ResolveRoute implements verbs.ID.
func (x *ID) ResolveRoute(time.Duration) error {
	x.f.mu.Lock()
	defer x.f.mu.Unlock()
	if e := x.f.errno("rdma_resolve_route"); e != 0 {
		return x.fail("rdma_resolve_route", e)
	}
	if x.state != idResolved {
		return x.fail("rdma_resolve_route", syscall.EINVAL)
	}
	x.state = idRouted
	x.f.event(x, &verbs.Event{Type: verbs.EventRouteResolved})
	return nil
}

// padded is private data as the connection manager carries it.
func padded(b []byte, n int) []byte {
	out := make([]byte, n)
	copy(out, b)
	return out
}

// Connect implements verbs.ID.
func (x *ID) Connect(p verbs.ConnParam) error {
	f := x.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.errno("rdma_connect"); e != 0 {
		return x.fail("rdma_connect", e)
	}
	if x.state != idRouted || x.qp == nil || len(p.PrivateData) > verbs.MaxConnectData {
		return x.fail("rdma_connect", syscall.EINVAL)
	}
	x.state, x.asked = idAsking, p
	d := f.deviceOf(x.remote.Addr())
	if d == nil || !d.up || !x.dev.up {
		f.unreachable(x)
		return nil
	}
	l := f.listener(x.remote)
	if l == nil {
		x.state = idOver
		f.event(x, &verbs.Event{Type: verbs.EventRejected, Status: int(verbs.RejectInvalidServiceID)})
		return nil
	}
	child := f.newID(l.ch)
	child.passive, child.state, child.dev = true, idAsked, d
	child.local, child.remote = x.remote, x.local
	child.peer, x.peer = x, child
	f.event(child, &verbs.Event{
		Type: verbs.EventConnectRequest, Listen: l, PrivateData: padded(p.PrivateData, verbs.MaxConnectData),
		ResponderResources: p.InitiatorDepth, InitiatorDepth: p.ResponderResources,
		FlowControl: p.FlowControl, RetryCount: p.RetryCount, RNRRetryCount: p.RNRRetryCount, PeerQPNum: x.qp.num,
	})
	return nil
}

// unreachable ends a connection attempt that nobody answers.
func (f *Fabric) unreachable(x *ID) {
	f.after(f.cfg.CMTimeout, func() {
		if x.state == idAsking || x.state == idAccepted {
			x.state = idOver
			f.event(x, &verbs.Event{Type: verbs.EventUnreachable, Status: -int(syscall.ETIMEDOUT)})
		}
	})
}

// listener finds who listens at an address.
func (f *Fabric) listener(a netip.AddrPort) *ID {
	for _, l := range f.ids {
		if l.state != idListening || l.local.Port() != a.Port() {
			continue
		}
		on := l.local.Addr()
		if on == a.Addr() || on.IsUnspecified() && (on.Is6() || a.Addr().Is4()) {
			return l
		}
	}
	return nil
}

// Accept implements verbs.ID.
func (x *ID) Accept(p verbs.ConnParam) error {
	f := x.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.errno("rdma_accept"); e != 0 {
		return x.fail("rdma_accept", e)
	}
	h := x.peer
	if x.state != idAsked || x.qp == nil || len(p.PrivateData) > verbs.MaxAcceptData {
		return x.fail("rdma_accept", syscall.EINVAL)
	}
	x.qp.state, x.qp.maxRd, x.qp.rnrRetry = verbs.QPRTS, p.InitiatorDepth, 7
	x.state = idAccepted
	if h == nil || h.state != idAsking || h.qp == nil || !x.dev.up || !h.dev.up {
		f.unreachable(x)
		return nil
	}
	x.qp.rnrRetry = h.asked.RNRRetryCount
	h.qp.state, h.qp.maxRd, h.qp.rnrRetry = verbs.QPRTS, min(h.asked.InitiatorDepth, p.ResponderResources), p.RNRRetryCount
	x.qp.peer, h.qp.peer = h.qp, x.qp
	h.state, x.state = idConnected, idConnected
	f.event(h, &verbs.Event{
		Type: verbs.EventEstablished, PrivateData: padded(p.PrivateData, verbs.MaxAcceptData),
		ResponderResources: p.InitiatorDepth, InitiatorDepth: p.ResponderResources,
		FlowControl: p.FlowControl, RNRRetryCount: p.RNRRetryCount, PeerQPNum: x.qp.num,
	})
	f.event(x, &verbs.Event{Type: verbs.EventEstablished})
	return nil
}

// Reject implements verbs.ID.
func (x *ID) Reject(private []byte) error {
	f := x.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.errno("rdma_reject"); e != 0 {
		return x.fail("rdma_reject", e)
	}
	if x.state != idAsked || len(private) > verbs.MaxRejectData {
		return x.fail("rdma_reject", syscall.EINVAL)
	}
	f.reject(x, verbs.RejectConsumer, private)
	return nil
}

func (f *Fabric) reject(x *ID, why verbs.RejectReason, private []byte) {
	x.state = idOver
	if h := x.peer; h != nil {
		h.peer, x.peer = nil, nil
		if h.state == idAsking {
			h.state = idOver
			f.event(h, &verbs.Event{Type: verbs.EventRejected, Status: int(why), PrivateData: padded(private, verbs.MaxRejectData)})
		}
	}
}

// Disconnect implements verbs.ID.
func (x *ID) Disconnect() error {
	f := x.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.errno("rdma_disconnect"); e != 0 {
		return x.fail("rdma_disconnect", e)
	}
	if x.qp != nil {
		f.toError(x.qp)
	}
	if x.state != idConnected && x.state != idOver {
		return x.fail("rdma_disconnect", syscall.EINVAL)
	}
	f.leave(x, true)
	return nil
}

// leave ends a connection from one side. alive: that side still hears of it.
func (f *Fabric) leave(x *ID, alive bool) {
	if x.state != idConnected {
		return
	}
	x.state = idOver
	timewait := func(y *ID) {
		f.after(f.cfg.TimeWait, func() {
			if y.state != idDestroyed {
				f.event(y, &verbs.Event{Type: verbs.EventTimewaitExit})
			}
		})
	}
	h := x.peer
	x.peer = nil
	if h != nil {
		h.peer = nil
		if x.dev.up && h.dev.up && h.state == idConnected {
			h.state = idOver
			f.event(h, &verbs.Event{Type: verbs.EventDisconnected})
			timewait(h)
		}
	}
	if alive {
		f.event(x, &verbs.Event{Type: verbs.EventDisconnected})
		timewait(x)
	}
}

// NotifyCommEst implements verbs.ID.
func (x *ID) NotifyCommEst() error {
	x.f.mu.Lock()
	defer x.f.mu.Unlock()
	if x.state != idConnected {
		return x.fail("rdma_notify", syscall.EINVAL)
	}
	x.f.event(x, &verbs.Event{Type: verbs.EventEstablished})
	return nil
}

// CreateQP implements verbs.ID.
func (x *ID) CreateQP(a verbs.QPAttr) (verbs.QP, error) {
	x.f.mu.Lock()
	defer x.f.mu.Unlock()
	if x.dev == nil || x.qp != nil || x.dev.gone {
		return nil, x.fail("rdma_create_qp", syscall.EINVAL)
	}
	q, err := x.f.createQP(x, a)
	if err != nil {
		return nil, err
	}
	x.qp = q
	return q, nil
}

// QP implements verbs.ID.
func (x *ID) QP() verbs.QP {
	x.f.mu.Lock()
	defer x.f.mu.Unlock()
	if x.qp == nil {
		return nil
	}
	return x.qp
}

// DestroyQP implements verbs.ID.
func (x *ID) DestroyQP() error {
	x.f.mu.Lock()
	defer x.f.mu.Unlock()
	if x.qp != nil {
		x.f.destroyQP(x.qp)
		x.qp = nil
	}
	return nil
}

// Migrate implements verbs.ID.
func (x *ID) Migrate(to verbs.EventChannel) error {
	x.f.mu.Lock()
	defer x.f.mu.Unlock()
	ch, ok := to.(*Channel)
	if !ok {
		return x.fail("rdma_migrate_id", syscall.EINVAL)
	}
	if x.unacked != 0 {
		return x.fail("rdma_migrate_id", syscall.EBUSY)
	}
	from := x.ch
	var stay []*verbs.Event
	for _, ev := range from.events {
		if ev.ID == verbs.ID(x) && ev.Type != verbs.EventConnectRequest || ev.Listen == verbs.ID(x) {
			ch.events = append(ch.events, ev)
			ch.bell.ring()
		} else {
			stay = append(stay, ev)
		}
	}
	from.events = stay
	if len(stay) == 0 {
		from.bell.still()
	}
	from.ids--
	ch.ids++
	x.ch = ch
	return nil
}

// Destroy implements verbs.ID.
func (x *ID) Destroy() error {
	f := x.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if x.qp != nil || x.unacked != 0 {
		return x.fail("rdma_destroy_id", syscall.EBUSY)
	}
	f.destroyID(x)
	return nil
}

func (f *Fabric) destroyID(x *ID) {
	switch x.state {
	case idDestroyed:
		return
	case idAsked:
		f.reject(x, verbs.RejectConsumer, nil)
	case idConnected:
		f.leave(x, false)
	}
	if h := x.peer; h != nil {
		h.peer = nil
	}
	x.state = idDestroyed
	f.ids = slices.DeleteFunc(f.ids, func(o *ID) bool { return o == x })
	x.ch.ids--
	var stay []*verbs.Event
	var children []*ID
	for _, ev := range x.ch.events {
		switch {
		case ev.Listen == verbs.ID(x):
			children = append(children, ev.ID.(*ID))
		case ev.ID == verbs.ID(x) && ev.Type != verbs.EventConnectRequest:
		default:
			stay = append(stay, ev)
		}
	}
	x.ch.events = stay
	if len(stay) == 0 {
		x.ch.bell.still()
	}
	for _, c := range children {
		f.destroyID(c) // rejects
	}
}

// SetAFOnly implements verbs.ID.
func (x *ID) SetAFOnly(bool) error { return nil }
