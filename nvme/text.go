package nvme

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/big"
	"strings"
)

// PutASCII writes s to a field of ASCII characters, left-justified and padded
// with spaces (Base 2.1 section 1.4.2, "ASCII strings"). A longer s is cut;
// characters outside 20h to 7Eh become '?'.
func PutASCII(field []byte, s string) {
	n := copy(field, s)
	for i := range field[:n] {
		if c := field[i]; c < ' ' || c > '~' {
			field[i] = '?'
		}
	}
	for i := n; i < len(field); i++ {
		field[i] = ' '
	}
}

// ASCII returns a field of ASCII characters without the padding. Drives exist
// that pad with NUL instead of spaces; both are taken off.
func ASCII(field []byte) string { return strings.TrimRight(string(field), " \x00") }

// Lengths of NVMe Qualified Names: Base 2.1 section 4.7.
const (
	NQNFieldSize = 256 // every NQN field on the wire
	NQNMaxLength = 223 // bytes of a name, without its NUL
)

// DiscoveryNQN is the well-known name of a discovery subsystem.
const DiscoveryNQN = "nqn.2014-08.org.nvmexpress.discovery"

// NQNUUIDPrefix is how names of the form "nqn...uuid:<UUID>" begin.
const NQNUUIDPrefix = "nqn.2014-08.org.nvmexpress:uuid:"

// NQNField is an NQN on the wire: UTF-8, NUL-terminated, zero-padded.
type NQNField [NQNFieldSize]byte

// MakeNQNField returns the field for a name that ValidNQN accepts; it panics if
// the name does not fit.
func MakeNQNField(nqn string) NQNField {
	var f NQNField
	if len(nqn) >= len(f) {
		panic(fmt.Sprintf("nvme: NQN of %d bytes does not fit its field", len(nqn)))
	}
	copy(f[:], nqn)
	return f
}

// Parse returns the name in the field, see ParseNQN.
func (f *NQNField) Parse() (string, error) { return ParseNQN(f[:]) }

// String returns the bytes before the first NUL, unchecked.
func (f *NQNField) String() string {
	if i := bytes.IndexByte(f[:], 0); i >= 0 {
		return string(f[:i])
	}
	return string(f[:])
}

// ParseNQN returns the NUL-terminated name in a field and checks it with ValidNQN.
func ParseNQN(field []byte) (string, error) {
	i := bytes.IndexByte(field, 0)
	if i < 0 {
		return "", fmt.Errorf("NQN: no NUL in its %d bytes", len(field))
	}
	nqn := string(field[:i])
	return nqn, ValidNQN(nqn)
}

// UUID is a universally unique identifier in network order, as Connect data,
// namespace identification descriptors and host identifiers carry it.
type UUID [16]byte

// ParseUUID reads the form 8-4-4-4-12 of hexadecimal digits.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return u, fmt.Errorf("UUID %q: want 8-4-4-4-12 hexadecimal digits", s)
	}
	digits := s[0:8] + s[9:13] + s[14:18] + s[19:23] + s[24:36]
	if _, err := hex.Decode(u[:], []byte(digits)); err != nil {
		return UUID{}, fmt.Errorf("UUID %q: want 8-4-4-4-12 hexadecimal digits: %w", s, err)
	}
	return u, nil
}

func (u UUID) String() string {
	h := hex.EncodeToString(u[:])
	return h[0:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:32]
}

// IsZero reports the nil UUID.
func (u UUID) IsZero() bool { return u == UUID{} }

// NGUID is a namespace globally unique identifier, big-endian on the wire.
type NGUID [16]byte

func (g NGUID) String() string { return hex.EncodeToString(g[:]) }

// IsZero reports that the field is not used.
func (g NGUID) IsZero() bool { return g == NGUID{} }

// EUI64 is an IEEE extended unique identifier, big-endian on the wire.
type EUI64 [8]byte

func (e EUI64) String() string { return hex.EncodeToString(e[:]) }

// IsZero reports that the field is not used.
func (e EUI64) IsZero() bool { return e == EUI64{} }

// Uint128 is a 128-bit counter or size.
type Uint128 struct{ Lo, Hi uint64 }

func (u Uint128) String() string {
	v := new(big.Int).Lsh(new(big.Int).SetUint64(u.Hi), 64)
	return v.Or(v, new(big.Int).SetUint64(u.Lo)).String()
}
