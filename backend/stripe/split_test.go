package stripe

import (
	"testing"

	"rocet/memory"
)

// FuzzLayout checks the arithmetic against the definition: block by block.
func FuzzLayout(f *testing.F) {
	f.Add(uint64(0), uint16(1), uint8(3), uint8(2))
	f.Add(uint64(7), uint16(100), uint8(0), uint8(5))
	f.Add(uint64(1)<<40-3, uint16(4000), uint8(5), uint8(64))
	f.Fuzz(func(t *testing.T, lba uint64, n uint16, unit, width uint8) {
		l := layout{unit: 1 << (unit % 12), width: 2 + uint64(width)%63}
		lba %= 1 << 50
		blocks := uint64(n)%5000 + 1
		where := func(lba uint64) (int, uint64) {
			u := lba / l.unit
			return int(u % l.width), u/l.width*l.unit + lba%l.unit
		}
		got := make(map[int][]uint64, l.width)
		for i := range blocks {
			m, at := where(lba + i)
			got[m] = append(got[m], at)
		}
		sum := uint64(0)
		for m := range int(l.width) {
			p, ok := l.on(m, lba, blocks)
			want := got[m]
			if ok != (len(want) > 0) {
				t.Fatalf("%+v, blocks %d+%d: member %d has %d, on says %v", l, lba, blocks, m, len(want), ok)
			}
			if !ok {
				continue
			}
			if p.member != m || p.lba != want[0] || p.blocks != uint64(len(want)) || want[len(want)-1] != p.lba+p.blocks-1 {
				t.Fatalf("%+v, blocks %d+%d: member %d has %d..%d, on says %+v", l, lba, blocks, m, want[0], want[len(want)-1], p)
			}
			sum += p.blocks
		}
		if sum != blocks {
			t.Fatalf("%+v, blocks %d+%d: the shares are %d blocks", l, lba, blocks, sum)
		}
		for at, left := lba, blocks; left > 0; {
			p := l.first(at, left)
			m, want := where(at)
			mEnd, end := where(at + p.blocks - 1)
			if p.blocks == 0 || p.blocks > left || p.member != m || p.lba != want || mEnd != m || end != want+p.blocks-1 {
				t.Fatalf("%+v, blocks %d+%d: first says %+v", l, at, left, p)
			}
			at, left = at+p.blocks, left-p.blocks
		}
	})
}

func TestBlocks(t *testing.T) {
	l := layout{unit: 8, width: 3}
	for member, want := range map[uint64]uint64{0: 0, 7: 0, 8: 24, 15: 24, 16: 48} {
		if got := l.blocks(member); got != want {
			t.Errorf("members of %d blocks make %d, want %d", member, got, want)
		}
	}
}

func TestCursor(t *testing.T) {
	c := cursor{segs: []memory.Segment{{Addr: 0x1000, Len: 100}, {Addr: 0x9000, Len: 50, Slab: 1}, {Addr: 0x5000, Len: 10}}}
	var got []memory.Segment
	for _, n := range []uint32{60, 60, 0, 40} {
		got = c.take(got, n)
	}
	want := []memory.Segment{
		{Addr: 0x1000, Len: 60}, {Addr: 0x103c, Len: 40}, {Addr: 0x9000, Len: 20, Slab: 1}, {Addr: 0x9014, Len: 30, Slab: 1}, {Addr: 0x5000, Len: 10},
	}
	if len(got) != len(want) {
		t.Fatalf("%d segments, want %d: %v", len(got), len(want), got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("segment %d is %+v, want %+v", i, got[i], want[i])
		}
	}
}
