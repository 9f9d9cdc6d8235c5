package rdma

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"rocet/cgo/verbs"
	"rocet/cgo/verbs/fake"
	"rocet/nvme"
)

// targetQP is the target's end of a host's queue pair.
func targetQP(q *hostQueue) *fake.QP { return fake.Of(q.qp).Peer() }

// stuckIn are the ways to get a command stuck in each state.
var stuckIn = []struct {
	name string
	set  func(w *world, q *hostQueue)
}{
	{"waiting for buffers", func(w *world, q *hostQueue) {
		w.backend.hold.Store(true)
		for i := range 3 {
			q.must(q.send(q.rw(nvme.OpRead, uint64(i), 2048, 0, 1<<20), nil))
		}
		w.reaches(slotWaitBuffers, 2)
	}},
	{"waiting to read", func(w *world, q *hostQueue) {
		targetQP(q).Hold(fake.Sends)
		for i := range 3 {
			q.must(q.send(q.rw(nvme.OpWrite, uint64(i), 16, 0, 8192), nil))
		}
		w.reaches(slotWaitRead, 2)
	}},
	{"reading", func(w *world, q *hostQueue) {
		targetQP(q).Hold(fake.Sends)
		q.must(q.send(q.rw(nvme.OpWrite, 0, 16, 0, 8192), nil))
		w.reaches(slotReading, 1)
	}},
	{"executing", func(w *world, q *hostQueue) {
		w.backend.hold.Store(true)
		q.must(q.send(q.rw(nvme.OpWrite, 0, 16, 0, 8192), nil))
		cmd := rwCommand(nvme.OpWrite, 64, 8)
		inCapsule(cmd, 0, 4096)
		q.must(q.send(cmd, q.data.b[:4096]))
		w.reaches(slotExecuting, 2)
	}},
	{"waiting to send", func(w *world, q *hostQueue) {
		targetQP(q).Hold(fake.Sends)
		for i := range 6 {
			cmd := rwCommand(nvme.OpRead, uint64(i), 2)
			d := keyed(nvme.SGLAddress, uint64(q.data.addr), 512, q.mr.RKey())
			cmd.SGL().SetDataBlock(nvme.SGLLastSegment, nvme.SGLOffset, 0, 32)
			q.must(q.send(cmd, list(d, d)))
		}
		w.reaches(slotWaitSend, 2)
	}},
	{"responding", func(w *world, q *hostQueue) {
		targetQP(q).Hold(fake.Sends)
		q.must(q.send(q.rw(nvme.OpRead, 0, 16, 0, 8192), nil))
		w.reaches(slotResponding, 1)
	}},
	{"nowhere", func(w *world, q *hostQueue) {}},
}

// ends are the ways in which a connection ends.
var ends = []struct {
	name string
	end  func(w *world, f *fake.Fabric, c *controller, q *hostQueue)
}{
	{"the host leaves", func(w *world, f *fake.Fabric, c *controller, q *hostQueue) { q.h.close(); w.hosts = nil }},
	{"the host's queue pair fails", func(w *world, f *fake.Fabric, c *controller, q *hostQueue) {
		fake.Of(q.qp).Break()
		q.h.close()
		w.hosts = nil
	}},
	{"the target's queue pair fails", func(w *world, f *fake.Fabric, c *controller, q *hostQueue) {
		targetQP(q).Break()
		targetQP(c.hostQueue).Break()
	}},
	{"the device goes", func(w *world, f *fake.Fabric, c *controller, q *hostQueue) { f.RemoveDevice("fake0") }},
	{"the listener closes", func(w *world, f *fake.Fabric, c *controller, q *hostQueue) { w.listener.Close() }},
	{"the administrator", func(w *world, f *fake.Fabric, c *controller, q *hostQueue) {
		w.target.Subsystem(testNQN).Disconnect(q.h.nqn)
	}},
	{"the completion queue fails", func(w *world, f *fake.Fabric, c *controller, q *hostQueue) {
		d := w.device()
		d.mu.Lock()
		lanes := slices.Concat(slices.Collect(maps.Values(d.lanes))...)
		d.mu.Unlock()
		for _, l := range lanes {
			f.InjectAsync(d.v, verbs.AsyncEvent{Type: verbs.AsyncCQErr, CQ: l.cq})
		}
	}},
}

