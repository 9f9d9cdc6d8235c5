package tcp

import (
	"bytes"
	"encoding/binary"
	"testing"

	"rocet/nvme"
)

func TestICResp(t *testing.T) {
	for _, c := range []struct {
		name   string
		config Config
		hpda   uint8
		dgst   uint8
		want   nvme.TCPICResp
	}{
		{name: "plain", want: icResp(0, 0, 1<<20)},
		{name: "digests", dgst: 3, want: icResp(0, 3, 1<<20)},
		{name: "unknown digests", dgst: 0xfe, want: icResp(0, 2, 1<<20)},
		{name: "configured", config: Config{CPDA: 7, MaxH2CData: 8192}, hpda: 31, want: icResp(7, 0, 8192)},
		{name: "digests refused", config: Config{HeaderDigest: DigestRefuse, DataDigest: DigestRefuse}, dgst: 3, want: icResp(0, 0, 1<<20)},
		{name: "digests required", config: Config{HeaderDigest: DigestRequire, DataDigest: DigestRequire}, dgst: 3, want: icResp(0, 3, 1<<20)},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newWorld(t, worldOptions{config: c.config}).dial()
			p.send(icReq(c.hpda, c.dgst, 0))
			if got := p.read(nvme.TCPICSize); !bytes.Equal(got, c.want[:]) {
				t.Errorf("ICResp % x, want % x", got, c.want)
			}
			p.c.Close()
		})
	}
}

func icResp(cpda, dgst uint8, max uint32) (r nvme.TCPICResp) {
	r.Set(cpda, dgst, max)
	return r
}

// edit is b with one byte changed.
func edit(b []byte, at int, v byte) []byte {
	b = bytes.Clone(b)
	b[at] = v
	return b
}

// TestBeforeConnect has every mistake that a host can make with its first PDUs.
func TestBeforeConnect(t *testing.T) {
	w := newWorld(t, worldOptions{})
	ok := icReq(0, 0, 0)
	for _, c := range []struct {
		name string
		send []byte
		fes  nvme.TCPFatalStatus
		fei  uint32
	}{
		{"PFV", edit(ok, 8, 1), nvme.TCPFESUnsupportedParameter, 8},
		{"PFV, high byte", edit(ok, 9, 1), nvme.TCPFESUnsupportedParameter, 8},
		{"HPDA", edit(ok, 10, 32), nvme.TCPFESInvalidHeaderField, 10},
		{"HLEN", edit(ok, 2, 127), nvme.TCPFESInvalidHeaderField, 2},
		{"PLEN", edit(ok, 4, 129), nvme.TCPFESInvalidHeaderField, 4},
		{"huge PLEN", edit(ok, 7, 255), nvme.TCPFESInvalidHeaderField, 4},
		{"type", edit(ok, 0, 0x0a), nvme.TCPFESInvalidHeaderField, 0},
		{"a controller's type", edit(ok, 0, 1), nvme.TCPFESInvalidHeaderField, 0},
		{"a command first", edit(ok, 0, 4), nvme.TCPFESSequenceError, 0},
		{"data first", edit(ok, 0, 6), nvme.TCPFESSequenceError, 0},
		{"a second ICReq", append(bytes.Clone(ok), ok...), nvme.TCPFESSequenceError, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := w.dial()
			p.t = t
			p.send(c.send)
			typ := nvme.TCPPDUType(c.send[0])
			p.terminated(c.fes, c.fei, typ)
		})
	}
	t.Run("reserved bits", func(t *testing.T) {
		b := icReq(0, 0, 0)
		for i := 16; i < len(b); i++ {
			b[i] = 0xff
		}
		b[1] = 0xff
		p := w.dial()
		p.t = t
		p.send(b)
		p.expect(nvme.TCPTypeICResp)
		p.c.Close()
	})
	t.Run("required digests", func(t *testing.T) {
		w := newWorld(t, worldOptions{config: Config{DataDigest: DigestRequire}})
		p := w.dial()
		p.send(icReq(0, 1, 0))
		p.terminated(nvme.TCPFESUnsupportedParameter, 11, nvme.TCPTypeICReq)
	})
}

