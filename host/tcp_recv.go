package host

import (
	"encoding/binary"
	"hash/crc32"

	"golang.org/x/sys/unix"

	"rocet/nvme"
)

const (
	inSize     = 256 << 10
	bigData    = 16 << 10 // data from this size on is read to its place, so little is read ahead of it
	smallAhead = 4 << 10
)

// tcpRecv is the receiving half.
type tcpRecv struct {
	in         []byte // what was read ahead
	start, end int    // the part not taken yet
	iov        [2]unix.Iovec
	more       bool // the last read was filled: there may be more
	ahead      int  // how much to read ahead

	// The C2HData PDU whose data comes next.
	slot   *slot  // nil: a header comes next
	data   []byte // all of its place
	have   int    // how much of it is there
	digest bool   // DDGST follows
	flags  uint8

	bad []byte // header of the PDU at fault
}

func (r *tcpRecv) init() {
	r.in = make([]byte, inSize)
	r.ahead = inSize
}

func (t *tcp) poll() error {
	if t.send.waiting() {
		if err := t.flush(); err != nil {
			return err
		}
	}
	return t.receive()
}

// receive reads once, and takes what it got.
func (t *tcp) receive() error {
	r := &t.recv
	if r.start == r.end {
		r.start, r.end = 0, 0
	} else if r.start > 0 {
		r.end = copy(r.in, r.in[r.start:r.end]) // the beginning of a header or a digest
		r.start = 0
	}
	iov := r.iov[:0]
	place := 0
	if r.slot != nil && r.have < len(r.data) {
		place = len(r.data) - r.have
		iov = append(iov, iovec(r.data[r.have:]))
	}
	ahead := r.in[r.end:]
	if len(ahead) > r.ahead {
		ahead = ahead[:r.ahead]
	}
	iov = append(iov, iovec(ahead))
	n, errno := readv(t.fd, iov)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		t.empty++
		r.more = false
		return nil
	case errno != 0:
		return errno
	case n == 0:
		return errTargetClosed
	}
	t.receives++
	t.bytesIn += uint64(n)
	r.more = n == place+len(ahead)
	direct := min(n, place)
	r.have += direct
	r.end += n - direct
	return t.take()
}

// take goes through what was read.
func (t *tcp) take() error {
	r := &t.recv
	for {
		if r.slot != nil {
			if r.have < len(r.data) {
				n := copy(r.data[r.have:], r.in[r.start:r.end])
				r.have += n
				r.start += n
				t.copied += uint64(n)
				if r.have < len(r.data) {
					return nil
				}
			}
			done, err := t.dataEnd()
			if err != nil || !done {
				return err
			}
			continue
		}
		b := r.in[r.start:r.end]
		if len(b) < nvme.TCPHeaderSize {
			return nil
		}
		n, err := t.header(b)
		if err != nil {
			r.bad = append(r.bad, b[:min(len(b), nvme.TCPTermMaxData)]...)
			return err
		}
		if n == 0 {
			return nil // the rest of the header comes later
		}
		r.start += n
	}
}

