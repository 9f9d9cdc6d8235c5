package tcp

import (
	"bytes"
	"io"
	"testing"
	"time"

	"rocet/nvme"
)

// seeds are streams that go far into the target: an admin queue and what may follow.
func seeds() [][]byte {
	p := &peer{pad: 4}
	ic := icReq(0, 0, 3)
	connect := p.connectCapsule(0, 31, 0xffff, 0)
	var get nvme.Command
	get[0], get[4] = byte(nvme.OpFabrics), byte(nvme.FabricsPropertyGet)
	property := p.capsule(get, nil, 0)
	var identify nvme.Command
	identify[0], identify[40] = 6, 1
	id := p.capsule(identify, nil, 4096)
	digests := &peer{pad: 4, hdgst: true, ddgst: true}
	term := make([]byte, 32)
	(*nvme.TCPTermReq)(term).Set(nvme.TCPTypeH2CTermReq, nvme.TCPFESSequenceError, 0, 8)
	all := bytes.Join([][]byte{ic, connect, property, id}, nil)
	return [][]byte{
		ic, all, all[:len(all)-30], append(bytes.Clone(all), term...), append(bytes.Clone(ic), term...),
		append(icReq(7, 3, 0), digests.connectCapsule(0, 31, 0xffff, 4)...),
		append(bytes.Clone(ic), p.h2cData(1, 0, 0, true, make([]byte, 64))...),
		append(bytes.Clone(all), p.capsule(rw(nvme.OpWrite, 1, 0, 1), make([]byte, 512), 0)...),
	}
}

// FuzzStream feeds a target with any stream, cut into pieces. The target must neither fall over nor keep anything.
func FuzzStream(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s, uint16(0))
		f.Add(s, uint16(77))
	}
	w := newWorld(f, worldOptions{config: Config{LingerTimeout: 20 * time.Millisecond, ConnectTimeout: time.Second}})
	f.Cleanup(func() { w.t = f })
	f.Fuzz(func(t *testing.T, stream []byte, cut uint16) {
		w.t = t
		p := w.dial()
		defer p.c.Close()
		_ = p.c.SetDeadline(time.Now().Add(patience))
		if n := int(cut); n != 0 && n < len(stream) {
			if _, err := p.c.Write(stream[:n]); err != nil {
				return
			}
			stream = stream[n:]
		}
		_, _ = p.c.Write(stream)
		_ = p.c.(interface{ CloseWrite() error }).CloseWrite()
		_, _ = io.Copy(io.Discard, p.c)
		p.c.Close()
		w.checkIdle()
	})
}

// FuzzQueue feeds a live I/O queue with any PDUs after a write has been asked for its data.
func FuzzQueue(f *testing.F) {
	p := &peer{pad: 4, cid: 2}
	f.Add(uint8(0), p.h2cData(3, 31, 0, false, make([]byte, 4096)))
	f.Add(uint8(0), append(p.h2cData(3, 31, 0, false, make([]byte, 4096)), p.h2cData(3, 31, 4096, true, make([]byte, 4096))...))
	f.Add(uint8(0), p.capsule(rw(nvme.OpRead, 1, 0, 64), nil, 32<<10))
	f.Add(uint8(0), p.capsule(rw(nvme.OpWrite, 1, 0, 2), make([]byte, 1024), 0))
	d := &peer{pad: 4, cid: 2, hdgst: true, ddgst: true}
	f.Add(uint8(3), append(d.h2cData(3, 31, 0, false, make([]byte, 4096)), d.capsule(rw(nvme.OpRead, 1, 0, 1), nil, 512)...))
	w := newWorld(f, worldOptions{config: Config{LingerTimeout: 20 * time.Millisecond}})
	f.Cleanup(func() { w.t = f })
	f.Fuzz(func(t *testing.T, dgst uint8, stream []byte) {
		w.t = t
		p := w.io(ioOptions{dgst: dgst & 3})
		p.send(p.capsule(rw(nvme.OpWrite, 1, 0, 16), nil, 8192))
		p.expect(nvme.TCPTypeR2T)
		_ = p.c.SetDeadline(time.Now().Add(patience))
		_, _ = p.c.Write(stream)
		_ = p.c.(interface{ CloseWrite() error }).CloseWrite()
		_, _ = io.Copy(io.Discard, p.c)
		p.c.Close()
	})
}
