// Lab compares Rocet with the kernel's own target: fio on a null namespace of each, and on a drive behind each, over the
// same device, in turns. It runs inside the lab's guest (make bench), prints a table and writes it as JSON.
//
// The guest is an emulated machine: its absolute figures mean nothing, and single runs differ by a third. What counts is
// the ratio of the two within one guest, as the median of several rounds.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"rocet/lab"
)

const (
	rocetPort = "4420"
	peerPort  = "4421"
	rocetNQN  = "nqn.2026-01.io.rocet:bench"
	peerNQN   = "nqn.2026-01.io.rocet:peer"
	device    = 256 // MiB that fio works on
)

// point is a thing to measure.
type point struct {
	name  string
	rw    string
	bs    string
	depth int
}

var points = []point{
	{"4k randread qd1", "randread", "4k", 1},
	{"4k randread qd32", "randread", "4k", 32},
	{"4k randwrite qd32", "randwrite", "4k", 32},
	{"128k read qd8", "read", "128k", 8},
}

func main() {
	out := flag.String("out", "bench/out/lab.json", "file for the results")
	transport := flag.String("transport", "rdma", "rdma or tcp")
	rounds := flag.Int("rounds", 3, "how often each side of each point is measured")
	runtime := flag.Duration("runtime", 4*time.Second, "how long each measurement takes")
	reactors := flag.String("reactors", "count: 1, mode: adaptive", "Rocet's reactors, as in its configuration")
	drives := flag.Bool("drives", true, "measure on a drive too")
	flag.Parse()
	if *rounds < 1 || *runtime < time.Second {
		fmt.Fprintln(os.Stderr, "bench: -rounds is at least 1, -runtime at least 1s")
		os.Exit(2)
	}
	b := newBench()
	os.Exit(b.main(func() {
		results := measure(b, *transport, *reactors, *rounds, *runtime)
		if *drives {
			results = append(results, measureDrive(b, *transport, *reactors, *rounds, *runtime)...)
		}
		printTable(os.Stdout, *transport, *rounds, results)
		if err := write(*out, results); err != nil {
			b.Fatalf("%v", err)
		}
		fmt.Printf("\nwritten to %s\n", *out)
	}))
}

// config is Rocet with one null namespace.
func config(transport, reactors string) string {
	return fmt.Sprintf(`reactors: {%s}
memory: {size: 64MiB}
metrics: {listen: %q}
listeners: [{transport: %s, address: %s, port: %s}]
subsystems:
  - nqn: %s
    allow_any_host: true
    namespaces:
      - {nsid: 1, backend: {type: "null", size: %dMiB}, block_size: 4096}
`, reactors, lab.MetricsAddr, transport, lab.Addr0, rocetPort, rocetNQN, device)
}

func measure(b *bench, transport, reactors string, rounds int, runtime time.Duration) []result {
	rocet := lab.StartRocet(b, config(transport, reactors))
	peer := lab.StartNvmet(b, lab.NvmetConfig{NQN: peerNQN, Transport: transport, Addr: lab.Addr0, Port: peerPort,
		Backing: []string{lab.NewNullBlk(b, "bench", device, 4096)}})
	connect := func(nqn, port string) *lab.Controller {
		return lab.Connect(b, lab.ConnectOptions{Transport: transport, Addr: lab.Addr0, Port: port, NQN: nqn})
	}
	rocetHost, peerHost := connect(rocetNQN, rocetPort), connect(peerNQN, peerPort)
	rocetDev, peerDev := rocetHost.Namespace(1), peerHost.Namespace(1)

	results := make([]result, len(points))
	for i, p := range points {
		r := &results[i]
		r.Point = p.name
		for round := range rounds {
			fmt.Printf("%s, round %d of %d ...", p.name, round+1, rounds)
			var rocetRun, peerRun lab.FioDirection
			if round%2 == 1 { // take turns in going first
				peerRun = runFio(b, p, peerDev, runtime)
			}
			before := cpuTime(b, rocet.Pid())
			rocetRun = runFio(b, p, rocetDev, runtime)
			used := cpuTime(b, rocet.Pid()).sub(before)
			if round%2 == 0 {
				peerRun = runFio(b, p, peerDev, runtime)
			}
			fmt.Printf(" rocet %.0f, nvmet %.0f IOPS\n", rocetRun.IOPS, peerRun.IOPS)
			r.add(rocetRun, peerRun, used)
		}
		r.finish()
	}
	rocetHost.Disconnect()
	peerHost.Disconnect()
	rocet.Stop()
	peer.Stop()
	return results
}

func runFio(b *bench, p point, dev string, runtime time.Duration) lab.FioDirection {
	res := lab.Fio(b, lab.FioJob{Name: "bench", File: dev, RW: p.rw, BS: p.bs, Depth: p.depth, Runtime: runtime,
		Args: []string{"--norandommap"}})
	if p.rw == "randwrite" || p.rw == "write" {
		return res.Write
	}
	return res.Read
}

func write(path string, results []result) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
