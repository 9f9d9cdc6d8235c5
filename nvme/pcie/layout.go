package pcie

import (
	"fmt"
	"unsafe"

	"rocet/memory"
	"rocet/nvme"
	"rocet/nvme/vfio"
)

const (
	pageSize  = 4096
	listBytes = 2048 // of a command's PRP list, SGL or DSM ranges: never across a page

	// MaxTransfer is what one command moves at most, whatever the drive could: a list holds that many pages after the
	// first, which is addressed by the command itself and may begin inside its page.
	MaxTransfer = listBytes / 8 * pageSize

	adminEntries = 64
	bufferBytes  = 64 << 10 // for reads of the control plane
)

// dma is a piece of the drive's slab: as the processor and as the drive see it.
type dma struct {
	ptr  unsafe.Pointer
	iova uint64
	size int
	seg  memory.Segment
}

func (m dma) bytes() []byte { return unsafe.Slice((*byte)(m.ptr), m.size) }

func (m dma) clear() { clear(m.bytes()) }

// layout is where everything lies that the drive reads and writes besides data: one slab, all of it allocated before the
// drive is brought up, so that no recovery fails for want of memory.
type layout struct {
	slab    *memory.Slab
	adminSQ dma
	adminCQ dma
	data    dma // of an admin command
	shadow  dma // doorbell buffers: values, then event indexes
	events  dma
	buffer  dma
	rings   []rings
}

// rings are the memory of an I/O queue pair.
type rings struct{ sq, cq, lists dma }

func pages(n int) uint64 { return uint64(n+pageSize-1) &^ (pageSize - 1) }

func newLayout(m Memory, table *vfio.Table, queues, depth int) (*layout, error) {
	sqBytes, cqBytes, lists := depth*nvme.CommandSize, depth*nvme.CompletionSize, depth*listBytes
	size := uint64(5*pageSize+bufferBytes) + uint64(queues)*(pages(sqBytes)+pages(cqBytes)+pages(lists))
	slab, err := m.NewSlab(size)
	if err != nil {
		return nil, fmt.Errorf("memory for the queues of %d reactors: %w", queues, err)
	}
	base, ok := table.IOVA(slab.Segment(0, 1))
	if !ok {
		m.FreeSlab(slab)
		return nil, fmt.Errorf("memory for the queues: it is not mapped for the drive's DMA: the pool does not know the drive's address space")
	}
	l := &layout{slab: slab}
	next := uint64(0)
	take := func(n int) dma {
		s := slab.Segment(next, uint32(n))
		d := dma{ptr: s.Pointer(), iova: base + next, size: n, seg: s}
		next += pages(n)
		return d
	}
	l.adminSQ, l.adminCQ = take(adminEntries*nvme.CommandSize), take(adminEntries*nvme.CompletionSize)
	l.data, l.shadow, l.events, l.buffer = take(pageSize), take(pageSize), take(pageSize), take(bufferBytes)
	for range queues {
		l.rings = append(l.rings, rings{sq: take(sqBytes), cq: take(cqBytes), lists: take(lists)})
	}
	return l, nil
}
