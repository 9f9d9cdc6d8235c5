package verbstest

import (
	"bytes"
	"errors"
	"slices"
	"syscall"
	"time"

	"rocet/cgo/verbs"
)

// own finds the subject's device.
func (r *rig) own() verbs.Device {
	r.Helper()
	for _, d := range must[[]verbs.Device](r)(r.Provider.Devices()) {
		for _, g := range must[[]verbs.GID](r)(d.GIDs(1)) {
			if g.Addr() == r.Addr {
				return d
			}
		}
	}
	r.Fatalf("no device has %v", r.Addr)
	return nil
}

func testDevices(r *rig) {
	d := r.own()
	if again := must[[]verbs.Device](r)(r.Provider.Devices()); !slices.Contains(again, d) {
		r.Errorf("the second list of devices has another %s", d.Name())
	}
	a := d.Attr()
	if d.Name() == "" || a.Ports < 1 || a.CompVectors < 1 || a.MaxQP < 1 || a.MaxQPWR < 1 || a.MaxSGE < 1 || a.MaxCQE < 1 || a.MaxMR < 1 ||
		a.MaxPD < 1 || a.MaxMRSize == 0 || a.MaxQPRdAtom < 1 || a.MaxQPInitRdAtom < 1 || a.Transport != verbs.TransportIB {
		r.Errorf("%s: %+v", d.Name(), a)
	}
	p := must[verbs.PortAttr](r)(d.Port(1))
	if p.State != verbs.PortActive || p.LinkLayer != verbs.LinkEthernet || p.ActiveMTU < 256 || p.ActiveMTU > p.MaxMTU || p.GIDs < 1 {
		r.Errorf("port 1: %+v", p)
	}
	if _, err := d.Port(a.Ports + 1); err == nil {
		r.Error("a port that is not there was described")
	}
	if d.AsyncFD() < 0 {
		r.Error("no descriptor for asynchronous events")
	}
	if _, err := d.AsyncEvent(); !errors.Is(err, verbs.ErrAgain) {
		r.Errorf("an asynchronous event of an idle device: %v", err)
	}
}

// testConnect follows a connection up, with what each side tells the other.
func testConnect(r *rig) {
	hch, tch := r.channel(), r.channel()
	l, at := r.listen(tch)
	l.SetContext("the listener")
	id := r.resolve(hch, at)
	h := r.equip(hch, id, options{})
	if id.Context() != nil {
		r.Errorf("a new id's context is %v", id.Context())
	}
	h.id.SetContext(h)
	if h.id.Context() != any(h) || id.QP() != h.qp || id.RemoteAddr() != at || id.PortNum() != 1 {
		r.Errorf("context %v, queue pair %v, to %v by port %d", id.Context(), id.QP(), id.RemoteAddr(), id.PortNum())
	}
	if _, err := id.CreateQP(verbs.QPAttr{PD: h.pd, SendCQ: h.cq, RecvCQ: h.cq, Caps: h.qp.Caps()}); err == nil {
		r.Error("a second queue pair on an id")
	}
	if err := id.Connect(verbs.ConnParam{PrivateData: make([]byte, verbs.MaxConnectData+1)}); !errors.Is(err, syscall.EINVAL) {
		r.Errorf("too much private data in a request: %v", err)
	}
	asked := bytes.Repeat([]byte("ask"), 10)
	r.check(id.Connect(verbs.ConnParam{PrivateData: asked, ResponderResources: 5, InitiatorDepth: 3, RetryCount: 6, RNRRetryCount: 4, FlowControl: true}))
	ev := r.next(tch, verbs.EventConnectRequest)
	// What the host serves is what the target may have outstanding, and the other way round.
	if !bytes.HasPrefix(ev.PrivateData, asked) || ev.InitiatorDepth != 5 || ev.ResponderResources != 3 || ev.RNRRetryCount != 4 ||
		ev.Listen != l || ev.Listen.Context() != "the listener" || ev.ID == l {
		r.Errorf("request: %+v", ev)
	}
	t := r.equip(tch, ev.ID, options{})
	if t.id.LocalAddr() != at || t.id.RemoteAddr() != id.LocalAddr() || t.id.Device() != id.Device() {
		r.Errorf("accepted: from %v to %v on %v; the host: from %v to %v on %v", t.id.LocalAddr(), t.id.RemoteAddr(), t.id.Device().Name(),
			id.LocalAddr(), id.RemoteAddr(), id.Device().Name())
	}
	if st := must[verbs.QPState](r)(t.qp.State()); st == verbs.QPRTS || st == verbs.QPError {
		r.Errorf("a queue pair is in state %v before it is accepted", st)
	}
	t.post(nil, t.recvWR(0, 0, 64)) // receives come before the accept
	answered := bytes.Repeat([]byte("answer"), 20)
	r.check(t.id.Accept(verbs.ConnParam{PrivateData: answered, InitiatorDepth: 2, ResponderResources: 3, RNRRetryCount: 7}))
	ev = r.next(hch, verbs.EventEstablished)
	r.next(tch, verbs.EventEstablished)
	if !bytes.HasPrefix(ev.PrivateData, answered) || ev.ResponderResources != 2 || ev.InitiatorDepth != 3 {
		r.Errorf("answer: %+v", ev)
	}
	for _, e := range []*end{h, t} {
		if st := must[verbs.QPState](r)(e.qp.State()); st != verbs.QPRTS {
			r.Errorf("a connected queue pair is in state %v", st)
		}
	}
	if h.qp.Num() == t.qp.Num() || h.qp.Handle() == t.qp.Handle() || h.qp.Handle() == 0 {
		r.Errorf("queue pairs %d and %d, handles %#x and %#x", h.qp.Num(), t.qp.Num(), h.qp.Handle(), t.qp.Handle())
	}
	r.check(l.Destroy())
	// The connection outlives its listener.
	h.post(h.sendWR(1, verbs.OpSend, 0, 64), nil)
	h.want(t, wc{1, verbs.StatusSuccess})
	t.want(h, wc{100, verbs.StatusSuccess})
}

