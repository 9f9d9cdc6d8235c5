package rdma

import (
	"unsafe"

	"rocet/cgo/verbs"
	"rocet/memory"
	"rocet/nvme"
)

// Work requests lie in memory.OffHeap, where the libraries and the collector
// leave them in place, so their addresses may be kept as numbers.

// inlineSGEs is how many segments a slot's own data work request takes.
const inlineSGEs = 16

// slotWR is the prebuilt work of one slot: the response, the one WRITE or READ
// that nearly every command gets along with, and their scatter lists.
type slotWR struct {
	resp    verbs.SendWR
	data    verbs.SendWR
	sge     [inlineSGEs]verbs.SGE
	respSGE verbs.SGE
	cqe     nvme.Completion // of responses that are posted inline
	_       [32]byte
}

var _ [0]struct{} = [unsafe.Sizeof(slotWR{}) % 64]struct{}{} // slots don't share cache lines

// block is a piece of off-heap memory that several arrays are cut from.
type block struct {
	base unsafe.Pointer
	size int
	used uintptr
}

func newBlock(size int) block { return block{base: memory.OffHeap(size), size: size} }

func (b *block) release() {
	memory.FreeOffHeap(b.base, b.size)
	*b = block{}
}

// carve cuts n elements of T from a block, cache-line aligned.
func carve[T any](b *block, n int) []T {
	size := uintptr(carved[T](n))
	if b.used+size > uintptr(b.size) {
		panic("rdma: an off-heap block is smaller than what it holds")
	}
	s := unsafe.Slice((*T)(unsafe.Add(b.base, b.used)), n)
	b.used += size
	return s
}

// carved is how many bytes carve takes.
func carved[T any](n int) int {
	var t T
	return (n*int(unsafe.Sizeof(t)) + 63) &^ 63
}

func sendAddr(w *verbs.SendWR) uintptr { return uintptr(unsafe.Pointer(w)) }
func recvAddr(w *verbs.RecvWR) uintptr { return uintptr(unsafe.Pointer(w)) }
func sgeAddr(s *verbs.SGE) uintptr     { return uintptr(unsafe.Pointer(s)) }

func cqeAddr(c *nvme.Completion) uintptr { return uintptr(unsafe.Pointer(c)) }

// commandAt views the 64 bytes at a segment's start, completionAt 16 bytes.
func commandAt(s memory.Segment) *nvme.Command       { return (*nvme.Command)(s.Pointer()) }
func completionAt(s memory.Segment) *nvme.Completion { return (*nvme.Completion)(s.Pointer()) }

// descriptorAt is the i-th descriptor of a checked list.
func descriptorAt(first *nvme.SGLDescriptor, i int) *nvme.SGLDescriptor {
	return (*nvme.SGLDescriptor)(unsafe.Add(unsafe.Pointer(first), i*nvme.SGLDescriptorSize))
}
