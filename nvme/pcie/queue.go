package pcie

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"rocet/internal/invariants"
	"rocet/memory"
	"rocet/nvme"
	"rocet/nvme/vfio"
)

// Statuses that the driver itself ends requests with. A host may retry all of them.
const (
	// StatusReset ends what the drive had when it was reset or went away.
	StatusReset = nvme.StatusTransientTransport
	// StatusGone ends what was submitted while the drive was not there for too long.
	StatusGone = nvme.StatusNamespaceNotReady
)

// Completer hears of a request's end, once, on the queue's goroutine. It may submit again from there.
type Completer interface{ Complete(st nvme.Status) }

// Request is an I/O command for a namespace. TrySubmit takes a copy, but Data must stay as it is until the end.
type Request struct {
	NS     *Namespace
	Op     nvme.Opcode // Read, Write, Compare, Write Zeroes, Verify, Flush or Dataset Management
	Flags  uint32      // of CDW12: FUA, LR, DEAC; of CDW11 for Dataset Management
	Blocks uint32      // for Dataset Management the number of ranges
	LBA    uint64
	Data   []memory.Segment // exactly Blocks long; for Dataset Management one segment of ranges
	Done   Completer
}

// A command identifier is the slot's number, and above it a count of the slot's uses: a completion that comes twice
// does not end the slot's next command.
const (
	cidSlotBits = 10
	cidSlotMask = 1<<cidSlotBits - 1
	cidUseMask  = 1<<(16-cidSlotBits) - 1
)

type slotState uint8

const (
	slotFree    slotState = iota
	slotBusy              // the drive has its command
	slotAborted           // its timeout was reported, and an abort is under way
	slotStuck             // that did not help, and was reported too
)

// slot is what a queue knows about a command that the drive has.
type slot struct {
	done   Completer // nil: a part of parent
	parent *parent
	born   uint32 // tick of submission
	uses   uint16
	state  slotState
	slow   bool // an operation that drives take their time for
}

type queueState uint8

const (
	queueFrozen queueState = iota // takes nothing; the drive is being reset, or has gone and is waited for
	queueLive
	queueDraining // takes nothing new, and finishes what it has: the drive is to be given back
	queueFailed   // ends everything at once: the drive did not come back in time
)

// maxPoll bounds the completions that one Poll handles.
const maxPoll = 64

// Queue is an I/O queue pair. All methods are for the one goroutine that its Executor runs functions on.
type Queue struct {
	owner invariants.Owner

	// Submission.
	sq       unsafe.Pointer
	sqBell   doorbell
	tail     uint32
	depth    uint32 // entries; one less can be outstanding
	state    queueState
	sgl      bool   // the drive takes SGLs
	sglBytes bool   // of any alignment; else of dwords
	sglMax   uint32 // descriptors from which on the drive is slower
	table    *vfio.Table
	slots    []slot
	free     []uint16 // stack of free slots
	lists    unsafe.Pointer
	listIOVA uint64
	ticks    uint32

	// Commands that are submitted in parts.
	parents     []parent
	freeParents *parent
	splitting   *parent // not sent to its end: there was no slot left

	// Completion.
	cq     unsafe.Pointer
	cqBell doorbell
	head   uint32
	phase  uint32
	broken bool // the completion queue has what cannot be; reported

	// Interrupts.
	mask  vfio.Mask
	fd    int // -1: no vector for this queue
	armed bool

	drive   *Drive
	id      uint16
	exec    Executor
	closing func()
	polling bool // inside Poll
	gone    bool // deleted from the drive
	stats   Stats
	rings   *rings
	count   [8]byte // an eventfd's: on the stack it would be garbage
}

// Stats counts what a queue did. Read it on the queue's goroutine.
type Stats struct {
	Submitted   uint64 // commands that the drive got
	Completed   uint64
	Failed      uint64 // of them with an error status
	Split       uint64 // requests that were more than one command
	SGL         uint64 // commands with an SGL instead of PRPs
	Full        uint64 // requests that found no room
	Doorbells   uint64 // register writes
	Shadowed    uint64 // doorbells that the drive's shadow spared
	TimedOut    uint64
	Ended       uint64 // commands that a reset or a removal ended
	Refused     uint64 // requests that were ended because the drive is not there
	Misaligned  uint64 // requests whose data the drive cannot take
	Outstanding int
}

// ID returns the queue's identifier.
func (q *Queue) ID() uint16 { return q.id }

// Drive returns the drive that the queue belongs to.
func (q *Queue) Drive() *Drive { return q.drive }

// Stats returns the counters.
func (q *Queue) Stats() Stats {
	s := q.stats
	s.Outstanding = q.Outstanding()
	return s
}

// Outstanding returns how many commands the drive has.
func (q *Queue) Outstanding() int { return int(q.depth) - 1 - len(q.free) }

// Busy tells whether anything waits for the drive, so that Tick has work.
func (q *Queue) Busy() bool { return q.Outstanding() > 0 || q.splitting != nil }

func newQueue(d *Drive, id uint16, exec Executor, fd int) *Queue {
	q := &Queue{drive: d, id: id, exec: exec, table: d.cfg.Table, fd: fd, rings: &d.layout.rings[id-1]}
	q.sq, q.cq, q.lists = q.rings.sq.ptr, q.rings.cq.ptr, q.rings.lists.ptr
	most := d.cfg.Depth
	q.slots = make([]slot, most-1)
	q.parents = make([]parent, most-1)
	q.free = make([]uint16, 0, most-1)
	q.depth = 1 // no slots before the first attach
	for i := range q.parents {
		q.parents[i].next, q.freeParents = q.freeParents, &q.parents[i]
	}
	return q
}

