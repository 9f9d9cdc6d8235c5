package rdma

import (
	"rocet/cgo/verbs"
	"rocet/nvme"
	"rocet/target"
)

// Respond implements target.Conn.
func (q *queue) Respond(r *target.Request) {
	q.owner.Check()
	s := &q.slots[r.Tag]
	if s.state == slotExecuting {
		q.executing--
		q.lane.executing -= q.polled
	}
	if r.Dir != nvme.DirControllerToHost {
		q.releaseData(s) // the backend is done with it
	}
	if q.state != queueLive {
		q.finish(s)
		q.checkDrained()
		return
	}
	s.to(slotWaitSend)
	if q.sendWait.head != nil || !q.trySend(s) {
		s.since = q.shard.r.Now()
		q.sendWait.push(s)
		q.lane.stats.SendWaits++
	}
}

// trySend puts a response, with its data before it and the receive for the next
// command, into this turn's batch, if the send queue has room for all of it.
func (q *queue) trySend(s *slot) bool {
	r := &s.req
	w := s.wr
	first := &w.resp
	n := 1
	if r.DataOut() {
		if s.ndesc == 1 && len(r.Data) <= q.maxSGE {
			if q.sendCredits < 2 {
				return false
			}
			s.buildOne(q.writeTransfer(s), r.Data, q.lkeys)
			w.data.Next = sendAddr(&w.resp)
			first, n = &w.data, 2
		} else {
			if s.wide == nil {
				b := q.takeWide()
				if b == nil {
					q.lane.stats.WideWaits++
					return false
				}
				s.wide = b
				s.build(b, q.writeTransfer(s), r.Data, q.lkeys)
			}
			b := s.wide
			if q.sendCredits < b.n+1 {
				return false
			}
			b.wrs[b.n-1].Next = sendAddr(&w.resp)
			first, n = &b.wrs[0], b.n+1
		}
		q.lane.stats.Writes += uint64(n - 1)
	} else if q.sendCredits < 1 {
		return false
	}
	q.sendCredits -= n
	s.sendWRs = uint16(n)
	*s.cqe = r.Cqe
	w.resp.ID = uint64(makeID(wrSend, s.gen, q.gen, q.index, s.index))
	w.resp.Flags = q.sendFlags
	w.resp.Opcode = verbs.OpSend
	if s.inv {
		w.resp.Opcode = verbs.OpSendWithInv
		w.resp.InvalidateRKey = s.key
		q.lane.stats.Invalidates++
	}
	// The host may use its slot again as soon as it has the response, so the
	// receive goes with it: in a batch receives are posted first.
	if s.recv != noRecv {
		recv := uint16(s.recv)
		s.recv = noRecv
		q.giveRecv(recv)
	}
	s.to(slotResponding)
	q.link(first, &w.resp)
	q.pushRing(s, ringSend)
	q.lane.stats.Responses++
	q.lane.answered.push(s)
	return true
}

func (q *queue) writeTransfer(s *slot) transfer {
	return transfer{
		op: verbs.OpRDMAWrite, id: makeID(wrWrite, s.gen, q.gen, q.index, s.index),
		length: s.req.Length, maxSGE: q.maxSGE,
	}
}

// sent is the end of a slot's response: it left, or it was flushed.
func (q *queue) sent(s *slot) {
	q.sendCredits += int(s.sendWRs)
	q.finish(s)
}

// finish frees a slot and all that it still has.
func (q *queue) finish(s *slot) {
	s.to(slotFree)
	q.dropWide(s)
	q.releaseData(s)
	if s.recv != noRecv {
		q.dropRecv(uint16(s.recv))
		s.recv = noRecv
	}
	s.req.End()
	s.sendWRs = 0
	s.gen++
	q.inUse--
	q.free = append(q.free, s.index)
}
