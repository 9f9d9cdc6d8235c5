package fake

import (
	"syscall"
	"time"

	"rocet/cgo/verbs"
)

// Post implements verbs.Provider.
func (f *Fabric) Post(ops []verbs.PostOp) (failed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range ops {
		op := &ops[i]
		op.BadRecv, op.BadSend, op.Err = 0, 0, 0
		if op.Recv != 0 {
			op.BadRecv, op.Err = f.postRecvs(op)
		}
		if op.Send != 0 {
			if op.Err != 0 {
				op.BadSend = op.Send
			} else {
				op.BadSend, op.Err = f.postSends(op)
			}
		}
		if op.Err != 0 {
			failed++
		}
	}
	return failed
}

func (f *Fabric) postRecvs(op *verbs.PostOp) (bad uintptr, errno int32) {
	var q *QP
	var rq *recvQueue
	call := "ibv_post_recv"
	if op.SRQ != 0 {
		s, ok := f.object(op.SRQ).(*SRQ)
		if !ok {
			return op.Recv, int32(syscall.EINVAL)
		}
		rq, call = &s.rq, "ibv_post_srq_recv"
	} else {
		var ok bool
		if q, ok = f.object(op.QP).(*QP); !ok || q.srq != nil {
			return op.Recv, int32(syscall.EINVAL)
		}
		rq = &q.rq
	}
	if len(f.failures) != 0 {
		if e := f.errno(call); e != 0 {
			return op.Recv, int32(e)
		}
	}
	for at0 := op.Recv; at0 != 0; {
		wr := at[verbs.RecvWR](at0)
		if q != nil && q.rq.used == len(q.rq.ring) || !rq.put(wr) {
			return at0, int32(syscall.ENOMEM)
		}
		if q != nil {
			q.rq.used++
			q.stats.Recvs++
			if q.state == verbs.QPError {
				e := rq.take()
				f.received(q, e.id, verbs.StatusWRFlushErr, 0, 0, 0)
			}
		}
		at0 = wr.Next
	}
	// Somebody may have waited for them.
	if q != nil {
		if q.peer != nil {
			f.step(q.peer)
		}
		return 0, 0
	}
	for _, u := range f.object(op.SRQ).(*SRQ).users {
		if u.peer != nil {
			f.step(u.peer)
		}
	}
	return 0, 0
}

func (f *Fabric) postSends(op *verbs.PostOp) (bad uintptr, errno int32) {
	q, ok := f.object(op.QP).(*QP)
	if !ok || q.state != verbs.QPRTS && q.state != verbs.QPError {
		return op.Send, int32(syscall.EINVAL)
	}
	if len(f.failures) != 0 {
		if e := f.errno("ibv_post_send"); e != 0 {
			return op.Send, int32(e)
		}
	}
	q.stats.Posts++
	for at0 := op.Send; at0 != 0; {
		wr := at[verbs.SendWR](at0)
		if int(q.sq.tail-q.sq.head) == len(q.sq.ring) {
			bad, errno = at0, int32(syscall.ENOMEM)
			break
		}
		e := &q.sq.ring[q.sq.tail%uint64(len(q.sq.ring))]
		if int(wr.NumSGE) > cap(e.sges) {
			bad, errno = at0, int32(syscall.EINVAL)
			break
		}
		e.wr = *wr
		e.sges = append(e.sges[:0], sgesAt(wr.SGList, wr.NumSGE)...)
		e.data = e.data[:0]
		if wr.Flags&verbs.SendInline != 0 {
			n := 0
			for i := range e.sges {
				n += int(e.sges[i].Length)
			}
			if n > int(q.caps.MaxInline) {
				bad, errno = at0, int32(syscall.EINVAL)
				break
			}
			for i := range e.sges {
				e.data = append(e.data, bytesAt(e.sges[i].Addr, e.sges[i].Length)...)
			}
		}
		q.sq.tail++
		q.stats.Sends++
		if wr.Opcode == verbs.OpRDMARead {
			q.stats.Reads++
		}
		if wr.Flags&verbs.SendSignaled != 0 || q.signalAll {
			q.stats.Signaled++
		}
		q.stats.MaxSendsQueued = max(q.stats.MaxSendsQueued, int(q.sq.tail-q.sq.head))
		at0 = wr.Next
	}
	f.step(q)
	return bad, errno
}

// reach tells whether a queue pair's peer answers.
func (q *QP) reach() bool {
	p := q.peer
	return p != nil && q.dev.up && p.dev.up && !q.dev.gone && !p.dev.gone && (p.state == verbs.QPRTS || p.state == verbs.QPRTR)
}

// progress goes on with what may have waited.
func (f *Fabric) progress(q *QP) { f.step(q) }

