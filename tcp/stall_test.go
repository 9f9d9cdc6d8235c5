package tcp

import (
	"testing"
	"time"

	"rocet/nvme"
)

// TestWithheld: a host that asks to write and does not send the data is cut. Its
// commands hold memory until then; others go on beside it and after it.
func TestWithheld(t *testing.T) {
	for _, c := range []struct {
		name string
		dgst uint8
		send int // bytes of the first H2CData PDU that come
	}{
		{"nothing", 0, 0},
		{"half a header", 0, 12},
		{"a part of the data", 0, 24 + 1000},
		{"all but the digest", nvme.TCPDigestData, 24 + 64<<10},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, worldOptions{config: Config{SendTimeout: 300 * time.Millisecond}})
			p := w.io(ioOptions{depth: 16, dgst: c.dgst})
			for range 8 {
				p.send(p.capsule(rw(nvme.OpWrite, 1, 0, 128), nil, 64<<10))
			}
			var ttag uint16
			for range 8 {
				head, _ := p.expect(nvme.TCPTypeR2T)
				ttag = (*nvme.TCPR2T)(head).TTAG()
			}
			p.send(p.h2cData(p.cid, ttag, 0, true, pattern(64<<10, 1))[:c.send])
			if n := w.transport.Stats().Shards[0].PoolBytes; n != 512<<10 {
				t.Errorf("%d bytes of memory wait for data", n)
			}
			good := dial(t, w.options())
			m := newMover(t, good, openQueue(t, good, 8), 64<<10, 8192, 1<<20)
			if err := m.run(100); err != nil {
				t.Errorf("a host beside it: %v", err)
			}
			w.eventually("the host is cut", func() bool { return w.stats().Withheld == 1 })
			w.eventually("its memory is back", func() bool { return w.transport.Stats().Shards[0].PoolBytes == 0 })
			if err := m.run(100); err != nil {
				t.Errorf("a host after it: %v", err)
			}
			_ = good.Close()
			p.ended()
		})
	}
}

// TestSlowWriter: a host that sends its data slowly, but sends, is not cut; nor is
// one that was done long ago.
func TestSlowWriter(t *testing.T) {
	w := newWorld(t, worldOptions{config: Config{SendTimeout: 200 * time.Millisecond}})
	p := w.io(ioOptions{})
	data := pattern(40<<10, 6)
	for range 2 {
		p.send(p.capsule(rw(nvme.OpWrite, 1, 0, 80), nil, 40<<10))
		head, _ := p.expect(nvme.TCPTypeR2T)
		ttag := (*nvme.TCPR2T)(head).TTAG()
		for off := 0; off < len(data); off += 4 << 10 {
			time.Sleep(50 * time.Millisecond)
			p.send(p.h2cData(p.cid, ttag, uint32(off), off+4<<10 == len(data), data[off:off+4<<10]))
		}
		if st := p.response().Status(); !st.IsOK() {
			t.Fatal(st)
		}
		time.Sleep(500 * time.Millisecond)
	}
	p.send(p.capsule(rw(nvme.OpRead, 1, 0, 80), nil, 40<<10))
	if _, got := p.expect(nvme.TCPTypeC2HData); string(got) != string(data) {
		t.Error("other data than was written")
	}
	p.response()
	if st := w.stats(); st.Withheld != 0 || st.Unread != 0 {
		t.Errorf("%d and %d hosts were cut", st.Withheld, st.Unread)
	}
	p.c.Close()
}
