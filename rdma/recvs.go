package rdma

import (
	"rocet/cgo/verbs"
	"rocet/memory"
	"rocet/nvme"
)

// recvs are the receive buffers of one queue pair or one shared receive queue.
// Command and in-capsule data are scattered to two arrays, so that the data of
// every capsule is page-aligned, as drives want it:
//
//	region: commands (64 bytes each) │ responses (16 each) │ data (stride each)
type recvs struct {
	region   region
	commands memory.Segment
	data     memory.Segment // one segment per buffer is cut from it by offset
	stride   uint32         // of data, a multiple of the page size; 0: no in-capsule data
	inline   uint32         // in-capsule data bytes
	n        int

	mem   block
	wrs   []verbs.RecvWR
	sges  []verbs.SGE
	bytes []uint32 // of the capsule that arrived last
}

// newRecvs makes n buffers and room for responses behind them. id makes the id of
// the i-th receive.
func newRecvs(c *capsules, n, responses int, inline uint32, lkey func(slab uint32) uint32, id func(i int) wrID) (*recvs, memory.Segment, error) {
	stride := uint32(roundUp(uint64(inline), memory.PageSize))
	commands := uint64(n) * nvme.CommandSize
	head := roundUp(commands+uint64(responses)*nvme.CompletionSize, memory.PageSize)
	reg, err := c.alloc(head + uint64(n)*uint64(stride))
	if err != nil {
		return nil, memory.Segment{}, err
	}
	r := &recvs{region: reg, stride: stride, inline: inline, n: n, bytes: make([]uint32, n)}
	r.commands = reg.segment(0, uint32(commands))
	if stride != 0 {
		r.data = reg.segment(head, uint32(n)*stride)
	}
	r.mem = newBlock(carved[verbs.RecvWR](n) + carved[verbs.SGE](2*n))
	r.wrs = carve[verbs.RecvWR](&r.mem, n)
	r.sges = carve[verbs.SGE](&r.mem, 2*n)
	key := lkey(r.commands.Slab)
	for i := range n {
		sge := r.sges[2*i : 2*i+2]
		sge[0] = verbs.SGE{Addr: uint64(r.commands.Addr) + uint64(i)*nvme.CommandSize, Length: nvme.CommandSize, LKey: key}
		wr := &r.wrs[i]
		*wr = verbs.RecvWR{ID: uint64(id(i)), SGList: sgeAddr(&sge[0]), NumSGE: 1}
		if stride != 0 {
			sge[1] = verbs.SGE{Addr: uint64(r.data.Addr) + uint64(i)*uint64(stride), Length: inline, LKey: key}
			wr.NumSGE = 2
		}
	}
	return r, reg.segment(commands, uint32(responses)*nvme.CompletionSize), nil
}

func (r *recvs) release(c *capsules) {
	r.mem.release()
	c.free(r.region)
}

// command is the i-th buffer's command.
func (r *recvs) command(i int) *nvme.Command {
	return commandAt(r.commands.Slice(uint32(i)*nvme.CommandSize, nvme.CommandSize))
}

// capsuleData is what came behind the i-th buffer's command.
func (r *recvs) capsuleData(i int) memory.Segment {
	n := r.bytes[i] - nvme.CommandSize
	if n == 0 {
		return memory.Segment{}
	}
	return r.data.Slice(uint32(i)*r.stride, n)
}
