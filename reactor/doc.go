// Package reactor runs the data plane: one goroutine per core, locked to a thread that is pinned to the core, that polls.
// What a reactor owns (queues, buffers, timers) nobody else touches, so nothing there needs a lock.
//
//	turn ─▶ inbox (functions from the control plane, in order)
//	     ─▶ timers that are due
//	     ─▶ Poll of every Poller        (bounded work each)
//	     ─▶ Flush of every Flusher      (batches leave: one doorbell for all that this turn made)
//	     ─▶ no work for a while? Adaptive and Interrupt reactors arm every Sleeper, look once more, and sleep in epoll
//
// How a reactor sleeps without losing a wake-up: it arms the sleepers' completion channels, then polls again, then says
// that it sleeps, then looks at the inbox, then waits. Whatever comes later finds it armed, or finds that it sleeps.
//
// The Go runtime must be able to stop a reactor at any time: the loop is Go code with calls in it, and it sleeps in a
// system call that the runtime knows of.
package reactor
