package verbstest

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"rocet/cgo/verbs"
	"rocet/cgo/verbs/fake"
)

var loopback = netip.MustParseAddr("127.0.0.1")

func newFake(t testing.TB) Subject {
	f := fake.New(fake.Config{Devices: []fake.DeviceConfig{{Name: "fake0", Addrs: []netip.Addr{loopback}, MaxInline: 256}}})
	t.Cleanup(func() {
		for _, l := range f.Leaks() {
			t.Error("left over: ", l)
		}
		f.Close()
	})
	return Subject{Provider: f, Addr: loopback}
}

// openNative opens the real libraries, which must be shmverbs': no other is known to have 127.0.0.1.
func openNative(t testing.TB) Subject {
	t.Helper()
	if os.Getenv("SHMVERBS") == "" {
		t.Skip("left out: SHMVERBS does not name a build of shmverbs (libibverbs and librdmacm over shared memory)")
	}
	return Subject{Provider: must[verbs.Provider](t)(verbs.Open()), Addr: loopback}
}

func TestFakeConforms(t *testing.T)   { Run(t, newFake) }
func TestNativeConforms(t *testing.T) { Run(t, openNative) }

// TestNativeAllocations: the hot calls leave no garbage.
func TestNativeAllocations(t *testing.T) {
	r := &rig{TB: t, Subject: openNative(t)}
	h, tt := r.pair(options{}, options{})
	ops := []verbs.PostOp{{QP: tt.qp.Handle()}}
	wcs := make([]verbs.WC, 32)
	if n := testing.AllocsPerRun(100, func() {
		tt.remote(tt.sendWR(0, verbs.OpRDMAWrite, 0, 64), h, 0)
		ops[0].Send = address(&tt.send[0])
		r.Provider.Post(ops)
		for tt.cq.Poll(wcs, 0) == 0 {
			h.cq.Poll(wcs, 0)
		}
	}); n != 0 {
		t.Errorf("%v allocations for a post and a poll", n)
	}
}

// BenchmarkNativeCrossing is what the hot calls cost: an empty poll, an empty post, and chains of writes with their
// completions, whose data the fabric moves in the polls of the other end.
func BenchmarkNativeCrossing(b *testing.B) {
	r := &rig{TB: b, Subject: openNative(b)}
	h, t := r.pair(options{depth: 32}, options{depth: 32})
	wcs := make([]verbs.WC, 32)
	b.Run("poll nothing", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			t.cq.Poll(wcs, 0)
		}
	})
	b.Run("post nothing", func(b *testing.B) {
		b.ReportAllocs()
		ops := []verbs.PostOp{{QP: t.qp.Handle()}}
		for b.Loop() {
			r.Provider.Post(ops)
		}
	})
	for _, n := range []int{1, 8, 32} {
		for i := range n {
			t.remote(t.sendWR(i, verbs.OpRDMAWrite, 0, 64), h, 0).Flags = 0
			if i > 0 {
				t.send[i-1].Next = address(&t.send[i])
			}
		}
		t.send[n-1].Flags = verbs.SendSignaled
		ops := []verbs.PostOp{{QP: t.qp.Handle(), Send: address(&t.send[0])}}
		b.Run(fmt.Sprintf("write %d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r.Provider.Post(ops) != 0 {
					b.Fatalf("%+v", ops[0])
				}
				for t.cq.Poll(wcs, 0) == 0 {
					h.cq.Poll(wcs, 0)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/wr")
		})
	}
}