// step executes the send queue as far as it goes.
func (f *Fabric) step(q *QP) {
	for q.sq.exec != q.sq.tail {
		e := &q.sq.ring[q.sq.exec%uint64(len(q.sq.ring))]
		if q.state == verbs.QPError {
			f.sent(q, e, verbs.StatusWRFlushErr)
			continue
		}
		if q.state != verbs.QPRTS {
			return
		}
		if len(q.sendFaults) != 0 {
			if st, ok := takeFault(&q.sendFaults, q.sq.exec); ok {
				f.sent(q, e, st)
				f.toError(q)
				return
			}
		}
		if !q.reach() {
			f.stuck(q, f.cfg.RetryTimeout, verbs.StatusRetryExcErr)
			return
		}
		if e.wr.Opcode == verbs.OpRDMARead && q.reads >= int(q.maxRd) {
			q.stats.ReadStalls++
			return
		}
		st, wait := f.execute(q, e)
		if wait {
			q.stats.RNRs++
			if q.rnrRetry != 7 {
				f.stuck(q, f.cfg.RNRTimeout*(1+7), verbs.StatusRNRRetryExcErr)
			}
			return
		}
		f.sent(q, e, st)
		if st != verbs.StatusSuccess {
			f.toError(q)
			return
		}
	}
}

// stuck fails the request that is next if it is still there after d.
func (f *Fabric) stuck(q *QP, d time.Duration, st verbs.WCStatus) {
	if q.stuckAt == q.sq.exec+1 {
		return
	}
	q.stuckAt = q.sq.exec + 1
	f.after(d, func() {
		if q.stuckAt != q.sq.exec+1 || q.state != verbs.QPRTS || q.sq.exec == q.sq.tail {
			return
		}
		if st == verbs.StatusRetryExcErr && q.reach() {
			q.stuckAt = 0
			f.step(q)
			return
		}
		f.sent(q, &q.sq.ring[q.sq.exec%uint64(len(q.sq.ring))], st)
		f.toError(q)
	})
}

// execute runs one request; wait: the peer has no receive.
func (f *Fabric) execute(q *QP, e *sendEntry) (st verbs.WCStatus, wait bool) {
	p := q.peer
	w := &e.wr
	var n uint64
	inline := w.Flags&verbs.SendInline != 0
	for i := range e.sges {
		if !inline && !f.local(q.pd, &e.sges[i], w.Opcode == verbs.OpRDMARead) {
			return verbs.StatusLocProtErr, false
		}
		n += uint64(e.sges[i].Length)
	}
	switch w.Opcode {
	case verbs.OpRDMAWrite:
		if n != 0 && !f.remote(p.pd, w.RKey, w.RemoteAddr, n, verbs.AccessRemoteWrite) {
			f.refuse(p)
			return verbs.StatusRemAccessErr, false
		}
		at := w.RemoteAddr
		for i := range e.sges {
			s := &e.sges[i]
			copy(bytesAt(at, s.Length), bytesAt(s.Addr, s.Length))
			at += uint64(s.Length)
		}
		q.stats.BytesWritten += n
	case verbs.OpRDMARead:
		if n != 0 && !f.remote(p.pd, w.RKey, w.RemoteAddr, n, verbs.AccessRemoteRead) {
			f.refuse(p)
			return verbs.StatusRemAccessErr, false
		}
		at := w.RemoteAddr
		for i := range e.sges {
			s := &e.sges[i]
			copy(bytesAt(s.Addr, s.Length), bytesAt(at, s.Length))
			at += uint64(s.Length)
		}
		q.stats.BytesRead += n
		q.reads++
		q.stats.MaxReads = max(q.stats.MaxReads, q.reads)
	case verbs.OpSend, verbs.OpSendWithInv:
		return f.deliver(q, p, e, n)
	case verbs.OpLocalInv:
		if !f.invalidate(q.pd, w.InvalidateRKey) {
			return verbs.StatusMWBindErr, false
		}
	case verbs.OpBindMW:
		mw, ok := f.object(w.BindMW).(*MW)
		mr, ok2 := f.object(w.BindMR).(*MR)
		if !ok || !ok2 || mr.access&verbs.AccessMWBind == 0 || !within(w.BindAddr, w.BindLength, uint64(mr.addr), mr.size) {
			return verbs.StatusMWBindErr, false
		}
		mw.key, mw.addr, mw.size, mw.access, mw.bound = w.BindRKey, w.BindAddr, w.BindLength, w.BindAccess, true
	default:
		return verbs.StatusLocQPOpErr, false
	}
	return verbs.StatusSuccess, false
}

// refuse is the responder's side of a wrong key.
func (f *Fabric) refuse(p *QP) {
	f.async(p.dev, verbs.AsyncEvent{Type: verbs.AsyncQPAccessErr, QP: p, QPNum: p.num})
	f.toError(p)
}

