//go:build cgo && linux

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"syscall"
	"unsafe"
)

// ---- protection domains, regions, windows ----

type pd struct {
	d *device
	c *C.struct_ibv_pd
}

func (d *device) AllocPD() (PD, error) {
	p := &pd{d: d}
	if rc := C.rocet_alloc_pd(d.ctx, &p.c); rc != 0 {
		return nil, fail(rc, "ibv_alloc_pd", d.name)
	}
	return p, nil
}

func (p *pd) Device() Device { return p.d }

func (p *pd) Dealloc() error {
	return fail(C.rocet_dealloc_pd(p.c), "ibv_dealloc_pd", p.d.name)
}

type mr struct {
	d          *device
	c          *C.struct_ibv_mr
	lkey, rkey uint32
}

func (p *pd) RegMR(addr uintptr, size uint64, access Access) (MR, error) {
	m := &mr{d: p.d}
	if rc := C.rocet_reg_mr(p.c, C.uintptr_t(addr), C.size_t(size), C.uint(access), &m.c); rc != 0 {
		return nil, fail(rc, "ibv_reg_mr", fmt.Sprintf("%s, %d bytes at %#x, access %#x", p.d.name, size, addr, uint32(access)))
	}
	m.lkey, m.rkey = uint32(m.c.lkey), uint32(m.c.rkey)
	return m, nil
}

func (m *mr) Handle() uintptr { return handle(m.c) }
func (m *mr) LKey() uint32    { return m.lkey }
func (m *mr) RKey() uint32    { return m.rkey }

func (m *mr) Dereg() error {
	return fail(C.rocet_dereg_mr(m.c), "ibv_dereg_mr", fmt.Sprintf("%s, key %#x", m.d.name, m.lkey))
}

type mw struct {
	d    *device
	c    *C.struct_ibv_mw
	rkey uint32
}

func (p *pd) AllocMW() (MW, error) {
	w := &mw{d: p.d}
	if rc := C.rocet_alloc_mw(p.c, &w.c); rc != 0 {
		return nil, fail(rc, "ibv_alloc_mw", p.d.name)
	}
	w.rkey = uint32(w.c.rkey)
	return w, nil
}

func (w *mw) Handle() uintptr { return handle(w.c) }
func (w *mw) RKey() uint32    { return w.rkey }

func (w *mw) Dealloc() error {
	return fail(C.rocet_dealloc_mw(w.c), "ibv_dealloc_mw", fmt.Sprintf("%s, key %#x", w.d.name, w.rkey))
}

// ---- shared receive queues ----

type srq struct {
	d    *device
	c    *C.struct_ibv_srq
	attr SRQAttr
}

func (p *pd) CreateSRQ(a SRQAttr) (SRQ, error) {
	s := &srq{d: p.d}
	wr, sge := C.uint32_t(a.MaxWR), C.uint32_t(a.MaxSGE)
	if rc := C.rocet_create_srq(p.c, &wr, &sge, &s.c); rc != 0 {
		return nil, fail(rc, "ibv_create_srq", fmt.Sprintf("%s, %d receives of %d SGEs", p.d.name, a.MaxWR, a.MaxSGE))
	}
	s.attr = SRQAttr{MaxWR: uint32(wr), MaxSGE: uint32(sge)}
	p.d.p.mu.Lock()
	p.d.p.srqs[handle(s.c)] = s
	p.d.p.mu.Unlock()
	return s, nil
}

func (s *srq) Handle() uintptr { return handle(s.c) }
func (s *srq) Attr() SRQAttr   { return s.attr }

func (s *srq) SetLimit(n uint32) error {
	return fail(C.rocet_limit_srq(s.c, C.uint32_t(n)), "ibv_modify_srq", fmt.Sprintf("%s, limit %d of %d", s.d.name, n, s.attr.MaxWR))
}

func (s *srq) Destroy() error {
	table, key := s.d.p.srqs, handle(s.c)
	s.d.p.mu.Lock()
	delete(table, key)
	s.d.p.mu.Unlock()
	rc := C.rocet_destroy_srq(s.c)
	if rc != 0 { // still in use
		s.d.p.mu.Lock()
		table[key] = s
		s.d.p.mu.Unlock()
	}
	return fail(rc, "ibv_destroy_srq", s.d.name)
}

// ---- completion queues ----

type cq struct {
	handle  uintptr
	d       *device
	c       *C.struct_ibv_cq
	fd      int
	armed   int    // events that may be on the channel
	unacked uint32 // events taken off it and not acknowledged
}

// ackBatch is how many events are acknowledged at once: each takes a mutex
// that nobody contends, but that need not be a cache miss per wake-up.
const ackBatch = 1 << 10

