package rdma

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"rocet/cgo/verbs"
	"rocet/cgo/verbs/fake"
	"rocet/nvme"
)

// fakeWorld is a world on a fake fabric, which must be empty at the end.
func fakeWorld(t testing.TB, fc fake.Config, c worldConfig) (*world, *fake.Fabric) {
	t.Helper()
	f := fake.New(fc)
	c.provider = f
	if c.rdma.RetryInterval == 0 {
		c.rdma.RetryInterval = 5 * time.Millisecond
	}
	if c.rdma.DrainTimeout == 0 {
		c.rdma.DrainTimeout = 300 * time.Millisecond
	}
	// Runs after the world's own end.
	t.Cleanup(func() {
		for _, l := range f.Leaks() {
			t.Errorf("left over on the fabric: %s", l)
		}
		f.Close()
	})
	return newWorld(t, c), f
}

func TestRejects(t *testing.T) {
	w, _ := fakeWorld(t, fake.Config{}, worldConfig{})
	h := w.host("a")
	for _, tt := range []struct {
		ask  queueAsk
		want nvme.RDMACMStatus
	}{
		{queueAsk{private: []byte{0, 0, 0}}, 0}, // padded by the CM to something that is long enough
		{queueAsk{private: request(3, 0, 32, 31, 0, 32)}, nvme.RDMACMInvalidRECFMT},
		{queueAsk{private: request(0, 0xffff, 32, 31, 0, 32)}, nvme.RDMACMInvalidQID},
		{queueAsk{private: request(0, 1, 32, 0, 0, 32)}, nvme.RDMACMInvalidHSQSIZE},
		{queueAsk{private: request(0, 1, 32, 1000, 0, 32)}, nvme.RDMACMInvalidHSQSIZE},
		{queueAsk{private: request(0, 1, 0, 31, 0, 32)}, nvme.RDMACMInvalidHRQSIZE},
		{queueAsk{readDepth: -1}, nvme.RDMACMInvalidIRD},
		{queueAsk{private: request(0, 1, 32, 31, 0xfff5, 32)}, nvme.RDMACMInvalidCNTLID},
	} {
		_, err := h.dial(w.addr, tt.ask)
		var r *rejectedError
		if !errors.As(err, &r) {
			t.Errorf("%+v: got %v, want a reject", tt.ask, err)
			continue
		}
		if tt.want != 0 && r.status() != tt.want {
			t.Errorf("%+v: status %v, want %v", tt.ask, r.status(), tt.want)
		}
		if tt.want != 0 && w.tr.Stats().Rejects[tt.want] == 0 {
			t.Errorf("rejects with status %v are not counted", tt.want)
		}
	}
	w.settled()
}

// TestAccept sees what the target answers: crqsize, READ depths, RNR retries.
func TestAccept(t *testing.T) {
	w, _ := fakeWorld(t, fake.Config{Devices: []fake.DeviceConfig{{
		Name: "fake0", Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
		Tune: func(a *verbs.DeviceAttr) { a.MaxQPInitRdAtom = 7 },
	}}}, worldConfig{})
	q, err := w.host("a").dial(w.addr, queueAsk{depth: 48, readDepth: 16})
	if err != nil {
		t.Fatal(err)
	}
	if q.crqsize != 48 {
		t.Errorf("crqsize %d, want 48", q.crqsize)
	}
	if st := fake.Of(q.qp).Peer().Stats(); st.ReadDepth != 7 || st.Recvs != 48 {
		t.Errorf("READ depth %d, want 7; %d receives posted, want 48", st.ReadDepth, st.Recvs)
	}
	if a := q.answer; a.RNRRetryCount != 7 || a.InitiatorDepth != 0 || a.ResponderResources != 7 {
		t.Errorf("the accept says RNR retries %d, READs that the target serves %d and sends %d", a.RNRRetryCount, a.InitiatorDepth, a.ResponderResources)
	}
}

