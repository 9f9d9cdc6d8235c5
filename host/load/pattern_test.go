package load

import (
	"strings"
	"testing"
)

func TestPattern(t *testing.T) {
	for _, size := range []int{minPattern, 512, 4096} {
		p := pattern{block: size, seed: 42}
		b, scratch := make([]byte, 3*size), make([]byte, size)
		p.fill(b, 100, 7)
		for i := range 3 {
			if m := p.check(b[i*size:][:size], scratch, uint64(100+i), 7); m != nil {
				t.Fatal(m)
			}
			if m := p.check(b[i*size:][:size], scratch, uint64(100+i), 0); m != nil {
				t.Fatalf("any generation: %v", m)
			}
		}
		// Every byte counts.
		for i := range size {
			b[i] ^= 0x10
			m := p.check(b[:size], scratch, 100, 7)
			if m == nil || m.Offset != i || m.LBA != 100 {
				t.Fatalf("byte %d of %d: %+v", i, size, m)
			}
			b[i] ^= 0x10
		}
		for _, test := range []struct {
			lba, gen uint64
			want     string
		}{{101, 7, "LBA 100"}, {100, 8, "generation 7, 8 was written last"}} {
			if m := p.check(b[:size], scratch, test.lba, test.gen); m == nil || !strings.Contains(m.Note, test.want) {
				t.Errorf("%+v, want %q", m, test.want)
			}
		}
		other := pattern{block: size, seed: 43}
		if m := other.check(b[:size], scratch, 100, 7); m == nil || !strings.Contains(m.Note, "another run") {
			t.Errorf("%+v", m)
		}
		copy(b, b[size:size+size/2]) // torn
		if m := p.check(b[:size], scratch, 100, 7); m == nil || !strings.Contains(m.Note, "torn") {
			t.Errorf("%+v", m)
		}
	}
}

func TestPatternBlocksDiffer(t *testing.T) {
	p := pattern{block: 512, seed: 1}
	a, b := make([]byte, 512), make([]byte, 512)
	p.one(a, 1, 1, 1)
	p.one(b, 2, 1, 1)
	same := 0
	for i := 32; i < 504; i++ {
		if a[i] == b[i] {
			same++
		}
	}
	if same > 40 {
		t.Errorf("%d bytes of two blocks are the same", same)
	}
}

func BenchmarkFill(b *testing.B) {
	p := pattern{block: 4096, seed: 1}
	buf := make([]byte, 4096)
	b.SetBytes(4096)
	b.ReportAllocs()
	for i := range b.N {
		p.fill(buf, uint64(i), 1)
	}
}

func TestSizeString(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 512: "512 B", 4096: "4 KiB", 1 << 20: "1 MiB", 3 << 30: "3 GiB", 1<<40 + 1: "1099511627777 B"} {
		if got := SizeString(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
