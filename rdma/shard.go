package rdma

import (
	"time"

	"rocet/memory"
	"rocet/reactor"
	"rocet/target"
)

// bufferRetry is when a shard with waiting commands looks for memory again although
// nothing happened on its reactor: another one's may have given some back.
const bufferRetry = time.Millisecond

// shard is the transport on one reactor. It holds what its lanes share: the pool
// memory, and the turns of those who wait for it.
//
// Queues with waiting commands take turns, one command each, admin queues before
// all others. A queue that holds its share of the memory already has no turn until
// it gives some back, so that one deep queue on a slow namespace leaves room.
type shard struct {
	group *target.PollGroup
	r     *reactor.Reactor
	mem   *memory.Cache
	share uint64 // bytes of pool memory that one queue may hold

	adminTurns turns
	ioTurns    turns
	retry      reactor.Timer

	load int // weight of the connections placed here, under Transport.mu
}

// turns is a FIFO of queues.
type turns struct{ head, tail *queue }

func (t *turns) push(q *queue) {
	q.nextTurn, q.inTurn = nil, true
	if t.tail != nil {
		t.tail.nextTurn = q
	} else {
		t.head = q
	}
	t.tail = q
}

func (t *turns) pop() *queue {
	q := t.head
	t.head = q.nextTurn
	if t.head == nil {
		t.tail = nil
	}
	q.nextTurn, q.inTurn = nil, false
	return q
}

func (t *turns) drop(q *queue) {
	var before *queue
	for at := t.head; at != nil; before, at = at, at.nextTurn {
		if at != q {
			continue
		}
		if before == nil {
			t.pop()
			return
		}
		before.nextTurn = q.nextTurn
		if t.tail == q {
			t.tail = before
		}
		q.nextTurn, q.inTurn = nil, false
		return
	}
}

func newShard(g *target.PollGroup, share uint64) *shard {
	s := &shard{group: g, r: g.Reactor, mem: g.Mem, share: share}
	s.retry.Fire = s.pump
	return s
}

func (s *shard) turnsOf(q *queue) *turns {
	if q.admin {
		return &s.adminTurns
	}
	return &s.ioTurns
}

func (s *shard) waiting() bool { return s.adminTurns.head != nil || s.ioTurns.head != nil }

// over tells whether a queue must give memory back before it gets more.
func (s *shard) over(q *queue, more uint32) bool {
	return q.held != 0 && q.held+uint64(more) > q.heldMax
}

// mayAlloc tells whether a command may take memory without waiting for its turn.
func (s *shard) mayAlloc(q *queue, at *slot) bool {
	if q.bufWait.head != nil || s.adminTurns.head != nil || s.ioTurns.head != nil && !q.admin {
		return false
	}
	return !s.over(q, at.req.Length)
}

// enter gives a queue with waiting commands a turn.
func (s *shard) enter(q *queue) {
	if q.inTurn || s.over(q, q.bufWait.head.req.Length) {
		return
	}
	s.turnsOf(q).push(q)
	s.remind()
}

func (s *shard) remind() {
	if !s.retry.Scheduled() {
		s.r.Schedule(&s.retry, bufferRetry)
	}
}

// forget takes a queue's turn away.
func (s *shard) forget(q *queue) {
	if q.inTurn {
		s.turnsOf(q).drop(q)
	}
}

// pump serves those who wait, as far as there is memory.
func (s *shard) pump() {
	if s.serve(&s.adminTurns) {
		s.serve(&s.ioTurns)
	}
	if s.waiting() {
		s.remind()
	}
}

// serve returns false if memory ran out.
func (s *shard) serve(t *turns) bool {
	for t.head != nil {
		q := t.head
		at := q.bufWait.head
		if at == nil || s.over(q, at.req.Length) {
			t.pop()
			continue
		}
		if !q.alloc(at) {
			return false
		}
		t.pop()
		q.waited(q.bufWait.pop(), target.WaitBuffer, &q.lane.stats.BufferWaitNanos)
		if q.bufWait.head != nil {
			s.enter(q)
		}
		q.haveBuffers(at)
	}
	return true
}
