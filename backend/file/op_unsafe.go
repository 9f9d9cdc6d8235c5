package file

import "unsafe"

// addressOf is where the kernel finds the vectors, which are outside the Go heap.
func addressOf(vecs []vec) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(vecs)))) }
