package memory

import (
	"bytes"

	mem "rocet/memory"
	"rocet/nvme"
	"rocet/reactor"
	"rocet/target"
)

// inlineClear is how much a Deallocate may clear at once on the reactor. More is cleared by a goroutine of its own: a
// host that discards a whole namespace must not stop the reactor for seconds.
const inlineClear = 256 << 10

// queue is the namespace on one reactor. Everything but long deallocations completes inside Submit.
type queue struct {
	b     *Backend
	group *target.PollGroup

	// One long deallocation is under way at a time; the others wait.
	clearing    *target.IO
	first, last *target.IO
	cleared     reactor.Message
	closed      func()
}

// OpenQueue makes the namespace ready for a reactor.
func (b *Backend) OpenQueue(g *target.PollGroup) (target.BackendQueue, error) {
	b.open.Add(1)
	q := &queue{b: b, group: g}
	q.cleared.Run = q.clearDone
	return q, nil
}

// Submit does the operation.
func (q *queue) Submit(io *target.IO) {
	l := q.b.layout.Load()
	off, n := io.LBA<<q.b.shift, uint64(io.Blocks)<<q.b.shift
	if io.Op == target.OpDeallocate {
		q.deallocate(l, io)
		return
	}
	if off > l.size || n > l.size-off {
		io.Complete(nvme.StatusLBAOutOfRange)
		return
	}
	switch io.Op {
	case target.OpRead:
		io.Data = l.locate(io.Data, off, n)
	case target.OpWrite:
		l.write(io.Data, off, n)
		q.group.CountCopied(target.CopyMemory, n)
	case target.OpWriteZeroes:
		l.clear(off, off+n)
	case target.OpCompare:
		if !l.equal(io.Data, off, n) {
			io.Complete(nvme.StatusCompareFailure.WithDNR())
			return
		}
	case target.OpFlush, target.OpVerify: // what is written is there, and readable
	default:
		io.Complete(nvme.StatusInvalidOpcode.WithDNR())
		return
	}
	io.Complete(nvme.StatusSuccess)
}

// Close ends the queue.
func (q *queue) Close(done func()) {
	if q.clearing != nil {
		q.closed = done
		return
	}
	q.b.open.Add(-1)
	done()
}

// each walks through data and the namespace's memory side by side, in pieces that are contiguous in both.
func (l *layout) each(data []mem.Segment, off, n uint64, do func(data, blocks []byte) bool) bool {
	var room [target.MaxSegments]mem.Segment
	blocks := l.locate(room[:0], off, n)
	var a, b []byte
	for {
		for len(a) == 0 {
			if len(data) == 0 {
				return true
			}
			a, data = data[0].Bytes(), data[1:]
		}
		for len(b) == 0 {
			if len(blocks) == 0 {
				return true
			}
			b, blocks = blocks[0].Bytes(), blocks[1:]
		}
		k := min(len(a), len(b))
		if !do(a[:k], b[:k]) {
			return false
		}
		a, b = a[k:], b[k:]
	}
}

func (l *layout) write(data []mem.Segment, off, n uint64) {
	l.each(data, off, n, copyTo)
}

func copyTo(data, blocks []byte) bool {
	copy(blocks, data)
	return true
}

func (l *layout) equal(data []mem.Segment, off, n uint64) bool {
	return l.each(data, off, n, bytes.Equal)
}

// deallocate zeroes the ranges of a Dataset Management command. The target checked them against the size that it knows.
func (q *queue) deallocate(l *layout, io *target.IO) {
	ranges := io.Data[0].Bytes()
	var total uint64
	for i := range io.Blocks {
		from, to := q.bytesOf(ranges, i)
		if from > l.size || to > l.size {
			io.Complete(nvme.StatusLBAOutOfRange)
			return
		}
		total += to - from
	}
	if total <= inlineClear {
		q.clearRanges(l, ranges, io.Blocks)
		io.Complete(nvme.StatusSuccess)
		return
	}
	if q.clearing != nil {
		io.Next = nil
		if q.first == nil {
			q.first = io
		} else {
			q.last.Next = io
		}
		q.last = io
		return
	}
	q.clearing = io
	go q.clearInBackground(l, io)
}

func (q *queue) bytesOf(ranges []byte, i uint32) (from, to uint64) {
	r := (*nvme.DSMRange)(ranges[i*nvme.DSMRangeSize:])
	from = r.SLBA() << q.b.shift
	return from, from + uint64(r.NLB())<<q.b.shift
}

func (q *queue) clearRanges(l *layout, ranges []byte, n uint32) {
	for i := range n {
		l.clear(q.bytesOf(ranges, i))
	}
}

// clearInBackground has the operation to itself until the message is there.
func (q *queue) clearInBackground(l *layout, io *target.IO) {
	q.clearRanges(l, io.Data[0].Bytes(), io.Blocks)
	q.group.Reactor.Send(&q.cleared)
}

// clearDone is back on the reactor.
func (q *queue) clearDone() {
	io := q.clearing
	q.clearing = nil
	if next := q.first; next != nil {
		if q.first = next.Next; q.first == nil {
			q.last = nil
		}
		next.Next = nil
		q.clearing = next
		go q.clearInBackground(q.b.layout.Load(), next)
	}
	io.Complete(nvme.StatusSuccess)
	if q.closed != nil && q.clearing == nil {
		q.Close(q.closed)
	}
}
