package tcp

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"rocet/nvme"
)

// input is the receiving half of a connection: what of a PDU is here.
type input struct {
	stash  []byte // the beginning of a PDU whose rest has not come
	hdr    [numPDUTypes]uint8
	maxPDU int // of a command capsule

	// The H2CData PDU whose data comes next.
	slot    *slot // nil: a header comes next
	off     uint32
	left    uint32
	r2t     uint8
	crc     uint32
	digest  [nvme.TCPDigestSize]byte
	digests uint8 // bytes of digest that came
}

const numPDUTypes = int(nvme.TCPTypeR2T) + 1

// sizes takes over what the connection agreed on.
func (in *input) sizes(c *conn) {
	n := nvme.TCPCapsuleCmdSize
	if c.hdgst {
		n += nvme.TCPDigestSize
	}
	for t := range in.hdr {
		in.hdr[t] = uint8(nvme.TCPPDUType(t).HLEN())
		if c.hdgst {
			in.hdr[t] += nvme.TCPDigestSize
		}
	}
	// A host may begin the data later than it must: PDO is a byte.
	in.maxPDU = max(n, 255) + int(c.capsule) + nvme.TCPDigestSize
}

func (in *input) drop() { in.stash, in.slot = nil, nil }

// receive reads once and takes what it got. It returns false if there was nothing.
func (c *conn) receive() bool {
	s := c.shard
	switch c.state {
	case connClosed, connDraining:
		c.more = false
		return false
	}
	iov := s.riov[:0]
	in := &c.in
	place := 0
	if in.slot != nil && in.left != 0 {
		iov = c.dataIovecs(iov)
		place = int(in.left)
	}
	ahead := readAhead
	if c.asked-uint64(in.left) >= largeData || !c.live {
		ahead = smallAhead
	}
	iov = append(iov, iovec{addrOf(s.buf), uintptr(ahead)})
	n, errno := readv(c.fd, iov)
	s.stats.Reads++
	if n <= 0 {
		c.more = false
		switch {
		case errno == unix.EAGAIN || errno == unix.EINTR:
			s.stats.EmptyReads++
			c.more = errno == unix.EINTR
			c.misses = min(c.misses+1, 100)
			return false
		case c.state == connLingering:
			c.close()
		case errno != 0:
			c.shut(errno)
		default:
			c.shut(errPeerClosed)
		}
		return true
	}
	s.stats.BytesIn += uint64(n)
	c.misses = 0
	// After the host's end there is no event to come.
	c.more = n == place+ahead || c.hup
	if c.state == connLingering {
		return true
	}
	if place != 0 {
		direct := min(n, place)
		c.placed(uint32(direct))
		n -= direct
		if n == 0 {
			return true
		}
	}
	c.take(s.buf[:n])
	return true
}

// dataIovecs are the places of the data that comes next.
func (c *conn) dataIovecs(iov []iovec) []iovec {
	in := &c.in
	off, left := in.off, in.left
	for i := range in.slot.req.Data {
		seg := &in.slot.req.Data[i]
		if off >= seg.Len {
			off -= seg.Len
			continue
		}
		n := min(seg.Len-off, left)
		iov = append(iov, segIovec(*seg, off, n))
		off = 0
		if left -= n; left == 0 {
			break
		}
	}
	return iov
}

// placed counts n bytes of H2CData that were read to their place.
func (c *conn) placed(n uint32) {
	in := &c.in
	if c.ddgst {
		off, left := in.off, n
		for i := range in.slot.req.Data {
			seg := &in.slot.req.Data[i]
			if off >= seg.Len {
				off -= seg.Len
				continue
			}
			k := min(seg.Len-off, left)
			in.crc = crcAdd(in.crc, seg.Bytes()[off:off+k])
			off = 0
			if left -= k; left == 0 {
				break
			}
		}
	}
	in.off += n
	in.left -= n
	in.slot.got += n
	in.slot.gotOf[in.r2t] += n
	c.asked -= uint64(n)
	c.came = true
	if in.left == 0 && !c.ddgst {
		c.dataEnd()
	}
}

// take goes through what was read.
func (c *conn) take(b []byte) {
	in := &c.in
	for len(b) > 0 && c.state < connDraining {
		if in.slot != nil {
			b = b[c.data(b):]
			continue
		}
		if len(in.stash) > 0 {
			b = b[c.fill(b):]
			continue
		}
		n := c.need(b)
		switch {
		case c.state >= connDraining:
			return
		case n > len(b):
			c.keep(b)
			return
		}
		c.pdu(b[:n])
		b = b[n:]
	}
}

