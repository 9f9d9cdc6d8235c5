package target

import (
	"slices"

	"rocet/nvme"
)

// maxAborts is how many Aborts may be under way: ACL + 1.
const maxAborts = 4

// Dword 0 of Abort's completion, bit 0: the command was not aborted (at once).
const notAborted = 1

// prepareAbort is Prepare of Abort.
func (q *Queue) prepareAbort(r *Request) nvme.Status {
	if q.aborts == maxAborts {
		return nvme.StatusAbortLimitExceeded
	}
	r.act = actAbort
	return nvme.StatusSuccess
}

// abort is Execute of Abort. The command may be on another reactor.
func (q *Queue) abort(r *Request) {
	sqid, cid := r.Cmd.AbortSQID(), r.Cmd.AbortCID()
	if sqid == 0 {
		q.respond(r, nvme.StatusSuccess, q.abortCommand(cid, r))
		return
	}
	q.aborts++
	r.state = requestControl
	c := q.assoc
	go func() {
		result := c.abortIO(sqid, cid)
		q.group.Reactor.Post(func() {
			q.aborts--
			q.respond(r, nvme.StatusSuccess, result)
		})
	}()
}

// abortIO looks for a command on an I/O queue, off the reactors.
func (c *Controller) abortIO(sqid, cid uint16) (result uint64) {
	c.target.mu.Lock()
	q := c.queues[sqid]
	c.target.mu.Unlock()
	if q == nil {
		return notAborted
	}
	q.group.call(func() { result = q.abortCommand(cid, nil) })
	return result
}

// abortCommand aborts a command of the queue, other than itself, if it can: one
// that is parked ends at once. One whose data is still on its way ends without
// being executed, which is later than now. What a backend or a control goroutine
// has runs to its end.
func (q *Queue) abortCommand(cid uint16, self *Request) uint64 {
	for r := q.busy; r != nil; r = r.next {
		if r.cid != cid || r == self {
			continue
		}
		switch r.state {
		case requestPrepared:
			r.aborted = true
		case requestParked:
			if r == q.disconnect {
				q.disconnect = nil
			} else {
				q.aer.parked = slices.DeleteFunc(q.aer.parked, func(x *Request) bool { return x == r })
			}
			q.respond(r, nvme.StatusAbortedByRequest, 0)
			return 0
		}
		return notAborted
	}
	return notAborted
}
