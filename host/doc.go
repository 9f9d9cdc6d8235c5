// Package host is a user-space NVMe over Fabrics host (initiator): it connects to a target over TCP (pure Go) or RDMA
// (through cgo/verbs), and drives it with few system calls and no allocations per I/O. The tests and `rocet perf` stand
// on it.
//
//	Dial ──▶ Controller ── admin queue: Identify, logs, features, keep-alive (any goroutine)
//	             │
//	             ├─ NewMemory: buffers, registered with the RDMA device
//	             └─ NewQueue ──▶ Queue: polled by one goroutine
//
//	   Submit(io)…  ──▶ Flush ──▶ wire (tcp: one sendmsg; rdma: one post) ──▶ target
//	   Poll(done)   ◀──────────── wire (tcp: one readv;  rdma: one poll)  ◀──
//	   Wait                       sleeps until there is something to poll
//
// The life of a command's slot:
//
//	free ─ Submit ─▶ out ─ response ─▶ free, its IO in ready ─ Poll ─▶ the caller
//	                  │
//	                  └ no response within Options.Timeout: Abort on the admin queue
//	                     └ none within another: the queue fails
//
// A queue that fails ends its connection first, so that nothing touches the callers' memory any more, and then hands out
// every command that was under way with StatusHostPath; after the last one Poll returns the reason.
//
// The target is not trusted. Whatever it answers ends in an error at worst: lengths, offsets, identifiers and the order
// of PDUs are checked before a byte is copied.
package host
