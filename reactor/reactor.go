package reactor

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"rocet/internal/invariants"
)

// Reactor is one pinned goroutine and what it polls. All methods but Post, Send, Call, ID and Core are its own only.
type Reactor struct {
	_     [128]byte // no other writer's line
	owner invariants.Owner
	id    int
	core  int
	mode  Mode
	spin  int64
	log   *slog.Logger

	now       int64 // when this turn began
	idleSince int64 // when the first turn without work began; 0: there was work
	worked    int   // events of the turn that began at now
	slots     []slot
	sleepless int // pollers that are no sleepers
	current   Poller
	timers    timers
	stats     Stats
	steal     stealMeter
	stopping  bool

	epoll  int
	wakefd int
	events [16]unix.EpollEvent
	// waitTime is here because a system call's argument escapes: on the stack it would be garbage with every sleep.
	waitTime unix.Timespec
	done     chan struct{}
	tid      atomic.Int32 // of its thread once it runs

	_        [128]byte
	sleeping atomic.Bool // set by the reactor, cleared by whoever wakes it
	wakers   atomic.Int32
	inbox    inbox
	_        [128]byte
}

// slot holds a poller, and what else it is. Slots do not move; a nil poller is a free slot.
type slot struct {
	poller  Poller
	sleeper Sleeper // nil, or the poller
	flusher Flusher // nil, or the poller
	fd      int     // in the epoll set, or -1
}

// ID counts the reactors of a group from 0.
func (r *Reactor) ID() int { return r.id }

// Core is where the reactor is pinned.
func (r *Reactor) Core() int { return r.core }

// Now is the monotonic time of this turn's start, comparable to Clock.
func (r *Reactor) Now() int64 { return r.now }

// Check panics in debug builds unless the caller is on the reactor.
func (r *Reactor) Check() { r.owner.Check() }

// Post runs fn on the reactor, soon, in order with everything else posted. Any goroutine may call it, also before Start.
// It returns false, and drops fn, once the reactor has stopped.
func (r *Reactor) Post(fn func()) bool { return r.Send(&Message{Run: fn}) }

// Send is Post for a message that the caller owns, and keeps for the next time.
func (r *Reactor) Send(m *Message) bool {
	if !r.inbox.push(m) {
		return false
	}
	if r.sleeping.Load() {
		r.wake()
	}
	return true
}

// Call runs fn on the reactor and waits for its end. It returns false, without running fn, once the reactor has stopped.
// A reactor that calls itself would wait for ever, and so would two that call each other: both are for other goroutines.
func (r *Reactor) Call(fn func()) bool {
	switch r.tid.Load() {
	case 0:
		panic("reactor: Call before the group was started")
	case int32(unix.Gettid()):
		panic("reactor: Call from the reactor itself")
	}
	done := make(chan struct{})
	if !r.Post(func() { fn(); close(done) }) {
		return false
	}
	<-done
	return true
}

// Add polls p from the next turn on.
func (r *Reactor) Add(p Poller) {
	r.owner.Check()
	s := slot{poller: p, fd: -1}
	s.flusher, _ = p.(Flusher)
	at := len(r.slots)
	for i := range r.slots {
		if r.slots[i].poller == nil {
			at = i
			break
		}
	}
	if sleeper, ok := p.(Sleeper); ok {
		s.sleeper, s.fd = sleeper, sleeper.FD()
		if s.fd >= 0 {
			if err := r.watch(s.fd, at); err != nil {
				r.log.Error("a reactor cannot wait for a poller and will not sleep while it is there",
					"reactor", r.id, "poller", nameOf(p), "error", err)
				s.sleeper, s.fd = nil, -1
			}
		}
	}
	if s.sleeper == nil {
		r.sleepless++
	}
	if at == len(r.slots) {
		r.slots = append(r.slots, s)
	} else {
		r.slots[at] = s
	}
}

