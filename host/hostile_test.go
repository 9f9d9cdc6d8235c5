package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rocet/nvme"
)

// pdu makes a PDU without digests.
func pdu(typ nvme.TCPPDUType, flags uint8, psh func(b []byte), data []byte) []byte {
	b := make([]byte, typ.HLEN())
	if psh != nil {
		psh(b)
	}
	var pdo uint8
	if data != nil {
		pdo = uint8(len(b))
		b = append(b, data...)
	}
	(*nvme.TCPHeader)(b).Set(typ, flags, pdo, uint32(len(b)))
	return b
}

func c2h(cid uint16, off, n uint32, flags uint8, data []byte) []byte {
	return pdu(nvme.TCPTypeC2HData, flags, func(b []byte) { (*nvme.TCPData)(b).SetFields(cid, 0, off, n) }, data)
}

func r2t(cid uint16, off, n uint32) []byte {
	return pdu(nvme.TCPTypeR2T, 0, func(b []byte) { (*nvme.TCPR2T)(b).SetFields(cid, 9, off, n) }, nil)
}

func resp(cid uint16, st nvme.Status) []byte {
	return pdu(nvme.TCPTypeCapsuleResp, 0, func(b []byte) {
		c := (*nvme.TCPCapsuleResp)(b).Completion()
		c.SetCID(cid)
		c.SetStatus(st)
	}, nil)
}

func patch(b []byte, at int, v byte) []byte {
	b[at] = v
	return b
}

// rig is a queue of 4 commands over one end of a socket pair: command 0 reads 4096 bytes, 1 writes them, 2 is a Flush, 3
// reads. The test is the target.
type rig struct {
	t    testing.TB
	q    *Queue
	w    *tcp
	peer int
	mem  *Memory
	ios  [4]IO
	cids [4]uint16
}

func newRig(t testing.TB, digests bool) *rig {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := &Controller{opts: Options{Timeout: time.Minute}, maxIO: 1 << 20, ctx: context.Background()}
	q := newQueue(c, 1, 4)
	r := &rig{t: t, q: q, w: newTCP(q, fds[0]), peer: fds[1]}
	q.wire = r.w
	r.w.hdgst, r.w.ddgst = digests, digests
	if r.mem, err = newMemory(3 * 4096); err != nil {
		t.Fatal(err)
	}
	for i := range r.mem.b {
		r.mem.b[i] = 0xee
	}
	for i, op := range []nvme.Opcode{nvme.OpRead, nvme.OpWrite, nvme.OpFlush, nvme.OpRead} {
		io := &r.ios[i]
		io.SetRW(op, 1, 0, 8)
		if op != nvme.OpFlush {
			io.SetData(r.mem, uint32(i%3)*4096, 4096)
		}
		io.Tag = uint64(i)
		if err := q.Submit(io); err != nil {
			t.Fatal(err)
		}
		r.cids[i] = q.slots[i].cid
	}
	if err := q.Flush(); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) close() {
	_ = r.q.Close()
	_ = unix.Close(r.peer)
	_ = r.mem.Free()
}

// answer sends b, and ends the connection. It returns how the queue ended, and which commands with success.
func (r *rig) answer(b []byte) (ok [4]bool, err error) {
	r.t.Helper()
	done := make([]*IO, 4)
	total := 0
	var drop [4096]byte
	for open := true; ; {
		if len(b) > 0 {
			n, werr := unix.Write(r.peer, b)
			if werr == nil {
				b = b[n:]
			} else if werr != unix.EAGAIN {
				b = nil
			}
		}
		if len(b) == 0 && open {
			open = false
			_ = unix.Shutdown(r.peer, unix.SHUT_WR)
		}
		for {
			if n, err := unix.Read(r.peer, drop[:]); n <= 0 || err != nil {
				break
			}
		}
		n, err := r.q.Poll(done)
		if err != nil {
			if total != 4 || r.q.Outstanding() != 0 {
				r.t.Errorf("%d commands came back, %d are under way", total, r.q.Outstanding())
			}
			return ok, err
		}
		for _, io := range done[:n] {
			ok[io.Tag] = io.Status.IsOK()
		}
		if total += n; total > 4 {
			r.t.Fatalf("%d commands of 4 came back", total)
		}
	}
}

