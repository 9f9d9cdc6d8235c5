//go:build race || !(amd64 || arm64)

package mmio

import (
	"sync/atomic"
	"unsafe"
)

// Load32 reads a 4-byte register.
func Load32(p unsafe.Pointer) uint32 { return atomic.LoadUint32((*uint32)(p)) }

// Load64 reads an 8-byte register.
func Load64(p unsafe.Pointer) uint64 { return atomic.LoadUint64((*uint64)(p)) }

// Store32 writes a 4-byte register.
func Store32(p unsafe.Pointer, v uint32) { atomic.StoreUint32((*uint32)(p), v) }

// Store64 writes an 8-byte register.
func Store64(p unsafe.Pointer, v uint64) { atomic.StoreUint64((*uint64)(p), v) }