// keep puts the beginning of a PDU aside.
func (c *conn) keep(b []byte) {
	in := &c.in
	if cap(in.stash) == 0 && c.live {
		in.stash = make([]byte, 0, in.maxPDU)
	}
	in.stash = append(in.stash, b...)
}

// fill adds to the beginning of a PDU, and takes the PDU once it is whole. It
// returns how much it used.
func (c *conn) fill(b []byte) (used int) {
	in := &c.in
	for {
		n := c.need(in.stash)
		if c.state >= connDraining {
			return used
		}
		if n == len(in.stash) {
			p := in.stash
			in.stash = in.stash[:0]
			c.pdu(p)
			return used
		}
		if len(b) == 0 {
			return used
		}
		k := min(n-len(in.stash), len(b))
		in.stash = append(in.stash, b[:k]...)
		b = b[k:]
		used += k
	}
}

// need checks as much of a PDU as is here, and returns how much of it pdu wants at
// once: all of a capsule, or H2CData up to its data. A malformed PDU ends the
// connection.
func (c *conn) need(b []byte) int {
	if len(b) < nvme.TCPHeaderSize {
		return nvme.TCPHeaderSize
	}
	h := (*nvme.TCPHeader)(b)
	typ := h.Type()
	switch typ {
	case nvme.TCPTypeCapsuleCmd, nvme.TCPTypeH2CData:
		if c.state == connInitializing {
			c.fatal(nvme.TCPFESSequenceError, 0, b, "%v before ICReq", typ)
			return 0
		}
	case nvme.TCPTypeICReq:
		return c.needICReq(b)
	case nvme.TCPTypeH2CTermReq:
		return c.needTermReq(b)
	default:
		c.fatal(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetType, b, "a PDU %v", typ)
		return 0
	}
	hlen := typ.HLEN()
	hdr := int(c.in.hdr[typ])
	switch {
	case int(h.HLEN()) != hlen:
		c.fatal(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetHLEN, b, "%v with HLEN %d", typ, h.HLEN())
		return 0
	case c.hdgst != (h.Flags()&nvme.TCPFlagHDGST != 0):
		c.fatal(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetFlags, b, "%v with flags %#x, against what was agreed on header digests", typ, h.Flags())
		return 0
	case len(b) < hdr:
		return hdr
	}
	if c.hdgst {
		got := binary.LittleEndian.Uint32(b[hlen:])
		if sum := crcAdd(0, b[:hlen]); sum != got {
			c.shard.stats.HeaderDigestErrors++
			c.fatal(nvme.TCPFESHeaderDigest, got, b, "%v with header digest %#08x, want %#08x", typ, got, sum)
			return 0
		}
	}
	plen := h.PLEN()
	if plen < uint32(hdr) {
		c.fatal(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetPLEN, b, "%v with PLEN %d, its header has %d bytes", typ, plen, hdr)
		return 0
	}
	if typ == nvme.TCPTypeCapsuleCmd && plen == uint32(hdr) {
		return hdr
	}
	pdo, tail := uint32(h.PDO()), uint32(0)
	if c.ddgst {
		tail = nvme.TCPDigestSize
	}
	switch {
	case pdo < uint32(hdr) || pdo%c.dataAlign() != 0:
		c.fatal(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetPDO, b, "%v with PDO %d, data may begin at %d and multiples of %d", typ, pdo, hdr, c.dataAlign())
		return 0
	case c.ddgst != (h.Flags()&nvme.TCPFlagDDGST != 0):
		c.fatal(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetFlags, b, "%v with flags %#x, against what was agreed on data digests", typ, h.Flags())
		return 0
	}
	if typ == nvme.TCPTypeH2CData {
		if datal := (*nvme.TCPData)(b).DATAL(); uint64(plen) != uint64(pdo)+uint64(datal)+uint64(tail) {
			c.fatal(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetPLEN, b, "H2CData with PLEN %d, PDO %d and %d bytes of data", plen, pdo, datal)
			return 0
		}
		return int(pdo)
	}
	if plen <= pdo+tail || plen-pdo-tail > c.capsule {
		c.fatal(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetPLEN, b, "a command capsule with PLEN %d, data from %d on, may have %d bytes of data", plen, pdo, c.capsule)
		return 0
	}
	return int(plen)
}

// dataAlign is where data from the host may begin.
func (c *conn) dataAlign() uint32 { return uint32(c.shard.t.cfg.CPDA+1) * 4 }

func (c *conn) needICReq(b []byte) int {
	h := (*nvme.TCPHeader)(b)
	switch {
	case c.state != connInitializing:
		c.fatal(nvme.TCPFESSequenceError, 0, b, "a second ICReq")
	case h.HLEN() != nvme.TCPICSize:
		c.fatal(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetHLEN, b, "ICReq with HLEN %d", h.HLEN())
	case h.PLEN() != nvme.TCPICSize:
		c.fatal(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetPLEN, b, "ICReq with PLEN %d", h.PLEN())
	}
	return nvme.TCPICSize
}

