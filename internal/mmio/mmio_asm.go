//go:build (amd64 || arm64) && !race

package mmio

import "unsafe"

// Load32 reads a 4-byte register.
//
//go:noescape
func Load32(p unsafe.Pointer) uint32

// Load64 reads an 8-byte register.
//
//go:noescape
func Load64(p unsafe.Pointer) uint64

// Store32 writes a 4-byte register.
//
//go:noescape
func Store32(p unsafe.Pointer, v uint32)

// Store64 writes an 8-byte register.
//
//go:noescape
func Store64(p unsafe.Pointer, v uint64)