// link is what a queue gets from a controller that is ready for it.
type link struct {
	depth    int
	sqBell   doorbell
	cqBell   doorbell
	listIOVA uint64
	mask     vfio.Mask
	sgls     uint32
}

// attach makes an empty queue live. Nothing is outstanding.
func (q *Queue) attach(l link) {
	invariants.Assert(q.Outstanding() == 0, "a queue is attached while commands are outstanding")
	q.depth = uint32(l.depth)
	q.free = q.free[:0]
	for i := int(q.depth) - 2; i >= 0; i-- {
		q.free = append(q.free, uint16(i))
	}
	q.sqBell, q.cqBell, q.mask, q.listIOVA = l.sqBell, l.cqBell, l.mask, l.listIOVA
	q.tail, q.head, q.phase = 0, 0, 1
	q.broken, q.armed = false, false
	q.sgl = l.sgls&3 != nvme.SGLSNotSupported
	q.sglBytes = l.sgls&3 == nvme.SGLSSupported
	q.sglMax = sglEntries
	if t := l.sgls >> nvme.SGLSThresholdShift & 0xff; t != 0 {
		q.sglMax = min(q.sglMax, t)
	}
	q.state = queueLive
	q.resume()
}

// drain makes the queue take nothing new.
func (q *Queue) drain() {
	if q.state == queueLive {
		q.state = queueDraining
	}
}

// works tells whether the drive works on the queue.
func (q *Queue) works() bool { return q.state == queueLive || q.state == queueDraining }

// freeze stops the queue: the drive is being reset or gone. What it has stays outstanding.
func (q *Queue) freeze() {
	q.state = queueFrozen
	q.disarm()
}

// end completes what the drive had, and what was being split. The queue is frozen, and the drive does no DMA any more.
func (q *Queue) end() {
	q.reap(int(q.depth)) // what it finished before it was stopped
	for i := range q.slots[:q.depth-1] {
		if q.slots[i].state != slotFree {
			q.stats.Ended++
			q.finish(uint16(i), StatusReset)
		}
	}
	if p := q.splitting; p != nil {
		p.fail(q, StatusReset)
		p.settle(q)
	}
	q.closeIfIdle()
}

// expire makes a frozen queue end at once what is submitted: it has waited long enough.
func (q *Queue) expire() {
	if q.state == queueFrozen {
		q.state = queueFailed
	}
}

// Tick counts time for commands that don't come back. It must be called every TickInterval while the queue is Busy.
func (q *Queue) Tick() {
	q.owner.Check()
	q.ticks++
	if !q.works() || len(q.free) == int(q.depth)-1 {
		return
	}
	for i := range q.slots[:q.depth-1] {
		s := &q.slots[i]
		if s.state == slotFree {
			continue
		}
		limit := q.drive.timeoutTicks
		if s.slow {
			limit *= slowFactor
		}
		age := q.ticks - s.born
		switch {
		case s.state == slotBusy && age > limit:
			s.state = slotAborted
			q.stats.TimedOut++
			q.drive.reportTimeout(q.id, q.cid(uint16(i)))
		case s.state == slotAborted && age > limit+q.drive.abortTicks:
			s.state = slotStuck
			q.drive.report(reportStuck)
		}
	}
}

// TickInterval is how often Tick wants to be called.
const TickInterval = 250 * time.Millisecond

// slowFactor is how much longer Flush, Write Zeroes and Dataset Management may take.
const slowFactor = 3

func ticks(d time.Duration) uint32 {
	return uint32((d + TickInterval - 1) / TickInterval)
}

func (q *Queue) cid(i uint16) uint16 { return i | q.slots[i].uses<<cidSlotBits }

// FD becomes readable with the next completion after Arm; -1: the drive has no interrupt vector for this queue. It stays
// the same for the queue's life.
func (q *Queue) FD() int { return q.fd }

// Arm asks for an interrupt, and returns false if there are completions already.
func (q *Queue) Arm() bool {
	q.owner.Check()
	if !q.works() {
		return true // the drive's recovery is posted
	}
	if !q.armed {
		q.mask.Set(false)
		q.armed = true
	}
	if q.ready() {
		q.disarm()
		return false
	}
	return true
}

// Woken takes note that FD was readable.
func (q *Queue) Woken() {
	_, _ = unix.Read(q.fd, q.count[:]) // EAGAIN: it was not
	q.disarm()
}

func (q *Queue) disarm() {
	if q.armed {
		q.mask.Set(true)
		q.armed = false
	}
}

// Claim makes the calling goroutine the queue's, in debug builds: every later call must come from it.
func (q *Queue) Claim() { q.owner.Claim() }

// Close ends the queue. done runs on the queue's goroutine when nothing is outstanding and the drive has let go of it.
// Nothing may be submitted after Close.
func (q *Queue) Close(done func()) {
	q.owner.Check()
	q.closing = done
	q.closeIfIdle()
}

func (q *Queue) closeIfIdle() {
	if q.closing == nil || q.polling || q.Busy() || q.gone {
		return
	}
	q.gone = true
	q.disarm()
	// Deleting it takes admin commands, which must not keep a reactor.
	go q.drive.deleteQueue(q)
}
