package rdma

import (
	"rocet/cgo/verbs"
	"rocet/memory"
	"rocet/nvme"
	"rocet/target"
)

// start takes a capsule into a slot and as far as it goes at once.
func (q *queue) start(recv uint16) {
	s := &q.slots[q.free[len(q.free)-1]]
	q.free = q.free[:len(q.free)-1]
	s.to(slotReceived)
	q.inUse++
	q.lane.stats.Commands++
	if q.quiet {
		q.quiet = false
		q.conn.signal(sigActive)
	}
	s.recv = int32(recv)
	s.inv, s.copyIn, s.waited, s.ndesc = false, false, false, 0
	r := &s.req
	r.Begin(q.shard.r.Now())
	r.Cmd = q.recvs.command(int(recv))
	if q.shared {
		s.cmd = *r.Cmd
		r.Cmd = &s.cmd
	}
	if st := q.tq.Prepare(r); st != nvme.StatusSuccess {
		q.tq.Fail(r, st)
		return
	}
	if r.Length == 0 {
		q.returnShared(s)
		q.execute(s)
		return
	}
	data := q.recvs.capsuleData(int(recv))
	write := r.Dir != nvme.DirControllerToHost
	g, st := parseSGL(r.Cmd, data.Bytes(), r.Length, r.AtLeast, write, q.maxDesc)
	if st != nvme.StatusSuccess {
		q.lane.stats.BadSGLs++
		r.ErrorAt(g.errorAt)
		q.tq.Fail(r, st.WithDNR())
		return
	}
	if g.n == 0 {
		if g.offset%memory.PageSize == 0 && !(q.shared && q.lane.srq.low()) {
			r.Segs[0] = data.Slice(g.offset, r.Length)
			r.SetData(1)
			q.lane.stats.InCapsule++
			q.execute(s)
			return
		}
		// Data at an odd place, which drives don't take, and data in a shared buffer
		// of which few are left, moves.
		s.copyIn, s.offset = true, g.offset
		q.needBuffers(s)
		return
	}
	s.ndesc = uint8(g.n)
	s.inv, s.key = g.invalidate && q.canInv, g.key
	if g.inList {
		s.desc = (*nvme.SGLDescriptor)(data.Bytes()[g.offset:])
	} else {
		s.desc = r.Cmd.SGL()
		q.returnShared(s)
	}
	if r.Lent && !write {
		q.execute(s)
		return
	}
	q.needBuffers(s)
}

// returnShared gives a shared receive buffer back as soon as the command has been
// copied out and nothing else in it is needed: a slow namespace then holds none.
func (q *queue) returnShared(s *slot) {
	if q.shared && s.recv != noRecv {
		recv := uint16(s.recv)
		s.recv = noRecv
		q.lane.srq.give(recv)
	}
}

// needBuffers gets pool memory for a slot's data, or waits for it.
func (q *queue) needBuffers(s *slot) {
	if q.shard.mayAlloc(q, s) && q.alloc(s) {
		q.haveBuffers(s)
		return
	}
	s.to(slotWaitBuffers)
	s.since = q.shard.r.Now()
	q.bufWait.push(s)
	q.lane.stats.BufferWaits++
	q.shard.enter(q)
}

// alloc takes the memory.
func (q *queue) alloc(s *slot) bool {
	r := &s.req
	class := memory.ClassIO
	if q.admin {
		class = memory.ClassAdmin
	}
	n, ok := q.shard.mem.Alloc(r.Segs[:], r.Length, class)
	if !ok {
		return false
	}
	s.nseg = uint8(n)
	r.SetData(n)
	q.held += roundUp(uint64(r.Length), memory.PageSize)
	return true
}

// releaseData gives the memory back.
func (q *queue) releaseData(s *slot) {
	if s.nseg == 0 {
		return
	}
	q.shard.mem.Free(s.req.Segs[:s.nseg])
	s.nseg = 0
	q.held -= roundUp(uint64(s.req.Length), memory.PageSize)
	if q.bufWait.head != nil {
		q.shard.enter(q)
	}
}

// haveBuffers goes on with a slot that has its memory.
func (q *queue) haveBuffers(s *slot) {
	r := &s.req
	switch {
	case s.copyIn:
		from := q.recvs.capsuleData(int(s.recv)).Bytes()[s.offset:][:r.Length]
		for _, seg := range r.Data {
			from = from[copy(seg.Bytes(), from):]
		}
		q.lane.stats.CopiedBytes += uint64(r.Length)
		q.shard.group.CountCopied(target.CopyCapsule, uint64(r.Length))
		q.returnShared(s)
		q.execute(s)
	case r.Dir == nvme.DirControllerToHost:
		q.execute(s)
	default:
		s.to(slotWaitRead)
		s.since = q.shard.r.Now()
		q.readWait.push(s)
		q.pumpReads()
		if s.state == slotWaitRead {
			s.waited = true
			q.lane.stats.ReadWaits++
		}
	}
}

// pumpReads starts the READs of waiting writes in order, within the READ depth.
func (q *queue) pumpReads() {
	for q.readWait.head != nil && q.readCredits > 0 && q.state == queueLive {
		s := q.readWait.head
		if s.wide == nil && (s.ndesc > 1 || int(s.nseg) > q.maxReadSGE) {
			b := q.takeWide()
			if b == nil {
				q.lane.stats.WideWaits++
				return // comes back with the next completion on this queue
			}
			s.wide = b
			s.build(b, q.readTransfer(s), s.req.Data, q.lkeys)
		}
		if q.readWait.pop(); s.waited {
			s.waited = false
			q.waited(s, target.WaitWork, &q.lane.stats.ReadWaitNanos)
		}
		s.to(slotReading)
		first, last := &s.wr.data, &s.wr.data
		s.readWRs = 1
		if b := s.wide; b != nil {
			n := min(q.readCredits, b.n-b.sent)
			first, last = &b.wrs[b.sent], &b.wrs[b.sent+n-1]
			b.sent += n
			s.readWRs = uint16(n)
		} else {
			s.buildOne(q.readTransfer(s), s.req.Data, q.lkeys)
		}
		last.Flags = verbs.SendSignaled
		q.readCredits -= int(s.readWRs)
		q.lane.stats.Reads += uint64(s.readWRs)
		q.link(first, last)
		q.pushRing(s, ringRead)
	}
}

func (q *queue) readTransfer(s *slot) transfer {
	return transfer{
		op: verbs.OpRDMARead, id: makeID(wrRead, s.gen, q.gen, q.index, s.index),
		length: s.req.Length, maxSGE: q.maxReadSGE,
	}
}

// readDone is the end of a slot's READs, or of as many as the READ depth let out.
func (q *queue) readDone(s *slot, ok bool) {
	q.readCredits += int(s.readWRs)
	s.readWRs = 0
	if ok && q.state == queueLive && s.wide != nil && s.wide.sent < s.wide.n {
		s.to(slotWaitRead) // its turn comes again before all others
		s.since = q.shard.r.Now()
		q.readWait.pushFront(s)
		return
	}
	q.dropWide(s)
	if !ok || q.state != queueLive {
		q.tq.Fail(&s.req, nvme.StatusDataTransferError)
		return
	}
	q.execute(s)
}

func (q *queue) dropWide(s *slot) {
	if s.wide != nil {
		q.giveWide(s.wide)
		s.wide = nil
	}
}

// execute hands a command to the target.
func (q *queue) execute(s *slot) {
	s.to(slotExecuting)
	q.executing++
	q.lane.executing += q.polled
	q.tq.Execute(&s.req)
}