// TestFatal has every mistake in the PDUs of a live queue.
func TestFatal(t *testing.T) {
	w := newWorld(t, worldOptions{config: Config{MaxH2CData: 8192, InCapsuleData: 4096}})
	write := rw(nvme.OpWrite, 1, 0, 32) // 16 KiB
	data := pattern(16<<10, 1)
	type ask struct{ cid, ttag uint16 }
	for _, c := range []struct {
		name string
		dgst uint8
		send func(p *peer, a ask) []byte
		fes  nvme.TCPFatalStatus
		fei  uint32
		typ  nvme.TCPPDUType
	}{
		{"HLEN", 0, func(p *peer, _ ask) []byte { return edit(p.capsule(write, nil, 0), 2, 64) }, 1, 2, 4},
		{"header digest flag, not agreed", 0, func(p *peer, _ ask) []byte { return edit(p.capsule(write, nil, 0), 1, 1) }, 1, 1, 4},
		{"no header digest flag", 1, func(p *peer, _ ask) []byte { return edit(p.capsule(write, nil, 0), 1, 0) }, 1, 1, 4},
		{"no data digest flag", 2, func(p *peer, _ ask) []byte { return edit(p.capsule(write, data[:512], 0), 1, 0) }, 1, 1, 4},
		{"PLEN shorter than the header", 0, func(p *peer, _ ask) []byte { return edit(p.capsule(write, nil, 0), 4, 71) }, 1, 4, 4},
		{"PLEN ends before the data", 0, func(p *peer, _ ask) []byte {
			return edit(edit(edit(p.capsule(write, data[:512], 0), 5, 0), 4, 76), 3, 80)
		}, 1, 4, 4},
		{"more in-capsule data than offered", 0, func(p *peer, _ ask) []byte { return p.capsule(write, data[:4100], 0) }, 1, 4, 4},
		{"PDO in the header", 0, func(p *peer, _ ask) []byte { return edit(p.capsule(write, data[:512], 0), 3, 68) }, 1, 3, 4},
		{"PDO not aligned", 0, func(p *peer, _ ask) []byte { return edit(p.capsule(write, data[:512], 0), 3, 74) }, 1, 3, 4},
		{"a controller's PDU", 0, func(p *peer, _ ask) []byte { return edit(p.capsule(write, nil, 0), 0, 5) }, 1, 0, 5},
		{"unknown PDU", 0, func(p *peer, _ ask) []byte { return edit(p.capsule(write, nil, 0), 0, 8) }, 1, 0, 8},
		{"ICReq", 0, func(p *peer, _ ask) []byte { return icReq(0, 0, 0) }, 2, 0, 0},

		{"TTAG of nothing", 0, func(p *peer, a ask) []byte { return p.h2cData(a.cid, a.ttag^1, 0, false, data[:8192]) }, 1, 10, 6},
		{"TTAG past the queue", 0, func(p *peer, a ask) []byte { return p.h2cData(a.cid, 4095, 0, false, data[:8192]) }, 1, 10, 6},
		{"TTAG of another R2T", 0, func(p *peer, a ask) []byte { return p.h2cData(a.cid, a.ttag|7<<12, 0, false, data[:8192]) }, 1, 10, 6},
		{"CCCID", 0, func(p *peer, a ask) []byte { return p.h2cData(a.cid+1, a.ttag, 0, false, data[:8192]) }, 1, 8, 6},
		{"no data", 0, func(p *peer, a ask) []byte { return p.h2cData(a.cid, a.ttag, 0, false, data[:0]) }, 1, 16, 6},
		{"offset ahead", 0, func(p *peer, a ask) []byte { return p.h2cData(a.cid, a.ttag, 4096, false, data[:4096]) }, 4, 0, 6},
		{"overlap", 0, func(p *peer, a ask) []byte {
			return append(p.h2cData(a.cid, a.ttag, 0, false, data[:4096]), p.h2cData(a.cid, a.ttag, 2048, false, data[:4096])...)
		}, 4, 0, 6},
		{"beyond", 0, func(p *peer, a ask) []byte {
			return append(append(p.h2cData(a.cid, a.ttag, 0, false, data[:8192]), p.h2cData(a.cid, a.ttag, 8192, false, data[:4096])...),
				p.h2cData(a.cid, a.ttag, 12288, true, data[:8192])...)
		}, 4, 0, 6},
		{"offset that wraps", 0, func(p *peer, a ask) []byte { return p.h2cData(a.cid, a.ttag, 0xfffff000, false, data[:8192]) }, 4, 0, 6},
		{"more than MAXH2CDATA", 0, func(p *peer, a ask) []byte { return p.h2cData(a.cid, a.ttag, 0, false, data[:8196]) }, 5, 0, 6},
		{"LAST too early", 0, func(p *peer, a ask) []byte { return p.h2cData(a.cid, a.ttag, 0, true, data[:8192]) }, 1, 1, 6},
		{"no LAST", 0, func(p *peer, a ask) []byte {
			return append(p.h2cData(a.cid, a.ttag, 0, false, data[:8192]), p.h2cData(a.cid, a.ttag, 8192, false, data[:8192])...)
		}, 1, 1, 6},
		{"PLEN and DATAL", 0, func(p *peer, a ask) []byte { return edit(p.h2cData(a.cid, a.ttag, 0, false, data[:8192]), 4, 4) }, 1, 4, 6},
		{"DATAL and PLEN", 0, func(p *peer, a ask) []byte { return edit(p.h2cData(a.cid, a.ttag, 0, false, data[:8192]), 19, 0xff) }, 1, 4, 6},
		{"PDO past a byte's alignment", 0, func(p *peer, a ask) []byte { return edit(p.h2cData(a.cid, a.ttag, 0, false, data[:8192]), 3, 25) }, 1, 3, 6},
		{"more data after the end", 0, func(p *peer, a ask) []byte {
			b := append(p.h2cData(a.cid, a.ttag, 0, false, data[:8192]), p.h2cData(a.cid, a.ttag, 8192, true, data[:8192])...)
			return append(b, p.h2cData(a.cid, a.ttag, 8192, true, data[:8192])...)
		}, 1, 10, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := w.io(ioOptions{dgst: c.dgst})
			p.t = t
			p.send(p.capsule(write, nil, 16<<10))
			head, _ := p.expect(nvme.TCPTypeR2T)
			r2t := (*nvme.TCPR2T)(head)
			if r2t.R2TO() != 0 || r2t.R2TL() != 16<<10 || r2t.CCCID() != p.cid {
				t.Fatalf("R2T % x", head)
			}
			p.send(c.send(p, ask{p.cid, r2t.TTAG()}))
			p.terminated(c.fes, c.fei, c.typ)
		})
	}
	t.Run("header digest", func(t *testing.T) {
		p := w.io(ioOptions{dgst: nvme.TCPDigestHeader})
		p.t = t
		b := p.capsule(write, nil, 16<<10)
		b[72] ^= 0x40
		p.send(b)
		p.terminated(nvme.TCPFESHeaderDigest, binary.LittleEndian.Uint32(b[72:]), nvme.TCPTypeCapsuleCmd)
	})
}

