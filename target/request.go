package target

import (
	"rocet/memory"
	"rocet/nvme"
)

// MaxSegments is how many segments the data of one request may lie in.
const MaxSegments = 16

// noLocation says that an error has no place in the command.
const noLocation = 0xffff

// requestState is where a request is: for Abort, and for the checks of debug builds.
type requestState uint8

const (
	requestIdle     requestState = iota // the transport's slot is free
	requestPrepared                     // Prepare took it; the transport moves data
	requestControl                      // with the queue's control goroutine
	requestBackend                      // with a backend
	requestParked                       // waits on its queue: AER, Disconnect
	requestDone                         // responded; the transport sends
)

// action is what Execute does with a request. Prepare chooses it.
type action uint8

const (
	actNothing  action = iota // complete at once
	actIO                     // one IO to one backend
	actRanges                 // the same, after a look at the range descriptors
	actFlushAll               // a flush to every namespace in turn
	actControl                // off the reactor
	actKeepAlive
	actAER
	actAbort
	actDisconnect
)

// Request is one command on its way through the target. A transport has one per
// slot and uses it again and again, all of it on the queue's reactor:
//
//	r.Begin(now); r.Cmd = ...        a capsule arrived
//	st := q.Prepare(r)               what it needs: r.Dir, r.Length, r.AtLeast, r.Lent
//	  st is not ok: q.Fail(r, st)
//	(buffers into r.Segs, r.SetData(n); the host's data fetched)
//	q.Execute(r)
//	  ... conn.Respond(r)            exactly once: send r.Data if r.DataOut(), then r.Cqe
//	g.Account(r, now)                the response was posted
//	r.End()                          nothing refers to r.Data any more; the slot is free
type Request struct {
	// Cmd points into the transport's receive memory and is stable until Respond.
	Cmd *nvme.Command
	// Cqe is complete when Respond is called.
	Cqe nvme.Completion

	// What Prepare found out. Length 0 means that no data moves, and that nobody
	// looks at the command's SGL. Otherwise the SGL must describe exactly Length
	// bytes, or with AtLeast that many or more, of which Length move: Linux hosts
	// describe 4096 bytes for any Dataset Management.
	Length  uint32
	Dir     nvme.Direction
	AtLeast bool
	Lent    bool // the backend lends a read's data: no buffers needed, Data is set at Respond

	state   requestState
	act     action
	opcode  nvme.Opcode
	aborted bool // an Abort came while the transport moved data
	counted bool // the namespace counts this as in flight
	cid     uint16
	// location is where in the command an error is: byte | bit << 8.
	location uint16

	// Tag is the transport's own slot number.
	Tag uint32

	// Data is where the data is: what SetData made of Segs, what a backend lent, or
	// memory of the transport's own (data that came in the capsule).
	Data []memory.Segment

	queue      *Queue
	ns         *nsQueue
	prev, next *Request // in Queue.busy
	started    int64    // Begin

	// Of actFlushAll: the namespace after the present one, how that one ended, and
	// whether flushAll is running and sees to the next.
	flushNext   uint32
	flushStatus nvme.Status
	flushEnded  bool
	flushing    bool

	io   IO
	Segs [MaxSegments]memory.Segment
}

// Begin starts a use of the slot. now is the reactor's clock when the capsule came.
func (r *Request) Begin(now int64) {
	if r.state == requestDone {
		r.End()
	}
	r.started = now
	r.Data = nil
}

// SetData makes Data of the first n of Segs.
func (r *Request) SetData(n int) { r.Data = r.Segs[:n:n] }

// DataOut tells at Respond whether Data goes to the host before Cqe.
func (r *Request) DataOut() bool {
	return r.Dir == nvme.DirControllerToHost && r.Length != 0 && r.Cqe.Status().IsOK()
}

// Started is the time given to Begin.
func (r *Request) Started() int64 { return r.started }

// End ends a use of the slot, after Respond: the response and its data have left
// (or never will), nothing refers to Data any more. A namespace that lent the
// data can go away from now on.
func (r *Request) End() {
	r.state = requestIdle
	if r.counted {
		r.counted = false
		r.ns.release()
	}
}
