package verbstest

import (
	"testing"
	"unsafe"

	"rocet/cgo/verbs"
	"rocet/memory"
)

// sizes of an end's memory
const (
	dataSize = 64 << 10
	maxWRs   = 64
)

// arena is what an end posts and moves: outside the Go heap, as the transport's is.
type arena struct {
	send [maxWRs]verbs.SendWR
	recv [maxWRs]verbs.RecvWR
	sge  [2 * maxWRs]verbs.SGE
	data [dataSize]byte
}

func newArena(t testing.TB) *arena {
	p := memory.OffHeap(int(unsafe.Sizeof(arena{})))
	t.Cleanup(func() { memory.FreeOffHeap(p, int(unsafe.Sizeof(arena{}))) })
	return (*arena)(p)
}

func address[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }
