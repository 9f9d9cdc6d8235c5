package memory

import (
	"bytes"
	"strings"
	"testing"

	"rocet/backend/backendtest"
	mem "rocet/memory"
	"rocet/nvme"
	"rocet/target"
)

func subject(block uint32, grown bool) backendtest.Subject {
	s := backendtest.Subject{Zeroed: true}
	s.Open = func(t testing.TB, rig *backendtest.Rig) target.Backend {
		t.Helper()
		c := Config{Pool: rig.Pool, Size: 32 << 20, BlockSize: block}
		if !grown {
			return open(t, c)
		}
		c.Size = 4 << 20
		b := open(t, c)
		for _, size := range []uint64{6 << 20, 16<<20 + 4096} {
			if err := b.Resize(size / uint64(block)); err != nil {
				t.Fatal(err)
			}
		}
		return b
	}
	if grown {
		s.Seams = []uint64{4 << 20, 6 << 20}
	}
	return s
}

func open(t testing.TB, c Config) *Backend {
	t.Helper()
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestConformance(t *testing.T) {
	t.Run("512", func(t *testing.T) { backendtest.Run(t, subject(512, false)) })
	t.Run("4096", func(t *testing.T) { backendtest.Run(t, subject(4096, false)) })
	t.Run("grown", func(t *testing.T) { backendtest.Run(t, subject(4096, true)) })
}

func TestNothingIsAllocated(t *testing.T) { backendtest.CheckAllocs(t, subject(4096, true)) }

func TestConfigErrors(t *testing.T) {
	rig := backendtest.NewRig(t, 1)
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Size: 1 << 20, BlockSize: 1000}, "blocks of 1000 bytes"},
		{Config{Size: 1 << 20, BlockSize: 256}, "blocks of 256 bytes"},
		{Config{Size: 1 << 20, BlockSize: 128 << 10}, "blocks of 131072 bytes"},
		{Config{BlockSize: 512}, "0 bytes"},
		{Config{Size: 4097, BlockSize: 4096}, "4097 bytes are no whole number"},
	} {
		c.cfg.Pool = rig.Pool
		if _, err := New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q", c.cfg, err, c.want)
		}
	}
}

// TestReadsAreLent: the data of a read is the namespace's own memory, and nothing is copied.
func TestReadsAreLent(t *testing.T) {
	rig := backendtest.NewRig(t, 1)
	b := open(t, Config{Pool: rig.Pool, Size: 8 << 20, BlockSize: 512})
	q := rig.OpenQueue(t, b, 0)
	data := backendtest.Pattern(1, 8192)
	q.Write(16, data)
	copied := func() uint64 { return rig.Groups[0].Stats().Copied[target.CopyMemory] }
	if n := copied(); n != 8192 {
		t.Errorf("a write of 8192 bytes copied %d", n)
	}
	c := q.Start(target.OpRead, 0, 16, 16, nil, backendtest.Whole)
	if st, _ := c.Wait(); st != nvme.StatusSuccess {
		t.Fatal(st)
	}
	slab := b.layout.Load().slabs[0].slab
	if len(c.IO.Data) != 1 || c.IO.Data[0] != slab.Segment(8192, 8192) {
		t.Errorf("lent %+v", c.IO.Data)
	}
	if n := copied(); n != 8192 {
		t.Errorf("a read copied %d bytes", n-8192)
	}
	if err := b.Close(); err == nil || !strings.Contains(err.Error(), "1 queues open") {
		t.Errorf("closed with a queue open: %v", err)
	}
	q.Close()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err == nil {
		t.Error("closed twice")
	}
	if st := rig.Pool.Stats(); st.SlabBytes != 0 {
		t.Errorf("%d bytes of slabs left", st.SlabBytes)
	}
}

func TestResize(t *testing.T) {
	rig := backendtest.NewRig(t, 1)
	b := open(t, Config{Pool: rig.Pool, Size: 4 << 20, BlockSize: 4096})
	defer b.Close()
	q := rig.OpenQueue(t, b, 0)
	defer q.Close()
	var events []target.Event
	b.Watch(func(e target.Event) { events = append(events, e) })
	q.Write(1000, backendtest.Pattern(2, 24*4096)) // up to the end
	resize := func(blocks uint64, slabs int) {
		t.Helper()
		if err := b.Resize(blocks); err != nil {
			t.Fatal(err)
		}
		if got := b.Info().Blocks; got != blocks || len(b.layout.Load().slabs) != slabs {
			t.Errorf("%d blocks in %d slabs; want %d in %d", got, len(b.layout.Load().slabs), blocks, slabs)
		}
	}
	resize(1010, 1)
	if st, _ := q.Do(target.OpRead, 0, 1010, 1, nil); st.Code() != nvme.StatusLBAOutOfRange {
		t.Errorf("a read of what was cut off: %v", st)
	}
	if got := q.Read(1000, 10); !bytes.Equal(got, backendtest.Pattern(2, 24*4096)[:10*4096]) {
		t.Error("what was left has changed")
	}
	resize(1024+512, 2) // back and beyond
	if got := q.Read(1010, 30); !bytes.Equal(got, make([]byte, 30*4096)) {
		t.Error("what was cut off came back with its data")
	}
	if got := q.Read(1000, 10); !bytes.Equal(got, backendtest.Pattern(2, 24*4096)[:10*4096]) {
		t.Error("what was left has changed")
	}
	resize(1024+512, 2) // no change
	if len(events) != 2 || events[0] != target.EventResized {
		t.Errorf("events %v, want two of a resize", events)
	}
	if b.Resize(0) == nil || b.Resize(1<<60) == nil {
		t.Error("resized to nothing, or to more than there can be")
	}
}

// TestManySlabs: the biggest operation over the smallest slabs still fits in an IO's segments.
func TestManySlabs(t *testing.T) {
	rig := backendtest.NewRig(t, 1)
	b := open(t, Config{Pool: rig.Pool, Size: 2 << 20, BlockSize: 4096})
	defer b.Close()
	for size := uint64(4 << 20); size <= 24<<20; size += 2 << 20 {
		if err := b.Resize(size / 4096); err != nil {
			t.Fatal(err)
		}
	}
	q := rig.OpenQueue(t, b, 0)
	defer q.Close()
	got := q.Read(1, maxTransfer/4096)
	if !bytes.Equal(got, make([]byte, mem.ChunkSize*8)) {
		t.Error("wrong data")
	}
}

func BenchmarkBackend(b *testing.B) {
	b.Run("read4k", func(b *testing.B) { backendtest.Bench(b, subject(4096, false), target.OpRead, 4096, 32) })
	b.Run("write4k", func(b *testing.B) { backendtest.Bench(b, subject(4096, false), target.OpWrite, 4096, 32) })
	b.Run("write128k", func(b *testing.B) { backendtest.Bench(b, subject(4096, false), target.OpWrite, 128<<10, 8) })
}
