package tcp

import (
	"rocet/internal/invariants"
	"rocet/nvme"
	"rocet/target"
)

// A TTAG is a slot's number and the number of the R2T.
const (
	ttagSlotBits = 12
	maxR2Ts      = 1 << (16 - ttagSlotBits) / 2
	maxC2HPDUs   = 8 // of one command
)

// slotState is where a command is; see the diagram in doc.go.
type slotState uint8

const (
	slotFree        slotState = iota // in the connection's free list
	slotReceived                     // a capsule was taken; Prepare and the SGL decide what follows
	slotWaitBuffers                  // needs pool memory: in conn.bufWait, the connection in turn with others of its shard
	slotAsking                       // write: its R2Ts are in conn.out
	slotReceiving                    // write: the host has its R2Ts and sends H2CData
	slotExecuting                    // with the target and its backend
	slotSending                      // responded: in conn.out
	numSlotStates   int       = iota
)

var slotStateNames = [numSlotStates]string{"free", "received", "waiting for buffers", "asking", "receiving", "executing", "sending"}

func (s slotState) String() string { return slotStateNames[s] }

// slotMoves are the arrows of the diagram: a bit for each state that may follow.
var slotMoves = [numSlotStates]uint16{
	slotFree:        1 << slotReceived,
	slotReceived:    1<<slotWaitBuffers | 1<<slotAsking | 1<<slotExecuting | 1<<slotSending | 1<<slotFree,
	slotWaitBuffers: 1<<slotAsking | 1<<slotExecuting | 1<<slotSending | 1<<slotFree,
	slotAsking:      1<<slotReceiving | 1<<slotSending | 1<<slotFree,
	slotReceiving:   1<<slotExecuting | 1<<slotSending | 1<<slotFree,
	slotExecuting:   1<<slotSending | 1<<slotFree,
	slotSending:     1 << slotFree,
}

// slot is one command under way.
type slot struct {
	state   slotState
	damaged bool  // a data digest was wrong: the command is not executed
	nseg    uint8 // segments of pool memory in req.Segs
	r2ts    uint8
	success bool  // the last C2HData stands for the response
	summed  uint8 // how many of ddgst are there
	index   uint16

	next  *slot // in the one list that the state names
	since int64 // when a wait began

	early []byte // in-capsule data that waits for pool memory

	// Of a write that asks for its data: how it is cut into R2Ts, and what came.
	r2tLen uint32
	got    uint32
	gotOf  [maxR2Ts]uint32

	ddgst [maxC2HPDUs]uint32 // data digests of the C2HData PDUs

	req target.Request
	cmd nvme.Command
}

func (s *slot) to(state slotState) {
	if invariants.Enabled && slotMoves[s.state]>>state&1 == 0 {
		panic("tcp: slot goes from " + s.state.String() + " to " + state.String())
	}
	s.state = state
}

// r2tRange is the part of the data that an R2T asks for.
func (s *slot) r2tRange(i int) (off, n uint32) {
	off = uint32(i) * s.r2tLen
	return off, min(s.r2tLen, s.req.Length-off)
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
