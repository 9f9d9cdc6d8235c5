// Package fake is a fabric of RDMA devices within the process: the verbs
// interface in pure Go, for tests of every fault that hardware shows seldom.
//
//	       Post ──▶ send queue ──▶ step ──▶ the peer's memory or receive queue
//	                   │ waits: no receive (RNR), read depth,      │
//	                   │ peer not there (retries)                  ▼
//	Poll ◀── completion queue ◀── retire ◀── complete ◀── result ──┘
//	                                 ▲          │
//	                                 └── Hold ◀─┘ (a drain that takes its time)
//
// Work requests are read from the memory that the caller wrote them to, and
// are executed at once within Post, in order, under the fabric's one lock, as
// far as they can go. There is no clock in that; time only ends what can't go
// on: retries, receivers that are never ready, the connection manager's
// timeouts and its time-wait. Memory is reached by registered keys only, with
// their domain, bounds and rights checked. Slots of queues come free when
// completions are polled, and a queue that is full refuses more.
//
// A test plays faults through the Fabric (Fail, Filter, Inject, RemoveDevice,
// SetPort) and through the QP (FailSend, FailRecv, Hold, Break). Leaks says
// what was not destroyed.
//
// Everything may be called from any goroutine, and accesses of one side to
// memory of the other are seen by the race detector as if the NIC were a
// goroutine that synchronizes in Post and Poll. Memory behind keys and work
// requests must not be on a goroutine's stack, which moves.
package fake
