//go:build lab

package lab

import (
	"slices"
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
	for _, depth := range depths {
		k, o := median(kernel[depth]), median(own[depth])
		t.Logf("4 KiB random read, queue depth %d: kernel's driver with io_uring %.0f IOPS, Rocet's %.0f, ratio %.2f (medians of %d)", depth, k, o, o/k, rounds)
		if o < k {
			t.Errorf("queue depth %d: %.0f IOPS, the kernel has %.0f", depth, o, k)
		}
	}
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return s[len(s)/2]
}