// TestDataDigest: a wrong data digest fails its command and nothing else.
func TestDataDigest(t *testing.T) {
	w := newWorld(t, worldOptions{})
	p := w.io(ioOptions{dgst: nvme.TCPDigestHeader | nvme.TCPDigestData})
	data := pattern(4096, 9)
	write := rw(nvme.OpWrite, 1, 8, 8)
	read := func() []byte {
		p.send(p.capsule(rw(nvme.OpRead, 1, 8, 8), nil, 4096))
		_, got := p.expect(nvme.TCPTypeC2HData)
		if c := p.response(); !c.Status().IsOK() {
			t.Fatal(c.Status())
		}
		return got
	}
	broken := func(b []byte) []byte {
		b[len(b)-1] ^= 1
		return b
	}
	p.send(broken(p.capsule(write, data, 0)))
	if st := p.response().Status(); st.Code() != nvme.StatusTransientTransport {
		t.Errorf("in the capsule: %v", st)
	}
	if !bytes.Equal(read(), make([]byte, 4096)) {
		t.Error("data with a wrong digest was written")
	}
	for i := range 2 {
		p.send(p.capsule(write, nil, 4096))
		head, _ := p.expect(nvme.TCPTypeR2T)
		ttag := (*nvme.TCPR2T)(head).TTAG()
		first, second := p.h2cData(p.cid, ttag, 0, false, data[:2048]), p.h2cData(p.cid, ttag, 2048, true, data[2048:])
		if i == 0 {
			first = broken(first)
		} else {
			second = broken(second)
		}
		p.send(append(first, second...))
		if st := p.response().Status(); st.Code() != nvme.StatusTransientTransport {
			t.Errorf("in H2CData %d: %v", i, st)
		}
	}
	if !bytes.Equal(read(), make([]byte, 4096)) {
		t.Error("data with a wrong digest was written")
	}
	p.send(p.capsule(write, data, 0))
	if st := p.response().Status(); !st.IsOK() {
		t.Error(st)
	}
	if !bytes.Equal(read(), data) {
		t.Error("other data came back")
	}
	if n := w.stats().DataDigestErrors; n != 3 {
		t.Errorf("%d data digest errors counted", n)
	}
	p.c.Close()
}

