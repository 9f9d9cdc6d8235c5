// Native measures Rocet on this machine: `rocet perf` on one core against `rocet serve` on another, over loopback, and
// over shared-memory verbs where there are some. Each measurement takes turns with the plain limit, an echo over the same
// kind of socket with the same sizes and batching, and with another program if the environment names one.
//
// Single figures differ by a tenth from run to run, and by more on a machine that does other things. What counts is the
// ratio within one run, as the median of several rounds.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// point is a thing to measure.
type point struct {
	name  string
	rw    string
	bs    int
	depth int
}

var points = []point{
	{"4k randread qd1", "randread", 4 << 10, 1},
	{"4k randread qd32", "randread", 4 << 10, 32},
	{"4k randread qd128", "randread", 4 << 10, 128},
	{"4k randwrite qd32", "randwrite", 4 << 10, 32},
	{"128k read qd16", "read", 128 << 10, 16},
}

func (p point) write() bool { return strings.Contains(p.rw, "write") }

// config is how to measure.
type config struct {
	rocet       string
	rounds      int
	time        time.Duration
	targetCore  int
	hostCore    int
	peer        string // a command
	peerName    string
	shmverbs    string // folder of the libraries, for RDMA
	transports  []string
	backends    []string
	only        string
	echo        bool
	metricsPort int
	port        int
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "echo" {
		if err := echo(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench: echo:", err)
			os.Exit(1)
		}
		return
	}
	var c config
	var transports, backends string
	out := flag.String("out", "bench/out/native.json", "file for the results")
	flag.StringVar(&c.rocet, "rocet", "bin/rocet", "the program")
	flag.IntVar(&c.rounds, "rounds", 5, "how often each side of each point is measured")
	flag.DurationVar(&c.time, "time", 2*time.Second, "how long each measurement takes")
	flag.IntVar(&c.targetCore, "target-core", 0, "where the target runs")
	flag.IntVar(&c.hostCore, "host-core", 1, "where the host runs")
	flag.StringVar(&transports, "transport", "", "tcp, rdma, or both with a comma (tcp, and rdma with SHMVERBS)")
	flag.StringVar(&backends, "backend", "null,memory", "namespaces")
	flag.StringVar(&c.only, "point", "", "only points whose name contains this")
	flag.BoolVar(&c.echo, "echo", true, "measure the plain limit too")
	flag.IntVar(&c.port, "port", 4460, "of the target")
	flag.IntVar(&c.metricsPort, "metrics-port", 4461, "of the target's metrics")
	flag.Parse()
	c.peer, c.peerName = os.Getenv("ROCET_BENCH_PEER"), os.Getenv("ROCET_BENCH_PEER_NAME")
	if c.peerName == "" {
		c.peerName = "peer"
	}
	c.shmverbs = os.Getenv("SHMVERBS")
	if transports == "" {
		if transports = "tcp"; c.shmverbs != "" {
			transports += ",rdma"
		}
	}
	c.transports, c.backends = strings.Split(transports, ","), strings.Split(backends, ",")
	if err := c.run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (c *config) check() error {
	switch {
	case c.rounds < 1 || c.time < time.Second:
		return errors.New("-rounds is at least 1, -time at least 1s")
	case c.targetCore == c.hostCore:
		return errors.New("target and host need a core each")
	}
	for _, t := range c.transports {
		if t != "tcp" && t != "rdma" {
			return fmt.Errorf("-transport %q: want tcp, rdma or tcp,rdma", t)
		}
		if t == "rdma" && c.shmverbs == "" {
			return errors.New("-transport rdma: SHMVERBS does not name a build of shmverbs (libibverbs and librdmacm over shared memory)")
		}
	}
	for _, b := range c.backends {
		if b != "null" && b != "memory" {
			return fmt.Errorf("-backend %q: want null, memory or null,memory", b)
		}
	}
	for _, core := range []int{c.targetCore, c.hostCore} {
		if out, err := exec.Command("taskset", "-c", fmt.Sprint(core), "true").CombinedOutput(); err != nil {
			return fmt.Errorf("core %d: %w: %s", core, err, out)
		}
	}
	return nil
}

func (c *config) run(out string) error {
	if err := c.check(); err != nil {
		return err
	}
	var results []*result
	for _, transport := range c.transports {
		rs, err := c.measure(transport)
		if err != nil {
			return fmt.Errorf("%s: %w", transport, err)
		}
		results = append(results, rs...)
	}
	printTable(os.Stdout, c.rounds, results)
	data, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(out, append(data, '\n'), 0o644); err != nil {
		return err
	}
	fmt.Printf("\nwritten to %s\n", out)
	return nil
}

// measure runs all points over one transport.
func (c *config) measure(transport string) (results []*result, err error) {
	t, err := c.startTarget(transport)
	if err != nil {
		return nil, err
	}
	defer func() {
		if serr := t.stop(); err == nil {
			err = serr
		}
	}()
	for nsid, backend := range c.backends {
		for _, p := range points {
			name := fmt.Sprintf("%s %s %s", transport, backend, p.name)
			if !strings.Contains(name, c.only) {
				continue
			}
			r := &result{Point: name, PeerName: "echo"}
			if transport == "rdma" || !c.echo {
				r.PeerName = ""
			}
			var other *result
			if c.peer != "" {
				other = &result{Point: name, PeerName: c.peerName}
			}
			for round := range c.rounds {
				fmt.Printf("%s, round %d of %d ...", name, round+1, c.rounds)
				sides := []func() error{
					func() error { return t.load(p, nsid+1, r) },
					func() error { return c.limit(p, r) },
					func() error { return c.external(t, backend, p, nsid+1, other) },
				}
				for i := range sides { // take turns in going first
					if err := sides[(i+round)%len(sides)](); err != nil {
						return nil, fmt.Errorf("%s: %w", name, err)
					}
				}
				fmt.Printf(" rocet %.0f", r.rocet[round].IOPS)
				if r.PeerName != "" {
					fmt.Printf(", %s %.0f", r.PeerName, r.peer[round].IOPS)
				}
				if other != nil {
					fmt.Printf(", %s %.0f", other.PeerName, other.peer[round].IOPS)
				}
				fmt.Println(" IOPS")
			}
			r.finish()
			results = append(results, r)
			if other != nil {
				other.rocet, other.costs = r.rocet, r.costs
				other.finish()
				results = append(results, other)
			}
		}
	}
	return results, nil
}

// external asks another program for its figures: the command is run by the shell, with the point in its environment, and
// prints {"iops": N, "p50_us": N, "p99_us": N, "p99.9_us": N, "busy_us": N}, of which only the first has to be there.
// BENCH_URL is the Rocet target that runs, for another host program; another target is the command's own to start, on the
// target's core, and to stop or suspend before it ends.
func (c *config) external(t *targetProcess, backend string, p point, nsid int, r *result) error {
	if r == nil {
		return nil
	}
	cmd := exec.Command("sh", "-c", c.peer)
	cmd.Env = append(os.Environ(), "BENCH_TRANSPORT="+t.transport, "BENCH_BACKEND="+backend, "BENCH_RW="+p.rw,
		fmt.Sprintf("BENCH_BS=%d", p.bs), fmt.Sprintf("BENCH_QD=%d", p.depth), fmt.Sprintf("BENCH_SECONDS=%g", c.time.Seconds()),
		fmt.Sprintf("BENCH_TARGET_CORE=%d", c.targetCore), fmt.Sprintf("BENCH_HOST_CORE=%d", c.hostCore),
		fmt.Sprintf("BENCH_URL=%s?nsid=%d", t.url(), nsid))
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", c.peer, err)
	}
	var f figures
	if err := json.Unmarshal(text, &f); err != nil || f.IOPS <= 0 {
		return fmt.Errorf("%s printed no figures: %v: %.200s", c.peer, err, text)
	}
	r.peer = append(r.peer, f)
	return nil
}