func TestHostileTarget(t *testing.T) {
	data := make([]byte, 4096)
	const F, L, S = nvme.TCPFESInvalidHeaderField, nvme.TCPFlagLast, nvme.TCPFlagSuccess
	for _, test := range []struct {
		name string
		pdu  func(cid [4]uint16) []byte
		fes  nvme.TCPFatalStatus
		fei  uint32
	}{
		{"unknown type", func([4]uint16) []byte { return patch(make([]byte, 8), 0, 0x33) }, F, nvme.TCPOffsetType},
		{"host's PDU", func([4]uint16) []byte { return pdu(nvme.TCPTypeCapsuleCmd, 0, nil, nil) }, F, nvme.TCPOffsetType},
		{"second ICResp", func([4]uint16) []byte { return pdu(nvme.TCPTypeICResp, 0, nil, nil) }, nvme.TCPFESSequenceError, 0},
		{"HLEN", func(c [4]uint16) []byte { return patch(resp(c[2], 0), 2, 25) }, F, nvme.TCPOffsetHLEN},
		{"PLEN of a response", func(c [4]uint16) []byte { return patch(resp(c[2], 0), 4, 23) }, F, nvme.TCPOffsetPLEN},
		{"huge PLEN", func(c [4]uint16) []byte { return patch(c2h(c[0], 0, 4096, L, data), 7, 0xff) }, F, nvme.TCPOffsetPLEN},
		{"header digest not agreed on", func(c [4]uint16) []byte { return patch(resp(c[2], 0), 1, nvme.TCPFlagHDGST) }, F, nvme.TCPOffsetFlags},
		{"data digest not agreed on", func(c [4]uint16) []byte { return c2h(c[0], 0, 4096, L|nvme.TCPFlagDDGST, data) }, F, nvme.TCPOffsetFlags},
		{"PDO in the header", func(c [4]uint16) []byte { return patch(c2h(c[0], 0, 4096, L, data), 3, 20) }, F, nvme.TCPOffsetPDO},
		{"PDO not aligned", func(c [4]uint16) []byte { return patch(c2h(c[0], 0, 4096, L, data), 3, 26) }, F, nvme.TCPOffsetPDO},
		{"unknown command", func([4]uint16) []byte { return c2h(0x4001, 0, 4096, L, data) }, F, nvme.TCPOffsetCCCID},
		{"slot past the end", func([4]uint16) []byte { return resp(0xffff, 0) }, 0, 0},
		{"data for a write", func(c [4]uint16) []byte { return c2h(c[1], 0, 4096, L, data) }, F, nvme.TCPOffsetCCCID},
		{"data for a flush", func(c [4]uint16) []byte { return c2h(c[2], 0, 4096, L, data) }, F, nvme.TCPOffsetCCCID},
		{"too much data", func(c [4]uint16) []byte { return c2h(c[0], 0, 4100, L, append(data, 0, 0, 0, 0)) }, nvme.TCPFESOutOfRange, nvme.TCPOffsetDATAL},
		{"no data", func(c [4]uint16) []byte { return c2h(c[0], 0, 0, L, []byte{}) }, nvme.TCPFESOutOfRange, nvme.TCPOffsetDATAL},
		{"DATAL that wraps", func(c [4]uint16) []byte { return c2h(c[0], 0, 0xffffffff, L, data) }, nvme.TCPFESOutOfRange, nvme.TCPOffsetDATAL},
		{"data out of order", func(c [4]uint16) []byte { return c2h(c[0], 512, 512, 0, data[:512]) }, nvme.TCPFESOutOfRange, nvme.TCPOffsetDATAO},
		{"data twice", func(c [4]uint16) []byte {
			return append(c2h(c[0], 0, 512, 0, data[:512]), c2h(c[0], 0, 512, 0, data[:512])...)
		}, nvme.TCPFESOutOfRange, nvme.TCPOffsetDATAO},
		{"data after the last", func(c [4]uint16) []byte {
			return append(c2h(c[0], 0, 512, L, data[:512]), c2h(c[0], 512, 512, 0, data[:512])...)
		}, nvme.TCPFESSequenceError, 0},
		{"DATAL against PLEN", func(c [4]uint16) []byte { return c2h(c[0], 0, 512, 0, data) }, F, nvme.TCPOffsetPLEN},
		{"SUCCESS without LAST", func(c [4]uint16) []byte { return c2h(c[0], 0, 4096, S, data) }, F, nvme.TCPOffsetFlags},
		{"SUCCESS too early", func(c [4]uint16) []byte { return c2h(c[0], 0, 512, S|L, data[:512]) }, F, nvme.TCPOffsetFlags},
		{"read without data", func(c [4]uint16) []byte { return resp(c[0], 0) }, 0, 0},
		{"answer twice", func(c [4]uint16) []byte { return append(resp(c[2], 0), resp(c[2], 0)...) }, 0, 0},
		{"R2T for a read", func(c [4]uint16) []byte { return r2t(c[0], 0, 4096) }, F, nvme.TCPOffsetCCCID},
		{"R2T for nobody", func([4]uint16) []byte { return r2t(0x2222, 0, 4096) }, F, nvme.TCPOffsetCCCID},
		{"R2T of nothing", func(c [4]uint16) []byte { return r2t(c[1], 0, 0) }, nvme.TCPFESOutOfRange, nvme.TCPOffsetDATAL},
		{"R2T of too much", func(c [4]uint16) []byte { return r2t(c[1], 0, 4097) }, nvme.TCPFESOutOfRange, nvme.TCPOffsetDATAL},
		{"R2T that wraps", func(c [4]uint16) []byte { return r2t(c[1], 0, 0xfffffff0) }, nvme.TCPFESOutOfRange, nvme.TCPOffsetDATAL},
		{"R2T out of order", func(c [4]uint16) []byte { return r2t(c[1], 512, 512) }, F, nvme.TCPOffsetDATAO},
		{"two R2Ts at once", func(c [4]uint16) []byte { return append(r2t(c[1], 0, 512), r2t(c[1], 512, 512)...) }, nvme.TCPFESLimitExceeded, 0},
		{"C2HTermReq of 3 bytes", func([4]uint16) []byte { return patch(pdu(nvme.TCPTypeC2HTermReq, 0, nil, nil), 4, 3) }, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, false)
			defer r.close()
			_, err := r.answer(test.pdu(r.cids))
			var pe *ProtocolError
			if !errors.As(err, &pe) || pe.Status != test.fes || pe.Info != test.fei {
				t.Errorf("got %v (%#v), want status %v about %d", err, pe, test.fes, test.fei)
			}
		})
	}
}

