package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"rocet/lab"
)

var _ lab.T = (*bench)(nil)

func TestMedian(t *testing.T) {
	id := func(x float64) float64 { return x }
	for _, tt := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := median(tt.in, id); got != tt.want {
			t.Errorf("median of %v is %v, want %v", tt.in, got, tt.want)
		}
	}
}

func TestResult(t *testing.T) {
	us := time.Microsecond
	fio := func(ios int64, iops float64, p50 time.Duration) lab.FioDirection {
		return lab.FioDirection{IOs: ios, IOPS: iops, P50: p50, P99: 10 * p50, P999: 100 * p50}
	}
	r := result{Point: "p"}
	r.add(fio(100, 1000, 5*us), fio(100, 2000, 2*us), cpu{1000, 3000})
	r.add(fio(100, 3000, 9*us), fio(100, 2000, 4*us), cpu{2000, 1000})
	r.add(fio(100, 1500, 7*us), fio(100, 1000, 3*us), cpu{3000, 2000})
	r.finish()
	if r.Rocet != 1500 || r.Peer != 2000 || r.Ratio != 0.75 {
		t.Errorf("medians %v, %v, ratio %v", r.Rocet, r.Peer, r.Ratio)
	}
	if want := []float64{0.5, 1.5, 1.5}; !reflect.DeepEqual(r.Ratios, want) {
		t.Errorf("ratios %v, want %v", r.Ratios, want)
	}
	if r.RocetLatency != (latency{7, 70, 700}) || r.PeerLatency != (latency{3, 30, 300}) {
		t.Errorf("latencies %v, %v", r.RocetLatency, r.PeerLatency)
	}
	if r.RocetCPU != (cpu{20, 20}) {
		t.Errorf("processor time %v", r.RocetCPU)
	}

	path := filepath.Join(t.TempDir(), "out", "lab.json")
	if err := write(path, []result{r}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var back []map[string]any
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{"point": "p", "rocet": 1500.0, "peer": 2000.0, "ratio": 0.75} {
		if back[0][key] != want {
			t.Errorf("%s is %v in JSON, want %v", key, back[0][key], want)
		}
	}

	var table strings.Builder
	printTable(&table, "rdma", 3, []result{r})
	if !strings.Contains(table.String(), "0.75") || !strings.Contains(table.String(), "0.50 to 1.50") {
		t.Errorf("table:\n%s", table.String())
	}
}

func TestParseStat(t *testing.T) {
	c, err := parseStat("42 (a ) b) S 1 42 42 0 -1 4194560 100 0 0 0 250 31 0 0 20 0 8 0 100 0 0\n")
	if err != nil || c != (cpu{2.5e6, 3.1e5}) {
		t.Errorf("%v, %v", c, err)
	}
	for _, bad := range []string{"", "42 (a) S 1", "42 (a) S 1 2 3 4 5 6 7 8 9 10 x y 1"} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("%q was taken for a stat line", bad)
		}
	}
}

func TestBenchCleansUp(t *testing.T) {
	b := newBench()
	var order []int
	status := b.main(func() {
		b.Cleanup(func() { order = append(order, 1) })
		b.Cleanup(func() { order = append(order, 2); b.Fatalf("in a cleanup") })
		b.Fatalf("stop")
	})
	if status != 1 || !reflect.DeepEqual(order, []int{2, 1}) {
		t.Errorf("status %d, cleanups %v", status, order)
	}
	if status := newBench().main(func() {}); status != 0 {
		t.Errorf("status %d of one that went well", status)
	}
}
