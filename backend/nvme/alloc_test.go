package drive

import (
	"runtime"
	"testing"

	"rocet/backend/backendtest"
	"rocet/internal/invariants"
	"rocet/memory"
	"rocet/nvme"
	"rocet/nvme/pcie/sim"
	"rocet/target"
)

// chain submits the same operation again from its end, so many times.
type chain struct {
	io    target.IO
	queue target.BackendQueue
	left  int
	done  chan struct{}
}

func (c *chain) IODone(_ *target.IO, st nvme.Status) {
	if c.left--; c.left == 0 || !st.IsOK() {
		c.done <- struct{}{}
		return
	}
	c.queue.Submit(&c.io)
}

// Submitting, waiting and completing allocate nothing. The simulated drive on the other side allocates for what it does
// with data, so these are flushes.
func TestSubmitAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the assertions of debug builds allocate")
	}
	rig := backendtest.NewRig(t, 1)
	b := mustOpen(t, newManager(t, rig, newSimBus(t, sim.Config{})), Config{PCI: "01:00.0"})
	g := rig.Groups[0]
	q, err := b.OpenQueue(g)
	if err != nil {
		t.Fatal(err)
	}
	const chains = 40 // the queue has room for 15: the others wait
	all := make([]chain, chains)
	done := make(chan struct{}, chains)
	run := func(each int) {
		g.Reactor.Call(func() {
			for i := range all {
				c := &all[i]
				c.queue, c.left, c.done = q, each, done
				c.io.Init(c)
				c.io.Op, c.io.Blocks, c.io.Data = target.OpFlush, 0, []memory.Segment(nil)
				q.Submit(&c.io)
			}
		})
		for range chains {
			<-done
		}
	}
	mallocs := func(each int) uint64 { // AllocsPerRun leaves one processor, which the reactor polls on
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		run(each)
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	run(10)
	short, long := mallocs(10), mallocs(210)
	if long > short+200*chains/100 {
		t.Errorf("%d allocations for %d operations, %d for %d", short, 10*chains, long, 210*chains)
	}
	closed := make(chan struct{})
	g.Reactor.Call(func() { q.Close(func() { close(closed) }) })
	<-closed
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
