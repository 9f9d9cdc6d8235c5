package file

import (
	"syscall"
	"unsafe"

	"rocet/cgo/uring"
	"rocet/memory"
	"rocet/target"
)

// lane is the io_uring of one reactor.
type lane struct {
	ring   *uring.Ring
	group  *target.PollGroup
	arenas []arena // registered slabs, by Slab.Index

	ops     [laneOps]op
	unused  [laneOps]uint16 // a stack of the ops that are free
	nunused int
	vecs    []vec // maxVecs for each op, outside the Go heap
	zeroes  unsafe.Pointer
	reaped  []uring.CQE

	// Queues with IOs that wait for an op, in order of their turns.
	hungry, hungryLast *queue

	freeFiles []int // of Engine.mu
}

// arena is a slab that is registered with the ring.
type arena struct {
	base  uintptr
	size  uint64
	first uint16 // index of its first buffer
}

// vec is a struct iovec.
type vec struct {
	base uintptr
	len  uint64
}

const (
	maxVecs  = target.MaxSegments
	vecsSize = laneOps * maxVecs * int(unsafe.Sizeof(vec{}))
	// zeroesSize bytes of zeroes are written maxVecs times at once where the kernel has nothing better.
	zeroesSize = 64 << 10
)

func newLane(ring *uring.Ring, g *target.PollGroup) *lane {
	l := &lane{ring: ring, group: g, nunused: laneOps}
	l.vecs = unsafe.Slice((*vec)(memory.OffHeap(vecsSize)), laneOps*maxVecs)
	l.zeroes = memory.OffHeap(zeroesSize)
	for i := range l.unused {
		l.unused[i] = uint16(laneOps - 1 - i)
	}
	for i := range l.ops {
		l.ops[i].lane, l.ops[i].index = l, uint16(i)
	}
	for i := laneFiles - 1; i >= 0; i-- {
		l.freeFiles = append(l.freeFiles, i)
	}
	return l
}

// free closes the ring. Nobody polls it any more.
func (l *lane) free() {
	l.ring.Close()
	memory.FreeOffHeap(unsafe.Pointer(&l.vecs[0]), vecsSize)
	memory.FreeOffHeap(l.zeroes, zeroesSize)
}

// String names the lane in a crash.
func (l *lane) String() string { return "io_uring of files and block devices" }

// Poll takes in completions and lets waiting IOs go on.
func (l *lane) Poll() int {
	if len(l.reaped) == 0 && l.ring.Pending() {
		l.enter()
	}
	n := len(l.reaped)
	for i := range l.reaped {
		c := &l.reaped[i]
		l.ops[c.UserData].completed(c.Res)
	}
	l.reaped = nil
	if l.hungry != nil {
		n += l.feed()
	}
	return n
}

// Flush submits what the turn made. Completions that come back with it wait for the next Poll: whoever gathers responses
// may have been flushed already.
func (l *lane) Flush() {
	if l.ring.Made() != 0 && len(l.reaped) == 0 {
		l.enter()
	}
}

// enter crosses into the kernel. What it does not take now (short of memory, or too much to reap) it takes next time.
func (l *lane) enter() { l.reaped, _ = l.ring.Enter() }

// FD wakes the reactor.
func (l *lane) FD() int { return l.ring.FD() }

// Arm tells whether the reactor may sleep.
func (l *lane) Arm() bool {
	return l.ring.Arm() && len(l.reaped) == 0 && l.ring.Made() == 0 && l.hungry == nil
}

// Woken acknowledges the wake-up.
func (l *lane) Woken() { l.ring.Disarm() }

// take returns a free op, or nil.
func (l *lane) take() *op {
	if l.nunused == 0 {
		return nil
	}
	l.nunused--
	return &l.ops[l.unused[l.nunused]]
}

func (l *lane) put(o *op) {
	l.unused[l.nunused] = o.index
	l.nunused++
}

// wait puts an IO behind the others of its queue.
func (l *lane) wait(q *queue, io *target.IO) {
	io.Scratch[0] = uint64(l.group.Reactor.Now())
	q.waiting.push(io)
	if !q.hungry {
		q.hungry = true
		l.line(q)
	}
}

// line puts a queue at the end of the line.
func (l *lane) line(q *queue) {
	q.nextHungry = nil
	if l.hungry == nil {
		l.hungry = q
	} else {
		l.hungryLast.nextHungry = q
	}
	l.hungryLast = q
}

// feed starts waiting IOs, one of each queue in turn.
func (l *lane) feed() (started int) {
	for l.hungry != nil {
		o := l.take()
		if o == nil {
			return started
		}
		q := l.hungry
		io := q.waiting.first
		if !o.begin(q, io) {
			l.put(o)
			return started // no buffer: it stays first
		}
		q.waiting.pop()
		l.group.CountWait(target.WaitBackend, l.group.Reactor.Now()-int64(io.Scratch[0]))
		started++
		l.hungry = q.nextHungry
		if q.waiting.first != nil {
			l.line(q)
		} else {
			q.hungry = false
		}
		o.next()
	}
	return started
}

// fixed finds the registered buffer that a run of memory lies in. Memory of elsewhere (a transport's capsules) is in none.
func (l *lane) fixed(addr uintptr, n uint32, slab uint32) (index uint16, ok bool) {
	if uint64(slab) >= uint64(len(l.arenas)) {
		return 0, false
	}
	a := &l.arenas[slab]
	off := uint64(addr - a.base)
	if addr < a.base || off >= a.size || uint64(n) > a.size-off {
		return 0, false
	}
	first, last := off/uring.MaxBuffer, (off+uint64(n)-1)/uring.MaxBuffer
	return a.first + uint16(first), first == last
}

// errnoOf is a completion's error, 0 if there is none.
func errnoOf(res int32) syscall.Errno {
	if res >= 0 {
		return 0
	}
	return syscall.Errno(-res)
}

// list is a queue of IOs, linked by themselves.
type list struct{ first, last *target.IO }

func (l *list) push(io *target.IO) {
	io.Next = nil
	if l.first == nil {
		l.first = io
	} else {
		l.last.Next = io
	}
	l.last = io
}

func (l *list) pop() *target.IO {
	io := l.first
	if io == nil {
		return nil
	}
	if l.first = io.Next; l.first == nil {
		l.last = nil
	}
	io.Next = nil
	return io
}

// retry tells whether an error means: again, later.
func retry(errno syscall.Errno) bool { return errno == syscall.EAGAIN || errno == syscall.EINTR }
