package tcp

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"rocet/memory"
	"rocet/nvme"
	"rocet/target"
)

// Respond implements target.Conn.
func (c *conn) Respond(r *target.Request) {
	c.owner.Check()
	s := c.slots[r.Tag]
	if s.state == slotExecuting {
		c.executing--
	}
	if c.state != connReady {
		c.finish(s)
		c.drained()
		return
	}
	if !c.live && s.cmd.Opcode() == nvme.OpFabrics && s.cmd.FCType() == nvme.FabricsConnect && r.Cqe.Status().IsOK() {
		c.connected(s)
	}
	if s.state == slotReceiving {
		c.asked -= uint64(r.Length - s.got)
	}
	if r.Dir != nvme.DirControllerToHost {
		c.releaseData(s) // the backend is done with it
	}
	s.success = false
	if r.DataOut() {
		s.success = c.noFlow && r.Cqe.Result64() == 0
		if c.ddgst && r.Lent {
			c.steady(s)
		}
	}
	s.to(slotSending)
	c.queue(s)
	c.shard.stats.Responses++
}

// steady moves lent data to memory of its own, where there is some: while the
// namespace's is written to, what is sent would not fit its digest.
func (c *conn) steady(s *slot) {
	r := &s.req
	var from [target.MaxSegments]memory.Segment
	n := copy(from[:], r.Data)
	if !c.shard.mayAlloc(c, r.Length) || !c.alloc(s) {
		copy(r.Segs[:], from[:n])
		r.Data = r.Segs[:n:n]
		return
	}
	at, off := 0, uint32(0)
	for _, f := range from[:n] {
		for b := f.Bytes(); len(b) > 0; {
			k := copy(r.Data[at].Bytes()[off:], b)
			b = b[k:]
			if off += uint32(k); off == r.Data[at].Len {
				at, off = at+1, 0
			}
		}
	}
	c.shard.copied(r.Length)
}

// queue puts a slot's PDUs behind what is to be sent.
func (c *conn) queue(s *slot) {
	c.out.push(s)
	if c.fresh == nil {
		c.fresh = s
	}
	c.shard.markDirty(c)
}

// finish frees a slot and all that it still has.
func (c *conn) finish(s *slot) {
	s.to(slotFree)
	c.releaseData(s)
	s.req.End()
	c.inUse--
	c.freeList = append(c.freeList, s.index)
}

// send sends what there is, as much as the socket takes.
func (c *conn) send() {
	s := c.shard
	for c.out.head != nil && c.state == connReady {
		want := c.build(&s.build)
		n, errno := sendmsg(c.fd, &s.msg, s.build.iov)
		s.stats.Sends++
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			c.block()
			return
		case errno != 0:
			c.shut(errno)
			return
		}
		s.stats.BytesOut += uint64(n)
		c.moved = true
		c.sent(uint32(n))
		if n < want {
			s.stats.PartialSends++
			c.block()
			return
		}
	}
}

// block waits for room in the socket.
func (c *conn) block() {
	c.blocked = true
	c.watch(&c.moved)
	c.shard.stats.Blocked++
}

// sendNow sends a few bytes of which the socket must take all: of an empty one.
func (c *conn) sendNow(b []byte) bool {
	s := c.shard
	n := copy(s.scratch, b)
	s.build.iov = append(s.siov[:0], iovec{addrOf(s.scratch), uintptr(n)})
	k, errno := sendmsg(c.fd, &s.msg, s.build.iov)
	s.stats.Sends++
	return errno == 0 && k == n
}

// sent takes n bytes off what is to be sent.
func (c *conn) sent(n uint32) {
	c.skip += n
	for c.out.head != nil {
		size := c.size(c.out.head)
		if c.skip < size {
			return
		}
		c.skip -= size
		s := c.out.pop()
		if s.state == slotSending {
			c.finish(s)
		} else {
			s.to(slotReceiving)
			if c.awaited++; c.awaited == 1 {
				c.watch(&c.came)
			}
		}
	}
}

// perPDU is how much of a command's data goes into one C2HData PDU.
func (c *conn) perPDU(s *slot) uint32 {
	return max(uint32(c.shard.t.cfg.MaxC2HData), ((s.req.Length+maxC2HPDUs-1)/maxC2HPDUs+3)&^3)
}

func (c *conn) digestSize() uint32 {
	if c.hdgst {
		return nvme.TCPDigestSize
	}
	return 0
}

// size is what a slot in out takes on the wire.
func (c *conn) size(s *slot) uint32 {
	hd := c.digestSize()
	if s.state == slotAsking {
		return uint32(s.r2ts) * (nvme.TCPR2TSize + hd)
	}
	n := uint32(nvme.TCPCapsuleRespSize) + hd
	if s.req.DataOut() {
		per := uint32(nvme.TCPDataOffset(nvme.TCPDataSize, c.hdgst, c.hpda))
		if c.ddgst {
			per += nvme.TCPDigestSize
		}
		if s.success {
			n = 0
		}
		each := c.perPDU(s)
		n += (s.req.Length+each-1)/each*per + s.req.Length
	}
	return n
}

// builder gathers the pieces of one sendmsg. Headers are written one after the
// other, so those without data between them are one piece.
type builder struct {
	iov  []iovec
	hdr  []byte // what is left of the scratch memory
	skip uint32 // bytes that were sent before
	n    int
}

