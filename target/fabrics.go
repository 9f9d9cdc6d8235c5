package target

import (
	"rocet/nvme"
)

// Fabrics commands on live queues: Base 2.1 section 6.

// prepareFabrics is Prepare of a fabrics command on a live queue.
func (q *Queue) prepareFabrics(r *Request) nvme.Status {
	switch r.Cmd.FCType() {
	case nvme.FabricsConnect:
		return nvme.StatusCommandSequenceError
	case nvme.FabricsPropertyGet, nvme.FabricsPropertySet:
		if !q.admin {
			return nvme.StatusInvalidOpcode
		}
		r.act = actControl
		return nvme.StatusSuccess
	case nvme.FabricsDisconnect:
		switch {
		case q.admin:
			return nvme.StatusInvalidQueueType
		case r.Cmd.RECFMT() != 0:
			return nvme.StatusConnectIncompatibleFormat
		case q.disconnect != nil:
			return nvme.StatusCommandSequenceError
		}
		r.act = actDisconnect
		return nvme.StatusSuccess
	}
	return nvme.StatusInvalidOpcode
}

// fabrics executes a fabrics command off the reactor.
func (x *control) fabrics() {
	switch x.cmd.FCType() {
	case nvme.FabricsConnect:
		if x.c != nil { // it was prepared before another one succeeded
			x.fail(nvme.StatusCommandSequenceError)
			return
		}
		x.connect()
	case nvme.FabricsPropertyGet:
		x.propertyGet()
	case nvme.FabricsPropertySet:
		x.propertySet()
	default:
		x.fail(nvme.StatusInvalidOpcode)
	}
}

// parkDisconnect is Execute of Disconnect: it completes after everything else on
// the queue. What the host still sends meanwhile is executed.
func (q *Queue) parkDisconnect(r *Request) {
	if q.disconnect != nil || q.state != queueLive {
		q.respond(r, nvme.StatusCommandSequenceError, 0)
		return
	}
	r.state = requestParked
	q.disconnect = r
	if q.nbusy == 1 {
		q.finishDisconnect()
	}
}

// finishDisconnect frees the QID, responds, and lets the host close the
// connection, within limits.
func (q *Queue) finishDisconnect() {
	r := q.disconnect
	q.disconnect = nil
	r.state = requestControl
	if q.state == queueLive {
		q.state = queueDisconnected
		q.arm(q.target.opts.DisconnectTimeout)
	}
	go func() {
		q.target.queueDisconnected(q)
		q.group.Reactor.Post(func() { q.respond(r, nvme.StatusSuccess, 0) })
	}()
}

// queueDisconnected makes the QID of a queue free for another.
func (t *Target) queueDisconnected(q *Queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := q.ctrl; c != nil && c.queues[q.qid] == q {
		delete(c.queues, q.qid)
		c.log.Info("queue disconnected by the host", "qid", q.qid)
		c.drained()
	}
	t.broadcast()
}
