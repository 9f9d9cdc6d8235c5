package host

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"rocet/cgo/verbs"
	"rocet/nvme"
)

// converse moves data of all sizes over several queues, and looks at what admin commands say.
func converse(t *testing.T, o Options, commands int) {
	t.Helper()
	ctx := context.Background()
	c := dialPeer(t, o)
	if got := string(c.Info().SUBNQN.String()); got != o.NQN {
		t.Errorf("SUBNQN %q", got)
	}
	ns, err := c.Namespace(ctx, 1)
	if err != nil || ns.Bytes() != worldBytes || ns.BlockSize != worldBlock {
		t.Fatalf("namespace %+v, %v", ns, err)
	}
	if ids, err := c.Namespaces(ctx); err != nil || len(ids) != 2 {
		t.Errorf("namespaces %v, %v", ids, err)
	}
	if ids, err := c.NamespaceIDs(ctx, 1); err != nil || ids.NGUID.IsZero() {
		t.Errorf("identifiers %+v, %v", ids, err)
	}
	if _, err := c.Namespace(ctx, 9); err == nil || !strings.Contains(err.Error(), "[1 2]") {
		t.Errorf("namespace 9: %v", err)
	}
	type load struct{ depth, max int }
	loads := []load{{1, 1 << 20}, {16, 4096}, {4, 64 << 10}, {2, 1 << 20}}
	var wg sync.WaitGroup
	for i, l := range loads {
		q := openQueue(t, c, l.depth)
		m := newMover(t, c, q, worldBlock, l.max, uint64(i)*(worldBytes/4/worldBlock), worldBytes/4)
		wg.Go(func() {
			if err := m.run(commands); err != nil {
				t.Errorf("queue of %d commands of up to %d bytes: %v", l.depth, l.max, err)
			}
		})
	}
	wg.Wait()
}

func TestRDMAConversation(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		t.Run(addr, func(t *testing.T) {
			f := fakeFabric(t)
			converse(t, newWorld(t, 2).listenRDMA(f, addr), 80)
		})
	}
}

func TestRDMANoCapsules(t *testing.T) {
	f := fakeFabric(t)
	o := newWorld(t, 1).listenRDMA(f, "127.0.0.1")
	o.NoInCapsule = true
	converse(t, o, 40)
}

func TestNativeConversation(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		t.Run(addr, func(t *testing.T) {
			p := nativeProvider(t)
			converse(t, newWorld(t, 2).listenRDMA(p, addr), 600)
		})
	}
}

func TestRDMADiscovery(t *testing.T) {
	f := fakeFabric(t)
	o := newWorld(t, 1).listenRDMA(f, "127.0.0.1")
	o.NQN = ""
	c := dialPeer(t, o)
	d, err := c.Discover(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, e := range d.Entries {
		found = found || e.SUBNQN.String() == worldNQN && e.TRTYPE == nvme.TransportRDMA
	}
	if !found {
		t.Errorf("%s is not in %+v", worldNQN, d)
	}
	if _, err := c.NewQueue(context.Background(), 1); err == nil {
		t.Error("a discovery controller has an I/O queue")
	}
}

func TestRDMARefusals(t *testing.T) {
	f := fakeFabric(t)
	o := newWorld(t, 1).listenRDMA(f, "127.0.0.1")
	bad := o
	bad.Port = 4999
	_, err := Dial(context.Background(), bad)
	var re *RejectError
	if !errors.As(err, &re) || re.Reason != verbs.RejectInvalidServiceID || !strings.Contains(err.Error(), "is the target up") {
		t.Errorf("nobody listens: %v", err)
	}
	bad = o
	bad.NQN = "nqn.2026-01.io.rocet:other"
	_, err = Dial(context.Background(), bad)
	var ce *ConnectError
	if !errors.As(err, &ce) || !strings.Contains(err.Error(), "SUBNQN") {
		t.Errorf("an unknown subsystem: %v", err)
	}
	bad = o
	bad.AdminDepth = 1000
	_, err = Dial(context.Background(), bad)
	if !errors.As(err, &re) && !errors.As(err, &ce) || !strings.Contains(err.Error(), "lower the queue depth") {
		t.Errorf("a queue that is too deep: %v", err)
	}
	bad = o
	bad.Address = "127.0.0.9"
	if _, err = Dial(context.Background(), bad); err == nil {
		t.Error("an address without a device is connected")
	}
	bad = o
	bad.HeaderDigest = true
	if _, err = Dial(context.Background(), bad); err == nil {
		t.Error("digests over RDMA")
	}
}

// TestRDMATargetGoes ends the device in the middle.
func TestRDMATargetGoes(t *testing.T) {
	f := fakeFabric(t)
	w := newWorld(t, 1)
	o := w.listenRDMA(f, "127.0.0.1")
	c, err := Dial(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	q := openQueue(t, c, 8)
	m, err := c.NewMemory(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	defer c.Close()
	defer q.Close()
	var io IO
	io.SetRW(nvme.OpRead, 1, 0, 8)
	io.SetData(m, 0, 4096)
	if err := q.execute(context.Background(), &io); err != nil || !io.Status.IsOK() {
		t.Fatal(err, io.Status)
	}
	f.SetPort("fake0", false)
	for i := 0; ; i++ {
		if err := q.execute(context.Background(), &io); err != nil {
			t.Log(err)
			break
		}
		if i > 10 {
			t.Fatal("commands end well on a port that is down")
		}
	}
	f.SetPort("fake0", true)
}