// TestConversation moves data over the fake, with receives of its own and shared.
func TestConversation(t *testing.T) {
	for _, tt := range []struct {
		name string
		fc   fake.DeviceConfig
		c    worldConfig
	}{
		{name: "plain"},
		{name: "lent", c: worldConfig{lends: true}},
		{name: "lent in pieces", c: worldConfig{lends: true, parts: 16}},
		{name: "blocks of 4096", c: worldConfig{block: 4096, lends: true}},
		{name: "shared receives", c: worldConfig{rdma: Config{SRQ: SRQOn}}},
		{name: "few segments per work request", fc: fake.DeviceConfig{Tune: func(a *verbs.DeviceAttr) { a.MaxSGE, a.MaxSGERd = 3, 2 }}, c: worldConfig{lends: true, parts: 16}},
		{name: "one segment per work request", fc: fake.DeviceConfig{Tune: func(a *verbs.DeviceAttr) { a.MaxSGE, a.MaxSGERd, a.MaxQPInitRdAtom = 2, 1, 2 }}},
		{name: "inline responses", fc: fake.DeviceConfig{MaxInline: 64}},
		{name: "IPv6", c: worldConfig{addr: "::1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fc := tt.fc
			fc.Name = "fake0"
			fc.Addrs = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}
			w, _ := fakeWorld(t, fake.Config{Devices: []fake.DeviceConfig{fc}}, tt.c)
			c, q := w.connected("a", queueAsk{depth: 64})
			identify(t, c)
			verifyMuch(t, w, q, 200)
			st := w.lanes()
			if st.Errors != 0 || st.Stale != 0 || st.Abandoned != 0 {
				t.Errorf("counters: %+v", st)
			}
			if tt.c.rdma.SRQ == SRQOn {
				found := false
				for _, l := range w.tr.Stats().Lanes {
					found = found || l.SharedReceives && l.Queues == 1
				}
				if !found {
					t.Error("the I/O queue has receives of its own")
				}
			}
			if st := fake.Of(q.qp).Peer().Stats(); st.MaxReads > st.ReadDepth || st.ReadStalls != 0 {
				t.Errorf("%d READs were outstanding, the depth is %d; %d stalls", st.MaxReads, st.ReadDepth, st.ReadStalls)
			}
		})
	}
}

// TestWildcard listens on every address.
func TestWildcard(t *testing.T) {
	w, _ := fakeWorld(t, fake.Config{}, worldConfig{noListen: true})
	if _, err := w.tr.Listen("", 4421); err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{"127.0.0.1", "::1"} {
		if _, err := w.host(a).dial(netip.AddrPortFrom(netip.MustParseAddr(a), 4421), queueAsk{}); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
}

func TestListenErrors(t *testing.T) {
	w, _ := fakeWorld(t, fake.Config{}, worldConfig{})
	for _, a := range []string{"host.example", "1.2.3", "::g"} {
		if _, err := w.tr.Listen(a, 4420); err == nil {
			t.Errorf("listening on %q works", a)
		}
	}
	if _, err := w.tr.Listen("127.0.0.1", 0); err == nil {
		t.Error("listening on port 0 works")
	}
	if _, err := w.tr.Listen("127.0.0.1", 4420); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second listener on the port: %v", err)
	}
}

// TestBindRetry listens on an address that comes up later.
func TestBindRetry(t *testing.T) {
	w, f := fakeWorld(t, fake.Config{}, worldConfig{noListen: true})
	late := netip.MustParseAddr("10.9.0.1")
	l, err := w.tr.Listen(late.String(), 4420)
	if err != nil {
		t.Fatal(err)
	}
	if l.Err() == nil {
		t.Fatal("bound an address that isn't there")
	}
	f.AddAddr("fake0", late)
	w.eventually("the listener binds", l.Err)
	if _, err := w.host("a").dial(netip.AddrPortFrom(late, 4420), queueAsk{}); err != nil {
		t.Error(err)
	}
}

// TestAddrChange moves a listener's address away and back.
func TestAddrChange(t *testing.T) {
	w, f := fakeWorld(t, fake.Config{}, worldConfig{})
	_, q := w.connected("a", queueAsk{})
	addr := w.addr.Addr()
	f.RemoveAddr("fake0", addr)
	w.eventually("the connection on the address ends", func() error { return q.ended() })
	w.eventually("the listener loses its address", func() error {
		if w.listener.Err() == nil {
			return errors.New("still bound")
		}
		return nil
	})
	f.AddAddr("fake0", addr)
	w.eventually("the listener is back", w.listener.Err)
	w.hosts[0].close()
	w.hosts = nil
	_, q = w.connected("b", queueAsk{})
	verifyIO(t, w, q)
}

