package file

import (
	"syscall"

	"rocet/nvme"
	"rocet/reactor"
	"rocet/target"
)

// queue is the backend on one reactor.
type queue struct {
	b    *Backend
	lane *lane
	slot int // of the lane's file table
	out  int // IOs that were submitted and have not ended
	done func()
	gone bool // closed: the slot is empty

	waiting    list // for an op
	hungry     bool // in the lane's line
	nextHungry *queue

	// One deallocation is under way at a time, on a goroutine of its own.
	discarding *target.IO
	discards   list
	discardErr syscall.Errno
	discarded  reactor.Message
}

// OpenQueue makes the backend ready for a reactor.
func (b *Backend) OpenQueue(g *target.PollGroup) (target.BackendQueue, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, slot, err := b.engine.attach(g, int(b.file.Fd()))
	if err != nil {
		return nil, err
	}
	q := &queue{b: b, lane: l, slot: slot}
	q.discarded.Run = q.discardDone
	b.queues[q] = struct{}{}
	b.open.Add(1)
	return q, nil
}

// Submit starts an operation, or lets it wait.
func (q *queue) Submit(io *target.IO) {
	q.out++
	if io.Op == target.OpDeallocate {
		q.deallocate(io)
		return
	}
	if blocks := q.b.blocks.Load(); io.LBA > blocks || uint64(io.Blocks) > blocks-io.LBA {
		q.ended(io, nvme.StatusLBAOutOfRange.WithDNR())
		return
	}
	if io.Op > target.OpVerify {
		q.ended(io, nvme.StatusInvalidOpcode.WithDNR())
		return
	}
	if io.Blocks == 0 && io.Op != target.OpFlush {
		q.ended(io, nvme.StatusSuccess)
		return
	}
	if q.lane.hungry != nil {
		q.lane.wait(q, io)
		return
	}
	o := q.lane.take()
	if o == nil {
		q.lane.wait(q, io)
		return
	}
	if !o.begin(q, io) {
		q.lane.put(o)
		q.lane.wait(q, io)
		return
	}
	o.next()
}

// ended completes an IO.
func (q *queue) ended(io *target.IO, st nvme.Status) {
	q.out--
	io.Complete(st)
	if q.done != nil && q.out == 0 {
		q.finish()
	}
}

// Close ends the queue once nothing is outstanding.
func (q *queue) Close(done func()) {
	q.done = done
	if q.out == 0 {
		q.finish()
	}
}

func (q *queue) finish() {
	done := q.done
	q.done, q.gone = nil, true
	// The slot exists, and an empty one is always possible.
	_ = q.lane.ring.SetFile(q.slot, -1)
	q.b.open.Add(-1)
	go q.b.forget(q)
	done()
}

// forget is the part of closing that must not run on a reactor.
func (b *Backend) forget(q *queue) {
	b.mu.Lock()
	delete(b.queues, q)
	b.mu.Unlock()
	b.engine.detach(q.lane, q.slot)
}

// deallocate gives the ranges to a goroutine: neither punching holes nor discarding can be done without blocking on every
// kernel.
func (q *queue) deallocate(io *target.IO) {
	if q.discarding != nil {
		q.discards.push(io)
		return
	}
	q.discarding = io
	go q.discard(io)
}

// discard has the operation to itself until the message is there.
func (q *queue) discard(io *target.IO) {
	q.discardErr = q.b.discard(io.Data[0].Bytes(), io.Blocks)
	q.lane.group.Reactor.Send(&q.discarded)
}

// discardDone is back on the reactor.
func (q *queue) discardDone() {
	io, errno := q.discarding, q.discardErr
	if q.discarding = q.discards.pop(); q.discarding != nil {
		go q.discard(q.discarding)
	}
	q.ended(io, statusOf(target.OpDeallocate, errno))
}
