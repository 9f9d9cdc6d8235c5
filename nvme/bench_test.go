package nvme

import (
	"testing"
	"unsafe"
)

// sink keeps the compiler from leaving the measured work out.
var sink uint64

// parse touches what the I/O path reads of a command.
func parse(b []byte) uint64 {
	c := (*Command)(b)
	d := c.SGL()
	v := uint64(c.Opcode()) + uint64(c.CID()) + uint64(c.NSID()) + c.SLBA() + uint64(c.NLB()) + bit(c.FUA())
	return v + d.Address() + uint64(d.KeyedLength()) + uint64(d.Key()) + uint64(d.Identifier()) + uint64(DataDirection(false, c))
}

func complete(b []byte, cid uint16, s Status) {
	c := (*Completion)(b)
	c.SetResult64(0)
	c.SetSQHD(cid)
	c.SetSQID(0)
	c.SetCID(cid)
	c.SetStatus(s)
}

func BenchmarkParseCommand(b *testing.B) {
	b.ReportAllocs()
	buf := make([]byte, CommandSize)
	(*Command)(buf).SetOpcode(OpRead)
	for b.Loop() {
		sink += parse(buf)
	}
}

func BenchmarkBuildCompletion(b *testing.B) {
	b.ReportAllocs()
	buf := make([]byte, CompletionSize)
	for b.Loop() {
		complete(buf, uint16(sink), StatusSuccess)
	}
}

func BenchmarkBuildC2HData(b *testing.B) {
	b.ReportAllocs()
	buf := make([]byte, TCPDataSize)
	for b.Loop() {
		p := (*TCPData)(buf)
		p.Header().Set(TCPTypeC2HData, TCPFlagLast|TCPFlagSuccess, TCPDataSize, TCPDataSize+4096)
		p.SetFields(uint16(sink), 0, 0, 4096)
	}
}

func BenchmarkIdentifyController(b *testing.B) {
	b.ReportAllocs()
	var x IdentifyController
	buf := make([]byte, IdentifySize)
	for b.Loop() {
		x.MarshalTo(buf)
	}
}

// TestViewsDoNotAllocate holds what the I/O path relies on.
func TestViewsDoNotAllocate(t *testing.T) {
	cmd, cqe, pdu := make([]byte, CommandSize), make([]byte, CompletionSize), make([]byte, TCPCapsuleCmdSize)
	n := testing.AllocsPerRun(100, func() {
		sink += parse(cmd)
		complete(cqe, 1, StatusInvalidField.WithDNR())
		p := (*TCPCapsuleCmd)(pdu)
		p.Header().Set(TCPTypeCapsuleCmd, 0, 72, 72)
		sink += uint64(p.Command().CID()) + uint64((*DSMRange)(cqe).NLB())
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestViewsAlias: a view is the buffer, at any alignment.
func TestViewsAlias(t *testing.T) {
	buf := make([]byte, CommandSize+1)
	for off := range 2 {
		c := (*Command)(buf[off : off+CommandSize])
		if unsafe.Pointer(c) != unsafe.Pointer(&buf[off]) || unsafe.Pointer(c.SGL()) != unsafe.Pointer(&buf[off+24]) {
			t.Errorf("the view at %d is a copy", off)
		}
	}
}
