package lab

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestParseMetrics(t *testing.T) {
	m, err := ParseMetrics(`# HELP rocet_commands_total Commands.
# TYPE rocet_commands_total counter
rocet_commands_total{op="read",namespace="1"} 12
rocet_commands_total{op="write",namespace="1"} 3e2
rocet_commands_total{op="read",namespace="2",} 5
rocet_up 1
rocet_host{nqn="nqn.a:\"b\\c\",d=}"} 7
rocet_latency_bucket{le="+Inf"} +Inf
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"rocet_commands_total", nil, 317},
		{"rocet_commands_total", []string{"op", "read"}, 17},
		{"rocet_commands_total", []string{"op", "read", "namespace", "2"}, 5},
		{"rocet_commands_total", []string{"op", "flush"}, 0},
		{"rocet_up", nil, 1},
		{"rocet_host", []string{"nqn", `nqn.a:"b\c",d=}`}, 7},
	} {
		if got := m.Sum(tt.name, tt.labels...); got != tt.want {
			t.Errorf("%s %v is %v, want %v", tt.name, tt.labels, got, tt.want)
		}
	}
	if !m.Has("rocet_latency_bucket", "le", "+Inf") || m.Has("rocet_latency_bucket", "le", "1") || m.Has("rocet") {
		t.Error("Has is wrong")
	}
	for _, bad := range []string{"rocet_up", "rocet_up one", `rocet_up{a} 1`, `rocet_up{a="b 1`, `rocet_up{a="b"`} {
		if _, err := ParseMetrics(bad); err == nil {
			t.Errorf("%q was taken for a sample", bad)
		}
	}
}

func TestParseKmsg(t *testing.T) {
	for _, tt := range []struct {
		record string
		want   KernelLine
	}{
		{"6,339,5140900,-;NET: Registered PF_NETLINK\n", KernelLine{6, "NET: Registered PF_NETLINK"}},
		{"12,340,5690716,-;udevd; with a semicolon\n SUBSYSTEM=acpi\n DEVICE=+acpi:PNP0A03:00\n", KernelLine{4, "udevd; with a semicolon"}},
		{"3,1,2,c,caller=T1;nvme nvme0: I/O tag 5 timeout\n", KernelLine{3, "nvme nvme0: I/O tag 5 timeout"}},
	} {
		got, err := parseKmsg([]byte(tt.record))
		if err != nil || got != tt.want {
			t.Errorf("%q: %v, %v; want %v", tt.record, got, err, tt.want)
		}
	}
	for _, bad := range []string{"", "6,339,5140900,-", "x,1,2,-;text\n"} {
		if _, err := parseKmsg([]byte(bad)); err == nil {
			t.Errorf("%q was taken for a record", bad)
		}
	}
}

func TestBadLines(t *testing.T) {
	lines := []KernelLine{
		{6, "nvme nvme2: new ctrl"},
		{4, "d0 speed is unknown, defaulting to 1000"},
		{4, "nvme nvme2: failed nvme_keep_alive_end_io error=10"},
		{3, "nvme nvme2: Connect rejected: status 8 (invalid service ID)."},
		{6, "WARNING: CPU: 0 PID: 1 at x.c:1"},
		{6, "Call Trace:"},
	}
	got := badLines(lines, []*regexp.Regexp{regexp.MustCompile("Connect rejected")})
	want := []string{lines[2].Text, lines[4].Text, lines[5].Text}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("bad are %q, want %q", got, want)
	}
}

func TestParseFio(t *testing.T) {
	const out = `fio: a warning
{"fio version": "fio-3.39", "jobs": [{"jobname": "a", "error": 0,
  "read": {"io_bytes": 68562944, "total_ios": 16739, "iops": 16722.277722, "bw_bytes": 68494449, "short_ios": 0,
    "slat_ns": {"max": 1}, "lat_ns": {"max": 20815321, "mean": 1863465.5, "N": 16739,
    "percentile": {"50.000000": 1679360, "99.000000": 4000000, "99.900000": 9000000}}},
  "write": {"total_ios": 0}}]}`
	res, err := parseFio(out)
	want := FioDirection{IOs: 16739, Bytes: 68562944, IOPS: 16722.277722, BW: 68494449, Mean: 1863465, P50: 1679360,
		P99: 4 * time.Millisecond, P999: 9 * time.Millisecond, Max: 20815321}
	if err != nil || res.Read != want || res.Write != (FioDirection{}) {
		t.Errorf("got %+v, %v", res, err)
	}
	for _, bad := range []string{"", "{", `{"jobs": []}`, strings.Replace(out, `"error": 0`, `"error": 5`, 1)} {
		if _, err := parseFio(bad); err == nil {
			t.Errorf("%q was taken for a good result", bad)
		}
	}
}

func TestFioArgs(t *testing.T) {
	has := func(args []string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(" "+strings.Join(args, " ")+" ", " "+w+" ") {
				t.Errorf("%q is without %s", args, w)
			}
		}
	}
	has(FioJob{File: "/dev/nvme2n1", RW: "read"}.args(), "--ioengine=io_uring", "--direct=1", "--iodepth=1", "--numjobs=1")
	has(FioJob{File: "/dev/ng2n1", RW: "read", Depth: 32, Jobs: 4, Runtime: 1500 * time.Millisecond}.args(),
		"--ioengine=io_uring_cmd", "--cmd_type=nvme", "--iodepth=32", "--numjobs=4", "--time_based --runtime=1500ms")
}

func TestResourcesDiff(t *testing.T) {
	before := Resources{"rxe0 qp": 1, "rxe0 mr": 0, "rxe1 qp": 1}
	if d := before.diff(Resources{"rxe0 qp": 1, "rxe0 mr": 0, "rxe1 qp": 1}); d != "" {
		t.Errorf("equal ones differ: %s", d)
	}
	want := "rxe0 mr: 2, was 0; rxe1 qp: 0, was 1; rxe9 qp: 1, was 0"
	if d := before.diff(Resources{"rxe0 qp": 1, "rxe0 mr": 2, "rxe9 qp": 1}); d != want {
		t.Errorf("got %q, want %q", d, want)
	}
}

func TestSubsystems(t *testing.T) {
	got := Subsystems([]DiscoveryEntry{{SubType: "current discovery subsystem", SubNQN: "d"}, {SubType: "nvme subsystem", SubNQN: "a"}})
	if !reflect.DeepEqual(got, []string{"a"}) {
		t.Errorf("got %q", got)
	}
}

func TestTail(t *testing.T) {
	if got := tail("a\nb\nc\n", 10); got != "a\nb\nc\n" {
		t.Errorf("got %q", got)
	}
	if got := tail("a\nb\nc", 2); got != "(1 lines left out)\nb\nc" {
		t.Errorf("got %q", got)
	}
}
