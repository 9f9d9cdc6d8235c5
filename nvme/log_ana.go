package nvme

import (
	"encoding/binary"
	"fmt"
)

// ANAState is an asymmetric namespace access state: Base 2.1 section
// 5.1.12.1.13, figure "ANA Group Descriptor".
type ANAState uint8

// ANA states.
const (
	ANAOptimized      ANAState = 0x1
	ANANonOptimized   ANAState = 0x2
	ANAInaccessible   ANAState = 0x3
	ANAPersistentLoss ANAState = 0x4
	ANAChange         ANAState = 0xf
)

func (s ANAState) String() string {
	switch s {
	case ANAOptimized:
		return "optimized"
	case ANANonOptimized:
		return "non-optimized"
	case ANAInaccessible:
		return "inaccessible"
	case ANAPersistentLoss:
		return "persistent-loss"
	case ANAChange:
		return "change"
	}
	return unknownName("ANA state", uint64(s))
}

// ANAReturnGroupsOnly is RGO in Get Log Page's LSP: leave the namespaces out.
const ANAReturnGroupsOnly = 1 << 0

const (
	anaHeaderSize = 16
	anaGroupSize  = 32
)

// ANAGroup is an ANA group descriptor.
type ANAGroup struct {
	ID          uint32
	ChangeCount uint64
	State       ANAState
	NSIDs       []uint32 // ascending
}

// ANALog is the Asymmetric Namespace Access log, 0Ch: Base 2.1 section
// 5.1.12.1.13.
type ANALog struct {
	ChangeCount uint64
	Groups      []ANAGroup // ascending by ID, at most 65535
}

// Size returns how many bytes MarshalTo writes.
func (l *ANALog) Size() int {
	n := anaHeaderSize
	for i := range l.Groups {
		n += anaGroupSize + 4*len(l.Groups[i].NSIDs)
	}
	return n
}

// MarshalTo writes Size bytes.
func (l *ANALog) MarshalTo(b []byte) int {
	size := l.Size()
	b = b[:size]
	clear(b)
	binary.LittleEndian.PutUint64(b[0:8], l.ChangeCount)
	binary.LittleEndian.PutUint16(b[8:10], uint16(len(l.Groups)))
	b = b[anaHeaderSize:]
	for i := range l.Groups {
		g := &l.Groups[i]
		binary.LittleEndian.PutUint32(b[0:4], g.ID)
		binary.LittleEndian.PutUint32(b[4:8], uint32(len(g.NSIDs)))
		binary.LittleEndian.PutUint64(b[8:16], g.ChangeCount)
		b[16] = byte(g.State) & 0xf
		b = b[anaGroupSize:]
		for _, id := range g.NSIDs {
			binary.LittleEndian.PutUint32(b, id)
			b = b[4:]
		}
	}
	return size
}

// UnmarshalBinary reads a whole log; bytes after it are ignored.
func (l *ANALog) UnmarshalBinary(b []byte) error {
	if len(b) < anaHeaderSize {
		return tooShort("ANA log", len(b), anaHeaderSize)
	}
	log := ANALog{ChangeCount: binary.LittleEndian.Uint64(b[0:8])}
	n := int(binary.LittleEndian.Uint16(b[8:10]))
	b = b[anaHeaderSize:]
	for i := range n {
		if len(b) < anaGroupSize {
			return fmt.Errorf("ANA log: group %d of %d: %w", i+1, n, tooShort("descriptor", len(b), anaGroupSize))
		}
		g := ANAGroup{
			ID:          binary.LittleEndian.Uint32(b[0:4]),
			ChangeCount: binary.LittleEndian.Uint64(b[8:16]),
			State:       ANAState(b[16] & 0xf),
		}
		nsids := binary.LittleEndian.Uint32(b[4:8])
		b = b[anaGroupSize:]
		// Compared in 64 bits, and before anything of that size is made.
		if uint64(nsids)*4 > uint64(len(b)) {
			return fmt.Errorf("ANA log: group %d has %d namespaces, %d bytes are left for them", g.ID, nsids, len(b))
		}
		for range nsids {
			g.NSIDs = append(g.NSIDs, binary.LittleEndian.Uint32(b))
			b = b[4:]
		}
		log.Groups = append(log.Groups, g)
	}
	*l = log
	return nil
}
