package nvme

import (
	"bytes"
	"reflect"
	"testing"
)

// FuzzStructures decodes each structure of fixed size, encodes it and decodes it
// again: both must agree, and every byte must come out as it was or, where it is
// reserved, as zero.
func FuzzStructures(f *testing.F) {
	f.Add(uint8(0), []byte("\x86\x80\x86\x80serial              model"))
	f.Add(uint8(6), []byte{16: 0xff, 17: 0xff, 256: 'n', 512: 'n'})
	f.Add(uint8(7), []byte{0, 0, 1, 0, 128, 0, 127, 0})
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		l := layouts[int(which)%len(layouts)]
		// Data that is too short stands for the structure's beginning;
		// TestTooShort has the errors.
		full, b := make([]byte, max(l.size, len(data))), make([]byte, l.size)
		copy(full, data)
		x, y := l.new(), l.new()
		if err := x.UnmarshalBinary(full); err != nil {
			if g, ok := x.(*NamespaceGranularities); ok && g.Last >= MaxGranularities {
				return
			}
			t.Fatalf("%T: %v", x, err)
		}
		x.MarshalTo(b)
		for i, v := range b {
			if v != 0 && v != full[i] {
				t.Fatalf("%T: byte %d was %#x and is %#x", x, i, full[i], v)
			}
		}
		if err := y.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(x, y) {
			t.Fatalf("%T: %v\n%+v\n%+v", x, err, x, y)
		}
	})
}

func FuzzNamespaceIDs(f *testing.F) {
	f.Add([]byte{1, 8, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 4, 1, 0, 0, 2})
	f.Add(bytes.Repeat([]byte{0x77, 200}, 2048))
	f.Fuzz(func(t *testing.T, data []byte) {
		// A list is always of full length: shorter data stands for its beginning.
		full := make([]byte, IdentifySize)
		copy(full, data)
		var x, y NamespaceIDs
		if err := x.UnmarshalBinary(full); err != nil {
			return
		}
		x.MarshalTo(full)
		if err := y.UnmarshalBinary(full); err != nil || x != y {
			t.Fatalf("%+v, then %+v, %v", x, y, err)
		}
	})
}

func FuzzLists(f *testing.F) {
	f.Add([]byte{2, 0, 1, 0, 2, 0})
	f.Add([]byte{0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		full, b := make([]byte, IdentifySize), make([]byte, IdentifySize)
		copy(full, data)
		if ids, err := ParseNSIDList(full); err != nil {
			t.Fatal(err)
		} else if PutNSIDList(b, ids); !reflect.DeepEqual(mustParse(ParseNSIDList(b)), ids) {
			t.Fatal("namespace list")
		}
		if ids, err := ParseControllerList(full); err == nil {
			if PutControllerList(b, ids); !reflect.DeepEqual(mustParse(ParseControllerList(b)), ids) {
				t.Fatal("controller list")
			}
		}
		if e, err := ParseUUIDList(full); err != nil {
			t.Fatal(err)
		} else if PutUUIDList(b, e); !reflect.DeepEqual(mustParse(ParseUUIDList(b)), e) {
			t.Fatal("UUID list")
		}
		if s, err := ParseCommandSetCombinations(full); err != nil {
			t.Fatal(err)
		} else if PutCommandSetCombinations(b, s); !reflect.DeepEqual(mustParse(ParseCommandSetCombinations(b)), s) {
			t.Fatal("command set combinations")
		}
	})
}

func mustParse[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func FuzzANALog(f *testing.F) {
	f.Add([]byte{8: 1, 16: 1, 20: 1, 32: 1, 48: 9, 51: 0})
	f.Add([]byte{8: 0xff, 9: 0xff, 20: 0xff, 21: 0xff, 22: 0xff, 23: 0xff, 47: 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		var x, y ANALog
		if err := x.UnmarshalBinary(data); err != nil {
			return
		}
		if x.Size() > len(data) {
			t.Fatalf("%d bytes out of %d", x.Size(), len(data))
		}
		b := make([]byte, x.Size())
		x.MarshalTo(b)
		if err := y.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(x, y) {
			t.Fatalf("%+v, then %+v, %v", x, y, err)
		}
	})
}

func FuzzDiscoveryLog(f *testing.F) {
	f.Add([]byte{0: 1, 8: 1, 1024: 3, 2047: 0})
	f.Add([]byte{15: 0xff, 1024: 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		var x, y DiscoveryLog
		if err := x.UnmarshalBinary(data); err != nil {
			return
		}
		if x.Size() > len(data) {
			t.Fatalf("%d bytes out of %d", x.Size(), len(data))
		}
		b := make([]byte, x.Size())
		x.MarshalTo(b)
		if err := y.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(x, y) {
			t.Fatalf("%v", err)
		}
	})
}

func FuzzReservationReport(f *testing.F) {
	f.Add(false, []byte{4: 1, 5: 1, 24: 1, 47: 0})
	f.Add(true, []byte{4: 6, 5: 1, 9: 1, 64: 1, 66: 1, 127: 0})
	f.Add(true, []byte{5: 0xff, 6: 0xff, 127: 0})
	f.Fuzz(func(t *testing.T, extended bool, data []byte) {
		x, y := ReservationReport{Extended: extended}, ReservationReport{Extended: extended}
		if err := x.UnmarshalBinary(data); err != nil {
			return
		}
		if x.Size() > len(data) {
			t.Fatalf("%d bytes out of %d", x.Size(), len(data))
		}
		b := make([]byte, x.Size())
		x.MarshalTo(b)
		if err := y.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(x, y) {
			t.Fatalf("%+v, then %+v, %v", x, y, err)
		}
	})
}

func FuzzTimestamp(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, data []byte) {
		var x, y Timestamp
		if err := x.UnmarshalBinary(data); err != nil {
			return
		}
		var b [TimestampSize]byte
		x.MarshalTo(b[:])
		if err := y.UnmarshalBinary(b[:]); err != nil || x != y {
			t.Fatalf("%+v, then %+v, %v", x, y, err)
		}
	})
}

func FuzzParseNQN(f *testing.F) {
	f.Add([]byte(DiscoveryNQN + "\x00"))
	f.Add([]byte("nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6\x00"))
	f.Add([]byte("nqn.2014-08.com.example:nvme.host.sys.xyz\x00junk"))
	f.Add(bytes.Repeat([]byte{'x'}, 256))
	f.Fuzz(func(t *testing.T, data []byte) {
		nqn, err := ParseNQN(data)
		if err != nil {
			return
		}
		if nqn == "" || len(nqn) > NQNMaxLength || !bytes.HasPrefix(data, []byte(nqn+"\x00")) || ValidNQN(nqn) != nil {
			t.Fatalf("%q accepted as %q", data, nqn)
		}
		field := MakeNQNField(nqn)
		if again, err := field.Parse(); err != nil || again != nqn {
			t.Fatalf("%q, then %q, %v", nqn, again, err)
		}
	})
}

func FuzzParseUUID(f *testing.F) {
	f.Add("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")
	f.Add("f81d4fae-7dec-11d0-a765-00a0c91e6bf-")
	f.Fuzz(func(t *testing.T, s string) {
		u, err := ParseUUID(s)
		if err != nil {
			return
		}
		if again, err := ParseUUID(u.String()); err != nil || again != u {
			t.Fatalf("%q, then %s, %v", s, again, err)
		}
	})
}