// header takes a PDU but for its data. It returns how long that is, 0 if not all of it is there.
func (t *tcp) header(b []byte) (int, error) {
	h := (*nvme.TCPHeader)(b)
	typ := h.Type()
	switch typ {
	case nvme.TCPTypeCapsuleResp, nvme.TCPTypeC2HData, nvme.TCPTypeR2T:
	case nvme.TCPTypeC2HTermReq:
		return t.terminated(b)
	case nvme.TCPTypeICResp:
		return 0, protocolf(nvme.TCPFESSequenceError, 0, "a second ICResp")
	default:
		return 0, protocolf(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetType, "a PDU %v", typ)
	}
	hlen := typ.HLEN()
	n := hlen
	var want uint8
	if t.hdgst {
		n += nvme.TCPDigestSize
		want = nvme.TCPFlagHDGST
	}
	switch {
	case int(h.HLEN()) != hlen:
		return 0, protocolf(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetHLEN, "%v with HLEN %d", typ, h.HLEN())
	case h.Flags()&nvme.TCPFlagHDGST != want:
		return 0, protocolf(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetFlags, "%v with flags %#x, against what was agreed on header digests", typ, h.Flags())
	case typ != nvme.TCPTypeC2HData && int64(h.PLEN()) != int64(n):
		return 0, protocolf(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetPLEN, "%v with PLEN %d, want %d", typ, h.PLEN(), n)
	}
	pdo := n
	if typ == nvme.TCPTypeC2HData {
		pdo = int(h.PDO())
		switch {
		case pdo < n || pdo%((int(t.hpda)+1)*4) != 0:
			return 0, protocolf(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetPDO, "C2HData with PDO %d, data may begin at %d and multiples of %d", pdo, n, (int(t.hpda)+1)*4)
		case t.ddgst != (h.Flags()&nvme.TCPFlagDDGST != 0):
			return 0, protocolf(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetFlags, "C2HData with flags %#x, against what was agreed on data digests", h.Flags())
		}
	}
	if len(b) < pdo {
		return 0, nil
	}
	if t.hdgst {
		got := binary.LittleEndian.Uint32(b[hlen:])
		if sum := crc32.Checksum(b[:hlen], castagnoli); sum != got {
			return 0, protocolf(nvme.TCPFESHeaderDigest, got, "%v with header digest %#08x, want %#08x", typ, got, sum)
		}
	}
	switch typ {
	case nvme.TCPTypeCapsuleResp:
		return n, t.response((*nvme.TCPCapsuleResp)(b).Completion())
	case nvme.TCPTypeR2T:
		return n, t.r2t((*nvme.TCPR2T)(b))
	}
	return pdo, t.dataBegin((*nvme.TCPData)(b))
}

// response takes a CapsuleResp PDU: TCP Transport 1.1 section 3.6.2.7.
func (t *tcp) response(c *nvme.Completion) error {
	s := t.find(c.CID())
	if s == nil {
		return protocolf(0, 0, "a response for command %#x, which is not under way", c.CID())
	}
	st := c.Status()
	if st.IsOK() && s.dir == nvme.DirControllerToHost && s.got != s.io.Len {
		return protocolf(0, 0, "a read of %d bytes (%s) ended well with %d", s.io.Len, commandName(t.q.admin, &s.io.Cmd), s.got)
	}
	t.finish(s, st, c.Result64())
	return nil
}

// find is the slot of a command that was sent.
func (t *tcp) find(cid uint16) *slot {
	if s := t.q.find(cid); s != nil && s.sent {
		return s
	}
	return nil
}

func (t *tcp) finish(s *slot, st nvme.Status, result uint64) {
	if s.r2ts > 0 {
		t.send.forget(uint32(s.cid) & (1<<t.q.shift - 1))
	}
	t.q.complete(s, st, result)
}

// r2t takes an R2T PDU: TCP Transport 1.1 section 3.6.2.10.
func (t *tcp) r2t(p *nvme.TCPR2T) error {
	s := t.find(p.CCCID())
	switch {
	case s == nil:
		return protocolf(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetCCCID, "an R2T for command %#x, which is not under way", p.CCCID())
	case s.dir != nvme.DirHostToController:
		return protocolf(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetCCCID, "an R2T for command %#x, which has no data for the target", p.CCCID())
	case p.R2TO() != s.got:
		return protocolf(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetDATAO, "an R2T for the data at %d, %d comes next", p.R2TO(), s.got)
	case p.R2TL() == 0 || p.R2TL() > s.io.Len-s.got:
		return protocolf(nvme.TCPFESOutOfRange, nvme.TCPOffsetDATAL, "an R2T for %d bytes at %d of the %d that the command has", p.R2TL(), p.R2TO(), s.io.Len)
	case s.r2ts >= t.maxR2T || t.send.grants.full():
		return protocolf(nvme.TCPFESLimitExceeded, 0, "more than %d R2Ts at once for a command", t.maxR2T)
	}
	s.r2ts++
	s.got += p.R2TL()
	t.send.grants.push(grant{slot: uint32(s.cid) & (1<<t.q.shift - 1), ttag: p.TTAG(), off: p.R2TO(), n: p.R2TL()})
	return nil
}

