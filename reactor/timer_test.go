package reactor

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestTimersFireInOrderAndOnTime(t *testing.T) {
	eachMode(t, func(t *testing.T, mode Mode) {
		g := startGroup(t, Config{Mode: mode})
		r := g.Reactors()[0]
		type fired struct {
			want int64 // at the earliest
			when int64 // as scheduled
			at   int64
		}
		var got []fired
		done := make(chan struct{})
		const n = 50
		r.Call(func() {
			for i := range n {
				d := time.Duration(rand.IntN(20_000)) * time.Microsecond
				want := Clock() + int64(d)
				timer := &Timer{}
				timer.Fire = func() {
					if timer.Scheduled() {
						t.Errorf("timer %d is scheduled while it fires", i)
					}
					got = append(got, fired{want, timer.when, Clock()})
					if len(got) == n {
						close(done)
					}
				}
				r.Schedule(timer, d)
			}
		})
		<-done
		for i, f := range got {
			if f.at < f.want {
				t.Errorf("timer %d fired %d ns early", i, f.want-f.at)
			}
			if late := time.Duration(f.at - f.want); late > 2*time.Second {
				t.Errorf("timer %d fired %v late", i, late)
			}
		}
		if !slices.IsSortedFunc(got, func(a, b fired) int { return cmp.Compare(a.when, b.when) }) {
			t.Error("timers fired out of order")
		}
	})
}

func TestTimerRescheduleAndCancel(t *testing.T) {
	g := startGroup(t, Config{Mode: Interrupt})
	r := g.Reactors()[0]
	fired := 0
	var start, at int64
	done := make(chan struct{})
	late := &Timer{Fire: func() { t.Error("a cancelled timer fired") }}
	timer := &Timer{}
	timer.Fire = func() { fired++; at = Clock(); close(done) }
	r.Call(func() {
		start = Clock()
		r.Cancel(timer) // not scheduled: nothing
		r.Schedule(late, 2*time.Millisecond)
		r.Schedule(timer, time.Hour)
		r.Schedule(timer, time.Millisecond)
		r.Schedule(timer, 5*time.Millisecond)
		r.Cancel(late)
		r.Cancel(late)
	})
	<-done
	time.Sleep(5 * time.Millisecond)
	r.Call(func() {
		if fired != 1 || at-start < int64(5*time.Millisecond) {
			t.Errorf("fired %d times after %d ns", fired, at-start)
		}
		if len(r.timers.heap) != 0 {
			t.Errorf("%d timers left", len(r.timers.heap))
		}
	})
}

// TestTimerThatRearmsAtOnceLetsOthersRun: a timer due at once is for the next turn.
func TestTimerThatRearmsAtOnceLetsOthersRun(t *testing.T) {
	g := startGroup(t, Config{Mode: Interrupt})
	r := g.Reactors()[0]
	n := 0
	timer := &Timer{}
	timer.Fire = func() { n++; r.Schedule(timer, 0) }
	r.Call(func() { r.Schedule(timer, 0) })
	ran := make(chan struct{})
	r.Post(func() { r.Cancel(timer); close(ran) })
	select {
	case <-ran:
	case <-time.After(10 * time.Second):
		t.Fatal("the inbox starved behind a timer")
	}
}

// TestTimerHeap checks the heap against sorting, with random changes.
func TestTimerHeap(t *testing.T) {
	r := &Reactor{}
	rnd := rand.New(rand.NewPCG(1, 2))
	all := make([]Timer, 300)
	for i := range all {
		all[i].Fire = func() {}
	}
	for range 20_000 {
		timer := &all[rnd.IntN(len(all))]
		switch rnd.IntN(3) {
		case 0:
			r.Cancel(timer)
		default:
			r.Schedule(timer, time.Duration(rnd.IntN(1_000_000)))
		}
		h := r.timers.heap
		for i, timer := range h {
			if timer.pos != i+1 {
				t.Fatalf("timer at %d believes to be at %d", i, timer.pos-1)
			}
			if i > 0 && h[(i-1)/arity].when > timer.when {
				t.Fatalf("timer at %d is due before its parent", i)
			}
		}
	}
	last := int64(0)
	for len(r.timers.heap) > 0 {
		next := r.timers.next()
		if next < last {
			t.Fatal("out of order")
		}
		last = next
		if r.timers.fire(next) < 1 {
			t.Fatal("what is due did not fire")
		}
	}
	for i := range all {
		if all[i].Scheduled() {
			t.Fatalf("timer %d is still scheduled", i)
		}
	}
}
