package nvme

import (
	"strings"
	"testing"
)

func TestASCII(t *testing.T) {
	for _, c := range []struct {
		n              int
		in, wire, back string
	}{
		{4, "SN1", "SN1 ", "SN1"},
		{4, "", "    ", ""},
		{3, "SN12", "SN1", "SN1"},
		{4, "a b", "a b ", "a b"},
		{6, "a\x00\né", "a????", "a????"},
	} {
		f := make([]byte, c.n)
		PutASCII(f, c.in)
		if got := strings.TrimRight(string(f), " "); got != strings.TrimRight(c.wire, " ") || len(f) != c.n {
			t.Errorf("PutASCII(%d, %q) writes %q", c.n, c.in, f)
		}
		if got := ASCII(f); got != c.back {
			t.Errorf("ASCII(%q) is %q, want %q", f, got, c.back)
		}
	}
	if got := ASCII([]byte("QEMU\x00\x00")); got != "QEMU" {
		t.Errorf("NUL padding: %q", got)
	}
}

func TestNQN(t *testing.T) {
	long := "nqn.2014-08.com.example:" + strings.Repeat("x", NQNMaxLength-len("nqn.2014-08.com.example:"))
	valid := []string{
		DiscoveryNQN,
		"nqn.2014-08.com.example:nvme:nvm-subsystem-sn-d78432", // the specification's examples
		"nqn.2014-08.com.example:nvme.host.sys.xyz",
		"nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
		"nqn.2014-08.org.nvmexpress:uuid:F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6",
		"nqn.2014-08.org.nvmexpress:NVMf:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6", // early Linux hosts
		"nqn.2014-08.localdomain:nvme:esx_1",                                        // ESXi without a domain
		"nqn.2020-07.com.3par-data:näme",
		long,
	}
	for _, n := range valid {
		if err := ValidNQN(n); err != nil {
			t.Errorf("%q: %v", n, err)
		}
		f := MakeNQNField(n)
		if got, err := f.Parse(); err != nil || got != n || f.String() != n {
			t.Errorf("%q through its field: %q, %v", n, got, err)
		}
	}
	for _, n := range []string{
		"", "nqn", "nqn.", "nqn.2014-08", "nqn.2014-08.", "iqn.2014-08.com.example:x", "NQN.2014-08.com.example:x",
		"nqn.2014-13.com.example:x", "nqn.2014-00.com.example:x", "nqn.14-08.com.example:x", "nqn.2014.08.com.example:x",
		"nqn.201a-08.com.example:x", "nqn.2014-08.com.example", "nqn.2014-08.com.example:", "nqn.2014-08.:x",
		"nqn.2014-08.com..example:x", "nqn.2014-08.com.-example:x", "nqn.2014-08.com.example-:x", "nqn.2014-08.com.ex ample:x",
		"nqn.2014-08." + strings.Repeat("a", 64) + ":x", "nqn.2014-08.com.exämple:x",
		"nqn.2014-08.com.example:\xff", "nqn.2014-08.com.example:a\x00b", long + "x",
		"nqn.2014-08.org.nvmexpress:uuid:", "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf",
		"nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bfg", "nqn.2014-08.org.nvmexpress:uuid:f81d4fae7dec11d0a76500a0c91e6bf6",
	} {
		if ValidNQN(n) == nil {
			t.Errorf("%q accepted", n)
		}
	}

	var full NQNField
	for i := range full {
		full[i] = 'x'
	}
	if _, err := full.Parse(); err == nil || full.String() != strings.Repeat("x", 256) {
		t.Error("a field without NUL was accepted")
	}
	if _, err := ParseNQN(nil); err == nil {
		t.Error("an empty field was accepted")
	}
	// What follows the NUL does not count.
	f := MakeNQNField(valid[0])
	f[255] = 'x'
	if n, err := f.Parse(); err != nil || n != valid[0] {
		t.Errorf("%q, %v", n, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a name of 256 bytes fitted its field")
		}
	}()
	MakeNQNField(strings.Repeat("x", 256))
}

func TestIdentifiers(t *testing.T) {
	const s = "00112233-4455-6677-8899-aabbccddeeff"
	u, err := ParseUUID(s)
	if err != nil || u.String() != s || u[0] != 0 || u[15] != 0xff || u.IsZero() || !(UUID{}).IsZero() {
		t.Errorf("%s, %v", u, err)
	}
	for _, bad := range []string{"", s[1:], s + "0", strings.Replace(s, "-", "0", 1), strings.Replace(s, "f", "g", 1)} {
		if u, err := ParseUUID(bad); err == nil || !u.IsZero() {
			t.Errorf("%q accepted as %s", bad, u)
		}
	}
	// The specification's example: NGUID is big-endian on the wire.
	g := NGUID(unhex(t, 16, "fedcba9876543210 abcdef 0123456789"))
	if g.String() != "fedcba9876543210abcdef0123456789" || g.IsZero() || !(NGUID{}).IsZero() {
		t.Error(g)
	}
	e := EUI64(unhex(t, 8, "abcdef 0123456789"))
	if e.String() != "abcdef0123456789" || e.IsZero() || !(EUI64{}).IsZero() {
		t.Error(e)
	}
	for v, want := range map[Uint128]string{
		{}:                               "0",
		{Lo: 1 << 63}:                    "9223372036854775808",
		{Hi: 1}:                          "18446744073709551616",
		{Lo: ^uint64(0), Hi: ^uint64(0)}: "340282366920938463463374607431768211455",
	} {
		if v.String() != want {
			t.Errorf("%+v is %s, want %s", struct{ Lo, Hi uint64 }(v), v, want)
		}
	}
}
