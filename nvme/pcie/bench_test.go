package pcie

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"unsafe"

	"rocet/memory"
	"rocet/nvme"
	"rocet/nvme/pcie/sim"
)

// mirror is the least that a controller must do: it completes what was submitted to one queue, in order.
type mirror struct {
	q        *Queue
	sqHead   uint32
	cqTail   uint32
	phase    uint32
	doorbell *uint32
}

// step completes everything up to the doorbell.
func (m *mirror) step() {
	tail := atomic.LoadUint32(m.doorbell)
	for m.sqHead != tail {
		e := (*nvme.Command)(unsafe.Add(m.q.sq, uintptr(m.sqHead)*nvme.CommandSize))
		if m.sqHead++; m.sqHead == m.q.depth {
			m.sqHead = 0
		}
		m.complete(e.CID())
	}
}

func (m *mirror) complete(cid uint16) {
	c := unsafe.Add(m.q.cq, uintptr(m.cqTail)*nvme.CompletionSize)
	binary.LittleEndian.PutUint32((*[4]byte)(unsafe.Add(c, 8))[:], m.sqHead|uint32(m.q.id)<<16)
	*(*uint32)(unsafe.Add(c, 12)) = uint32(cid) | m.phase<<16
	if m.cqTail++; m.cqTail == m.q.depth {
		m.cqTail, m.phase = 0, m.phase^1
	}
}

type counter struct{ n int }

func (c *counter) Complete(nvme.Status) { c.n++ }

// benchRig is a live queue whose simulated controller stands still, with a mirror in its place.
func benchRig(t testing.TB, cfg sim.Config) (*rig, *mirror) {
	r := newRig(t, cfg, func(c *Config) { c.Depth = 256 })
	r.dev.Reconfigure(func(c *sim.Config) { c.Queues = 0 }) // it looks at the admin queue only from now on
	r.pump("nothing", func() bool { return true })
	m := &mirror{q: r.q, phase: 1, doorbell: (*uint32)(r.q.sqBell.reg)}
	t.Cleanup(func() { r.dev.Reconfigure(func(c *sim.Config) { c.Queues = 16 }) })
	return r, m
}

// BenchmarkQueue is the driver's own cost of a command, submission and completion, at a queue depth: the time of the
// mirror that plays the controller is in it, and measured by itself in BenchmarkMirror.
func BenchmarkQueue(b *testing.B) {
	for _, c := range []struct {
		name  string
		bytes uint32
		depth int
		cfg   sim.Config
	}{
		{"read4k/qd1", 4096, 1, sim.Config{}},
		{"read4k/qd32", 4096, 32, sim.Config{}},
		{"read4k/qd128", 4096, 128, sim.Config{}},
		{"read4k/qd32/shadow", 4096, 32, sim.Config{Shadow: true}},
		{"read128k/qd32/prp", 131072, 32, sim.Config{}},
		{"read128k/qd32/sgl", 131072, 32, sim.Config{SGLS: nvme.SGLSSupported}},
		{"read1m/qd8/split8", 1 << 20, 8, sim.Config{MDTS: 5}},
	} {
		b.Run(c.name, func(b *testing.B) {
			r, m := benchRig(b, c.cfg)
			if c.cfg.Shadow {
				m.doorbell = r.q.sqBell.shadow
				atomic.StoreUint32(r.q.sqBell.event, 0x8000)
				atomic.StoreUint32(r.q.cqBell.event, 0x8000)
			}
			segs := r.alloc(c.bytes)
			defer r.cache.Free(segs)
			var done counter
			b.ReportAllocs()
			for b.Loop() {
				r.burst(m, segs, c.depth, &done)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(done.n), "ns/request")
		})
	}
}

// burst submits so many reads and completes them.
func (r *rig) burst(m *mirror, segs []memory.Segment, depth int, done *counter) {
	req := Request{NS: r.ns, Op: nvme.OpRead, Blocks: uint32(memory.Length(segs)) >> r.ns.shift, Data: segs, Done: done}
	want := done.n + depth
	for i := 0; i < depth; {
		req.LBA = uint64(i)
		if !r.q.TrySubmit(&req) {
			r.q.Flush()
			m.step()
			r.q.Poll()
			continue
		}
		i++
	}
	for done.n < want {
		r.q.Flush()
		m.step()
		r.q.Poll()
	}
}

// BenchmarkMirror is what the mirror takes of BenchmarkQueue.
func BenchmarkMirror(b *testing.B) {
	r, m := benchRig(b, sim.Config{})
	b.ReportAllocs()
	n := 0
	var tail uint32
	for b.Loop() {
		for range 32 {
			if tail++; tail == r.q.depth {
				tail = 0
			}
		}
		atomic.StoreUint32(m.doorbell, tail)
		m.step()
		n += 32
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/request")
	// Leave the queue as it was for the rig's end.
	m.q.rings.cq.clear()
}

// The I/O path allocates nothing, split or not.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, c := range []sim.Config{{}, {SGLS: nvme.SGLSSupported}, {MDTS: 3, NOIOB: 24}, {Shadow: true}} {
		r, m := benchRig(t, c)
		if c.Shadow {
			m.doorbell = r.q.sqBell.shadow
		}
		segs := r.alloc(256 << 10)
		var done counter
		if n := testing.AllocsPerRun(50, func() { r.burst(m, segs, 16, &done) }); n != 0 {
			t.Errorf("%+v: %v allocations for 16 requests", c, n)
		}
		if n := testing.AllocsPerRun(50, func() { r.q.Tick() }); n != 0 {
			t.Errorf("a tick makes %v allocations", n)
		}
		r.cache.Free(segs)
	}
}