func (d *device) CreateCQ(a CQAttr) (CQ, error) {
	q := &cq{d: d, fd: -1}
	events := C.int(0)
	if a.Events {
		events = 1
	}
	if rc := C.rocet_create_cq(d.ctx, C.int(a.Entries), C.int(a.Vector), events, &q.c); rc != 0 {
		return nil, fail(rc, "ibv_create_cq", fmt.Sprintf("%s, %d entries, vector %d of %d", d.name, a.Entries, a.Vector, d.attr.CompVectors))
	}
	q.handle = handle(q.c)
	if a.Events {
		q.fd = int(q.c.channel.fd)
	}
	d.p.mu.Lock()
	d.p.cqs[q.handle] = q
	d.p.mu.Unlock()
	return q, nil
}

func (q *cq) Device() Device { return q.d }
func (q *cq) Entries() int   { return int(q.c.cqe) }
func (q *cq) FD() int        { return q.fd }

func (q *cq) Arm() error {
	if q.fd < 0 {
		return fail(C.int(syscall.EINVAL), "ibv_req_notify_cq", q.d.name+", a queue without a channel")
	}
	if rc := C.rocet_arm_cq(q.c); rc != 0 {
		return fail(rc, "ibv_req_notify_cq", q.d.name)
	}
	q.armed++
	return nil
}

// Ack reads as many events as there were arms: no more can be there, and
// after the usual one arm that saves the read that would find nothing.
func (q *cq) Ack() error {
	if q.armed == 0 {
		return nil
	}
	var n C.int
	rc := C.rocet_drain_cq_events(q.c, C.int(q.armed), &n)
	if rc == 0 && int(n) == q.armed {
		q.armed = 0
	} else {
		// An arm without its event yet: it comes with a later completion.
		q.armed = 1
	}
	q.unacked += uint32(n)
	if q.unacked >= ackBatch {
		C.ibv_ack_cq_events(q.c, C.uint(q.unacked))
		q.unacked = 0
	}
	return fail(rc, "ibv_get_cq_event", q.d.name)
}

func (q *cq) Destroy() error {
	p := q.d.p
	p.mu.Lock()
	delete(p.cqs, q.handle)
	p.mu.Unlock()
	rc := C.rocet_destroy_cq(q.c, C.uint(q.unacked))
	q.unacked = 0
	if rc != 0 { // still in use
		p.mu.Lock()
		p.cqs[q.handle] = q
		p.mu.Unlock()
	}
	return fail(rc, "ibv_destroy_cq", q.d.name)
}

// ---- queue pairs ----

type qp struct {
	d    *device
	c    *C.struct_ibv_qp
	num  uint32
	caps QPCaps
}

func (q *qp) Handle() uintptr { return handle(q.c) }
func (q *qp) Num() uint32     { return q.num }
func (q *qp) Caps() QPCaps    { return q.caps }

func (q *qp) State() (QPState, error) {
	var st C.int
	if rc := C.rocet_qp_state(q.c, &st); rc != 0 {
		return 0, fail(rc, "ibv_query_qp", q.String())
	}
	return QPState(st), nil
}

func (q *qp) ToError() error {
	return fail(C.rocet_qp_error(q.c), "ibv_modify_qp", q.String()+" to ERR")
}

func (q *qp) String() string { return fmt.Sprintf("%s, QP %#x", q.d.name, q.num) }

// createQP makes the queue pair of an id.
func createQP(cid *C.struct_rdma_cm_id, d *device, a QPAttr) (*qp, error) {
	npd, ok1 := a.PD.(*pd)
	scq, ok2 := a.SendCQ.(*cq)
	rcq, ok3 := a.RecvCQ.(*cq)
	if !ok1 || !ok2 || !ok3 {
		return nil, fail(C.int(syscall.EINVAL), "rdma_create_qp", "a domain or completion queue is missing or of another provider")
	}
	c := C.struct_rocet_qp_attr{
		pd: npd.c, send_cq: scq.c, recv_cq: rcq.c,
		send_wr: C.uint32_t(a.Caps.MaxSendWR), recv_wr: C.uint32_t(a.Caps.MaxRecvWR),
		send_sge: C.uint32_t(a.Caps.MaxSendSGE), recv_sge: C.uint32_t(a.Caps.MaxRecvSGE),
		inl: C.uint32_t(a.Caps.MaxInline),
	}
	if a.SRQ != nil {
		s, ok := a.SRQ.(*srq)
		if !ok {
			return nil, fail(C.int(syscall.EINVAL), "rdma_create_qp", "the shared receive queue is of another provider")
		}
		c.srq = s.c
	}
	if a.SignalAll {
		c.sig_all = 1
	}
	if rc := C.rocet_create_qp(cid, &c); rc != 0 {
		return nil, fail(rc, "rdma_create_qp", fmt.Sprintf("%s, %+v", d.name, a.Caps))
	}
	q := &qp{
		d: d, c: cid.qp, num: uint32(c.qp_num),
		caps: QPCaps{
			MaxSendWR: uint32(c.send_wr), MaxRecvWR: uint32(c.recv_wr),
			MaxSendSGE: uint32(c.send_sge), MaxRecvSGE: uint32(c.recv_sge),
			MaxInline: uint32(c.inl),
		},
	}
	d.p.mu.Lock()
	d.p.qps[uintptr(unsafe.Pointer(q.c))] = q
	d.p.mu.Unlock()
	return q, nil
}
