package rdma

import (
	"errors"
	"fmt"
	"syscall"

	"rocet/cgo/verbs"
	"rocet/reactor"
)

const (
	pollBatch = 128 // completions that one poll takes
	// pollSpin is how often an idle poll looks again before it returns: a
	// microsecond or two inside C, where the Go runtime doesn't interrupt it.
	pollSpin = 32
)

// lane is what a reactor polls: one completion queue of one device, and the queues
// whose completions arrive there. Everything is the reactor's, but for the fields
// under the device's lock.
type lane struct {
	_     [128]byte // no other writer's line
	dev   *device
	shard *shard
	cq    verbs.CQ
	srq   *sharedRecvs // nil: the queues have receives of their own
	post  verbs.Provider

	queues    []*queue // by the index in a work request's id
	live      int
	dirty     []*queue // with work in this turn's batch
	answered  slotList // whose response is in it
	ops       []verbs.PostOp
	wcs       []verbs.WC
	mem       block
	executing int      // commands of I/O queues that are with the target: their backends are polled by others
	idle      bool     // the last poll found nothing
	dead      bool     // the completion queue failed
	lastWQE   []*queue // the device takes no more shared receives for them; its completions may still be in the queue

	stats LaneStats
	_     [128]byte

	// Under dev.mu.
	cqesFree int
	slots    []laneSlot // of the table of queues
	retired  bool       // takes no more queues
}

// laneSlot is an entry of the table as the control plane sees it.
type laneSlot struct {
	gen  uint16
	used bool
}

func (l *lane) String() string {
	return fmt.Sprintf("rdma %s, reactor %d", l.dev.name, l.shard.r.ID())
}

// FD, Arm and Woken implement reactor.Sleeper.
func (l *lane) FD() int { return l.cq.FD() }

func (l *lane) Arm() bool {
	if l.dead {
		return true
	}
	if len(l.dirty) != 0 || l.srq != nil && l.srq.tail != nil {
		return false // made after this lane's flush, by another lane's
	}
	if err := l.cq.Arm(); err != nil {
		l.fail(fmt.Errorf("arm the completion queue: %w", err))
	}
	l.stats.Arms++
	return true
}

func (l *lane) Woken() {
	l.stats.Wakes++
	if err := l.cq.Ack(); err != nil && !l.dead {
		l.fail(fmt.Errorf("acknowledge completion events: %w", err))
	}
}

// Poll implements reactor.Poller.
func (l *lane) Poll() int {
	if l.dead {
		return 0
	}
	spin := 0
	if l.idle && l.executing == 0 && l.live != 0 {
		spin = pollSpin
	}
	n := l.cq.Poll(l.wcs, spin)
	l.stats.Polls++
	if n <= 0 {
		if n < 0 {
			l.fail(errors.New("the completion queue is broken: it overran, or the device is gone"))
			return 1
		}
		l.idle = true
		if len(l.lastWQE) != 0 {
			l.sharedDrained()
		}
		return 0
	}
	l.idle = false
	l.stats.Completions += uint64(n)
	for i := range l.wcs[:n] {
		l.completion(&l.wcs[i])
	}
	if n < len(l.wcs) && len(l.lastWQE) != 0 {
		l.sharedDrained()
	}
	return n
}

// completion takes one completion.
func (l *lane) completion(wc *verbs.WC) {
	id := wrID(wc.ID)
	kind := id.kind()
	if kind == wrRecv && l.srq != nil {
		l.sharedRecv(wc, id)
		return
	}
	if int(id.queue()) >= len(l.queues) {
		l.stats.Stale++
		return
	}
	q := l.queues[id.queue()]
	if q == nil || q.gen != id.queueGen() {
		l.stats.Stale++ // of a queue pair that was destroyed meanwhile
		return
	}
	if wc.Status != verbs.StatusSuccess {
		l.failed(q, wc, kind)
	}
	switch kind {
	case wrRecv:
		q.recvPosted--
		if wc.Status == verbs.StatusSuccess {
			q.capsule(id.slot(), wc.ByteLen)
		}
		if q.state == queueDraining {
			q.checkDrained()
		}
	case wrSend:
		q.completed(id, ringSend, wc.Status == verbs.StatusSuccess)
	case wrRead:
		q.completed(id, ringRead, wc.Status == verbs.StatusSuccess)
	}
}

