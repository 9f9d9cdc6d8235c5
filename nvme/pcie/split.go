package pcie

import (
	"encoding/binary"

	"rocet/memory"
	"rocet/nvme"
)

// parent is a request that goes to the drive as several commands, or as commands that the driver writes anew. There is
// one for each slot, so one is free whenever a slot is: every parent but the one being sent has a command with the drive.
type parent struct {
	req     Request
	at      cursor // of the data that was not sent yet
	lba     uint64
	left    uint32 // blocks (or ranges) not sent yet
	within  uint32 // blocks of the first range that were sent
	parts   uint32 // that were sent
	pending uint32 // of them with the drive
	status  nvme.Status
	next    *parent // in the list of free ones
}

// fail notes an error: the first one is the request's, and ends its sending.
func (p *parent) fail(q *Queue, st nvme.Status) {
	if p.status == nvme.StatusSuccess {
		p.status = st
	}
	p.left = 0
	if q.splitting == p {
		q.splitting = nil
	}
}

// settle ends the request when no command of it is left.
func (p *parent) settle(q *Queue) {
	if p.pending > 0 || p.left > 0 {
		return
	}
	done, st := p.req.Done, p.status
	p.req, p.at = Request{}, cursor{}
	p.next, q.freeParents = q.freeParents, p
	done.Complete(st)
}

// split begins to send a request in parts, as far as there is room. The rest follows when commands complete; nothing
// else is taken before.
func (q *Queue) split(r *Request) bool {
	if st := r.check(); st != nvme.StatusSuccess {
		q.stats.Misaligned++
		r.Done.Complete(st)
		return true
	}
	p := q.freeParents
	q.freeParents = p.next
	*p = parent{req: *r, at: cursor{segs: r.Data}, lba: r.LBA, left: r.Blocks}
	q.splitting = p
	q.resume()
	return true
}

// check finds what the parts could not show.
func (r *Request) check() nvme.Status {
	switch {
	case r.Blocks == 0:
		return nvme.StatusInvalidField | nvme.StatusDNR
	case r.Op == nvme.OpDatasetManagement:
		if r.Blocks > nvme.DSMMaxRanges || len(r.Data) != 1 || r.Data[0].Len < r.Blocks*nvme.DSMRangeSize {
			return nvme.StatusInvalidField | nvme.StatusDNR
		}
	case r.Op != nvme.OpWriteZeroes && r.Op != nvme.OpVerify:
		if memory.Length(r.Data) < uint64(r.Blocks)<<r.NS.shift {
			return nvme.StatusInternalError | nvme.StatusDNR
		}
	}
	return nvme.StatusSuccess
}

// resume sends parts of the request that is being split, as far as there is room.
func (q *Queue) resume() {
	for q.splitting != nil && len(q.free) > 0 && q.works() {
		q.sendPart(q.splitting)
	}
}

// sendPart sends the next command of a request. The request may have ended when it returns.
func (q *Queue) sendPart(p *parent) {
	r, ns := &p.req, p.req.NS
	i := q.take()
	s := &q.slots[i]
	s.parent, s.slow = p, r.Op == nvme.OpDatasetManagement || r.Op == nvme.OpWriteZeroes
	p.pending++
	if p.parts++; p.parts == 2 {
		q.stats.Split++
	}
	lba, at := p.lba, p.at
	var n uint32
	switch r.Op {
	case nvme.OpDatasetManagement:
		n = q.sendRanges(i, p)
	case nvme.OpWriteZeroes:
		n = min(p.left, ns.zeroBlocks)
	case nvme.OpVerify:
		n = min(p.left, ns.verifyBlocks)
	default:
		n = ns.room(p.lba, min(p.left, ns.maxBlocks))
		if !q.sgl {
			// If it is not even a block, transfer refuses it.
			n = max(q.prefix(p.at, n<<ns.shift)>>ns.shift, 1)
		}
		p.at.advance(n << ns.shift)
	}
	if r.Op != nvme.OpDatasetManagement {
		p.lba += uint64(n)
		p.left -= n
	}
	if p.left == 0 {
		q.splitting = nil
	}
	switch r.Op {
	case nvme.OpDatasetManagement:
		_, listIOVA := q.list(i)
		q.push(i, r.Op, ns.nsid, nvme.PSDTPRP, listIOVA, 0, uint64(n-1)|uint64(r.Flags)<<32, 0, 0)
	case nvme.OpWriteZeroes, nvme.OpVerify:
		q.push(i, r.Op, ns.nsid, 0, 0, 0, lba, r.Flags|(n-1)&0xffff, 0)
	default:
		q.transfer(i, r, lba, n, at)
	}
}

// sendRanges writes the next ranges of a Dataset Management request into slot i's list, cut to what the drive takes, and
// returns how many these are.
func (q *Queue) sendRanges(i uint16, p *parent) uint32 {
	limits := &p.req.NS.dsm
	list, _ := q.list(i)
	data := p.req.Data[0].Bytes()
	n, blocks := uint32(0), uint64(0)
	for p.left > 0 && n < limits.ranges {
		from := (*nvme.DSMRange)(data[(p.req.Blocks-p.left)*nvme.DSMRangeSize:])
		part := min(from.NLB()-p.within, limits.rangeBlocks)
		if blocks+uint64(part) > limits.blocks {
			if n > 0 {
				break
			}
			part = uint32(limits.blocks)
		}
		to := list[n*nvme.DSMRangeSize:]
		binary.LittleEndian.PutUint32(to[0:], from.Attributes())
		binary.LittleEndian.PutUint32(to[4:], part)
		binary.LittleEndian.PutUint64(to[8:], from.SLBA()+uint64(p.within))
		n++
		blocks += uint64(part)
		p.within += part
		if p.within == from.NLB() {
			p.left--
			p.within = 0
		}
	}
	return n
}
