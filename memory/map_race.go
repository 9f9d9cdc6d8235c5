//go:build race

package memory

import (
	"log/slog"
	"unsafe"
)

// mapSlab makes the slab a Go object: the race detector does not see mapped memory.
func mapSlab(size, _ uint64, _ *Config, _ *slog.Logger) (*Slab, error) {
	raw := make([]byte, size+ChunkSize)
	base := uintptr(unsafe.Pointer(&raw[0]))
	aligned := uintptr(roundUp(uint64(base), ChunkSize))
	return &Slab{Base: aligned, Size: size, PageSize: PageSize, Node: -1, raw: raw}, nil
}

// unmapSlab leaves the memory to the collector, which frees it once no pointer into it is left.
func unmapSlab(s *Slab) { s.raw = nil }