// TestEarlyCapsule sends the Connect command before the target knows that the
// connection is established.
func TestEarlyCapsule(t *testing.T) {
	w, f := fakeWorld(t, fake.Config{}, worldConfig{})
	f.Filter(holdPassive(verbs.EventEstablished, fake.Hold))
	q, err := w.host("a").dial(w.addr, queueAsk{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		time.Sleep(30 * time.Millisecond)
		f.Filter(nil)
		if f.ReleaseHeld() == 0 {
			done <- errors.New("nothing was held")
		}
		done <- nil
	}()
	began := time.Now()
	r, err := q.connect(testNQN, 0, nvme.CNTLIDDynamic, true)
	if err != nil || !r.cqe.Status().IsOK() {
		t.Fatalf("connect: %v, %v", err, r.cqe.Status())
	}
	if d := time.Since(began); d < 25*time.Millisecond {
		t.Errorf("the command was answered after %v, before the connection was established", d)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestNeverEstablished bounds how long a half-open connection lives.
func TestNeverEstablished(t *testing.T) {
	w, f := fakeWorld(t, fake.Config{}, worldConfig{rdma: Config{ConnectTimeout: 50 * time.Millisecond}})
	f.Filter(holdPassive(verbs.EventEstablished, fake.Drop))
	if _, err := w.host("a").dial(w.addr, queueAsk{}); err != nil {
		t.Fatal(err)
	}
	w.settled()
}

// TestHalfOpenBound refuses connections beyond those that may be half-open.
func TestHalfOpenBound(t *testing.T) {
	w, _ := fakeWorld(t, fake.Config{}, worldConfig{rdma: Config{MaxHalfOpen: 3}})
	h := w.host("a")
	for range 3 {
		if _, err := h.dial(w.addr, queueAsk{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := h.dial(w.addr, queueAsk{})
	var r *rejectedError
	if !errors.As(err, &r) || r.status() != nvme.RDMACMNoResources {
		t.Errorf("the fourth: %v", err)
	}
	// A command makes room.
	if _, err := h.queues[0].connect(testNQN, 0, nvme.CNTLIDDynamic, true); err != nil {
		t.Fatal(err)
	}
	w.eventually("the first one is no longer half-open", func() error {
		_, err := h.dial(w.addr, queueAsk{})
		return err
	})
}

// TestSetUpFailures lets every step of a connection's set-up fail.
func TestSetUpFailures(t *testing.T) {
	for _, tt := range []struct {
		call string
		n    int // failures: QP creation is tried with and without inline data
	}{
		{"rdma_create_qp", 2}, {"ibv_create_cq", 1}, {"ibv_post_recv", 1}, {"rdma_accept", 1}, {"ibv_create_srq", 1},
	} {
		t.Run(tt.call, func(t *testing.T) {
			c := worldConfig{}
			if tt.call == "ibv_create_srq" {
				c.rdma.SRQ = SRQOn
			}
			w, f := fakeWorld(t, fake.Config{}, c)
			h := w.host("a")
			// The host makes its own queues first.
			skip := 0
			switch tt.call {
			case "rdma_create_qp", "ibv_create_cq":
				skip = 1
			case "ibv_post_recv":
				skip = 32
			}
			if tt.call == "ibv_create_srq" { // then the queue gets receives of its own
				f.Fail(tt.call, syscall.ENOMEM, 0, -1)
				_, q := w.connected("b", queueAsk{})
				verifyIO(t, w, q)
				return
			}
			f.Fail(tt.call, syscall.ENOMEM, skip, tt.n)
			_, err := h.dial(w.addr, queueAsk{})
			var r *rejectedError
			if !errors.As(err, &r) || r.status() != nvme.RDMACMNoResources {
				t.Errorf("got %v", err)
			}
			w.settled()
			f.Fail(tt.call, 0, 0, 0)
			if _, err := h.dial(w.addr, queueAsk{}); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// TestMemLock runs out of registered memory for capsules.
func TestMemLock(t *testing.T) {
	w, f := fakeWorld(t, fake.Config{}, worldConfig{})
	f.Fail("ibv_reg_mr", syscall.ENOMEM, 1, 1) // the host's own goes well
	h := w.host("a")
	_, err := h.dial(w.addr, queueAsk{})
	var r *rejectedError
	if !errors.As(err, &r) || r.status() != nvme.RDMACMNoResources {
		t.Errorf("got %v", err)
	}
	w.settled()
	if _, err := h.dial(w.addr, queueAsk{}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// holdPassive is a filter for one rdma_cm event of the target's connections.
func holdPassive(t verbs.EventType, v fake.Verdict) func(fake.Happening) fake.Verdict {
	return func(h fake.Happening) fake.Verdict {
		if h.CM && h.Event == t && h.ID.Passive() {
			return v
		}
		return fake.Deliver
	}
}
