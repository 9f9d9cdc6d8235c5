//go:build race

package memory

import (
	"fmt"
	"sync"
	"unsafe"
)

// offHeap keeps what OffHeap returned alive: often only C code or an address in other such memory refers to it.
var offHeap struct {
	sync.Mutex
	live map[unsafe.Pointer][]byte
}

// OffHeap makes Go memory, so that the race detector sees it: zeroed, page-aligned, not moved, not freed before
// FreeOffHeap.
func OffHeap(size int) unsafe.Pointer {
	raw := make([]byte, size+PageSize)
	skip := -uintptr(unsafe.Pointer(&raw[0])) & (PageSize - 1)
	p := unsafe.Pointer(&raw[skip])
	offHeap.Lock()
	defer offHeap.Unlock()
	if offHeap.live == nil {
		offHeap.live = make(map[unsafe.Pointer][]byte)
	}
	offHeap.live[p] = raw
	return p
}

// FreeOffHeap ends what OffHeap(size) returned. Nil is nothing.
func FreeOffHeap(p unsafe.Pointer, size int) {
	if p == nil {
		return
	}
	offHeap.Lock()
	defer offHeap.Unlock()
	raw, ok := offHeap.live[p]
	if !ok || len(raw) != size+PageSize {
		panic(fmt.Sprintf("memory: FreeOffHeap of %d bytes at %p, which OffHeap did not return", size, p))
	}
	delete(offHeap.live, p)
}
