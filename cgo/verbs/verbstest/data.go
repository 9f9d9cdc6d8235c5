package verbstest

import (
	"bytes"
	"errors"
	"net/netip"
	"syscall"
	"time"

	"rocet/cgo/verbs"
)

var nowhere netip.AddrPort

// fill makes a pattern of n bytes at off, and returns a copy.
func (e *end) fill(off, n uint32, seed byte) []byte {
	b := e.data[off : off+n]
	for i := range b {
		b[i] = byte(i)*7 + byte(i>>8) + seed
	}
	return bytes.Clone(b)
}

func (e *end) holds(what string, off uint32, want []byte) {
	e.Helper()
	if !bytes.Equal(e.data[off:off+uint32(len(want))], want) {
		e.Errorf("%s: the data is something else", what)
	}
}

// testObjects makes and ends what needs no connection.
func testObjects(r *rig) {
	d := r.own()
	pd := must[verbs.PD](r)(d.AllocPD())
	a := newArena(r)
	mr := must[verbs.MR](r)(pd.RegMR(address(&a.data), dataSize, verbs.AccessLocalWrite))
	other := must[verbs.MR](r)(pd.RegMR(address(&a.data), dataSize, verbs.AccessLocalWrite|verbs.AccessRemoteRead))
	if mr.LKey() == other.LKey() || mr.Handle() == other.Handle() || mr.Handle() == 0 || pd.Device() != d {
		r.Errorf("keys %#x and %#x, handles %#x and %#x", mr.LKey(), other.LKey(), mr.Handle(), other.Handle())
	}
	if _, err := pd.RegMR(address(&a.data), dataSize, verbs.AccessRemoteWrite); !errors.Is(err, syscall.EINVAL) {
		r.Errorf("remote write access without local: %v", err)
	}
	if err := pd.Dealloc(); !errors.Is(err, syscall.EBUSY) {
		r.Fatalf("a domain with regions was ended: %v", err)
	}
	r.check(mr.Dereg(), other.Dereg())
	cq := must[verbs.CQ](r)(d.CreateCQ(verbs.CQAttr{Entries: 10, Events: true}))
	if cq.Entries() < 10 || cq.FD() < 0 || cq.Device() != d {
		r.Errorf("%d entries, descriptor %d", cq.Entries(), cq.FD())
	}
	var wcs [4]verbs.WC
	if n := cq.Poll(wcs[:], 100); n != 0 {
		r.Errorf("%d completions of a new queue", n)
	}
	r.check(cq.Arm(), cq.Ack(), cq.Destroy())
	if _, err := d.CreateCQ(verbs.CQAttr{Entries: d.Attr().MaxCQE + 1}); err == nil {
		r.Error("a completion queue of more than the device has")
	}
	srq := must[verbs.SRQ](r)(pd.CreateSRQ(verbs.SRQAttr{MaxWR: 8, MaxSGE: 1}))
	if srq.Attr().MaxWR < 8 || srq.Attr().MaxSGE < 1 || srq.Handle() == 0 {
		r.Errorf("%+v", srq.Attr())
	}
	r.check(srq.Destroy(), pd.Dealloc())

	h, _ := r.pair(options{}, options{})
	if c := h.qp.Caps(); c.MaxSendWR < 16 || c.MaxRecvWR < 16 || c.MaxSendSGE < 2 || c.MaxRecvSGE < 2 {
		r.Errorf("granted %+v", c)
	}
	if err := h.cq.Destroy(); !errors.Is(err, syscall.EBUSY) {
		r.Fatalf("a completion queue with a queue pair was destroyed: %v", err)
	}
	if err := h.id.Destroy(); !errors.Is(err, syscall.EBUSY) {
		r.Fatalf("an id with a queue pair was destroyed: %v", err)
	}
}

