package uring

import "unsafe"

// SQE is a submission queue entry, struct io_uring_sqe of linux/io_uring.h.
type SQE struct {
	Opcode   uint8
	Flags    uint8
	IOPrio   uint16
	FD       int32 // descriptor, or with FixedFile a slot of the file table
	Off      uint64
	Addr     uint64
	Len      uint32
	OpFlags  uint32 // rw_flags, fsync_flags
	UserData uint64
	BufIndex uint16
	_        uint16
	_        int32
	_        [2]uint64
}

// CQE is a completion queue entry, struct io_uring_cqe.
type CQE struct {
	UserData uint64
	Res      int32 // a negative errno, or what the system call would return
	Flags    uint32
}

var (
	_ [64]byte = [unsafe.Sizeof(SQE{})]byte{}
	_ [16]byte = [unsafe.Sizeof(CQE{})]byte{}
)

// Opcodes: enum io_uring_op.
const (
	OpNop        = 0
	OpReadv      = 1
	OpWritev     = 2
	OpFsync      = 3
	OpReadFixed  = 4
	OpWriteFixed = 5
	OpFallocate  = 17
	OpRead       = 22
	OpWrite      = 23
)

// Flags.
const (
	FixedFile     = 1 << 0 // SQE.Flags: FD is a slot
	FsyncDatasync = 1 << 0 // SQE.OpFlags of OpFsync
	RWFDsync      = 1 << 1 // SQE.OpFlags of writes: RWF_DSYNC
)

// Options say how big a ring is.
type Options struct {
	Entries     uint32 // submissions of a turn; rounded up to a power of two
	Completions uint32 // that may wait to be reaped; more than can be under way
}

// Buffer is memory to be registered, outside the Go heap (or, under the race detector, kept alive by its owner).
type Buffer struct {
	Addr uintptr
	Len  uint64
}

// MaxBuffer bounds one registered buffer: io_uring takes no bigger ones.
const MaxBuffer = 1 << 30

// Reset makes an entry of the ring ready for use: what was there before may be anything.
func (s *SQE) Reset(opcode uint8, userData uint64) { *s = SQE{Opcode: opcode, UserData: userData} }
