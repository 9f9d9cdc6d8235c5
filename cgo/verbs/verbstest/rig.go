package verbstest

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"rocet/cgo/verbs"
)

// patience is how long anything may take.
const patience = 10 * time.Second

// Subject is an implementation of verbs.Provider.
type Subject struct {
	Provider verbs.Provider
	Addr     netip.Addr // of a device of it that can talk to itself
}

// rig is a subject in one test.
type rig struct {
	testing.TB
	Subject
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (r *rig) check(errs ...error) {
	r.Helper()
	for _, err := range errs {
		if err != nil {
			r.Fatal(err)
		}
	}
}

// channel makes an event channel that is closed with the test.
func (r *rig) channel() verbs.EventChannel {
	r.Helper()
	ch := must[verbs.EventChannel](r)(r.Provider.NewEventChannel())
	r.Cleanup(func() {
		if err := ch.Close(); err != nil {
			r.Errorf("close of an event channel: %v", err)
		}
	})
	return ch
}

// take waits for the next event, which is left to be acknowledged.
func (r *rig) take(ch verbs.EventChannel, want verbs.EventType) *verbs.Event {
	r.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Microsecond) {
		ev, err := ch.Next()
		if err == nil {
			if ev.Type != want {
				ev.Ack()
				r.Fatalf("event %v, want %v", ev.Type, want)
			}
			return ev
		}
		if !errors.Is(err, verbs.ErrAgain) {
			r.Fatal(err)
		}
		if time.Now().After(end) {
			r.Fatalf("no event, want %v", want)
		}
	}
}

// next is take with the acknowledgement.
func (r *rig) next(ch verbs.EventChannel, want verbs.EventType) *verbs.Event {
	r.Helper()
	ev := r.take(ch, want)
	ev.Ack()
	return ev
}

// listen makes a listener and says where it is.
func (r *rig) listen(ch verbs.EventChannel) (verbs.ID, netip.AddrPort) {
	r.Helper()
	l := must[verbs.ID](r)(ch.NewID())
	r.check(l.Bind(netip.AddrPortFrom(r.Addr, 0)), l.Listen(8))
	at := l.LocalAddr()
	if at.Addr() != r.Addr || at.Port() == 0 {
		r.Fatalf("the listener is at %v", at)
	}
	return l, at
}

// resolve makes an id that is ready for a queue pair and a connect.
func (r *rig) resolve(ch verbs.EventChannel, to netip.AddrPort) verbs.ID {
	r.Helper()
	id := must[verbs.ID](r)(ch.NewID())
	r.check(id.ResolveAddr(netip.AddrPort{}, to, patience))
	r.next(ch, verbs.EventAddrResolved)
	r.check(id.ResolveRoute(patience))
	r.next(ch, verbs.EventRouteResolved)
	return id
}

// options of an end.
type options struct {
	depth  uint32 // of both queues; 0: 16
	inline uint32
	srq    verbs.SRQ
	pd     verbs.PD // 0: one of its own
	cq     verbs.CQ // 0: one of its own
}

// end is one end of a connection, with a queue pair and registered memory.
type end struct {
	*rig
	ch verbs.EventChannel
	id verbs.ID
	pd verbs.PD
	cq verbs.CQ
	mr verbs.MR
	qp verbs.QP
	*arena
	got []verbs.WC // polled and not looked at
}

// equip gives an id a queue pair. Everything is destroyed with the test, the id too.
func (r *rig) equip(ch verbs.EventChannel, id verbs.ID, o options) *end {
	r.Helper()
	e := &end{rig: r, ch: ch, id: id, pd: o.pd, cq: o.cq, arena: newArena(r)}
	dev := id.Device()
	if dev == nil {
		r.Fatal("an id with a route has no device")
	}
	if o.pd == nil {
		e.pd = must[verbs.PD](r)(dev.AllocPD())
		r.Cleanup(func() { r.gone("PD", e.pd.Dealloc()) })
	}
	if o.cq == nil {
		e.cq = must[verbs.CQ](r)(dev.CreateCQ(verbs.CQAttr{Entries: 128, Events: true}))
		r.Cleanup(func() { r.gone("CQ", e.cq.Destroy()) })
	}
	e.mr = must[verbs.MR](r)(e.pd.RegMR(address(&e.data), dataSize,
		verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessMWBind))
	r.Cleanup(func() { r.gone("MR", e.mr.Dereg()) })
	depth := o.depth
	if depth == 0 {
		depth = 16
	}
	e.qp = must[verbs.QP](r)(id.CreateQP(verbs.QPAttr{PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, SRQ: o.srq, Caps: verbs.QPCaps{
		MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: o.inline,
	}}))
	r.Cleanup(func() {
		r.gone("QP", id.DestroyQP())
		r.drop(ch)
		r.gone("id", id.Destroy())
	})
	return e
}

func (r *rig) gone(what string, err error) {
	if err != nil {
		r.Errorf("the %s would not go: %v", what, err)
	}
}

