package tcp

import (
	"context"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"rocet/host"
	"rocet/nvme"
	"rocet/target"
)

// TestByteByByte: PDUs in the smallest pieces.
func TestByteByByte(t *testing.T) {
	w := newWorld(t, worldOptions{})
	p := w.io(ioOptions{dgst: 3})
	slowly := func(b []byte) {
		for i := range b {
			p.send(b[i : i+1])
		}
	}
	data := pattern(1024, 4)
	slowly(p.capsule(rw(nvme.OpWrite, 1, 0, 2), data, 0))
	if st := p.response().Status(); !st.IsOK() {
		t.Fatal(st)
	}
	slowly(p.capsule(rw(nvme.OpWrite, 1, 2, 2), nil, 1024))
	head, _ := p.expect(nvme.TCPTypeR2T)
	slowly(p.h2cData(p.cid, (*nvme.TCPR2T)(head).TTAG(), 0, true, data))
	if st := p.response().Status(); !st.IsOK() {
		t.Fatal(st)
	}
	slowly(p.capsule(rw(nvme.OpRead, 1, 0, 4), nil, 2048))
	_, got := p.expect(nvme.TCPTypeC2HData)
	if string(got) != string(data)+string(data) {
		t.Error("other data than was written")
	}
	p.response()
	p.c.Close()
}

// TestTooManyCommands: the queue's size is the most that may be under way.
func TestTooManyCommands(t *testing.T) {
	w := newWorld(t, worldOptions{})
	p := w.io(ioOptions{depth: 8})
	var last []byte
	for range 8 {
		p.send(p.capsule(rw(nvme.OpWrite, 1, 0, 64), nil, 32<<10))
		p.expect(nvme.TCPTypeR2T)
	}
	last = p.capsule(rw(nvme.OpWrite, 1, 0, 64), nil, 32<<10)
	p.send(last)
	p.terminated(nvme.TCPFESSequenceError, 0, nvme.TCPTypeCapsuleCmd)
	// Before Connect there is room for one.
	q := w.dial()
	q.initialize(0, 0, 0)
	q.send(append(q.connectCapsule(0, 31, 0xffff, 0), q.connectCapsule(0, 31, 0xffff, 0)...))
	q.terminated(nvme.TCPFESSequenceError, 0, nvme.TCPTypeCapsuleCmd)
}

// TestTermReqs: what hosts say at the end, in the form of the specification and in Linux's, and malformed.
func TestTermReqs(t *testing.T) {
	w := newWorld(t, worldOptions{})
	for _, c := range []struct {
		name string
		edit func(b []byte) []byte
	}{
		{"as it should be", func(b []byte) []byte { return b }},
		{"with FEI as Linux has it", func(b []byte) []byte { b[10], b[12] = 0, 4; return b }},
		{"too long", func(b []byte) []byte { b[4] = 153; return b }},
		{"too short", func(b []byte) []byte { b[4] = 23; return b }},
		{"HLEN", func(b []byte) []byte { b[2] = 8; return b }},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, p := range []*peer{w.dial(), w.io(ioOptions{dgst: 3})} {
				p.t = t
				b := make([]byte, nvme.TCPTermReqSize+8)
				(*nvme.TCPTermReq)(b).Set(nvme.TCPTypeH2CTermReq, nvme.TCPFESInvalidHeaderField, 4, 8)
				p.send(c.edit(b))
				_ = p.c.SetReadDeadline(time.Now().Add(patience))
				if n, err := p.c.Read(make([]byte, 1)); n != 0 || err == nil {
					t.Error("an H2CTermReq is answered")
				}
			}
		})
	}
	if st := w.stats(); st.FatalErrors != 0 || st.TermReqsReceived != 10 {
		t.Errorf("%d fatal errors, %d H2CTermReqs", st.FatalErrors, st.TermReqsReceived)
	}
}

