package memory

import (
	"math/bits"
	"unsafe"
)

const (
	pageShift  = 12
	chunkShift = 21
	chunkOrder = chunkShift - pageShift // a chunk is one block of this order
	numOrders  = chunkOrder + 1
	chunkPages = 1 << chunkOrder
	noPage     = 1<<32 - 1
)

// States of a page in blockTable.state. A value up to numOrders is the head of a free block of order value-1.
const (
	pageInside = 0    // not the head of a free block
	pageUsed   = 0xFF // handed out; kept in debug builds only
)

// link joins the heads of free blocks of one order into a cache's list.
type link struct{ next, prev uint32 }

// blockTable has what the buddy allocators keep per page. A chunk's part belongs to the cache that holds the chunk.
type blockTable struct {
	links []link
	state []uint8
}

func (t *blockTable) init(pages uint32) {
	t.links = unsafe.Slice((*link)(OffHeap(int(pages)*int(unsafe.Sizeof(link{})))), pages)
	t.state = unsafe.Slice((*uint8)(OffHeap(int(pages))), pages)
}

func (t *blockTable) free() {
	if t.links == nil {
		return
	}
	FreeOffHeap(unsafe.Pointer(&t.links[0]), len(t.links)*int(unsafe.Sizeof(link{})))
	FreeOffHeap(unsafe.Pointer(&t.state[0]), len(t.state))
	t.links, t.state = nil, nil
}

// buddies is a set of free blocks inside the chunks of one cache.
type buddies struct {
	links []link
	state []uint8
	heads [numOrders]uint32
	mask  uint32 // orders whose list is not empty
	whole int    // blocks of a whole chunk
}

func (b *buddies) init(t *blockTable) {
	b.links, b.state = t.links, t.state
	for o := range b.heads {
		b.heads[o] = noPage
	}
}

// push adds a free block to its list as it is.
func (b *buddies) push(page uint32, order int) {
	head := b.heads[order]
	b.links[page] = link{next: head, prev: noPage}
	if head != noPage {
		b.links[head].prev = page
	}
	b.heads[order] = page
	b.state[page] = uint8(order + 1)
	b.mask |= 1 << order
	if order == chunkOrder {
		b.whole++
	}
}

// unlink takes a free block out of its list.
func (b *buddies) unlink(page uint32, order int) {
	l := b.links[page]
	if l.prev != noPage {
		b.links[l.prev].next = l.next
	} else if b.heads[order] = l.next; l.next == noPage {
		b.mask &^= 1 << order
	}
	if l.next != noPage {
		b.links[l.next].prev = l.prev
	}
	b.state[page] = pageInside
	if order == chunkOrder {
		b.whole--
	}
}

// insert frees a block and joins it with its buddies as far as they are free.
func (b *buddies) insert(page uint32, order int) {
	for order < chunkOrder {
		buddy := page ^ 1<<order
		if b.state[buddy] != uint8(order+1) {
			break
		}
		b.unlink(buddy, order)
		page &^= 1 << order
		order++
	}
	b.push(page, order)
}

// insertRun frees any run of pages inside a chunk.
func (b *buddies) insertRun(page, pages uint32) {
	for pages > 0 {
		order := min(bits.TrailingZeros32(page|chunkPages), bits.Len32(pages)-1)
		b.insert(page, order)
		page += 1 << order
		pages -= 1 << order
	}
}

// take returns a run of pages, cut from the smallest block that holds it; what is left over stays free.
func (b *buddies) take(pages uint32) (page uint32, ok bool) {
	order := bits.Len32(pages - 1)
	fit := b.mask >> order << order
	if fit == 0 {
		return 0, false
	}
	have := bits.TrailingZeros32(fit)
	page = b.heads[have]
	b.unlink(page, have)
	for have > order {
		have--
		b.push(page+1<<have, have)
	}
	if pages != 1<<order {
		b.insertRun(page+pages, 1<<order-pages)
	}
	return page, true
}

// largest takes the biggest free block, and returns its pages.
func (b *buddies) largest() (page, pages uint32, ok bool) {
	if b.mask == 0 {
		return 0, 0, false
	}
	order := bits.Len32(b.mask) - 1
	page = b.heads[order]
	b.unlink(page, order)
	return page, 1 << order, true
}