// drop acknowledges what nobody waits for any more.
func (r *rig) drop(ch verbs.EventChannel) {
	for {
		ev, err := ch.Next()
		if err != nil {
			return
		}
		ev.Ack()
	}
}

// pair connects two ends: host asks, target answers.
func (r *rig) pair(h, t options) (host, target *end) {
	r.Helper()
	hch, tch := r.channel(), r.channel()
	l, at := r.listen(tch)
	host = r.equip(hch, r.resolve(hch, at), h)
	r.check(host.id.Connect(verbs.ConnParam{ResponderResources: 4, InitiatorDepth: 4, RetryCount: 7, RNRRetryCount: 7}))
	target = r.equip(tch, r.next(tch, verbs.EventConnectRequest).ID, t)
	r.check(target.id.Accept(verbs.ConnParam{ResponderResources: 4, InitiatorDepth: 4, RNRRetryCount: 7}))
	// The host's library answers the accept when the host looks: only then is the target told.
	r.next(hch, verbs.EventEstablished)
	r.next(tch, verbs.EventEstablished)
	r.check(l.Destroy())
	return host, target
}

// sges describes n bytes of the end's memory from off, in one piece, at slot of its scatter lists.
func (e *end) sges(slot int, off, n uint32) uintptr {
	e.sge[slot] = verbs.SGE{Addr: uint64(address(&e.data[off])), Length: n, LKey: e.mr.LKey()}
	return address(&e.sge[slot])
}

// sendWR prepares request slot, which is signaled, from off. Its id is slot.
func (e *end) sendWR(slot int, op verbs.Opcode, off, n uint32) *verbs.SendWR {
	e.send[slot] = verbs.SendWR{ID: uint64(slot), SGList: e.sges(slot, off, n), NumSGE: 1, Opcode: op, Flags: verbs.SendSignaled}
	return &e.send[slot]
}

// recvWR prepares receive slot, into off. Its id is 100 + slot.
func (e *end) recvWR(slot int, off, n uint32) *verbs.RecvWR {
	e.recv[slot] = verbs.RecvWR{ID: uint64(100 + slot), SGList: e.sges(maxWRs+slot, off, n), NumSGE: 1}
	return &e.recv[slot]
}

// remote has a request be about the peer's memory from off.
func (e *end) remote(wr *verbs.SendWR, peer *end, off uint32) *verbs.SendWR {
	wr.RemoteAddr, wr.RKey = uint64(address(&peer.data[off])), peer.mr.RKey()
	return wr
}

// post posts chains, which must be taken whole.
func (e *end) post(send *verbs.SendWR, recv *verbs.RecvWR) {
	e.Helper()
	op := verbs.PostOp{QP: e.qp.Handle(), BadSend: 1, BadRecv: 1, Err: 1}
	if send != nil {
		op.Send = address(send)
	}
	if recv != nil {
		op.Recv = address(recv)
	}
	ops := []verbs.PostOp{op}
	if n := e.Provider.Post(ops); n != 0 || ops[0].Err != 0 || ops[0].BadSend != 0 || ops[0].BadRecv != 0 {
		e.Fatalf("post: %d failed, %+v", n, ops[0])
	}
}

// wc is a completion that is expected.
type wc struct {
	id uint64
	st verbs.WCStatus
}

// want waits for completions of e, in order, and returns them. Both ends are polled, as a fabric may move in either's.
func (e *end) want(peer *end, want ...wc) []verbs.WC {
	e.Helper()
	for deadline := time.Now().Add(patience); len(e.got) < len(want); {
		if e.poll()+peer.poll() == 0 {
			if time.Now().After(deadline) {
				e.Fatalf("%d completions, want %d: %+v", len(e.got), len(want), e.got)
			}
			time.Sleep(50 * time.Microsecond)
		}
	}
	got := e.got[:len(want)]
	e.got = e.got[len(want):]
	for i, w := range want {
		if got[i].ID != w.id || got[i].Status != w.st {
			e.Fatalf("completion %d is %d, %v; want %d, %v", i, got[i].ID, got[i].Status, w.id, w.st)
		}
		if got[i].QPNum != e.qp.Num() {
			e.Errorf("completion %d is of queue pair %d, want %d", i, got[i].QPNum, e.qp.Num())
		}
	}
	return got
}

func (e *end) poll() int {
	e.Helper()
	var wcs [8]verbs.WC
	n := e.cq.Poll(wcs[:], 0)
	if n < 0 {
		e.Fatalf("poll: %d", n)
	}
	e.got = append(e.got, wcs[:n]...)
	return n
}

// nothing says that no completion is there that was not asked about.
func (e *end) nothing(peer *end) {
	e.Helper()
	for range 20 {
		e.poll()
		peer.poll()
	}
	if len(e.got) != 0 {
		e.Errorf("completions that nobody expected: %+v", e.got)
	}
}
