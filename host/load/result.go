package load

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"rocet/host"
)

// Result is what a run measured.
type Result struct {
	Target    string `json:"target"`
	NSID      uint32 `json:"nsid"`
	RW        string `json:"rw"`
	ReadMix   int    `json:"read_mix,omitempty"`
	BlockSize uint32 `json:"block_size"`
	Depth     int    `json:"depth"` // that the target took
	Queues    int    `json:"queues"`

	Seconds float64 `json:"seconds"`
	IOs     uint64  `json:"ios"`
	IOPS    float64 `json:"iops"`
	Bytes   float64 `json:"bytes_per_second"`

	Latency Latency  `json:"latency_us"`
	Read    *Partial `json:"read,omitempty"`  // of a mixed load
	Write   *Partial `json:"write,omitempty"` // of a mixed load

	Errors   uint64            `json:"errors"`
	Statuses map[string]uint64 `json:"statuses,omitempty"` // errors by status

	Verified uint64    `json:"verified_blocks,omitempty"`
	Mismatch *Mismatch `json:"mismatch,omitempty"`

	Host        HostCost `json:"host"`
	Interrupted bool     `json:"interrupted,omitempty"`
}

// Partial is one direction of a mixed load.
type Partial struct {
	IOs     uint64  `json:"ios"`
	IOPS    float64 `json:"iops"`
	Latency Latency `json:"latency_us"`
}

// Latency in microseconds, from the submission to the answer's discovery.
type Latency struct {
	Min   float64 `json:"min"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p99.9"`
	P9999 float64 `json:"p99.99"`
	Max   float64 `json:"max"`
}

// HostCost is what the load cost this process, an I/O.
type HostCost struct {
	UserUS   float64 `json:"user_us"`
	SystemUS float64 `json:"system_us"`
	Calls    float64 `json:"calls"`       // TCP: system calls that moved data; RDMA: posts, and polls that found something
	Empty    float64 `json:"empty_polls"` // that found nothing
	Copied   float64 `json:"copied_bytes"`
	Allocs   float64 `json:"allocs"`
}

func (r *run) result(before, after usage) *Result {
	cfg := &r.cfg
	res := &Result{Target: cfg.Target.URL(), NSID: r.ns.NSID, RW: cfg.RW, BlockSize: cfg.BlockSize, Depth: cfg.Depth,
		Queues: cfg.Queues, Statuses: map[string]uint64{}}
	read, write := hdrhistogram.New(1, highest, digits), hdrhistogram.New(1, highest, digits)
	var stats host.Stats
	var from, to time.Duration
	for i, w := range r.workers {
		read.Merge(w.read)
		write.Merge(w.write)
		for st, n := range w.errs {
			res.Errors += n
			res.Statuses[st.String()] += n
		}
		stats.Sends += w.stats.Sends - w.base.Sends
		stats.Receives += w.stats.Receives - w.base.Receives
		stats.Empty += w.stats.Empty - w.base.Empty
		stats.Copied += w.stats.Copied - w.base.Copied
		stats.Completions += w.stats.Completions - w.base.Completions
		if i == 0 || w.from < from {
			from = w.from
		}
		to = max(to, w.to)
	}
	res.addVerified(r.workers)
	seconds := (to - from).Seconds()
	res.Seconds = round(seconds)
	rate := func(n uint64) float64 {
		if seconds == 0 {
			return 0
		}
		return round(float64(n) / seconds)
	}
	if r.shape.reads && r.shape.writes {
		res.ReadMix = max(cfg.ReadMix, 0)
		part := func(h *hdrhistogram.Histogram) *Partial {
			return &Partial{IOs: uint64(h.TotalCount()), IOPS: rate(uint64(h.TotalCount())), Latency: latency(h)}
		}
		res.Read, res.Write = part(read), part(write)
	}
	read.Merge(write)
	res.IOs = uint64(read.TotalCount())
	res.IOPS = rate(res.IOs)
	res.Bytes = round(res.IOPS * float64(cfg.BlockSize))
	res.Latency = latency(read)
	if n := float64(stats.Completions); n > 0 {
		us := func(d time.Duration) float64 { return round(float64(d) / 1e3 / n) }
		res.Host = HostCost{UserUS: us(after.user - before.user), SystemUS: us(after.system - before.system),
			Calls: round(float64(stats.Sends+stats.Receives) / n), Empty: round(float64(stats.Empty) / n),
			Copied: round(float64(stats.Copied) / n), Allocs: float64(after.allocs-before.allocs) / n}
	}
	return res
}