// TestSGL: what is wrong in a command gets a status, and the connection goes on.
func TestSGL(t *testing.T) {
	w := newWorld(t, worldOptions{})
	p := w.io(ioOptions{})
	data := pattern(512, 3)
	for _, c := range []struct {
		name string
		op   nvme.Opcode
		typ  nvme.SGLType
		sub  nvme.SGLSubtype
		addr uint64
		n    uint32
		data []byte
		want nvme.Status
	}{
		{"in the capsule", nvme.OpWrite, nvme.SGLDataBlock, nvme.SGLOffset, 0, 512, data, nvme.StatusSuccess},
		{"further on in the capsule", nvme.OpWrite, nvme.SGLDataBlock, nvme.SGLOffset, 4, 512, append(make([]byte, 4), data...), nvme.StatusSuccess},
		{"past the capsule", nvme.OpWrite, nvme.SGLDataBlock, nvme.SGLOffset, 513, 512, data, nvme.StatusSGLOffset},
		{"offset that wraps", nvme.OpWrite, nvme.SGLDataBlock, nvme.SGLOffset, 1<<64 - 1, 512, data, nvme.StatusSGLOffset},
		{"over the end of the capsule", nvme.OpWrite, nvme.SGLDataBlock, nvme.SGLOffset, 1, 512, data, nvme.StatusSGLDataLength},
		{"no capsule data", nvme.OpWrite, nvme.SGLDataBlock, nvme.SGLOffset, 0, 512, nil, nvme.StatusSGLDataLength},
		{"too short", nvme.OpWrite, nvme.SGLDataBlock, nvme.SGLOffset, 0, 256, data, nvme.StatusSGLDataLength},
		{"too long", nvme.OpWrite, nvme.SGLTransportDataBlock, nvme.SGLTransport, 0, 1024, nil, nvme.StatusSGLDataLength},
		{"read into the capsule", nvme.OpRead, nvme.SGLDataBlock, nvme.SGLOffset, 0, 512, data, nvme.StatusInvalidSGLType},
		{"read, too short", nvme.OpRead, nvme.SGLTransportDataBlock, nvme.SGLTransport, 0, 511, nil, nvme.StatusSGLDataLength},
		{"keyed", nvme.OpWrite, nvme.SGLKeyedDataBlock, nvme.SGLAddress, 0, 512, nil, nvme.StatusInvalidSGLType},
		{"address", nvme.OpRead, nvme.SGLDataBlock, nvme.SGLAddress, 0, 512, nil, nvme.StatusInvalidSGLType},
		{"segment", nvme.OpWrite, nvme.SGLLastSegment, nvme.SGLOffset, 0, 16, data, nvme.StatusInvalidSGLType},
		{"another transport's", nvme.OpWrite, nvme.SGLTransportDataBlock, nvme.SGLAddress, 0, 512, nil, nvme.StatusInvalidSGLType},
	} {
		cmd := rw(c.op, 1, 4, 1)
		p.cid++
		cmd.SetCID(p.cid)
		cmd.SetPSDT(nvme.PSDTSGL)
		cmd.SGL().SetDataBlock(c.typ, c.sub, c.addr, c.n)
		p.send(p.raw(cmd, c.data))
		got := p.response()
		if got.CID() != p.cid || got.Status().Code() != c.want || c.want != nvme.StatusSuccess && !got.Status().DNR() {
			t.Errorf("%s: %v for command %d, want %v for %d", c.name, got.Status(), got.CID(), c.want, p.cid)
		}
	}
	if st := w.stats(); st.FatalErrors != 0 || st.BadSGLs != 12 {
		t.Errorf("%d fatal errors, %d bad SGLs", st.FatalErrors, st.BadSGLs)
	}
	p.c.Close()
}

