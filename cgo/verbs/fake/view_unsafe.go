package fake

import (
	"unsafe"

	"rocet/cgo/verbs"
)

// at views an address that a caller handed over as T.
func at[T any](addr uintptr) *T { return (*T)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))) }

// bytesAt views n bytes of registered memory.
func bytesAt(addr uint64, n uint32) []byte {
	if n == 0 {
		return nil
	}
	return unsafe.Slice(at[byte](uintptr(addr)), n)
}

// sgesAt views a scatter list.
func sgesAt(addr uintptr, n int32) []verbs.SGE {
	if n <= 0 {
		return nil
	}
	return unsafe.Slice(at[verbs.SGE](addr), n)
}
