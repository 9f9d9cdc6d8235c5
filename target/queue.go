package target

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"rocet/internal/invariants"
	"rocet/nvme"
	"rocet/reactor"
)

// Conn is a transport's queue as the target sees it. Everything is called on the
// queue's reactor.
type Conn interface {
	// Respond sends r.Cqe, and r.Data before it where r.DataOut says so. It is
	// called exactly once for each request that went into Prepare, also after
	// Close: then there is nothing to send and the slot is merely free.
	Respond(r *Request)
	// Close is the target ending this queue: the transport begins its teardown,
	// which leads to Queue.Close and Queue.Release. It may call Queue.Close inside.
	Close(reason error)
}

// QIDUnknown is QueueOptions.QID of transports that learn it from the Connect command.
const QIDUnknown = 0xffff

// QueueOptions describe a new connection.
type QueueOptions struct {
	Group     *PollGroup
	Conn      Conn
	Listener  *Listener // where it came in
	HostAddr  string    // the other end, for people
	LocalAddr string    // the address that the host used; discovery entries of wildcard listeners name it. May be empty.
	QID       uint16    // as the transport was told, or QIDUnknown
	Depth     uint16    // commands that the transport can take at once; 0: any

	// Attach, if set, is called by NewQueue with the new Queue before anything of
	// Conn is. A transport that calls NewQueue off the group's reactor keeps the
	// Queue there: Conn.Close may come before NewQueue has returned.
	Attach func(*Queue)
}

// queueState is the life of a Queue, kept by its reactor:
//
//	unconnected ──Connect──▶ connecting ──▶ live ──Disconnect──▶ disconnected
//	     │                       │            │                       │
//	     └───────────────────────┴─▶ ending ◀─┴───────────────────────┘   the target calls Conn.Close
//	                                   │
//	                                 closed   the transport called Queue.Close
//	                                   │
//	                                released  and Queue.Release: every request came back
type queueState uint8

const (
	queueUnconnected queueState = iota
	queueConnecting
	queueLive
	queueDisconnected
	queueEnding
	queueClosed
	queueReleased
)

// Reasons that Conn.Close is given.
var (
	ErrConnectTimeout   = errors.New("no Connect command came in time")
	ErrDisconnected     = errors.New("the host sent Disconnect and left the connection open")
	ErrKeepAliveExpired = errors.New("no keep alive came in time")
	ErrAssociationIdle  = errors.New("the host left the controller disabled for too long")
	ErrAdminQueueLost   = errors.New("the association's admin queue is gone")
	ErrControllerReset  = errors.New("the host disabled or shut down the controller")
	ErrHostNotAllowed   = errors.New("the host is no longer allowed")
	ErrSubsystemRemoved = errors.New("the subsystem was removed")
	ErrListenerRemoved  = errors.New("the listener was removed")
	ErrTargetClosed     = errors.New("the target is shutting down")
	ErrHostDisconnected = errors.New("ended by the administrator")
)

// Queue is one fabrics queue: a connection that a transport brought, from before
// its Connect command until the last request came back. One reactor owns it.
type Queue struct {
	owner invariants.Owner
	group *PollGroup
	conn  Conn

	state    queueState
	admin    bool // of a live queue
	ready    bool // admin queue: CSTS.RDY, for what is served inline
	forceFUA bool // the host turned the volatile write cache off
	anaAll   bool // every ANA group is accessible: no look at ana
	sqNoFlow bool // SQ flow control is disabled
	sqHead   uint16
	sqSize   uint16 // 1-based; 0 before Connect
	seen     uint64 // commands, for the traffic based keep alive

	space *space          // the subsystem's namespaces on this reactor
	ana   []nvme.ANAState // by group, see Subsystem.anaView
	busy  *Request        // prepared and not responded, newest first
	nbusy int

	assoc      *Controller // ctrl, for the reactor
	disconnect *Request    // a Disconnect that waits for the others
	aer        aerQueue    // admin queue
	aborts     int         // Abort commands under way
	ka         keepAlive
	timer      reactor.Timer
	reason     error // of the target's end
	errs       errorRing
	errQID     uint16 // SQID of its entries
	exec       executor
	refusals   uint32 // of Connect; the executor's

	// These never change.
	target   *Target
	listener *Listener
	opts     QueueOptions

	// The control plane's, under Target.mu.
	ctrl *Controller
	qid  uint16
	gone bool // Close was called

	dead atomic.Bool // set by Close, read by a Connect under way
}