// errFlushed is the reason of a queue whose first bad news is that its work was
// flushed: the queue pair left for the error state by itself, mostly because the
// host is gone.
var errFlushed = errors.New("the queue pair went to the error state")

// wcError is a completion with an error.
type wcError struct {
	kind   wrKind
	status verbs.WCStatus
	vendor uint32
}

func (e *wcError) Error() string {
	return fmt.Sprintf("%v failed: %v (vendor error %#x)", e.kind, e.status, e.vendor)
}

// failed takes the error of a completion. Flushes are what draining looks like.
func (l *lane) failed(q *queue, wc *verbs.WC, kind wrKind) {
	if wc.Status == verbs.StatusWRFlushErr {
		l.stats.Flushes++
		q.shut(errFlushed)
		return
	}
	l.stats.Errors++
	if q.state < queueDraining {
		q.shut(&wcError{kind, wc.Status, wc.VendorErr})
	}
}

// Flush implements reactor.Flusher: one crossing posts what the turn made for all
// queues.
func (l *lane) Flush() {
	if l.shard.waiting() {
		l.shard.pump()
	}
	if len(l.dirty) == 0 && (l.srq == nil || l.srq.tail == nil) {
		return
	}
	ops := l.ops[:0]
	if l.srq != nil && l.srq.tail != nil {
		ops = append(ops, verbs.PostOp{SRQ: l.srq.handle, Recv: l.srq.head})
		l.srq.head, l.srq.tail = 0, nil
		l.stats.Doorbells++
	}
	first := len(ops)
	for _, q := range l.dirty {
		op := verbs.PostOp{QP: q.qp, Send: q.sendHead, Recv: q.recvHead}
		if q.sendTail != nil {
			// The last one tells of all.
			q.sendTail.Flags |= verbs.SendSignaled
			l.stats.Doorbells++
		}
		if q.recvTail != nil {
			l.stats.Doorbells++
		}
		ops = append(ops, op)
		q.sendHead, q.sendTail, q.recvHead, q.recvTail = 0, nil, 0, nil
		q.dirty = false
	}
	l.ops = ops
	l.stats.Posts++
	l.account()
	if l.dead {
		l.dirty = l.dirty[:0]
		return
	}
	if l.post.Post(ops) != 0 {
		l.postFailed(ops, first)
	}
	l.dirty = l.dirty[:0]
}

// account gives the turn's responses their latency: one look at the clock for all.
func (l *lane) account() {
	if l.answered.head == nil {
		return
	}
	now := reactor.Clock()
	for l.answered.head != nil {
		l.shard.group.Account(&l.answered.pop().req, now)
	}
}

// postFailed ends the queues whose work could not be posted.
func (l *lane) postFailed(ops []verbs.PostOp, first int) {
	for i := range ops {
		if ops[i].Err == 0 {
			continue
		}
		err := syscall.Errno(ops[i].Err)
		if i < first {
			l.fail(fmt.Errorf("post shared receives: %w", err))
			return
		}
		what := "sends"
		if ops[i].BadRecv != 0 {
			what = "receives"
		}
		l.stats.PostErrors++
		l.dirty[i-first].broken(fmt.Errorf("post %s: %w", what, err))
	}
}

// fail gives the lane up: its completion queue can't be relied on.
func (l *lane) fail(reason error) {
	if l.dead {
		return
	}
	l.dead = true
	for _, q := range l.queues {
		if q != nil {
			q.broken(reason)
		}
	}
	l.dev.retire(l, reason)
}

// add and remove keep the table. On the reactor.
func (l *lane) add(q *queue) {
	for len(l.queues) <= int(q.index) {
		l.queues = append(l.queues, nil)
	}
	l.queues[q.index] = q
	l.live++
	if n := l.live + 1; cap(l.ops) < n {
		l.ops = make([]verbs.PostOp, 0, 2*n)
		l.dirty = append(make([]*queue, 0, 2*n), l.dirty...)
	}
	if l.srq != nil {
		l.srq.byQPN.put(q.qpn, q)
	}
	if l.dead {
		q.broken(errors.New("the completion queue failed"))
	}
}

func (l *lane) remove(q *queue) {
	l.queues[q.index] = nil
	l.live--
	if l.srq != nil {
		l.srq.byQPN.drop(q.qpn)
	}
}
