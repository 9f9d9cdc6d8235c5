package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"rocet/control/config"
)

func call(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(context.Background(), append([]string{"rocet"}, args...), &out, &errs)
	return status, out.String(), errs.String()
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rocet.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCalls(t *testing.T) {
	good := write(t, "listeners: [{transport: tcp}]\nsubsystems: [{nqn: nqn.2026-01.com.example:a, allow_any_host: true}]\n")
	bad := write(t, "listenrs: []\nsubsystems: []\n")
	for _, c := range []struct {
		args   []string
		status int
		out    string // in standard output
		err    string // in standard error
	}{
		{[]string{}, 0, "serve", ""},
		{[]string{"help"}, 0, "devices", ""},
		{[]string{"version"}, 0, "rocet unknown", ""},
		{[]string{"version", "x"}, exitUsage, "", `rocet: rocet version takes no argument, "x" is one`},
		{[]string{"nonsense"}, exitUsage, "", `there is no command "nonsense"`},
		{[]string{"serve", "--nonsense"}, exitUsage, "", "flag provided but not defined"},
		{[]string{"serve", "--size", "many"}, exitUsage, "", `--size: "many" is no size`},
		{[]string{"serve", "--config", good, "--size", "1GiB"}, exitUsage, "", "--size is for serving without --config"},
		{[]string{"serve", "--config", bad}, exitFailed, "", "rocet.yaml:1:1: listenrs: there is no such key: did you mean listeners?"},
		{[]string{"serve", "--config", "/nonexistent"}, exitFailed, "", "no such file"},
		{[]string{"config", "check", good}, 0, "ok: subsystems: 1, namespaces: 0, listeners: 1", ""},
		{[]string{"config", "check", bad}, exitFailed, "", "did you mean listeners?"},
		{[]string{"config", "check"}, exitUsage, "", "takes one file"},
		{[]string{"devices", "-o", "xml"}, exitUsage, "", "want table or json"},
		{[]string{"devices"}, 0, "NVM", ""},
	} {
		status, out, errs := call(c.args...)
		if status != c.status || !strings.Contains(out, c.out) || !strings.Contains(errs, c.err) {
			t.Errorf("rocet %s: status %d, want %d\nstdout: %s\nstderr: %s", strings.Join(c.args, " "), status, c.status, out, errs)
		}
	}
}

func TestDevicesJSON(t *testing.T) {
	status, out, errs := call("devices", "-o", "json")
	var inv inventory
	if err := json.Unmarshal([]byte(out), &inv); status != 0 || err != nil || inv.RDMA == nil || inv.Drives == nil {
		t.Errorf("%d %v %q %q", status, err, out, errs)
	}
}

// buffer is a log that is read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// TestServe runs the command from its start to a SIGTERM, under a service manager.
func TestServe(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("GOGC", "100") // and leave the test's own collector alone
	number := freePort(t)
	path := write(t, fmt.Sprintf(`
memory: {size: 16MiB, hugepages: never}
metrics: {listen: off}
listeners: [{transport: tcp, address: 127.0.0.1, port: %d}]
subsystems: [{nqn: "nqn.2026-01.com.example:a", allow_any_host: true, namespaces: [{backend: {type: memory, size: 1MiB}}]}]
`, number))
	var out, log buffer
	status := make(chan int)
	go func() { status <- run(context.Background(), []string{"rocet", "serve", "--config", path}, &out, &log) }()
	heard := func(want string) {
		t.Helper()
		_ = manager.SetReadDeadline(time.Now().Add(20 * time.Second))
		b := make([]byte, 256)
		for {
			n, err := manager.Read(b)
			if err != nil {
				t.Fatalf("the service manager did not hear %s: %v\n%s", want, err, log.String())
			}
			if string(b[:n]) == want {
				return
			}
		}
	}
	heard("READY=1")
	heard("WATCHDOG=1")
	if !strings.Contains(log.String(), "msg=ready") {
		t.Error("the log does not say ready")
	}
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", number))
	if err != nil {
		t.Error(err)
	} else {
		defer conn.Close()
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	heard("STOPPING=1")
	if st := <-status; st != 0 {
		t.Errorf("status %d\n%s", st, log.String())
	}
	if !strings.Contains(log.String(), "msg=stopped") {
		t.Errorf("the log does not say stopped:\n%s", log.String())
	}
}

// TestSignalWhileStarting holds that a start that is told to stop stops in order, or at once if it is told twice.
func TestSignalWhileStarting(t *testing.T) {
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, `
memory: {size: 32MiB, hugepages: never}
metrics: {listen: off}
listeners: [{transport: tcp, address: 127.0.0.1, port: %d}]
subsystems: [{nqn: "nqn.2026-01.com.example:a", allow_any_host: true}]
`, freePort(t)))
	if err != nil {
		t.Fatal(err)
	}
	var log buffer
	text := slog.New(slog.NewTextHandler(&log, nil))
	signals := make(chan os.Signal, 2)
	signals <- syscall.SIGTERM
	if server, err := start(context.Background(), signals, cfg, text); server != nil || err != nil {
		t.Errorf("told once: %v, %v", server, err)
	}
	if got := log.String(); !strings.Contains(got, `msg="stopping before it was ready" signal=terminated`) || !strings.Contains(got, "msg=stopped") {
		t.Errorf("the log: %s", got)
	}
	signals <- syscall.SIGTERM
	signals <- syscall.SIGINT
	_, err = start(context.Background(), signals, cfg, text)
	if coder := cli.ExitCoder(nil); !errors.As(err, &coder) || coder.ExitCode() != exitForced {
		t.Errorf("told twice: %v", err)
	}
}

func TestWatchdogOfAnother(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "2000")
	t.Setenv("WATCHDOG_PID", "1")
	defer watchdog(slog.Default(), nil)() // it would crash if it asked the target
	_ = manager.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := manager.Read(make([]byte, 64)); err == nil {
		t.Errorf("%d bytes for another process's watchdog", n)
	}
}
