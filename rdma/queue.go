package rdma

import (
	"fmt"

	"rocet/cgo/verbs"
	"rocet/internal/invariants"
	"rocet/memory"
	"rocet/nvme"
	"rocet/target"
)

// queueState is the life of a queue, kept by its reactor.
type queueState uint8

const (
	queueConnecting queueState = iota // receives are posted; capsules are parked until ESTABLISHED
	queueLive
	queueDraining // the connection ends: what is under way comes back, nothing new starts
	queueDetached // the queue pair is destroyed and everything is back
)

// queue is one queue pair with the commands on it. Its reactor owns it from attach
// to detach; before and after its connection's goroutine does.
type queue struct {
	owner  invariants.Owner
	lane   *lane
	shard  *shard
	tq     *target.Queue
	conn   *conn
	state  queueState
	admin  bool
	shared bool // receives come from the lane's shared receive queue
	quiet  bool // no command came yet
	dirty  bool // in lane.dirty
	inTurn bool // in shard.turns or shard.adminTurns
	index  uint16
	gen    uint16
	qp     uintptr
	qpn    uint32

	// This turn's batch.
	sendHead uintptr
	sendTail *verbs.SendWR
	recvHead uintptr
	recvTail *verbs.RecvWR

	slots []slot
	free  []uint16
	recvs *recvs // of its own, or the lane's
	lkeys []uint32
	depth int

	sendCredits int // send work requests for responses
	readCredits int // for READs: the READ depth
	maxSGE      int // of a WRITE
	maxReadSGE  int
	maxDesc     int
	canInv      bool
	sendFlags   verbs.SendFlags // of responses: inline or not

	// ring is what was posted to the send queue and has not completed, in order.
	ring       []uint32
	ringMask   uint32
	ringHead   uint32
	ringTail   uint32
	recvPosted int // receives of its own that are with the device

	parked     []uint16 // a ring of receive buffers with capsules that no slot was free for
	parkedHead int
	parkedN    int

	bufWait, readWait, sendWait slotList
	wide                        *wideBlock

	held     uint64 // bytes of pool memory
	heldMax  uint64
	nextTurn *queue // in shard.turns

	executing int // commands with the target
	polled    int // what each counts for in lane.executing: 1 on I/O queues
	inUse     int // slots that are not free
	noFlush   bool
	lastWQE   bool
	drained   bool

	mem    block
	wrs    []slotWR
	blocks []wideBlock
}

// Entries of queue.ring.
const (
	ringSend = 0
	ringRead = 1
)

// queueSpec is what a queue is made of.
type queueSpec struct {
	depth      int
	readDepth  int
	maxSGE     int
	maxReadSGE int
	maxDesc    int
	sendMax    int // send work requests that the device allows
}

// slotsFor is how many commands a queue of a depth takes at once: the host may send
// the next one before the completion of the last response was polled.
func (q queueSpec) slots() int { return q.depth + max(4, q.depth/4) }

// wide is how many wide blocks a queue has: a few if one work request is enough for
// nearly every command, more if the device's work requests are small.
func (q queueSpec) wide() int {
	if min(q.maxSGE, q.maxReadSGE) < inlineSGEs {
		return max(4, q.depth/4)
	}
	return 4
}

// responses is how many send work requests responses share: for every slot a WRITE
// and a SEND, and at least the largest chain.
func (q queueSpec) responses() int {
	wrs, _ := wideSizes(q.maxDesc, q.maxSGE)
	return max(wrs+1, min(2*q.slots(), q.sendMax-q.readDepth))
}

func (q queueSpec) sendWRs() int { return q.responses() + q.readDepth }

// cqes is how many completions the queue can cause before anybody polls. With
// shared receives those are counted by the lane.
func (q queueSpec) cqes(shared bool) int {
	n := q.sendWRs()
	if !shared {
		n += q.depth
	}
	return n
}

// newQueue makes a queue with everything but its queue pair.
func newQueue(spec queueSpec, r *recvs, responses memory.Segment, lkeys []uint32, inline bool) *queue {
	n := spec.slots()
	wrs, sges := wideSizes(spec.maxDesc, min(spec.maxSGE, spec.maxReadSGE))
	wide := spec.wide()
	q := &queue{
		quiet: true, recvs: r, lkeys: lkeys, depth: spec.depth,
		slots: make([]slot, n), free: make([]uint16, n), parked: make([]uint16, spec.depth),
		sendCredits: spec.responses(), readCredits: spec.readDepth,
		maxSGE: spec.maxSGE, maxReadSGE: spec.maxReadSGE, maxDesc: spec.maxDesc,
		blocks: make([]wideBlock, wide),
	}
	ring := 1
	for ring < 2*n {
		ring *= 2
	}
	q.ring, q.ringMask = make([]uint32, ring), uint32(ring-1)
	q.mem = newBlock(carved[slotWR](n) + wide*(carved[verbs.SendWR](wrs)+carved[verbs.SGE](sges)))
	q.wrs = carve[slotWR](&q.mem, n)
	if inline {
		q.sendFlags = verbs.SendInline
	}
	for i := range q.slots {
		s, w := &q.slots[i], &q.wrs[i]
		s.index, s.recv, s.wr = uint16(i), noRecv, w
		s.req.Tag = uint32(i)
		at := responses.Slice(uint32(i)*nvme.CompletionSize, nvme.CompletionSize)
		s.cqe = completionAt(at)
		w.respSGE = verbs.SGE{Addr: uint64(at.Addr), Length: nvme.CompletionSize, LKey: lkeys[at.Slab]}
		if inline {
			s.cqe = &w.cqe
			w.respSGE = verbs.SGE{Addr: uint64(cqeAddr(s.cqe)), Length: nvme.CompletionSize}
		}
		w.resp = verbs.SendWR{SGList: sgeAddr(&w.respSGE), NumSGE: 1}
		w.data = verbs.SendWR{SGList: sgeAddr(&w.sge[0])}
		q.free[n-1-i] = uint16(i) // the first slots are used first
	}
	for i := range q.blocks {
		b := &q.blocks[i]
		b.wrs = carve[verbs.SendWR](&q.mem, wrs)
		b.sges = carve[verbs.SGE](&q.mem, sges)
		q.giveWide(b)
	}
	return q
}

