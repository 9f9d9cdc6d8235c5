package tcp

import (
	"fmt"
	"hash/crc32"
	"runtime"
	"testing"
	"time"

	"rocet/host"
	"rocet/internal/invariants"
	"rocet/nvme"
	"rocet/reactor"
)

// loop keeps a queue full of one kind of command.
type loop struct {
	q    *host.Queue
	ios  []host.IO
	done []*host.IO
	idle []*host.IO
}

func newLoop(t testing.TB, w *world, o host.Options, op nvme.Opcode, nsid, block uint32, size uint32, depth int) *loop {
	t.Helper()
	c := dial(t, o)
	l := &loop{q: openQueue(t, c, depth), ios: make([]host.IO, depth), done: make([]*host.IO, depth)}
	m, err := c.NewMemory(depth * int(size))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.q.Close()
		_ = m.Free()
		_ = c.Close()
	})
	for i := range l.ios {
		l.ios[i].SetRW(op, nsid, uint64(i)*uint64(size/block), size/block)
		l.ios[i].SetData(m, uint32(i)*size, size)
		l.idle = append(l.idle, &l.ios[i])
	}
	return l
}

// run does n commands.
func (l *loop) run(t testing.TB, n int) {
	for sent, got := 0, 0; got < n; {
		for len(l.idle) > 0 && sent < n {
			io := l.idle[len(l.idle)-1]
			l.idle = l.idle[:len(l.idle)-1]
			if err := l.q.Submit(io); err != nil {
				t.Fatal(err)
			}
			sent++
		}
		if err := l.q.Flush(); err != nil {
			t.Fatal(err)
		}
		k, err := l.q.Poll(l.done)
		if err != nil {
			t.Fatal(err)
		}
		if k == 0 {
			runtime.Gosched()
		}
		for _, io := range l.done[:k] {
			if !io.Status.IsOK() {
				t.Fatal(io.Status)
			}
		}
		l.idle = append(l.idle, l.done[:k]...)
		got += k
	}
}

var shapes = []struct {
	name    string
	op      nvme.Opcode
	nsid    uint32
	block   uint32
	size    uint32
	depth   int
	digests bool
}{
	{"read/4KiB/qd1", nvme.OpRead, 2, 4096, 4096, 1, false},
	{"read/4KiB/qd32", nvme.OpRead, 2, 4096, 4096, 32, false},
	{"read/4KiB/qd126", nvme.OpRead, 2, 4096, 4096, 126, false},
	{"read/4KiB/qd32/digests", nvme.OpRead, 2, 4096, 4096, 32, true},
	{"read/4KiB/qd32/memory", nvme.OpRead, 1, 512, 4096, 32, false},
	{"read/128KiB/qd16", nvme.OpRead, 2, 4096, 128 << 10, 16, false},
	{"write/4KiB/qd32", nvme.OpWrite, 2, 4096, 4096, 32, false},
	{"write/4KiB/qd32/digests", nvme.OpWrite, 2, 4096, 4096, 32, true},
	{"write/128KiB/qd16", nvme.OpWrite, 2, 4096, 128 << 10, 16, false},
}

// TestHotPathAllocates holds that I/O leaves no garbage, of either end, whatever its shape.
func TestHotPathAllocates(t *testing.T) {
	if invariants.Enabled {
		t.Skip("left out: this build checks more than it should allocate for")
	}
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			w := newWorld(t, worldOptions{})
			o := w.options()
			o.HeaderDigest, o.DataDigest = s.digests, s.digests
			l := newLoop(t, w, o, s.op, s.nsid, s.block, s.size, s.depth)
			l.run(t, 2000)
			const n = 2000
			// The runtime's own goroutines allocate now and then: the least of a few runs is what I/O costs.
			least := uint64(1 << 60)
			for range 5 {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				l.run(t, n)
				runtime.ReadMemStats(&after)
				least = min(least, after.Mallocs-before.Mallocs)
			}
			if least > 4 {
				t.Errorf("%d allocations in %d commands", least, n)
			}
		})
	}
}

// TestFewSystemCalls holds that deep queues share reads and sends.
func TestFewSystemCalls(t *testing.T) {
	w := newWorld(t, worldOptions{})
	l := newLoop(t, w, w.options(), nvme.OpRead, 2, 4096, 4096, 64)
	l.run(t, 1000)
	before := w.stats()
	const n = 20000
	l.run(t, n)
	after := w.stats()
	sends := float64(after.Sends-before.Sends) / n
	reads := float64(after.Reads-after.EmptyReads-(before.Reads-before.EmptyReads)) / n
	if sends > 0.5 || reads > 0.5 {
		t.Errorf("%.2f sends and %.2f reads per command at queue depth 64", sends, reads)
	}
}

func BenchmarkTCP(b *testing.B) {
	for _, s := range shapes {
		b.Run(s.name, func(b *testing.B) {
			w := newWorld(b, worldOptions{})
			o := w.options()
			o.HeaderDigest, o.DataDigest = s.digests, s.digests
			l := newLoop(b, w, o, s.op, s.nsid, s.block, s.size, s.depth)
			l.run(b, 100)
			r := w.target.Groups()[0].Reactor
			state := func() (st reactor.Stats) {
				r.Call(func() { st = r.Stats() })
				return st
			}
			before, rb := w.stats(), state()
			b.SetBytes(int64(s.size))
			b.ReportAllocs()
			b.ResetTimer()
			l.run(b, b.N)
			b.StopTimer()
			after, ra := w.stats(), state()
			per := func(n uint64) float64 { return float64(n) / float64(b.N) }
			b.ReportMetric(per(after.Sends-before.Sends), "sends/op")
			b.ReportMetric(per(after.Reads-before.Reads), "reads/op")
			b.ReportMetric(per(after.EmptyReads-before.EmptyReads), "empty/op")
			b.ReportMetric(per(after.EpollWaits-before.EpollWaits), "epolls/op")
			b.ReportMetric(per(ra.BusyNs-rb.BusyNs), "busy-ns/op")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "IOPS")
		})
	}
}

func BenchmarkDigest(b *testing.B) {
	for _, n := range []int{24, 4096, 128 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			data := pattern(n, 0)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			crc := uint32(0)
			for b.Loop() {
				crc = crcAdd(crc, data)
			}
		})
	}
}

func TestDigest(t *testing.T) {
	// The check value of CRC-32C: "123456789".
	if got := crcAdd(0, []byte("123456789")); got != 0xe3069283 {
		t.Errorf("CRC-32C is %#x", got)
	}
	a, b := pattern(1000, 1), pattern(3333, 2)
	if crcAdd(crcAdd(0, a), b) != crc32.Checksum(append(a, b...), crc32.MakeTable(crc32.Castagnoli)) {
		t.Error("a digest in pieces differs")
	}
	if testing.Short() || invariants.Enabled {
		return
	}
	data := pattern(64<<10, 0)
	start := time.Now()
	const rounds = 2000
	for range rounds {
		crcAdd(0, data)
	}
	if rate := float64(rounds*len(data)) / time.Since(start).Seconds(); rate < 1<<30 {
		t.Errorf("CRC-32C at %.0f MB/s: the processor's instruction is not used", rate/1e6)
	}
}
