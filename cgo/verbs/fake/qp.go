package fake

import (
	"fmt"
	"slices"
	"syscall"

	"rocet/cgo/verbs"
)

// sendEntry is a posted send request: a copy, as hardware makes one.
type sendEntry struct {
	wr   verbs.SendWR
	sges []verbs.SGE
	data []byte // of an inline request
}

// sendQueue is a ring by absolute positions: head ≤ exec ≤ tail.
type sendQueue struct {
	ring []sendEntry
	head uint64 // free before here
	exec uint64 // executed before here
	tail uint64
}

type recvEntry struct {
	id   uint64
	sges []verbs.SGE
}

// recvQueue is a ring of receives. used counts the slots that were not polled yet.
type recvQueue struct {
	ring []recvEntry
	head uint64
	tail uint64
	used int
}

func newRecvQueue(n, sges int) recvQueue {
	r := recvQueue{ring: make([]recvEntry, n)}
	for i := range r.ring {
		r.ring[i].sges = make([]verbs.SGE, 0, sges)
	}
	return r
}

// put copies a receive; false if there is no room.
func (r *recvQueue) put(wr *verbs.RecvWR) bool {
	if int(r.tail-r.head) == len(r.ring) {
		return false
	}
	e := &r.ring[r.tail%uint64(len(r.ring))]
	if int(wr.NumSGE) > cap(e.sges) {
		return false
	}
	e.id = wr.ID
	e.sges = append(e.sges[:0], sgesAt(wr.SGList, wr.NumSGE)...)
	r.tail++
	return true
}

func (r *recvQueue) empty() bool { return r.head == r.tail }

func (r *recvQueue) take() *recvEntry {
	e := &r.ring[r.head%uint64(len(r.ring))]
	r.head++
	return e
}

// QP is a queue pair.
type QP struct {
	f              *Fabric
	dev            *Device
	pd             *PD
	id             *ID
	sendCQ, recvCQ *CQ
	srq            *SRQ
	handle         uintptr
	num            uint32
	caps           verbs.QPCaps
	state          verbs.QPState
	signalAll      bool
	peer           *QP
	maxRd          uint8
	reads          int // outstanding
	rnrRetry       uint8
	stuckAt        uint64 // position + 1 that a timer runs for

	sq       sendQueue
	rq       recvQueue
	received uint64

	sendFaults, recvFaults []fault
	hold                   Side
	heldSends, heldRecvs   []cqe
	stats                  QPStats
}

// SRQ is a shared receive queue.
type SRQ struct {
	f      *Fabric
	pd     *PD
	handle uintptr
	attr   verbs.SRQAttr
	rq     recvQueue
	limit  uint32
	users  []*QP
}

// CreateSRQ implements verbs.PD.
func (p *PD) CreateSRQ(a verbs.SRQAttr) (verbs.SRQ, error) {
	f := p.d.f
	f.mu.Lock()
	defer f.mu.Unlock()
	object := fmt.Sprintf("%s, %d receives", p.d.cfg.Name, a.MaxWR)
	if err := f.fails("ibv_create_srq", object); err != nil {
		return nil, err
	}
	if p.d.attr.MaxSRQ == 0 || a.MaxWR == 0 || int(a.MaxWR) > p.d.attr.MaxSRQWR || int(a.MaxSGE) > p.d.attr.MaxSRQSGE {
		return nil, &verbs.Error{Call: "ibv_create_srq", Object: object, Errno: syscall.EINVAL}
	}
	s := &SRQ{f: f, pd: p, attr: a, rq: newRecvQueue(int(a.MaxWR), int(a.MaxSGE))}
	s.handle = f.add(s)
	p.uses++
	return s, nil
}

// Handle implements verbs.SRQ.
func (s *SRQ) Handle() uintptr { return s.handle }

// Attr implements verbs.SRQ.
func (s *SRQ) Attr() verbs.SRQAttr { return s.attr }

// SetLimit implements verbs.SRQ.
func (s *SRQ) SetLimit(n uint32) error {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.limit = n
	return nil
}

