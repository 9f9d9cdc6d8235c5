package reactor

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func startGroup(t testing.TB, cfg Config) *Group {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = quiet
	}
	g, err := NewGroup(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	return g
}

func eachMode(t *testing.T, f func(t *testing.T, mode Mode)) {
	for mode := Adaptive; mode <= Interrupt; mode++ {
		t.Run(mode.String(), func(t *testing.T) { f(t, mode) })
	}
}

// pollFunc is the simplest poller. It keeps its reactor awake.
type pollFunc struct{ f func() int }

func (p *pollFunc) Poll() int { return p.f() }

// pipePoller counts the bytes that come out of a pipe, and can sleep.
type pipePoller struct {
	fds     [2]int
	got     int
	armed   int
	woken   int
	flushed int
	pending bool // claims to have work when armed
	onRead  func(n int)
}

func newPipePoller(t testing.TB) *pipePoller {
	t.Helper()
	p := &pipePoller{}
	if err := unix.Pipe2(p.fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(p.fds[0]); unix.Close(p.fds[1]) })
	return p
}

func (p *pipePoller) Poll() int {
	var buf [16]byte
	n, err := unix.Read(p.fds[0], buf[:])
	if err != nil || n <= 0 {
		return 0
	}
	p.got += n
	if p.onRead != nil {
		p.onRead(n)
	}
	return n
}
func (p *pipePoller) FD() int   { return p.fds[0] }
func (p *pipePoller) Arm() bool { p.armed++; return !p.pending }
func (p *pipePoller) Woken()    { p.woken++ }
func (p *pipePoller) Flush()    { p.flushed++ }

func TestPostKeepsOrderFromManySenders(t *testing.T) {
	eachMode(t, func(t *testing.T, mode Mode) {
		g := startGroup(t, Config{Mode: mode, IdleSpin: time.Microsecond})
		r := g.Reactors()[0]
		const senders, each = 4, 2000
		var last [senders]int
		var total int
		var wg sync.WaitGroup
		for s := range senders {
			wg.Go(func() {
				for i := 1; i <= each; i++ {
					r.Post(func() {
						if last[s] != i-1 {
							t.Errorf("sender %d: message %d after %d", s, i, last[s])
						}
						last[s] = i
						total++
					})
					if i%100 == 0 {
						time.Sleep(50 * time.Microsecond) // lets the reactor fall asleep now and then
					}
				}
			})
		}
		wg.Wait()
		r.Call(func() {
			if total != senders*each {
				t.Errorf("%d messages arrived of %d", total, senders*each)
			}
		})
	})
}

func TestMessageCanBeSentAgainFromItsRun(t *testing.T) {
	g := startGroup(t, Config{})
	r := g.Reactors()[0]
	done := make(chan struct{})
	left := 100
	m := &Message{}
	m.Run = func() {
		if left--; left > 0 {
			r.Send(m)
		} else {
			close(done)
		}
	}
	r.Send(m)
	<-done
}

// TestNoWakeUpIsLost hits the moments around falling asleep: every message must be answered while nothing else wakes the
// reactor.
func TestNoWakeUpIsLost(t *testing.T) {
	g := startGroup(t, Config{Mode: Interrupt})
	r := g.Reactors()[0]
	answers := make(chan int)
	pipe := newPipePoller(t)
	pipe.onRead = func(n int) { go func() { answers <- n }() }
	r.Call(func() { r.Add(pipe) })
	limit := time.After(30 * time.Second)
	for i := range 3000 {
		for range rand.IntN(400) {
			runtime.KeepAlive(i)
		}
		if i%2 == 0 {
			r.Post(func() { go func() { answers <- 1 }() })
		} else if _, err := unix.Write(pipe.fds[1], []byte{1}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-answers:
		case <-limit:
			t.Fatalf("message %d woke nobody", i)
		}
	}
	r.Call(func() {
		if pipe.woken == 0 || r.Stats().Sleeps == 0 {
			t.Errorf("woken %d times out of %d sleeps: the test did not test sleeping", pipe.woken, r.Stats().Sleeps)
		}
		r.Remove(pipe)
	})
}

func TestSleepersDecide(t *testing.T) {
	g := startGroup(t, Config{Mode: Interrupt})
	r := g.Reactors()[0]
	pipe := newPipePoller(t)
	pipe.pending = true
	sleeps := func() (n uint64) { r.Call(func() { n = r.Stats().Sleeps }); return n }
	r.Call(func() { r.Add(pipe) })
	before := sleeps()
	time.Sleep(20 * time.Millisecond)
	if now := sleeps(); now != before {
		t.Errorf("slept %d times while a poller said that work was pending", now-before)
	}
	r.Call(func() { pipe.pending = false })
	for deadline := time.Now().Add(5 * time.Second); sleeps() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not sleep any more")
		}
	}
	awake := &pollFunc{func() int { return 0 }}
	r.Call(func() { r.Add(awake) })
	before = sleeps()
	time.Sleep(20 * time.Millisecond)
	if now := sleeps(); now != before {
		t.Errorf("slept %d times beside a poller that cannot wait", now-before)
	}
	r.Call(func() { r.Remove(awake); r.Remove(pipe) })
	before = sleeps()
	time.Sleep(20 * time.Millisecond)
	if sleeps() == before {
		t.Error("did not sleep after its last poller had gone")
	}
}

