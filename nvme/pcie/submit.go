package pcie

import (
	"encoding/binary"
	"unsafe"

	"rocet/memory"
	"rocet/nvme"
)

// Room tells whether TrySubmit would take a request.
func (q *Queue) Room() bool {
	return q.state == queueLive && q.splitting == nil && len(q.free) > 0 || q.state == queueFailed
}

// TrySubmit takes a request for the drive, which hears of it at the next Flush. It returns false if the queue has no room
// or the drive is being reset: the caller keeps the request and tries again after the next Poll. A request that cannot
// go at all is ended at once.
func (q *Queue) TrySubmit(r *Request) bool {
	q.owner.Check()
	if q.state != queueLive || q.splitting != nil || len(q.free) == 0 {
		return q.refuse(r)
	}
	ns := r.NS
	if !ns.usable.Load() {
		r.Done.Complete(nvme.StatusInvalidNamespace | nvme.StatusDNR)
		return true
	}
	switch r.Op {
	case nvme.OpRead, nvme.OpWrite, nvme.OpCompare:
		// No blocks at all wrap round, and are refused with what is too long.
		if r.Blocks-1 >= ns.maxBlocks || ns.boundary != 0 && q.crosses(r) {
			return q.split(r)
		}
		i := q.take()
		psdt, ptr1, ptr2, ok := q.pointers(i, cursor{segs: r.Data}, r.Blocks<<ns.shift)
		if !ok { // perhaps in parts
			q.free = append(q.free, i)
			return q.split(r)
		}
		s := &q.slots[i]
		s.done, s.slow = r.Done, false
		q.push(i, r.Op, ns.nsid, psdt, ptr1, ptr2, r.LBA, r.Flags|(r.Blocks-1)&0xffff, 0)
		return true
	case nvme.OpFlush:
		if !ns.flushes { // the drive has nothing to flush
			r.Done.Complete(nvme.StatusSuccess)
			return true
		}
		i := q.take()
		s := &q.slots[i]
		s.done, s.slow = r.Done, true
		q.push(i, r.Op, ns.nsid, 0, 0, 0, 0, 0, 0)
		return true
	case nvme.OpWriteZeroes, nvme.OpVerify, nvme.OpDatasetManagement:
		return q.split(r)
	}
	r.Done.Complete(nvme.StatusInvalidOpcode | nvme.StatusDNR)
	return true
}

// refuse is TrySubmit where the queue takes nothing.
func (q *Queue) refuse(r *Request) bool {
	if q.state == queueFailed {
		q.stats.Refused++
		r.Done.Complete(StatusGone)
		return true
	}
	q.stats.Full++
	return false
}

// crosses tells whether a request must be cut at the namespace's boundary. One that the drive writes atomically is
// left whole: the boundary is about speed only.
func (q *Queue) crosses(r *Request) bool {
	if r.Op == nvme.OpWrite && r.Blocks <= r.NS.atomicBlocks {
		return false
	}
	return r.NS.room(r.LBA, r.Blocks) < r.Blocks
}

// take gets a free slot; there is one.
func (q *Queue) take() uint16 {
	i := q.free[len(q.free)-1]
	q.free = q.free[:len(q.free)-1]
	return i
}

// transfer sends a part of a Read, Write or Compare, whose data begins at a cursor. The slot is taken.
func (q *Queue) transfer(i uint16, r *Request, lba uint64, blocks uint32, at cursor) {
	psdt, ptr1, ptr2, ok := q.pointers(i, at, blocks<<r.NS.shift)
	if !ok {
		q.stats.Misaligned++
		q.finish(i, nvme.StatusInternalError|nvme.StatusDNR)
		return
	}
	q.push(i, r.Op, r.NS.nsid, psdt, ptr1, ptr2, lba, r.Flags|(blocks-1)&0xffff, 0)
}

// push writes the slot's command into the submission queue: Base 2.1 section 3.3.3.1, NVM Command Set 1.1 section 3.3.
// The queue has room, since there are fewer slots than entries.
func (q *Queue) push(i uint16, op nvme.Opcode, nsid uint32, psdt uint8, ptr1, ptr2, cdw10 uint64, cdw12, cdw13 uint32) {
	s := &q.slots[i]
	s.uses = (s.uses + 1) & cidUseMask
	s.born, s.state = q.ticks, slotBusy
	e := (*nvme.Command)(unsafe.Add(q.sq, uintptr(q.tail)*nvme.CommandSize))
	binary.LittleEndian.PutUint64(e[0:], uint64(op)|uint64(psdt)<<14|uint64(q.cid(i))<<16|uint64(nsid)<<32)
	binary.LittleEndian.PutUint64(e[8:], 0)
	binary.LittleEndian.PutUint64(e[16:], 0)
	binary.LittleEndian.PutUint64(e[24:], ptr1)
	binary.LittleEndian.PutUint64(e[32:], ptr2)
	binary.LittleEndian.PutUint64(e[40:], cdw10)
	binary.LittleEndian.PutUint64(e[48:], uint64(cdw12)|uint64(cdw13)<<32)
	binary.LittleEndian.PutUint64(e[56:], 0)
	if q.tail++; q.tail == q.depth {
		q.tail = 0
	}
	q.stats.Submitted++
}

// Flush tells the drive of what was submitted: once a turn, for all of it.
func (q *Queue) Flush() {
	q.owner.Check()
	if q.tail == q.sqBell.rung || !q.works() {
		return
	}
	if q.sqBell.ring(q.tail) {
		q.stats.Doorbells++
	} else {
		q.stats.Shadowed++
	}
}

// cursor is a place in a request's data.
type cursor struct {
	segs   []memory.Segment
	offset uint32 // into the first
}

// advance moves the cursor by n bytes, which are there.
func (c *cursor) advance(n uint32) {
	for n > 0 && len(c.segs) > 0 {
		rest := c.segs[0].Len - c.offset
		if n < rest {
			c.offset += n
			return
		}
		n -= rest
		c.segs, c.offset = c.segs[1:], 0
	}
}
