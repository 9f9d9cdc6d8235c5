package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestFull(t *testing.T) {
	c, err := Load("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ns := c.Subsystems[0].Namespaces
	if !reflect.DeepEqual(c.Reactors, Reactors{Cores: []int{2, 3}, Mode: "adaptive", IdleSpin: 50 * time.Microsecond}) ||
		c.Memory != (Memory{Size: 512 << 20, HugePages: "require"}) || *c.TCP.InCapsuleData != 0 || *c.RDMA.InCapsuleData != 4096 ||
		c.RDMA.SRQ != "on" || c.Listeners[1].Address != "fe80::1%eth0" || c.Listeners[2] != (Listener{"tcp", "*", 4421}) ||
		len(ns) != 5 || ns[0].BlockSize != 512 || ns[2].Backend.DriveNSID != 2 || !ns[2].Backend.Force || !ns[2].ReadOnly ||
		ns[3].Backend.StripeSize != 128<<10 || ns[3].Backend.Members[1].Serial != "lab1" || ns[4].Backend.Size != 1<<30 ||
		!c.Subsystems[1].AllowAnyHost {
		t.Errorf("%+v", c)
	}
}

// TestEveryKeyIsInFull holds that the example has every key there is.
func TestEveryKeyIsInFull(t *testing.T) {
	text, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Slice || typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct {
			return
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			key := f.Tag.Get("yaml")
			if key == "count" { // excludes cores
				continue
			}
			if !strings.Contains(string(text), key+":") {
				t.Errorf("full.yaml has no %s", key)
			}
			if f.Name != "Members" { // backends again
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeFor[Config]())
}

// TestMistakes compares what is said of files full of mistakes.
func TestMistakes(t *testing.T) {
	for _, name := range []string{"bad", "bad2"} {
		t.Run(name, func(t *testing.T) {
			_, err := Load("testdata/" + name + ".yaml")
			var all Errors
			if !errors.As(err, &all) {
				t.Fatalf("%v, want Errors", err)
			}
			got := strings.ReplaceAll(err.Error(), "testdata/", "") + "\n"
			golden := "testdata/" + name + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			for _, e := range all {
				if e.Line == 0 {
					t.Errorf("no line: %v", e)
				}
			}
		})
	}
}

// TestNotEvenYAML has what never gets to be a Config.
func TestNotEvenYAML(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "x.yaml: the file is empty",
		"# nothing":                        "x.yaml: the file is empty",
		"a: [1,":                           "x.yaml:1:4: ",
		"a: 1\na: 2":                       "x.yaml:2:1: a: the key is in line 1 already: remove one of the two",
		"- 1":                              "want keys and values: reactors, memory",
		"log: {level: info}\n---\nlog: {}": "x.yaml:3:",
		"log: &a {level: info}":            "x.yaml:1:1: log: anchors, aliases and tags",
		"log: *a":                          "anchors, aliases and tags",
		"a: " + strings.Repeat("[", 1000):  "x.yaml:1:1: lists and maps are nested",
		strings.Repeat("- ", 1000):         "x.yaml:1:1: lists and maps are nested",
		strings.Repeat(" ", maxFile+1):     "the file is larger than 1048576 bytes",
	} {
		_, err := Parse("x.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
	if _, err := Load("testdata/nothing"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "4096": 4096, "4k": 4096, "4 KiB": 4096, "1.5GiB": 3 << 29, "2TB": 2e12, "16EiB": 0, "": 0, "-1": 0, "1.0001KiB": 0,
		"18446744073709551615": 1<<64 - 1, "18446744073709551616": 0, "20000000TiB": 0, "k": 0, "1e3": 0, "4KIB": 0, "1.5": 0,
	} {
		got, err := ParseSize(text)
		if (err == nil) != (want != 0 || text == "0") || got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
	for size, want := range map[Size]string{0: "0", 512: "512", 4096: "4KiB", 3 << 29: "1536MiB", 1 << 40: "1TiB", 1 << 50: "1PiB"} {
		if got := size.String(); got != want {
			t.Errorf("%d is %q, want %q", uint64(size), got, want)
		}
	}
}

// FuzzParse holds that any text is a configuration, which survives being written, or a list of mistakes with their places.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"full", "bad", "bad2"} {
		text, err := os.ReadFile("testdata/" + name + ".yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("a: [1,"))
	f.Add([]byte("subsystems: [{nqn: &x 1}, {? [1]: 2}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("x", text)
		if (c == nil) == (err == nil) {
			t.Fatalf("%v and %v", c, err)
		}
		var all Errors
		if err != nil && (!errors.As(err, &all) || len(all) == 0) {
			t.Fatalf("%v is no Errors", err)
		}
		if c != nil {
			roundTrip(t, c)
		}
	})
}

// TestTransportBounds has what the transports themselves would refuse.
func TestTransportBounds(t *testing.T) {
	const rest = "\nlisteners: [{transport: tcp}]\nsubsystems: [{nqn: nqn.2026-01.com.example:a, allow_any_host: true}]"
	for text, want := range map[string]string{
		"rdma: {max_queue_depth: 1024}":    "",
		"rdma: {max_queue_depth: 1025}":    "1025 entries: want 32 to 1024",
		"tcp: {max_queue_depth: 4096}":     "",
		"tcp: {max_queue_depth: 4097}":     "4097 entries: want 32 to 4096",
		"rdma: {in_capsule_data: 64KiB}":   "",
		"tcp: {in_capsule_data: 65552}":    "65552 in a capsule",
		"reactors: {count: 16}":            "",
		"reactors: {count: 17}":            "memory.size: 256MiB is too little for 17 reactors: want at least 272MiB",
		"reactors: {count: 1}\nmemory: {}": "",
	} {
		_, err := Parse("x", []byte(text+rest))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestManyListeners holds that the comparison of all with all is bounded.
func TestManyListeners(t *testing.T) {
	var b strings.Builder
	b.WriteString("subsystems: [{nqn: nqn.2026-01.com.example:a, allow_any_host: true}]\nlisteners:\n")
	for i := range maxListeners {
		fmt.Fprintf(&b, "- {transport: tcp, address: 10.0.0.1, port: %d}\n", i+1)
	}
	if _, err := Parse("x", []byte(b.String())); err != nil {
		t.Fatal(err)
	}
	b.WriteString("- {transport: tcp, address: 10.0.0.1, port: 1000}\n")
	_, err := Parse("x", []byte(b.String()))
	if err == nil || !strings.Contains(err.Error(), "257 listeners: want up to 256") {
		t.Fatal(err)
	}
}

// TestHostileFiles holds that reading ends soon, and that what is said of a file is not longer than a person reads.
func TestHostileFiles(t *testing.T) {
	line := func(n int, f func(i int) string) string {
		var b strings.Builder
		for i := 0; b.Len() < n; i++ {
			b.WriteString(f(i))
		}
		return b.String()
	}
	const most = 64 << 10
	for name, c := range map[string]struct{ text, want string }{
		"keys":   {line(most, func(i int) string { return fmt.Sprintf("k%d: 1\n", i) }), "x:257:1: this map has more than 256 keys"},
		"twice":  {line(most, func(i int) string { return "log: {}\n" }), "this map has more than 256 keys"},
		"lists":  {line(most, func(i int) string { return fmt.Sprintf("k%d:\n- 1\n", i) }), "this map has more than 256 keys"},
		"nested": {"a:\n" + line(most, func(i int) string { return fmt.Sprintf("  k%d:\n", i) }), "x:258:3: this map has more than 256 keys"},
		"cores":  {"reactors: {cores: [" + strings.Repeat("1,", 100000) + "]}", "100000 cores: want up to 256"},
		"many":   {"subsystems: [{nqn: nqn.2026-01.com.example:a, hosts: [" + strings.Repeat("x,", 100000) + "]}]", "x: there are 99001 more mistakes"},
		"word":   {"log: {level: " + strings.Repeat("é", 100000) + "}", "éé..."},
		"key":    {strings.Repeat("k", 100000) + ": 1", "kk..."},
		"namespaces": {"subsystems:\n- nqn: nqn.2026-01.com.example:a\n  namespaces:\n" +
			strings.Repeat("  - {backend: {type: memory, size: 4096}}\n", maxNSID+1), "1025 namespaces: want up to 1024 in a subsystem"},
	} {
		_, err := Parse("x", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.200v, want %q", name, err, c.want)
		} else if n := len(err.Error()); n > (maxErrors+1)*(2*maxWords+50) {
			t.Errorf("%s: %d bytes of errors", name, n)
		}
	}
	hosts := line(64<<10, func(i int) string { return fmt.Sprintf("    - nqn.2026-01.com.example:host%d\n", i) })
	flow := line(64<<10, func(i int) string { return fmt.Sprintf("    nqn.2026-01.com.example:more%d,\n", i) })
	text := "listeners: [{transport: tcp}]\nsubsystems:\n" +
		"  - nqn: nqn.2026-01.com.example:a\n    hosts:\n" + hosts +
		"  - nqn: nqn.2026-01.com.example:b\n    hosts: [\n" + flow + "    ]\n"
	for i := range 300 {
		text += fmt.Sprintf("  - nqn: nqn.2026-01.com.example:c%d\n    allow_any_host: true\n", i)
	}
	if c, err := Parse("x", []byte(text)); err != nil || len(c.Subsystems) != 302 || len(c.Subsystems[0].Hosts) < 1000 {
		t.Errorf("a large configuration: %.500v", err)
	}
}

// TestLoadEnds reads what has no size and no end.
func TestLoadEnds(t *testing.T) {
	if _, err := Load("/dev/zero"); err == nil || !strings.Contains(err.Error(), "the file is larger than 1048576 bytes") {
		t.Error(err)
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("a directory was read")
	}
}

// TestKeys has keys that are twice in a map, or in a backend that doesn't take them, whatever their value.
func TestKeys(t *testing.T) {
	const text = `reactors: {count: 1, mode: buzy, count: 2}
log: {level: info}
log: {level: loud}
listeners: [{transport: tcp, address: 10.0.0.1}, {transport: tcp, address: 10.0.0.2}, {transport: tcp}]
subsystems:
  - nqn: nqn.2026-01.com.example:a
    allow_any_host: true
    namespaces:
      - {backend: {type: nvme, serial: A, size: 0}}
      - {backend: {type: memory, size: 1MiB, force: false, members: []}}
  - {nqn: nqn.2026-01.com.example:b, hosts: [nqn.2026-01.com.example:h]}
`
	const want = `x:1:22: reactors.mode: there is no "buzy": did you mean busy?
x:1:34: reactors.count: the key is in line 1 already: remove one of the two
x:3:1: log: the key is in line 2 already: remove one of the two
x:4:87: listeners[2]: every address, port 4420 is taken by listeners[0]
x:9:43: subsystems[0].namespaces[0].backend.size: a backend of type nvme has no size: it takes pci, serial, drive_nsid, force
x:10:46: subsystems[0].namespaces[1].backend.force: a backend of type memory has no force: it takes size
x:10:60: subsystems[0].namespaces[1].backend.members: a backend of type memory has no members: it takes size
x:11:69: subsystems[1].hosts[0]: a map is given: want one value, and text with a colon in quotes`
	for range 20 { // in the same order each time
		if _, err := Parse("x", []byte(text)); err == nil || err.Error() != want {
			t.Fatalf("got\n%v\nwant\n%s", err, want)
		}
	}
}