func (res *Result) addVerified(workers []*worker) {
	res.Verified = 0
	for _, w := range workers {
		res.Verified += w.verified
		if w.mismatch != nil && (res.Mismatch == nil || w.mismatch.LBA < res.Mismatch.LBA) {
			res.Mismatch = w.mismatch
		}
	}
}

func latency(h *hdrhistogram.Histogram) Latency {
	if h.TotalCount() == 0 {
		return Latency{}
	}
	us := func(ns float64) float64 { return round(ns / 1e3) }
	q := func(p float64) float64 { return us(float64(h.ValueAtPercentile(p))) }
	return Latency{Min: us(float64(h.Min())), Mean: us(h.Mean()), P50: q(50), P90: q(90), P99: q(99), P999: q(99.9), P9999: q(99.99), Max: us(float64(h.Max()))}
}

// round to three decimals: more would pretend.
func round(x float64) float64 { return float64(int64(x*1000+0.5)) / 1000 }

// Failed says whether something went wrong: commands, or data.
func (res *Result) Failed() bool { return res.Errors > 0 || res.Mismatch != nil }

// Print writes the result for people.
func (res *Result) Print(w io.Writer) error {
	what := res.RW
	if res.Read != nil {
		what += fmt.Sprintf(" (%d %% reads)", res.ReadMix)
	}
	queues := fmt.Sprintf("queue depth %d", res.Depth)
	if res.Queues > 1 {
		queues = fmt.Sprintf("%d queues of depth %d", res.Queues, res.Depth)
	}
	fmt.Fprintf(w, "%s, namespace %d: %s, %s blocks, %s\n\n", res.Target, res.NSID, what, SizeString(uint64(res.BlockSize)), queues)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tIOPS\tMiB/s\tmin\tmean\tp50\tp90\tp99\tp99.9\tp99.99\tmax\t")
	line := func(name string, iops float64, l Latency) {
		fmt.Fprintf(t, "%s\t%.0f\t%.1f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", name, iops, iops*float64(res.BlockSize)/(1<<20),
			us(l.Min), us(l.Mean), us(l.P50), us(l.P90), us(l.P99), us(l.P999), us(l.P9999), us(l.Max))
	}
	if res.Read != nil {
		line("read", res.Read.IOPS, res.Read.Latency)
		line("write", res.Write.IOPS, res.Write.Latency)
	}
	line("all", res.IOPS, res.Latency)
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nlatencies in µs; %d I/Os in %.2f s", res.IOs, res.Seconds)
	if res.Interrupted {
		fmt.Fprint(w, ", interrupted")
	}
	fmt.Fprintf(w, "\nthis host: %.2f µs of CPU an I/O (%.2f user, %.2f system), %.2f calls, %.4f allocations\n",
		res.Host.UserUS+res.Host.SystemUS, res.Host.UserUS, res.Host.SystemUS, res.Host.Calls, res.Host.Allocs)
	if res.Verified > 0 {
		fmt.Fprintf(w, "verified: %d blocks\n", res.Verified)
	}
	var names []string
	for name := range res.Statuses {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(w, "errors: %d with %s\n", res.Statuses[name], name)
	}
	if res.Mismatch != nil {
		fmt.Fprintf(w, "MISMATCH at %v\n", res.Mismatch)
	}
	return nil
}

func us(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

// SizeString is a number of bytes as people write it.
func SizeString(n uint64) string {
	for i, unit := range []string{"EiB", "PiB", "TiB", "GiB", "MiB", "KiB"} {
		shift := uint(60 - 10*i)
		if n>>shift > 0 && n&(1<<shift-1) == 0 {
			return fmt.Sprintf("%d %s", n>>shift, unit)
		}
	}
	return fmt.Sprintf("%d B", n)
}
