package pcie

import (
	"log/slog"
	"time"

	"rocet/memory"
	"rocet/nvme/vfio"
)

// Function is the PCI function of a drive. *vfio.Device is one; package sim has another.
type Function interface {
	Address() string
	MapBAR(index int) (*vfio.BAR, error)
	SetBusMaster(on bool) error // confirmed when it returns
	CanReset() bool
	Reset() error
	Vectors() int
	EnableMSIX(fds []int) error
	Masks(n int) ([]vfio.Mask, error)
	ErrorFD() int   // readable: a fatal PCI Express error; -1: there is none
	RequestFD() int // readable: give the function back; -1: there is none
	Close()         // ends the function's DMA
}

// Memory is where rings, lists and the like are taken from. *memory.Pool is one.
type Memory interface {
	NewSlab(size uint64) (*memory.Slab, error)
	FreeSlab(*memory.Slab)
}

// Executor runs functions on the one goroutine that a queue belongs to, in order. It returns false, and drops fn, when
// that goroutine has ended. *reactor.Reactor is one.
type Executor interface{ Post(fn func()) bool }

// Config says how a drive is opened.
type Config struct {
	// Open opens the drive's PCI function. It is called again, about once a second, after the drive has gone.
	Open   func() (Function, error)
	Table  *vfio.Table
	Memory Memory

	Queues int // I/O queue pairs that will be open at once: one for each reactor
	Depth  int // entries of an I/O queue, 0: 256; the drive may have fewer

	Timeout      time.Duration // of an I/O command before it is aborted, 0: 10 s
	AbortTimeout time.Duration // for an aborted command to come back before the controller is reset, 0: 3 s
	AdminTimeout time.Duration // of an admin command before the controller is reset, 0: 10 s
	Hold         time.Duration // how long commands wait for a drive that is being reset, 0: 20 s
	HoldRemoved  time.Duration // the same for one that was removed, 0: not at all

	Log    *slog.Logger // nil: slog.Default()
	Notify func(Event)  // called off the reactors, one at a time; nil: nobody hears. It must not call the Drive.
}

// Defaults of Config.
const (
	DefaultDepth        = 256
	MaxDepth            = 1 << cidSlotBits
	DefaultTimeout      = 10 * time.Second
	DefaultAbortTimeout = 3 * time.Second
	DefaultAdminTimeout = 10 * time.Second
	DefaultHold         = 20 * time.Second
)

func (c *Config) setDefaults() {
	c.Queues = max(c.Queues, 1)
	if c.Depth == 0 {
		c.Depth = DefaultDepth
	}
	c.Depth = min(max(c.Depth, 2), MaxDepth)
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&c.Timeout, DefaultTimeout}, {&c.AbortTimeout, DefaultAbortTimeout}, {&c.AdminTimeout, DefaultAdminTimeout}, {&c.Hold, DefaultHold}} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
}

// EventKind is what happened to a drive.
type EventKind uint8

// Events.
const (
	EventGone             EventKind = iota // removed, or hopelessly broken
	EventBack                              // live again after EventGone
	EventNamespaceChanged                  // Event.NSID has other data, or is no longer there
	EventHealth                            // SMART has a critical warning, or another one
)

// Event is something that happened to a drive.
type Event struct {
	Kind EventKind
	NSID uint32
}
