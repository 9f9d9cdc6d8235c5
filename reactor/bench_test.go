package reactor

import (
	"testing"
	"time"

	"rocet/internal/invariants"
)

// stopped is a reactor that no goroutine runs: the benchmark turns it by hand.
func stopped(pollers ...Poller) *Reactor {
	r := &Reactor{mode: Busy, epoll: -1}
	for _, p := range pollers {
		r.Add(p)
	}
	r.now = Clock()
	return r
}

func BenchmarkTurn(b *testing.B) {
	for _, n := range []int{0, 1, 4, 16} {
		b.Run(string(rune('0'+n/10))+string(rune('0'+n%10))+"pollers", func(b *testing.B) {
			b.ReportAllocs()
			var pollers []Poller
			for range n {
				pollers = append(pollers, &pollFunc{func() int { return 1 }})
			}
			r := stopped(pollers...)
			r.Schedule(&Timer{Fire: func() {}}, time.Hour)
			for b.Loop() {
				r.turn()
			}
		})
	}
}

func BenchmarkSchedule(b *testing.B) {
	b.ReportAllocs()
	r := stopped()
	timers := make([]Timer, 1000)
	for i := range timers {
		timers[i].Fire = func() {}
		r.Schedule(&timers[i], time.Hour+time.Duration(i))
	}
	i := 0
	for b.Loop() {
		r.Schedule(&timers[i%1000], time.Hour)
		i++
	}
}

func BenchmarkSend(b *testing.B) {
	b.ReportAllocs()
	r := stopped()
	m := &Message{Run: func() {}}
	for b.Loop() {
		r.Send(m)
		r.turn()
	}
}

// BenchmarkCall is the round trip of a sleeping reactor.
func BenchmarkCall(b *testing.B) {
	g := startGroup(b, Config{Mode: Interrupt})
	r := g.Reactors()[0]
	for b.Loop() {
		r.Call(func() {})
	}
}

// TestNothingIsAllocated holds the turn, sleep included, to its promise.
func TestNothingIsAllocated(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the assertions of debug builds allocate")
	}
	r := stopped(&pollFunc{func() int { return 1 }})
	m := &Message{Run: func() {}}
	timer := &Timer{Fire: func() {}}
	r.Schedule(&Timer{Fire: func() {}}, time.Hour) // grows the heap
	if n := testing.AllocsPerRun(1000, func() {
		r.Send(m)
		r.Schedule(timer, 0)
		r.turn()
		r.Cancel(timer)
	}); n != 0 {
		t.Errorf("a turn allocates %v times", n)
	}
	pipe := newPipePoller(t)
	s := &Reactor{mode: Interrupt}
	if err := s.openWaits(); err != nil {
		t.Fatal(err)
	}
	defer s.closeWaits()
	s.Add(pipe)
	s.now = Clock()
	s.Schedule(timer, time.Hour)
	if n := testing.AllocsPerRun(100, func() {
		s.Schedule(timer, 10*time.Microsecond)
		s.turn()
		s.longTurn(Clock(), stallNs)
	}); n != 0 {
		t.Errorf("a sleep allocates %v times", n)
	}
	if s.stats.Sleeps == 0 {
		t.Error("it did not sleep")
	}
}