func testTransfers(r *rig) {
	h, t := r.pair(options{}, options{})
	for _, n := range []uint32{1, 64, 4096, 16 << 10} {
		sent := h.fill(0, n, 1)
		t.post(nil, t.recvWR(0, 16<<10, n))
		h.post(h.sendWR(0, verbs.OpSend, 0, n), nil)
		if w := h.want(t, wc{0, verbs.StatusSuccess}); w[0].Opcode != verbs.WCSend {
			r.Errorf("a send completed as %v", w[0].Opcode)
		}
		if w := t.want(h, wc{100, verbs.StatusSuccess})[0]; w.Opcode != verbs.WCRecv || w.ByteLen != n || w.Invalidated() {
			r.Errorf("a send of %d bytes came as %+v", n, w)
		}
		t.holds("sent", 16<<10, sent)

		written := t.fill(0, n, 2)
		t.post(t.remote(t.sendWR(1, verbs.OpRDMAWrite, 0, n), h, 20<<10), nil)
		if w := t.want(h, wc{1, verbs.StatusSuccess}); w[0].Opcode != verbs.WCRDMAWrite {
			r.Errorf("a write completed as %v", w[0].Opcode)
		}
		h.holds("written", 20<<10, written)

		read := h.fill(0, n, 3)
		t.post(t.remote(t.sendWR(2, verbs.OpRDMARead, 32<<10, n), h, 0), nil)
		if w := t.want(h, wc{2, verbs.StatusSuccess})[0]; w.Opcode != verbs.WCRDMARead {
			r.Errorf("a read completed as %v", w.Opcode)
		}
		t.holds("read", 32<<10, read)
	}
	// Gathered from two places, scattered to two others.
	all := append(h.fill(0, 100, 4), h.fill(8192, 200, 5)...)
	wr := h.sendWR(0, verbs.OpSend, 0, 100)
	h.sges(1, 8192, 200)
	wr.NumSGE = 2
	rv := t.recvWR(0, 0, 250)
	t.sges(maxWRs+1, 8192, 500)
	rv.NumSGE = 2
	t.post(nil, rv)
	h.post(wr, nil)
	h.want(t, wc{0, verbs.StatusSuccess})
	if w := t.want(h, wc{100, verbs.StatusSuccess})[0]; w.ByteLen != 300 {
		r.Errorf("%d bytes came", w.ByteLen)
	}
	t.holds("scattered, first", 0, all[:250])
	t.holds("scattered, second", 8192, all[250:])
	h.nothing(t)
	t.nothing(h)
}

// testChains posts as the transport does: data and response in one chain, of which the last is signaled.
func testChains(r *rig) {
	h, t := r.pair(options{}, options{})
	for i := range 4 {
		h.recvWR(i, uint32(32<<10+i*64), 64)
		if i > 0 {
			h.recv[i-1].Next = address(&h.recv[i])
		}
	}
	h.post(nil, &h.recv[0])
	var want [4][]byte
	for i := range 4 {
		want[i] = t.fill(uint32(i*4096), 4096, byte(i))
		write := t.remote(t.sendWR(2*i, verbs.OpRDMAWrite, uint32(i*4096), 4096), h, uint32(i*4096))
		send := t.sendWR(2*i+1, verbs.OpSend, uint32(i*4096), 16)
		write.Flags = 0
		if i < 3 {
			send.Flags = 0
		}
		write.Next = address(send)
		if i > 0 {
			t.send[2*i-1].Next = address(write)
		}
	}
	t.post(&t.send[0], nil)
	t.want(h, wc{7, verbs.StatusSuccess}) // nothing for those that are not signaled
	h.want(t, wc{100, 0}, wc{101, 0}, wc{102, 0}, wc{103, 0})
	for i := range 4 {
		h.holds("data", uint32(i*4096), want[i])
		h.holds("response", uint32(32<<10+i*64), want[i][:16])
	}
	t.nothing(h)
	h.nothing(t)
}