// TestSilent: connections that say nothing, or nothing after ICReq, end by themselves and cost little; the oldest
// make room, and a host that works does not notice.
func TestSilent(t *testing.T) {
	const n, halfOpen = 10_000, 1000
	if limit := limitFiles(); limit < n+2*halfOpen {
		t.Skipf("left out: %d open files are allowed, and %d connections take %d", limit, n, n+2*halfOpen)
	}
	w := newWorld(t, worldOptions{
		config: Config{MaxHalfOpen: halfOpen, ConnectTimeout: 3 * time.Second},
		target: target.Options{ConnectTimeout: 3 * time.Second},
	})
	good := dial(t, w.options())
	q := openQueue(t, good, 8)
	m := newMover(t, good, q, 16<<10, 0, 1<<20)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var conns []net.Conn
	t.Cleanup(func() {
		for _, c := range conns {
			_ = c.Close()
		}
	})
	for i := range n {
		c, err := net.Dial("tcp", w.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		if i%3 == 0 {
			_, _ = c.Write(icReq(0, 3, 0))
		}
		if i%3 == 1 {
			_, _ = c.Write(icReq(0, 3, 0)[:100])
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / int64(n); each > 8<<10 {
		t.Errorf("a silent connection costs %d bytes, the test's end included", each)
	}
	if err := m.run(200); err != nil {
		t.Errorf("a host beside them: %v", err)
	}
	if st := w.transport.Stats(); st.Shards[0].HalfOpen > halfOpen {
		t.Errorf("%d connections without Connect", st.Shards[0].HalfOpen)
	}
	if d := w.stats().Displaced; d < n-halfOpen-1 {
		t.Errorf("%d were cut", d)
	}
	w.eventually("the silent ones end", func() bool { return w.transport.Stats().Shards[0].HalfOpen == 0 })
	if err := m.run(200); err != nil {
		t.Errorf("a host after them: %v", err)
	}
	_ = good.Close()
}

func TestTooManyConnections(t *testing.T) {
	w := newWorld(t, worldOptions{config: Config{MaxConnections: 3}})
	var ps []*peer
	for range 3 {
		p := w.dial()
		p.initialize(0, 0, 0)
		ps = append(ps, p)
	}
	p := w.dial()
	p.ended()
	if st := w.transport.Stats(); st.Refused != 1 || st.Connections["127.0.0.1"] != 3 {
		t.Errorf("%d refused, connections %v", st.Refused, st.Connections)
	}
	ps[0].c.Close()
	w.eventually("there is room again", func() bool { return w.transport.Stats().Connections["127.0.0.1"] == 2 })
	w.dial().initialize(0, 0, 0)
	for _, p := range ps[1:] {
		p.c.Close()
	}
}

// TestNeverReads: a host that asks for much and reads nothing is cut, and meanwhile costs its commands only.
func TestNeverReads(t *testing.T) {
	w := newWorld(t, worldOptions{config: Config{SendTimeout: 300 * time.Millisecond}})
	p := w.io(ioOptions{depth: 32})
	for range 32 {
		p.send(p.capsule(rw(nvme.OpRead, 1, 0, 2048), nil, 1<<20))
	}
	good := dial(t, w.options())
	if err := newMover(t, good, openQueue(t, good, 8), 64<<10, 8192, 1<<20).run(100); err != nil {
		t.Errorf("a host beside it: %v", err)
	}
	w.eventually("the host is cut", func() bool { return w.stats().Unread == 1 })
	_ = good.Close()
	p.c.Close()
}

// TestSlowReader: a host that reads slowly, but reads, is not cut.
func TestSlowReader(t *testing.T) {
	w := newWorld(t, worldOptions{config: Config{SendTimeout: 400 * time.Millisecond}})
	p := w.io(ioOptions{depth: 32, dgst: 3})
	for range 16 {
		p.send(p.capsule(rw(nvme.OpRead, 1, 0, 2048), nil, 1<<20))
	}
	for range 16 {
		time.Sleep(100 * time.Millisecond)
		if _, data := p.expect(nvme.TCPTypeC2HData); len(data) != 1<<20 {
			t.Fatalf("%d bytes", len(data))
		}
		p.response()
	}
	if st := w.stats(); st.Blocked == 0 || st.PartialSends == 0 || st.Unread != 0 {
		t.Errorf("blocked %d times, %d partial sends, %d cut: the test wants a full socket", st.Blocked, st.PartialSends, st.Unread)
	}
	p.c.Close()
}

// TestBufferShortage: more writes are under way than the pool has memory for, from several hosts, in capsules and by
// R2T: all are served, in turns, and nothing is lost.
func TestBufferShortage(t *testing.T) {
	w := newWorld(t, worldOptions{pool: 4 << 20})
	var wg sync.WaitGroup
	for i := range 4 {
		c := dial(t, w.options())
		max := 1 << 20
		if i%2 == 1 {
			max = 8 << 10
		}
		m := newMover(t, c, openQueue(t, c, 4), max, uint64(i)*8192, 4<<20)
		wg.Go(func() {
			if err := m.run(100); err != nil {
				t.Errorf("host %d: %v", i, err)
			}
			_ = c.Close()
		})
	}
	wg.Wait()
	if st := w.stats(); st.BufferWaits == 0 {
		t.Error("nobody waited for memory")
	}
}

// TestCutAnywhere ends connections in every state of their commands, by the host, the listener and the transport.
func TestCutAnywhere(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	for _, how := range []string{"host", "reset", "listener", "transport"} {
		t.Run(how, func(t *testing.T) {
			n := rounds
			if how == "listener" || how == "transport" {
				n = rounds / 10
			}
			for i := range n {
				func() {
					w := newWorld(t, worldOptions{})
					rng := rand.New(rand.NewPCG(uint64(i), 11))
					p := w.io(ioOptions{dgst: uint8(rng.IntN(4))})
					var wire []byte
					for range 1 + rng.IntN(20) {
						switch rng.IntN(3) {
						case 0:
							wire = append(wire, p.capsule(rw(nvme.OpRead, 1, 0, 2048), nil, 1<<20)...)
						case 1:
							wire = append(wire, p.capsule(rw(nvme.OpWrite, 1, 0, 16), pattern(8192, 1), 0)...)
						case 2:
							wire = append(wire, p.capsule(rw(nvme.OpWrite, 1, 0, 512), nil, 256<<10)...)
						}
					}
					p.send(wire[:rng.IntN(len(wire)+1)])
					if rng.IntN(2) == 0 {
						time.Sleep(time.Duration(rng.IntN(1000)) * time.Microsecond)
					}
					switch how {
					case "host":
						p.c.Close()
					case "reset":
						_ = p.c.(*net.TCPConn).SetLinger(0)
						p.c.Close()
					case "listener":
						w.listener.Close()
						p.ended()
					case "transport":
						if err := w.transport.Close(); err != nil {
							t.Error(err)
						}
						p.ended()
					}
				}()
			}
		})
	}
}

// TestDisconnects cuts hosts of Rocet's own under load while others verify.
func TestDisconnects(t *testing.T) {
	w := newWorld(t, worldOptions{reactors: 2})
	o := w.options()
	o.DataDigest, o.HeaderDigest = true, true
	steady := dial(t, o)
	m := newMover(t, steady, openQueue(t, steady, 16), 128<<10, 0, 8<<20)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range 3 {
		wg.Go(func() {
			for round := 0; ; round++ {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				c, err := host.Dial(ctx, o)
				if err != nil {
					t.Errorf("host %d, round %d: %v", i, round, err)
					cancel()
					return
				}
				q, err := c.NewQueue(ctx, 8)
				cancel()
				if err != nil {
					t.Error(err)
					_ = c.Close()
					return
				}
				mem, _ := c.NewMemory(8 << 16)
				ios := make([]host.IO, 8)
				for k := range ios {
					ios[k].SetRW([]nvme.Opcode{nvme.OpRead, nvme.OpWrite}[k%2], 1, uint64(20000+128*k), 128)
					ios[k].SetData(mem, uint32(k)<<16, 1<<16)
					_ = q.Submit(&ios[k])
				}
				_ = q.Flush()
				_ = q.Close() // with everything under way
				_ = c.Close()
				_ = mem.Free()
			}
		})
	}
	if err := m.run(400); err != nil {
		t.Error(err)
	}
	close(stop)
	wg.Wait()
	_ = steady.Close()
}
