package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"rocet/lab"
)

// result is a point's figures, as they are written: medians of the rounds.
type result struct {
	Point string  `json:"point"`
	Rocet float64 `json:"rocet"` // I/Os a second
	Peer  float64 `json:"peer"`  // the same of the kernel's target
	Ratio float64 `json:"ratio"` // rocet / peer

	RocetLatency latency   `json:"rocet_us"`
	PeerLatency  latency   `json:"peer_us"`
	Ratios       []float64 `json:"ratios"`       // of each round, to show the spread
	RocetCPU     cpu       `json:"rocet_cpu_us"` // of Rocet's process, an I/O
	rocet, peer  []lab.FioDirection
	cpu          []cpu
}

// latency in microseconds, submission included.
type latency struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99.9"`
}

// cpu is processor time in microseconds. The kernel's part of Soft-RoCE that runs in softirqs is not in it.
type cpu struct {
	User   float64 `json:"user"`
	System float64 `json:"system"`
}

func (c cpu) sub(d cpu) cpu { return cpu{c.User - d.User, c.System - d.System} }

// add takes a round: both sides' figures, and the processor time that Rocet used for its own.
func (r *result) add(rocet, peer lab.FioDirection, used cpu) {
	r.rocet = append(r.rocet, rocet)
	r.peer = append(r.peer, peer)
	ios := float64(max(rocet.IOs, 1))
	r.cpu = append(r.cpu, cpu{used.User / ios, used.System / ios})
	r.Ratios = append(r.Ratios, round(ratio(rocet.IOPS, peer.IOPS)))
}

// finish computes the medians.
func (r *result) finish() {
	iops := func(d lab.FioDirection) float64 { return d.IOPS }
	r.Rocet, r.Peer = round(median(r.rocet, iops)), round(median(r.peer, iops))
	r.Ratio = round(ratio(r.Rocet, r.Peer))
	r.RocetLatency, r.PeerLatency = latencies(r.rocet), latencies(r.peer)
	r.RocetCPU = cpu{round(median(r.cpu, func(c cpu) float64 { return c.User })), round(median(r.cpu, func(c cpu) float64 { return c.System }))}
}

func latencies(d []lab.FioDirection) latency {
	us := func(f func(lab.FioDirection) time.Duration) float64 {
		return round(median(d, func(d lab.FioDirection) float64 { return float64(f(d)) / 1e3 }))
	}
	return latency{
		P50:  us(func(d lab.FioDirection) time.Duration { return d.P50 }),
		P99:  us(func(d lab.FioDirection) time.Duration { return d.P99 }),
		P999: us(func(d lab.FioDirection) time.Duration { return d.P999 }),
	}
}

func median[E any](s []E, f func(E) float64) float64 {
	values := make([]float64, len(s))
	for i, e := range s {
		values[i] = f(e)
	}
	slices.Sort(values)
	n := len(values)
	if n == 0 {
		return 0
	}
	return (values[(n-1)/2] + values[n/2]) / 2
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// round to three decimals: more would pretend.
func round(x float64) float64 { return float64(int64(x*1000+0.5)) / 1000 }

func printTable(w io.Writer, transport string, rounds int, results []result) {
	fmt.Fprintf(w, "\nRocet and the kernel's nvmet-%s, null namespaces and a drive, medians of %d rounds; latencies in µs\n\n", transport, rounds)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "point\t\tIOPS\tp50\tp99\tp99.9\tratio\t(rounds)\tCPU µs an I/O\t")
	for _, r := range results {
		fmt.Fprintf(t, "%s\trocet\t%.0f\t%.0f\t%.0f\t%.0f\t%.2f\t%.2f to %.2f\t%.0f user, %.0f system\t\n", r.Point, r.Rocet,
			r.RocetLatency.P50, r.RocetLatency.P99, r.RocetLatency.P999, r.Ratio, slices.Min(r.Ratios), slices.Max(r.Ratios),
			r.RocetCPU.User, r.RocetCPU.System)
		fmt.Fprintf(t, "\tnvmet\t%.0f\t%.0f\t%.0f\t%.0f\t\t\t\t\n", r.Peer, r.PeerLatency.P50, r.PeerLatency.P99, r.PeerLatency.P999)
	}
	t.Flush()
}
