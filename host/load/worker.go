package load

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"rocet/host"
	"rocet/nvme"
)

const (
	highest  = int64(10 * time.Minute) // of a latency
	digits   = 3
	spinTime = 100 * time.Microsecond // without anything to poll, before a worker sleeps
	napTime  = 10 * time.Millisecond
	// unknownGeneration is that of blocks whose write failed.
	unknownGeneration = 1<<32 - 1
)

// worker loads one queue.
type worker struct {
	r    *run
	q    *host.Queue
	mem  *host.Memory
	ios  []host.IO
	free []*host.IO
	done []*host.IO
	rng  uint64

	first, count uint64 // its extents
	next         uint64 // of a sequential load
	left         uint64 // commands to do
	gens         []uint32
	busy         []bool
	buf          []byte // verification: what must be there

	read, write *hdrhistogram.Histogram
	errs        map[nvme.Status]uint64
	verified    uint64
	mismatch    *Mismatch
	err         error
	from, to    time.Duration // what was measured
	base, stats host.Stats

	_      [64]byte
	total  atomic.Uint64
	failed atomic.Uint64
}

func newWorker(ctx context.Context, r *run, index int) (w *worker, err error) {
	depth, size := r.cfg.Depth, int(r.cfg.BlockSize)
	w = &worker{r: r, ios: make([]host.IO, depth), free: make([]*host.IO, 0, depth), done: make([]*host.IO, depth),
		rng: r.cfg.Seed*0x9e3779b97f4a7c15 + uint64(index)*0xd1342543de82ef95 + 1, errs: map[nvme.Status]uint64{},
		read: hdrhistogram.New(1, highest, digits), write: hdrhistogram.New(1, highest, digits)}
	share := r.extents / uint64(r.cfg.Queues)
	w.first, w.count = uint64(index)*share, share
	w.left = math.MaxUint64
	if n := r.cfg.Count; n > 0 { // each has its part, so that a sequential load covers its range evenly
		queues := uint64(r.cfg.Queues)
		if w.left = n / queues; uint64(index) < n%queues {
			w.left++
		}
	}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.q, err = r.c.NewQueue(ctx, depth); err != nil {
		return nil, err
	}
	if w.mem, err = r.c.NewMemory(depth * size); err != nil {
		return nil, err
	}
	b := w.mem.Bytes()
	for i := 0; i+8 <= len(b); i += 8 { // something that no layer on the way can shorten
		putWord(b[i:], w.random())
	}
	for i := range w.ios {
		io := &w.ios[i]
		io.SetData(w.mem, uint32(i*size), uint32(size))
		w.free = append(w.free, io)
	}
	if r.cfg.Verify {
		w.gens, w.busy, w.buf = make([]uint32, share), make([]bool, share), make([]byte, r.ns.BlockSize)
	}
	return w, nil
}

func (w *worker) close() {
	if w.q != nil {
		_ = w.q.Close()
	}
	if w.mem != nil {
		_ = w.mem.Free()
	}
}