func testReject(r *rig) {
	hch, tch := r.channel(), r.channel()
	l, at := r.listen(tch)
	h := r.equip(hch, r.resolve(hch, at), options{})
	r.check(h.id.Connect(verbs.ConnParam{PrivateData: []byte("please"), InitiatorDepth: 1, ResponderResources: 1}))
	ev := r.next(tch, verbs.EventConnectRequest)
	if err := ev.ID.Reject(make([]byte, verbs.MaxRejectData+1)); !errors.Is(err, syscall.EINVAL) {
		r.Errorf("too much private data in a refusal: %v", err)
	}
	why := []byte("because of this")
	r.check(ev.ID.Reject(why), ev.ID.Destroy())
	ev = r.next(hch, verbs.EventRejected)
	if ev.Status != int(verbs.RejectConsumer) || !bytes.HasPrefix(ev.PrivateData, why) || ev.ID != h.id {
		r.Errorf("refused: %+v", ev)
	}
	// An id that is destroyed instead of answered refuses, with nothing to say.
	other := r.equip(hch, r.resolve(hch, at), options{})
	r.check(other.id.Connect(verbs.ConnParam{InitiatorDepth: 1, ResponderResources: 1}))
	r.check(r.next(tch, verbs.EventConnectRequest).ID.Destroy())
	if ev = r.next(hch, verbs.EventRejected); ev.ID != other.id {
		r.Errorf("refused: %+v", ev)
	}
	r.check(l.Destroy())
}

func testNobodyListens(r *rig) {
	tch, hch := r.channel(), r.channel()
	l, at := r.listen(tch)
	r.check(l.Destroy())
	h := r.equip(hch, r.resolve(hch, at), options{})
	r.check(h.id.Connect(verbs.ConnParam{InitiatorDepth: 1, ResponderResources: 1}))
	if ev := r.next(hch, verbs.EventRejected); ev.Status != int(verbs.RejectInvalidServiceID) {
		r.Errorf("refused: %+v", ev)
	}
}

// testListenerGoes destroys a listener with a request that nobody took.
func testListenerGoes(r *rig) {
	tch, hch := r.channel(), r.channel()
	l, at := r.listen(tch)
	h := r.equip(hch, r.resolve(hch, at), options{})
	r.check(h.id.Connect(verbs.ConnParam{InitiatorDepth: 1, ResponderResources: 1}))
	w := must[*verbs.Waiter](r)(verbs.NewWaiter(tch.FD()))
	defer w.Close()
	r.check(w.SetDeadline(time.Now().Add(patience)), w.Wait(), l.Destroy())
	// A library may have the request in hand already; it must not come with a listener that is gone.
	r.drop(tch)
	if ev := r.next(hch, verbs.EventRejected); ev.ID != h.id {
		r.Errorf("refused: %+v", ev)
	}
}

func testDisconnect(r *rig) {
	h, t := r.pair(options{}, options{})
	t.post(nil, t.recvWR(0, 0, 64))
	r.check(h.id.Disconnect())
	if ev := r.next(t.ch, verbs.EventDisconnected); ev.ID != t.id {
		r.Errorf("%+v", ev)
	}
	r.check(t.id.Disconnect())
	r.next(h.ch, verbs.EventDisconnected)
	for _, e := range []*end{h, t} {
		if st := must[verbs.QPState](r)(e.qp.State()); st != verbs.QPError {
			r.Errorf("a queue pair is in state %v after the disconnect", st)
		}
	}
	t.want(h, wc{100, verbs.StatusWRFlushErr})
	r.next(h.ch, verbs.EventTimewaitExit)
}

