// Package verbs is the room between Rocet and the RDMA libraries: a pure-Go
// interface over libibverbs and librdmacm, and the one place of the RDMA path
// that imports "C".
//
//	rdma, host ──▶ verbs.Provider ─┬─ native (cgo): libibverbs, librdmacm
//	                               ├─ fake (pure Go): a fabric within the process
//	                               └─ none: Open says what is missing
//
// Two calls are hot. Provider.Post hands over an array of PostOp, each a chain
// of work requests for one queue pair or shared receive queue, and CQ.Poll
// fetches completions and spins for a bounded while if there are none. Either
// crosses into C once, allocates nothing and never blocks. Work requests,
// scatter lists and completions are written and read by Go directly in the
// libraries' own layout (see wr.go), in memory outside the Go heap.
//
// All else is control plane. Creating and destroying queue pairs, registering
// memory and every rdma_cm call may take milliseconds: they belong on control
// goroutines, never on a reactor. Events (rdma_cm, completion, asynchronous)
// come through file descriptors that never block; Waiter parks a goroutine on
// one.
//
// Order of destruction, checked by the libraries: queue pair before its
// completion queues, shared receive queue and domain; regions and windows
// before their domain. An ID is destroyed after its events were acknowledged.
package verbs
