package fake

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"rocet/cgo/verbs"
)

// end is one end of a connection with registered memory and a place for requests.
type end struct {
	t    *testing.T
	id   verbs.ID
	qp   verbs.QP
	cq   verbs.CQ
	mr   verbs.MR
	mem  []byte
	send []verbs.SendWR
	recv []verbs.RecvWR
	sge  []verbs.SGE
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (e *end) make(depth int) {
	t := e.t
	t.Helper()
	pd := must[verbs.PD](t)(e.id.Device().AllocPD())
	e.cq = must[verbs.CQ](t)(e.id.Device().CreateCQ(verbs.CQAttr{Entries: 64, Events: true}))
	e.mem = make([]byte, 8192)
	e.mr = must[verbs.MR](t)(pd.RegMR(uintptr(unsafe.Pointer(&e.mem[0])), 8192, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite))
	e.qp = must[verbs.QP](t)(e.id.CreateQP(verbs.QPAttr{PD: pd, SendCQ: e.cq, RecvCQ: e.cq, Caps: verbs.QPCaps{
		MaxSendWR: uint32(depth), MaxRecvWR: uint32(depth), MaxSendSGE: 1, MaxRecvSGE: 1,
	}}))
	e.send, e.recv, e.sge = make([]verbs.SendWR, 1), make([]verbs.RecvWR, 1), make([]verbs.SGE, 1)
	t.Cleanup(func() {
		for _, err := range []error{e.id.DestroyQP(), e.mr.Dereg(), e.cq.Destroy(), pd.Dealloc(), e.id.Destroy()} {
			if err != nil {
				t.Error(err)
			}
		}
	})
}

func addr[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

func (e *end) post(f *Fabric, op verbs.PostOp) syscall.Errno {
	op.QP = e.qp.Handle()
	ops := []verbs.PostOp{op}
	f.Post(ops)
	return syscall.Errno(ops[0].Err)
}

func (e *end) receive(f *Fabric, id uint64, n int) syscall.Errno {
	e.sge[0] = verbs.SGE{Addr: uint64(addr(&e.mem[0])), Length: uint32(n), LKey: e.mr.LKey()}
	e.recv[0] = verbs.RecvWR{ID: id, SGList: addr(&e.sge[0]), NumSGE: 1}
	return e.post(f, verbs.PostOp{Recv: addr(&e.recv[0])})
}

func (e *end) do(f *Fabric, id uint64, op verbs.Opcode, n int, remote uint64, rkey uint32) syscall.Errno {
	e.sge[0] = verbs.SGE{Addr: uint64(addr(&e.mem[4096])), Length: uint32(n), LKey: e.mr.LKey()}
	e.send[0] = verbs.SendWR{ID: id, SGList: addr(&e.sge[0]), NumSGE: 1, Opcode: op, Flags: verbs.SendSignaled, RemoteAddr: remote, RKey: rkey, InvalidateRKey: rkey}
	return e.post(f, verbs.PostOp{Send: addr(&e.send[0])})
}

// want polls exactly the completions given, by id and status.
func (e *end) want(f *Fabric, want ...verbs.WC) {
	e.t.Helper()
	wc := make([]verbs.WC, 16)
	n := e.cq.Poll(wc, 0)
	if n != len(want) {
		e.t.Fatalf("%d completions, want %d: %+v", n, len(want), wc[:max(n, 0)])
	}
	for i, w := range want {
		if wc[i].ID != w.ID || wc[i].Status != w.Status {
			e.t.Errorf("completion %d: id %d, %v, want id %d, %v", i, wc[i].ID, wc[i].Status, w.ID, w.Status)
		}
	}
}

// pair connects two ends.
func pair(t *testing.T, f *Fabric) (a, b *end) {
	t.Helper()
	ch := must[verbs.EventChannel](t)(f.NewEventChannel())
	t.Cleanup(func() {
		if err := ch.Close(); err != nil {
			t.Error(err)
		}
		for _, l := range f.Leaks() {
			t.Error("left over:", l)
		}
		f.Close()
	})
	next := func(want verbs.EventType) *verbs.Event {
		t.Helper()
		ev := must[*verbs.Event](t)(ch.Next())
		ev.Ack()
		if ev.Type != want {
			t.Fatalf("event %v, want %v", ev.Type, want)
		}
		return ev
	}
	l := must[verbs.ID](t)(ch.NewID())
	at := netip.MustParseAddrPort("127.0.0.1:4420")
	if err := errors.Join(l.Bind(at), l.Listen(8)); err != nil {
		t.Fatal(err)
	}
	a = &end{t: t, id: must[verbs.ID](t)(ch.NewID())}
	if err := a.id.ResolveAddr(netip.AddrPort{}, at, time.Second); err != nil {
		t.Fatal(err)
	}
	next(verbs.EventAddrResolved)
	if err := a.id.ResolveRoute(time.Second); err != nil {
		t.Fatal(err)
	}
	next(verbs.EventRouteResolved)
	a.make(8)
	if err := a.id.Connect(verbs.ConnParam{PrivateData: []byte("hello"), ResponderResources: 4, RNRRetryCount: 7}); err != nil {
		t.Fatal(err)
	}
	ev := next(verbs.EventConnectRequest)
	if string(ev.PrivateData[:5]) != "hello" || len(ev.PrivateData) != verbs.MaxConnectData || ev.InitiatorDepth != 4 || ev.Listen != l {
		t.Errorf("connect request: %+v", ev)
	}
	b = &end{t: t, id: ev.ID}
	b.make(8)
	if err := b.id.Accept(verbs.ConnParam{InitiatorDepth: 2, RNRRetryCount: 7}); err != nil {
		t.Fatal(err)
	}
	next(verbs.EventEstablished)
	next(verbs.EventEstablished)
	if err := l.Destroy(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func ok(id uint64) verbs.WC { return verbs.WC{ID: id} }

func bad(id uint64, st verbs.WCStatus) verbs.WC { return verbs.WC{ID: id, Status: st} }

func TestTransfer(t *testing.T) {
	f := New(Config{})
	a, b := pair(t, f)
	copy(a.mem[4096:], "a command")
	a.do(f, 1, verbs.OpSend, 9, 0, 0) // waits for a receive
	a.want(f)
	b.receive(f, 2, 64)
	a.want(f, ok(1))
	b.want(f, ok(2))
	if string(b.mem[:9]) != "a command" {
		t.Errorf("received %q", b.mem[:9])
	}
	copy(b.mem[4096:], "an answer")
	b.do(f, 3, verbs.OpRDMAWrite, 9, uint64(addr(&a.mem[100])), a.mr.RKey())
	b.want(f, ok(3))
	if string(a.mem[100:109]) != "an answer" {
		t.Errorf("written %q", a.mem[100:109])
	}
	b.do(f, 4, verbs.OpRDMARead, 9, uint64(addr(&a.mem[4096])), a.mr.RKey())
	b.want(f, ok(4))
	if string(b.mem[4096:4105]) != "a command" {
		t.Errorf("read %q", b.mem[4096:4105])
	}
	if st := Of(a.qp).Stats(); st.RNRs == 0 {
		t.Error("no wait for a receive was counted")
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(f *Fabric, a, b *end)
		st   verbs.WCStatus
	}{
		{"wrong key", func(f *Fabric, a, b *end) {
			a.do(f, 1, verbs.OpRDMAWrite, 8, uint64(addr(&b.mem[0])), b.mr.RKey()+256)
		}, verbs.StatusRemAccessErr},
		{"out of bounds", func(f *Fabric, a, b *end) {
			b.do(f, 1, verbs.OpRDMARead, 8, uint64(addr(&a.mem[8185])), a.mr.RKey())
		}, verbs.StatusRemAccessErr},
		{"too long", func(f *Fabric, a, b *end) { b.receive(f, 9, 4); a.do(f, 1, verbs.OpSend, 5, 0, 0) }, verbs.StatusRemInvReqErr},
		{"invalidate a region", func(f *Fabric, a, b *end) {
			b.receive(f, 9, 64)
			a.do(f, 1, verbs.OpSendWithInv, 5, 0, b.mr.RKey())
		}, verbs.StatusRemInvReqErr},
		{"fault", func(f *Fabric, a, b *end) {
			Of(a.qp).FailSend(1, verbs.StatusRetryExcErr)
			a.do(f, 1, verbs.OpSend, 5, 0, 0)
		}, verbs.StatusRetryExcErr},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := New(Config{})
			a, b := pair(t, f)
			tt.do(f, a, b)
			from := a
			if tt.name == "out of bounds" {
				from = b
			}
			from.want(f, bad(1, tt.st))
			from.do(f, 2, verbs.OpSend, 5, 0, 0)
			from.want(f, bad(2, verbs.StatusWRFlushErr))
		})
	}
}

// TestReadDepth lets no more READs out than were agreed, and holds queues to size.
func TestReadDepth(t *testing.T) {
	f := New(Config{})
	a, b := pair(t, f)
	Of(b.qp).Hold(Sends)
	for i := range 8 {
		if e := b.do(f, uint64(i), verbs.OpRDMARead, 8, uint64(addr(&a.mem[0])), a.mr.RKey()); e != 0 {
			t.Fatal(e)
		}
	}
	if e := b.do(f, 9, verbs.OpRDMARead, 8, 0, 0); e != syscall.ENOMEM {
		t.Errorf("a ninth request in a queue of 8: %v", e)
	}
	if st := Of(b.qp).Stats(); st.MaxReads != 2 || st.ReadStalls == 0 {
		t.Errorf("%+v", st)
	}
	Of(b.qp).Hold(0)
	b.want(f, ok(0), ok(1), ok(2), ok(3), ok(4), ok(5), ok(6), ok(7))
}

// TestFlush ends a connection: everything comes back.
func TestFlush(t *testing.T) {
	f := New(Config{})
	a, b := pair(t, f)
	b.receive(f, 1, 64)
	b.receive(f, 2, 64)
	if err := a.id.Disconnect(); err != nil {
		t.Fatal(err)
	}
	b.want(f)
	if err := b.qp.ToError(); err != nil {
		t.Fatal(err)
	}
	b.want(f, bad(1, verbs.StatusWRFlushErr), bad(2, verbs.StatusWRFlushErr))
}

// TestPeerGone ends the retries to a peer that isn't there.
func TestPeerGone(t *testing.T) {
	f := New(Config{RetryTimeout: time.Millisecond})
	a, _ := pair(t, f)
	f.SetPort("fake0", false)
	a.do(f, 1, verbs.OpSend, 5, 0, 0)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		wc := make([]verbs.WC, 1)
		if a.cq.Poll(wc, 0) == 1 {
			if wc[0].Status != verbs.StatusRetryExcErr {
				t.Error(wc[0].Status)
			}
			return
		}
	}
	t.Error("the send never ended")
}