// testAcknowledgements: what an event is about stays until it is acknowledged.
func testAcknowledgements(r *rig) {
	hch, tch := r.channel(), r.channel()
	if _, err := hch.Next(); !errors.Is(err, verbs.ErrAgain) {
		r.Errorf("an event of a new channel: %v", err)
	}
	l, at := r.listen(tch)
	if err := tch.Close(); !errors.Is(err, syscall.EBUSY) {
		r.Fatalf("a channel with an id on it was closed: %v", err)
	}
	id := must[verbs.ID](r)(hch.NewID())
	r.check(id.ResolveAddr(nowhere, at, patience))
	ev := r.take(hch, verbs.EventAddrResolved)
	if err := id.Destroy(); !errors.Is(err, syscall.EBUSY) {
		r.Fatalf("an id with an event not acknowledged was destroyed: %v", err)
	}
	if err := id.Migrate(tch); !errors.Is(err, syscall.EBUSY) {
		r.Errorf("an id with an event not acknowledged moved: %v", err)
	}
	ev.Ack()
	ev.Ack() // once is enough, more does no harm
	r.check(id.Destroy())

	h := r.equip(hch, r.resolve(hch, at), options{})
	r.check(h.id.Connect(verbs.ConnParam{InitiatorDepth: 1, ResponderResources: 1}))
	ev = r.take(tch, verbs.EventConnectRequest)
	if err := l.Destroy(); !errors.Is(err, syscall.EBUSY) {
		r.Fatalf("a listener with a request not acknowledged was destroyed: %v", err)
	}
	ev.Ack()
	r.check(ev.ID.Destroy(), l.Destroy())
}

// testMigrate moves an id, and its events, to another channel.
func testMigrate(r *rig) {
	to := r.channel()
	h, t := r.pair(options{}, options{})
	from := t.ch
	r.check(h.id.Disconnect())
	for end := time.Now().Add(patience); must[verbs.QPState](r)(h.qp.State()) != verbs.QPError && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	r.check(t.id.Migrate(to)) // with an event that waits, or is on its way
	t.ch = to
	if ev, err := from.Next(); !errors.Is(err, verbs.ErrAgain) {
		r.Errorf("an event of an id that has left: %+v", ev)
	}
	if ev := r.next(to, verbs.EventDisconnected); ev.ID != t.id {
		r.Errorf("%+v", ev)
	}
	r.drop(to)
}

// testDescriptors waits for events by descriptor, without a thread that blocks.
func testDescriptors(r *rig) {
	h, t := r.pair(options{}, options{})
	readable := func(fd int, d time.Duration) bool {
		r.Helper()
		w := must[*verbs.Waiter](r)(verbs.NewWaiter(fd))
		defer w.Close()
		r.check(w.SetDeadline(time.Now().Add(d)))
		return w.Wait() == nil
	}
	short := 20 * time.Millisecond
	if readable(t.ch.FD(), short) || readable(t.cq.FD(), short) {
		r.Error("idle channels are readable")
	}
	if again, err := t.ch.Next(); !errors.Is(err, verbs.ErrAgain) {
		r.Errorf("%+v, %v", again, err)
	}
	t.post(nil, t.recvWR(0, 0, 64))
	send := func(slot int) {
		h.post(h.sendWR(slot, verbs.OpSend, 0, 8), nil)
		h.want(t, wc{uint64(slot), verbs.StatusSuccess})
	}
	// Not armed: no event.
	send(0)
	if readable(t.cq.FD(), short) {
		r.Error("an event although nobody asked for one")
	}
	t.want(h, wc{100, verbs.StatusSuccess})

	r.check(t.cq.Arm())
	t.recvWR(1, 0, 64).Next = address(t.recvWR(2, 0, 64))
	t.post(nil, &t.recv[1])
	// The target's queue is not polled here, which an event is there for.
	h.post(h.sendWR(1, verbs.OpSend, 0, 8), nil)
	for end := time.Now().Add(patience); len(h.got) == 0 && time.Now().Before(end); {
		h.poll()
	}
	if !readable(t.cq.FD(), patience) {
		r.Fatal("no event for a completion that was asked for")
	}
	r.check(t.cq.Ack())
	if readable(t.cq.FD(), short) {
		r.Error("an event that was taken is still there")
	}
	r.check(t.cq.Ack()) // with none
	h.want(t, wc{1, verbs.StatusSuccess})
	t.want(h, wc{101, verbs.StatusSuccess})
	send(2) // one Arm is one event
	if readable(t.cq.FD(), short) {
		r.Error("a second event of one Arm")
	}
	t.want(h, wc{102, verbs.StatusSuccess})

	silent := must[verbs.CQ](r)(t.id.Device().CreateCQ(verbs.CQAttr{Entries: 8}))
	if silent.FD() != -1 {
		r.Errorf("descriptor %d of a queue without events", silent.FD())
	}
	r.check(silent.Destroy())
	r.check(h.id.Disconnect())
	if !readable(t.ch.FD(), patience) {
		r.Error("an event that no descriptor tells of")
	}
}
