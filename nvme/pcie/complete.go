package pcie

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"rocet/nvme"
)

// Poll handles what the drive has completed, up to a bound, and returns how much.
func (q *Queue) Poll() int {
	q.owner.Check()
	if !q.works() {
		return 0
	}
	q.polling = true // a Close from a completion waits: the head's doorbell comes first
	n := q.reap(maxPoll)
	q.polling = false
	if n > 0 {
		q.disarm()
		if q.cqBell.ring(q.head) {
			q.stats.Doorbells++
		} else {
			q.stats.Shadowed++
		}
		q.resume()
		if q.closing != nil {
			q.closeIfIdle()
		}
	}
	return n
}

// ready tells whether the entry at the head is new: its phase bit is what this round's are.
func (q *Queue) ready() bool {
	return q.depth > 1 && q.word3(q.head)>>16&1 == q.phase
}

// word3 loads the last dword of an entry, which the drive writes with or after the rest. What is loaded after it is as
// new as it is.
func (q *Queue) word3(i uint32) uint32 {
	return atomic.LoadUint32((*uint32)(unsafe.Add(q.cq, uintptr(i)*nvme.CompletionSize+12)))
}

// reap takes up to most completions off the queue.
func (q *Queue) reap(most int) int {
	if q.depth <= 1 || q.broken {
		return 0
	}
	n := 0
	for n < most {
		w3 := q.word3(q.head)
		if w3>>16&1 != q.phase {
			break
		}
		w2 := binary.LittleEndian.Uint32((*[4]byte)(unsafe.Add(q.cq, uintptr(q.head)*nvme.CompletionSize+8))[:])
		if q.head++; q.head == q.depth {
			q.head, q.phase = 0, q.phase^1
		}
		n++
		i := uint16(w3) & cidSlotMask
		if uint32(i) >= q.depth-1 || q.slots[i].state == slotFree || q.cid(i) != uint16(w3) || uint16(w2>>16) != q.id {
			q.garbage(w2, w3)
			break
		}
		st := nvme.Status(w3 >> 17)
		q.stats.Completed++
		if st != nvme.StatusSuccess {
			st = q.explain(i, st)
		}
		q.finish(i, st)
	}
	return n
}

// finish gives the slot back and ends what it was for.
func (q *Queue) finish(i uint16, st nvme.Status) {
	s := &q.slots[i]
	done, p := s.done, s.parent
	s.done, s.parent = nil, nil
	s.state = slotFree
	q.free = append(q.free, i)
	if p == nil {
		done.Complete(st)
		return
	}
	p.pending--
	if st != nvme.StatusSuccess {
		p.fail(q, st)
	}
	p.settle(q)
}

// explain turns a drive's error into what the host is told: what the driver's own abort or reset did can be retried, and
// references to the drive's error log and retry delays mean nothing to the host.
func (q *Queue) explain(i uint16, st nvme.Status) nvme.Status {
	q.stats.Failed++
	switch st.Code() {
	case nvme.StatusAbortedSQDeletion:
		return StatusReset
	case nvme.StatusAbortedByRequest:
		if q.slots[i].state != slotBusy {
			return StatusReset
		}
	}
	return st & (nvme.StatusCodeMask | nvme.StatusDNR)
}

// garbage takes note of an entry that no command of this queue can have: the controller is not to be trusted.
func (q *Queue) garbage(w2, w3 uint32) {
	q.broken = true
	q.drive.report(reportGarbage)
	q.drive.log.Error("the drive completed a command that it does not have", "queue", q.id, "dword2", w2, "dword3", w3)
}
