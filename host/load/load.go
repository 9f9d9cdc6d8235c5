// Package load puts a load on a namespace and measures what comes back: it is what `rocet perf` runs.
//
//	Run ─▶ Dial ─▶ is the namespace in use? ─▶ a worker for each queue ─────────────▶ Result
//	                                             │ ramp │ measure │ drain │ read back │
//
// A worker is a goroutine that owns one queue and a part of the range. It submits a whole turn's commands at once and
// reads the clock once a turn; nothing on its way allocates or takes a lock.
package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"rocet/host"
	"rocet/internal/inuse"
)

// Config says what load to put on what. Zero values take the defaults given.
type Config struct {
	Target host.Options // NSID too

	RW        string // read, write, rw, randread, randwrite, randrw: randread
	ReadMix   int    // percent of reads of rw and randrw: 50; -1: none
	BlockSize uint32 // bytes of a command: 4096
	Depth     int    // commands under way on a queue: 32
	Queues    int    // 1

	Time  time.Duration // how long to measure: 10 s, if there is no Count
	Ramp  time.Duration // not measured before that
	Count uint64        // commands in all; 0: Time decides

	Offset uint64 // bytes from the beginning of the namespace
	Size   uint64 // bytes; 0: to its end
	Seed   uint64 // of the random order: another one each time

	Verify bool // write patterns, read them back, compare
	Force  bool // write to a namespace that looks in use
	Sleep  bool // sleep at once when there is nothing to poll, instead of after a while

	Progress func(Sample) // called every second
}

// Sample is the state of a run.
type Sample struct {
	Phase   string // ramp, run, verify
	Elapsed time.Duration
	IOPS    float64 // since the last sample
	Bytes   float64 // a second
	Errors  uint64
}

// verifySize is how much is verified if nobody says: the generations of all blocks are kept in memory.
const verifySize = 1 << 30

type shape struct{ random, reads, writes bool }

var shapes = map[string]shape{
	"read":      {reads: true},
	"write":     {writes: true},
	"rw":        {reads: true, writes: true},
	"readwrite": {reads: true, writes: true},
	"randread":  {random: true, reads: true},
	"randwrite": {random: true, writes: true},
	"randrw":    {random: true, reads: true, writes: true},
}

// Check fills in the defaults, and refuses what makes no sense.
func (c *Config) Check() error {
	def(&c.RW, "randread")
	def(&c.BlockSize, 4096)
	def(&c.Depth, 32)
	def(&c.Queues, 1)
	def(&c.ReadMix, 50)
	if c.Time == 0 && c.Count == 0 {
		c.Time = 10 * time.Second
	}
	_, ok := shapes[c.RW]
	switch {
	case !ok:
		return fmt.Errorf("rw %q: want read, write, rw, randread, randwrite or randrw", c.RW)
	case c.ReadMix < -1 || c.ReadMix > 100:
		return fmt.Errorf("mix of %d %% reads: want 0 to 100", c.ReadMix)
	case c.BlockSize == 0 || c.BlockSize > 16<<20:
		return fmt.Errorf("block size %d: want up to 16 MiB", c.BlockSize)
	case c.Depth < 1 || c.Queues < 1:
		return fmt.Errorf("%d queues of depth %d: want at least 1 of each", c.Queues, c.Depth)
	case c.Time < 0 || c.Ramp < 0:
		return errors.New("a negative time")
	}
	return nil
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// run is a load under way.
type run struct {
	cfg     Config
	shape   shape
	mix     uint32 // reads of 2^32
	c       *host.Controller
	ns      *host.Namespace
	pattern pattern
	first   uint64 // block of the range
	blocks  uint32 // of a command
	extents uint64 // commands that the range has room for

	workers []*worker
	stop    atomic.Bool
	start   time.Time
	measure time.Duration // since start: where the ramp ends
	end     time.Duration // since start; MaxInt64: when Count is done
}

// Run runs the load. ctx ends it early, with a result of what was measured until then. An error is one of the run
// itself; commands that failed and data that differed are in the result.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	r := &run{cfg: cfg, shape: shapes[cfg.RW]}
	if r.cfg.Seed == 0 {
		r.cfg.Seed = uint64(time.Now().UnixNano())
	}
	r.mix = uint32(float64(max(cfg.ReadMix, 0)) / 100 * math.MaxUint32)
	cfg.Target.IOQueues = max(cfg.Target.IOQueues, cfg.Queues)
	var err error
	if r.c, err = host.Dial(ctx, cfg.Target); err != nil {
		return nil, err
	}
	defer r.c.Close()
	if r.ns, err = r.c.Namespace(ctx, max(cfg.Target.NSID, 1)); err != nil {
		return nil, err
	}
	if err := r.lay(); err != nil {
		return nil, err
	}
	if r.shape.writes && !cfg.Force {
		if err := r.unused(ctx); err != nil {
			return nil, err
		}
	}
	defer func() {
		for _, w := range r.workers {
			w.close()
		}
	}()
	for i := range cfg.Queues {
		w, err := newWorker(ctx, r, i)
		if err != nil {
			return nil, err
		}
		r.workers = append(r.workers, w)
	}
	return r.run(ctx)
}

