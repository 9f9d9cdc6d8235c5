package file

import (
	"bytes"
	"syscall"

	"golang.org/x/sys/unix"

	"rocet/cgo/uring"
	"rocet/memory"
	"rocet/nvme"
	"rocet/target"
)

// step is what an op waits for.
type step uint8

const (
	stepDirect      step = iota // read or write of the IO's own segments
	stepStagedRead              // read of a piece into the buffer
	stepStagedWrite             // write of a piece out of the buffer
	stepZeroCall                // fallocate of the range
	stepZeroWrite               // write of zeroes
	stepSync                    // fdatasync, and then the end
)

const (
	// stageSize is the buffer of a staged op: small enough that a reactor's share of the pool always has it.
	stageSize = 128 << 10
	// maxAttempts bounds how often the kernel may say EAGAIN.
	maxAttempts = 100
)

// op is an operation that the kernel has, or that is about to get it.
type op struct {
	io    *target.IO
	q     *queue
	lane  *lane
	index uint16

	step     step
	attempts uint8
	total    uint64 // bytes of the IO
	done     uint64 // of those, finished
	piece    uint64 // of a staged op: bytes of the present piece
	moved    uint64 // of those, finished
	used     int
	stage    [target.MaxSegments]memory.Segment
}

// begin takes an IO on, and returns false if there is no buffer for it. next follows.
func (o *op) begin(q *queue, io *target.IO) bool {
	o.q, o.io = q, io
	o.attempts, o.done, o.piece, o.moved = 0, 0, 0, 0
	o.total = uint64(io.Blocks) << q.b.shift
	switch io.Op {
	case target.OpFlush:
		o.step = stepSync
		return true
	case target.OpWriteZeroes:
		if o.step = stepZeroCall; q.b.zeroMode(io.Flags) == 0 {
			o.step = stepZeroWrite
		}
		return true
	case target.OpRead, target.OpWrite:
		if q.b.takes(io.Data) {
			o.step = stepDirect
			return true
		}
	}
	used, ok := o.lane.group.Mem.Alloc(o.stage[:], uint32(min(o.total, stageSize)), memory.ClassIO)
	if !ok {
		return false
	}
	o.used = used
	if o.step = stepStagedRead; io.Op == target.OpWrite {
		o.step = stepStagedWrite
	}
	o.nextPiece()
	return true
}

// nextPiece goes on with a staged op.
func (o *op) nextPiece() {
	o.moved = 0
	o.piece = min(o.total-o.done, stageSize)
	if o.step == stepStagedWrite {
		each(o.stage[:o.used], 0, o.io.Data, o.done, o.piece, copyBytes)
		o.lane.group.CountCopied(target.CopyBounce, o.piece)
	}
}

// next gives the kernel what is to be done now. There is an entry in the ring for every op.
func (o *op) next() {
	s := o.lane.ring.Next()
	s.Reset(uring.OpNop, uint64(o.index))
	s.Flags, s.FD = uring.FixedFile, int32(o.q.slot)
	at := o.io.LBA<<o.q.b.shift + o.done
	switch o.step {
	case stepDirect:
		o.transfer(s, o.io.Data, o.done, at, o.total-o.done, o.io.Op == target.OpWrite)
	case stepStagedRead, stepStagedWrite:
		o.transfer(s, o.stage[:o.used], o.moved, at+o.moved, o.piece-o.moved, o.step == stepStagedWrite)
	case stepZeroCall:
		s.Opcode, s.Off, s.Addr, s.Len = uring.OpFallocate, at, o.total, o.q.b.zeroMode(o.io.Flags)
	case stepZeroWrite:
		o.writeZeroes(s, at)
	case stepSync:
		s.Opcode, s.OpFlags = uring.OpFsync, uring.FsyncDatasync
	}
}

// transfer moves n bytes between the file and segments, from a byte of them on.
func (o *op) transfer(s *uring.SQE, segs []memory.Segment, skip, at, n uint64, write bool) {
	s.Off = at
	if write && o.io.Flags&target.FUA != 0 {
		s.OpFlags = uring.RWFDsync
	}
	for skip >= uint64(segs[0].Len) {
		skip -= uint64(segs[0].Len)
		segs = segs[1:]
	}
	first := &segs[0]
	if addr := first.Addr + uintptr(skip); uint64(first.Len)-skip >= n {
		s.Addr, s.Len = uint64(addr), uint32(n)
		index, ok := o.lane.fixed(addr, uint32(n), first.Slab)
		switch {
		case ok && write:
			s.Opcode, s.BufIndex = uring.OpWriteFixed, index
		case ok:
			s.Opcode, s.BufIndex = uring.OpReadFixed, index
		case write:
			s.Opcode = uring.OpWrite
		default:
			s.Opcode = uring.OpRead
		}
		return
	}
	vecs := o.vecs()
	k := 0
	for ; n > 0; k++ {
		seg := &segs[k]
		part := min(uint64(seg.Len)-skip, n)
		vecs[k] = vec{base: seg.Addr + uintptr(skip), len: part}
		skip, n = 0, n-part
	}
	o.vectored(s, vecs[:k], write)
}

