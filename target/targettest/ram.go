package targettest

import (
	"fmt"
	"slices"
	"sync"

	"rocet/memory"
	"rocet/nvme"
	"rocet/target"
)

// RAM is a backend in Go memory that does what a test tells it to. Set its fields
// before it is added to a subsystem, or by Change.
type RAM struct {
	mu     sync.Mutex
	info   target.Info
	data   []byte
	slab   *memory.Slab // of a lending one
	watch  func(target.Event)
	smart  *nvme.SMARTLog
	hold   bool
	fail   nvme.Status
	queues int
	opens  int
	refuse error
	seen   []Seen
	record bool
	// OnResize, if set, runs before Resize does anything.
	OnResize func()
}

// Seen is an operation that came.
type Seen struct {
	Op     target.Op
	Flags  target.IOFlags
	LBA    uint64
	Blocks uint32
}

// NewRAM makes a backend that has every operation.
func NewRAM(blockSize uint32, blocks uint64) *RAM {
	return &RAM{
		info: target.Info{
			Geometry:                   target.Geometry{BlockSize: blockSize, Blocks: blocks},
			Ops:                        target.Ops(target.OpWriteZeroes, target.OpDeallocate, target.OpCompare, target.OpVerify),
			VolatileWriteCache:         true,
			ReadsZeroesAfterDeallocate: true,
		},
		data: make([]byte, uint64(blockSize)*blocks),
	}
}

// NewLendingRAM makes one that lends its memory to reads.
func NewLendingRAM(pool *memory.Pool, blockSize uint32, blocks uint64) (*RAM, error) {
	b := NewRAM(blockSize, blocks)
	slab, err := pool.NewSlab(b.info.Bytes())
	if err != nil {
		return nil, err
	}
	b.slab = slab
	b.data = slab.Segment(0, uint32(b.info.Bytes())).Bytes()
	b.info.LendsReads = true
	return b, nil
}

// Change edits what the backend reports of itself.
func (b *RAM) Change(edit func(*target.Info)) *RAM {
	b.mu.Lock()
	defer b.mu.Unlock()
	edit(&b.info)
	return b
}

// Emit reports an event, as the backend's own goroutine would.
func (b *RAM) Emit(e target.Event) {
	b.mu.Lock()
	watch := b.watch
	b.mu.Unlock()
	if watch != nil {
		watch(e)
	}
}

// Hold makes the backend keep what comes until Resume of its queues.
func (b *RAM) Hold(on bool) {
	b.mu.Lock()
	b.hold = on
	b.mu.Unlock()
}

// Fail makes every operation end with a status.
func (b *RAM) Fail(st nvme.Status) {
	b.mu.Lock()
	b.fail = st
	b.mu.Unlock()
}

// SetSMART sets the device's health.
func (b *RAM) SetSMART(l *nvme.SMARTLog) {
	b.mu.Lock()
	b.smart = l
	b.mu.Unlock()
}

// RefuseQueues makes OpenQueue fail after n successes.
func (b *RAM) RefuseQueues(n int, err error) {
	b.mu.Lock()
	b.opens, b.refuse = n, err
	b.mu.Unlock()
}

// Record starts to keep what comes, and returns what came.
func (b *RAM) Record() []Seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.record = true
	return slices.Clone(b.seen)
}

// OpenQueues is how many queues are open.
func (b *RAM) OpenQueues() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.queues
}

// Info is target.Backend.
func (b *RAM) Info() target.Info {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.info
}

// Watch is target.Backend.
func (b *RAM) Watch(f func(target.Event)) {
	b.mu.Lock()
	b.watch = f
	b.mu.Unlock()
}

// SMART is target.Backend.
func (b *RAM) SMART() (nvme.SMARTLog, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.smart == nil {
		return nvme.SMARTLog{}, false
	}
	return *b.smart, true
}

