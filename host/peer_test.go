package host

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rocet/nvme"
)

const testNQN = "nqn.2026-01.io.rocet:fake"

// peer is a tiny NVMe/TCP target: one controller with one namespace in memory. It follows the rules, as far as its knobs
// let it, and says what it does not like about the host.
type peer struct {
	t  testing.TB
	ln net.Listener

	// Knobs, set before the host dials.
	cpda    uint8
	maxData uint32 // MAXH2CDATA
	capsule uint32 // in-capsule data of I/O queues
	chunk   uint32 // of C2HData; 0: all at once
	r2t     uint32 // of R2T; 0: all at once
	success bool   // C2HData with SUCCESS
	slow    bool   // a byte at a time
	refuse  uint8  // digests that are not done
	mqes    uint16
	granted uint16                                                           // I/O queues; 0: what is asked for
	connect func(cmd *nvme.Command) (nvme.Status, uint32)                    // answers Connect
	hook    atomic.Pointer[func(c *peerConn, cmd *nvme.Command) (done bool)] // instead of serving a command

	mu    sync.Mutex
	disk  []byte
	cc    uint32
	conns map[*peerConn]struct{}
	log   atomic.Pointer[nvme.DiscoveryLog]
	wg    sync.WaitGroup
	once  sync.Once

	keepAlives, aborts atomic.Int32
	terms              chan *TerminatedError // H2CTermReqs
}

const peerBlock = 512

func newPeer(t testing.TB, disk int) *peer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, ln: ln, maxData: 128 << 10, capsule: 8192, mqes: 127, disk: make([]byte, disk), conns: map[*peerConn]struct{}{},
		terms: make(chan *TerminatedError, 16)}
	t.Cleanup(p.close)
	return p
}

func (p *peer) close() {
	p.ln.Close()
	p.drop()
	p.wg.Wait()
}

// drop ends all connections.
func (p *peer) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.c.Close()
	}
}

// start serves: the knobs stay as they are from here on.
func (p *peer) start() {
	p.wg.Go(func() {
		for {
			c, err := p.ln.Accept()
			if err != nil {
				return
			}
			pc := &peerConn{p: p, c: c, r: bufio.NewReader(c), tags: map[uint16]*peerWrite{}}
			p.mu.Lock()
			p.conns[pc] = struct{}{}
			p.mu.Unlock()
			p.wg.Go(pc.serve)
		}
	})
}

func (p *peer) setHook(f func(c *peerConn, cmd *nvme.Command) (done bool)) { p.hook.Store(&f) }

func (p *peer) options() Options {
	p.once.Do(p.start)
	a := p.ln.Addr().(*net.TCPAddr).AddrPort()
	return Options{Transport: TCP, Address: a.Addr().String(), Port: a.Port(), NQN: testNQN, Timeout: 10 * time.Second}
}

// peerConn is one connection. Each is served by one goroutine.
type peerConn struct {
	p            *peer
	c            net.Conn
	r            *bufio.Reader
	hdgst, ddgst bool
	hpda         uint8
	maxR2T       int
	qid          uint16
	wmu          sync.Mutex
	tags         map[uint16]*peerWrite
	nextTag      uint16
}

// peerWrite is a command that waits for its data.
type peerWrite struct {
	cmd   nvme.Command
	data  []byte
	asked uint32
	got   uint32
	open  int
}

func (c *peerConn) serve() {
	err := c.loop()
	c.c.Close()
	c.p.mu.Lock()
	delete(c.p.conns, c)
	c.p.mu.Unlock()
	var ne net.Error
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.As(err, &ne) {
		c.p.t.Errorf("the fake target does not like the host: %v", err)
	}
}

func (c *peerConn) loop() error {
	var req nvme.TCPICReq
	if _, err := io.ReadFull(c.r, req[:]); err != nil {
		return err
	}
	if req.Header().Type() != nvme.TCPTypeICReq || req.Header().PLEN() != nvme.TCPICSize || req.PFV() != 0 {
		return fmt.Errorf("ICReq % x", req[:16])
	}
	var resp nvme.TCPICResp
	resp.Set(c.p.cpda, req.DGST()&^c.p.refuse, c.p.maxData)
	if err := c.write(resp[:]); err != nil {
		return err
	}
	c.hdgst, c.ddgst = req.DGST()&nvme.TCPDigestHeader != 0, req.DGST()&nvme.TCPDigestData != 0
	c.hpda, c.maxR2T = req.HPDA(), int(req.MAXR2T())+1
	for {
		if err := c.pdu(); err != nil {
			return err
		}
	}
}

