package targettest

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"rocet/memory"
	"rocet/nvme"
	"rocet/reactor"
	"rocet/target"
)

// Patience is how long a test waits for what must happen.
const Patience = 10 * time.Second

// Options of a Harness.
type Options struct {
	Target    target.Options // Reactors, Pool and Log are filled in
	Reactors  int            // 0: 1
	NoLog     bool           // drop the log instead of keeping it
	InCapsule uint32
}

// Harness is a target on reactors of its own with one listener.
type Harness struct {
	TB       testing.TB
	Target   *target.Target
	Pool     *memory.Pool
	Listener *target.Listener
	Log      *LogBuffer

	group *reactor.Group
}

// New starts reactors and a target. All ends with the test.
func New(tb testing.TB, o Options) *Harness {
	tb.Helper()
	h := &Harness{TB: tb, Log: &LogBuffer{}}
	var w io.Writer = h.Log
	if o.NoLog {
		w = io.Discard
	}
	log := slog.New(slog.NewTextHandler(w, nil))
	pool, err := memory.New(memory.Config{Size: 64 << 20, HugePages: memory.HugeNever, Log: log})
	if err != nil {
		tb.Fatal(err)
	}
	h.Pool = pool
	h.group, err = reactor.NewGroup(reactor.Config{Count: max(o.Reactors, 1), Mode: reactor.Adaptive, Log: log})
	if err != nil {
		tb.Fatal(err)
	}
	if err := h.group.Start(); err != nil {
		tb.Fatal(err)
	}
	topt := o.Target
	topt.Reactors, topt.Pool, topt.Log = h.group.Reactors(), pool, log
	if h.Target, err = target.New(topt); err != nil {
		tb.Fatal(err)
	}
	h.Listener = h.AddListener("192.0.2.1", "4420", o.InCapsule)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if err := h.Target.Close(ctx); err != nil {
			tb.Errorf("closing the target: %v", err)
		}
		h.group.Stop()
		pool.Close()
		if tb.Failed() && !o.NoLog {
			tb.Logf("log:\n%s", h.Log.String())
		}
	})
	return h
}

// AddListener adds an address of the fake transport.
func (h *Harness) AddListener(addr, port string, inCapsule uint32) *target.Listener {
	h.TB.Helper()
	l, err := h.Target.AddListener(target.ListenerInfo{
		TrType: nvme.TransportLoop, AdrFam: nvme.AddressIPv4, TrAddr: addr, TrSvcID: port,
		InCapsuleData: inCapsule, SGLS: nvme.SGLSSupported | nvme.SGLSKeyed | nvme.SGLSOffset,
	})
	if err != nil {
		h.TB.Fatal(err)
	}
	return l
}

// Subsystem adds a subsystem that any host may use.
func (h *Harness) Subsystem(nqn string) *target.Subsystem {
	h.TB.Helper()
	s, err := h.Target.AddSubsystem(target.SubsystemConfig{NQN: nqn, AllowAnyHost: true})
	if err != nil {
		h.TB.Fatal(err)
	}
	return s
}

// Namespace adds a namespace.
func (h *Harness) Namespace(s *target.Subsystem, nsid uint32, b target.Backend) *target.Namespace {
	h.TB.Helper()
	ns, err := s.AddNamespace(target.NamespaceConfig{NSID: nsid, Backend: b})
	if err != nil {
		h.TB.Fatal(err)
	}
	return ns
}

// Settle waits until everything that was posted to the reactors before has run.
func (h *Harness) Settle() {
	for _, g := range h.Target.Groups() {
		g.Reactor.Call(func() {})
	}
}

// Eventually waits for a condition.
func (h *Harness) Eventually(what string, cond func() bool) {
	h.TB.Helper()
	deadline := time.Now().Add(Patience)
	for pause := 20 * time.Microsecond; !cond(); pause = min(2*pause, time.Millisecond) {
		if time.Now().After(deadline) {
			h.TB.Fatalf("did not happen within %v: %s", Patience, what)
		}
		time.Sleep(pause)
	}
}

// LogBuffer keeps log lines.
type LogBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write is io.Writer.
func (l *LogBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String is everything that was logged.
func (l *LogBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
