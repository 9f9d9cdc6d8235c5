package host

import (
	"encoding/binary"
	"hash/crc32"

	"golang.org/x/sys/unix"

	"rocet/nvme"
)

// A batch is built whole, sent in as many calls as the socket takes it in, and only then is the next one built.
const (
	maxIOV     = 512       // of the kernel's 1024
	outSize    = 32 << 10  // of headers
	maxHeader  = 128 + 2*4 // PDO is at most 128 (CPDA 31), and digests
	maxDataPDU = 3         // entries of one PDU: header, data, digest and the next header
	maxBatch   = 1 << 20   // bytes of data, so that responses are not kept waiting
)

// tcpSend is the sending half.
type tcpSend struct {
	pending ring[uint32] // slots to send
	grants  ring[grant]  // R2Ts to answer

	out  []byte // headers, digests and padding of the batch
	used int
	iov  []unix.Iovec
	next int // first entry not sent whole
}

// grant is the rest of an R2T.
type grant struct {
	slot   uint32
	ttag   uint16
	off, n uint32
}

func (s *tcpSend) init(depth int) {
	s.pending = newRing[uint32](depth)
	s.grants = newRing[grant](depth * (maxR2TExtra + 1))
	s.out = make([]byte, outSize)
	s.iov = make([]unix.Iovec, 0, maxIOV)
}

// waiting says that the socket did not take everything.
func (s *tcpSend) waiting() bool {
	return s.next < len(s.iov) || s.pending.len() > 0 || s.grants.len() > 0
}

// partial says that a PDU may have been sent in part.
func (s *tcpSend) partial() bool { return s.next < len(s.iov) }

func (s *tcpSend) room() bool {
	return len(s.out)-s.used >= maxHeader && maxIOV-len(s.iov) >= maxDataPDU
}

// header takes n bytes of out, zeroed. They join the entry before if that ends there.
func (s *tcpSend) header(n int) []byte {
	b := s.out[s.used : s.used+n : s.used+n]
	clear(b)
	if last := len(s.iov) - 1; last >= 0 && s.used > 0 && endsAt(&s.iov[last], &s.out[s.used-1]) {
		s.iov[last].SetLen(int(s.iov[last].Len) + n)
	} else {
		s.iov = append(s.iov, iovec(b))
	}
	s.used += n
	return b
}

func (t *tcp) submit(index uint32) { t.send.pending.push(index) }

func (t *tcp) flush() error {
	s := &t.send
	for {
		if s.next == len(s.iov) {
			s.iov, s.next, s.used = s.iov[:0], 0, 0
			if s.pending.len() == 0 && s.grants.len() == 0 {
				return nil
			}
			t.build()
		}
		if len(s.iov) == 0 {
			return nil // what was granted is over
		}
		n, errno := sendv(t.fd, s.iov[s.next:])
		t.sends++
		switch errno {
		case 0:
		case unix.EAGAIN:
			return nil
		case unix.EINTR:
			continue
		case unix.EPIPE, unix.ECONNRESET:
			// What the target said before it went is worth more: read it.
			if err := t.receive(); err != nil {
				return err
			}
			return errTargetClosed
		default:
			return errno
		}
		t.bytesOut += uint64(n)
		for n > 0 {
			v := &s.iov[s.next]
			if l := int(v.Len); n < l {
				advance(v, n)
				break
			} else {
				n -= l
				s.next++
			}
		}
	}
}

// build makes a batch of what waits: data that the target asked for first.
func (t *tcp) build() {
	s := &t.send
	bytes := 0
	for s.grants.len() > 0 && s.room() && bytes < maxBatch {
		g := s.grants.front()
		if g.n == 0 { // its command is over
			s.grants.pop()
			continue
		}
		n := min(g.n, t.maxData)
		bytes += int(n)
		t.data(g, n)
		g.off += n
		if g.n -= n; g.n == 0 {
			t.q.slots[g.slot].r2ts--
			s.grants.pop()
		}
	}
	for s.pending.len() > 0 && s.room() && bytes < maxBatch {
		bytes += t.command(s.pending.pop())
	}
}

// forget drops what a command that is over was still asked for.
func (s *tcpSend) forget(slot uint32) {
	for i := s.grants.head; i != s.grants.tail; i++ {
		if g := s.grants.at(i); g.slot == slot {
			g.n = 0
		}
	}
}

