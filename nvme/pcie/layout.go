package pcie

import (
	"errors"
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

// each visits all pieces, in the order in which they lie in the slab.
func (l *layout) each(depth int, visit func(m *dma, size int)) {
	visit(&l.adminSQ, adminEntries*nvme.CommandSize)
	visit(&l.adminCQ, adminEntries*nvme.CompletionSize)
	visit(&l.data, pageSize)
	visit(&l.shadow, pageSize)
	visit(&l.events, pageSize)
	visit(&l.buffer, bufferBytes)
	for i := range l.rings {
		r := &l.rings[i]
		visit(&r.sq, depth*nvme.CommandSize)
		visit(&r.cq, depth*nvme.CompletionSize)
		visit(&r.lists, depth*listBytes)
	}
}

func newLayout(m Memory, queues, depth int) (*layout, error) {
	l := &layout{rings: make([]rings, queues)}
	size := uint64(0)
	l.each(depth, func(_ *dma, n int) { size += pages(n) })
	slab, err := m.NewSlab(size)
	if err != nil {
		return nil, fmt.Errorf("memory for %d queues: %w", queues, err)
	}
	l.slab = slab
	next := uint64(0)
	l.each(depth, func(m *dma, n int) {
		m.seg = slab.Segment(next, uint32(n))
		m.ptr, m.size = m.seg.Pointer(), n
		next += pages(n)
	})
	return l, nil
}

// locate finds out at which I/O addresses everything is. These change when the address space was without a device for a
// while.
func (l *layout) locate(table *vfio.Table, depth int) error {
	var missing bool
	l.each(depth, func(m *dma, _ int) {
		iova, ok := table.IOVA(m.seg)
		missing = missing || !ok
		m.iova = iova
	})
	if missing {
		return errors.New("the memory of the drive's queues is not mapped for its DMA: the pool does not know the drive's address space")
	}
	return nil
}
