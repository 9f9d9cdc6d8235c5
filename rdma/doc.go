// Package rdma is the RDMA transport of NVMe over Fabrics (RDMA Transport
// specification 1.1): it carries capsules and data between hosts and the target
// over reliable connected queue pairs.
//
//	rdma_cm events ─▶ Transport ─▶ conn (a goroutine per connection: set-up, teardown; never on a reactor)
//	                                │ attaches its queue to
//	                                ▼
//	PollGroup ─ shard ─┬─ lane ─┬─ completion queue, work request batch, shared receives
//	 (reactor)         │        ├─ queue ─ slots (one per command under way)
//	                   │        └─ queue
//	                   └─ lane (another device, or another completion queue)
//
// A lane is what a reactor polls: one completion queue of one device with the
// table of its queues. A turn of the reactor crosses into the libraries twice per
// lane, however much there is to do: Poll takes the completions of all queues,
// Flush posts the receives, responses and READs of all queues that the turn made.
//
// # The states of a command
//
//	         capsule                      ┌────────────── no data, data in the capsule, or lent ──────────────┐
//	free ───────────▶ received ─ Prepare ─┤                                                                    ▼
//	 ▲                    │               └─▶ waiting for ─┬─ read: ───────────────────────────────────▶ executing
//	 │                    │                   buffers      └─ write: waiting to read ─▶ reading ─────────────▶ │
//	 │                    │ a status instead                                                                   │
//	 │                    ▼                                                                                    │ Respond
//	 └─── responding ◀─ waiting to send ◀──────────────────────────────────────────────────────────────────────┘
//	       (WRITE, SEND: the completion frees the slot)
//
// Every wait is in order: for buffers by queue in turns and within a queue first
// come first served; for READ depth and send work requests within the queue.
// Admin queues go first and may use the pool's reserve. READs and responses have
// separate shares of the send queue, so neither starves the other.
//
// # The life of a queue
//
//	connecting ─ ESTABLISHED ─▶ live ─ disconnect, error, target ─▶ draining ─ all came back ─▶ detached
//	  capsules are parked                                            commands end, nothing is sent
//
// Whatever a device fails to give back in time is taken back after its queue pair
// is destroyed: from then on it can't touch the memory. Only commands with a
// backend are waited for without a limit.
package rdma
