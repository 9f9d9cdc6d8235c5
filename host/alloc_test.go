package host

import (
	"runtime"
	"testing"
	"time"

	"rocet/internal/invariants"
	"rocet/nvme"
)

// holdsAllocations reads and writes the null namespace, and counts what the whole process allocates.
func holdsAllocations(t *testing.T, o Options) {
	t.Helper()
	if invariants.Enabled {
		t.Skip("left out: the checks of debug builds allocate")
	}
	o.KeepAlive = -1
	c := dialPeer(t, o)
	const depth = 16
	q := openQueue(t, c, depth)
	m, err := c.NewMemory(depth * 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	defer q.Close()
	ios := make([]IO, depth)
	done := make([]*IO, depth)
	free := make([]*IO, 0, depth)
	for i := range ios {
		ios[i].SetData(m, uint32(i*4096), 4096)
		free = append(free, &ios[i])
	}
	run := func(n int) {
		for started := 0; started < n || len(free) < depth; {
			for len(free) > 0 && started < n {
				io := free[len(free)-1]
				free = free[:len(free)-1]
				op := nvme.OpRead
				if started%2 == 1 {
					op = nvme.OpWrite
				}
				io.SetRW(op, 2, uint64(started%1000), 1)
				if err := q.Submit(io); err != nil {
					t.Fatal(err)
				}
				started++
			}
			_ = q.Flush()
			k, err := q.Poll(done)
			if err != nil {
				t.Fatal(err)
			}
			for _, io := range done[:k] {
				if !io.Status.IsOK() {
					t.Fatal(io.Status)
				}
				free = append(free, io)
			}
			if k == 0 {
				if err := q.Wait(time.Millisecond); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	run(2000)
	var before, after runtime.MemStats
	const n = 20000
	runtime.ReadMemStats(&before)
	run(n)
	runtime.ReadMemStats(&after)
	// The runtime itself allocates a little now and then.
	if got := after.Mallocs - before.Mallocs; got > n/100 {
		t.Errorf("%d allocations for %d I/Os", got, n)
	}
}

func TestTCPAllocates(t *testing.T) {
	holdsAllocations(t, newWorld(t, 1).listenTCP("127.0.0.1"))
}

// TestRocet is the conversation with Rocet's own target over TCP; the transport's tests have all its options.
func TestRocet(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		for _, digests := range []bool{false, true} {
			o := newWorld(t, 2).listenTCP(addr)
			o.HeaderDigest, o.DataDigest = digests, digests
			converse(t, o, 200)
		}
	}
}

// BenchmarkTCP is the host's own cost, with the target in the same process.
func BenchmarkTCP(b *testing.B) {
	c := dialPeer(b, newWorld(b, 1).listenTCP("127.0.0.1"))
	const depth = 32
	q := openQueue(b, c, depth)
	m, err := c.NewMemory(depth * 4096)
	if err != nil {
		b.Fatal(err)
	}
	ios, done := make([]IO, depth), make([]*IO, depth)
	for i := range ios {
		ios[i].SetRW(nvme.OpRead, 2, uint64(i), 1)
		ios[i].SetData(m, uint32(i*4096), 4096)
		done[i] = &ios[i]
	}
	b.ReportAllocs()
	b.SetBytes(4096)
	b.ResetTimer()
	started, finished, ready := 0, 0, depth
	for finished < b.N {
		for _, io := range done[:ready] {
			if started < b.N {
				if err := q.Submit(io); err != nil {
					b.Fatal(err)
				}
				started++
			}
		}
		_ = q.Flush()
		if ready, err = q.Poll(done); err != nil {
			b.Fatal(err)
		}
		finished += ready
	}
	b.StopTimer()
	_ = q.Close()
	_ = m.Free()
}
