// Package pcie drives NVMe drives from user space: bring-up, admin queue, and I/O queue pairs that are polled, one for
// each reactor, with nothing between the caller's buffers and the drive's DMA.
//
//	                 control plane (Drive, one mutex, one goroutine)
//	     bring-up ── admin queue ── asynchronous events ── abort, reset, removal, return
//	                    │ freeze / end / thaw, posted to the queue's executor
//	                    ▼
//	TrySubmit ──▶ Queue ──▶ slot: PRPs or SGL, SQE ──▶ (Flush) doorbell ──▶ drive
//	                 ▲                                                        │ DMA
//	  Complete ◀── Poll ◀── completion queue (phase bit) ◀────────────────────┘
//
// Segments are handed to the drive as they are: their I/O addresses come from a vfio.Table. A command that is longer than
// the drive takes, or crosses its optimal boundary, is split into children that were allocated beforehand.
//
// The life of a drive, and of what was submitted to it:
//
//	        timeout: Abort, then ─┐  CSTS.CFS, broken completion queue
//	                              ▼
//	live ──────────────────▶ resetting ──────────────────▶ live
//	 │                           │ hopeless                  ▲
//	 │ removed, asked back       ▼                           │ there again, the same serial number
//	 └──────────────────────▶  gone ─────────────────────────┘
//
// When a drive leaves live, its queues are frozen: new commands wait. Commands that the drive had are ended, with a
// status that allows a retry, only after the drive's DMA was stopped for certain (CSTS.RDY 0, or bus mastering off, or the
// function closed): until then it could still write into their buffers. What waits goes to the drive when it is live
// again, or is ended when Config.Hold has passed.
package pcie