// Remove stops polling p. Its descriptor must still be open.
func (r *Reactor) Remove(p Poller) {
	r.owner.Check()
	for i := range r.slots {
		s := &r.slots[i]
		if s.poller != p {
			continue
		}
		if s.fd >= 0 {
			// What is closed already has left the set by itself.
			_ = unix.EpollCtl(r.epoll, unix.EPOLL_CTL_DEL, s.fd, nil)
		}
		if s.sleeper == nil {
			r.sleepless--
		}
		*s = slot{}
		return
	}
	panic(fmt.Sprintf("reactor: Remove of %s, which was not added", nameOf(p)))
}

// Stats returns the counters.
func (r *Reactor) Stats() Stats {
	r.owner.Check()
	r.readSwitches()
	return r.stats
}

// run is the goroutine. It never unlocks its thread, so that the runtime ends the thread, and its affinity, with it.
func (r *Reactor) run(pinned chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The process's first thread would not end, and its affinity is what tools show as the process's. While this
		// goroutine holds it, another one gets another.
		inner := make(chan error)
		go r.run(inner)
		err := <-inner
		runtime.UnlockOSThread()
		pinned <- err
		return
	}
	defer close(r.done)
	var set unix.CPUSet
	set.Set(r.core)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		r.inbox.close()
		pinned <- fmt.Errorf("reactor %d: pin to core %d: %w", r.id, r.core, err)
		return
	}
	r.owner.Claim()
	r.tid.Store(int32(unix.Gettid()))
	pinned <- nil
	finished := false
	defer r.blame(&finished)
	r.now = Clock()
	r.steal.restart(r.now)
	for !r.stopping {
		r.turn()
	}
	for m := r.inbox.close(); m != nil; {
		m = r.deliver(m)
	}
	r.flush()
	finished = true
}

// blame names the poller when a panic is on its way through. The panic itself goes on, with its own trace.
func (r *Reactor) blame(finished *bool) {
	if *finished {
		return
	}
	where := "an inbox function or a timer"
	if r.current != nil {
		where = "poller " + nameOf(r.current)
	}
	fmt.Fprintf(os.Stderr, "reactor %d on core %d: bug in %s:\n", r.id, r.core, where)
}

func nameOf(p Poller) string {
	if s, ok := p.(fmt.Stringer); ok {
		return fmt.Sprintf("%s (%T)", s, p)
	}
	return fmt.Sprintf("%T", p)
}

// turn goes once around.
func (r *Reactor) turn() {
	now := Clock()
	r.account(now)
	r.now = now
	work := 0
	for m := r.takeInbox(); m != nil; {
		m = r.deliver(m)
		work++
	}
	if h := r.timers.heap; len(h) > 0 && h[0].when <= now {
		fired := r.timers.fire(now)
		r.stats.Timers += uint64(fired)
		work += fired
	}
	work += r.poll()
	r.flush()
	r.worked = work
	switch {
	case work != 0:
		r.idleSince = 0
	case r.mode == Busy:
	case r.idleSince == 0 && r.spin > 0:
		r.idleSince = now
	case now-r.idleSince >= r.spin:
		r.sleep()
	}
}

func (r *Reactor) takeInbox() *Message {
	if r.inbox.empty() {
		return nil
	}
	return r.inbox.take()
}

// deliver runs a message and returns the next one. The message may be on its way again when Run returns.
func (r *Reactor) deliver(m *Message) *Message {
	next := m.next
	m.next = nil
	r.stats.Messages++
	m.Run()
	return next
}

func (r *Reactor) poll() (work int) {
	for i := range len(r.slots) { // not those that are added meanwhile
		if p := r.slots[i].poller; p != nil {
			r.current = p
			work += p.Poll()
		}
	}
	r.current = nil
	return work
}

func (r *Reactor) flush() {
	for i := range len(r.slots) {
		if f := r.slots[i].flusher; f != nil {
			r.current = r.slots[i].poller
			f.Flush()
		}
	}
	r.current = nil
}