// lay works out the range.
func (r *run) lay() error {
	cfg, ns := &r.cfg, r.ns
	bs := uint64(cfg.BlockSize)
	switch {
	case bs%uint64(ns.BlockSize) != 0:
		return fmt.Errorf("block size %d is no multiple of the namespace's blocks of %d bytes", bs, ns.BlockSize)
	case cfg.BlockSize > r.c.MaxTransfer():
		return fmt.Errorf("block size %d: a command moves at most %d bytes on this target", bs, r.c.MaxTransfer())
	case bs/uint64(ns.BlockSize) > 1<<16:
		return fmt.Errorf("block size %d: a command takes at most 65536 blocks of %d bytes", bs, ns.BlockSize)
	case cfg.Offset%uint64(ns.BlockSize) != 0:
		return fmt.Errorf("offset %d is no multiple of the namespace's blocks of %d bytes", cfg.Offset, ns.BlockSize)
	case cfg.Offset >= ns.Bytes():
		return fmt.Errorf("offset %d: the namespace has %d bytes", cfg.Offset, ns.Bytes())
	case cfg.Size > ns.Bytes()-cfg.Offset:
		return fmt.Errorf("size %d from %d on: the namespace has %d bytes", cfg.Size, cfg.Offset, ns.Bytes())
	}
	size := cfg.Size
	if size == 0 {
		size = ns.Bytes() - cfg.Offset
		if cfg.Verify {
			size = min(size, verifySize)
		}
	}
	r.first = cfg.Offset / uint64(ns.BlockSize)
	r.blocks = uint32(bs / uint64(ns.BlockSize))
	r.extents = size / bs
	r.pattern = pattern{block: int(ns.BlockSize), seed: r.cfg.Seed}
	if depth := r.c.MaxDepth(); cfg.Depth > depth {
		r.cfg.Depth = depth
	}
	need := uint64(cfg.Queues)
	if cfg.Verify {
		need *= uint64(r.cfg.Depth)
		if ns.BlockSize < minPattern {
			return fmt.Errorf("blocks of %d bytes are too small for a pattern", ns.BlockSize)
		}
	}
	if r.extents < need {
		return fmt.Errorf("%d bytes have room for %d blocks of %d bytes, this load needs %d: enlarge --size, or use fewer queues or a smaller depth", size, r.extents, bs, need)
	}
	if most := uint64(math.MaxUint32); cfg.Verify && r.extents > most {
		return fmt.Errorf("%d blocks are too many to verify: set --size", r.extents)
	}
	return nil
}