// TestTranscript pins the bytes of answers.
func TestTranscript(t *testing.T) {
	w := newWorld(t, worldOptions{config: Config{MaxH2CData: 4096, MaxR2T: 2, MaxC2HData: 128 << 10}})
	p := w.io(ioOptions{noFlow: true, r2t: 7, hpda: 3})
	data := pattern(12<<10, 5)
	p.send(p.capsule(rw(nvme.OpWrite, 1, 0, 24), nil, 12<<10))
	// 12 KiB in two R2Ts, the most that the configuration allows, asked for at once.
	got := p.read(48)
	want := []byte{
		9, 0, 24, 0, 24, 0, 0, 0, byte(p.cid), byte(p.cid >> 8), got[10], 0x00 | got[11]&0x0f, 0, 0, 0, 0, 0, 0x18, 0, 0, 0, 0, 0, 0,
		9, 0, 24, 0, 24, 0, 0, 0, byte(p.cid), byte(p.cid >> 8), got[10], 0x10 | got[11]&0x0f, 0, 0x18, 0, 0, 0, 0x18, 0, 0, 0, 0, 0, 0,
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("R2Ts\n% x, want\n% x", got, want)
	}
	a, b := binary.LittleEndian.Uint16(got[10:]), binary.LittleEndian.Uint16(got[34:])
	// In any order of the R2Ts, each in order of its data.
	p.send(p.h2cData(p.cid, b, 6144, false, data[6144:10240]))
	p.send(p.h2cData(p.cid, a, 0, false, data[:4096]))
	p.send(p.h2cData(p.cid, b, 10240, true, data[10240:]))
	p.send(p.h2cData(p.cid, a, 4096, true, data[4096:6144]))
	if got, want := p.read(24), []byte{5, 0, 24, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, byte(p.cid), byte(p.cid >> 8), 0, 0}; !bytes.Equal(got, want) {
		t.Fatalf("response % x, want % x", got, want)
	}
	p.send(p.capsule(rw(nvme.OpRead, 1, 0, 24), nil, 12<<10))
	// HPDA 3 is 16 bytes: data begins at 32. SUCCESS and LAST, and no response.
	head := p.read(32)
	if want := []byte{7, 0x0c, 24, 32, 32, 0x30, 0, 0, byte(p.cid), byte(p.cid >> 8), 0, 0, 0, 0, 0, 0, 0, 0x30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}; !bytes.Equal(head, want) {
		t.Fatalf("C2HData % x, want % x", head, want)
	}
	if !bytes.Equal(p.read(12<<10), data) {
		t.Error("other data than was written")
	}
	// Several C2HData PDUs, SUCCESS only in the last.
	p.send(p.capsule(rw(nvme.OpRead, 1, 0, 512), nil, 256<<10))
	for i, flags := range []byte{0, nvme.TCPFlagLast | nvme.TCPFlagSuccess} {
		head, data := p.expect(nvme.TCPTypeC2HData)
		d := (*nvme.TCPData)(head)
		if d.Header().Flags() != flags || d.DATAO() != uint32(i)*128<<10 || d.DATAL() != 128<<10 || len(data) != 128<<10 {
			t.Errorf("C2HData %d: % x", i, head)
		}
	}
	// An error has a response whatever the flow control.
	p.send(p.capsule(rw(nvme.OpRead, 9, 0, 1), nil, 512))
	if st := p.response().Status(); st.Code() != nvme.StatusInvalidNamespace {
		t.Error(st)
	}
	p.c.Close()
}
