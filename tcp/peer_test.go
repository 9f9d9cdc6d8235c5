package tcp

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"rocet/nvme"
)

// peer is a host of the tests' own, PDU by PDU: what it sends need not be right.
type peer struct {
	w            *world
	t            testing.TB
	c            net.Conn
	hdgst, ddgst bool
	pad          int // CPDA in bytes: data begins at its multiples
	cid          uint16
}

func (w *world) dial() *peer {
	w.t.Helper()
	c, err := net.Dial("tcp", w.listener.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	return &peer{w: w, t: w.t, c: c, pad: 4}
}

func (p *peer) send(b []byte) {
	p.t.Helper()
	_ = p.c.SetWriteDeadline(time.Now().Add(patience))
	if _, err := p.c.Write(b); err != nil {
		p.t.Fatalf("send: %v", err)
	}
}

func (p *peer) read(n int) []byte {
	p.t.Helper()
	_ = p.c.SetReadDeadline(time.Now().Add(patience))
	b := make([]byte, n)
	if _, err := io.ReadFull(p.c, b); err != nil {
		p.t.Fatalf("read %d bytes: %v", n, err)
	}
	return b
}

// pdu reads one PDU, checks its digests and returns header and data.
func (p *peer) pdu() (head, data []byte) {
	p.t.Helper()
	ch := p.read(nvme.TCPHeaderSize)
	h := (*nvme.TCPHeader)(ch)
	if int(h.HLEN()) != h.Type().HLEN() || h.PLEN() < uint32(h.HLEN()) || h.PLEN() > 1<<24 {
		p.t.Fatalf("a PDU with the header % x", ch)
	}
	b := append(ch, p.read(int(h.PLEN())-len(ch))...)
	h = (*nvme.TCPHeader)(b)
	hlen := int(h.HLEN())
	typ := h.Type()
	if digests := typ != nvme.TCPTypeICResp && typ != nvme.TCPTypeC2HTermReq; p.hdgst && digests {
		if h.Flags()&nvme.TCPFlagHDGST == 0 || binary.LittleEndian.Uint32(b[hlen:]) != crcAdd(0, b[:hlen]) {
			p.t.Fatalf("%v with a wrong header digest: % x", typ, b[:hlen+4])
		}
	}
	if typ == nvme.TCPTypeC2HTermReq {
		return b[:hlen], b[hlen:]
	}
	if typ != nvme.TCPTypeC2HData {
		return b[:hlen], nil
	}
	data = b[h.PDO():]
	if p.ddgst {
		n := len(data) - nvme.TCPDigestSize
		if h.Flags()&nvme.TCPFlagDDGST == 0 || binary.LittleEndian.Uint32(data[n:]) != crcAdd(0, data[:n]) {
			p.t.Fatal("C2HData with a wrong data digest")
		}
		data = data[:n]
	}
	return b[:hlen], data
}

// expect reads a PDU of a type.
func (p *peer) expect(typ nvme.TCPPDUType) (head, data []byte) {
	p.t.Helper()
	head, data = p.pdu()
	if got := (*nvme.TCPHeader)(head).Type(); got != typ {
		p.t.Fatalf("a PDU %v, want %v: % x %x", got, typ, head, data)
	}
	return head, data
}

// response reads a response capsule.
func (p *peer) response() *nvme.Completion {
	p.t.Helper()
	head, _ := p.expect(nvme.TCPTypeCapsuleResp)
	return (*nvme.TCPCapsuleResp)(head).Completion()
}

// ended reads until the end of the connection, whatever comes.
func (p *peer) ended() {
	p.t.Helper()
	_ = p.c.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, p.c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		p.t.Fatalf("the connection does not end: %v", err)
	}
}

