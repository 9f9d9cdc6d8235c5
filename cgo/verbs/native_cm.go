//go:build cgo && linux

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// ---- event channels ----

type channel struct {
	p   *native
	c   *C.struct_rdma_event_channel
	ids atomic.Int32
}

func (p *native) NewEventChannel() (EventChannel, error) {
	ch := &channel{p: p}
	if rc := C.rocet_create_channel(&ch.c); rc != 0 {
		return nil, fail(rc, "rdma_create_event_channel", "")
	}
	return ch, nil
}

func (ch *channel) FD() int { return int(ch.c.fd) }

func (ch *channel) Close() error {
	if n := ch.ids.Load(); n != 0 {
		return fail(C.int(syscall.EBUSY), "rdma_destroy_event_channel", fmt.Sprintf("%d ids report to it", n))
	}
	C.rdma_destroy_event_channel(ch.c)
	return nil
}

func (ch *channel) NewID() (ID, error) {
	x := &id{p: ch.p, ch: ch}
	if rc := C.rocet_create_id(ch.c, &x.c); rc != 0 {
		return nil, fail(rc, "rdma_create_id", "")
	}
	ch.ids.Add(1)
	ch.p.mu.Lock()
	ch.p.ids[handle(x.c)] = x
	ch.p.mu.Unlock()
	return x, nil
}

func (ch *channel) Next() (*Event, error) {
	for {
		var raw C.struct_rocet_event
		if rc := C.rocet_next_event(ch.c, &raw); rc != 0 {
			if rc == C.EAGAIN {
				return nil, ErrAgain
			}
			return nil, fail(rc, "rdma_get_cm_event", "")
		}
		if ev := ch.event(&raw); ev != nil {
			return ev, nil
		}
	}
}

// event copies an event out, or drops it when its id is being destroyed:
// that waits for the acknowledgement and wants to hear no more.
func (ch *channel) event(raw *C.struct_rocet_event) *Event {
	p, request := ch.p, raw.listen_id != 0
	owner := uintptr(raw.id) // whose acknowledgement counts
	if request {
		owner = uintptr(raw.listen_id)
	}
	p.mu.Lock()
	on := p.ids[owner]
	x := on
	if on != nil {
		on.unacked.Add(1)
		if request {
			// The new id starts on its listener's channel.
			x = &id{p: p, ch: ch, c: idPointer(raw.id)}
			p.ids[uintptr(raw.id)] = x
			ch.ids.Add(1)
		}
	}
	p.mu.Unlock()
	if on == nil {
		C.rocet_ack_event(raw.raw)
		if request {
			C.rocet_destroy_id(idPointer(raw.id)) // rejects
		}
		return nil
	}
	ev := &Event{
		Type:               EventType(raw._type),
		Status:             int(raw.status),
		ID:                 x,
		ResponderResources: uint8(raw.resp_res),
		InitiatorDepth:     uint8(raw.init_depth),
		FlowControl:        raw.flow != 0,
		RetryCount:         uint8(raw.retry),
		RNRRetryCount:      uint8(raw.rnr_retry),
		PeerSRQ:            raw.srq != 0,
		PeerQPNum:          uint32(raw.qp_num),
	}
	if request {
		ev.Listen = on
	}
	if raw.data_len != 0 {
		ev.PrivateData = C.GoBytes(unsafe.Pointer(&raw.data[0]), C.int(raw.data_len))
	}
	address := raw.raw
	ev.SetAck(func() {
		on.unacked.Add(-1)
		C.rocet_ack_event(address)
	})
	return ev
}

// ---- ids ----

type id struct {
	p       *native
	ch      *channel
	c       *C.struct_rdma_cm_id
	context atomic.Pointer[any] // set by one goroutine, read by the one that takes events
	qp      *qp
	unacked atomic.Int32 // events taken and not acknowledged
}

func (x *id) Context() any {
	if p := x.context.Load(); p != nil {
		return *p
	}
	return nil
}

func (x *id) SetContext(ctx any) { x.context.Store(&ctx) }
func (x *id) PortNum() int       { return int(x.c.port_num) }

func (x *id) Device() Device {
	if d := x.p.deviceOf(x.c.verbs); d != nil {
		return d
	}
	return nil
}

func (x *id) QP() QP {
	if x.qp == nil {
		return nil
	}
	return x.qp
}

func (x *id) LocalAddr() netip.AddrPort  { return x.addr(0) }
func (x *id) RemoteAddr() netip.AddrPort { return x.addr(1) }

func (x *id) addr(peer C.int) netip.AddrPort {
	var sa sockaddr
	C.rocet_addr(x.c, peer, (*C.uint8_t)(unsafe.Pointer(&sa[0])))
	return sa.addrPort()
}

// String names the id in errors.
func (x *id) String() string {
	l, r := x.LocalAddr(), x.RemoteAddr()
	switch {
	case r.IsValid() && r.Port() != 0:
		return fmt.Sprintf("id %v to %v", l, r)
	case l.IsValid():
		return fmt.Sprintf("id %v", l)
	}
	return "unbound id"
}

func (x *id) SetReuseAddr(on bool) error {
	return x.option(C.RDMA_OPTION_ID_REUSEADDR, flag(on), 4, "reuseaddr")
}

func (x *id) SetAFOnly(on bool) error {
	return x.option(C.RDMA_OPTION_ID_AFONLY, flag(on), 4, "afonly")
}

func (x *id) SetTOS(tos uint8) error {
	return x.option(C.RDMA_OPTION_ID_TOS, C.int(tos), 1, fmt.Sprintf("tos %d", tos))
}