// unused refuses a namespace that carries somebody's data.
func (r *run) unused(ctx context.Context) error {
	q, err := r.c.NewQueue(ctx, 1)
	if err != nil {
		return err
	}
	defer q.Close()
	rd, err := host.NewReader(q, r.ns, r.c)
	if err != nil {
		return err
	}
	defer rd.Close()
	found, err := inuse.Signatures(rd, int64(r.ns.Bytes()))
	if err != nil {
		return fmt.Errorf("look whether namespace %d is in use: %w", r.ns.NSID, err)
	}
	if len(found) > 0 {
		return fmt.Errorf("namespace %d of %s carries %s: writing would destroy it; --force does so all the same", r.ns.NSID, r.cfg.Target.NQN, strings.Join(found, ", "))
	}
	return nil
}

// run lets the workers loose, and adds up what they did.
func (r *run) run(ctx context.Context) (*Result, error) {
	r.end = math.MaxInt64
	r.measure = r.cfg.Ramp
	if r.cfg.Time > 0 {
		r.end = r.cfg.Ramp + r.cfg.Time
	}
	runtime.GC()
	r.start = time.Now()
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, w := range r.workers {
		wg.Go(w.run)
	}
	go func() { wg.Wait(); close(done) }()
	before, after := r.watch(ctx, done)
	<-done
	res := r.result(before, after)
	if r.cfg.Verify && r.shape.writes && res.Mismatch == nil && ctx.Err() == nil {
		r.stop.Store(false)
		r.readBack(ctx, res)
	}
	res.Interrupted = ctx.Err() != nil
	for _, w := range r.workers {
		if w.err != nil {
			return res, w.err
		}
	}
	return res, r.c.Err()
}

// usage is what the process used.
type usage struct {
	at           time.Duration
	user, system time.Duration
	allocs       uint64
}

func (r *run) usage(sample []metrics.Sample) usage {
	var ru unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &ru) // fails for bad arguments only
	metrics.Read(sample)
	return usage{at: time.Since(r.start), user: time.Duration(ru.Utime.Nano()), system: time.Duration(ru.Stime.Nano()), allocs: sample[0].Value.Uint64()}
}

// watch reports progress until the workers are done, and takes the process's usage at both ends of the measurement.
func (r *run) watch(ctx context.Context, done <-chan struct{}) (before, after usage) {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}}
	before = r.usage(sample)
	ramp := time.NewTimer(r.measure)
	defer ramp.Stop()
	// Without somebody who looks nothing needs to tick.
	var ticks <-chan time.Time
	if r.cfg.Progress != nil {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		ticks = t.C
	}
	interrupted := ctx.Done()
	last, lastAt := uint64(0), time.Duration(0)
	for {
		select {
		case <-done:
			return before, r.usage(sample)
		case <-interrupted:
			r.stop.Store(true)
			interrupted = nil
		case <-ramp.C:
			before = r.usage(sample)
		case <-ticks:
			s := Sample{Phase: "run", Elapsed: time.Since(r.start)}
			if s.Elapsed < r.measure {
				s.Phase = "ramp"
			}
			n := uint64(0)
			for _, w := range r.workers {
				n += w.total.Load()
				s.Errors += w.failed.Load()
			}
			s.IOPS = float64(n-last) / (s.Elapsed - lastAt).Seconds()
			s.Bytes = s.IOPS * float64(r.cfg.BlockSize)
			last, lastAt = n, s.Elapsed
			r.cfg.Progress(s)
		}
	}
}

// readBack reads what the run wrote.
func (r *run) readBack(ctx context.Context, res *Result) {
	if r.cfg.Progress != nil {
		r.cfg.Progress(Sample{Phase: "verify", Elapsed: time.Since(r.start)})
	}
	end := context.AfterFunc(ctx, func() { r.stop.Store(true) })
	defer end()
	var wg sync.WaitGroup
	for _, w := range r.workers {
		wg.Go(w.readBack)
	}
	wg.Wait()
	res.addVerified(r.workers)
}