func (q *queue) takeWide() *wideBlock {
	b := q.wide
	if b != nil {
		q.wide, b.next = b.next, nil
	}
	return b
}

func (q *queue) giveWide(b *wideBlock) {
	b.next = q.wide
	q.wide = b
}

// ---- receives ----

// capsule takes a capsule of n bytes from receive buffer recv.
func (q *queue) capsule(recv uint16, n uint32) {
	q.recvs.bytes[recv] = n
	switch {
	case q.state > queueLive:
		q.dropRecv(recv)
	case n < nvme.CommandSize:
		q.dropRecv(recv)
		q.shut(fmt.Errorf("a capsule of %d bytes came, a command has %d", n, nvme.CommandSize))
	case q.state == queueConnecting || len(q.free) == 0 || q.parkedN > 0:
		q.park(recv)
	default:
		q.start(recv)
	}
}

func (q *queue) park(recv uint16) {
	if q.parkedN == len(q.parked) {
		q.dropRecv(recv)
		q.shut(fmt.Errorf("the host sent more than the %d commands of its queue at once", q.depth))
		return
	}
	if q.state == queueLive {
		q.lane.stats.SlotWaits++
	}
	q.parked[(q.parkedHead+q.parkedN)%len(q.parked)] = recv
	q.parkedN++
}

func (q *queue) unpark() uint16 {
	recv := q.parked[q.parkedHead]
	q.parkedHead = (q.parkedHead + 1) % len(q.parked)
	q.parkedN--
	return recv
}

// establish is the connection manager's ESTABLISHED: capsules may be answered.
func (q *queue) establish() {
	q.owner.Check()
	if q.state == queueConnecting {
		q.state = queueLive
		q.pump()
	}
}

// giveRecv posts a receive buffer again, with this turn's batch.
func (q *queue) giveRecv(recv uint16) {
	if q.shared {
		q.lane.srq.give(recv)
		return
	}
	w := &q.recvs.wrs[recv]
	w.Next = 0
	if q.recvTail == nil {
		q.recvHead = recvAddr(w)
	} else {
		q.recvTail.Next = recvAddr(w)
	}
	q.recvTail = w
	q.recvPosted++
	q.mark()
}

// dropRecv is the end of a receive buffer whose queue ends: a shared one goes back
// to the others.
func (q *queue) dropRecv(recv uint16) {
	if q.shared {
		q.lane.srq.give(recv)
	}
}

// ---- the send queue ----

// mark puts the queue into this turn's batch.
func (q *queue) mark() {
	if !q.dirty {
		q.dirty = true
		q.lane.dirty = append(q.lane.dirty, q)
	}
}

// link appends a chain of send work requests to this turn's batch.
func (q *queue) link(first, last *verbs.SendWR) {
	last.Next = 0
	if q.sendTail == nil {
		q.sendHead = sendAddr(first)
	} else {
		q.sendTail.Next = sendAddr(first)
	}
	q.sendTail = last
	q.mark()
}

func (q *queue) pushRing(s *slot, kind uint32) {
	invariants.Assert(q.ringTail-q.ringHead < uint32(len(q.ring)), "the ring of posted work is full")
	q.ring[q.ringTail&q.ringMask] = uint32(s.index)<<1 | kind
	q.ringTail++
}

// completed takes a completion of the send queue: everything that was posted before
// it is done too, the unsignalled included.
func (q *queue) completed(id wrID, kind uint32, ok bool) {
	s := &q.slots[id.slot()]
	want := slotResponding
	if kind == ringRead {
		want = slotReading
	}
	if s.gen&slotGenMask != id.slotGen() || s.state != want {
		q.lane.stats.Stale++
		return
	}
	last := uint32(s.index)<<1 | kind
	for q.ringHead != q.ringTail {
		e := q.ring[q.ringHead&q.ringMask]
		q.ringHead++
		at := &q.slots[e>>1]
		if e&1 == ringRead {
			q.readDone(at, ok || e != last)
		} else {
			q.sent(at)
		}
		if e == last {
			break
		}
	}
	if q.state == queueLive {
		q.pump()
	} else {
		q.checkDrained()
	}
}

// pump lets what waits on this queue go on, as far as there is room: responses
// first, they free the most.
func (q *queue) pump() {
	for q.sendWait.head != nil && q.trySend(q.sendWait.head) {
		q.waited(q.sendWait.pop(), target.WaitWork, &q.lane.stats.SendWaitNanos)
	}
	if q.readWait.head != nil {
		q.pumpReads()
	}
	for q.parkedN > 0 && len(q.free) > 0 && q.state == queueLive {
		q.start(q.unpark())
	}
}

// waited counts a wait that is over.
func (q *queue) waited(s *slot, why target.WaitReason, total *uint64) {
	d := max(q.shard.r.Now()-s.since, 0)
	*total += uint64(d)
	q.shard.group.CountWait(why, d)
}
