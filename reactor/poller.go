package reactor

// Poller is polled once a turn.
type Poller interface {
	// Poll does a bounded amount of work and returns how much: the number of events handled, 0 for none.
	Poll() int
}

// Sleeper is a Poller that can wait for its work in epoll. A Poller that is none keeps its reactor awake.
type Sleeper interface {
	Poller
	// FD is readable when there is work after Arm. It stays the same. A negative FD has nothing to wait for: its work
	// comes out of others' (the inbox, a timer).
	FD() int
	// Arm asks for FD to become readable with the next event. It returns false if work is pending and the reactor must
	// not sleep. It may be called again before anything happened.
	Arm() bool
	// Woken acknowledges that FD was readable. A Poll follows.
	Woken()
}

// Flusher is a Poller that gathers what other pollers, timers and the inbox produce in a turn.
type Flusher interface {
	Flush() // called once a turn, after all of them
}