// TestEndInEveryState ends connections with commands in every state, in every way:
// everything must come back.
func TestEndInEveryState(t *testing.T) {
	for _, srq := range []SRQPolicy{SRQOff, SRQOn} {
		for _, s := range stuckIn {
			for _, e := range ends {
				t.Run(fmt.Sprintf("srq %v/%s/%s", srq, s.name, e.name), func(t *testing.T) {
					w, f := fakeWorld(t, fake.Config{}, worldConfig{
						pool: 4 << 20,
						rdma: Config{SRQ: srq, DrainTimeout: 30 * time.Millisecond},
					})
					c, q := w.connected("a", queueAsk{readDepth: 1})
					s.set(w, q)
					e.end(w, f, c, q)
					if w.backend.count.Load() != 0 {
						time.Sleep(60 * time.Millisecond)
						// What the backend has is waited for, longer than anything else.
						if n, _ := w.slots(slotExecuting); n == 0 {
							t.Error("slots were freed under the backend")
						}
						w.backend.release()
					}
					w.settled()
				})
			}
		}
	}
}

// TestEndWhileParked ends a connection whose capsule waits for ESTABLISHED.
func TestEndWhileParked(t *testing.T) {
	w, f := fakeWorld(t, fake.Config{}, worldConfig{})
	f.Filter(holdPassive(verbs.EventEstablished, fake.Hold))
	h := w.host("a")
	q, err := h.dial(w.addr, queueAsk{})
	if err != nil {
		t.Fatal(err)
	}
	var cmd nvme.Command
	q.must(q.send(&cmd, nil))
	w.eventually("the capsule is parked", func() error {
		if _, n := w.slots(slotFree); n != 1 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	h.close()
	w.hosts = nil
	w.settled()
	f.ReleaseHeld()
}

// TestErrorCompletions lets each kind of work request fail once.
func TestErrorCompletions(t *testing.T) {
	read := func(q *hostQueue) { q.must(q.send(q.rw(nvme.OpRead, 0, 16, 0, 8192), nil)) }
	write := func(q *hostQueue) { q.must(q.send(q.rw(nvme.OpWrite, 0, 16, 0, 8192), nil)) }
	for _, tt := range []struct {
		name string
		nth  int
		st   verbs.WCStatus
		do   func(q *hostQueue)
	}{
		{"READ, access", 1, verbs.StatusRemAccessErr, write},
		{"READ, timeout", 1, verbs.StatusRetryExcErr, write},
		{"WRITE, access", 1, verbs.StatusRemAccessErr, read},
		{"WRITE, local", 1, verbs.StatusLocProtErr, read},
		{"SEND, RNR", 2, verbs.StatusRNRRetryExcErr, read},
		{"SEND, invalidate", 2, verbs.StatusRemInvReqErr, read},
		{"flush", 1, verbs.StatusWRFlushErr, read},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, _ := fakeWorld(t, fake.Config{}, worldConfig{})
			_, q := w.connected("a", queueAsk{})
			_, other := w.connected("b", queueAsk{})
			targetQP(q).FailSend(tt.nth, tt.st)
			tt.do(q)
			w.eventually("the connection ends", q.ended)
			st := w.lanes()
			if tt.st != verbs.StatusWRFlushErr && st.Errors != 1 {
				t.Errorf("%d errors are counted", st.Errors)
			}
			verifyIO(t, w, other)
		})
	}
	t.Run("receive", func(t *testing.T) {
		w, _ := fakeWorld(t, fake.Config{}, worldConfig{})
		_, q := w.connected("a", queueAsk{})
		targetQP(q).FailRecv(1, verbs.StatusLocLenErr)
		read(q)
		w.eventually("the connection ends", q.ended)
	})
}

// TestPostFails lets the library refuse a batch.
func TestPostFails(t *testing.T) {
	for _, call := range []string{"ibv_post_send", "ibv_post_recv", "ibv_post_srq_recv"} {
		t.Run(call, func(t *testing.T) {
			c := worldConfig{}
			if call == "ibv_post_srq_recv" {
				c.rdma.SRQ = SRQOn
			}
			w, f := fakeWorld(t, fake.Config{}, c)
			_, q := w.connected("a", queueAsk{})
			skip := 1 // the host's own
			if call != "ibv_post_send" {
				skip = 0
			}
			f.Fail(call, syscall.ENOMEM, skip, 1)
			q.must(q.send(q.rw(nvme.OpRead, 0, 16, 0, 8192), nil))
			w.eventually("the connection ends", q.ended)
			w.hosts[0].close()
			w.hosts = nil
			w.settled()
			_, q = w.connected("b", queueAsk{})
			verifyIO(t, w, q)
		})
	}
}