// NewQueue takes a connection in. The transport may call Prepare at once. It
// works on and off the reactors. An error means that the connection is not
// wanted: the transport drops it.
func (t *Target) NewQueue(o QueueOptions) (*Queue, error) {
	if o.Group == nil || o.Conn == nil || o.Listener == nil {
		return nil, fmt.Errorf("new queue from %s: Group, Conn and Listener must be set", o.HostAddr)
	}
	q := &Queue{group: o.Group, conn: o.Conn, target: t, listener: o.Listener, opts: o}
	q.timer.Fire = q.onTimer
	t.conns.Lock()
	defer t.conns.Unlock()
	switch {
	case t.conns.closed:
		return nil, fmt.Errorf("new queue from %s: %w", o.HostAddr, ErrTargetClosed)
	case o.Listener.removed:
		return nil, fmt.Errorf("new queue from %s at %s: %w", o.HostAddr, o.Listener, ErrListenerRemoved)
	case len(t.conns.all) >= t.opts.MaxQueues:
		t.refused.Add(1)
		return nil, fmt.Errorf("new queue from %s: all of the %d queues that MaxQueues allows are connected", o.HostAddr, t.opts.MaxQueues)
	}
	if o.Attach != nil {
		o.Attach(q)
	}
	t.conns.all[q] = struct{}{}
	q.group.Reactor.Post(q.start)
	return q, nil
}

// start is the queue's first turn on its reactor.
func (q *Queue) start() {
	q.owner.Claim()
	q.group.stats.queues++
	if q.state == queueUnconnected {
		q.arm(q.target.opts.ConnectTimeout)
	}
}

func (q *Queue) arm(d time.Duration) { q.group.Reactor.Schedule(&q.timer, d) }

func (q *Queue) disarm() { q.group.Reactor.Cancel(&q.timer) }

// onTimer is every bounded wait of a queue: one at a time, by state.
func (q *Queue) onTimer() {
	switch q.state {
	case queueUnconnected, queueConnecting:
		q.end(ErrConnectTimeout)
	case queueDisconnected:
		q.end(ErrDisconnected)
	case queueLive:
		if q.admin {
			q.keepAliveTimer()
		}
	}
}

// fusePSDT are the bits of a command's byte 1 that mean something: no fused
// operations, and data by SGL with no metadata.
const fusePSDT = 3<<6 | 3

// Prepare parses r.Cmd and says what the command needs. On a status that is not
// success the transport calls Fail with it.
func (q *Queue) Prepare(r *Request) nvme.Status {
	q.owner.Check()
	invariants.Assert(r.state == requestIdle, "Prepare of a request that did not End")
	if r.io.done == nil {
		r.io.Init(r)
	}
	r.queue = q
	r.state = requestPrepared
	r.aborted = false
	r.Lent = false
	r.AtLeast = false
	r.Dir = nvme.DirNone
	r.Length = 0
	r.ns = nil
	r.cid = r.Cmd.CID()
	r.opcode = r.Cmd.Opcode()
	r.location = noLocation
	r.prev, r.next = nil, q.busy
	if q.busy != nil {
		q.busy.prev = r
	}
	q.busy = r
	q.nbusy++
	q.seen++
	if r.Cmd[1]&fusePSDT != nvme.PSDTSGL<<6 {
		return r.fieldError(1)
	}
	if q.state != queueLive {
		return q.prepareUnconnected(r)
	}
	if q.admin {
		return q.prepareAdmin(r)
	}
	return q.prepareIO(r)
}

// fieldError is Invalid Field in Command at a byte of the command.
func (r *Request) fieldError(offset uint16) nvme.Status {
	r.location = offset
	return nvme.StatusInvalidField
}

// ErrorAt tells where in the command an error is that the transport found (in
// the SGL, say), for the Error Information log. Call it before Fail.
func (r *Request) ErrorAt(offset uint16) { r.location = offset }

