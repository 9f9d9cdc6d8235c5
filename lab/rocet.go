package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// NQN is the subsystem of MemoryConfig.
const NQN = "nqn.2026-01.io.rocet:lab"

// MetricsAddr is where MemoryConfig puts the metrics.
const MetricsAddr = "127.0.0.1:9810"

// MemoryConfig is a configuration with one listener and one subsystem, NQN, of two namespaces: 1 in memory of the given
// size, 2 a null one of 1 TiB; both in blocks of 4096 bytes. Tests that need another write their own.
func MemoryConfig(transport, addr, size string) string {
	return fmt.Sprintf(`reactors: {count: 1, mode: adaptive}
memory: {size: 64MiB}
metrics: {listen: %q}
listeners: [{transport: %s, address: %s, port: %s}]
subsystems:
  - nqn: %s
    allow_any_host: true
    namespaces:
      - {nsid: 1, backend: {type: memory, size: %s}, block_size: 4096}
      - {nsid: 2, backend: {type: "null", size: 1TiB}, block_size: 4096}
`, MetricsAddr, transport, addr, Port, NQN, size)
}

// readyTimeout covers memory registration, which is slow on an emulated processor.
const readyTimeout = 60 * time.Second

// stopTimeout is how long a drain may take.
const stopTimeout = 30 * time.Second

// Rocet is a `rocet serve` process.
type Rocet struct {
	t       T
	config  string // path
	args    []string
	logPath string
	cmd     *exec.Cmd
	done    chan struct{} // closed when the process has ended and err is set
	err     error
	start   int64 // where this process's part of the log begins
}

// Binary is the program under test: $ROCET, or the checkout's bin/rocet.
func Binary() string {
	if path := os.Getenv("ROCET"); path != "" {
		return path
	}
	return "bin/rocet"
}

// StartRocet starts `rocet serve` with a configuration (YAML) and waits until it is ready. When the test ends, it is
// stopped if it still runs, and its log is shown if the test has failed.
func StartRocet(t T, config string, args ...string) *Rocet {
	t.Helper()
	dir := t.TempDir()
	r := &Rocet{t: t, config: filepath.Join(dir, "rocet.yaml"), args: args, logPath: filepath.Join(dir, "rocet.log")}
	if err := os.WriteFile(r.config, []byte(config), 0o644); err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(r.cleanup)
	r.Start()
	return r
}

