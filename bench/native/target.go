package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"rocet/host/load"
	"rocet/lab"
)

const nqn = "nqn.2026-01.io.rocet:bench"

// targetProcess is rocet serve.
type targetProcess struct {
	c         *config
	transport string
	cmd       *exec.Cmd
	dir       string
	fabric    string // of shmverbs
	env       []string
	log       bytes.Buffer
}

// startTarget starts rocet serve with the namespaces, on one reactor.
func (c *config) startTarget(transport string) (t *targetProcess, err error) {
	t = &targetProcess{c: c, transport: transport}
	if t.dir, err = os.MkdirTemp("", "rocet-bench"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			t.clean()
		}
	}()
	t.env = os.Environ()
	if transport == "rdma" {
		if t.fabric, err = os.MkdirTemp("/dev/shm", "shmverbs"); err != nil { // in memory: elsewhere it would be written back to a disk
			return nil, err
		}
		t.env = append(t.env, "LD_LIBRARY_PATH="+c.shmverbs, "SHMVERBS_DIR="+t.fabric, "SHMVERBS_ENGINE=inline")
	}
	var namespaces string
	for i, b := range c.backends {
		size := "64GiB"
		if b == "memory" {
			size = "256MiB"
		}
		namespaces += fmt.Sprintf("      - {nsid: %d, backend: {type: %q, size: %s}, block_size: 4096}\n", i+1, b, size)
	}
	// Queues are deep enough for 128 commands with one entry of the ring free.
	text := fmt.Sprintf(`reactors: {count: 1, cores: [%d], mode: adaptive}
memory: {size: 128MiB, shared: %v}
log: {level: warn}
metrics: {listen: "127.0.0.1:%d"}
rdma: {max_queue_depth: 256}
tcp: {max_queue_depth: 256}
listeners: [{transport: %s, address: 127.0.0.1, port: %d}]
subsystems:
  - nqn: %s
    allow_any_host: true
    namespaces:
%s`, c.targetCore, transport == "rdma", c.metricsPort, transport, c.port, nqn, namespaces)
	file := t.dir + "/rocet.yaml"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return nil, err
	}
	t.cmd = exec.Command("taskset", "-c", strconv.Itoa(c.targetCore), c.rocet, "serve", "--config", file)
	t.cmd.Env = t.env
	t.cmd.Stdout, t.cmd.Stderr = &t.log, &t.log
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := t.cmd.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err := t.scrape(); err == nil {
			if _, err = t.perf("--count", "1", "--qd", "1"); err == nil {
				return t, nil
			}
		}
		if t.cmd.ProcessState != nil || time.Now().After(end) {
			_ = t.stop()
			return nil, fmt.Errorf("rocet serve does not come up:\n%s", t.log.String())
		}
	}
}

func (t *targetProcess) url() string {
	return fmt.Sprintf("nvme-%s://127.0.0.1:%d/%s", t.transport, t.c.port, nqn)
}

// stop ends the target.
func (t *targetProcess) stop() error {
	_ = t.cmd.Process.Signal(syscall.SIGTERM)
	err := t.cmd.Wait()
	t.clean()
	if err != nil {
		return fmt.Errorf("rocet serve: %w:\n%s", err, t.log.String())
	}
	return nil
}

func (t *targetProcess) clean() {
	os.RemoveAll(t.dir)
	if t.fabric != "" {
		os.RemoveAll(t.fabric)
	}
}

// perf runs rocet perf on the host's core.
func (t *targetProcess) perf(args ...string) (*load.Result, error) {
	cmd := t.perfCommand(args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("rocet perf: %w: %s", err, stderr.String())
	}
	return parse(text)
}

func (t *targetProcess) perfCommand(args ...string) *exec.Cmd {
	cmd := exec.Command("taskset", append([]string{"-c", strconv.Itoa(t.c.hostCore), t.c.rocet, "perf", t.url(), "-o", "json"}, args...)...)
	cmd.Env = t.env
	return cmd
}

func parse(text []byte) (*load.Result, error) {
	res := new(load.Result)
	if err := json.Unmarshal(text, res); err != nil {
		return nil, fmt.Errorf("rocet perf printed no result: %w: %.200s", err, text)
	}
	return res, nil
}

// ramp is how long the load runs before it is measured; the target's counters are read this far inside of that.
const (
	ramp   = 400 * time.Millisecond
	inside = 150 * time.Millisecond
)

// load measures a point, with the target's cost of it.
func (t *targetProcess) load(p point, nsid int, r *result) error {
	cmd := t.perfCommand("--nsid", strconv.Itoa(nsid), "--rw", p.rw, "--bs", strconv.Itoa(p.bs), "--qd", strconv.Itoa(p.depth),
		"--time", t.c.time.String(), "--ramp", ramp.String(), "--force")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	began := time.Now()
	time.Sleep(time.Until(began.Add(ramp + inside)))
	before, err1 := t.snapshot()
	time.Sleep(time.Until(began.Add(ramp + t.c.time - inside)))
	after, err2 := t.snapshot()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("rocet perf: %w: %s", err, stderr.String())
	}
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	res, err := parse(stdout.Bytes())
	if err != nil {
		return err
	}
	if res.Depth != p.depth {
		return fmt.Errorf("the target takes queues of %d, not of %d", res.Depth, p.depth)
	}
	r.rocet = append(r.rocet, figures{IOPS: res.IOPS, P50: res.Latency.P50, P99: res.Latency.P99, P999: res.Latency.P999})
	r.costs = append(r.costs, cost{
		snapshot:   after.sub(before),
		hostUser:   res.Host.UserUS,
		hostSystem: res.Host.SystemUS,
		hostCalls:  res.Host.Calls,
		hostAllocs: res.Host.Allocs,
	})
	return nil
}

// snapshot is a set of the target's counters.
type snapshot struct {
	commands float64
	busy     float64 // seconds of its reactor
	cpu      float64 // seconds of its process
	allocs   float64
	calls    float64 // system calls of its transport
	stalls   float64
}

func (s snapshot) sub(o snapshot) snapshot {
	return snapshot{s.commands - o.commands, s.busy - o.busy, s.cpu - o.cpu, s.allocs - o.allocs, s.calls - o.calls, s.stalls - o.stalls}
}

func (t *targetProcess) scrape() (lab.Metrics, error) {
	return lab.Scrape(fmt.Sprintf("http://127.0.0.1:%d/metrics", t.c.metricsPort))
}

func (t *targetProcess) snapshot() (s snapshot, err error) {
	m, err := t.scrape()
	if err != nil {
		return s, err
	}
	s.commands = m.Sum("rocet_commands_total")
	s.busy = m.Sum("rocet_reactor_busy_seconds_total")
	s.allocs = m.Sum("go_memstats_mallocs_total")
	s.stalls = m.Sum("rocet_reactor_stalls_total")
	for _, x := range m {
		if x.Name == "rocet_tcp_events_total" && systemCalls[x.Labels["event"]] {
			s.calls += x.Value
		}
	}
	s.cpu, err = cpuSeconds(t.cmd.Process.Pid)
	return s, err
}

// systemCalls are the TCP transport's events that are one system call each.
var systemCalls = map[string]bool{"read": true, "send": true, "epoll_wait": true}

// cpuSeconds is the processor time of a process: proc(5), stat, in ticks of 10 ms.
func cpuSeconds(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may contain blanks
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, text)
	}
	user, err1 := strconv.ParseFloat(f[11], 64)
	system, err2 := strconv.ParseFloat(f[12], 64)
	return (user + system) / 100, errors.Join(err1, err2)
}