func TestFlushFollowsEveryTurn(t *testing.T) {
	g := startGroup(t, Config{Mode: Interrupt})
	r := g.Reactors()[0]
	pipe := newPipePoller(t)
	made, flushed := 0, 0
	tail := &flushFunc{func() { flushed = made }}
	r.Call(func() { r.Add(tail); r.Add(pipe) }) // the flusher is before what it flushes for
	pipe.onRead = func(int) { made++ }
	check := func(what string) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
			var m, f int
			r.Call(func() { m, f = made, flushed })
			if m > 0 && m == f {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d made, %d flushed", what, m, f)
			}
		}
		r.Call(func() { made, flushed = 0, 0 })
	}
	if _, err := unix.Write(pipe.fds[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	check("poller")
	r.Post(func() { made++ })
	check("inbox")
	r.Call(func() { r.Schedule(&Timer{Fire: func() { made++ }}, time.Millisecond) })
	check("timer")
}

type flushFunc struct{ f func() }

func (p *flushFunc) Poll() int { return 0 }
func (p *flushFunc) FD() int   { return -1 }
func (p *flushFunc) Arm() bool { return true }
func (p *flushFunc) Woken()    {}
func (p *flushFunc) Flush()    { p.f() }

func TestAddAndRemoveWhilePolling(t *testing.T) {
	g := startGroup(t, Config{Mode: Busy})
	r := g.Reactors()[0]
	var polls [3]int
	var pollers [3]*pollFunc
	for i := range pollers {
		pollers[i] = &pollFunc{func() int { polls[i]++; return 1 }}
	}
	first := pollers[0].f
	done := make(chan struct{})
	pollers[0].f = func() int {
		if polls[0] == 10 {
			r.Remove(pollers[0])
			r.Remove(pollers[1])
			r.Add(pollers[2])
			close(done)
		}
		return first()
	}
	r.Call(func() { r.Add(pollers[0]); r.Add(pollers[1]) })
	<-done
	r.Call(func() { polls[0], polls[1], polls[2] = 0, 0, 0 })
	time.Sleep(5 * time.Millisecond)
	r.Call(func() {
		if polls[0] != 0 || polls[1] != 0 || polls[2] == 0 {
			t.Errorf("polls after the change: %v", polls)
		}
		if len(r.slots) != 2 && len(r.slots) != 3 {
			t.Errorf("%d slots", len(r.slots))
		}
		r.Remove(pollers[2])
		defer func() {
			if recover() == nil {
				t.Error("removing twice went unnoticed")
			}
		}()
		r.Remove(pollers[2])
	})
}

// TestGCStopsSpinningReactors would hang for good, or take seconds, if the runtime could not stop a polling reactor.
func TestGCStopsSpinningReactors(t *testing.T) {
	g := startGroup(t, Config{Count: max(2, runtime.NumCPU()), Mode: Busy})
	for _, r := range g.Reactors() {
		r.Call(func() { r.Add(&pollFunc{func() int { return 1 }}) })
	}
	start := time.Now()
	const rounds = 5
	for range rounds {
		runtime.GC()
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("%d collections took %v beside spinning reactors", rounds, took)
	}
}

// TestGCStopsSleepingReactors checks that the runtime knows of the sleep.
func TestGCStopsSleepingReactors(t *testing.T) {
	startGroup(t, Config{Count: 3, Mode: Interrupt})
	start := time.Now()
	runtime.GC()
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("a collection took %v beside sleeping reactors", took)
	}
}

func TestIdleCostsNothing(t *testing.T) {
	g := startGroup(t, Config{Count: 2, Mode: Adaptive})
	pipe := newPipePoller(t)
	r := g.Reactors()[0]
	r.Call(func() { r.Add(pipe) })
	time.Sleep(10 * time.Millisecond)
	var before, after unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &before)
	time.Sleep(500 * time.Millisecond)
	unix.Getrusage(unix.RUSAGE_SELF, &after)
	used := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	if used > 50*time.Millisecond {
		t.Errorf("two idle reactors used %v of 500ms", used)
	}
}