// needTermReq is about H2CTermReq. A malformed one is no reason to answer: TCP
// Transport 1.1 section 3.6.2.4.
func (c *conn) needTermReq(b []byte) int {
	h := (*nvme.TCPHeader)(b)
	if h.HLEN() != nvme.TCPTermReqSize || h.PLEN() < nvme.TCPTermReqSize || h.PLEN() > nvme.TCPTermMaxPLEN {
		c.shard.stats.TermReqsReceived++
		c.shut(errBadTermReq)
		return 0
	}
	return int(h.PLEN())
}

// pdu takes a PDU that need has checked.
func (c *conn) pdu(p []byte) {
	c.shard.stats.PDUsIn++
	switch (*nvme.TCPHeader)(p).Type() {
	case nvme.TCPTypeCapsuleCmd:
		c.capsuleCmd(p)
	case nvme.TCPTypeH2CData:
		c.dataBegin(p)
	case nvme.TCPTypeICReq:
		c.initialize(p)
	case nvme.TCPTypeH2CTermReq:
		c.terminated(p)
	}
}

// dataBegin takes H2CData up to its data: TCP Transport 1.1 section 3.6.2.8.
func (c *conn) dataBegin(p []byte) {
	h := (*nvme.TCPData)(p)
	ttag, datao, datal := h.TTAG(), h.DATAO(), h.DATAL()
	index, r2t := int(ttag&(maxQueueDepth-1)), int(ttag>>ttagSlotBits)
	if index >= len(c.slots) || c.slots[index].state != slotReceiving || r2t >= int(c.slots[index].r2ts) {
		c.fatal(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetTTAG, p, "H2CData for transfer tag %#x, of which there is no R2T", ttag)
		return
	}
	s := c.slots[index]
	off, n := s.r2tRange(r2t)
	got := s.gotOf[r2t]
	switch {
	case h.CCCID() != s.cmd.CID():
		c.fatal(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetCCCID, p, "H2CData for command %#x, its transfer tag is of command %#x", h.CCCID(), s.cmd.CID())
		return
	case datal == 0:
		c.fatal(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetDATAL, p, "H2CData without data")
		return
	case datal > uint32(c.shard.t.cfg.MaxH2CData):
		c.fatal(nvme.TCPFESLimitExceeded, 0, p, "H2CData with %d bytes of data, MAXH2CDATA is %d", datal, c.shard.t.cfg.MaxH2CData)
		return
	case datao != off+got || uint64(datao)+uint64(datal) > uint64(off)+uint64(n):
		c.fatal(nvme.TCPFESOutOfRange, 0, p, "H2CData with %d bytes at %d, want them at %d and up to %d", datal, datao, off+got, off+n)
		return
	case (h.Header().Flags()&nvme.TCPFlagLast != 0) != (got+datal == n):
		c.fatal(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetFlags, p, "H2CData with flags %#x: LAST_PDU is for the last data of an R2T, and there are %d of %d bytes", h.Header().Flags(), got+datal, n)
		return
	}
	in := &c.in
	in.slot, in.off, in.left, in.r2t = s, datao, datal, uint8(r2t)
	in.crc, in.digests = 0, 0
	c.shard.stats.H2CData++
}

// data takes H2CData's data, or its digest, from what was read ahead.
func (c *conn) data(b []byte) (used int) {
	in := &c.in
	if in.left != 0 {
		n := int(min(uint64(in.left), uint64(len(b))))
		off, from := in.off, b[:n]
		for i := range in.slot.req.Data {
			seg := &in.slot.req.Data[i]
			if off >= seg.Len {
				off -= seg.Len
				continue
			}
			from = from[copy(seg.Bytes()[off:], from):]
			off = 0
			if len(from) == 0 {
				break
			}
		}
		c.shard.copied(uint32(n))
		c.placed(uint32(n))
		return n
	}
	n := copy(in.digest[in.digests:], b)
	in.digests += uint8(n)
	if in.digests == nvme.TCPDigestSize {
		if binary.LittleEndian.Uint32(in.digest[:]) != in.crc {
			in.slot.damaged = true
			c.shard.stats.DataDigestErrors++
		}
		c.dataEnd()
	}
	return n
}

// dataEnd is the end of an H2CData PDU.
func (c *conn) dataEnd() {
	s := c.in.slot
	c.in.slot = nil
	if s.got != s.req.Length {
		return
	}
	c.awaited--
	if s.damaged {
		c.tq.Fail(&s.req, nvme.StatusTransientTransport)
		return
	}
	c.execute(s)
}
