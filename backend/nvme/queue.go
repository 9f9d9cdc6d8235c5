package drive

import (
	"slices"

	"rocet/nvme"
	"rocet/nvme/pcie"
	"rocet/reactor"
	"rocet/target"
)

// queue is a drive's queue pair on a reactor, which polls it. The namespaces of the drive share it. Everything but users
// is the reactor's.
type queue struct {
	reactor *reactor.Reactor
	pcie    *pcie.Queue
	users   int // nsQueues; drive.mu protects it

	ops     []op // one for each command that the queue pair can take, and each request that it splits
	freeOps *op

	// Namespaces that have requests waiting, served in turn.
	waiting []*nsQueue
	turn    int
	timer   reactor.Timer

	awake    awake
	activeAt int64 // when something was submitted or completed last
	pollFor  int64 // how long the reactor stays awake after that
}

// op is a request that the queue pair has.
type op struct {
	queue *queue
	ns    *nsQueue
	io    *target.IO
	next  *op
}

// Complete hears of its end.
func (o *op) Complete(st nvme.Status) {
	q, ns, io := o.queue, o.ns, o.io
	o.ns, o.io = nil, nil
	o.next, q.freeOps = q.freeOps, o
	ns.finish(io, st)
}

// polled is a queue that the reactor has to poll all the time; sleeper one that an interrupt wakes.
type polled struct{ q *queue }

type sleeper struct{ polled }

func (p polled) Poll() int { return p.q.poll() }
func (p polled) Flush()    { p.q.pcie.Flush() }

func (s sleeper) FD() int   { return s.q.pcie.FD() }
func (s sleeper) Arm() bool { return s.q.pcie.Arm() }
func (s sleeper) Woken()    { s.q.pcie.Woken() }

// awake keeps the reactor from sleeping, by being a poller that is no sleeper, while a drive has just got something to do:
// its answer is due in less time than an interrupt and a system call take. It is there only then.
type awake struct {
	q     *queue
	there bool
}

// Poll does nothing, and goes away when it has been quiet for long enough.
func (a *awake) Poll() int {
	if q := a.q; q.reactor.Now()-q.activeAt > q.pollFor {
		a.there = false
		q.reactor.Remove(a)
	}
	return 0
}

// stayAwake notes that the drive has got something to do.
func (q *queue) stayAwake() {
	q.activeAt = q.reactor.Now()
	if !q.awake.there && q.pollFor > 0 {
		q.awake.there = true
		q.reactor.Add(&q.awake)
	}
}

func (q *queue) poller() reactor.Poller {
	if q.pcie.FD() < 0 {
		return polled{q}
	}
	return sleeper{polled{q}}
}

// start and stop run on the reactor.
func (q *queue) start() {
	q.pcie.Claim()
	q.reactor.Add(q.poller())
}

func (q *queue) stop() {
	q.reactor.Cancel(&q.timer)
	q.reactor.Remove(q.poller())
	if q.awake.there {
		q.reactor.Remove(&q.awake)
	}
}

func (q *queue) poll() int {
	n := q.pcie.Poll()
	if n > 0 {
		q.activeAt = q.reactor.Now()
	}
	if len(q.waiting) > 0 {
		n += q.retry()
	}
	return n
}

// retry submits what waits, one of each namespace in turn, until there is no room.
func (q *queue) retry() (n int) {
	for ; len(q.waiting) > 0 && q.pcie.Room(); n++ {
		if q.turn >= len(q.waiting) {
			q.turn = 0
		}
		ns := q.waiting[q.turn]
		io := ns.first
		ns.first = io.Next
		io.Next = nil
		// Before it is sent: it may complete at once, and be followed by others.
		if ns.first == nil {
			q.waiting = slices.Delete(q.waiting, q.turn, q.turn+1)
		} else {
			q.turn++
		}
		ns.send(io)
	}
	return n
}

// tick is the queue pair's clock, which runs while anything is under way.
func (q *queue) tick() {
	q.pcie.Tick()
	if q.pcie.Busy() || len(q.waiting) > 0 {
		q.reactor.Schedule(&q.timer, pcie.TickInterval)
	}
}

// opcodes are the drive's names of the target's operations.
var opcodes = [target.NumOps]nvme.Opcode{
	target.OpRead:        nvme.OpRead,
	target.OpWrite:       nvme.OpWrite,
	target.OpFlush:       nvme.OpFlush,
	target.OpWriteZeroes: nvme.OpWriteZeroes,
	target.OpDeallocate:  nvme.OpDatasetManagement,
	target.OpCompare:     nvme.OpCompare,
	target.OpVerify:      nvme.OpVerify,
}

// nsQueue is a namespace on a reactor.
type nsQueue struct {
	backend *Backend
	queue   *queue
	deac    bool // the drive knows the Deallocate bit of Write Zeroes
	out     int  // submitted and not completed, with those that wait
	first   *target.IO
	last    *target.IO
	closed  func()
}

// Submit hands an operation to the drive, or keeps it until there is room.
func (s *nsQueue) Submit(io *target.IO) {
	q := s.queue
	s.out++
	q.stayAwake()
	if !q.timer.Scheduled() {
		q.reactor.Schedule(&q.timer, pcie.TickInterval)
	}
	if len(q.waiting) == 0 && q.pcie.Room() {
		s.send(io)
		return
	}
	io.Next = nil
	if s.first == nil {
		s.first = io
		q.waiting = append(q.waiting, s)
	} else {
		s.last.Next = io
	}
	s.last = io
}

// send gives an operation to the queue pair, which has room.
func (s *nsQueue) send(io *target.IO) {
	q := s.queue
	o := q.freeOps
	q.freeOps = o.next
	o.ns, o.io = s, io
	r := pcie.Request{NS: s.backend.ns, Op: opcodes[io.Op], LBA: io.LBA, Blocks: io.Blocks, Data: io.Data, Done: o}
	if io.Op == target.OpDeallocate {
		r.Flags = nvme.DSMDeallocate
	} else {
		if io.Flags&target.FUA != 0 {
			r.Flags |= nvme.CDW12FUA
		}
		if io.Flags&target.LimitedRetry != 0 {
			r.Flags |= nvme.CDW12LR
		}
		if io.Flags&target.Deallocate != 0 && s.deac {
			r.Flags |= nvme.CDW12DEAC
		}
	}
	if !q.pcie.TrySubmit(&r) {
		panic("drive: a queue with room takes nothing")
	}
}

// finish ends an operation.
func (s *nsQueue) finish(io *target.IO, st nvme.Status) {
	s.out--
	io.Complete(st)
	s.closeIfIdle()
}

// Close ends the namespace's use of the queue.
func (s *nsQueue) Close(done func()) {
	s.closed = done
	s.closeIfIdle()
}

func (s *nsQueue) closeIfIdle() {
	if s.closed == nil || s.out > 0 {
		return
	}
	done := s.closed
	s.closed = nil
	// What follows takes admin commands and locks.
	b := s.backend
	go b.drive.release(s.queue, func() {
		b.queues.Add(-1)
		done()
	})
}