// testManyOps posts to several queues in one crossing.
func testManyOps(r *rig) {
	h1, t1 := r.pair(options{}, options{})
	h2, t2 := r.pair(options{}, options{})
	for _, e := range []*end{h1, h2} {
		e.post(nil, e.recvWR(0, 0, 64))
	}
	one, two := t1.fill(0, 32, 1), t2.fill(0, 32, 2)
	ops := []verbs.PostOp{
		{QP: t1.qp.Handle(), Send: address(t1.sendWR(0, verbs.OpSend, 0, 32)), Recv: address(t1.recvWR(0, 4096, 64))},
		{QP: t2.qp.Handle(), Send: address(t2.sendWR(0, verbs.OpSend, 0, 32)), Recv: address(t2.recvWR(0, 4096, 64))},
		{QP: t1.qp.Handle()}, // nothing to do
	}
	if n := r.Provider.Post(ops); n != 0 {
		r.Fatalf("%d ops failed: %+v", n, ops)
	}
	if n := r.Provider.Post(nil); n != 0 {
		r.Errorf("%d of no ops failed", n)
	}
	for _, c := range []struct {
		t, h *end
		want []byte
	}{{t1, h1, one}, {t2, h2, two}} {
		c.t.want(c.h, wc{0, verbs.StatusSuccess})
		c.h.want(c.t, wc{100, verbs.StatusSuccess})
		c.h.holds("sent", 0, c.want)
		c.h.post(c.h.sendWR(1, verbs.OpSend, 0, 8), nil)
		c.h.want(c.t, wc{1, verbs.StatusSuccess})
		c.t.want(c.h, wc{100, verbs.StatusSuccess})
	}
}

// testBadRequests: a chain stops at what can't be posted, and says where. What is before it was posted, and the ops after
// it are not concerned.
func testBadRequests(r *rig) {
	h, t := r.pair(options{depth: 8}, options{depth: 8})
	h2, t2 := r.pair(options{}, options{})
	sends, recvs := int(t.qp.Caps().MaxSendWR), int(t.qp.Caps().MaxRecvWR)
	if sends+1 > maxWRs || recvs+1 > maxWRs {
		r.Skipf("queues of %d and %d are granted for 8, more than this test has requests", sends, recvs)
	}
	chainSends := func(n int) {
		for i := range n {
			t.remote(t.sendWR(i, verbs.OpRDMAWrite, 0, 8), h, 0)
			if i > 0 {
				t.send[i-1].Next = address(&t.send[i])
			}
		}
	}
	check := func(what string, op verbs.PostOp, send, recv uintptr, err syscall.Errno) {
		r.Helper()
		if op.BadSend != send || op.BadRecv != recv || syscall.Errno(op.Err) != err {
			r.Errorf("%s: bad send %#x, bad receive %#x, %v; want %#x, %#x, %v", what,
				op.BadSend, op.BadRecv, syscall.Errno(op.Err), send, recv, err)
		}
	}
	chainSends(sends + 1)
	h2.post(nil, h2.recvWR(0, 0, 64))
	ops := []verbs.PostOp{
		{QP: t.qp.Handle(), Send: address(&t.send[0])},
		{QP: t2.qp.Handle(), Send: address(t2.sendWR(0, verbs.OpSend, 0, 8)), BadSend: 5, BadRecv: 5, Err: 5},
	}
	if n := r.Provider.Post(ops); n != 1 {
		r.Errorf("%d ops failed, want 1", n)
	}
	check("one send too many", ops[0], address(&t.send[sends]), 0, syscall.ENOMEM)
	check("the op after it", ops[1], 0, 0, 0)
	for i := range sends {
		t.want(h, wc{uint64(i), verbs.StatusSuccess})
	}
	t.nothing(h)
	t2.want(h2, wc{0, verbs.StatusSuccess})
	h2.want(t2, wc{100, verbs.StatusSuccess})

	// Receives go first, and sends are not tried if they fail.
	for i := range recvs + 1 {
		t.recvWR(i, uint32(i)*64, 64)
		if i > 0 {
			t.recv[i-1].Next = address(&t.recv[i])
		}
	}
	chainSends(1)
	ops = []verbs.PostOp{{QP: t.qp.Handle(), Send: address(&t.send[0]), Recv: address(&t.recv[0])}}
	r.Provider.Post(ops)
	check("one receive too many", ops[0], address(&t.send[0]), address(&t.recv[recvs]), syscall.ENOMEM)
	t.nothing(h)

	// More places than the queue pair has.
	wr := t.sendWR(0, verbs.OpSend, 0, 8)
	wr.NumSGE = int32(t.qp.Caps().MaxSendSGE) + 1
	ops = []verbs.PostOp{{QP: t.qp.Handle(), Send: address(wr)}}
	r.Provider.Post(ops)
	if ops[0].Err == 0 || ops[0].BadSend != address(wr) {
		r.Errorf("too many places: %+v", ops[0])
	}

	// A queue pair that is not connected takes no sends.
	ch := r.channel()
	l, at := r.listen(ch)
	lone := r.equip(ch, r.resolve(ch, at), options{})
	wr = lone.sendWR(0, verbs.OpSend, 0, 8)
	ops = []verbs.PostOp{{QP: lone.qp.Handle(), Send: address(wr)}}
	r.Provider.Post(ops)
	check("not connected", ops[0], address(wr), 0, syscall.EINVAL)
	r.check(l.Destroy())
}