// TestSlowDrain holds completions back during the teardown, and lets them go
// before the deadline, or never.
func TestSlowDrain(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("late ", late), func(t *testing.T) {
			w, _ := fakeWorld(t, fake.Config{}, worldConfig{rdma: Config{DrainTimeout: 200 * time.Millisecond}})
			_, q := w.connected("a", queueAsk{})
			qp := targetQP(q)
			qp.Hold(fake.Sends | fake.Recvs)
			h := w.hosts[0]
			// A command whose completions are held before the end.
			qp.Hold(fake.Sends)
			q.must(q.send(q.rw(nvme.OpRead, 0, 16, 0, 8192), nil))
			w.reaches(slotResponding, 1)
			qp.Hold(fake.Sends | fake.Recvs)
			h.close()
			w.hosts = nil
			if !late {
				time.Sleep(30 * time.Millisecond)
				if n := len(w.tr.Stats().Lanes); n == 0 {
					t.Error("no lane is left")
				}
				w.tr.mu.Lock()
				n := len(w.tr.conns)
				w.tr.mu.Unlock()
				if n == 0 {
					t.Error("the connection was given up before its receives were back")
				}
				qp.Hold(0)
			}
			w.settled()
			st := w.lanes()
			if late && (st.Abandoned != 1 || st.LateDrains != 1) || !late && (st.Abandoned != 0 || st.LateDrains != 0) {
				t.Errorf("%d slots were abandoned, %d drains were late", st.Abandoned, st.LateDrains)
			}
		})
	}
}

// TestLostEvents drops the events that end a connection.
func TestLostEvents(t *testing.T) {
	for _, tt := range []struct {
		name   string
		filter func(fake.Happening) fake.Verdict
	}{
		{"disconnected", holdPassive(verbs.EventDisconnected, fake.Drop)},
		{"disconnected twice", holdPassive(verbs.EventDisconnected, fake.Twice)},
		{"timewait", holdPassive(verbs.EventTimewaitExit, fake.Drop)},
		{"last WQE", func(h fake.Happening) fake.Verdict {
			if h.Async && h.AsyncEvent.Type == verbs.AsyncQPLastWQEReached {
				return fake.Drop
			}
			return fake.Deliver
		}},
		{"established twice", holdPassive(verbs.EventEstablished, fake.Twice)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, f := fakeWorld(t, fake.Config{}, worldConfig{rdma: Config{SRQ: SRQOn, DrainTimeout: 50 * time.Millisecond}})
			f.Filter(tt.filter)
			_, q := w.connected("a", queueAsk{})
			verifyIO(t, w, q)
			w.hosts[0].close()
			w.hosts = nil
			w.settled()
		})
	}
}

// TestPowerLoss lets a host vanish while the target's queue pairs stay, and come
// back under the same name.
func TestPowerLoss(t *testing.T) {
	w, f := fakeWorld(t, fake.Config{Devices: []fake.DeviceConfig{
		{Name: "fake0", Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}},
		{Name: "host0", Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.2")}},
	}}, worldConfig{})
	old := w.host("a")
	old.from = netip.MustParseAddr("127.0.0.2")
	c, err := old.attach(w.addr, testNQN)
	if err != nil {
		t.Fatal(err)
	}
	q, err := c.ioQueue(queueAsk{qid: 1})
	if err != nil {
		t.Fatal(err)
	}
	w.backend.hold.Store(true)
	q.must(q.send(q.rw(nvme.OpRead, 0, 16, 0, 8192), nil))
	w.reaches(slotExecuting, 1)
	f.SetPort("host0", false)
	w.backend.release() // the response goes nowhere, and its retries end
	w.eventually("the queue that answered ends", func() error {
		w.tr.mu.Lock()
		defer w.tr.mu.Unlock()
		if n := len(w.tr.conns); n != 1 {
			return fmt.Errorf("%d connections are left", n)
		}
		return nil
	})
	// The admin queue has nothing to send and doesn't know. The host is back.
	f.SetPort("host0", true)
	again := w.host("a")
	again.from = old.from
	c2, err := again.attach(w.addr, testNQN)
	if err != nil {
		t.Fatal(err)
	}
	q2, err := c2.ioQueue(queueAsk{qid: 1})
	if err != nil {
		t.Fatal(err)
	}
	verifyIO(t, w, q2)
	// The connection manager finds out about the old connection at last.
	for _, x := range f.IDs() {
		if k, ok := x.Context().(*conn); ok && k.prop.admin() && k.id.RemoteAddr() == c.id.LocalAddr() {
			f.Inject(x, verbs.Event{Type: verbs.EventTimewaitExit})
		}
	}
	w.eventually("the old admin queue ends", func() error {
		w.tr.mu.Lock()
		defer w.tr.mu.Unlock()
		if n := len(w.tr.conns); n != 2 {
			return fmt.Errorf("%d connections are left", n)
		}
		return nil
	})
	verifyIO(t, w, q2)
}

