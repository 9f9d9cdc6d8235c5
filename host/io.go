package host

import (
	"fmt"
	"unsafe"

	"rocet/cgo/verbs"
	"rocet/memory"
	"rocet/nvme"
)

// IO is one command. It belongs to the caller but while it is under way: from Submit until Poll hands it out. IOs are
// made once and used again and again.
type IO struct {
	Cmd nvme.Command // opcode, namespace and dwords 10 to 15; Submit fills in the rest

	// The command's data: Len bytes of Mem from Off on. Len 0: none.
	Mem *Memory
	Off uint32
	Len uint32

	Status nvme.Status // the answer; StatusHostPath if the connection ended before one came
	Result uint64      // dwords 0 and 1 of the response

	Tag   uint64 // the caller's own
	Start int64  // the caller's own
}

// SetData says where the command's data is or goes to.
func (io *IO) SetData(m *Memory, off, n uint32) { io.Mem, io.Off, io.Len = m, off, n }

// SetRW makes the command a Read or Write of blocks.
func (io *IO) SetRW(op nvme.Opcode, nsid uint32, lba uint64, blocks uint32) {
	io.Cmd = nvme.Command{}
	io.Cmd.SetOpcode(op)
	io.Cmd.SetNSID(nsid)
	io.Cmd.SetSLBA(lba)
	io.Cmd.SetNLB(blocks)
}

// data is the IO's part of its memory, which Submit checked.
func (io *IO) data() []byte { return io.Mem.b[io.Off : io.Off+io.Len : io.Off+io.Len] }

// Memory holds the data of commands: outside the Go heap, page-aligned, and registered where a device reads and writes
// it.
type Memory struct {
	b    []byte
	base unsafe.Pointer
	mr   verbs.MR // RDMA
	lkey uint32
	rkey uint32
	done func() // after Free
}

func newMemory(size int) (*Memory, error) {
	if size < 1 || size > 1<<31-1 {
		return nil, fmt.Errorf("host: memory of %d bytes: want 1 to 2147483647", size)
	}
	m := &Memory{base: memory.OffHeap(size)}
	m.b = unsafe.Slice((*byte)(m.base), size)
	return m, nil
}

// Bytes is the memory. It must not be used after Free.
func (m *Memory) Bytes() []byte { return m.b }

// Free gives the memory back. No command that uses it may be under way.
func (m *Memory) Free() error {
	if m.base == nil {
		return nil
	}
	var err error
	if m.mr != nil {
		err = m.mr.Dereg()
	}
	memory.FreeOffHeap(m.base, len(m.b))
	m.base, m.b = nil, nil
	if m.done != nil {
		m.done()
	}
	return err
}
