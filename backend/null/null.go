// Package null is a namespace that keeps nothing: writes are dropped, and reads give whatever lies in a piece of registered
// memory. It measures everything but the storage.
package null

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"rocet/memory"
	"rocet/nvme"
	"rocet/target"
)

// Config describes a null namespace.
type Config struct {
	Pool      *memory.Pool
	Size      uint64 // bytes, a multiple of BlockSize; costs nothing
	BlockSize uint32 // a power of two from 512
}

// Backend implements target.Backend.
type Backend struct {
	pool *memory.Pool
	info target.Info
	slab *memory.Slab // what all reads lend
	open atomic.Int32 // queues
}

var _ target.Backend = (*Backend)(nil)

// New makes a null namespace.
func New(c Config) (*Backend, error) {
	if bits.OnesCount32(c.BlockSize) != 1 || c.BlockSize < 512 || c.BlockSize > 64<<10 {
		return nil, fmt.Errorf("null namespace: blocks of %d bytes: want a power of two from 512 to 65536", c.BlockSize)
	}
	if c.Size == 0 || c.Size%uint64(c.BlockSize) != 0 {
		return nil, fmt.Errorf("null namespace: %d bytes are no whole number of blocks of %d", c.Size, c.BlockSize)
	}
	slab, err := c.Pool.NewSlab(memory.ChunkSize)
	if err != nil {
		return nil, fmt.Errorf("null namespace: %w", err)
	}
	return &Backend{pool: c.Pool, slab: slab, info: target.Info{
		Geometry:    target.Geometry{BlockSize: c.BlockSize, Blocks: c.Size / uint64(c.BlockSize)},
		LendsReads:  true,
		Ops:         target.Ops(target.OpWriteZeroes, target.OpDeallocate, target.OpVerify),
		MaxTransfer: target.MaxSegments * memory.ChunkSize,
		Model:       "Rocet null",
	}}, nil
}

// Info describes the namespace.
func (b *Backend) Info() target.Info { return b.info }

// Watch: nothing ever happens.
func (b *Backend) Watch(func(target.Event)) {}

// SMART: there is none.
func (b *Backend) SMART() (nvme.SMARTLog, bool) { return nvme.SMARTLog{}, false }

// OpenQueue makes the namespace ready for a reactor.
func (b *Backend) OpenQueue(*target.PollGroup) (target.BackendQueue, error) {
	b.open.Add(1)
	return (*queue)(b), nil
}

// Close gives the memory back.
func (b *Backend) Close() error {
	if n := b.open.Load(); n != 0 {
		return fmt.Errorf("null namespace: closed with %d queues open", n)
	}
	b.pool.FreeSlab(b.slab)
	return nil
}

// queue has no state of its own.
type queue Backend

// Submit completes at once.
func (q *queue) Submit(io *target.IO) {
	if io.Op == target.OpRead {
		for left := uint64(io.Blocks) * uint64(q.info.BlockSize); left > 0; {
			n := min(left, memory.ChunkSize)
			io.Data = append(io.Data, memory.Segment{Addr: q.slab.Base, Len: uint32(n), Slab: q.slab.Index})
			left -= n
		}
	}
	io.Complete(nvme.StatusSuccess)
}

// Close ends the queue.
func (q *queue) Close(done func()) {
	q.open.Add(-1)
	done()
}
