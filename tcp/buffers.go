package tcp

import (
	"time"

	"rocet/memory"
	"rocet/target"
)

// Connections with commands that wait for pool memory take turns, one command
// each, admin queues before all others. A connection that holds its share already
// has no turn until it gives some back, so that one deep queue on a slow namespace
// leaves room.

// bufferRetry is when a shard with waiting commands looks for memory again although
// nothing happened on its reactor: another one's may have given some back.
const bufferRetry = time.Millisecond

// shareOf is the pool memory that one connection may hold: a quarter of a reactor's
// part, and never less than what the largest command needs.
func shareOf(pool uint64, groups int, mdts uint32) uint64 {
	return max(pool/uint64(groups)/4, pages(mdts))
}

// pages is n bytes in whole pages.
func pages(n uint32) uint64 { return (uint64(n) + memory.PageSize - 1) &^ (memory.PageSize - 1) }

// turns is a FIFO of connections.
type turns struct{ head, tail *conn }

func (t *turns) push(c *conn) {
	c.nextTurn, c.inTurn = nil, true
	if t.tail != nil {
		t.tail.nextTurn = c
	} else {
		t.head = c
	}
	t.tail = c
}

func (t *turns) pop() *conn {
	c := t.head
	t.head = c.nextTurn
	if t.head == nil {
		t.tail = nil
	}
	c.nextTurn, c.inTurn = nil, false
	return c
}

func (t *turns) drop(c *conn) {
	var before *conn
	for at := t.head; at != nil; before, at = at, at.nextTurn {
		if at != c {
			continue
		}
		if before == nil {
			t.pop()
			return
		}
		before.nextTurn = c.nextTurn
		if t.tail == c {
			t.tail = before
		}
		c.nextTurn, c.inTurn = nil, false
		return
	}
}

func (s *shard) turnsOf(c *conn) *turns {
	if c.admin {
		return &s.adminTurns
	}
	return &s.ioTurns
}

func (s *shard) waiting() bool { return s.adminTurns.head != nil || s.ioTurns.head != nil }

// over tells whether a connection must give memory back before it gets more.
func (s *shard) over(c *conn, more uint32) bool { return c.held != 0 && c.held+pages(more) > s.share }

// mayAlloc tells whether a command may take memory without waiting for its turn.
func (s *shard) mayAlloc(c *conn, n uint32) bool {
	if c.bufWait.head != nil || s.adminTurns.head != nil || s.ioTurns.head != nil && !c.admin {
		return false
	}
	return !s.over(c, n)
}

// enter gives a connection with waiting commands a turn.
func (s *shard) enter(c *conn) {
	if c.inTurn || s.over(c, c.bufWait.head.req.Length) {
		return
	}
	s.turnsOf(c).push(c)
	s.remind()
}

func (s *shard) remind() {
	if !s.retry.Scheduled() {
		s.r.Schedule(&s.retry, bufferRetry)
	}
}

// forget takes a connection's turn away.
func (s *shard) forget(c *conn) {
	if c.inTurn {
		s.turnsOf(c).drop(c)
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
		c := t.head
		at := c.bufWait.head
		if at == nil || s.over(c, at.req.Length) {
			t.pop()
			continue
		}
		if !c.alloc(at) {
			return false
		}
		t.pop()
		c.bufWait.pop()
		d := max(s.r.Now()-at.since, 0)
		s.stats.BufferWaitNanos += uint64(d)
		s.group.CountWait(target.WaitBuffer, d)
		if c.bufWait.head != nil {
			s.enter(c)
		}
		c.haveBuffers(at)
	}
	return true
}
