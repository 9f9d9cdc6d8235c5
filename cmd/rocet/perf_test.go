package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"rocet/host/load"
)

// served runs rocet serve with a namespace in memory, and returns its URL.
func served(t *testing.T) string {
	t.Helper()
	t.Setenv("GOGC", "100")
	t.Setenv("NOTIFY_SOCKET", "")
	number := freePort(t)
	path := write(t, fmt.Sprintf(`
memory: {size: 16MiB, hugepages: never}
metrics: {listen: off}
listeners: [{transport: tcp, address: 127.0.0.1, port: %d}]
subsystems: [{nqn: "nqn.2026-01.com.example:a", allow_any_host: true, namespaces: [{backend: {type: memory, size: 1MiB}, block_size: 512}]}]
`, number))
	ctx, cancel := context.WithCancel(context.Background())
	var log buffer
	status := make(chan int)
	go func() { status <- run(ctx, []string{"rocet", "serve", "--config", path}, io.Discard, &log) }()
	t.Cleanup(func() {
		cancel()
		if st := <-status; st != 0 {
			t.Errorf("rocet serve: status %d\n%s", st, log.String())
		}
	})
	for end := time.Now().Add(20 * time.Second); !strings.Contains(log.String(), "msg=ready"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("rocet serve does not come up:\n%s", log.String())
		}
	}
	return fmt.Sprintf("nvme-tcp://127.0.0.1:%d/nqn.2026-01.com.example:a", number)
}

func TestPerf(t *testing.T) {
	url := served(t)
	host, _, _ := strings.Cut(url, "/nqn")
	for _, c := range []struct {
		args   []string
		status int
		out    string
		err    string
	}{
		{[]string{"perf", url, "--count", "500"}, 0, "500 I/Os", ""},
		{[]string{"perf", "--count", "500", url, "--qd", "4"}, 0, "queue depth 4", ""},
		{[]string{"perf", url + "?hdgst&ddgst", "--rw", "randrw", "--mix", "0", "--count", "300", "--verify", "--bs", "8KiB", "--queues", "2", "--qd", "3"}, 0, "verified:", ""},
		{[]string{"perf", url, "--count", "100", "--qd", "500"}, 0, "", "the queue depth is 127"},
		{[]string{"perf", url, "--time", "1100ms", "--progress"}, 0, "all", "run   1 s"},
		{[]string{"perf", "-h"}, 0, "--verify", ""},
		{[]string{"perf"}, exitUsage, "", "takes one URL"},
		{[]string{"perf", url, url}, exitUsage, "", "2 arguments"},
		{[]string{"perf", url, "--nonsense"}, exitUsage, "", "not defined: -nonsense"},
		{[]string{"perf", "http://x"}, exitUsage, "", "want nvme-tcp://"},
		{[]string{"perf", url, "--rw", "trim"}, exitUsage, "", "want read"},
		{[]string{"perf", url, "--mix", "101"}, exitUsage, "", "0 to 100"},
		{[]string{"perf", url, "--bs", "0"}, exitUsage, "", "--bs 0"},
		{[]string{"perf", url, "--bs", "big"}, exitUsage, "", "--bs"},
		{[]string{"perf", url, "--qd", "0"}, exitUsage, "", "--qd 0"},
		{[]string{"perf", url, "--nsid", "4294967295"}, exitUsage, "", "--nsid"},
		{[]string{"perf", url, "-o", "xml"}, exitUsage, "", "text or json"},
		{[]string{"perf", url, "--nsid", "9"}, exitFailed, "", "namespace 9 is not active"},
		{[]string{"perf", host + "/nqn.2026-01.com.example:b"}, exitFailed, "", "no such subsystem"},
		{[]string{"discover", host}, 0, "subnqn:  nqn.2026-01.com.example:a", ""},
		{[]string{"discover"}, exitUsage, "", "takes one URL"},
		{[]string{"identify", url}, 0, "lbaf0     : ms:0 lbads:9 rp:0x0 (in use)", ""},
		{[]string{"identify", url, "--nsid", "2"}, exitFailed, "", "not active"},
		{[]string{"identify", host}, 0, "cntrltype : 0x2", ""},
	} {
		status, out, errs := call(c.args...)
		if status != c.status || !strings.Contains(out, c.out) || !strings.Contains(errs, c.err) {
			t.Errorf("rocet %s: status %d, want %d\nstdout: %s\nstderr: %s", strings.Join(c.args, " "), status, c.status, out, errs)
		}
	}
}

func TestPerfJSON(t *testing.T) {
	url := served(t)
	status, out, errs := call("perf", url, "-o", "json", "--count", "700", "--rw", "rw", "--verify")
	var res load.Result
	if err := json.Unmarshal([]byte(out), &res); status != 0 || err != nil || res.IOs != 700 || res.Read == nil || res.Latency.P9999 == 0 || res.Verified == 0 {
		t.Errorf("status %d, %v, %+v\n%s", status, err, res, errs)
	}
	host, _, _ := strings.Cut(url, "/nqn")
	status, out, errs = call("discover", "-o", "json", host)
	var log struct {
		Genctr  uint64
		Records []struct{ Trtype, Subtype, Trsvcid, Subnqn, Traddr, Sectype string }
	}
	if err := json.Unmarshal([]byte(out), &log); status != 0 || err != nil || log.Genctr == 0 || len(log.Records) != 2 {
		t.Fatalf("status %d, %v, %+v\n%s", status, err, log, errs)
	}
	r := log.Records[1]
	if r.Trtype != "tcp" || r.Subtype != "nvme subsystem" || r.Traddr != "127.0.0.1" || r.Sectype != "none" || r.Subnqn != "nqn.2026-01.com.example:a" || !strings.HasSuffix(host, ":"+r.Trsvcid) {
		t.Errorf("%+v", r)
	}
	status, out, errs = call("identify", "-o", "json", url)
	var id struct {
		Controller struct {
			Mn, Subnqn string
			Mdts, Sqes int
		}
		Namespaces []struct {
			Nsid, Nsze, Size uint64
			Nguid            string
			Lbaf0            struct {
				Ds    int
				InUse bool `json:"in_use"`
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &id); status != 0 || err != nil || len(id.Namespaces) != 1 {
		t.Fatalf("status %d, %v, %+v\n%s", status, err, id, errs)
	}
	if c, n := id.Controller, id.Namespaces[0]; c.Mn != "Rocet" || c.Mdts != 8 || c.Sqes != 0x66 || n.Size != 1<<20 || n.Nsze != 2048 || n.Lbaf0.Ds != 9 || !n.Lbaf0.InUse || len(n.Nguid) != 32 {
		t.Errorf("%+v", id)
	}
}

// What a target says about itself must not reach the terminal as it is.
func TestPrintable(t *testing.T) {
	if got := printable("a\x1b[2Jb\nü"); got != "a?[2Jb?ü" {
		t.Errorf("%q", got)
	}
	var f fields
	f.add("name", "x\x07")
	var b strings.Builder
	f.print(&b, 8, ": ")
	if b.String() != "name    : x?\n" {
		t.Errorf("%q", b.String())
	}
	if text, err := json.Marshal(f); err != nil || string(text) != `{"name":"x\u0007"}` {
		t.Errorf("%s, %v", text, err)
	}
}
