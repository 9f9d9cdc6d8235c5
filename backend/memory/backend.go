// Package memory is a namespace in memory: slabs of the pool, registered with every device, so that a read goes to the
// host out of the namespace's own memory and only a write is copied.
//
// A namespace is one slab, and one more for each time it grew. An operation that crosses from one to the next takes a
// segment of each.
//
// What is lent for a read can be written to while a device still sends it, as with any disk that has a cache: a host that
// reads what it is writing at the same time may get some of both.
package memory

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	mem "rocet/memory"
	"rocet/nvme"
	"rocet/target"
)

// maxTransfer bounds one operation, so that it never needs more segments than an IO has room for: slabs are 2 MiB at least.
const maxTransfer = 16 << 20

var _ [target.MaxSegments - maxTransfer/mem.ChunkSize - 2]struct{}

// Config describes a memory namespace.
type Config struct {
	Pool      *mem.Pool
	Size      uint64 // bytes, a multiple of BlockSize
	BlockSize uint32 // a power of two from 512
}

// Backend is a namespace in memory. It implements target.Backend and target.Resizer.
type Backend struct {
	pool   *mem.Pool
	block  uint32
	shift  uint8
	layout atomic.Pointer[layout]

	open atomic.Int32 // queues

	mu    sync.Mutex // of Resize, Watch and Close, which may take long
	watch func(target.Event)
}

var (
	_ target.Backend = (*Backend)(nil)
	_ target.Resizer = (*Backend)(nil)
)

// layout is where the blocks are. It does not change: a new one replaces it.
type layout struct {
	size  uint64 // bytes that hosts see
	slabs []extent
}

// extent is a slab's place in the namespace.
type extent struct {
	start, end uint64 // bytes
	slab       *mem.Slab
}

// New makes a namespace of zeroes.
func New(c Config) (*Backend, error) {
	if bits.OnesCount32(c.BlockSize) != 1 || c.BlockSize < 512 || c.BlockSize > 64<<10 {
		return nil, fmt.Errorf("memory namespace: blocks of %d bytes: want a power of two from 512 to 65536", c.BlockSize)
	}
	if c.Size == 0 || c.Size%uint64(c.BlockSize) != 0 {
		return nil, fmt.Errorf("memory namespace: %d bytes are no whole number of blocks of %d", c.Size, c.BlockSize)
	}
	b := &Backend{pool: c.Pool, block: c.BlockSize, shift: uint8(bits.TrailingZeros32(c.BlockSize))}
	slab, err := c.Pool.NewSlab(c.Size)
	if err != nil {
		return nil, fmt.Errorf("memory namespace of %d bytes: %w", c.Size, err)
	}
	b.layout.Store(&layout{size: c.Size, slabs: []extent{{0, slab.Size, slab}}})
	return b, nil
}

// Info describes the namespace.
func (b *Backend) Info() target.Info {
	return target.Info{
		Geometry:                   target.Geometry{BlockSize: b.block, Blocks: b.layout.Load().size >> b.shift},
		LendsReads:                 true,
		Ops:                        target.Ops(target.OpWriteZeroes, target.OpDeallocate, target.OpCompare, target.OpVerify),
		MaxTransfer:                maxTransfer,
		ReadsZeroesAfterDeallocate: true,
		Model:                      "Rocet memory",
	}
}

// Watch sets who hears of a change of size.
func (b *Backend) Watch(f func(target.Event)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watch = f
}

// SMART: memory has none.
func (b *Backend) SMART() (nvme.SMARTLog, bool) { return nvme.SMARTLog{}, false }

// Resize changes the size. Blocks that appear are zero, also if they were there before and cut off. Memory that is cut off
// is kept until Close: a read may have lent it.
func (b *Backend) Resize(blocks uint64) error {
	if blocks == 0 || blocks > 1<<63>>b.shift {
		return fmt.Errorf("memory namespace: %d blocks of %d bytes: want at least one, and less than 2^63 bytes", blocks, b.block)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.layout.Load()
	next := &layout{size: blocks << b.shift, slabs: old.slabs}
	capacity := old.slabs[len(old.slabs)-1].end
	if next.size > old.size {
		old.clear(old.size, min(next.size, capacity))
	}
	if next.size > capacity {
		slab, err := b.pool.NewSlab(next.size - capacity)
		if err != nil {
			return fmt.Errorf("memory namespace: grow to %d blocks: %w", blocks, err)
		}
		next.slabs = append(old.slabs[:len(old.slabs):len(old.slabs)], extent{capacity, capacity + slab.Size, slab})
	}
	b.layout.Store(next)
	if b.watch != nil && next.size != old.size {
		b.watch(target.EventResized)
	}
	return nil
}

// Close gives the memory back.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.open.Load(); n != 0 {
		return fmt.Errorf("memory namespace: closed with %d queues open", n)
	}
	l := b.layout.Swap(nil)
	if l == nil {
		return errors.New("memory namespace: closed twice")
	}
	for _, e := range l.slabs {
		b.pool.FreeSlab(e.slab)
	}
	return nil
}

// locate appends the segments of n bytes from off on. The range lies inside the layout.
func (l *layout) locate(segs []mem.Segment, off, n uint64) []mem.Segment {
	for i := range l.slabs {
		e := &l.slabs[i]
		if off >= e.end {
			continue
		}
		part := min(n, e.end-off)
		segs = append(segs, mem.Segment{Addr: e.slab.Base + uintptr(off-e.start), Len: uint32(part), Slab: e.slab.Index})
		if n -= part; n == 0 {
			break
		}
		off += part
	}
	return segs
}

// clear zeroes the bytes from one offset up to another, of any length.
func (l *layout) clear(from, to uint64) {
	const step = 1 << 20
	var room [2]mem.Segment
	for ; from < to; from += step {
		for _, s := range l.locate(room[:0], from, min(step, to-from)) {
			clear(s.Bytes())
		}
	}
}
