package host

import (
	"net/netip"
	"unsafe"

	"rocet/cgo/verbs"
	"rocet/memory"
	"rocet/nvme"
)

// rdmaMem is the registered memory of a queue: capsules, responses, and the work requests that the libraries read. It is
// off the Go heap, so its addresses may be kept as numbers.
type rdmaMem struct {
	base     unsafe.Pointer
	size     int
	capsules []nvme.Command
	cqes     []nvme.Completion
	wrs      []verbs.SendWR
	rwrs     []verbs.RecvWR
	sges     []verbs.SGE // two for each SEND: capsule, data; then one for each receive
}

func (m *rdmaMem) init(depth int) {
	size := func(n int, of uintptr) int { return (n*int(of) + 63) &^ 63 }
	sizes := [...]int{
		size(depth, nvme.CommandSize), size(depth+1, nvme.CompletionSize),
		size(depth, unsafe.Sizeof(verbs.SendWR{})), size(depth+1, unsafe.Sizeof(verbs.RecvWR{})),
		size(3*depth+1, unsafe.Sizeof(verbs.SGE{})),
	}
	for _, n := range sizes {
		m.size += n
	}
	m.base = memory.OffHeap(m.size)
	at := m.base
	next := func(i int) unsafe.Pointer {
		p := at
		at = unsafe.Add(at, sizes[i])
		return p
	}
	m.capsules = unsafe.Slice((*nvme.Command)(next(0)), depth)
	m.cqes = unsafe.Slice((*nvme.Completion)(next(1)), depth+1)
	m.wrs = unsafe.Slice((*verbs.SendWR)(next(2)), depth)
	m.rwrs = unsafe.Slice((*verbs.RecvWR)(next(3)), depth+1)
	m.sges = unsafe.Slice((*verbs.SGE)(next(4)), 3*depth+1)
}

// prepare fills in what stays.
func (m *rdmaMem) prepare(lkey uint32) {
	depth := len(m.wrs)
	for i := range m.wrs {
		m.sges[2*i] = verbs.SGE{Addr: uint64(uintptr(unsafe.Pointer(&m.capsules[i]))), Length: nvme.CommandSize, LKey: lkey}
		m.wrs[i] = verbs.SendWR{ID: sendID, SGList: uintptr(unsafe.Pointer(&m.sges[2*i])), NumSGE: 1, Opcode: verbs.OpSend}
	}
	for i := range m.rwrs {
		sge := &m.sges[2*depth+i]
		*sge = verbs.SGE{Addr: uint64(uintptr(unsafe.Pointer(&m.cqes[i]))), Length: nvme.CompletionSize, LKey: lkey}
		m.rwrs[i] = verbs.RecvWR{ID: uint64(i), SGList: uintptr(unsafe.Pointer(sge)), NumSGE: 1}
	}
}

func (m *rdmaMem) free() {
	memory.FreeOffHeap(m.base, m.size)
	*m = rdmaMem{}
}

func sendAddr(w *verbs.SendWR) uintptr { return uintptr(unsafe.Pointer(w)) }
func recvAddr(w *verbs.RecvWR) uintptr { return uintptr(unsafe.Pointer(w)) }
func dataAddr(io *IO) uint64           { return uint64(uintptr(io.Mem.base)) + uint64(io.Off) }

func fromAddr(a netip.Addr) netip.AddrPort {
	if !a.IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, 0)
}