// pdu takes one, and answers.
func (c *peerConn) pdu() error {
	var h nvme.TCPHeader
	if _, err := io.ReadFull(c.r, h[:]); err != nil {
		return err
	}
	b := make([]byte, h.PLEN())
	copy(b, h[:])
	if len(b) < 8 || len(b) > 2<<20 {
		return fmt.Errorf("PLEN %d", len(b))
	}
	if _, err := io.ReadFull(c.r, b[8:]); err != nil {
		return err
	}
	hlen := h.Type().HLEN()
	if h.Type() == nvme.TCPTypeH2CTermReq {
		req := (*nvme.TCPTermReq)(b)
		c.p.terms <- &TerminatedError{Status: req.FES(), Info: req.FEI(), HasPDU: len(b) > hlen}
		return io.EOF
	}
	if int(h.HLEN()) != hlen {
		return fmt.Errorf("%v with HLEN %d", h.Type(), h.HLEN())
	}
	if c.hdgst != (h.Flags()&nvme.TCPFlagHDGST != 0) {
		return fmt.Errorf("%v with flags %#x", h.Type(), h.Flags())
	}
	end := hlen
	if c.hdgst {
		if got := binary.LittleEndian.Uint32(b[hlen:]); got != crc32.Checksum(b[:hlen], castagnoli) {
			return fmt.Errorf("%v with header digest %#x", h.Type(), got)
		}
		end += 4
	}
	var data []byte
	if h.PDO() != 0 {
		if int(h.PDO()) != nvme.TCPDataOffset(hlen, c.hdgst, c.p.cpda) {
			return fmt.Errorf("%v with PDO %d", h.Type(), h.PDO())
		}
		data = b[h.PDO():]
		if c.ddgst != (h.Flags()&nvme.TCPFlagDDGST != 0) {
			return fmt.Errorf("%v with flags %#x", h.Type(), h.Flags())
		}
		if c.ddgst {
			n := len(data) - 4
			if got := binary.LittleEndian.Uint32(data[n:]); got != crc32.Checksum(data[:n], castagnoli) {
				return fmt.Errorf("%v with data digest %#x", h.Type(), got)
			}
			data = data[:n]
		}
	} else if len(b) != end {
		return fmt.Errorf("%v with PLEN %d and no data", h.Type(), len(b))
	}
	switch h.Type() {
	case nvme.TCPTypeCapsuleCmd:
		cmd := *(*nvme.TCPCapsuleCmd)(b).Command()
		return c.command(&cmd, data)
	case nvme.TCPTypeH2CData:
		return c.h2c((*nvme.TCPData)(b), data)
	}
	return fmt.Errorf("a PDU %v", h.Type())
}

func (c *peerConn) command(cmd *nvme.Command, data []byte) error {
	if cmd.PSDT() != nvme.PSDTSGL {
		return fmt.Errorf("PSDT %d", cmd.PSDT())
	}
	admin := c.qid == 0
	n := cmd.SGL().Length32()
	if nvme.DataDirection(admin, cmd) == nvme.DirHostToController && n > 0 {
		if cmd.SGL().Subtype() == nvme.SGLOffset {
			limit := c.p.capsule
			if admin || cmd.Opcode() == nvme.OpFabrics {
				limit = nvme.TCPAdminInCapsule
			}
			if uint32(len(data)) != n || n > limit {
				return fmt.Errorf("%d bytes in the capsule for %d, at most %d", len(data), n, limit)
			}
			return c.execute(cmd, data)
		}
		w := &peerWrite{cmd: *cmd, data: make([]byte, n)}
		return c.ask(w)
	}
	if len(data) > 0 {
		return fmt.Errorf("%d bytes in the capsule of %s", len(data), commandName(admin, cmd))
	}
	return c.execute(cmd, make([]byte, n))
}