// random is splitmix64.
func (w *worker) random() uint64 {
	w.rng += 0x9e3779b97f4a7c15
	z := w.rng
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// run is the worker's whole measurement.
func (w *worker) run() {
	runtime.LockOSThread() // the thread's caches, and its core where there is one for each
	defer runtime.UnlockOSThread()
	r := w.r
	now := time.Since(r.start)
	measuring := false
	stopping := false
	idle := 0
	var idleSince time.Duration
	for {
		if !measuring && now >= r.measure {
			measuring = true
			w.from, w.base = now, w.q.Stats()
		}
		if !stopping && (now >= r.end || r.stop.Load() || w.mismatch != nil) {
			stopping = true
		}
		if !stopping && len(w.free) > 0 && !w.fill(now) {
			stopping = true
		}
		n, err := w.q.Poll(w.done)
		if err != nil {
			w.err = err
			break
		}
		if n == 0 {
			if w.q.Outstanding() == 0 && stopping {
				break
			}
			idle++
			if idle&15 == 0 || w.r.cfg.Sleep {
				now = time.Since(r.start)
				if idle <= 16 {
					idleSince = now
				}
				if now-idleSince > spinTime || w.r.cfg.Sleep {
					if err := w.q.Wait(napTime); err != nil {
						w.err = err
						break
					}
					now = time.Since(r.start)
				}
			}
			continue
		}
		idle = 0
		now = time.Since(r.start)
		count := measuring && now <= r.end
		for _, io := range w.done[:n] {
			w.finish(io, now, count)
		}
		if count {
			w.to = now
		}
		w.total.Store(w.total.Load() + uint64(n))
	}
	if !measuring {
		w.from, w.base = now, w.q.Stats()
	}
	if r.end < now && w.err == nil && !r.stop.Load() && r.cfg.Count == 0 {
		w.to = r.end
	}
	w.to = max(w.to, w.from)
	w.stats = w.q.Stats()
}

// fill submits commands for all that are free. It returns false when there are no more to do.
func (w *worker) fill(now time.Duration) bool {
	more := true
	for len(w.free) > 0 {
		if w.left == 0 {
			more = false
			break
		}
		w.left--
		io := w.free[len(w.free)-1]
		w.free = w.free[:len(w.free)-1]
		w.prepare(io)
		io.Start = int64(now)
		if err := w.q.Submit(io); err != nil {
			w.free = append(w.free, io)
			if !errors.Is(err, host.ErrFull) {
				break // Poll says it too, after the commands
			}
		}
	}
	_ = w.q.Flush() // Poll says it too
	return more
}

// prepare chooses what a command does.
func (w *worker) prepare(io *host.IO) {
	r := w.r
	op := nvme.OpRead
	if !r.shape.reads || r.shape.writes && uint32(w.random()) >= r.mix {
		op = nvme.OpWrite
	}
	e := w.next
	if r.shape.random {
		e = w.random() % w.count
	} else if w.next++; w.next == w.count {
		w.next = 0
	}
	if w.busy != nil {
		for w.busy[e] { // there are more extents than commands
			if e++; e == w.count {
				e = 0
			}
		}
		w.busy[e] = true
	}
	io.Tag = e
	lba := r.first + (w.first+e)*uint64(r.blocks)
	io.SetRW(op, r.ns.NSID, lba, r.blocks)
	if w.gens != nil && op == nvme.OpWrite {
		gen := w.gens[e] + 1
		if gen >= unknownGeneration {
			gen = 1
		}
		r.pattern.fill(w.data(io), lba, uint64(gen))
		w.gens[e] = gen
	}
}

func (w *worker) data(io *host.IO) []byte { return w.mem.Bytes()[io.Off : io.Off+io.Len] }

// finish takes a command that is answered.
func (w *worker) finish(io *host.IO, now time.Duration, count bool) {
	w.free = append(w.free, io)
	read := io.Cmd.Opcode() == nvme.OpRead
	if !io.Status.IsOK() {
		w.errs[io.Status]++
		w.failed.Add(1)
		if w.gens != nil {
			w.busy[io.Tag] = false
			if !read {
				w.gens[io.Tag] = unknownGeneration
			}
		}
		return
	}
	if count {
		h := w.write
		if read {
			h = w.read
		}
		_ = h.RecordValue(min(max(int64(now)-io.Start, 1), highest))
	}
	if w.gens != nil {
		w.busy[io.Tag] = false
		if read {
			w.verify(io)
		}
	}
}

// verify compares what was read.
func (w *worker) verify(io *host.IO) {
	gen := w.gens[io.Tag]
	if gen == unknownGeneration || gen == 0 && w.r.shape.writes || w.mismatch != nil {
		return // not written in this run
	}
	b := w.data(io)
	lba := io.Cmd.SLBA()
	for i := 0; i < len(b); i += w.r.pattern.block {
		if w.mismatch = w.r.pattern.check(b[i:i+w.r.pattern.block], w.buf, lba, uint64(gen)); w.mismatch != nil {
			return
		}
		lba++
		w.verified++
	}
}

// readBack reads and verifies all extents that were written.
func (w *worker) readBack() {
	e := uint64(0)
	for {
		for len(w.free) > 0 && e < w.count && !w.r.stop.Load() && w.mismatch == nil {
			if g := w.gens[e]; g != 0 && g != unknownGeneration {
				io := w.free[len(w.free)-1]
				w.free = w.free[:len(w.free)-1]
				io.Tag = e
				io.SetRW(nvme.OpRead, w.r.ns.NSID, w.r.first+(w.first+e)*uint64(w.r.blocks), w.r.blocks)
				if w.q.Submit(io) != nil {
					w.free = append(w.free, io)
					break
				}
			}
			e++
		}
		_ = w.q.Flush()
		n, err := w.q.Poll(w.done)
		if err != nil {
			w.err = err
			return
		}
		for _, io := range w.done[:n] {
			w.finish(io, 0, false)
		}
		if n > 0 {
			continue
		}
		if w.q.Outstanding() == 0 {
			return
		}
		if err := w.q.Wait(napTime); err != nil {
			w.err = err
			return
		}
	}
}
