package reactor

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// stallNs is from when on time off the core counts as a stall, and makes a turn worth looking at.
const stallNs = 20_000

// Stats are a reactor's counters. Busy is the time of turns that did work, idle all other, sleep included: together they
// are the wall clock.
type Stats struct {
	Turns     uint64
	WorkTurns uint64
	Events    uint64 // what pollers, timers and the inbox handled
	Messages  uint64 // from the inbox
	Timers    uint64 // fired
	BusyNs    uint64
	IdleNs    uint64
	Sleeps    uint64
	SleepNs   uint64

	LongestTurnNs uint64 // work included
	// A stall is time that the reactor was runnable and not running: preempted by the kernel or the Go runtime, or
	// stopped for the garbage collector. Only those of 20 µs and more are seen.
	Stalls         uint64
	StallNs        uint64
	LongestStallNs uint64

	VoluntarySwitches   uint64 // of its thread: sleeps, and stops by the Go runtime
	InvoluntarySwitches uint64 // of its thread: preemptions by the kernel
}

// account books the time since the last turn's start.
func (r *Reactor) account(now int64) {
	took := uint64(now - r.now)
	st := &r.stats
	st.Turns++
	if r.worked != 0 {
		st.WorkTurns++
		st.Events += uint64(r.worked)
		st.BusyNs += took
	} else {
		st.IdleNs += took
	}
	if took >= stallNs {
		r.longTurn(now, took)
	}
}

// longTurn asks the kernel how much of a long turn was spent on the core.
func (r *Reactor) longTurn(now int64, took uint64) {
	st := &r.stats
	st.LongestTurnNs = max(st.LongestTurnNs, took)
	off := min(r.steal.since(now), took)
	if off < stallNs {
		return
	}
	st.Stalls++
	st.StallNs += off
	st.LongestStallNs = max(st.LongestStallNs, off)
}

// stealMeter compares the wall clock to the thread's own.
type stealMeter struct {
	wall, cpu int64
	clock     unix.Timespec // a system call's argument, which would escape
}

func (m *stealMeter) restart(now int64) { m.wall, m.cpu = now, m.threadTime() }

// since is the time off the core since the last restart, and restarts. Short absences of earlier turns are in it too:
// they are what a turn that calls this is rarely preceded by.
func (m *stealMeter) since(now int64) uint64 {
	wall, cpu := m.wall, m.cpu
	m.restart(now)
	return uint64(max(now-wall-(m.cpu-cpu), 0))
}

// threadTime is how long the calling thread has been running, in nanoseconds.
func (m *stealMeter) threadTime() int64 {
	unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID, uintptr(unsafe.Pointer(&m.clock)), 0)
	return m.clock.Nano()
}

func (r *Reactor) readSwitches() {
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &ru) == nil {
		r.stats.VoluntarySwitches, r.stats.InvoluntarySwitches = uint64(ru.Nvcsw), uint64(ru.Nivcsw)
	}
}
