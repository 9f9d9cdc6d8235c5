package null

import (
	"strings"
	"testing"

	"rocet/backend/backendtest"
	"rocet/target"
)

func subject(block uint32) backendtest.Subject {
	return backendtest.Subject{
		Forgets: true,
		Open: func(t testing.TB, rig *backendtest.Rig) target.Backend {
			t.Helper()
			b, err := New(Config{Pool: rig.Pool, Size: 1 << 40, BlockSize: block})
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
	}
}

func TestConformance(t *testing.T) {
	t.Run("512", func(t *testing.T) { backendtest.Run(t, subject(512)) })
	t.Run("4096", func(t *testing.T) { backendtest.Run(t, subject(4096)) })
}

func TestNothingIsAllocated(t *testing.T) { backendtest.CheckAllocs(t, subject(4096)) }

func TestConfigAndClose(t *testing.T) {
	rig := backendtest.NewRig(t, 1)
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Size: 1 << 20, BlockSize: 1000}, "blocks of 1000 bytes"},
		{Config{BlockSize: 512}, "0 bytes"},
		{Config{Size: 4097, BlockSize: 4096}, "4097 bytes are no whole number"},
	} {
		c.cfg.Pool = rig.Pool
		if _, err := New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q", c.cfg, err, c.want)
		}
	}
	b := subject(4096).Open(t, rig)
	q := rig.OpenQueue(t, b, 0)
	if got := q.Read(0, 8<<20/4096); len(got) != 8<<20 { // more than the memory behind it
		t.Errorf("read %d bytes", len(got))
	}
	if err := b.Close(); err == nil || !strings.Contains(err.Error(), "1 queues open") {
		t.Errorf("closed with a queue open: %v", err)
	}
	q.Close()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if n := rig.Pool.Stats().SlabBytes; n != 0 {
		t.Errorf("%d bytes of slabs left", n)
	}
}

func BenchmarkBackend(b *testing.B) {
	b.Run("read4k", func(b *testing.B) { backendtest.Bench(b, subject(4096), target.OpRead, 4096, 32) })
	b.Run("write4k", func(b *testing.B) { backendtest.Bench(b, subject(4096), target.OpWrite, 4096, 32) })
}
