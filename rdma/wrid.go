package rdma

// wrID is what a work request's completion brings back: where it belongs, and
// generations that tell a stale one from the present owner of queue and slot.
//
//	63..62  61..48           47..32            31..16  15..0
//	kind    slot generation  queue generation  queue   slot, or receive buffer
type wrID uint64

// wrKind is the kind of a work request. An error completion has no opcode.
type wrKind uint8

const (
	wrRecv wrKind = iota
	wrSend        // the response, end of a chain of WRITEs
	wrWrite
	wrRead
)

const slotGenMask = 1<<14 - 1

func makeID(k wrKind, slotGen, queueGen, queue, slot uint16) wrID {
	return wrID(k)<<62 | wrID(slotGen&slotGenMask)<<48 | wrID(queueGen)<<32 | wrID(queue)<<16 | wrID(slot)
}

func (id wrID) kind() wrKind     { return wrKind(id >> 62) }
func (id wrID) slotGen() uint16  { return uint16(id>>48) & slotGenMask }
func (id wrID) queueGen() uint16 { return uint16(id >> 32) }
func (id wrID) queue() uint16    { return uint16(id >> 16) }
func (id wrID) slot() uint16     { return uint16(id) }

var kindNames = [...]string{"receive", "send", "RDMA WRITE", "RDMA READ"}

func (k wrKind) String() string { return kindNames[k&3] }
