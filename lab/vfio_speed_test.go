//go:build lab

package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	drive "rocet/backend/nvme"
	"rocet/memory"
	"rocet/nvme"
	"rocet/reactor"
	"rocet/target"
)

// spinner keeps random reads under way on one reactor: each is followed by the next from its own end.
type spinner struct {
	io    target.IO
	q     *vfioQueue
	room  [target.MaxSegments]memory.Segment
	state uint64
	count *int
	until int64
	left  *int
	done  chan struct{}
	bad   *nvme.Status
}

func (s *spinner) next() {
	s.state = s.state*6364136223846793005 + 1442695040888963407
	s.io.LBA = (s.state >> 33) % (s.q.info.Blocks / 8) * 8
	s.q.queue.Submit(&s.io)
}

func (s *spinner) IODone(_ *target.IO, st nvme.Status) {
	*s.count++
	if !st.IsOK() {
		*s.bad = st
	}
	if reactor.Clock() < s.until && st.IsOK() {
		s.next()
		return
	}
	s.q.group.Mem.Free(s.io.Data)
	if *s.left--; *s.left == 0 {
		close(s.done)
	}
}

// randomReads measures 4 KiB random reads at a depth, and returns them by the second.
func (q *vfioQueue) randomReads(depth int, d time.Duration) float64 {
	count, left, done, bad := 0, depth, make(chan struct{}), nvme.StatusSuccess
	started := time.Now()
	q.group.Reactor.Call(func() {
		for i := range depth {
			s := &spinner{q: q, state: uint64(i) * 977, count: &count, until: reactor.Clock() + int64(d), left: &left, done: done, bad: &bad}
			s.io.Init(s)
			s.io.Op, s.io.Blocks = target.OpRead, 4096/q.info.BlockSize
			used, ok := q.group.Mem.Alloc(s.room[:], 4096, memory.ClassIO)
			if !ok {
				panic("no buffer")
			}
			s.io.Data = s.room[:used]
			s.next()
		}
	})
	<-done
	if !bad.IsOK() {
		q.rig.t.Fatalf("%v", bad)
	}
	return float64(count) / time.Since(started).Seconds()
}

// TestLabVFIOSpeed: 4 KiB random reads of a local drive through Rocet's driver, and through the kernel's with fio, one
// after the other in the same guest, several times. Figures of an emulated drive are worth as ratios only.
func TestLabVFIOSpeed(t *testing.T) {
	checkNoFaults(t)
	d := Drives(t)[0]
	d.wipe(t)
	const rounds, each = 3, 1500 * time.Millisecond
	depths := []int{1, 32}
	kernel, own := make(map[int][]float64), make(map[int][]float64)
	for range rounds {
		for _, depth := range depths {
			res := Fio(t, FioJob{File: d.Block(), RW: "randread", BS: "4k", Depth: depth, Runtime: each})
			kernel[depth] = append(kernel[depth], res.Read.IOPS)
		}
		Run(t, vfioBind, "bind", d.Address)
		r, err := newVFIORig(t, reactor.Adaptive, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.manager.Open(drive.Config{PCI: d.Address})
		if err != nil {
			t.Fatal(err)
		}
		q := r.open(b, 0)
		for _, depth := range depths {
			own[depth] = append(own[depth], q.randomReads(depth, each))
		}
		q.close()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
		Run(t, vfioBind, "kernel", d.Address)
		d.Block()
	}
	// The kernel's other way: passed-through commands on queues that are polled.
	polled := make(map[int][]float64)
	setPollQueues(t, 2)
	for range rounds {
		for _, depth := range depths {
			res := Fio(t, FioJob{File: d.generic(), RW: "randread", BS: "4k", Depth: depth, Runtime: each, Args: []string{"--hipri=1"}})
			polled[depth] = append(polled[depth], res.Read.IOPS)
		}
	}
	for _, depth := range depths {
		k, p, o := median(kernel[depth]), median(polled[depth]), median(own[depth])
		t.Logf("4 KiB random read, queue depth %d, IOPS (medians of %d): kernel's driver with io_uring %.0f, with io_uring_cmd and polling %.0f, "+
			"Rocet's driver %.0f: ratios %.2f and %.2f", depth, rounds, k, p, o, o/k, o/p)
		if o < k {
			t.Errorf("queue depth %d: %.0f IOPS, the kernel has %.0f", depth, o, k)
		}
		writeSpeed(t, fmt.Sprintf("local drive: 4k randread qd%d, peer io_uring", depth), o, k)
		writeSpeed(t, fmt.Sprintf("local drive: 4k randread qd%d, peer io_uring_cmd polled", depth), o, p)
	}
}

// setPollQueues loads the kernel's driver anew, with so many polled queues a drive, until the test ends.
func setPollQueues(t *testing.T, n int) {
	t.Helper()
	load := func(n int) {
		Run(t, "modprobe", "-r", "nvme")
		Run(t, "modprobe", "nvme", fmt.Sprintf("poll_queues=%d", n))
		for _, d := range Drives(t) {
			d.Block()
		}
	}
	load(n)
	t.Cleanup(func() { load(0) })
}

// generic returns the character device of the drive's first namespace.
func (d *Drive) generic() string { return strings.Replace(d.Block(), "/dev/nvme", "/dev/ng", 1) }

// writeSpeed appends a point to the file that BENCH_OUT names, in the form of the benchmark's results.
func writeSpeed(t *testing.T, point string, rocet, peer float64) {
	t.Helper()
	path := os.Getenv("BENCH_OUT")
	if path == "" {
		return
	}
	var all []any
	if data, err := os.ReadFile(path); err == nil {
		if err := json.Unmarshal(data, &all); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	all = append(all, map[string]any{"point": point, "rocet": rocet, "peer": peer, "ratio": rocet / peer})
	data, err := json.MarshalIndent(all, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(data, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return s[len(s)/2]
}