func TestGoodEnds(t *testing.T) {
	data := bytes.Repeat([]byte{0x5a}, 4096)
	r := newRig(t, false)
	defer r.close()
	b := resp(r.cids[2], 0)
	b = append(b, c2h(r.cids[0], 0, 1024, 0, data[:1024])...)
	b = append(b, r2t(r.cids[1], 0, 1024)...)
	b = append(b, resp(r.cids[1], nvme.StatusAbortedByRequest)...) // with an R2T open
	b = append(b, c2h(r.cids[0], 1024, 3072, nvme.TCPFlagLast|nvme.TCPFlagSuccess, data[1024:])...)
	b = append(b, resp(r.cids[3], nvme.StatusInternalError)...) // without its data
	ok, err := r.answer(b)
	if ok != [4]bool{true, false, true, false} || !errors.Is(err, errTargetClosed) {
		t.Errorf("%v, %v", ok, err)
	}
	if r.ios[1].Status != nvme.StatusAbortedByRequest || r.ios[3].Status != nvme.StatusInternalError {
		t.Errorf("status %v, %v", r.ios[1].Status, r.ios[3].Status)
	}
	if !bytes.Equal(r.mem.b[:4096], data) || r.mem.b[4096] != 0xee {
		t.Error("the data is not where it belongs")
	}
}