func TestStopRunsWhatWasPosted(t *testing.T) {
	eachMode(t, func(t *testing.T, mode Mode) {
		g, err := NewGroup(Config{Count: 2, Mode: mode, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		ran := 0
		r := g.Reactors()[1]
		r.Post(func() { ran++ }) // before Start
		if err := g.Start(); err != nil {
			t.Fatal(err)
		}
		r.Post(func() {
			ran++
			r.Post(func() { ran++ })
		})
		g.Stop()
		g.Stop()
		if ran != 3 {
			t.Errorf("%d functions ran of 3", ran)
		}
		if r.Post(func() {}) || r.Call(func() { t.Error("ran after Stop") }) {
			t.Error("a stopped reactor took a message")
		}
		if g.Start() == nil {
			t.Error("a group started twice")
		}
	})
}

// TestStopRacesPost has senders at work while the group stops: a message either runs or is refused.
func TestStopRacesPost(t *testing.T) {
	for range 30 {
		g, err := NewGroup(Config{Mode: Interrupt, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Start(); err != nil {
			t.Fatal(err)
		}
		r := g.Reactors()[0]
		var taken, ran atomic.Int64
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for r.Post(func() { ran.Add(1) }) {
					taken.Add(1)
				}
			})
		}
		time.Sleep(200 * time.Microsecond)
		g.Stop()
		wg.Wait()
		if taken.Load() != ran.Load() {
			t.Fatalf("%d messages taken, %d ran", taken.Load(), ran.Load())
		}
	}
}

func TestCallFromItselfPanics(t *testing.T) {
	g := startGroup(t, Config{})
	r := g.Reactors()[0]
	r.Call(func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		r.Call(func() {})
	})
}

func TestStatsAddUp(t *testing.T) {
	g := startGroup(t, Config{Mode: Adaptive, IdleSpin: 100 * time.Microsecond})
	r := g.Reactors()[0]
	var first, last Stats
	var from, to int64
	r.Call(func() { first, from = r.Stats(), r.Now() })
	for range 20 {
		r.Post(func() {
			for start := Clock(); Clock()-start < int64(200*time.Microsecond); {
			}
		})
		time.Sleep(time.Millisecond)
	}
	// What runs in the same turn as the look at the counters is not in them yet. A machine that is busy has the last
	// posts wait for that turn: they get one of their own.
	r.Call(func() {})
	r.Call(func() { last, to = r.Stats(), r.Now() })
	busy, idle, wall := last.BusyNs-first.BusyNs, last.IdleNs-first.IdleNs, uint64(to-from)
	if sum := busy + idle; sum != wall {
		t.Errorf("busy %d and idle %d make %d of %d ns", busy, idle, sum, wall)
	}
	if busy < uint64(20*200*time.Microsecond) {
		t.Errorf("busy for %d ns, worked for 4 ms at least", busy)
	}
	if last.Messages-first.Messages < 20 || last.Sleeps == first.Sleeps || last.SleepNs == first.SleepNs {
		t.Errorf("%d messages, %d sleeps, %d ns asleep", last.Messages-first.Messages, last.Sleeps-first.Sleeps, last.SleepNs-first.SleepNs)
	}
	if last.LongestTurnNs < uint64(200*time.Microsecond) {
		t.Errorf("longest turn %d ns", last.LongestTurnNs)
	}
}

// TestStallsAreSeen puts two spinning threads on one core: the kernel takes turns between them.
func TestStallsAreSeen(t *testing.T) {
	g := startGroup(t, Config{Count: 2, Cores: []int{0, 0}, Mode: Busy})
	r := g.Reactors()[0]
	deadline := time.Now().Add(10 * time.Second)
	for {
		var st Stats
		r.Call(func() { st = r.Stats() })
		if st.Stalls > 0 && st.LongestStallNs >= stallNs && st.StallNs >= st.LongestStallNs && st.InvoluntarySwitches > 0 {
			if st.LongestStallNs > st.LongestTurnNs {
				t.Errorf("a stall of %d ns in a turn of %d", st.LongestStallNs, st.LongestTurnNs)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no stall seen: %+v", st)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestWorkIsNoStall: a long turn that stays on its core is none.
func TestWorkIsNoStall(t *testing.T) {
	r := &Reactor{}
	r.now = Clock()
	r.steal.restart(r.now)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for start := Clock(); Clock()-start < 3*stallNs; {
	}
	now := Clock()
	off := r.steal.since(now)
	if wall := uint64(now - r.now); off > wall {
		t.Errorf("off the core for %d ns of %d", off, wall)
	} else if off > wall/2 {
		t.Skipf("the machine took the core away for %d ns of %d", off, wall)
	}
}

func TestPanicNamesThePoller(t *testing.T) {
	if os.Getenv("REACTOR_TEST_PANIC") == "1" {
		g, err := NewGroup(Config{Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Start(); err != nil {
			t.Fatal(err)
		}
		r := g.Reactors()[0]
		r.Post(func() { r.Add(brokenPoller{}) })
		select {}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestPanicNamesThePoller$")
	cmd.Env = append(os.Environ(), "REACTOR_TEST_PANIC=1")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatal("the process survived")
	}
	for _, want := range []string{"reactor 0 on core", "lane of mlx5_0", "panic: ring is broken", "brokenPoller.Poll"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("%q is not in the output:\n%s", want, out)
		}
	}
}

type brokenPoller struct{}

func (brokenPoller) Poll() int      { panic("ring is broken") }
func (brokenPoller) String() string { return "lane of mlx5_0" }
