package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// figures are one measurement.
type figures struct {
	IOPS float64 `json:"iops"`
	P50  float64 `json:"p50_us"`
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p99.9_us"`
	Busy float64 `json:"busy_us,omitempty"` // of the target, a command
}

// cost is what a measurement cost the target, over a part of it, and the host, over all of it.
type cost struct {
	snapshot
	hostUser, hostSystem  float64 // µs an I/O
	hostCalls, hostAllocs float64 // an I/O
}

// result is a point's figures, as they are written: medians of the rounds.
type result struct {
	Point    string    `json:"point"`
	Rocet    float64   `json:"rocet"` // I/Os a second
	Peer     float64   `json:"peer,omitempty"`
	PeerName string    `json:"peer_name,omitempty"` // echo: the plain limit
	Ratio    float64   `json:"ratio,omitempty"`     // rocet / peer: the median of the rounds' ratios
	Ratios   []float64 `json:"ratios,omitempty"`    // of each round, to show the spread

	RocetLatency figures  `json:"rocet_latency"`
	PeerLatency  *figures `json:"peer_latency,omitempty"`

	Target perIO `json:"target"`
	Host   perIO `json:"host"`

	rocet, peer []figures
	costs       []cost
}

// perIO is the cost of one I/O.
type perIO struct {
	BusyUS float64  `json:"busy_us,omitempty"` // of the reactor
	CPUUS  float64  `json:"cpu_us"`            // of the process
	Calls  *float64 `json:"system_calls,omitempty"`
	Allocs float64  `json:"allocs"`
}

// finish computes the medians.
func (r *result) finish() {
	r.RocetLatency = medians(r.rocet)
	r.Rocet = r.RocetLatency.IOPS
	if len(r.peer) > 0 {
		m := medians(r.peer)
		r.PeerLatency, r.Peer = &m, m.IOPS
		for i := range r.peer {
			r.Ratios = append(r.Ratios, round(ratio(r.rocet[i].IOPS, r.peer[i].IOPS)))
		}
		r.Ratio = median(r.Ratios, func(x float64) float64 { return x })
	}
	each := func(f func(c cost) float64) float64 { return round(median(r.costs, f)) }
	r.Target = perIO{
		BusyUS: each(func(c cost) float64 { return 1e6 * ratio(c.busy, c.commands) }),
		CPUUS:  each(func(c cost) float64 { return 1e6 * ratio(c.cpu, c.commands) }),
		Allocs: each(func(c cost) float64 { return ratio(c.allocs, c.commands) }),
	}
	if calls := each(func(c cost) float64 { return ratio(c.calls, c.commands) }); calls > 0 {
		r.Target.Calls = &calls
	}
	calls := each(func(c cost) float64 { return c.hostCalls })
	r.Host = perIO{CPUUS: each(func(c cost) float64 { return c.hostUser + c.hostSystem }), Calls: &calls,
		Allocs: each(func(c cost) float64 { return c.hostAllocs })}
}

func medians(fs []figures) figures {
	m := func(f func(figures) float64) float64 { return round(median(fs, f)) }
	return figures{
		IOPS: m(func(f figures) float64 { return f.IOPS }), P50: m(func(f figures) float64 { return f.P50 }),
		P99: m(func(f figures) float64 { return f.P99 }), P999: m(func(f figures) float64 { return f.P999 }),
		Busy: m(func(f figures) float64 { return f.Busy }),
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

func printTable(w io.Writer, rounds int, results []*result) {
	fmt.Fprintf(w, "\nrocet perf against rocet serve, one core each, medians of %d rounds; latencies and times in µs\n\n", rounds)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "point\tIOPS\tp50\tp99\tp99.9\tpeer\tIOPS\tp99.9\tratio\t(rounds)\ttarget busy\tCPU\tcalls\tallocs\thost CPU\tcalls\tallocs\t")
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%.0f\t%.1f\t%.1f\t%.1f\t", r.Point, r.Rocet, r.RocetLatency.P50, r.RocetLatency.P99, r.RocetLatency.P999)
		if r.PeerLatency != nil {
			fmt.Fprintf(t, "%s\t%.0f\t%.1f\t%.2f\t%.2f to %.2f\t", r.PeerName, r.Peer, r.PeerLatency.P999, r.Ratio, slices.Min(r.Ratios), slices.Max(r.Ratios))
		} else {
			fmt.Fprint(t, "\t\t\t\t\t")
		}
		calls := "-"
		if r.Target.Calls != nil {
			calls = fmt.Sprintf("%.2f", *r.Target.Calls)
		}
		fmt.Fprintf(t, "%.2f\t%.2f\t%s\t%.3f\t%.2f\t%.2f\t%.3f\t\n", r.Target.BusyUS, r.Target.CPUUS, calls, r.Target.Allocs,
			r.Host.CPUUS, *r.Host.Calls, r.Host.Allocs)
	}
	t.Flush()
}
