package rdma

import (
	"rocet/cgo/verbs"
	"rocet/internal/invariants"
	"rocet/memory"
	"rocet/nvme"
	"rocet/target"
)

// slotState is where a command is; see the diagram in doc.go.
type slotState uint8

const (
	slotFree        slotState = iota // in the queue's free list
	slotReceived                     // a capsule was taken out of its receive buffer; Prepare and the SGL decide what follows
	slotWaitBuffers                  // needs pool memory: in queue.bufWait, the queue in turn with others of its shard
	slotWaitRead                     // write: has memory, needs READ depth or a wide block: in queue.readWait
	slotReading                      // write: RDMA READs are with the device
	slotExecuting                    // with the target and its backend
	slotWaitSend                     // responded, needs send work requests or a wide block: in queue.sendWait
	slotResponding                   // RDMA WRITEs and the SEND are with the device, or in this turn's batch
	numSlotStates   int       = iota
)

var slotStateNames = [numSlotStates]string{"free", "received", "waiting for buffers", "waiting to read", "reading", "executing", "waiting to send", "responding"}

func (s slotState) String() string { return slotStateNames[s] }

// slotMoves are the arrows of the diagram: a bit for each state that may follow.
var slotMoves = [numSlotStates]uint16{
	slotFree:        1 << slotReceived,
	slotReceived:    1<<slotWaitBuffers | 1<<slotWaitRead | 1<<slotExecuting | 1<<slotWaitSend | 1<<slotFree,
	slotWaitBuffers: 1<<slotWaitRead | 1<<slotExecuting | 1<<slotWaitSend | 1<<slotFree,
	slotWaitRead:    1<<slotReading | 1<<slotWaitSend | 1<<slotFree,
	slotReading:     1<<slotWaitRead | 1<<slotExecuting | 1<<slotWaitSend | 1<<slotFree,
	slotExecuting:   1<<slotWaitSend | 1<<slotFree,
	slotWaitSend:    1<<slotResponding | 1<<slotFree,
	slotResponding:  1 << slotFree,
}

const noRecv = -1

// slot is one command under way.
type slot struct {
	state   slotState
	inv     bool // respond with SEND_WITH_INV of key
	copyIn  bool // data comes from the capsule by copy, once there are buffers
	waited  bool // counted as waiting for READs
	index   uint16
	gen     uint16
	sendWRs uint16 // of the response's chain
	readWRs uint16 // of the READs that are with the device
	nseg    uint8  // segments of pool memory in req.Segs
	ndesc   uint8  // keyed descriptors from desc on
	recv    int32  // receive buffer that the command holds, or noRecv
	key     uint32
	offset  uint32 // copyIn: where the data is in the capsule

	next  *slot // in the one list that the state names, or lane.answered
	since int64 // when a wait began
	wr    *slotWR
	cqe   *nvme.Completion // what the response is sent from
	desc  *nvme.SGLDescriptor
	wide  *wideBlock

	req target.Request
	cmd nvme.Command // of a queue with shared receives: the command, so that its buffer can go back at once
}

func (s *slot) to(state slotState) {
	if invariants.Enabled && slotMoves[s.state]>>state&1 == 0 {
		panic("rdma: slot goes from " + s.state.String() + " to " + state.String())
	}
	s.state = state
}

// slotList is a FIFO of slots.
type slotList struct {
	head, tail *slot
	n          int
}

func (l *slotList) push(s *slot) {
	s.next = nil
	if l.tail != nil {
		l.tail.next = s
	} else {
		l.head = s
	}
	l.tail = s
	l.n++
}

func (l *slotList) pushFront(s *slot) {
	s.next = l.head
	l.head = s
	if l.tail == nil {
		l.tail = s
	}
	l.n++
}

func (l *slotList) pop() *slot {
	s := l.head
	l.head = s.next
	if l.head == nil {
		l.tail = nil
	}
	s.next = nil
	l.n--
	return s
}

// since is when the wait of the first began, 0 if nobody waits.
func (l *slotList) since() int64 {
	if l.head == nil {
		return 0
	}
	return l.head.since
}

// wideBlock is the work requests of a command that one WRITE or READ is not enough
// for: several descriptors, or more segments than a work request takes. Queues have
// a few of them.
type wideBlock struct {
	next *wideBlock
	wrs  []verbs.SendWR
	sges []verbs.SGE
	n    int // work requests built
	sent int // of them with the device
}

// transfer describes one direction of a command's data.
type transfer struct {
	op     verbs.Opcode
	id     wrID
	length uint32
	maxSGE int
}

// buildOne fills the slot's own work request: one descriptor, few segments.
func (s *slot) buildOne(t transfer, segs []memory.Segment, lkeys []uint32) {
	w := s.wr
	left := t.length
	n := 0
	for i := range segs {
		take := min(segs[i].Len, left)
		w.sge[n] = verbs.SGE{Addr: uint64(segs[i].Addr), Length: take, LKey: lkeys[segs[i].Slab]}
		n++
		if left -= take; left == 0 {
			break
		}
	}
	d := &w.data
	d.ID = uint64(t.id)
	d.NumSGE = int32(n)
	d.Opcode = t.op
	d.Flags = 0
	d.RemoteAddr = s.desc.Address()
	d.RKey = s.desc.Key()
}

// build cuts a transfer into the work requests of a wide block: each is one run of
// the host's memory and up to maxSGE of ours.
func (s *slot) build(b *wideBlock, t transfer, segs []memory.Segment, lkeys []uint32) {
	b.n, b.sent = 0, 0
	nsge, seg, segOff, left := 0, 0, uint32(0), t.length
	for di := 0; di < int(s.ndesc) && left > 0; di++ {
		d := descriptorAt(s.desc, di)
		addr, remote := d.Address(), min(d.KeyedLength(), left)
		left -= remote
		for remote > 0 {
			w := &b.wrs[b.n]
			*w = verbs.SendWR{ID: uint64(t.id), SGList: sgeAddr(&b.sges[nsge]), Opcode: t.op, RemoteAddr: addr, RKey: d.Key()}
			if b.n > 0 {
				b.wrs[b.n-1].Next = sendAddr(w)
			}
			b.n++
			for remote > 0 && int(w.NumSGE) < t.maxSGE {
				take := min(segs[seg].Len-segOff, remote)
				b.sges[nsge] = verbs.SGE{Addr: uint64(segs[seg].Addr) + uint64(segOff), Length: take, LKey: lkeys[segs[seg].Slab]}
				nsge++
				w.NumSGE++
				remote -= take
				addr += uint64(take)
				if segOff += take; segOff == segs[seg].Len {
					seg, segOff = seg+1, 0
				}
			}
		}
	}
}

// wideSizes is how many work requests and segments the largest transfer needs.
func wideSizes(maxDesc, maxSGE int) (wrs, sges int) {
	return maxDesc + (target.MaxSegments+maxSGE-1)/maxSGE, target.MaxSegments + maxDesc
}
