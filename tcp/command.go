package tcp

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"rocet/memory"
	"rocet/nvme"
	"rocet/target"
)

var errBadTermReq = errors.New("the host ended the connection with a malformed H2CTermReq")

// castagnoli is the CRC of the digests (TCP Transport 1.1 section 3.3.1.1). The
// library has the processor's instruction for it.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crcAdd(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

// Identifiers of the descriptors that the transport takes: TCP Transport 1.1
// section 3.3.2, Base 2.1 section 4.3.2.
const (
	idInCapsule = uint8(nvme.SGLDataBlock)<<4 | uint8(nvme.SGLOffset)
	idTransport = uint8(nvme.SGLTransportDataBlock)<<4 | uint8(nvme.SGLTransport)
)

// Offsets in the command, for the error log.
const (
	offsetSGLAddress = 24
	offsetSGLLength  = 32
	offsetSGLType    = 39
)

// capsuleCmd takes a command capsule.
func (c *conn) capsuleCmd(p []byte) {
	n := len(c.freeList)
	if n == 0 {
		c.fatal(nvme.TCPFESSequenceError, 0, p, "more than the %d commands of the queue at once", len(c.slots))
		return
	}
	s := c.slots[c.freeList[n-1]]
	c.freeList = c.freeList[:n-1]
	s.to(slotReceived)
	c.inUse++
	c.shard.stats.Commands++
	pdu := (*nvme.TCPCapsuleCmd)(p)
	s.cmd = *pdu.Command()
	s.damaged, s.r2ts, s.summed, s.got = false, 0, 0, 0
	r := &s.req
	r.Begin(c.shard.r.Now())
	r.Cmd = &s.cmd

	var data []byte
	if hdr := int(c.in.hdr[nvme.TCPTypeCapsuleCmd]); len(p) > hdr {
		data = p[pdu.Header().PDO():]
		if c.ddgst {
			sum := data[len(data)-nvme.TCPDigestSize:]
			data = data[:len(data)-nvme.TCPDigestSize]
			s.damaged = binary.LittleEndian.Uint32(sum) != crcAdd(0, data)
		}
	}
	if !c.live && s.cmd.Opcode() == nvme.OpFabrics && s.cmd.FCType() == nvme.FabricsConnect {
		c.connect.qid, c.connect.depth = s.cmd.QID(), s.cmd.SQSIZE()+1
	}
	if st := c.tq.Prepare(r); st != nvme.StatusSuccess {
		c.tq.Fail(r, st)
		return
	}
	switch {
	case s.damaged:
		c.shard.stats.DataDigestErrors++
		c.tq.Fail(r, nvme.StatusTransientTransport)
		return
	case r.Length == 0:
		c.execute(s)
		return
	}
	off, ask, st := parseSGL(r, uint64(len(data)))
	switch {
	case st != nvme.StatusSuccess:
		c.shard.stats.BadSGLs++
		c.tq.Fail(r, st.WithDNR())
	case r.Dir == nvme.DirControllerToHost && r.Lent:
		c.execute(s)
	case r.Dir == nvme.DirControllerToHost || ask:
		if c.shard.mayAlloc(c, r.Length) && c.alloc(s) {
			c.haveBuffers(s)
			return
		}
		c.waitBuffers(s)
	default:
		data = data[off:][:r.Length]
		c.shard.stats.InCapsule++
		c.shard.group.CountCopied(target.CopyCapsule, uint64(r.Length))
		if c.shard.mayAlloc(c, r.Length) && c.alloc(s) {
			scatter(r.Data, data)
			c.execute(s)
			return
		}
		s.early = append([]byte(nil), data...)
		c.waitBuffers(s)
	}
}

// parseSGL finds a command's data: in the capsule at off, or in data PDUs, for
// which a write has to ask. capsule is how many bytes of data came with it.
func parseSGL(r *target.Request, capsule uint64) (off uint64, ask bool, st nvme.Status) {
	d := r.Cmd.SGL()
	n := d.Length32()
	write := r.Dir == nvme.DirHostToController
	id := d.Identifier()
	if id != idTransport && (id != idInCapsule || !write) {
		r.ErrorAt(offsetSGLType)
		return 0, false, nvme.StatusInvalidSGLType
	}
	if n < r.Length || n > r.Length && !r.AtLeast {
		r.ErrorAt(offsetSGLLength)
		return 0, false, nvme.StatusSGLDataLength
	}
	if id == idTransport {
		return 0, write, nvme.StatusSuccess
	}
	off = d.Address()
	switch {
	case off > capsule:
		r.ErrorAt(offsetSGLAddress)
		return 0, false, nvme.StatusSGLOffset
	case uint64(n) > capsule-off:
		r.ErrorAt(offsetSGLLength)
		return 0, false, nvme.StatusSGLDataLength
	}
	return off, false, nvme.StatusSuccess
}

// scatter copies data to segments that have room for it.
func scatter(segs []memory.Segment, data []byte) {
	for i := range segs {
		data = data[copy(segs[i].Bytes(), data):]
	}
}

// alloc takes pool memory for a slot's data.
func (c *conn) alloc(s *slot) bool {
	r := &s.req
	class := memory.ClassIO
	if c.admin {
		class = memory.ClassAdmin
	}
	n, ok := c.shard.mem.Alloc(r.Segs[:], r.Length, class)
	if !ok {
		return false
	}
	s.nseg = uint8(n)
	r.SetData(n)
	c.held += pages(r.Length)
	return true
}

// releaseData gives the memory back.
func (c *conn) releaseData(s *slot) {
	s.early = nil
	if s.nseg == 0 {
		return
	}
	c.shard.mem.Free(s.req.Segs[:s.nseg])
	s.nseg = 0
	c.held -= pages(s.req.Length)
	if c.bufWait.head != nil && c.state == connReady {
		c.shard.enter(c)
	}
}

func (c *conn) waitBuffers(s *slot) {
	s.to(slotWaitBuffers)
	s.since = c.shard.r.Now()
	c.bufWait.push(s)
	c.shard.stats.BufferWaits++
	c.shard.enter(c)
}

// haveBuffers goes on with a slot that has its memory.
func (c *conn) haveBuffers(s *slot) {
	r := &s.req
	switch {
	case s.early != nil:
		scatter(r.Data, s.early)
		s.early = nil
		c.execute(s)
	case r.Dir == nvme.DirControllerToHost:
		c.execute(s)
	default:
		c.ask(s)
	}
}

// ask asks for a write's data: in one R2T, or where the host allows several in as
// many as its H2CData PDUs need.
func (c *conn) ask(s *slot) {
	n := s.req.Length
	each := uint32(c.shard.t.cfg.MaxH2CData)
	if most := uint32(c.maxR2T); (n+each-1)/each > most {
		each = ((n+most-1)/most + 3) &^ 3
	}
	s.r2tLen = each
	s.r2ts = uint8((n + each - 1) / each)
	s.gotOf = [maxR2Ts]uint32{}
	s.to(slotAsking)
	c.asked += uint64(n)
	c.shard.stats.R2Ts += uint64(s.r2ts)
	c.queue(s)
}

// execute hands a command to the target.
func (c *conn) execute(s *slot) {
	s.to(slotExecuting)
	c.executing++
	c.tq.Execute(&s.req)
}
