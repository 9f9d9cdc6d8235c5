package stripe

import "rocet/memory"

// layout says where a stripe's blocks are: unit u, of unit blocks, is unit u/width of member u%width.
type layout struct {
	unit  uint64 // blocks
	width uint64 // members
}

// piece is a run of blocks that is contiguous on one member.
type piece struct {
	member int
	lba    uint64 // the member's
	blocks uint64
}

// first is the piece that a range begins with: up to the end of its unit.
func (l layout) first(lba, blocks uint64) piece {
	u, off := lba/l.unit, lba%l.unit
	return piece{int(u % l.width), u/l.width*l.unit + off, min(blocks, l.unit-off)}
}

// on is what a range covers of a member: always one run, since units that follow each other on a member are neighbours
// there.
func (l layout) on(member int, lba, blocks uint64) (piece, bool) {
	u0, last := lba/l.unit, (lba+blocks-1)/l.unit
	m := uint64(member)
	// The first and the last unit of the range that lie on this member.
	a := u0 + (m+l.width-u0%l.width)%l.width
	if a > last {
		return piece{}, false
	}
	z := last - (last%l.width+l.width-m)%l.width
	start, end := a/l.width*l.unit, (z/l.width+1)*l.unit
	if a == u0 {
		start += lba % l.unit
	}
	if z == last {
		end -= l.unit - 1 - (lba+blocks-1)%l.unit
	}
	return piece{member, start, end - start}, true
}

// blocks is how many the stripe has over members of the given size.
func (l layout) blocks(member uint64) uint64 { return member / l.unit * l.unit * l.width }

// preferred is what the stripe has for a size that its members work in: parts of it must come out whole on each of them.
// 0 is none, which is also what is too much to say.
func (l layout) preferred(blocks uint32) uint32 {
	if uint64(blocks) <= l.unit {
		return blocks
	}
	if n := uint64(blocks) * l.width; n <= 0x10000 {
		return uint32(n)
	}
	return 0
}

// cursor walks over an operation's data.
type cursor struct {
	segs []memory.Segment
	off  uint32 // in segs[0]
}

// take appends the segments of the next n bytes to out.
func (c *cursor) take(out []memory.Segment, n uint32) []memory.Segment {
	for n > 0 {
		s := c.segs[0].Slice(c.off, min(n, c.segs[0].Len-c.off))
		out = append(out, s)
		n -= s.Len
		c.off += s.Len
		if c.off == c.segs[0].Len {
			c.segs, c.off = c.segs[1:], 0
		}
	}
	return out
}
