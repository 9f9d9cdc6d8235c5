// Package tcp is the TCP transport of NVMe over Fabrics (TCP Transport
// specification 1.1): it carries capsules and data between hosts and the target
// over plain sockets.
//
//	accept (a goroutine per listener) ─▶ the reactor with the least to do
//
//	PollGroup ─ shard ─┬─ epoll, one receive buffer, one list of what to send
//	 (reactor)         ├─ conn ─ slots (one per command under way)
//	                   └─ conn
//
// A turn of the reactor:
//
//	Poll   epoll_wait ─▶ per connection one readv: ─┬─ into the shard's buffer: many PDUs at once
//	                                                └─ data of H2CData before it, straight into pool memory
//	                     PDUs ─▶ Prepare ─▶ (buffers, R2T, data) ─▶ Execute
//	Flush  per connection one sendmsg: the headers of all that the turn made, and
//	       the data between them straight from where the backend has it
//
// Connections that just spoke are read again in the next turn without asking epoll;
// silent ones cost nothing. A PDU that arrives in pieces waits in a small buffer
// of its connection, but for H2CData, whose data goes to its place as it comes.
//
// # The states of a command
//
//	        capsule                     ┌── no data, or the backend lends it ───────────────┐
//	free ──────────▶ received ─ Prepare ┤                                                   ▼
//	 ▲                  │               └─▶ waiting for ─┬─ read, in-capsule data: ──▶ executing
//	 │                  │ a status          buffers      └─ asking ─▶ receiving ──────────▶ │
//	 │                  │ instead                           (R2T)     (H2CData)             │
//	 └─────────────── sending ◀─────────────────────────────────────────────────── Respond ─┘
//
// Waits for buffers are in order, as in package rdma: by connection in turns, admin
// queues first. In-capsule data that finds no memory waits in ordinary memory, so
// that the data of other commands behind it on the connection still comes in.
//
// # The life of a connection
//
//	initializing ─ ICReq ─▶ ready ─ closed, broken, ended by the target ─▶ draining ─ commands are back ─▶ closed
//	                                                   └ by a fatal error: C2HTermReq, and a moment for the host to read it
//
// A host that is silent, slow or malicious costs itself only: before Connect a
// connection has a few hundred bytes and room for one command, the oldest of too
// many are cut, and so is one that takes none of what it asked for, or sends none of
// what it was asked for: writes that wait for their data hold memory that others need.
//
// Responses are sent with plain sendmsg: the kernel's copy is done when it returns,
// and buffers are free at once. MSG_ZEROCOPY would make each command wait for a
// notification on the socket's error queue, and over loopback the kernel copies
// all the same.
package tcp