// dataBegin takes the header of a C2HData PDU: TCP Transport 1.1 section 3.6.2.9.
func (t *tcp) dataBegin(p *nvme.TCPData) error {
	h := p.Header()
	s := t.find(p.CCCID())
	tail := uint64(h.PDO())
	if t.ddgst {
		tail += nvme.TCPDigestSize
	}
	switch {
	case s == nil:
		return protocolf(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetCCCID, "data for command %#x, which is not under way", p.CCCID())
	case s.dir != nvme.DirControllerToHost:
		return protocolf(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetCCCID, "data for command %#x, which takes none", p.CCCID())
	case s.last:
		return protocolf(nvme.TCPFESSequenceError, 0, "data for command %#x after its last", p.CCCID())
	case p.DATAO() != s.got:
		return protocolf(nvme.TCPFESOutOfRange, nvme.TCPOffsetDATAO, "data at %d, %d comes next", p.DATAO(), s.got)
	case p.DATAL() == 0 || p.DATAL() > s.io.Len-s.got:
		return protocolf(nvme.TCPFESOutOfRange, nvme.TCPOffsetDATAL, "%d bytes of data at %d of the %d that the command takes", p.DATAL(), p.DATAO(), s.io.Len)
	case uint64(h.PLEN()) != tail+uint64(p.DATAL()):
		return protocolf(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetPLEN, "C2HData of %d bytes with PDO %d and PLEN %d", p.DATAL(), h.PDO(), h.PLEN())
	case h.Flags()&nvme.TCPFlagSuccess != 0 && h.Flags()&nvme.TCPFlagLast == 0:
		return protocolf(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetFlags, "C2HData with SUCCESS and without LAST_PDU")
	}
	r := &t.recv
	r.slot = s
	r.data = s.io.data()[s.got : s.got+p.DATAL()]
	r.have = 0
	r.digest = t.ddgst
	r.flags = h.Flags()
	r.ahead = inSize
	if p.DATAL() >= bigData {
		r.ahead = smallAhead
	}
	return nil
}

// dataEnd comes when all data of a PDU is there; done: the digest too.
func (t *tcp) dataEnd() (done bool, err error) {
	r := &t.recv
	s := r.slot
	if r.digest {
		b := r.in[r.start:r.end]
		if len(b) < nvme.TCPDigestSize {
			return false, nil
		}
		r.start += nvme.TCPDigestSize
		if crc32.Checksum(r.data, castagnoli) != binary.LittleEndian.Uint32(b) {
			// Not fatal for the connection (TCP Transport 1.1 section 3.3.1.1): the command ends as with an error of the path.
			s.damaged = true
		}
	}
	s.got += uint32(len(r.data))
	s.last = r.flags&nvme.TCPFlagLast != 0
	r.slot, r.data = nil, nil
	if r.flags&nvme.TCPFlagSuccess == 0 {
		return true, nil
	}
	if s.got != s.io.Len {
		return true, protocolf(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetFlags, "C2HData with SUCCESS after %d of %d bytes", s.got, s.io.Len)
	}
	t.finish(s, nvme.StatusSuccess, 0)
	return true, nil
}

// terminated takes a C2HTermReq PDU: TCP Transport 1.1 section 3.6.2.5.
func (t *tcp) terminated(b []byte) (int, error) {
	h := (*nvme.TCPHeader)(b)
	if h.HLEN() != nvme.TCPTermReqSize || h.PLEN() < nvme.TCPTermReqSize || h.PLEN() > nvme.TCPTermMaxPLEN {
		return 0, protocolf(0, 0, "C2HTermReq with HLEN %d and PLEN %d", h.HLEN(), h.PLEN())
	}
	if len(b) < int(h.PLEN()) {
		return 0, nil
	}
	return 0, terminated(b[:h.PLEN()])
}