// Execute runs a prepared command: write data is in r.Data, or room for read data
// is, or the backend lends it. It may respond before it returns.
func (q *Queue) Execute(r *Request) {
	q.owner.Check()
	invariants.Assert(r.state == requestPrepared, "Execute of a request that was not prepared")
	if r.aborted {
		q.respond(r, nvme.StatusAbortedByRequest, 0)
		return
	}
	switch r.act {
	case actIO:
		q.submit(r)
	case actNothing:
		q.respond(r, nvme.StatusSuccess, 0)
	case actRanges:
		q.executeRanges(r)
	case actFlushAll:
		r.flushNext, r.flushStatus = 0, nvme.StatusSuccess
		q.flushAll(r)
	case actControl:
		q.control(r)
	case actKeepAlive:
		q.keepAliveCommand(r)
	case actAER:
		q.parkAER(r)
	case actAbort:
		q.abort(r)
	case actDisconnect:
		q.parkDisconnect(r)
	}
}

// Fail completes a prepared command without executing it.
func (q *Queue) Fail(r *Request, st nvme.Status) {
	q.owner.Check()
	invariants.Assert(r.state == requestPrepared, "Fail of a request that was not prepared")
	q.respond(r, st, 0)
}

// respond completes a request. After it r belongs to the transport again.
func (q *Queue) respond(r *Request, st nvme.Status, result uint64) {
	invariants.Assert(r.state != requestIdle && r.state != requestDone, "a request responds twice")
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		q.busy = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
	q.nbusy--
	r.state = requestDone
	var head uint16
	if q.sqNoFlow {
		// Said once, in the response to Connect; later SQHD is reserved.
		if r.opcode == nvme.OpFabrics && r.Cmd.FCType() == nvme.FabricsConnect && st == nvme.StatusSuccess {
			head = nvme.SQHDInvalid
		}
	} else if q.sqSize != 0 {
		q.sqHead++
		if q.sqHead >= q.sqSize {
			q.sqHead = 0
		}
		head = q.sqHead
	}
	if st != nvme.StatusSuccess {
		st = q.failed(r, st)
	}
	r.Cqe.SetResult64(result)
	r.Cqe.SetSQHD(head)
	r.Cqe.SetSQID(0)
	r.Cqe.SetCID(r.cid)
	r.Cqe.SetStatus(st)
	q.conn.Respond(r)
	if q.disconnect != nil && q.nbusy == 1 {
		q.finishDisconnect()
	}
}

// end makes the transport tear the queue down, once.
func (q *Queue) end(reason error) {
	if q.state >= queueEnding {
		return
	}
	q.state = queueEnding
	q.reason = reason
	q.disarm()
	q.releaseParked(nvme.StatusAbortedSQDeletion)
	q.conn.Close(reason)
}

// postEnd is end from anywhere.
func (q *Queue) postEnd(reason error) { q.group.Reactor.Post(func() { q.end(reason) }) }

// Close is the transport saying that the connection is down. Parked commands
// respond now; no Prepare comes after it. Requests that are under way still do
// respond, and Execute may still be called for what was prepared.
func (q *Queue) Close() {
	q.owner.Check()
	if q.state >= queueClosed {
		return
	}
	q.state = queueClosed
	q.dead.Store(true)
	q.disarm()
	q.releaseParked(nvme.StatusAbortedSQDeletion)
	go q.target.queueClosed(q, q.reason)
}

// Release is the transport saying that every request came back and all of the
// queue's resources are free. The Queue is not used after it.
func (q *Queue) Release() {
	q.owner.Check()
	q.Close()
	invariants.Assert(q.nbusy == 0, "a queue is released while requests are under way")
	if q.state == queueReleased {
		return
	}
	q.state = queueReleased
	q.group.stats.queues--
	errs := q.errs.take()
	q.owner.Release()
	go q.target.queueReleased(q, q.reason, errs)
}

// releaseParked ends what waits on the queue for something to happen.
func (q *Queue) releaseParked(st nvme.Status) {
	for len(q.aer.parked) > 0 {
		r := q.aer.parked[0]
		q.aer.parked = slices.Delete(q.aer.parked, 0, 1)
		q.respond(r, st, 0)
	}
	if r := q.disconnect; r != nil {
		q.disconnect = nil
		q.respond(r, st, 0)
	}
}

// QID is the queue's identifier: 0 for an admin queue, QIDUnknown before the
// Connect command. Off the reactors.
func (q *Queue) QID() uint16 {
	q.target.mu.Lock()
	defer q.target.mu.Unlock()
	if q.ctrl == nil {
		return QIDUnknown
	}
	return q.qid
}

// Group is where the queue lives.
func (q *Queue) Group() *PollGroup { return q.group }