// command builds a CapsuleCmd PDU: TCP Transport 1.1 section 3.6.2.6. It returns how much data is in it.
func (t *tcp) command(index uint32) int {
	slot := &t.q.slots[index]
	slot.sent = true
	io := slot.io
	var data []byte
	if slot.dir == nvme.DirHostToController && io.Len <= t.capsuleLimit(&io.Cmd) {
		data = io.data()
	}
	hlen := nvme.TCPCapsuleCmdSize
	size, pdo, flags := t.layout(hlen, len(data))
	b := t.send.header(size)
	cmd := (*nvme.Command)(b[nvme.TCPHeaderSize:])
	*cmd = io.Cmd
	cmd.SetCID(slot.cid)
	cmd.SetPSDT(nvme.PSDTSGL)
	if data != nil {
		cmd.SGL().SetDataBlock(nvme.SGLDataBlock, nvme.SGLOffset, 0, io.Len)
	} else {
		cmd.SGL().SetDataBlock(nvme.SGLTransportDataBlock, nvme.SGLTransport, 0, io.Len)
	}
	t.seal(b, nvme.TCPTypeCapsuleCmd, flags, pdo, hlen, data)
	return len(data)
}

// capsuleLimit is how much data may go with a command.
func (t *tcp) capsuleLimit(cmd *nvme.Command) uint32 {
	if t.q.admin || cmd.Opcode() == nvme.OpFabrics {
		return nvme.TCPAdminInCapsule
	}
	return t.q.capsule
}

// data builds an H2CData PDU: TCP Transport 1.1 section 3.6.2.8.
func (t *tcp) data(g *grant, n uint32) {
	slot := &t.q.slots[g.slot]
	data := slot.io.data()[g.off : g.off+n]
	hlen := nvme.TCPDataSize
	size, pdo, flags := t.layout(hlen, len(data))
	if g.n == n {
		flags |= nvme.TCPFlagLast
	}
	b := t.send.header(size)
	(*nvme.TCPData)(b).SetFields(slot.cid, g.ttag, g.off, n)
	t.seal(b, nvme.TCPTypeH2CData, flags, pdo, hlen, data)
}

// layout is how much goes before a PDU's data, its PDO and its flags.
func (t *tcp) layout(hlen, data int) (size int, pdo, flags uint8) {
	size = hlen
	if t.hdgst {
		flags |= nvme.TCPFlagHDGST
		size += nvme.TCPDigestSize
	}
	if data > 0 {
		size = nvme.TCPDataOffset(hlen, t.hdgst, t.cpda)
		pdo = uint8(size)
		if t.ddgst {
			flags |= nvme.TCPFlagDDGST
		}
	}
	return size, pdo, flags
}

// seal writes the common header and the digests, and takes the data into the batch.
func (t *tcp) seal(b []byte, typ nvme.TCPPDUType, flags, pdo uint8, hlen int, data []byte) {
	plen := len(b) + len(data)
	if flags&nvme.TCPFlagDDGST != 0 {
		plen += nvme.TCPDigestSize
	}
	(*nvme.TCPHeader)(b).Set(typ, flags, pdo, uint32(plen))
	if t.hdgst {
		binary.LittleEndian.PutUint32(b[hlen:], crc32.Checksum(b[:hlen], castagnoli))
	}
	if len(data) > 0 {
		t.send.iov = append(t.send.iov, iovec(data))
		if flags&nvme.TCPFlagDDGST != 0 {
			binary.LittleEndian.PutUint32(t.send.header(nvme.TCPDigestSize), crc32.Checksum(data, castagnoli))
		}
	}
}

// ring is a queue of bounded size.
type ring[T any] struct {
	items      []T
	head, tail uint32 // tail - head are used
}

func newRing[T any](n int) ring[T] {
	size := 1
	for size < n {
		size <<= 1
	}
	return ring[T]{items: make([]T, size)}
}

func (r *ring[T]) len() int       { return int(r.tail - r.head) }
func (r *ring[T]) full() bool     { return r.len() == len(r.items) }
func (r *ring[T]) at(i uint32) *T { return &r.items[i&uint32(len(r.items)-1)] }
func (r *ring[T]) front() *T      { return r.at(r.head) }

func (r *ring[T]) push(v T) {
	*r.at(r.tail) = v
	r.tail++
}

func (r *ring[T]) pop() T {
	v := *r.front()
	r.head++
	return v
}
