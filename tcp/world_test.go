package tcp

import (
	"context"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	backend "rocet/backend/memory"
	"rocet/backend/null"
	"rocet/host"
	"rocet/memory"
	"rocet/reactor"
	"rocet/target"
)

const (
	testNQN   = "nqn.2026-01.io.rocet:tcp"
	testBytes = 16 << 20
	testBlock = 512
	patience  = 20 * time.Second
)

// worldOptions is what a test wants different.
type worldOptions struct {
	config   Config
	reactors int
	pool     uint64
	target   target.Options
	mode     reactor.Mode
}

// world is a target with a memory namespace (1) and a null namespace (2) behind a
// listener on loopback.
type world struct {
	t         testing.TB
	pool      *memory.Pool
	group     *reactor.Group
	target    *target.Target
	transport *Transport
	listener  *Listener
}

func testLog() *slog.Logger {
	level := slog.LevelError
	var out io.Writer = io.Discard
	if os.Getenv("ROCET_TEST_LOG") != "" {
		level, out = slog.LevelDebug, os.Stderr
	}
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))
}

// newWorld starts everything. At its end nothing may be left: no connection, no
// command, no memory, no descriptor.
func newWorld(t testing.TB, o worldOptions) *world {
	t.Helper()
	w := &world{t: t}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	log := testLog()
	files := openFiles(t)
	if o.pool == 0 {
		o.pool = 32 << 20
	}
	var err error
	w.pool, err = memory.New(memory.Config{Size: o.pool, HugePages: memory.HugeNever, Reserve: 1 << 20, Log: log})
	must(err)
	w.group, err = reactor.NewGroup(reactor.Config{Count: max(o.reactors, 1), Mode: o.mode, Log: log})
	must(err)
	must(w.group.Start())
	topt := o.target
	topt.Reactors, topt.Pool, topt.Log = w.group.Reactors(), w.pool, log
	w.target, err = target.New(topt)
	must(err)
	sub, err := w.target.AddSubsystem(target.SubsystemConfig{NQN: testNQN, AllowAnyHost: true})
	must(err)
	mem, err := backend.New(backend.Config{Pool: w.pool, Size: testBytes, BlockSize: testBlock})
	must(err)
	nul, err := null.New(null.Config{Pool: w.pool, Size: 1 << 30, BlockSize: 4096})
	must(err)
	for i, b := range []target.Backend{mem, nul} {
		_, err = sub.AddNamespace(target.NamespaceConfig{NSID: uint32(i + 1), Backend: b})
		must(err)
	}
	w.transport, err = New(Options{Target: w.target, Pool: w.pool, Config: o.config, Log: log})
	must(err)
	w.listener, err = w.transport.Listen("127.0.0.1", 0)
	must(err)
	t.Cleanup(func() {
		w.checkIdle()
		if err := w.transport.Close(); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := w.target.Close(ctx); err != nil {
			t.Errorf("close the target: %v", err)
		}
		for _, b := range []target.Backend{mem, nul} {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		w.group.Stop()
		w.pool.Close()
		w.eventually("the descriptors are closed", func() bool { return openFiles(t) <= files })
	})
	return w
}

// checkIdle holds that whatever hosts did, nothing of theirs is left once their
// connections are.
func (w *world) checkIdle() {
	w.t.Helper()
	w.eventually("no connection, command or memory is left", func() bool {
		for _, s := range w.transport.Stats().Shards {
			if s.Connections != 0 || s.InUse != 0 || s.Executing != 0 || s.PoolBytes != 0 || s.HalfOpen != 0 || s.Waiting != 0 {
				return false
			}
		}
		for _, g := range w.target.Groups() {
			used := uint64(0)
			g.Reactor.Call(func() { used = g.Mem.Usage().UsedBytes })
			if used != 0 {
				return false
			}
		}
		return true
	})
}

func (w *world) eventually(what string, cond func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("did not happen within %v: %s: %+v", patience, what, w.transport.Stats())
		}
	}
}

// stats adds up the reactors' counters.
func (w *world) stats() (sum Stats) {
	for _, s := range w.transport.Stats().Shards {
		sum.Add(s.Stats)
	}
	return sum
}

// options are how Rocet's own host connects.
func (w *world) options() host.Options {
	return host.Options{
		Transport: host.TCP, Address: w.listener.Addr().Addr().String(), Port: w.listener.Addr().Port(), NQN: testNQN, IOQueues: 4,
	}
}

func openFiles(t testing.TB) int {
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("left out: no /proc: %v", err)
	}
	return len(d)
}
