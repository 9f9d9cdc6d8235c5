package host

import (
	"context"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	backend "rocet/backend/memory"
	"rocet/backend/null"
	"rocet/cgo/verbs"
	"rocet/cgo/verbs/fake"
	"rocet/memory"
	"rocet/rdma"
	"rocet/reactor"
	"rocet/target"
	nvmetcp "rocet/tcp"
)

const (
	worldNQN   = "nqn.2026-01.io.rocet:world"
	worldBytes = 16 << 20
	worldBlock = 512
	worldPort  = 4430 // not the one of package rdma's tests, which may run beside these on one fabric
)

// world is Rocet's own target in this process: a memory namespace (1) and a null namespace (2).
type world struct {
	t      testing.TB
	pool   *memory.Pool
	group  *reactor.Group
	target *target.Target
	ends   []func() // what to close before the target
}

func newWorld(t testing.TB, reactors int) *world {
	t.Helper()
	level := slog.LevelError
	var out io.Writer = io.Discard
	if os.Getenv("ROCET_TEST_LOG") != "" {
		level, out = slog.LevelDebug, os.Stderr
	}
	log := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))
	w := &world{t: t}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	w.pool, err = memory.New(memory.Config{Size: 32 << 20, HugePages: memory.HugeNever, Reserve: 1 << 20, Log: log})
	must(err)
	w.group, err = reactor.NewGroup(reactor.Config{Count: reactors, Mode: reactor.Adaptive, Log: log})
	must(err)
	must(w.group.Start())
	w.target, err = target.New(target.Options{Reactors: w.group.Reactors(), Pool: w.pool, Log: log})
	must(err)
	sub, err := w.target.AddSubsystem(target.SubsystemConfig{NQN: worldNQN, AllowAnyHost: true})
	must(err)
	mem, err := backend.New(backend.Config{Pool: w.pool, Size: worldBytes, BlockSize: worldBlock})
	must(err)
	nul, err := null.New(null.Config{Pool: w.pool, Size: 1 << 30, BlockSize: 4096})
	must(err)
	for i, b := range []target.Backend{mem, nul} {
		_, err = sub.AddNamespace(target.NamespaceConfig{NSID: uint32(i + 1), Backend: b})
		must(err)
	}
	t.Cleanup(func() {
		for _, end := range w.ends {
			end()
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := w.target.Close(ctx); err != nil {
			t.Errorf("close the target: %v", err)
		}
		for _, b := range []target.Backend{mem, nul} {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		for _, g := range w.target.Groups() {
			g.Reactor.Call(g.Mem.Close)
		}
		w.group.Stop()
		w.pool.Close()
	})
	return w
}

// listenRDMA serves over a provider, and returns how to connect.
func (w *world) listenRDMA(p verbs.Provider, addr string) Options {
	w.t.Helper()
	tr, err := rdma.New(rdma.Options{Target: w.target, Pool: w.pool, Provider: p, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.ends = append(w.ends, func() {
		if err := tr.Close(); err != nil {
			w.t.Error(err)
		}
	})
	if _, err := tr.Listen(addr, worldPort); err != nil {
		w.t.Fatal(err)
	}
	return Options{Transport: RDMA, Address: addr, Port: worldPort, NQN: worldNQN, Provider: p, IOQueues: 4}
}

// listenTCP serves over loopback, and returns how to connect.
func (w *world) listenTCP(addr string) Options {
	w.t.Helper()
	tr, err := nvmetcp.New(nvmetcp.Options{Target: w.target, Pool: w.pool, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.ends = append(w.ends, func() {
		if err := tr.Close(); err != nil {
			w.t.Error(err)
		}
	})
	l, err := tr.Listen(addr, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return Options{Transport: TCP, Address: addr, Port: l.Addr().Port(), NQN: worldNQN, IOQueues: 4}
}

// fakeFabric is a fabric that must be empty at the end.
func fakeFabric(t testing.TB) *fake.Fabric {
	f := fake.New(fake.Config{})
	t.Cleanup(func() {
		for _, leak := range f.Leaks() {
			t.Errorf("left over: %v", leak)
		}
		f.Close()
	})
	return f
}

// nativeProvider is the real libraries, which must be those of shmverbs.
func nativeProvider(t testing.TB) verbs.Provider {
	t.Helper()
	if os.Getenv("SHMVERBS") == "" {
		t.Skip("left out: SHMVERBS does not name a build of shmverbs (libibverbs and librdmacm over shared memory)")
	}
	p, err := verbs.Open()
	if err != nil {
		t.Fatal(err)
	}
	return p
}