func (x *id) option(opt, value, size C.int, what string) error {
	return fail(C.rocet_set_option(x.c, opt, value, size), "rdma_set_option", x.String()+", "+what)
}

func flag(on bool) C.int {
	if on {
		return 1
	}
	return 0
}

func (x *id) Bind(addr netip.AddrPort) error {
	sa, err := newSockaddr(addr)
	if err != nil {
		return err
	}
	return fail(C.rocet_bind(x.c, unsafe.Pointer(&sa[0])), "rdma_bind_addr", addr.String())
}

func (x *id) Listen(backlog int) error {
	return fail(C.rocet_listen(x.c, C.int(backlog)), "rdma_listen", x.String())
}

func (x *id) ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error {
	to, err := newSockaddr(dst)
	if err != nil {
		return err
	}
	var from unsafe.Pointer
	if src.IsValid() {
		sa, err := newSockaddr(src)
		if err != nil {
			return err
		}
		from = unsafe.Pointer(&sa[0])
	}
	rc := C.rocet_resolve_addr(x.c, from, unsafe.Pointer(&to[0]), C.int(timeout.Milliseconds()))
	return fail(rc, "rdma_resolve_addr", dst.String())
}

func (x *id) ResolveRoute(timeout time.Duration) error {
	return fail(C.rocet_resolve_route(x.c, C.int(timeout.Milliseconds())), "rdma_resolve_route", x.String())
}

func (x *id) Connect(p ConnParam) error {
	c, err := connParam(p, MaxConnectData, "rdma_connect")
	if err != nil {
		return err
	}
	return fail(C.rocet_connect(x.c, &c), "rdma_connect", fmt.Sprintf("%v, depths %d and %d", x, p.ResponderResources, p.InitiatorDepth))
}

func (x *id) Accept(p ConnParam) error {
	c, err := connParam(p, MaxAcceptData, "rdma_accept")
	if err != nil {
		return err
	}
	return fail(C.rocet_accept(x.c, &c), "rdma_accept", fmt.Sprintf("%v, depths %d and %d", x, p.ResponderResources, p.InitiatorDepth))
}

func connParam(p ConnParam, max int, call string) (C.struct_rocet_conn, error) {
	c := C.struct_rocet_conn{
		resp_res: C.uint8_t(p.ResponderResources), init_depth: C.uint8_t(p.InitiatorDepth),
		retry: C.uint8_t(p.RetryCount), rnr_retry: C.uint8_t(p.RNRRetryCount),
		flow: C.uint8_t(flag(p.FlowControl)), data_len: C.uint8_t(len(p.PrivateData)),
	}
	if err := checkPrivate(p.PrivateData, max, call); err != nil {
		return c, err
	}
	for i, b := range p.PrivateData {
		c.data[i] = C.uint8_t(b)
	}
	return c, nil
}

func (x *id) Reject(private []byte) error {
	if err := checkPrivate(private, MaxRejectData, "rdma_reject"); err != nil {
		return err
	}
	return fail(C.rocet_reject(x.c, unsafe.Pointer(unsafe.SliceData(private)), C.int(len(private))), "rdma_reject", x.String())
}

func (x *id) Disconnect() error {
	return fail(C.rocet_disconnect(x.c), "rdma_disconnect", x.String())
}

func (x *id) NotifyCommEst() error {
	return fail(C.rocet_notify_est(x.c), "rdma_notify", x.String())
}

func (x *id) CreateQP(a QPAttr) (QP, error) {
	d := x.p.deviceOf(x.c.verbs)
	if d == nil || x.qp != nil {
		return nil, fail(C.int(syscall.EINVAL), "rdma_create_qp", x.String()+" has no device, or a queue pair already")
	}
	q, err := createQP(x.c, d, a)
	if err != nil {
		return nil, err
	}
	x.qp = q
	return q, nil
}

func (x *id) DestroyQP() error {
	q := x.qp
	if q == nil {
		return nil
	}
	x.p.mu.Lock()
	delete(x.p.qps, q.Handle())
	x.p.mu.Unlock()
	x.qp = nil
	C.rdma_destroy_qp(x.c)
	return nil
}

func (x *id) Migrate(to EventChannel) error {
	ch, ok := to.(*channel)
	if !ok {
		return fail(C.int(syscall.EINVAL), "rdma_migrate_id", "the channel is of another provider")
	}
	if n := x.unacked.Load(); n != 0 {
		return fail(C.int(syscall.EBUSY), "rdma_migrate_id", fmt.Sprintf("%v, %d events unacknowledged", x, n))
	}
	if rc := C.rocet_migrate(x.c, ch.c); rc != 0 {
		return fail(rc, "rdma_migrate_id", x.String())
	}
	x.ch.ids.Add(-1)
	ch.ids.Add(1)
	x.ch = ch
	return nil
}

func (x *id) Destroy() error {
	if x.qp != nil {
		return fail(C.int(syscall.EBUSY), "rdma_destroy_id", x.String()+", its queue pair is still there")
	}
	if n := x.unacked.Load(); n != 0 {
		return fail(C.int(syscall.EBUSY), "rdma_destroy_id", fmt.Sprintf("%v, %d events unacknowledged", x, n))
	}
	name := x.String()
	x.p.mu.Lock()
	delete(x.p.ids, handle(x.c))
	x.p.mu.Unlock()
	rc := C.rocet_destroy_id(x.c)
	x.ch.ids.Add(-1)
	runtime.KeepAlive(x)
	return fail(rc, "rdma_destroy_id", name)
}

// idPointer is the id at an address that an event carries.
func idPointer(a C.uintptr_t) *C.struct_rdma_cm_id {
	return *(**C.struct_rdma_cm_id)(unsafe.Pointer(&a))
}
