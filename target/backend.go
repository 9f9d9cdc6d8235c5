package target

import (
	"rocet/memory"
	"rocet/nvme"
)

// Op is what a backend is asked to do. It is not the wire's opcode: Dataset
// Management arrives as OpDeallocate or not at all.
type Op uint8

// Operations. Read, Write and Flush exist in every backend; the others where
// Info.Ops has them.
const (
	OpRead Op = iota
	OpWrite
	OpFlush
	OpWriteZeroes
	OpDeallocate
	OpCompare
	OpVerify
	NumOps int = iota
)

var opNames = [NumOps]string{"read", "write", "flush", "write_zeroes", "deallocate", "compare", "verify"}

// String is the word that metrics use.
func (op Op) String() string {
	if int(op) < len(opNames) {
		return opNames[op]
	}
	return "unknown"
}

// OpSet is a set of operations.
type OpSet uint16

// Ops makes a set.
func Ops(ops ...Op) OpSet {
	var s OpSet
	for _, op := range ops {
		s |= 1 << op
	}
	return s
}

// Has tells whether the set holds op.
func (s OpSet) Has(op Op) bool { return s>>op&1 != 0 }

// allOps are the optional operations that the target knows how to pass on.
var allOps = Ops(OpWriteZeroes, OpDeallocate, OpCompare, OpVerify)

// IOFlags modify an operation.
type IOFlags uint8

// Flags.
const (
	FUA          IOFlags = 1 << iota // write, write zeroes, read: media, not a volatile cache
	Deallocate                       // write zeroes: the blocks may be deallocated (DEAC)
	LimitedRetry                     // fail sooner rather than later (LR)
)

// IO is one operation on a backend's blocks. It lies inside whatever asked for it
// (a Request, a stripe's part), so that submitting one allocates nothing.
//
// What the target guarantees: LBA + Blocks is inside the geometry that the
// backend reported, Data is exactly Blocks long, an optional Op is one that Info
// has. What it does not: after a shrink the backend must check for itself.
type IO struct {
	Op     Op
	Flags  IOFlags
	Blocks uint32
	LBA    uint64

	// Data is what a read fills and what a write or compare takes.
	//
	// A read of a backend with LendsReads gets it empty, with room for
	// MaxSegments: Submit appends segments of the backend's own memory. The target
	// counts the loan until the transport has sent the data, and closes the queue
	// only after its last loan ended; until then the memory must stay registered.
	//
	// For OpDeallocate it is one segment with Blocks range descriptors
	// (nvme.DSMRange), each already checked against the geometry; LBA is 0.
	Data []memory.Segment

	Next    *IO       // for the backend's own list of waiting operations
	Scratch [4]uint64 // the backend's own, from Submit to Complete

	done IODone
}

// IODone hears of an operation's end, on the reactor that submitted it.
type IODone interface{ IODone(io *IO, st nvme.Status) }

// Init says who hears of the end. Once is enough for an IO that is used again.
func (io *IO) Init(done IODone) { io.done = done }

// Complete ends the operation: exactly once, on the reactor that submitted it. It
// may run inside Submit. The IO may be submitted again before it returns.
func (io *IO) Complete(st nvme.Status) { io.done.IODone(io, st) }

// Geometry is a backend's size.
type Geometry struct {
	BlockSize uint32 // power of two, 512 to 1 MiB
	Blocks    uint64
}

// Bytes is the size in bytes.
func (g Geometry) Bytes() uint64 { return uint64(g.BlockSize) * g.Blocks }

// Info describes a backend. Sizes in blocks are 1-based here, 0 means that the
// backend has nothing to say; the wire's 0-based forms are the target's work.
type Info struct {
	Geometry
	LendsReads         bool // Submit of a read sets IO.Data to memory that stays put
	ReadOnly           bool
	VolatileWriteCache bool
	Ops                OpSet  // which optional operations exist
	MaxTransfer        uint32 // bytes that one IO may have; 0: any. The target wants at least its MDTS.

	Atomic                     AtomicUnits
	OptimalIOBoundary          uint16 // NOIOB, in blocks
	WriteGranularity           uint32 // NPWG, in blocks
	WriteAlignment             uint32 // NPWA
	DeallocGranularity         uint32 // NPDG
	DeallocAlignment           uint32 // NPDA
	OptimalWriteSize           uint32 // NOWS
	ReadsZeroesAfterDeallocate bool   // DLFEAT 001b

	Model, Serial string // of the device, for people
	NGUID         nvme.NGUID
	EUI64         nvme.EUI64
}

// AtomicUnits are the atomic write units in blocks, 0 where there are none.
type AtomicUnits struct {
	Normal            uint32 // NAWUN
	PowerFail         uint32 // NAWUPF
	Compare           uint32 // NACWU
	Boundary          uint32 // NABSN
	BoundaryOffset    uint32 // NABO
	BoundaryPowerFail uint32 // NABSPF
}

// Event is what a backend reports by itself.
type Event uint8

// Events.
const (
	EventResized Event = iota // Info has another geometry
	EventGone                 // the device is away: operations fail until EventBack
	EventBack
	EventHealth // SMART has a critical warning, or no longer
)

var eventNames = [...]string{"resized", "gone", "back", "health"}

func (e Event) String() string {
	if int(e) < len(eventNames) {
		return eventNames[e]
	}
	return "unknown"
}

// Backend is what a namespace stands on. Whoever opened it closes it, after the
// namespace was removed.
type Backend interface {
	// Info is a snapshot: cheap, from any goroutine.
	Info() Info
	// OpenQueue makes the backend ready for a reactor. Off the reactors; may block.
	OpenQueue(g *PollGroup) (BackendQueue, error)
	// Watch sets who hears of events; nil: nobody. The backend calls it off the
	// reactors and never while Watch itself or Close runs.
	Watch(func(Event))
	// SMART is the device's health, false where there is none. Off the reactors; may block.
	SMART() (nvme.SMARTLog, bool)
	// Close comes after every queue is closed.
	Close() error
}

// Resizer is a Backend whose size can be changed. It reports EventResized itself.
type Resizer interface{ Resize(blocks uint64) error }

// BackendQueue is a backend as one reactor uses it. Everything is called on that reactor.
type BackendQueue interface {
	// Submit never blocks, and keeps what it has no room for. It may complete the
	// IO before it returns.
	Submit(io *IO)
	// Close ends the queue; done runs when nothing is outstanding.
	Close(done func())
}