func testInline(r *rig) {
	h, t := r.pair(options{}, options{inline: 64})
	if n := t.qp.Caps().MaxInline; n < 64 {
		r.Skipf("the device takes %d bytes inline", n)
	}
	h.post(nil, h.recvWR(0, 0, 64))
	want := t.fill(0, 64, 9)
	wr := t.sendWR(0, verbs.OpSend, 0, 64)
	wr.Flags |= verbs.SendInline
	t.sge[0].LKey = 0 // keys don't count
	t.post(wr, nil)
	clear(t.data[:64]) // the post has copied it
	t.want(h, wc{0, verbs.StatusSuccess})
	h.want(t, wc{100, verbs.StatusSuccess})
	h.holds("inline", 0, want)

	wr = t.sendWR(1, verbs.OpSend, 0, t.qp.Caps().MaxInline+1)
	wr.Flags |= verbs.SendInline
	ops := []verbs.PostOp{{QP: t.qp.Handle(), Send: address(wr)}}
	if r.Provider.Post(ops); ops[0].Err == 0 || ops[0].BadSend != address(wr) {
		r.Errorf("too much inline: %+v", ops[0])
	}
}

// testSharedReceives has two queue pairs take from one queue of receives.
func testSharedReceives(r *rig) {
	d := r.own()
	if d.Attr().MaxSRQ == 0 {
		r.Skip("the device has no shared receive queues")
	}
	pd := must[verbs.PD](r)(d.AllocPD())
	r.Cleanup(func() { r.gone("PD", pd.Dealloc()) })
	cq := must[verbs.CQ](r)(d.CreateCQ(verbs.CQAttr{Entries: 128}))
	r.Cleanup(func() { r.gone("CQ", cq.Destroy()) })
	srq := must[verbs.SRQ](r)(pd.CreateSRQ(verbs.SRQAttr{MaxWR: 16, MaxSGE: 2}))
	r.Cleanup(func() { r.gone("SRQ", srq.Destroy()) })
	h1, t1 := r.pair(options{}, options{pd: pd, cq: cq, srq: srq})
	h2, t2 := r.pair(options{}, options{pd: pd, cq: cq, srq: srq})
	for i := range 4 {
		t1.recvWR(i, uint32(i)*64, 64)
		if i > 0 {
			t1.recv[i-1].Next = address(&t1.recv[i])
		}
	}
	// A queue pair with shared receives has none of its own.
	ops := []verbs.PostOp{{QP: t1.qp.Handle(), Recv: address(&t1.recv[0])}}
	if r.Provider.Post(ops); ops[0].Err == 0 {
		r.Fatal("a receive for a queue pair that shares them")
	}
	ops = []verbs.PostOp{{SRQ: srq.Handle(), Recv: address(&t1.recv[0])}}
	if n := r.Provider.Post(ops); n != 0 {
		r.Fatalf("%+v", ops[0])
	}
	r.check(srq.SetLimit(2))
	got := map[uint32]int{}
	for i, h := range []*end{h1, h2, h1} {
		h.fill(0, 16, byte(i))
		h.post(h.sendWR(0, verbs.OpSend, 0, 16), nil)
		peer := t1
		if h == h2 {
			peer = t2
		}
		h.want(peer, wc{0, verbs.StatusSuccess})
	}
	all := append(t1.got, t2.got...) // of one completion queue
	t1.got, t2.got = nil, nil
	for end := time.Now().Add(patience); len(all) < 3 && time.Now().Before(end); {
		h1.poll()
		h2.poll()
		t1.poll()
		all, t1.got = append(all, t1.got...), nil
	}
	for _, w := range all {
		if w.Status != verbs.StatusSuccess || w.Opcode != verbs.WCRecv {
			r.Errorf("%+v", w)
		}
		got[w.QPNum]++
	}
	if got[t1.qp.Num()] != 2 || got[t2.qp.Num()] != 1 {
		r.Errorf("receives by queue pair: %v", got)
	}
	// Of four receives one is left: fewer than two.
	if ev := r.async(d, verbs.AsyncSRQLimitReached); ev.SRQ != srq {
		r.Errorf("%+v", ev)
	}
	r.check(t1.qp.ToError())
	if ev := r.async(d, verbs.AsyncQPLastWQEReached); ev.QP != t1.qp || ev.QPNum != t1.qp.Num() {
		r.Errorf("%+v", ev)
	}
	// The other goes on.
	h2.post(h2.sendWR(0, verbs.OpSend, 0, 16), nil)
	h2.want(t2, wc{0, verbs.StatusSuccess})
	t2.want(h2, wc{103, verbs.StatusSuccess})
}

