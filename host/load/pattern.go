package load

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// pattern is what verification writes to each block of a namespace:
//
//	byte  0..7      8..15  16..23      24..31  32..n-9        n-8..n-5  n-4..n-1
//	      "ROCETVFY" LBA    generation  seed    words of these CRC32C    its complement
//
// The checksum is of all that comes before it. So a block tells where it belongs, and how old it is.
type pattern struct {
	block int
	seed  uint64
}

const (
	magic      = 0x5946565445434f52 // "ROCETVFY"
	minPattern = 64
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func putWord(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }
func word(b []byte) uint64       { return binary.LittleEndian.Uint64(b) }

// fill writes the blocks from lba on.
func (p *pattern) fill(b []byte, lba, gen uint64) {
	for ; len(b) > 0; b = b[p.block:] {
		p.one(b[:p.block], lba, gen, p.seed)
		lba++
	}
}

func (p *pattern) one(b []byte, lba, gen, seed uint64) {
	putWord(b, magic)
	putWord(b[8:], lba)
	putWord(b[16:], gen)
	putWord(b[24:], seed)
	x := (lba*0x9e3779b97f4a7c15 ^ gen*0xd1342543de82ef95 ^ seed) | 1
	n := len(b) - 8
	for i := 32; i < n; i += 8 {
		x += 0x9e3779b97f4a7c15
		putWord(b[i:], x^x>>29)
	}
	sum := crc32.Checksum(b[:n], castagnoli)
	putWord(b[n:], uint64(sum)|uint64(^sum)<<32)
}

// Mismatch is the first place where other data came back than was written.
type Mismatch struct {
	LBA      uint64 `json:"lba"`
	Offset   int    `json:"offset"` // in the block
	Expected string `json:"expected"`
	Found    string `json:"found"`
	Note     string `json:"note"`
}

func (m *Mismatch) String() string {
	return fmt.Sprintf("LBA %d, byte %d: expected %s, found %s (%s)", m.LBA, m.Offset, m.Expected, m.Found, m.Note)
}

// check compares a block with what must be there. Generation 0: any that the block itself claims. scratch has its size.
func (p *pattern) check(b, scratch []byte, lba, gen uint64) *Mismatch {
	seed := p.seed
	if gen == 0 {
		gen, seed = word(b[16:]), word(b[24:])
	}
	p.one(scratch, lba, gen, seed)
	if bytes.Equal(b, scratch) {
		return nil
	}
	at := 0
	for b[at] == scratch[at] {
		at++
	}
	end := min(at+8, len(b))
	return &Mismatch{LBA: lba, Offset: at, Expected: fmt.Sprintf("%x", scratch[at:end]), Found: fmt.Sprintf("%x", b[at:end]), Note: p.explain(b, lba, gen)}
}

// explain says what a wrong block looks like.
func (p *pattern) explain(b []byte, lba, gen uint64) string {
	n := len(b) - 8
	sum := crc32.Checksum(b[:n], castagnoli)
	whole := word(b[n:]) == uint64(sum)|uint64(^sum)<<32
	switch {
	case word(b) != magic && bytes.Count(b, []byte{0}) == len(b):
		return "all zeros"
	case word(b) != magic:
		return "not a block that rocet perf --verify wrote"
	case !whole:
		return fmt.Sprintf("its checksum is wrong: the block is torn or damaged; it claims to be LBA %d, generation %d", word(b[8:]), word(b[16:]))
	case word(b[8:]) != lba:
		return fmt.Sprintf("it is the whole block of LBA %d: a write or a read went to the wrong place", word(b[8:]))
	case word(b[24:]) != p.seed:
		return "it is a whole block of another run: the write was lost"
	case word(b[16:]) != gen:
		return fmt.Sprintf("it is the whole block of generation %d, %d was written last: a write was lost", word(b[16:]), gen)
	}
	return "its checksum fits its wrong contents"
}
