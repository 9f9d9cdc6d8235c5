package rdma

import (
	"errors"

	"rocet/internal/invariants"
	"rocet/nvme"
)

// Close implements target.Conn: the target ends the queue.
func (q *queue) Close(reason error) { q.shut(reason) }

// shut begins the end of a queue, once: what waits ends now, what is with the
// device or with the target when it comes back. Nothing is posted any more.
func (q *queue) shut(reason error) {
	q.owner.Check()
	if q.state >= queueDraining {
		return
	}
	q.state = queueDraining
	q.shard.forget(q)
	for q.bufWait.head != nil {
		q.tq.Fail(&q.bufWait.pop().req, nvme.StatusAbortedSQDeletion)
	}
	for q.readWait.head != nil {
		s := q.readWait.pop()
		q.dropWide(s)
		q.tq.Fail(&s.req, nvme.StatusAbortedSQDeletion)
	}
	for q.sendWait.head != nil {
		q.finish(q.sendWait.pop())
	}
	for q.parkedN > 0 {
		q.dropRecv(q.unpark())
	}
	q.tq.Close()
	q.conn.shut(reason)
	q.checkDrained()
}

// broken is shut for a queue whose completions can't be relied on any more.
func (q *queue) broken(reason error) {
	q.noFlush = true
	q.shut(reason)
	q.checkDrained()
}

// checkDrained tells the connection when everything came back that will: without
// shared receives all receives, with them the device's word that it takes no more
// of them; all sends; and in any case what the target has.
func (q *queue) checkDrained() {
	if q.state != queueDraining || q.drained || q.executing != 0 {
		return
	}
	if !q.noFlush {
		if q.inUse != 0 || q.ringHead != q.ringTail || !q.shared && q.recvPosted != 0 || q.shared && !q.lastWQE {
			return
		}
	}
	q.drained = true
	q.conn.signal(sigDrained)
}

// detach takes the queue off its reactor after its queue pair was destroyed: the
// device can't touch anything any more, so what it did not give back is taken.
func (q *queue) detach() {
	q.owner.Check()
	invariants.Assert(!q.dirty, "a queue with work in the batch is detached")
	invariants.Assert(q.executing == 0, "a queue is detached while the target has commands of it")
	for i := range q.slots {
		s := &q.slots[i]
		switch s.state {
		case slotResponding:
			q.lane.stats.Abandoned++
			q.sent(s)
		case slotReading:
			q.lane.stats.Abandoned++
			q.readDone(s, false)
		}
	}
	invariants.Assert(q.inUse == 0 && q.held == 0, "a detached queue holds slots or memory")
	q.ringHead = q.ringTail
	q.lane.remove(q)
	q.state = queueDetached
	q.tq.Release()
	q.owner.Release()
}

// attach puts the queue on its reactor, before its connection is accepted.
func (q *queue) attach() {
	q.owner.Claim()
	q.lane.add(q)
}

var errPeerDisconnected = errors.New("the host disconnected")