func (o *op) vecs() []vec {
	return o.lane.vecs[int(o.index)*maxVecs : (int(o.index)+1)*maxVecs]
}

func (o *op) vectored(s *uring.SQE, vecs []vec, write bool) {
	if s.Opcode = uring.OpReadv; write {
		s.Opcode = uring.OpWritev
	}
	s.Addr, s.Len = addressOf(vecs), uint32(len(vecs))
}

func (o *op) writeZeroes(s *uring.SQE, at uint64) {
	vecs := o.vecs()
	k := 0
	for left := o.total - o.done; left > 0 && k < maxVecs; k++ {
		vecs[k] = vec{base: uintptr(o.lane.zeroes), len: min(left, zeroesSize)}
		left -= vecs[k].len
	}
	o.vectored(s, vecs[:k], true)
	s.Off = at
	if o.io.Flags&target.FUA != 0 {
		s.OpFlags = uring.RWFDsync
	}
}

// completed is the kernel's answer.
func (o *op) completed(res int32) {
	errno := errnoOf(res)
	if retry(errno) && o.attempts < maxAttempts {
		o.attempts++
		o.next()
		return
	}
	switch o.step {
	case stepZeroCall:
		o.zeroed(errno)
	case stepSync:
		o.end(statusOf(o.io.Op, errno))
	default:
		o.transferred(res, errno)
	}
}

// zeroed is the end of a fallocate.
func (o *op) zeroed(errno syscall.Errno) {
	switch errno {
	case 0:
		if o.io.Flags&target.FUA != 0 {
			o.step = stepSync
			o.next()
			return
		}
		o.end(nvme.StatusSuccess)
	case unix.EOPNOTSUPP, unix.ENOSYS, unix.EINVAL:
		if o.q.b.zeroModeFails(o.io.Flags) == 0 {
			o.step = stepZeroWrite
		}
		o.next()
	default:
		o.end(statusOf(o.io.Op, errno))
	}
}

// transferred is the end of a read or write, perhaps of a part only.
func (o *op) transferred(res int32, errno syscall.Errno) {
	if errno != 0 {
		o.end(statusOf(o.io.Op, errno))
		return
	}
	n := uint64(res)
	if n == 0 || n&(uint64(o.q.b.block)-1) != 0 { // the end of a file that shrank
		o.end(nvme.StatusLBAOutOfRange.WithDNR())
		return
	}
	o.attempts = 0
	if o.step == stepDirect || o.step == stepZeroWrite {
		if o.done += n; o.done < o.total {
			o.next()
			return
		}
		o.end(nvme.StatusSuccess)
		return
	}
	if o.moved += n; o.moved < o.piece {
		o.next()
		return
	}
	switch o.io.Op {
	case target.OpRead:
		each(o.io.Data, o.done, o.stage[:o.used], 0, o.piece, copyBytes)
		o.lane.group.CountCopied(target.CopyBounce, o.piece)
	case target.OpCompare:
		if !each(o.io.Data, o.done, o.stage[:o.used], 0, o.piece, bytes.Equal) {
			o.end(nvme.StatusCompareFailure.WithDNR())
			return
		}
	}
	if o.done += o.piece; o.done == o.total {
		o.end(nvme.StatusSuccess)
		return
	}
	o.nextPiece()
	o.next()
}

// end frees the op and completes its IO.
func (o *op) end(st nvme.Status) {
	q, io := o.q, o.io
	if o.used > 0 {
		o.lane.group.Mem.Free(o.stage[:o.used])
		o.used = 0
	}
	o.q, o.io = nil, nil
	o.lane.put(o)
	q.ended(io, st)
}

// each walks through n bytes of two lists of segments side by side, in pieces that are contiguous in both, until do
// returns false.
func each(a []memory.Segment, skipA uint64, b []memory.Segment, skipB, n uint64, do func(a, b []byte) bool) bool {
	for n > 0 {
		if skipA >= uint64(a[0].Len) {
			skipA -= uint64(a[0].Len)
			a = a[1:]
			continue
		}
		if skipB >= uint64(b[0].Len) {
			skipB -= uint64(b[0].Len)
			b = b[1:]
			continue
		}
		k := min(uint64(a[0].Len)-skipA, uint64(b[0].Len)-skipB, n)
		if !do(a[0].Bytes()[skipA:skipA+k], b[0].Bytes()[skipB:skipB+k]) {
			return false
		}
		skipA, skipB, n = skipA+k, skipB+k, n-k
	}
	return true
}

// copyBytes copies b to a.
func copyBytes(a, b []byte) bool {
	copy(a, b)
	return true
}