// terminated reads the C2HTermReq, and checks all of it.
func (p *peer) terminated(fes nvme.TCPFatalStatus, fei uint32, typ nvme.TCPPDUType) {
	p.t.Helper()
	for {
		head, data := p.pdu()
		if (*nvme.TCPHeader)(head).Type() != nvme.TCPTypeC2HTermReq {
			continue // answers to what was right before
		}
		term := (*nvme.TCPTermReq)(head)
		if term.FES() != fes || term.FEI() != fei {
			p.t.Errorf("C2HTermReq: %v, information %#x; want %v, %#x", term.FES(), term.FEI(), fes, fei)
		}
		if len(data) == 0 || nvme.TCPPDUType(data[0]) != typ {
			p.t.Errorf("C2HTermReq is about % x, want a PDU %v", data, typ)
		}
		p.ended()
		return
	}
}

func icReq(hpda, dgst uint8, r2t uint32) []byte {
	var r nvme.TCPICReq
	r.Set(hpda, dgst, r2t)
	return r[:]
}

// initialize exchanges ICReq and ICResp.
func (p *peer) initialize(hpda, dgst uint8, r2t uint32) *nvme.TCPICResp {
	p.t.Helper()
	p.send(icReq(hpda, dgst, r2t))
	head, _ := p.expect(nvme.TCPTypeICResp)
	r := (*nvme.TCPICResp)(head)
	p.hdgst, p.ddgst = r.DGST()&nvme.TCPDigestHeader != 0, r.DGST()&nvme.TCPDigestData != 0
	p.pad = (int(r.CPDA()) + 1) * 4
	return r
}

// assemble makes a PDU of a header whose fields behind the common one are set.
func (p *peer) assemble(head []byte, typ nvme.TCPPDUType, flags uint8, data []byte) []byte {
	out := append([]byte(nil), head...)
	if p.hdgst {
		flags |= nvme.TCPFlagHDGST
	}
	pdo, tail := 0, 0
	plen := len(head)
	if p.hdgst {
		plen += nvme.TCPDigestSize
	}
	if data != nil {
		pdo = (plen + p.pad - 1) / p.pad * p.pad
		if p.ddgst {
			flags |= nvme.TCPFlagDDGST
			tail = nvme.TCPDigestSize
		}
		plen = pdo + len(data) + tail
	}
	(*nvme.TCPHeader)(out).Set(typ, flags, uint8(pdo), uint32(plen))
	return p.seal(out, len(head), data)
}

// seal adds digests, padding and data to a header.
func (p *peer) seal(out []byte, hlen int, data []byte) []byte {
	if p.hdgst {
		out = binary.LittleEndian.AppendUint32(out[:hlen], crcAdd(0, out[:hlen]))
	}
	if data != nil {
		for len(out) < int(out[3]) {
			out = append(out, 0)
		}
		out = append(out, data...)
		if p.ddgst {
			out = binary.LittleEndian.AppendUint32(out, crcAdd(0, data))
		}
	}
	return out
}

// capsule makes a command capsule. The descriptor is filled in: data in the capsule
// if there is some, else n bytes by data PDUs.
func (p *peer) capsule(cmd nvme.Command, data []byte, n uint32) []byte {
	p.cid++
	cmd.SetCID(p.cid)
	cmd.SetPSDT(nvme.PSDTSGL)
	if data != nil {
		cmd.SGL().SetDataBlock(nvme.SGLDataBlock, nvme.SGLOffset, 0, uint32(len(data)))
	} else {
		cmd.SGL().SetDataBlock(nvme.SGLTransportDataBlock, nvme.SGLTransport, 0, n)
	}
	return p.raw(cmd, data)
}

func (p *peer) raw(cmd nvme.Command, data []byte) []byte {
	var h nvme.TCPCapsuleCmd
	*h.Command() = cmd
	return p.assemble(h[:], nvme.TCPTypeCapsuleCmd, 0, data)
}

