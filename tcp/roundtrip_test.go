package tcp

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"rocet/host"
	"rocet/nvme"
)

func dial(t testing.TB, o host.Options) *host.Controller {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := host.Dial(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func openQueue(t testing.TB, c *host.Controller, depth int) *host.Queue {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	q, err := c.NewQueue(ctx, depth)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// mover writes and reads random extents of its own part of the namespace, many at a
// time, and holds what it reads against what it wrote.
type mover struct {
	q     *host.Queue
	mem   *host.Memory
	rng   *rand.Rand
	max   int
	from  uint64 // first block
	model []byte
}

func newMover(t testing.TB, c *host.Controller, q *host.Queue, max int, from uint64, size int) *mover {
	t.Helper()
	m, err := c.NewMemory(q.Depth() * max)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = q.Close()
		_ = m.Free()
	})
	return &mover{q: q, mem: m, rng: rand.New(rand.NewPCG(7, from)), max: max, from: from, model: make([]byte, size)}
}

func (m *mover) run(n int) error {
	type job struct {
		io   host.IO
		busy bool
	}
	depth := m.q.Depth()
	jobs := make([]job, depth)
	part := len(m.model) / depth / testBlock * testBlock
	done := make([]*host.IO, depth)
	at := func(io *host.IO) []byte { return m.model[int(io.Cmd.SLBA()-m.from)*testBlock:][:io.Len] }
	data := func(io *host.IO) []byte { return m.mem.Bytes()[io.Off:][:io.Len] }
	for started, out := 0, 0; started < n || out > 0; {
		for i := range jobs {
			j := &jobs[i]
			if j.busy || started == n {
				continue
			}
			most := min(m.max, part) / testBlock
			blocks := 1 + m.rng.IntN(most)
			lba := i*part/testBlock + m.rng.IntN(part/testBlock-blocks+1)
			op := nvme.OpRead
			if m.rng.IntN(2) == 0 {
				op = nvme.OpWrite
			}
			j.io.SetRW(op, 1, m.from+uint64(lba), uint32(blocks))
			j.io.SetData(m.mem, uint32(i*m.max), uint32(blocks*testBlock))
			j.io.Tag = uint64(i)
			b := data(&j.io)
			if op == nvme.OpWrite {
				for k := 0; k < len(b); k += 8 {
					b[k] = byte(m.rng.Uint32())
				}
				copy(at(&j.io), b)
			} else {
				clear(b)
			}
			if err := m.q.Submit(&j.io); err != nil {
				return err
			}
			j.busy = true
			out++
			started++
		}
		if err := m.q.Flush(); err != nil {
			return err
		}
		k, err := m.q.Poll(done)
		if err != nil {
			return err
		}
		if k == 0 {
			if err := m.q.Wait(time.Second); err != nil {
				return err
			}
		}
		for _, io := range done[:k] {
			jobs[io.Tag].busy = false
			out--
			if !io.Status.IsOK() {
				return fmt.Errorf("%s of %d bytes: %v", io.Cmd.Opcode().Name(false), io.Len, io.Status)
			}
			if io.Cmd.Opcode() == nvme.OpRead && !bytes.Equal(data(io), at(io)) {
				return fmt.Errorf("a read of %d bytes at block %d brought other data than was written", io.Len, io.Cmd.SLBA())
			}
		}
	}
	return nil
}

func TestRoundTrip(t *testing.T) {
	for _, test := range []struct {
		name   string
		config Config
		host   func(*host.Options)
	}{
		{"plain", Config{}, nil},
		{"digests", Config{}, func(o *host.Options) { o.HeaderDigest, o.DataDigest = true, true }},
		{"header digest", Config{}, func(o *host.Options) { o.HeaderDigest = true }},
		{"data digest, split", Config{MaxC2HData: 128 << 10}, func(o *host.Options) { o.DataDigest = true }},
		{"small H2CData, several R2Ts", Config{MaxH2CData: 4096, MaxR2T: 8}, func(o *host.Options) { o.MaxR2T = 7 }},
		{"small H2CData, several R2Ts, digests", Config{MaxH2CData: 4096, MaxR2T: 4}, func(o *host.Options) { o.MaxR2T, o.DataDigest = 3, true }},
		{"no in-capsule data", Config{InCapsuleData: NoInCapsuleData}, nil},
		{"in-capsule data not used", Config{}, func(o *host.Options) { o.NoInCapsule = true }},
		{"alignment", Config{CPDA: 31}, func(o *host.Options) { o.DataAlign, o.HeaderDigest, o.DataDigest = 31, true, true }},
		{"odd alignment", Config{CPDA: 2}, func(o *host.Options) { o.DataAlign, o.HeaderDigest = 6, true }},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, worldOptions{config: test.config})
			o := w.options()
			if test.host != nil {
				test.host(&o)
			}
			c := dial(t, o)
			ns, err := c.Namespace(context.Background(), 1)
			if err != nil || ns.Bytes() != testBytes {
				t.Fatalf("namespace %+v, %v", ns, err)
			}
			var wg sync.WaitGroup
			for i, max := range []int{512, 16 << 10, 256 << 10, 1 << 20} {
				depth := 8
				if max == 1<<20 {
					depth = 2
				}
				m := newMover(t, c, openQueue(t, c, depth), max, uint64(i)*8192, 4<<20)
				wg.Go(func() {
					if err := m.run(150); err != nil {
						t.Errorf("up to %d bytes: %v", max, err)
					}
				})
			}
			wg.Wait()
			if st := w.stats(); st.FatalErrors != 0 || st.DataDigestErrors != 0 || st.HeaderDigestErrors != 0 || st.BadSGLs != 0 {
				t.Errorf("the target found errors: %+v", st)
			}
		})
	}
}
