package rdma

import (
	"fmt"
	"testing"

	"rocet/cgo/verbs"
	"rocet/internal/invariants"
	"rocet/nvme"
	"rocet/reactor"
)

// way drives the whole way of commands by hand on the reactor's goroutine: the
// host's post, the lane's poll and flush, the host's poll. Nothing else runs
// meanwhile, so what it measures and counts is the way itself, the fake NIC's work
// and the host's few instructions included.
type way struct {
	w     *world
	q     *hostQueue
	lane  *lane
	batch int
	ns    int64 // in the lane's poll and flush
}

// wayKind is a command that the way is measured with.
type wayKind struct {
	name      string
	op        nvme.Opcode
	inCapsule bool
	lends     bool
	bytes     int
}

var wayKinds = []wayKind{
	{"read4k", nvme.OpRead, false, false, 4096},
	{"read4k-lent", nvme.OpRead, false, true, 4096},
	{"write4k-capsule", nvme.OpWrite, true, false, 4096},
	{"write4k-read", nvme.OpWrite, false, false, 4096},
	{"read128k", nvme.OpRead, false, false, 128 << 10},
}

func newWay(t testing.TB, p verbs.Provider, k wayKind, batch int) *way {
	t.Helper()
	w := newWorld(t, worldConfig{provider: p, null: !k.lends, lends: k.lends, pool: 64 << 20})
	_, q := w.connected("bench", queueAsk{depth: 64})
	y := &way{w: w, q: q, batch: batch}
	y.lane = w.device().lanes[w.tr.shards[0]][0]
	for i := range q.depth {
		cmd := rwCommand(k.op, 0, k.bytes/512)
		cmd.SetPSDT(nvme.PSDTSGL)
		cmd.SetCID(uint16(i))
		n := nvme.CommandSize
		if k.inCapsule {
			inCapsule(cmd, 0, k.bytes)
			n += k.bytes
		} else {
			q.key(cmd, 0, k.bytes)
		}
		copy(q.capsuleAt(i), cmd[:])
		q.sges[q.depth+i] = verbs.SGE{Addr: uint64(uintptr(q.base)) + uint64(i*q.capsule), Length: uint32(n), LKey: q.mr.LKey()}
	}
	return y
}

// turn sends a batch of commands and brings in all responses.
func (y *way) turn() error {
	q := y.q
	for i := range y.batch {
		wr := &q.wrs[(q.sent+i)%q.depth]
		wr.Next = 0
		if i > 0 {
			q.wrs[(q.sent+i-1)%q.depth].Next = sendAddr(wr)
		}
	}
	first := &q.wrs[q.sent%q.depth]
	q.sent += y.batch
	q.ops[0] = verbs.PostOp{QP: q.qp.Handle(), Send: sendAddr(first)}
	if q.h.provider.Post(q.ops) != 0 {
		return fmt.Errorf("post: errno %d", q.ops[0].Err)
	}
	for got, idle := 0, 0; got < y.batch; {
		began := reactor.Clock()
		y.lane.Poll()
		y.lane.Flush()
		y.ns += reactor.Clock() - began
		n := q.cq.Poll(q.wcs, 0)
		if n <= 0 {
			if idle++; idle > 10000 {
				return fmt.Errorf("%d of %d responses came", got, y.batch)
			}
			continue
		}
		var head, tail *verbs.RecvWR
		for i := range q.wcs[:n] {
			wc := &q.wcs[i]
			if wc.Status != verbs.StatusSuccess {
				return fmt.Errorf("completion with %v", wc.Status)
			}
			if wc.ID >= 1<<32 {
				continue
			}
			got++
			r := &q.rwrs[wc.ID]
			r.Next = 0
			if tail == nil {
				head = r
			} else {
				tail.Next = recvAddr(r)
			}
			tail = r
		}
		if tail != nil {
			q.ops[0] = verbs.PostOp{QP: q.qp.Handle(), Recv: recvAddr(head)}
			if q.h.provider.Post(q.ops) != 0 {
				return fmt.Errorf("post receives: errno %d", q.ops[0].Err)
			}
		}
	}
	return nil
}

// run does n commands on the reactor.
func (y *way) run(n int) error {
	var err error
	y.w.group.Reactors()[0].Call(func() {
		for i := 0; i < n && err == nil; i += y.batch {
			err = y.turn()
		}
	})
	return err
}

func benchWay(b *testing.B, p func(testing.TB) verbs.Provider) {
	for _, k := range wayKinds {
		for _, batch := range []int{1, 8, 32} {
			b.Run(fmt.Sprintf("%s/batch%d", k.name, batch), func(b *testing.B) {
				y := newWay(b, p(b), k, batch)
				if err := y.run(1000); err != nil {
					b.Fatal(err)
				}
				before := y.w.lanes()
				y.ns = 0
				b.ReportAllocs()
				b.ResetTimer()
				err := y.run(b.N)
				b.StopTimer()
				if err != nil {
					b.Fatal(err)
				}
				s := y.w.lanes()
				done := float64(s.Commands - before.Commands)
				b.ReportMetric(float64(y.ns)/done, "target-ns/op")
				b.ReportMetric(float64(s.Posts-before.Posts+s.Polls-before.Polls)/done, "crossings/op")
				b.ReportMetric(float64(s.Doorbells-before.Doorbells)/done, "doorbells/op")
				b.ReportMetric(float64(s.Completions-before.Completions)/done, "completions/op")
			})
		}
	}
}

// BenchmarkNativeWay is the same over shmverbs: with its libraries in the place of
// the NIC.
func BenchmarkNativeWay(b *testing.B) { benchWay(b, nativeProvider) }

// allocsOfWay is how many allocations n commands made.
func allocsOfWay(t *testing.T, p verbs.Provider, k wayKind) float64 {
	t.Helper()
	y := newWay(t, p, k, 8)
	if err := y.run(2000); err != nil { // what grows has grown
		t.Fatal(err)
	}
	const n = 4096
	var err error
	var allocs float64
	y.w.group.Reactors()[0].Call(func() {
		allocs = testing.AllocsPerRun(1, func() {
			for i := 0; i < n && err == nil; i += y.batch {
				err = y.turn()
			}
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return allocs / n
}

func checkAllocs(t *testing.T, p func(testing.TB) verbs.Provider) {
	if invariants.Enabled {
		t.Skip("left out: the assertions of debug builds allocate")
	}
	for _, k := range wayKinds {
		t.Run(k.name, func(t *testing.T) {
			if got := allocsOfWay(t, p(t), k); got != 0 {
				t.Errorf("%.4f allocations per command on the hot path, want 0", got)
			}
		})
	}
}

func TestNativeAllocations(t *testing.T) { checkAllocs(t, nativeProvider) }