// Resize is target.Resizer.
func (b *RAM) Resize(blocks uint64) error {
	if b.OnResize != nil {
		b.OnResize()
	}
	b.mu.Lock()
	if b.slab != nil {
		b.mu.Unlock()
		return fmt.Errorf("a lending backend keeps its size")
	}
	data := make([]byte, blocks*uint64(b.info.BlockSize))
	copy(data, b.data)
	b.data = data
	b.info.Blocks = blocks
	b.mu.Unlock()
	b.Emit(target.EventResized)
	return nil
}

// Close is target.Backend.
func (b *RAM) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queues != 0 {
		return fmt.Errorf("closed with %d queues open", b.queues)
	}
	return nil
}

// OpenQueue is target.Backend.
func (b *RAM) OpenQueue(g *target.PollGroup) (target.BackendQueue, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse != nil && b.queues == b.opens {
		return nil, b.refuse
	}
	b.queues++
	return &ramQueue{b: b, g: g}, nil
}

type ramQueue struct {
	b    *RAM
	g    *target.PollGroup
	held *target.IO
	n    int
	done func()
}

// Submit is target.BackendQueue.
func (q *ramQueue) Submit(io *target.IO) {
	b := q.b
	b.mu.Lock()
	if b.record {
		b.seen = append(b.seen, Seen{io.Op, io.Flags, io.LBA, io.Blocks})
	}
	if b.hold {
		io.Next = q.held
		q.held = io
		q.n++
		b.mu.Unlock()
		q.g.Reactor.Post(q.poll)
		return
	}
	st := b.do(io)
	b.mu.Unlock()
	io.Complete(st)
}

// poll ends held operations once the backend no longer holds.
func (q *ramQueue) poll() {
	b := q.b
	b.mu.Lock()
	if b.hold {
		b.mu.Unlock()
		if q.held != nil {
			q.g.Reactor.Post(q.poll)
		}
		return
	}
	b.mu.Unlock()
	for q.held != nil {
		io := q.held
		q.held, io.Next = io.Next, nil
		q.n--
		b.mu.Lock()
		st := b.do(io)
		b.mu.Unlock()
		io.Complete(st)
	}
	if q.done != nil {
		q.finish()
	}
}

// Close is target.BackendQueue.
func (q *ramQueue) Close(done func()) {
	q.done = done
	if q.held == nil {
		q.finish()
	}
}

func (q *ramQueue) finish() {
	done := q.done
	q.done = nil
	q.b.mu.Lock()
	q.b.queues--
	q.b.mu.Unlock()
	done()
}

// do executes an operation.
func (b *RAM) do(io *target.IO) nvme.Status {
	if b.fail != nvme.StatusSuccess {
		return b.fail
	}
	bs := uint64(b.info.BlockSize)
	if io.Op == target.OpDeallocate {
		d := io.Data[0].Bytes()
		for range io.Blocks {
			r := (*nvme.DSMRange)(d)
			if (r.SLBA()+uint64(r.NLB()))*bs > uint64(len(b.data)) { // it shrank meanwhile
				return nvme.StatusLBAOutOfRange
			}
			clear(b.data[r.SLBA()*bs:][:uint64(r.NLB())*bs])
			d = d[nvme.DSMRangeSize:]
		}
		return nvme.StatusSuccess
	}
	off, n := io.LBA*bs, uint64(io.Blocks)*bs
	if off+n > uint64(len(b.data)) {
		return nvme.StatusLBAOutOfRange
	}
	part := b.data[off : off+n]
	switch io.Op {
	case target.OpRead:
		if b.slab != nil {
			io.Data = append(io.Data, b.slab.Segment(off, uint32(n)))
			return nvme.StatusSuccess
		}
		for _, s := range io.Data {
			part = part[copy(s.Bytes(), part):]
		}
	case target.OpWrite:
		for _, s := range io.Data {
			part = part[copy(part, s.Bytes()):]
		}
	case target.OpCompare:
		for _, s := range io.Data {
			if string(s.Bytes()) != string(part[:s.Len]) {
				return nvme.StatusCompareFailure
			}
			part = part[s.Len:]
		}
	case target.OpWriteZeroes:
		clear(part)
	}
	return nvme.StatusSuccess
}