// TestDeviceReturns takes the device away under load, and back.
func TestDeviceReturns(t *testing.T) {
	addr := netip.MustParseAddr("127.0.0.1")
	w, f := fakeWorld(t, fake.Config{Devices: []fake.DeviceConfig{{Name: "fake0", Addrs: []netip.Addr{addr}}}}, worldConfig{})
	for i := range 3 {
		_, q := w.connected("a", queueAsk{})
		verifyIO(t, w, q)
		q.must(q.send(q.rw(nvme.OpWrite, 0, 16, 0, 8192), nil))
		f.RemoveDevice("fake0")
		w.eventually("connections end", q.ended)
		w.hosts[0].close()
		w.hosts = nil
		w.settled()
		w.eventually("the listener loses its device", func() error {
			if w.listener.Err() == nil {
				return errors.New("still bound")
			}
			return nil
		})
		w.eventually("the device is taken apart", func() error {
			w.tr.mu.Lock()
			defer w.tr.mu.Unlock()
			if n := len(w.tr.devices); n != 0 {
				return fmt.Errorf("%d devices", n)
			}
			return nil
		})
		f.AddDevice(fake.DeviceConfig{Name: "fake0", Addrs: []netip.Addr{addr}})
		w.eventually(fmt.Sprintf("the listener is back, time %d", i+1), w.listener.Err)
	}
	_, q := w.connected("a", queueAsk{})
	verifyIO(t, w, q)
}

// TestRNR keeps the host's receives away: responses wait for them, and arrive.
func TestRNR(t *testing.T) {
	w, _ := fakeWorld(t, fake.Config{}, worldConfig{})
	_, q := w.connected("a", queueAsk{depth: 8})
	q.noRepost = true
	for i := range 8 { // as many as the host has receives
		q.must(q.send(q.rw(nvme.OpRead, uint64(i), 1, 0, 512), nil))
	}
	for range 8 {
		if _, err := q.reply(); err != nil {
			t.Fatal(err)
		}
	}
	q.must(q.send(q.rw(nvme.OpRead, 0, 1, 0, 512), nil))
	if _, err := q.replyWithin(20 * time.Millisecond); !errors.Is(err, errNoReply) {
		t.Fatalf("a response without a receive: %v", err)
	}
	if targetQP(q).Stats().RNRs == 0 {
		t.Error("no RNR was counted")
	}
	q.noRepost = false
	q.repost()
	if _, err := q.reply(); err != nil {
		t.Error(err)
	}
}

