package pcie

import (
	"runtime/debug"
	"unsafe"

	"rocet/internal/mmio"
	"rocet/nvme"
)

// allOnes is what a read returns when no device answers.
const allOnes = ^uint32(0)

// registers are the controller's, for the control plane. An access to a BAR that the kernel has taken away (the memory
// space was switched off) raises SIGBUS: it reads as all ones here, like a drive that was pulled.
type registers struct{ base unsafe.Pointer }

func (r registers) load32(offset uint32) (v uint32) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if isFault(recover()) {
			v = allOnes
		}
	}()
	return mmio.Load32(unsafe.Add(r.base, offset))
}

func (r registers) store32(offset, v uint32) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { isFault(recover()) }()
	mmio.Store32(unsafe.Add(r.base, offset), v)
}

// isFault tells a memory fault from no panic, and lets any other panic go on.
func isFault(p any) bool {
	if p == nil {
		return false
	}
	if _, ok := p.(interface{ Addr() uintptr }); ok {
		return true
	}
	panic(p)
}

// Registers of 8 bytes are accessed by halves, low one first: controllers exist that know no other way.
func (r registers) load64(offset uint32) uint64 {
	lo := r.load32(offset)
	return uint64(r.load32(offset+4))<<32 | uint64(lo)
}

func (r registers) store64(offset uint32, v uint64) {
	r.store32(offset, uint32(v))
	r.store32(offset+4, uint32(v>>32))
}

func (r registers) capabilities() nvme.CAP { return nvme.CAP(r.load64(nvme.RegCAP)) }
func (r registers) version() nvme.Version  { return nvme.Version(r.load32(nvme.RegVS)) }
func (r registers) cc() nvme.CC            { return nvme.CC(r.load32(nvme.RegCC)) }
func (r registers) setCC(v nvme.CC)        { r.store32(nvme.RegCC, uint32(v)) }

// status returns CSTS, and whether a controller is there to have one.
func (r registers) status() (nvme.CSTS, bool) {
	v := r.load32(nvme.RegCSTS)
	return nvme.CSTS(v), v != allOnes
}