func TestTermReq(t *testing.T) {
	r := newRig(t, false)
	defer r.close()
	b := pdu(nvme.TCPTypeC2HTermReq, 0, nil, nil)
	(*nvme.TCPTermReq)(b).Set(nvme.TCPTypeC2HTermReq, nvme.TCPFESOutOfRange, 77, 8)
	b = append(b, byte(nvme.TCPTypeH2CData), 0, 24, 24, 0, 0, 0, 0)
	_, err := r.answer(b)
	var te *TerminatedError
	if !errors.As(err, &te) || te.Status != nvme.TCPFESOutOfRange || te.Info != 77 || !te.HasPDU || te.PDU != nvme.TCPTypeH2CData {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(err.Error(), "H2CData") {
		t.Error(err)
	}
}

// sealed puts digests into a PDU.
func sealed(b []byte, hlen int) []byte {
	h := (*nvme.TCPHeader)(b)
	data := append([]byte(nil), b[hlen:]...)
	h.SetFlags(h.Flags() | nvme.TCPFlagHDGST)
	plen := h.PLEN() + 4
	if len(data) > 0 {
		h.SetFlags(h.Flags() | nvme.TCPFlagDDGST)
		h.SetPDO(h.PDO() + 4)
		plen += 4
	}
	h.SetPLEN(plen)
	out := binary.LittleEndian.AppendUint32(b[:hlen:hlen], crc32.Checksum(b[:hlen], castagnoli))
	if len(data) > 0 {
		out = append(out, data...)
		out = binary.LittleEndian.AppendUint32(out, crc32.Checksum(data, castagnoli))
	}
	return out
}

func TestDigests(t *testing.T) {
	data := make([]byte, 4096)
	r := newRig(t, true)
	b := sealed(c2h(r.cids[0], 0, 4096, nvme.TCPFlagLast|nvme.TCPFlagSuccess, data), 24)
	broken := sealed(c2h(r.cids[3], 0, 4096, nvme.TCPFlagLast, data), 24)
	broken[len(broken)-1]++ // of the digest
	b = append(b, broken...)
	b = append(b, sealed(resp(r.cids[3], 0), 24)...)
	b = append(b, sealed(resp(r.cids[2], 0), 24)...)
	ok, err := r.answer(b)
	if ok != [4]bool{true, false, true, false} || r.ios[3].Status != nvme.StatusTransientTransport {
		t.Errorf("%v, %v, the read whose data was damaged: %v", ok, err, r.ios[3].Status)
	}
	r.close()
	r = newRig(t, true)
	defer r.close()
	b = sealed(resp(r.cids[2], 0), 24)
	b[25]++
	_, err = r.answer(b)
	var pe *ProtocolError
	if !errors.As(err, &pe) || pe.Status != nvme.TCPFESHeaderDigest || pe.Info != binary.LittleEndian.Uint32(b[24:]) {
		t.Errorf("a damaged header: %v", err)
	}
}

// The target is told what was wrong with which PDU.
func TestSaysWhatIsWrong(t *testing.T) {
	p := newPeer(t, 1<<20)
	p.setHook(func(c *peerConn, cmd *nvme.Command) bool {
		if c.qid == 0 || cmd.Opcode() != nvme.OpRead {
			return false
		}
		_ = c.write(c2h(cmd.CID(), 8, 512, 0, make([]byte, 512)))
		return true
	})
	c := dialPeer(t, p.options())
	q := openQueue(t, c, 4)
	m, _ := c.NewMemory(4096)
	defer m.Free()
	var io IO
	io.SetRW(nvme.OpRead, 1, 0, 8)
	io.SetData(m, 0, 4096)
	if err := q.execute(context.Background(), &io); err == nil {
		t.Fatal("data at a wrong offset is taken")
	}
	select {
	case e := <-p.terms:
		if e.Status != nvme.TCPFESOutOfRange || e.Info != nvme.TCPOffsetDATAO || !e.HasPDU {
			t.Errorf("H2CTermReq %+v", e)
		}
	case <-time.After(5 * time.Second):
		t.Error("no H2CTermReq came")
	}
}

// FuzzTCPAnswers feeds a queue with four commands under way arbitrary bytes. Two of the first choose digests.
func FuzzTCPAnswers(f *testing.F) {
	data := make([]byte, 4096)
	r := newRig(f, false)
	cid := r.cids
	r.close()
	for _, b := range [][]byte{
		resp(cid[2], 0), c2h(cid[0], 0, 4096, nvme.TCPFlagLast|nvme.TCPFlagSuccess, data), r2t(cid[1], 0, 4096),
		append(r2t(cid[1], 0, 512), resp(cid[1], 0)...), pdu(nvme.TCPTypeC2HTermReq, 0, nil, nil),
		append(c2h(cid[0], 0, 512, 0, data[:512]), c2h(cid[3], 0, 512, nvme.TCPFlagLast, data[:512])...),
	} {
		f.Add(false, b)
	}
	f.Add(true, sealed(c2h(cid[0], 0, 4096, nvme.TCPFlagLast|nvme.TCPFlagSuccess, data), 24))
	f.Add(true, sealed(r2t(cid[1], 0, 4096), 24))
	f.Fuzz(func(t *testing.T, digests bool, b []byte) {
		r := newRig(t, digests)
		defer r.close()
		_, err := r.answer(b)
		if err == nil {
			t.Error("the queue outlives its connection")
		}
		for i, v := range r.mem.b[4096:8192] { // of the write
			if v != 0xee {
				t.Fatalf("byte %d of memory that only the target reads was written", i)
			}
		}
	})
}

// FuzzInitialize answers ICReq with arbitrary bytes.
func FuzzInitialize(f *testing.F) {
	var ic nvme.TCPICResp
	ic.Set(0, 3, 8192)
	f.Add(ic[:])
	ic.Set(31, 0, 4096)
	f.Add(ic[:])
	var term nvme.TCPTermReq
	term.Set(nvme.TCPTypeC2HTermReq, nvme.TCPFESUnsupportedParameter, 8, 100)
	f.Add(append(term[:], ic[:100]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fds[0])
		if _, err := unix.Write(fds[1], b[:min(len(b), 4096)]); err != nil && len(b) > 0 {
			t.Fatal(err)
		}
		_ = unix.Shutdown(fds[1], unix.SHUT_WR)
		defer unix.Close(fds[1])
		c := &Controller{opts: Options{Timeout: time.Minute}}
		w := newTCP(newQueue(c, 0, 31), fds[0])
		err = w.initialize(context.Background(), &Options{HeaderDigest: true, DataDigest: true})
		if err == nil && (len(b) < nvme.TCPICSize || w.maxData < nvme.TCPMinMAXH2CDATA || w.cpda > nvme.TCPMaxDataAlign || !w.hdgst || !w.ddgst) {
			t.Errorf("%d bytes are taken: %+v", len(b), w)
		}
		if err != nil && fmt.Sprint(err) == "" {
			t.Error("an error that says nothing")
		}
	})
}
