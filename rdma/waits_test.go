package rdma

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"rocet/cgo/verbs"
	"rocet/cgo/verbs/fake"
	"rocet/nvme"
)

// TestReadDepth never has more READs outstanding than both sides allow, whatever
// the commands.
func TestReadDepth(t *testing.T) {
	for _, depth := range []int{1, 3, 16} {
		for _, sge := range []int{1, 16} {
			t.Run(fmt.Sprintf("depth %d, %d segments", depth, sge), func(t *testing.T) {
				w, _ := fakeWorld(t, fake.Config{Devices: []fake.DeviceConfig{{
					Name: "fake0", Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
					Tune: func(a *verbs.DeviceAttr) { a.MaxSGE, a.MaxSGERd = max(2, sge), sge },
				}}}, worldConfig{bytes: 16 << 20})
				_, q := w.connected("a", queueAsk{depth: 64, readDepth: depth, dataSize: 64 * 16384})
				qp := targetQP(q)
				stop := make(chan struct{})
				done := make(chan struct{})
				go func() { // READs take their time
					defer close(done)
					for {
						select {
						case <-stop:
							qp.Hold(0)
							return
						default:
							qp.Hold(fake.Sends)
							time.Sleep(200 * time.Microsecond)
							qp.Release(fake.Sends, -1)
						}
					}
				}()
				err := load(q, 0, 512, 32, 150)
				close(stop)
				<-done
				if err != nil {
					t.Fatal(err)
				}
				st := qp.Stats()
				if st.MaxReads > depth || st.ReadDepth != depth || st.ReadStalls != 0 {
					t.Errorf("%d READs were outstanding, the depth is %d (%d); the device stalled %d times", st.MaxReads, depth, st.ReadDepth, st.ReadStalls)
				}
				if l := w.lanes(); l.ReadWaits == 0 && depth < 16 {
					t.Error("no command waited")
				}
			})
		}
	}
}

// TestSelectiveSignalling counts what the device is asked to tell.
func TestSelectiveSignalling(t *testing.T) {
	w, _ := fakeWorld(t, fake.Config{}, worldConfig{lends: true})
	_, q := w.connected("a", queueAsk{depth: 32})
	w.backend.hold.Store(true)
	before := targetQP(q).Stats()
	for i := range 30 {
		q.must(q.send(q.rw(nvme.OpRead, uint64(i), 8, 0, 4096), nil))
	}
	w.reaches(slotExecuting, 30)
	posts := w.lanes().Posts
	w.backend.release() // all of them in one turn
	for range 30 {
		if _, err := q.reply(); err != nil {
			t.Fatal(err)
		}
	}
	st := targetQP(q).Stats()
	if n := st.Sends - before.Sends; n != 60 {
		t.Errorf("%d send requests were posted, want 30 WRITEs and 30 SENDs", n)
	}
	if n := st.Signaled - before.Signaled; n != 1 {
		t.Errorf("%d of them were signalled, want 1", n)
	}
	if n := w.lanes().Posts - posts; n != 1 {
		t.Errorf("%d crossings posted them, want 1", n)
	}
}

// TestAllocations holds the whole way of a command free of allocations.
func TestAllocations(t *testing.T) {
	checkAllocs(t, func(t testing.TB) verbs.Provider { return fake.New(fake.Config{}) })
}

// BenchmarkWay measures it, the fake NIC and the host included.
func BenchmarkWay(b *testing.B) {
	benchWay(b, func(testing.TB) verbs.Provider { return fake.New(fake.Config{}) })
}

// FuzzCapsule throws arbitrary capsules at a live I/O queue, and then uses it.
func FuzzCapsule(f *testing.F) {
	for _, c := range []*nvme.Command{rwCommand(nvme.OpRead, 0, 8), rwCommand(nvme.OpWrite, 3, 1), rwCommand(nvme.OpFlush, 0, 1)} {
		c.SetPSDT(nvme.PSDTSGL)
		inCapsule(c, 0, 512)
		f.Add(c[:], make([]byte, 512))
		c.SGL().SetDataBlock(nvme.SGLLastSegment, nvme.SGLOffset, 0, 32)
		k := keyed(nvme.SGLInvalidate, 0x1000, 256, 7)
		f.Add(c[:], list(k, k))
	}
	// One world for all inputs: it must survive every one of them.
	w, _ := fakeWorld(f, fake.Config{}, worldConfig{})
	f.Cleanup(func() {
		w.t = f
		for _, h := range w.hosts {
			h.t = f
		}
	})
	var q *hostQueue
	f.Fuzz(func(t *testing.T, cmd, data []byte) {
		w.t = t
		for _, h := range w.hosts {
			h.t = t
		}
		capsule := append(cmd[:min(len(cmd), 64)], data...)
		if len(capsule) == 0 {
			return
		}
		if q == nil {
			_, q = w.connected("fuzz", queueAsk{depth: 32, dataSize: 1 << 16})
		}
		if err := q.sendRaw(capsule[:min(len(capsule), 64+4096)]); err != nil {
			t.Fatal(err)
		}
		// A response, or the end of the connection: a key of the fuzzer's is wrong.
		_, err := q.reply()
		if err == nil {
			return
		}
		if q.ended() != nil {
			t.Fatalf("neither a response nor an end: %v, % x", err, capsule)
		}
		for _, h := range w.hosts {
			h.close()
		}
		w.hosts, q = nil, nil
		w.settled()
	})
}