func (p *peer) h2cData(cid, ttag uint16, off uint32, last bool, data []byte) []byte {
	var h nvme.TCPData
	h.SetFields(cid, ttag, off, uint32(len(data)))
	flags := uint8(0)
	if last {
		flags = nvme.TCPFlagLast
	}
	return p.assemble(h[:], nvme.TCPTypeH2CData, flags, data)
}

// connectCapsule is a Connect of an admin or I/O queue.
func (p *peer) connectCapsule(qid, sqsize, cntlid uint16, cattr uint8) []byte {
	var d nvme.ConnectData
	d.HostID = nvme.UUID{1, 2, 3}
	d.CNTLID = cntlid
	d.SubNQN = nvme.MakeNQNField(testNQN)
	d.HostNQN = nvme.MakeNQNField("nqn.2026-01.io.rocet:peer")
	data := make([]byte, nvme.ConnectDataSize)
	d.MarshalTo(data)
	var cmd nvme.Command
	cmd[0] = byte(nvme.OpFabrics)
	cmd[4] = byte(nvme.FabricsConnect)
	binary.LittleEndian.PutUint16(cmd[42:], qid)
	binary.LittleEndian.PutUint16(cmd[44:], sqsize)
	cmd[46] = cattr
	return p.capsule(cmd, data, 0)
}

const noFlowControl = 1 << 2 // CATTR

// connect does the whole of an admin queue, and returns CNTLID.
func (p *peer) connect(dgst uint8) uint16 {
	p.t.Helper()
	p.initialize(0, dgst, 0)
	p.send(p.connectCapsule(0, 31, 0xffff, 0))
	c := p.response()
	if !c.Status().IsOK() {
		p.t.Fatalf("Connect: %v", c.Status())
	}
	return uint16(c.DW0())
}

func (p *peer) propertySet(off, value uint32) {
	p.t.Helper()
	var cmd nvme.Command
	cmd[0] = byte(nvme.OpFabrics)
	cmd[4] = byte(nvme.FabricsPropertySet)
	binary.LittleEndian.PutUint32(cmd[44:], off)
	binary.LittleEndian.PutUint64(cmd[48:], uint64(value))
	p.send(p.capsule(cmd, nil, 0))
	if c := p.response(); !c.Status().IsOK() {
		p.t.Fatalf("Property Set: %v", c.Status())
	}
}

// ioOptions of an I/O queue of the tests' host.
type ioOptions struct {
	hpda, dgst uint8
	r2t        uint32
	noFlow     bool
	depth      uint16
}

// io connects an admin queue, enables the controller, and connects an I/O queue.
func (w *world) io(o ioOptions) *peer {
	w.t.Helper()
	admin := w.dial()
	id := admin.connect(0)
	admin.propertySet(0x14, 6<<16|4<<20|1) // CC: IOSQES, IOCQES, EN
	p := w.dial()
	p.initialize(o.hpda, o.dgst, o.r2t)
	cattr := uint8(0)
	if o.noFlow {
		cattr = noFlowControl
	}
	if o.depth == 0 {
		o.depth = 32
	}
	p.send(p.connectCapsule(1, o.depth-1, id, cattr))
	c := p.response()
	if !c.Status().IsOK() {
		w.t.Fatalf("I/O Connect: %v", c.Status())
	}
	if (c.SQHD() == nvme.SQHDInvalid) != o.noFlow {
		w.t.Fatalf("SQHD %#x", c.SQHD())
	}
	return p
}

// rw is a read or write of the memory namespace.
func rw(op nvme.Opcode, nsid uint32, lba uint64, blocks uint32) (cmd nvme.Command) {
	cmd.SetOpcode(op)
	cmd.SetNSID(nsid)
	binary.LittleEndian.PutUint64(cmd[40:], lba)
	binary.LittleEndian.PutUint32(cmd[48:], blocks-1)
	return cmd
}

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8) ^ seed
	}
	return b
}

// limitFiles raises the limit of open files, as far as it goes.
func limitFiles() uint64 {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil {
		return 0
	}
	return r.Cur
}
