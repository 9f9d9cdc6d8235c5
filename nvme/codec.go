package nvme

import (
	"encoding/binary"
	"fmt"
)

// codec walks over a structure's wire form. A structure describes its layout
// once, in a method layout(*codec), and the same description encodes and
// decodes: the two cannot disagree. at() states the offsets that the
// specification's figures give, and a wrong one panics in the first test.
type codec struct {
	b      []byte
	off    int
	encode bool
}

// layouter is a structure of fixed wire size.
type layouter interface{ layout(c *codec) }

// encodeTo writes v to the first size bytes of dst. Like the functions of
// encoding/binary it panics when dst is shorter: that is a mistake in the
// program and not in its input.
func encodeTo(dst []byte, size int, v layouter) int {
	c := codec{b: dst[:size], encode: true}
	v.layout(&c)
	c.at(size)
	return size
}

// decodeFrom reads v from the first size bytes of src, which may be longer.
func decodeFrom(src []byte, size int, name string, v layouter) error {
	if len(src) < size {
		return tooShort(name, len(src), size)
	}
	c := codec{b: src[:size]}
	v.layout(&c)
	c.at(size)
	return nil
}

func tooShort(name string, have, want int) error {
	return fmt.Errorf("%s: %d bytes are too few, need %d", name, have, want)
}

func (c *codec) at(off int) {
	if c.off != off {
		panic(fmt.Sprintf("nvme: layout is at byte %d, the specification says %d", c.off, off))
	}
}

func (c *codec) next(n int) []byte {
	b := c.b[c.off : c.off+n]
	c.off += n
	return b
}

// reserved writes zeros up to byte end and skips them when reading.
func (c *codec) reserved(end int) {
	b := c.next(end - c.off)
	if c.encode {
		clear(b)
	}
}

func (c *codec) u8(v *uint8) {
	b := c.next(1)
	if c.encode {
		b[0] = *v
		return
	}
	*v = b[0]
}

func (c *codec) u16(v *uint16) {
	b := c.next(2)
	if c.encode {
		binary.LittleEndian.PutUint16(b, *v)
		return
	}
	*v = binary.LittleEndian.Uint16(b)
}

func (c *codec) u32(v *uint32) {
	b := c.next(4)
	if c.encode {
		binary.LittleEndian.PutUint32(b, *v)
		return
	}
	*v = binary.LittleEndian.Uint32(b)
}

func (c *codec) u64(v *uint64) {
	b := c.next(8)
	if c.encode {
		binary.LittleEndian.PutUint64(b, *v)
		return
	}
	*v = binary.LittleEndian.Uint64(b)
}

func (c *codec) u128(v *Uint128) {
	c.u64(&v.Lo)
	c.u64(&v.Hi)
}

func (c *codec) bytes(v []byte) {
	b := c.next(len(v))
	if c.encode {
		copy(b, v)
		return
	}
	copy(v, b)
}