// async waits for an asynchronous event, over others.
func (r *rig) async(d verbs.Device, want verbs.AsyncType) verbs.AsyncEvent {
	r.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(200 * time.Microsecond) {
		ev, err := d.AsyncEvent()
		if err == nil && ev.Type == want {
			return ev
		}
		if err != nil && !errors.Is(err, verbs.ErrAgain) {
			r.Fatal(err)
		}
	}
	r.Fatalf("no asynchronous event %v", want)
	return verbs.AsyncEvent{}
}

// testWindows binds a window, as a host does for its commands, and has the target take it back.
func testWindows(r *rig) {
	h, t := r.pair(options{}, options{})
	a := h.id.Device().Attr()
	if a.Flags&(verbs.DeviceMemWindow2A|verbs.DeviceMemWindow2B) == 0 || a.Flags&verbs.DeviceMemMgtExtensions == 0 {
		r.Skip("the device has no type 2 memory windows, or takes none back")
	}
	mw := must[verbs.MW](r)(h.pd.AllocMW())
	r.Cleanup(func() { r.gone("MW", mw.Dealloc()) })
	key := verbs.NextKey(mw.RKey())
	h.send[0] = verbs.SendWR{ID: 0, Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled, BindMW: mw.Handle(), BindRKey: key, BindMR: h.mr.Handle(),
		BindAddr: uint64(address(&h.data[4096])), BindLength: 512, BindAccess: verbs.AccessRemoteWrite | verbs.AccessRemoteRead}
	h.post(&h.send[0], h.recvWR(0, 0, 64))
	if w := h.want(t, wc{0, verbs.StatusSuccess})[0]; w.Opcode != verbs.WCBindMW {
		r.Errorf("a bind completed as %v", w.Opcode)
	}
	want := t.fill(0, 512, 3)
	write := t.remote(t.sendWR(0, verbs.OpRDMAWrite, 0, 512), h, 4096)
	write.RKey = key
	send := t.sendWR(1, verbs.OpSendWithInv, 0, 16)
	send.InvalidateRKey = key
	write.Next = address(send)
	t.post(write, nil)
	t.want(h, wc{0, verbs.StatusSuccess}, wc{1, verbs.StatusSuccess})
	if w := h.want(t, wc{100, verbs.StatusSuccess})[0]; !w.Invalidated() || w.InvalidatedRKey != key {
		r.Errorf("the response came as %+v, want key %#x taken back", w, key)
	}
	h.holds("written", 4096, want)
	// The key is good for nothing now.
	write = t.remote(t.sendWR(2, verbs.OpRDMAWrite, 0, 512), h, 4096)
	write.RKey = key
	t.post(write, nil)
	t.want(h, wc{2, verbs.StatusRemAccessErr})
}

