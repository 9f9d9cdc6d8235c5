package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

func TestEcho(t *testing.T) {
	for _, test := range []struct{ request, response, depth int }{{72, 4120, 1}, {72, 4120, 32}, {4168, 24, 32}, {72, 128<<10 + 24, 16}} {
		r, w := io.Pipe()
		served := make(chan error, 1)
		go func() { served <- echoServe(w, test.request, test.response) }()
		var port int
		if _, err := fmt.Fscan(r, &port); err != nil {
			t.Fatal(err)
		}
		f, err := echoLoad(port, test.request, test.response, test.depth, 500*time.Millisecond)
		if err != nil || f.IOPS <= 0 || f.P50 <= 0 || f.P50 > f.P99 || f.P99 > f.P999 {
			t.Errorf("%+v: %+v, %v", test, f, err)
		}
		if err := <-served; err != nil {
			t.Errorf("%+v: the server: %v", test, err)
		}
	}
}

func TestResult(t *testing.T) {
	r := &result{Point: "tcp null 4k", PeerName: "echo"}
	for i := 1; i <= 5; i++ {
		f := float64(i)
		r.rocet = append(r.rocet, figures{IOPS: 100 * f, P50: f, P99: 2 * f, P999: 3 * f})
		r.peer = append(r.peer, figures{IOPS: 200, P999: 9})
		r.costs = append(r.costs, cost{snapshot: snapshot{commands: 1000, busy: f / 1000, cpu: 2 * f / 1000, allocs: 10, calls: 500}, hostUser: 1, hostSystem: f, hostCalls: 2})
	}
	r.finish()
	if r.Rocet != 300 || r.Peer != 200 || r.Ratio != 1.5 || r.RocetLatency.P999 != 9 || r.Target.BusyUS != 3 || r.Target.CPUUS != 6 ||
		*r.Target.Calls != 0.5 || r.Target.Allocs != 0.01 || r.Host.CPUUS != 4 || *r.Host.Calls != 2 {
		t.Errorf("%+v", r)
	}
	text, err := json.Marshal([]*result{r})
	for _, want := range []string{`"point":"tcp null 4k"`, `"rocet":300`, `"peer":200`, `"ratio":1.5`} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s is not in %s (%v)", want, text, err)
		}
	}
	alone := &result{Point: "rdma null 4k", rocet: r.rocet, costs: r.costs}
	alone.finish()
	var b bytes.Buffer
	printTable(&b, 5, []*result{r, alone})
	for _, want := range []string{"1.50  0.50 to 2.50", "rdma null 4k"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

func TestCPUSeconds(t *testing.T) {
	before, err := cpuSeconds(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; {
		after, err := cpuSeconds(os.Getpid())
		if err != nil || time.Now().After(end) {
			t.Fatalf("%v to %v s, %v", before, after, err)
		}
		if after > before && after < before+60 {
			return
		}
	}
}

func TestChecks(t *testing.T) {
	good := config{rounds: 1, time: time.Second, hostCore: 0, targetCore: 1, transports: []string{"tcp"}, backends: []string{"null"}}
	for name, change := range map[string]func(*config){
		"no rounds": func(c *config) { c.rounds = 0 }, "too short": func(c *config) { c.time = time.Millisecond },
		"one core": func(c *config) { c.hostCore = 1 }, "transport": func(c *config) { c.transports = []string{"fc"} },
		"no shmverbs": func(c *config) { c.transports = []string{"rdma"} }, "backend": func(c *config) { c.backends = []string{"tape"} },
		"no such core": func(c *config) { c.targetCore = 9999 },
	} {
		c := good
		change(&c)
		if c.check() == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