// Start starts the process again after Stop or Kill, with the same configuration, and waits until it is ready.
func (r *Rocet) Start() {
	r.t.Helper()
	if r.Running() {
		r.t.Fatalf("rocet runs already")
	}
	log, err := os.OpenFile(r.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	defer log.Close()
	if r.start, err = log.Seek(0, 2); err != nil {
		r.t.Fatalf("%v", err)
	}
	cmd := exec.Command(Binary(), append([]string{"serve", "--config", r.config}, r.args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		r.t.Fatalf("%v", err)
	}
	r.cmd, r.done, r.err = cmd, make(chan struct{}), nil
	go func(cmd *exec.Cmd, done chan struct{}) {
		r.err = cmd.Wait()
		close(done)
	}(cmd, r.done)
	err = poll(readyTimeout, func() error {
		if !r.Running() {
			return nil
		}
		if !strings.Contains(r.Log(), "msg=ready") {
			return errors.New("its log has no msg=ready")
		}
		return nil
	})
	if !r.Running() {
		r.t.Fatalf("rocet ended before it was ready: %v", r.err)
	}
	if err != nil {
		r.t.Fatalf("rocet was not ready after %v: %v", readyTimeout, err)
	}
}

// Config returns the path of the configuration.
func (r *Rocet) Config() string { return r.config }

// Pid returns the process id.
func (r *Rocet) Pid() int { return r.cmd.Process.Pid }

// Running tells whether the process has not ended yet.
func (r *Rocet) Running() bool {
	if r.cmd == nil {
		return false
	}
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

// Signal sends a signal to the process.
func (r *Rocet) Signal(sig syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		r.t.Fatalf("rocet: %v: %v", sig, err)
	}
}

// Stop ends the process with SIGTERM: it must drain and exit with status 0.
func (r *Rocet) Stop() {
	r.t.Helper()
	r.Signal(syscall.SIGTERM)
	if err, ended := r.Wait(stopTimeout); !ended {
		r.t.Fatalf("rocet still ran %v after SIGTERM", stopTimeout)
	} else if err != nil {
		r.t.Fatalf("rocet ended with %v after SIGTERM, not with 0", err)
	}
}

// Kill ends the process with SIGKILL, as a crash would.
func (r *Rocet) Kill() {
	r.t.Helper()
	r.Signal(syscall.SIGKILL)
	if _, ended := r.Wait(stopTimeout); !ended {
		r.t.Fatalf("rocet still ran %v after SIGKILL", stopTimeout)
	}
}

// Wait waits for the process to end and returns its status as exec.Cmd.Wait does.
func (r *Rocet) Wait(limit time.Duration) (err error, ended bool) {
	select {
	case <-r.done:
		return r.err, true
	case <-time.After(limit):
		return nil, false
	}
}

// Log returns what the process (the last one, after a Start) has logged so far.
func (r *Rocet) Log() string {
	data, err := os.ReadFile(r.logPath)
	if err != nil || int64(len(data)) < r.start {
		return ""
	}
	return string(data[r.start:])
}

// WaitLog waits for a line that matches and returns it.
func (r *Rocet) WaitLog(limit time.Duration, pattern string) string {
	r.t.Helper()
	re := regexp.MustCompile(`(?m)^.*(?:` + pattern + `).*$`)
	var line string
	WaitFor(r.t, limit, "a line of the log that matches "+strconv.Quote(pattern), func() error {
		if line = re.FindString(r.Log()); line != "" {
			return nil
		}
		if !r.Running() {
			return fmt.Errorf("rocet has ended (%v)", r.err)
		}
		return errors.New("none yet")
	})
	return line
}

func (r *Rocet) cleanup() {
	if r.Running() {
		r.cmd.Process.Signal(syscall.SIGTERM)
		if _, ended := r.Wait(stopTimeout); !ended {
			r.t.Errorf("rocet still ran %v after SIGTERM", stopTimeout)
			r.cmd.Process.Signal(syscall.SIGQUIT) // the log then shows where it hangs
			if _, ended := r.Wait(10 * time.Second); !ended {
				r.cmd.Process.Kill()
				r.Wait(10 * time.Second)
			}
		}
	}
	log, _ := os.ReadFile(r.logPath)
	if strings.Contains(string(log), "DATA RACE") || strings.Contains(string(log), "panic:") {
		r.t.Errorf("rocet's log shows a bug")
	}
	if r.t.Failed() {
		r.t.Logf("rocet's log:\n%s", tail(string(log), 200))
	}
}

// tail returns the last n lines.
func tail(s string, n int) string {
	lines := strings.SplitAfter(s, "\n")
	if len(lines) <= n {
		return s
	}
	return fmt.Sprintf("(%d lines left out)\n%s", len(lines)-n, strings.Join(lines[len(lines)-n:], ""))
}

// Usage is what a process holds.
type Usage struct {
	FDs     int
	RSS     uint64 // bytes, hugepages not among them
	HugeTLB uint64 // bytes
	Threads int
}

// Usage reads what the process holds now.
func (r *Rocet) Usage() Usage {
	r.t.Helper()
	u, err := ReadUsage(r.Pid())
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	return u
}

// ReadUsage reads what a process holds.
func ReadUsage(pid int) (Usage, error) {
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return Usage{}, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, err
	}
	u := Usage{FDs: len(fds)}
	for _, line := range strings.Split(string(status), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		n, _ := strconv.ParseUint(fields[1], 10, 64)
		switch fields[0] {
		case "VmRSS:":
			u.RSS = n << 10
		case "HugetlbPages:":
			u.HugeTLB = n << 10
		case "Threads:":
			u.Threads = int(n)
		}
	}
	return u, nil
}
