package fake

import (
	"slices"
	"syscall"

	"rocet/cgo/verbs"
)

// failure makes calls of one function fail.
type failure struct {
	call  string
	errno syscall.Errno
	skip  int // calls that go well before
	n     int // calls that fail then; negative: all
}

// Fail makes n calls of a function fail with errno, after skip calls that go
// well; negative n: all further calls. Functions are named as in
// verbs.Error.Call ("ibv_reg_mr", "rdma_create_qp", "rdma_accept",
// "ibv_post_send", "ibv_req_notify_cq", ...). n = 0 takes it back.
func (f *Fabric) Fail(call string, errno syscall.Errno, skip, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures = slices.DeleteFunc(f.failures, func(x *failure) bool { return x.call == call })
	if n != 0 {
		f.failures = append(f.failures, &failure{call, errno, skip, n})
	}
}

// errno is what a call shall fail with now, or 0.
func (f *Fabric) errno(call string) syscall.Errno {
	for i, x := range f.failures {
		if x.call != call {
			continue
		}
		if x.skip > 0 {
			x.skip--
			return 0
		}
		if x.n > 0 {
			if x.n--; x.n == 0 {
				f.failures = slices.Delete(f.failures, i, i+1)
			}
		}
		return x.errno
	}
	return 0
}

func (f *Fabric) fails(call, object string) error {
	if e := f.errno(call); e != 0 {
		return &verbs.Error{Call: call, Object: object, Errno: e}
	}
	return nil
}

// Happening is something that is about to be told.
type Happening struct {
	CM         bool            // an rdma_cm event: Event and ID
	Event      verbs.EventType //
	ID         *ID             //
	Async      bool            // an asynchronous event: AsyncEvent and Device
	AsyncEvent verbs.AsyncEvent
	Device     *Device
	Completion *CQ // an event on the channel of this queue
}

// Verdict is what becomes of it.
type Verdict uint8

const (
	Deliver Verdict = iota
	Drop            // lost
	Hold            // late: until ReleaseHeld
	Twice           // delivered twice
)

// Filter lets fn decide about each event before it is queued; nil: all are
// delivered. fn runs under the fabric's lock and must not call the fabric.
func (f *Fabric) Filter(fn func(Happening) Verdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.filter = fn
}

// ReleaseHeld delivers the events that were held, and returns their number.
func (f *Fabric) ReleaseHeld() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := f.held
	f.held = nil
	for _, deliver := range held {
		deliver()
	}
	return len(held)
}

// tell delivers as the filter says; false if the event was dropped.
func (f *Fabric) tell(h Happening, deliver func()) bool {
	v := Deliver
	if f.filter != nil {
		v = f.filter(h)
	}
	switch v {
	case Drop:
		return false
	case Hold:
		f.held = append(f.held, deliver)
		return true
	case Twice:
		deliver()
	}
	deliver()
	return true
}

// Inject queues an rdma_cm event on an ID, past the filter: EventAddrChange,
// a second EventDisconnected, whatever a test needs.
func (f *Fabric) Inject(x verbs.ID, ev verbs.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue(x.(*ID), &ev)
}

// InjectAsync queues an asynchronous event on a device, past the filter.
func (f *Fabric) InjectAsync(d verbs.Device, ev verbs.AsyncEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d.(*Device).queueAsync(ev)
}

// ---- faults of a queue pair ----

// Of is the fake behind a queue pair.
func Of(q verbs.QP) *QP { return q.(*QP) }

// Peer is the queue pair at the other end, nil if there is none (any more).
func (q *QP) Peer() *QP {
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	return q.peer
}

type fault struct {
	at uint64 // position in the queue
	st verbs.WCStatus
}

// FailSend lets the n-th send request from the next one on end with st,
// without effect on the peer; what follows is flushed.
func (q *QP) FailSend(n int, st verbs.WCStatus) {
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	q.sendFaults = append(q.sendFaults, fault{q.sq.exec + uint64(n) - 1, st})
}

// FailRecv lets the n-th receive from the next one on end with st, and the
// send that it was for with StatusRemOpErr.
func (q *QP) FailRecv(n int, st verbs.WCStatus) {
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	q.recvFaults = append(q.recvFaults, fault{q.received + uint64(n) - 1, st})
}

func takeFault(list *[]fault, at uint64) (verbs.WCStatus, bool) {
	for i, x := range *list {
		if x.at == at {
			*list = slices.Delete(*list, i, i+1)
			return x.st, true
		}
	}
	return 0, false
}

// Break moves the queue pair to the error state as the device does it by
// itself, with an AsyncQPFatal.
func (q *QP) Break() {
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	if q.state == verbs.QPError {
		return
	}
	q.f.async(q.dev, verbs.AsyncEvent{Type: verbs.AsyncQPFatal, QP: q, QPNum: q.num})
	q.f.toError(q)
}

// Side chooses queues of a queue pair.
type Side uint8

const (
	Sends Side = 1 << iota
	Recvs
)

// Hold keeps completions back, flushes too, as a device does that takes its
// time. Requests are executed nevertheless, but a READ counts as outstanding.
// It replaces an earlier Hold; what a side that is no longer held has kept is
// released.
func (q *QP) Hold(s Side) {
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	q.hold = s
	if s&Sends == 0 {
		q.f.release(q, &q.heldSends, -1)
	}
	if s&Recvs == 0 {
		q.f.release(q, &q.heldRecvs, -1)
	}
}

// Release lets up to n of a side's kept completions go, negative: all.
func (q *QP) Release(s Side, n int) {
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	if s&Sends != 0 {
		q.f.release(q, &q.heldSends, n)
	}
	if s&Recvs != 0 {
		q.f.release(q, &q.heldRecvs, n)
	}
}

// Held is how many completions are kept back.
func (q *QP) Held() (sends, recvs int) {
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	return len(q.heldSends), len(q.heldRecvs)
}

// QPStats counts what a queue pair did.
type QPStats struct {
	Sends, Recvs   uint64 // requests posted
	Posts          uint64 // chains posted
	Signaled       uint64 // send requests that ask for a completion
	Reads          uint64 // READs posted
	MaxReads       int    // most READs posted and not completed at any time
	ReadDepth      int    // READs that may be outstanding
	ReadStalls     uint64 // times the send queue waited for the read depth
	RNRs           uint64 // times it waited for a receive of the peer
	BytesRead      uint64
	BytesWritten   uint64
	BytesSent      uint64
	Invalidates    uint64 // SEND_WITH_INV executed
	MaxSendsQueued int    // most slots of the send queue in use at any time
}

// Stats returns the counters.
func (q *QP) Stats() QPStats {
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	s := q.stats
	s.ReadDepth = int(q.maxRd)
	return s
}