// entryIovecs and entryHeaders are what one slot takes at most.
const (
	entryIovecs  = target.MaxSegments + 2*maxC2HPDUs + 2
	entryHeaders = maxC2HPDUs*(128+nvme.TCPDigestSize) + nvme.TCPCapsuleRespSize + nvme.TCPDigestSize
)

// build makes the next sendmsg and returns how long it is.
func (c *conn) build(b *builder) int {
	s := c.shard
	*b = builder{iov: s.siov[:0], hdr: s.scratch, skip: c.skip}
	for at := c.out.head; at != nil; at = at.next {
		if cap(b.iov)-len(b.iov) < entryIovecs || len(b.hdr) < entryHeaders || b.n >= sendBytes {
			break
		}
		switch {
		case at.state == slotAsking:
			c.buildR2Ts(b, at)
		default:
			if at.req.DataOut() {
				c.buildData(b, at)
			}
			if !at.success {
				c.buildResponse(b, at)
			}
		}
	}
	return b.n
}

// header takes n bytes of scratch memory into the message.
func (b *builder) header(n int) []byte {
	h := b.hdr[:n:n]
	b.hdr = b.hdr[n:]
	return h
}

// put adds a piece, but for what was sent before.
func (b *builder) put(v iovec) {
	if k := min(uintptr(b.skip), v.len); k != 0 {
		b.skip -= uint32(k)
		v.base += k
		v.len -= k
	}
	if v.len == 0 {
		return
	}
	b.n += int(v.len)
	if last := len(b.iov) - 1; last >= 0 && b.iov[last].base+b.iov[last].len == v.base {
		b.iov[last].len += v.len
		return
	}
	b.iov = append(b.iov, v)
}

func (b *builder) putBytes(p []byte) { b.put(iovec{addrOf(p), uintptr(len(p))}) }

// seal adds the header digest of a header of n bytes.
func (c *conn) seal(h []byte, n int) {
	if c.hdgst {
		binary.LittleEndian.PutUint32(h[n:], crcAdd(0, h[:n]))
	}
}

func (c *conn) hdgstFlag() uint8 {
	if c.hdgst {
		return nvme.TCPFlagHDGST
	}
	return 0
}

// buildR2Ts: TCP Transport 1.1 section 3.6.2.10.
func (c *conn) buildR2Ts(b *builder, s *slot) {
	size := nvme.TCPR2TSize + int(c.digestSize())
	for i := range int(s.r2ts) {
		h := b.header(size)
		r2t := (*nvme.TCPR2T)(h)
		r2t.Header().Set(nvme.TCPTypeR2T, c.hdgstFlag(), 0, uint32(size))
		off, n := s.r2tRange(i)
		r2t.SetFields(s.cmd.CID(), s.index|uint16(i)<<ttagSlotBits, off, n)
		c.seal(h, nvme.TCPR2TSize)
		b.putBytes(h)
	}
}

// buildResponse: TCP Transport 1.1 section 3.6.2.7.
func (c *conn) buildResponse(b *builder, s *slot) {
	size := nvme.TCPCapsuleRespSize + int(c.digestSize())
	h := b.header(size)
	resp := (*nvme.TCPCapsuleResp)(h)
	resp.Header().Set(nvme.TCPTypeCapsuleResp, c.hdgstFlag(), 0, uint32(size))
	*resp.Completion() = s.req.Cqe
	c.seal(h, nvme.TCPCapsuleRespSize)
	b.putBytes(h)
}

// buildData: TCP Transport 1.1 section 3.6.2.9.
func (c *conn) buildData(b *builder, s *slot) {
	each := c.perPDU(s)
	pdo := nvme.TCPDataOffset(nvme.TCPDataSize, c.hdgst, c.hpda)
	flags, tail := c.hdgstFlag(), 0
	if c.ddgst {
		flags |= nvme.TCPFlagDDGST
		tail = nvme.TCPDigestSize
	}
	seg, segOff := 0, uint32(0)
	for i, off := 0, uint32(0); off < s.req.Length; i++ {
		n := min(each, s.req.Length-off)
		f := flags
		if off+n == s.req.Length {
			f |= nvme.TCPFlagLast
			if s.success {
				f |= nvme.TCPFlagSuccess
			}
		}
		h := b.header(pdo)
		p := (*nvme.TCPData)(h)
		p.Header().Set(nvme.TCPTypeC2HData, f, uint8(pdo), uint32(pdo)+n+uint32(tail))
		p.SetFields(s.cmd.CID(), 0, off, n)
		c.seal(h, nvme.TCPDataSize)
		clear(h[nvme.TCPDataSize+int(c.digestSize()):])
		b.putBytes(h)
		crc := uint32(0)
		for left := n; left > 0; {
			at := &s.req.Data[seg]
			k := min(at.Len-segOff, left)
			b.put(segIovec(*at, segOff, k))
			if c.ddgst && i >= int(s.summed) {
				crc = crcAdd(crc, at.Bytes()[segOff:segOff+k])
			}
			left -= k
			if segOff += k; segOff == at.Len {
				seg, segOff = seg+1, 0
			}
		}
		if c.ddgst {
			if i >= int(s.summed) {
				s.ddgst[i] = crc
				s.summed = uint8(i + 1)
			}
			d := b.header(nvme.TCPDigestSize)
			binary.LittleEndian.PutUint32(d, s.ddgst[i])
			b.putBytes(d)
		}
		off += n
	}
}