// ask sends R2Ts, as many as the host takes.
func (c *peerConn) ask(w *peerWrite) error {
	for w.open < c.maxR2T && w.asked < uint32(len(w.data)) {
		n := uint32(len(w.data)) - w.asked
		if c.p.r2t > 0 {
			n = min(n, c.p.r2t)
		}
		c.nextTag++
		c.tags[c.nextTag] = w
		b := make([]byte, nvme.TCPR2TSize)
		(*nvme.TCPR2T)(b).SetFields(w.cmd.CID(), c.nextTag, w.asked, n)
		w.asked += n
		w.open++
		if err := c.send(nvme.TCPTypeR2T, 0, b, nil); err != nil {
			return err
		}
	}
	return nil
}

func (c *peerConn) h2c(p *nvme.TCPData, data []byte) error {
	w := c.tags[p.TTAG()]
	if w == nil || w.cmd.CID() != p.CCCID() {
		return fmt.Errorf("data for tag %d of command %d", p.TTAG(), p.CCCID())
	}
	if int(p.DATAL()) != len(data) || p.DATAO() != w.got || p.DATAL() > c.p.maxData || w.got+p.DATAL() > w.asked {
		return fmt.Errorf("H2CData of %d bytes (DATAL %d) at %d, %d comes next", len(data), p.DATAL(), p.DATAO(), w.got)
	}
	copy(w.data[w.got:], data)
	w.got += p.DATAL()
	if p.Header().Flags()&nvme.TCPFlagLast != 0 {
		delete(c.tags, p.TTAG())
		w.open--
	}
	if w.got == uint32(len(w.data)) {
		return c.execute(&w.cmd, w.data)
	}
	return c.ask(w)
}

// execute runs a command whose data is there, or has room to go to.
func (c *peerConn) execute(cmd *nvme.Command, data []byte) error {
	p := c.p
	if hook := p.hook.Load(); hook != nil && (*hook)(c, cmd) {
		return nil
	}
	var result uint64
	st := nvme.StatusSuccess
	if cmd.Opcode() == nvme.OpFabrics {
		switch cmd.FCType() {
		case nvme.FabricsConnect:
			c.qid = cmd.QID()
			result = 7
			if p.connect != nil {
				var dw0 uint32
				st, dw0 = p.connect(cmd)
				result = uint64(dw0)
			}
		case nvme.FabricsPropertyGet:
			p.mu.Lock()
			result = p.property(cmd.OFST())
			p.mu.Unlock()
		case nvme.FabricsPropertySet:
			p.mu.Lock()
			p.cc = uint32(cmd.VALUE())
			p.mu.Unlock()
		}
		return c.respond(cmd.CID(), st, result)
	}
	if c.qid == 0 {
		switch cmd.Opcode() {
		case nvme.AdminKeepAlive:
			p.keepAlives.Add(1)
		case nvme.AdminAbort:
			p.aborts.Add(1)
			result = 1
		case nvme.AdminIdentify:
			p.identify(cmd, data)
		case nvme.AdminGetLogPage:
			l := p.log.Load()
			b := make([]byte, l.Size())
			l.MarshalTo(b)
			if off := cmd.LogOffset(); off+uint64(len(data)) <= uint64(len(b)) {
				copy(data, b[off:])
			} else {
				st = nvme.StatusInvalidField
			}
		case nvme.AdminSetFeatures:
			q := nvme.QueueCounts(cmd.CDW(11))
			n := uint16(q.Submission())
			if p.granted != 0 {
				n = min(n, p.granted)
			}
			result = uint64(nvme.MakeQueueCounts(uint32(n), uint32(n)))
		}
	} else {
		at := cmd.SLBA() * peerBlock
		if at+uint64(len(data)) > uint64(len(p.disk)) {
			st = nvme.StatusLBAOutOfRange.WithDNR()
		} else {
			p.mu.Lock()
			if cmd.Opcode() == nvme.OpRead {
				copy(data, p.disk[at:])
			} else if cmd.Opcode() == nvme.OpWrite {
				copy(p.disk[at:], data)
			}
			p.mu.Unlock()
		}
	}
	if st.IsOK() && nvme.DataDirection(c.qid == 0, cmd) == nvme.DirControllerToHost && len(data) > 0 {
		return c.sendData(cmd.CID(), data)
	}
	return c.respond(cmd.CID(), st, result)
}

