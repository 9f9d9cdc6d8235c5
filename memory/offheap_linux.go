//go:build !race

package memory

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OffHeap maps size bytes outside the Go heap: zeroed, page-aligned, never moved. It is for work requests and rings that C
// code and devices read; the collector does not look inside, so no Go pointer may be stored there. Under the race
// detector it is Go memory. Running out of memory panics, as it does for make.
func OffHeap(size int) unsafe.Pointer {
	addr, err := unix.MmapPtr(-1, 0, nil, offHeapSize(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_PRIVATE)
	if err != nil {
		panic(fmt.Sprintf("memory: map %d bytes: %v", size, err))
	}
	if size >= ChunkSize {
		_ = unix.Madvise(unsafe.Slice((*byte)(addr), size), unix.MADV_HUGEPAGE) // a kernel without them says no
	}
	return addr
}

// FreeOffHeap unmaps what OffHeap(size) returned. Nil is nothing.
func FreeOffHeap(p unsafe.Pointer, size int) {
	if p == nil {
		return
	}
	if err := unix.MunmapPtr(p, offHeapSize(size)); err != nil {
		panic(fmt.Sprintf("memory: unmap %d bytes at %p: %v", size, p, err))
	}
}

func offHeapSize(size int) uintptr {
	return uintptr(roundUp(uint64(max(size, 1)), uint64(os.Getpagesize())))
}