// testErrors: what breaks a queue pair, with which status, and that the rest comes back flushed.
func testErrors(r *rig) {
	for _, c := range []struct {
		name   string
		status verbs.WCStatus
		wr     func(h, t *end) *verbs.SendWR // of the target
		host   verbs.WCStatus                // of the host's receive, if it is concerned
	}{
		{"key unknown", verbs.StatusRemAccessErr, func(h, t *end) *verbs.SendWR {
			wr := t.remote(t.sendWR(1, verbs.OpRDMAWrite, 0, 8), h, 0)
			wr.RKey ^= 0x5a00
			return wr
		}, 0},
		{"write out of bounds", verbs.StatusRemAccessErr, func(h, t *end) *verbs.SendWR {
			return t.remote(t.sendWR(1, verbs.OpRDMAWrite, 0, 9), h, dataSize-8)
		}, 0},
		{"read out of bounds", verbs.StatusRemAccessErr, func(h, t *end) *verbs.SendWR {
			return t.remote(t.sendWR(1, verbs.OpRDMARead, 0, 9), h, dataSize-8)
		}, 0},
		{"own key unknown", verbs.StatusLocProtErr, func(h, t *end) *verbs.SendWR {
			wr := t.remote(t.sendWR(1, verbs.OpRDMAWrite, 0, 512), h, 0)
			t.sge[1].LKey ^= 0x5a00
			return wr
		}, 0},
		{"longer than the receive", verbs.StatusRemInvReqErr, func(h, t *end) *verbs.SendWR {
			return t.sendWR(1, verbs.OpSend, 0, 65)
		}, verbs.StatusLocLenErr},
	} {
		r.Logf("%s", c.name)
		h, t := r.pair(options{}, options{})
		h.post(nil, h.recvWR(0, 0, 64))
		wr := c.wr(h, t)
		wr.Next = address(t.sendWR(2, verbs.OpSend, 0, 8))
		t.post(wr, nil)
		t.want(h, wc{1, c.status}, wc{2, verbs.StatusWRFlushErr})
		if c.host != 0 {
			h.want(t, wc{100, c.host})
		}
		if st := must[verbs.QPState](r)(t.qp.State()); st != verbs.QPError {
			r.Errorf("%s: the queue pair is in state %v", c.name, st)
		}
	}
}

// testFlush moves a queue pair to the error state: all that was posted comes back, and all that is posted afterwards.
func testFlush(r *rig) {
	h, t := r.pair(options{}, options{})
	for i := range 3 {
		t.recvWR(i, 0, 64)
		if i > 0 {
			t.recv[i-1].Next = address(&t.recv[i])
		}
	}
	t.post(nil, &t.recv[0])
	t.nothing(h)
	r.check(t.qp.ToError(), t.qp.ToError())
	if st := must[verbs.QPState](r)(t.qp.State()); st != verbs.QPError {
		r.Errorf("state %v", st)
	}
	flushed := verbs.StatusWRFlushErr
	t.want(h, wc{100, flushed}, wc{101, flushed}, wc{102, flushed})
	silent := t.sendWR(0, verbs.OpSend, 0, 8)
	silent.Flags = 0 // errors complete whatever the flags
	t.post(silent, nil)
	t.want(h, wc{0, flushed})
	t.post(nil, t.recvWR(0, 0, 64))
	t.want(h, wc{100, flushed})
	t.nothing(h)
}