func (p *peer) property(off uint32) uint64 {
	switch off {
	case nvme.RegCAP:
		return uint64(nvme.CAP(0).WithMQES(p.mqes).WithTO(4).WithCSS(nvme.CAPCSSNVM).WithCQR(true))
	case nvme.RegVS:
		return uint64(nvme.Version14)
	case nvme.RegCC:
		return uint64(p.cc)
	case nvme.RegCSTS:
		cc := nvme.CC(p.cc)
		st := nvme.CSTS(0).WithRDY(cc.EN())
		if cc.SHN() != 0 {
			st = st.WithSHST(nvme.ShutdownStatusComplete)
		}
		return uint64(st)
	}
	return 0
}

func (p *peer) identify(cmd *nvme.Command, data []byte) {
	switch cmd.CNS() {
	case nvme.CNSController:
		id := nvme.IdentifyController{CNTRLTYPE: nvme.ControllerIO, MDTS: 8, KAS: 10, IOCCSZ: (64 + p.capsule) / 16, IORCSZ: 1, MAXCMD: 128, NN: 1}
		nvme.PutASCII(id.MN[:], "Fake")
		id.MarshalTo(data)
	case nvme.CNSNamespace:
		if cmd.NSID() == 1 {
			id := nvme.IdentifyNamespace{NSZE: uint64(len(p.disk) / peerBlock)}
			id.LBAF[0].LBADS = 9
			id.MarshalTo(data)
		}
	case nvme.CNSActiveNamespaces:
		nvme.PutNSIDList(data, []uint32{1})
	}
}

func (c *peerConn) respond(cid uint16, st nvme.Status, result uint64) error {
	b := make([]byte, nvme.TCPCapsuleRespSize)
	cqe := (*nvme.TCPCapsuleResp)(b).Completion()
	cqe.SetCID(cid)
	cqe.SetStatus(st)
	cqe.SetResult64(result)
	return c.send(nvme.TCPTypeCapsuleResp, 0, b, nil)
}

func (c *peerConn) sendData(cid uint16, data []byte) error {
	for off := uint32(0); off < uint32(len(data)); {
		n := uint32(len(data)) - off
		if c.p.chunk > 0 {
			n = min(n, c.p.chunk)
		}
		var flags uint8
		if off+n == uint32(len(data)) {
			flags = nvme.TCPFlagLast
			if c.p.success {
				flags |= nvme.TCPFlagSuccess
			}
		}
		b := make([]byte, nvme.TCPDataSize)
		(*nvme.TCPData)(b).SetFields(cid, 0, off, n)
		if err := c.send(nvme.TCPTypeC2HData, flags, b, data[off:off+n]); err != nil {
			return err
		}
		off += n
	}
	if c.p.success {
		return nil
	}
	return c.respond(cid, nvme.StatusSuccess, 0)
}

// send completes a PDU's header, and writes it.
func (c *peerConn) send(typ nvme.TCPPDUType, flags uint8, b, data []byte) error {
	hlen := len(b)
	var pdo int
	if c.hdgst {
		flags |= nvme.TCPFlagHDGST
		b = append(b, 0, 0, 0, 0)
	}
	if data != nil {
		pdo = nvme.TCPDataOffset(hlen, c.hdgst, c.hpda)
		b = append(b, make([]byte, pdo-len(b))...)
		b = append(b, data...)
		if c.ddgst {
			flags |= nvme.TCPFlagDDGST
			b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(data, castagnoli))
		}
	}
	(*nvme.TCPHeader)(b).Set(typ, flags, uint8(pdo), uint32(len(b)))
	if c.hdgst {
		binary.LittleEndian.PutUint32(b[hlen:], crc32.Checksum(b[:hlen], castagnoli))
	}
	return c.write(b)
}

func (c *peerConn) write(b []byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	for c.p.slow && len(b) > 1 && len(b) < 200 {
		if _, err := c.c.Write(b[:1]); err != nil {
			return err
		}
		b = b[1:]
	}
	_, err := c.c.Write(b)
	return err
}

func dialPeer(t testing.TB, o Options) *Controller {
	t.Helper()
	c, err := Dial(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func openQueue(t testing.TB, c *Controller, depth int) *Queue {
	t.Helper()
	q, err := c.NewQueue(context.Background(), depth)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}