// Destroy implements verbs.SRQ.
func (s *SRQ) Destroy() error {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if len(s.users) != 0 {
		return &verbs.Error{Call: "ibv_destroy_srq", Object: fmt.Sprintf("%d queue pairs use it", len(s.users)), Errno: syscall.EBUSY}
	}
	s.f.remove(s.handle)
	s.pd.uses--
	return nil
}

// createQP makes the queue pair of an id.
func (f *Fabric) createQP(x *ID, a verbs.QPAttr) (*QP, error) {
	d := x.dev
	object := fmt.Sprintf("%s, %d sends, %d receives", d.cfg.Name, a.Caps.MaxSendWR, a.Caps.MaxRecvWR)
	if err := f.fails("rdma_create_qp", object); err != nil {
		return nil, err
	}
	c := a.Caps
	pd, ok := a.PD.(*PD)
	scq, ok2 := a.SendCQ.(*CQ)
	rcq, ok3 := a.RecvCQ.(*CQ)
	if !ok || !ok2 || !ok3 || pd.d != d || scq.d != d || rcq.d != d || c.MaxSendWR == 0 || int(c.MaxSendWR) > d.attr.MaxQPWR ||
		int(c.MaxRecvWR) > d.attr.MaxQPWR || int(c.MaxSendSGE) > d.attr.MaxSGE || int(c.MaxRecvSGE) > d.attr.MaxSGE || c.MaxInline > d.cfg.MaxInline {
		return nil, &verbs.Error{Call: "rdma_create_qp", Object: object, Errno: syscall.EINVAL}
	}
	f.nextQPN++
	q := &QP{
		f: f, dev: d, pd: pd, id: x, sendCQ: scq, recvCQ: rcq, num: f.nextQPN,
		caps: c, state: verbs.QPInit, signalAll: a.SignalAll, rnrRetry: 7,
	}
	q.sq.ring = make([]sendEntry, c.MaxSendWR)
	for i := range q.sq.ring {
		q.sq.ring[i].sges = make([]verbs.SGE, 0, max(1, c.MaxSendSGE))
		q.sq.ring[i].data = make([]byte, 0, c.MaxInline)
	}
	if a.SRQ != nil {
		q.srq = a.SRQ.(*SRQ)
		q.srq.users = append(q.srq.users, q)
	} else {
		q.rq = newRecvQueue(int(c.MaxRecvWR), int(max(1, c.MaxRecvSGE)))
	}
	q.handle = f.add(q)
	pd.uses++
	scq.users++
	rcq.users++
	return q, nil
}

// destroyQP ends a queue pair. Completions that wait stay, as on Soft-RoCE.
func (f *Fabric) destroyQP(q *QP) {
	q.state = verbs.QPReset
	if p := q.peer; p != nil {
		q.peer, p.peer = nil, nil
		f.progress(p)
	}
	if q.srq != nil {
		q.srq.users = slices.DeleteFunc(q.srq.users, func(o *QP) bool { return o == q })
	}
	q.heldSends, q.heldRecvs = nil, nil
	f.remove(q.handle)
	q.pd.uses--
	q.sendCQ.users--
	q.recvCQ.users--
}

// Handle implements verbs.QP.
func (q *QP) Handle() uintptr { return q.handle }

// Num implements verbs.QP.
func (q *QP) Num() uint32 { return q.num }

// Caps implements verbs.QP.
func (q *QP) Caps() verbs.QPCaps { return q.caps }

// State implements verbs.QP.
func (q *QP) State() (verbs.QPState, error) {
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	return q.state, nil
}

// ToError implements verbs.QP.
func (q *QP) ToError() error {
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	q.f.toError(q)
	return nil
}

// toError flushes what is posted, and tells of the end of shared receives.
func (f *Fabric) toError(q *QP) {
	if q.state == verbs.QPError || q.state == verbs.QPReset {
		return
	}
	q.state = verbs.QPError
	for !q.rq.empty() {
		e := q.rq.take()
		f.received(q, e.id, verbs.StatusWRFlushErr, 0, 0, 0)
	}
	f.step(q)
	if q.srq != nil && !q.dev.cfg.NoLastWQE {
		f.async(q.dev, verbs.AsyncEvent{Type: verbs.AsyncQPLastWQEReached, QP: q, QPNum: q.num})
	}
	if q.peer != nil {
		f.progress(q.peer)
	}
}
