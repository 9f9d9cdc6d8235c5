package rdma

import "rocet/nvme"

// MaxDescriptors is the most data block descriptors that one command may bring
// in its capsule.
const MaxDescriptors = 16

// Identifiers of the descriptors that the transport takes: RDMA Transport 1.1
// section 2.3, Base 2.1 section 4.3.2.
const (
	idKeyed      = uint8(nvme.SGLKeyedDataBlock)<<4 | uint8(nvme.SGLAddress)
	idKeyedInval = uint8(nvme.SGLKeyedDataBlock)<<4 | uint8(nvme.SGLInvalidate)
	idInCapsule  = uint8(nvme.SGLDataBlock)<<4 | uint8(nvme.SGLOffset)
	idLastOffset = uint8(nvme.SGLLastSegment)<<4 | uint8(nvme.SGLOffset)
)

// Offsets in the command, for the error log.
const (
	offsetSGLAddress = 24
	offsetSGLLength  = 32
	offsetSGLType    = 39
)

// sglResult is where a command's data is.
type sglResult struct {
	n          int    // keyed descriptors; 0: the data is in the capsule
	inList     bool   // they lie in the capsule at offset, else the one in the command
	offset     uint32 // into the capsule's data
	invalidate bool   // the host asks for key to be invalidated
	key        uint32
	errorAt    uint16 // byte of the command that an error is about
}

// parseSGL finds a command's data: length bytes, or with atLeast that many of
// possibly more. capsule is what was received behind the 64 bytes of the command.
// Nothing is believed that is not checked here.
func parseSGL(cmd *nvme.Command, capsule []byte, length uint32, atLeast, write bool, maxDesc int) (g sglResult, st nvme.Status) {
	d := cmd.SGL()
	switch d.Identifier() {
	case idKeyed, idKeyedInval:
		g.n = 1
		if n := d.KeyedLength(); n < length || n > length && !atLeast {
			g.errorAt = offsetSGLLength
			return g, nvme.StatusSGLDataLength
		}
		g.invalidate = d.Identifier() == idKeyedInval
		g.key = d.Key()
		return g, nvme.StatusSuccess

	case idInCapsule:
		if !write {
			g.errorAt = offsetSGLType
			return g, nvme.StatusInvalidSGLType
		}
		n := d.Length32()
		switch {
		case d.Address() > uint64(len(capsule)):
			g.errorAt = offsetSGLAddress
			return g, nvme.StatusSGLOffset
		case uint64(n) > uint64(len(capsule))-d.Address(), n < length, n > length && !atLeast:
			g.errorAt = offsetSGLLength
			return g, nvme.StatusSGLDataLength
		}
		g.offset = uint32(d.Address())
		return g, nvme.StatusSuccess

	case idLastOffset:
		if maxDesc > 1 {
			return parseList(d, capsule, length, atLeast, maxDesc)
		}
	}
	g.errorAt = offsetSGLType
	return g, nvme.StatusInvalidSGLType
}

// parseList checks the descriptors of a last segment that lies in the capsule.
func parseList(d *nvme.SGLDescriptor, capsule []byte, length uint32, atLeast bool, maxDesc int) (g sglResult, st nvme.Status) {
	size := uint64(d.Length32())
	g.errorAt = offsetSGLLength
	switch {
	case d.Address() > uint64(len(capsule)):
		g.errorAt = offsetSGLAddress
		return g, nvme.StatusSGLOffset
	case size == 0 || size%nvme.SGLDescriptorSize != 0:
		return g, nvme.StatusInvalidSGLSegment
	case size/nvme.SGLDescriptorSize > uint64(maxDesc):
		return g, nvme.StatusInvalidSGLCount
	case size > uint64(len(capsule))-d.Address():
		return g, nvme.StatusInvalidSGLSegment
	}
	g.inList = true
	g.offset = uint32(d.Address())
	g.n = int(size / nvme.SGLDescriptorSize)
	list := capsule[d.Address() : d.Address()+size]
	var total uint64
	for i := range g.n {
		e := (*nvme.SGLDescriptor)(list[i*nvme.SGLDescriptorSize:])
		switch e.Identifier() {
		case idKeyedInval:
			// One response invalidates one key; the host sees which and does the
			// others itself.
			g.invalidate = true
			g.key = e.Key()
		case idKeyed:
		default:
			g.errorAt = offsetSGLAddress
			return g, nvme.StatusInvalidSGLType
		}
		total += uint64(e.KeyedLength())
	}
	if total < uint64(length) || total > uint64(length) && !atLeast {
		return g, nvme.StatusSGLDataLength
	}
	g.errorAt = 0
	return g, nvme.StatusSuccess
}