// deliver carries a SEND into a receive of the peer.
func (f *Fabric) deliver(q, p *QP, e *sendEntry, n uint64) (st verbs.WCStatus, wait bool) {
	rq := &p.rq
	if p.srq != nil {
		rq = &p.srq.rq
	}
	if rq.empty() {
		return 0, true
	}
	w := &e.wr
	inv := w.Opcode == verbs.OpSendWithInv
	if inv && !f.invalidate(p.pd, w.InvalidateRKey) {
		f.refuse(p)
		return verbs.StatusRemInvReqErr, false
	}
	r := rq.take()
	if p.srq != nil && p.srq.limit != 0 && uint32(rq.tail-rq.head) < p.srq.limit {
		p.srq.limit = 0
		f.async(p.dev, verbs.AsyncEvent{Type: verbs.AsyncSRQLimitReached, SRQ: p.srq})
	}
	p.received++
	if len(p.recvFaults) != 0 {
		if st, ok := takeFault(&p.recvFaults, p.received-1); ok {
			f.received(p, r.id, st, 0, 0, 0)
			f.toError(p)
			return verbs.StatusRemOpErr, false
		}
	}
	var room uint64
	for i := range r.sges {
		if !f.local(p.pd, &r.sges[i], true) {
			f.received(p, r.id, verbs.StatusLocProtErr, 0, 0, 0)
			f.toError(p)
			return verbs.StatusRemOpErr, false
		}
		room += uint64(r.sges[i].Length)
	}
	if n > room {
		f.received(p, r.id, verbs.StatusLocLenErr, 0, 0, 0)
		f.toError(p)
		return verbs.StatusRemInvReqErr, false
	}
	ri, ro := 0, uint32(0)
	put := func(from []byte) {
		for len(from) > 0 {
			s := &r.sges[ri]
			m := copy(bytesAt(s.Addr, s.Length)[ro:], from)
			from = from[m:]
			if ro += uint32(m); ro == s.Length {
				ri, ro = ri+1, 0
			}
		}
	}
	if w.Flags&verbs.SendInline != 0 {
		put(e.data)
	} else {
		for i := range e.sges {
			put(bytesAt(e.sges[i].Addr, e.sges[i].Length))
		}
	}
	q.stats.BytesSent += n
	var flags verbs.WCFlags
	var key uint32
	if inv {
		q.stats.Invalidates++
		flags, key = verbs.WCWithInv, w.InvalidateRKey
	}
	f.received(p, r.id, verbs.StatusSuccess, uint32(n), flags, key)
	return verbs.StatusSuccess, false
}

// sent completes the request that is next in the send queue.
func (f *Fabric) sent(q *QP, e *sendEntry, st verbs.WCStatus) {
	q.sq.exec++
	c := cqe{q: q, upto: q.sq.exec}
	c.quiet = st == verbs.StatusSuccess && e.wr.Flags&verbs.SendSignaled == 0 && !q.signalAll
	c.wc = verbs.WC{ID: e.wr.ID, Status: st, QPNum: q.num}
	if e.wr.Opcode == verbs.OpRDMARead && st == verbs.StatusSuccess {
		c.reads = 1
	}
	if st == verbs.StatusSuccess {
		switch e.wr.Opcode {
		case verbs.OpRDMAWrite:
			c.wc.Opcode = verbs.WCRDMAWrite
		case verbs.OpRDMARead:
			c.wc.Opcode = verbs.WCRDMARead
			for i := range e.sges {
				c.wc.ByteLen += e.sges[i].Length
			}
		case verbs.OpBindMW:
			c.wc.Opcode = verbs.WCBindMW
		case verbs.OpLocalInv:
			c.wc.Opcode = verbs.WCLocalInv
		default:
			c.wc.Opcode = verbs.WCSend
		}
	}
	if q.hold&Sends != 0 {
		q.heldSends = append(q.heldSends, c)
		return
	}
	f.complete(q, &c)
}

// received completes a receive of a queue pair.
func (f *Fabric) received(q *QP, id uint64, st verbs.WCStatus, n uint32, flags verbs.WCFlags, key uint32) {
	c := cqe{q: q, recv: true}
	c.wc = verbs.WC{ID: id, Status: st, QPNum: q.num}
	if st == verbs.StatusSuccess {
		c.wc.Opcode, c.wc.ByteLen, c.wc.Flags, c.wc.InvalidatedRKey = verbs.WCRecv, n, flags, key
	}
	if q.hold&Recvs != 0 {
		q.heldRecvs = append(q.heldRecvs, c)
		return
	}
	f.complete(q, &c)
}

// complete lets the owner of a queue pair know.
func (f *Fabric) complete(q *QP, c *cqe) {
	if c.recv {
		q.recvCQ.push(c)
		return
	}
	q.reads -= c.reads
	if !c.quiet {
		q.sendCQ.push(c)
	}
}

// release lets up to n kept completions go; negative: all.
func (f *Fabric) release(q *QP, held *[]cqe, n int) {
	for len(*held) > 0 && n != 0 {
		c := (*held)[0]
		*held = (*held)[1:]
		f.complete(q, &c)
		n--
	}
	if q.state == verbs.QPRTS {
		f.step(q) // a READ may have waited
	}
}
