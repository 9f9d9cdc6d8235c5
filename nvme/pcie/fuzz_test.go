package pcie

import (
	"io"
	"log/slog"
	"testing"
	"unsafe"

	"rocet/memory"
	"rocet/nvme"
	"rocet/nvme/pcie/sim"
)

// FuzzCompletions lets a controller write anything into a completion queue: each request ends once at most from that,
// and once in all when the drive is reset.
func FuzzCompletions(f *testing.F) {
	space := sim.NewSpace()
	pool, err := memory.New(memory.Config{Size: 4 << 20, HugePages: memory.HugeNever, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		f.Fatal(err)
	}
	if err := pool.AddRegistrant(space); err != nil {
		f.Fatal(err)
	}
	cfg := Config{Queues: 1, Depth: 16, Table: space.Table(), Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	cfg.setDefaults()
	l, err := newLayout(pool, 1, cfg.Depth)
	if err != nil {
		f.Fatal(err)
	}
	if err := l.locate(cfg.Table, cfg.Depth); err != nil {
		f.Fatal(err)
	}
	data := pool.Slab(0).Segment(0, 64<<10)
	entry := func(cid, sqid uint16, status nvme.Status, phase bool) []byte {
		var c nvme.Completion
		c.SetCID(cid)
		c.SetSQID(sqid)
		c.SetStatus(status)
		c.SetPhase(phase)
		return c[:]
	}
	f.Add(entry(1<<cidSlotBits, 1, 0, true))
	f.Add(append(entry(1<<cidSlotBits, 1, nvme.StatusUnrecoveredRead, true), entry(1<<cidSlotBits, 1, 0, true)...))
	f.Add(append(entry(1<<cidSlotBits|1, 1, 0, true), entry(1<<cidSlotBits|2, 2, 0, true)...))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d := &Drive{cfg: cfg, log: cfg.Log, layout: l, wake: make(chan struct{}, 1), timeouts: make(chan timeout, 4), timeoutTicks: 40, abortTicks: 12}
		q := newQueue(d, 1, nil, -1)
		l.rings[0].cq.clear()
		var bells [2]uint32
		q.attach(link{depth: cfg.Depth, sqBell: doorbell{reg: unsafe.Pointer(&bells[0])}, cqBell: doorbell{reg: unsafe.Pointer(&bells[1])},
			listIOVA: l.rings[0].lists.iova})
		ns := &Namespace{nsid: 1, shift: 9, maxBlocks: 16, zeroBlocks: 8, flushes: true}
		ns.usable.Store(true)
		requests := make([]request, 12)
		taken := 0
		for i := range requests {
			r := &requests[i]
			r.Request = Request{NS: ns, Op: nvme.OpRead, Blocks: uint32(i)*4 + 1, Data: []memory.Segment{data.Slice(0, uint32(i*4+1)*512)}, Done: r}
			if i%5 == 4 {
				r.Op, r.Data = nvme.OpWriteZeroes, nil
			}
			if q.TrySubmit(&r.Request) {
				taken++
			}
		}
		q.Flush()
		copy(l.rings[0].cq.bytes(), raw)
		for range 4 {
			q.Poll()
			q.Flush()
		}
		for range 60 {
			q.Tick()
		}
		for i := range requests {
			if requests[i].ended > 1 {
				t.Fatalf("request %d ended %d times", i, requests[i].ended)
			}
		}
		q.freeze()
		q.end()
		ended := 0
		for i := range requests {
			ended += requests[i].ended
		}
		if ended != taken || q.Busy() {
			t.Fatalf("%d of %d requests ended", ended, taken)
		}
	})
}
