package target

import (
	"context"
	"fmt"
	"log/slog"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"rocet/memory"
	"rocet/nvme"
	"rocet/reactor"
)

// Options configure a Target. Zero values take the defaults given.
type Options struct {
	Reactors []*reactor.Reactor // at least one
	Pool     *memory.Pool
	Log      *slog.Logger // slog.Default()

	MDTS          uint32 // largest transfer in bytes, a power of two from 4 KiB to 16 MiB: 1 MiB
	MaxQueueDepth uint16 // entries of a queue: 128. A listener may have less.
	MaxIOQueues   uint16 // of one controller: 128
	MaxQueues     int    // connections of the whole target: 65536
	Firmware      string // FR of Identify Controller, up to 8 characters: "1"

	ConnectTimeout    time.Duration // from the connection to the end of Connect: 10 s
	DuplicateQID      time.Duration // how long a Connect waits for the old queue of its QID to go: 2 s
	IdleAssociation   time.Duration // how long a disabled controller may stay (Base 2.1 section 3.3): 2 min
	DiscoveryKATO     time.Duration // keep alive of discovery controllers that ask for none: 2 min
	DisconnectTimeout time.Duration // how long a connection may stay after Disconnect: 5 s
}

func (o *Options) setDefaults() error {
	if len(o.Reactors) == 0 || o.Pool == nil {
		return fmt.Errorf("target: Reactors and Pool must be set")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	def(&o.MDTS, 1<<20)
	def(&o.MaxQueueDepth, 128)
	def(&o.MaxIOQueues, 128)
	def(&o.MaxQueues, 65536)
	def(&o.Firmware, "1")
	def(&o.ConnectTimeout, 10*time.Second)
	def(&o.DuplicateQID, 2*time.Second)
	def(&o.IdleAssociation, 2*time.Minute)
	def(&o.DiscoveryKATO, 2*time.Minute)
	def(&o.DisconnectTimeout, 5*time.Second)
	if bits.OnesCount32(o.MDTS) != 1 || o.MDTS < 4096 || o.MDTS > 16<<20 {
		return fmt.Errorf("target: MDTS of %d bytes: want a power of two from 4096 to 16777216", o.MDTS)
	}
	if o.MaxQueueDepth < nvme.DiscoveryASQSZMin {
		return fmt.Errorf("target: MaxQueueDepth %d: want at least %d, the smallest admin queue", o.MaxQueueDepth, nvme.DiscoveryASQSZMin)
	}
	return nil
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Target is the registry of everything that is served: subsystems with their
// namespaces, listeners, and the controllers and queues of the hosts that are
// connected. Its methods are safe for use by several goroutines, and not for
// reactors unless they say so.
type Target struct {
	opts   Options
	log    *slog.Logger
	groups []*PollGroup

	// mu guards the topology: what exists and belongs to what. It is held for
	// moments only, never while something blocks.
	mu          sync.Mutex
	subsystems  map[string]*Subsystem
	listeners   []*Listener              // by port id
	controllers map[*Controller]struct{} // of all subsystems, until freed
	names       map[*Namespace]struct{}  // whose identifiers are taken
	discovery   *Subsystem               // the well-known discovery subsystem
	genctr      uint64                   // of the discovery log
	changed     chan struct{}            // closed, and replaced, whenever a queue or controller went away

	// conns has a lock of its own, the last to be taken, because reactors take it.
	conns struct {
		sync.Mutex
		closed bool
		all    map[*Queue]struct{}
	}
	refused atomic.Uint64 // connections over MaxQueues
	started time.Time
}

// New makes a target without subsystems on reactors that run.
func New(o Options) (*Target, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	t := &Target{
		opts:        o,
		log:         o.Log,
		subsystems:  make(map[string]*Subsystem),
		controllers: make(map[*Controller]struct{}),
		names:       make(map[*Namespace]struct{}),
		changed:     make(chan struct{}),
		genctr:      1,
		started:     time.Now(),
	}
	t.conns.all = make(map[*Queue]struct{})
	for i, r := range o.Reactors {
		g := &PollGroup{Reactor: r, Mem: o.Pool.NewCache(), Index: i, target: t}
		t.groups = append(t.groups, g)
		r.Post(g.start)
	}
	t.discovery = t.newSubsystem(SubsystemConfig{NQN: nvme.DiscoveryNQN, AllowAnyHost: true})
	t.discovery.isDiscovery = true
	return t, nil
}

// Groups are the target's poll groups, one for each reactor, in their order.
func (t *Target) Groups() []*PollGroup { return t.groups }

// MDTS is the largest transfer of one command, in bytes.
func (t *Target) MDTS() uint32 { return t.opts.MDTS }

// MaxQueueDepth is the most entries that a queue may have.
func (t *Target) MaxQueueDepth() uint16 { return t.opts.MaxQueueDepth }

// isClosed tells whether Close was called.
func (t *Target) isClosed() bool {
	t.conns.Lock()
	defer t.conns.Unlock()
	return t.conns.closed
}

// connections is how many queues there are.
func (t *Target) connections() int {
	t.conns.Lock()
	defer t.conns.Unlock()
	return len(t.conns.all)
}

// endQueues tears down every queue that match chooses, connected or not.
func (t *Target) endQueues(reason error, match func(*Queue) bool) {
	t.conns.Lock()
	defer t.conns.Unlock()
	for q := range t.conns.all {
		if match(q) {
			q.postEnd(reason)
		}
	}
}

// broadcast wakes whoever waits for queues or controllers to go. t.mu is held.
func (t *Target) broadcast() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// wait returns once done is true, which is asked under t.mu after every change.
func (t *Target) wait(ctx context.Context, done func() bool) error {
	for {
		t.mu.Lock()
		ok, changed := done(), t.changed
		t.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close ends every connection, waits for the transports to give them back, and
// removes every subsystem, whose backends may be closed then. The reactors must
// still run, and the transports have stopped using the groups' memory.
func (t *Target) Close(ctx context.Context) error {
	t.conns.Lock()
	t.conns.closed = true
	t.conns.Unlock()
	t.mu.Lock()
	for c := range t.controllers {
		c.end(ErrTargetClosed)
	}
	t.endQueues(ErrTargetClosed, func(*Queue) bool { return true })
	var subs []*Subsystem
	for _, s := range t.subsystems {
		subs = append(subs, s)
	}
	t.mu.Unlock()
	if err := t.wait(ctx, func() bool { return t.connections() == 0 }); err != nil {
		return fmt.Errorf("target: %d queues are still connected: %w", t.connections(), err)
	}
	for _, s := range subs {
		if err := t.RemoveSubsystem(ctx, s.nqn); err != nil {
			return err
		}
	}
	for _, g := range t.groups {
		g.call(g.stop)
	}
	return nil
}
