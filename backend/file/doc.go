// Package file is a namespace on a file, or on a block device that stays with the kernel. It goes through io_uring with
// O_DIRECT, so data moves between the device and the target's own registered buffers.
//
//	Backend        one file or device: geometry, size, its coming and going
//	  └─ queue     the backend on one reactor
//	       └─ lane the reactor's io_uring, shared by all backends: a table of operations, polled and flushed once a turn
//
//	Submit ─▶ a free operation? ── no ──▶ wait, in order, queues taking turns
//	              │ yes
//	              ├─ read, write      one entry, straight to and from the IO's segments
//	              ├─ flush            fdatasync
//	              ├─ write zeroes     fallocate, or plain writes where that is not possible; then fdatasync for FUA
//	              └─ staged           piece by piece through a buffer: compare, verify, memory that O_DIRECT does not take
//	Deallocate ─▶ a goroutine of its own: holes in files, discards on devices, both block the caller
package file