// TestOddCapsules sends capsules that no host sends.
func TestOddCapsules(t *testing.T) {
	w, _ := fakeWorld(t, fake.Config{}, worldConfig{})
	for _, n := range []int{1, 63} {
		h := w.host(fmt.Sprint("short", n))
		q, err := h.dial(w.addr, queueAsk{})
		if err != nil {
			t.Fatal(err)
		}
		if err := q.sendRaw(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		w.eventually(fmt.Sprintf("a capsule of %d bytes ends the connection", n), q.ended)
	}
	// Longer than what is offered: the device refuses.
	q, err := w.host("long").dial(w.addr, queueAsk{})
	if err != nil {
		t.Fatal(err)
	}
	if err := q.sendRaw(make([]byte, 64+4096+1)); err != nil {
		t.Fatal(err)
	}
	w.eventually("too long a capsule ends the connection", q.ended)
}

// TestTooManyCommands sends more than the queue's depth before it is established. A
// queue with receives of its own makes the host wait; one that shares them ends.
func TestTooManyCommands(t *testing.T) {
	for _, srq := range []SRQPolicy{SRQOff, SRQOn} {
		t.Run(fmt.Sprint("srq ", srq), func(t *testing.T) {
			w, f := fakeWorld(t, fake.Config{}, worldConfig{rdma: Config{SRQ: srq}})
			f.Filter(holdPassive(verbs.EventEstablished, fake.Hold))
			q, err := w.host("a").dial(w.addr, queueAsk{qid: 1, depth: 8})
			if err != nil {
				t.Fatal(err)
			}
			var cmd nvme.Command
			for range 12 {
				q.must(q.send(&cmd, nil))
			}
			if srq == SRQOn {
				w.eventually("the connection ends", q.ended)
				f.Filter(nil)
				return
			}
			w.eventually("8 capsules are parked", func() error {
				if _, n := w.slots(slotFree); n != 8 {
					return fmt.Errorf("%d are", n)
				}
				return nil
			})
			f.Filter(nil)
			f.ReleaseHeld()
			for i := range 12 {
				r, err := q.reply()
				if err != nil {
					t.Fatal(err)
				}
				if r.cqe.Status().Code() != nvme.StatusCommandSequenceError {
					t.Errorf("response %d: %v", i, r.cqe.Status())
				}
			}
		})
	}
}

// TestReceivesFirst keeps a queue full: the receive for the next command is always
// there before the response that lets the host send it.
func TestReceivesFirst(t *testing.T) {
	w, _ := fakeWorld(t, fake.Config{}, worldConfig{lends: true})
	_, q := w.connected("a", queueAsk{depth: 8})
	if err := load(q, 0, 512, 8, 2000); err != nil {
		t.Fatal(err)
	}
	if n := fake.Of(q.qp).Stats().RNRs; n != 0 {
		t.Errorf("the host found no receive %d times", n)
	}
}

func TestSGLErrors(t *testing.T) {
	w, _ := fakeWorld(t, fake.Config{}, worldConfig{})
	_, q := w.connected("a", queueAsk{})
	for _, tt := range []struct {
		name string
		sgl  nvme.SGLDescriptor
		want nvme.Status
	}{
		{"type", plain(nvme.SGLBitBucket, 0, 0, 512), nvme.StatusInvalidSGLType},
		{"length", keyed(nvme.SGLAddress, uint64(q.data.addr), 511, q.mr.RKey()), nvme.StatusSGLDataLength},
		{"offset", plain(nvme.SGLDataBlock, nvme.SGLOffset, 9999, 512), nvme.StatusSGLOffset},
		{"segment", plain(nvme.SGLLastSegment, nvme.SGLOffset, 0, 0), nvme.StatusInvalidSGLSegment},
		{"count", plain(nvme.SGLLastSegment, nvme.SGLOffset, 0, 17*16), nvme.StatusInvalidSGLCount},
	} {
		cmd := rwCommand(nvme.OpWrite, 0, 1)
		*cmd.SGL() = tt.sgl
		r, err := q.do(cmd, make([]byte, 512))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if r.cqe.Status().Code() != tt.want || !r.cqe.Status().DNR() {
			t.Errorf("%s: status %v, want %v with DNR", tt.name, r.cqe.Status(), tt.want)
		}
	}
	if st := w.lanes(); st.BadSGLs != 5 {
		t.Errorf("%d bad SGLs are counted", st.BadSGLs)
	}
	verifyIO(t, w, q) // the queue goes on
}

// TestInvalidate sees SEND_WITH_INV where the host asked for it, and only there.
func TestInvalidate(t *testing.T) {
	for _, can := range []bool{true, false} {
		t.Run(fmt.Sprint("device can ", can), func(t *testing.T) {
			w, _ := fakeWorld(t, fake.Config{InvalidateMR: true, Devices: []fake.DeviceConfig{{
				Name: "fake0", Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
				Tune: func(a *verbs.DeviceAttr) {
					if !can {
						a.Flags &^= verbs.DeviceMemMgtExtensions
					}
				},
			}}}, worldConfig{})
			_, q := w.connected("a", queueAsk{})
			do := func(inv bool) {
				t.Helper()
				mr, err := q.pd.RegMR(q.data.addr, 4096, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead)
				if err != nil {
					t.Fatal(err)
				}
				defer mr.Dereg()
				sub := nvme.SGLAddress
				if inv {
					sub = nvme.SGLInvalidate
				}
				cmd := rwCommand(nvme.OpRead, 0, 8)
				cmd.SGL().SetKeyed(sub, uint64(q.data.addr), 4096, mr.RKey())
				r, err := q.do(cmd, nil)
				if err != nil {
					t.Fatal(err)
				}
				if inv && can && r.inv != mr.RKey() || !(inv && can) && r.inv != 0 {
					t.Errorf("invalidate asked %v: key %#x came back, the key was %#x", inv, r.inv, mr.RKey())
				}
			}
			for range 3 { // the same slots again and again
				do(true)
				do(false)
			}
			before := targetQP(q).Stats().BytesWritten
			if r, err := q.do(q.rw(nvme.OpRead, 1<<40, 8, 0, 4096), nil); err != nil || r.cqe.Status().IsOK() {
				t.Errorf("a read past the end: %v, %v", err, r.cqe.Status())
			}
			if n := targetQP(q).Stats().BytesWritten - before; n != 0 {
				t.Errorf("%d bytes were written for a command that failed", n)
			}
		})
	}
}
