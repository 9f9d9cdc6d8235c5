package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"rocet/cgo/verbs"
	"rocet/control/config"
	"rocet/memory"
	"rocet/nvme"
	"rocet/reactor"
	"rocet/target"
)

const (
	// DefaultMemory is the buffer pool's size in bytes.
	DefaultMemory = 256 << 20
	// adminReserve is what each reactor keeps for commands that are no I/O, in bytes.
	adminReserve = 2 << 20
	// DefaultMetrics is where the metrics are served.
	DefaultMetrics = "127.0.0.1:9810"
	// DefaultPort is NVMe over Fabrics' port.
	DefaultPort = 4420
	// defaultDepth is that of the transports' queues, in entries.
	defaultDepth = 128
	// undoTimeout bounds what a start that fails waits for.
	undoTimeout = 20 * time.Second
)

// Options are what a Server needs besides its configuration.
type Options struct {
	Version string
	Log     *slog.Logger // nil: slog.Default()
	// OpenVerbs opens the RDMA libraries when a listener wants them; nil: verbs.Open.
	OpenVerbs func() (verbs.Provider, error)
}

// Server is a running target.
type Server struct {
	log        *slog.Logger
	version    string
	started    time.Time
	pool       *memory.Pool
	group      *reactor.Group
	target     *target.Target
	backends   *backends
	transports []*transport
	listeners  []listener
	metrics    *endpoint
	closers    []closer
}

// closer undoes a step of Start.
type closer struct {
	what string
	fn   func(context.Context) error
}

// Start runs what a configuration describes. On an error nothing is left running.
func Start(ctx context.Context, cfg *config.Config, o Options) (*Server, error) {
	s := &Server{log: o.Log, version: o.Version, started: time.Now()}
	if s.log == nil {
		s.log = slog.Default()
	}
	if o.OpenVerbs == nil {
		o.OpenVerbs = verbs.Open
	}
	if err := s.start(ctx, cfg, o); err != nil {
		// A signal that interrupted the start does not interrupt its undoing.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		if undo := s.Close(ctx); undo != nil {
			s.log.Error("not everything could be closed after the start failed", "error", undo)
		}
		return nil, err
	}
	return s, nil
}

func (s *Server) onClose(what string, fn func(context.Context) error) {
	s.closers = append(s.closers, closer{what, fn})
}

// start opens everything, in the order of the package's comment.
func (s *Server) start(ctx context.Context, cfg *config.Config, o Options) error {
	steps := []func() error{
		// Metrics first: whoever watches sees a start that takes long, and a port in use is found before any drive is
		// touched.
		func() error { return s.openMetrics(cfg) },
		func() error { return s.openMemory(cfg) },
		func() error { return s.openReactors(cfg) },
		func() error { return s.openTarget(cfg) },
		func() error { return s.openSubsystems(cfg) },
		func() error { return s.openTransports(cfg, o) },
		func() error { return s.openListeners(cfg) },
	}
	for _, step := range steps {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("the start was interrupted: %w", err)
		}
		if err := step(); err != nil {
			return err
		}
	}
	s.metrics.serve(s)
	return nil
}

func (s *Server) openMemory(cfg *config.Config) error {
	huge, err := parseHugePages(cfg.Memory.HugePages)
	if err != nil {
		return err
	}
	size := uint64(cfg.Memory.Size)
	if size == 0 {
		size = DefaultMemory
	}
	s.pool, err = memory.New(memory.Config{
		Size: size, HugePages: huge, Reserve: adminReserve, Shared: cfg.Memory.Shared, Log: s.log,
	})
	if err != nil {
		return fmt.Errorf("memory.size %d: %w", size, err)
	}
	s.onClose("the memory pool", func(context.Context) error { s.pool.Close(); return nil })
	return nil
}

func (s *Server) openReactors(cfg *config.Config) error {
	mode := reactor.Adaptive
	if cfg.Reactors.Mode != "" {
		var err error
		if mode, err = reactor.ParseMode(cfg.Reactors.Mode); err != nil {
			return fmt.Errorf("reactors.mode: %w", err)
		}
	}
	group, err := reactor.NewGroup(reactor.Config{
		Count: cfg.Reactors.Count, Cores: cfg.Reactors.Cores, Mode: mode, IdleSpin: cfg.Reactors.IdleSpin, Log: s.log,
	})
	if err != nil {
		return fmt.Errorf("reactors: %w", err)
	}
	// Explicitly, since the runtime would follow the affinity that the reactors set: two more than spin, so that the
	// control plane and the collector always find a thread.
	runtime.GOMAXPROCS(len(group.Reactors()) + 2)
	if err := group.Start(); err != nil {
		return fmt.Errorf("reactors: %w", err)
	}
	s.group = group
	s.onClose("the reactors", func(context.Context) error { group.Stop(); return nil })
	s.backends = newBackends(s.pool, len(group.Reactors()), mode, s.log)
	s.onClose("the drives", func(context.Context) error { return s.backends.close() })
	return nil
}

func (s *Server) openTarget(cfg *config.Config) error {
	t, err := target.New(target.Options{
		Reactors: s.group.Reactors(), Pool: s.pool, Log: s.log, Firmware: firmware(s.version), MaxQueueDepth: queueDepth(cfg),
	})
	if err != nil {
		return err
	}
	s.target = t
	s.onClose("the target", t.Close)
	return nil
}

// queueDepth is enough for every transport; each then has its own limit. One that names none has defaultDepth.
func queueDepth(cfg *config.Config) uint16 {
	depth := 0
	for _, l := range cfg.Listeners {
		d := cfg.RDMA.MaxQueueDepth
		if l.Transport == "tcp" {
			d = cfg.TCP.MaxQueueDepth
		}
		if d == 0 {
			d = defaultDepth
		}
		depth = max(depth, d)
	}
	return uint16(depth)
}

// firmware is what fits FR of Identify Controller of a version such as v1.2.3-4-gabcdef.
func firmware(version string) string {
	clean := make([]byte, 0, 8)
	for _, c := range []byte(version) {
		if c > ' ' && c < 0x7f && len(clean) < cap(clean) {
			clean = append(clean, c)
		}
	}
	return string(clean)
}

func (s *Server) openSubsystems(cfg *config.Config) error {
	for i := range cfg.Subsystems {
		sub := &cfg.Subsystems[i]
		ss, err := s.target.AddSubsystem(target.SubsystemConfig{
			NQN: sub.NQN, Serial: sub.Serial, Model: sub.Model, AllowAnyHost: sub.AllowAnyHost, Hosts: sub.Hosts,
		})
		if err != nil {
			return fmt.Errorf("subsystem %s: %w", sub.NQN, err)
		}
		for j := range sub.Namespaces {
			if err := s.addNamespace(ss, &sub.Namespaces[j]); err != nil {
				return fmt.Errorf("subsystem %s: namespace %d: %w", sub.NQN, sub.Namespaces[j].NSID, err)
			}
		}
	}
	return nil
}

func (s *Server) addNamespace(ss *target.Subsystem, spec *config.Namespace) error {
	c := target.NamespaceConfig{NSID: spec.NSID, ReadOnly: spec.ReadOnly}
	if spec.UUID != "" {
		u, err := nvme.ParseUUID(spec.UUID)
		if err != nil {
			return err
		}
		c.UUID = u
	}
	b, err := s.backends.open(spec)
	if err != nil {
		return err
	}
	c.Backend = b
	_, err = ss.AddNamespace(c)
	return err
}

func (s *Server) openTransports(cfg *config.Config, o Options) error {
	for _, l := range cfg.Listeners {
		if s.transport(l.Transport) != nil {
			continue
		}
		open, ok := transportTypes[l.Transport]
		if !ok {
			return fmt.Errorf("listener %s: there is no transport %q: want rdma or tcp", l.Address, l.Transport)
		}
		t, err := open(s, cfg, o)
		if err != nil {
			return fmt.Errorf("transport %s: %w", l.Transport, err)
		}
		s.transports = append(s.transports, t)
		s.onClose("the transport "+t.name, func(context.Context) error { return t.close() })
	}
	return nil
}

func (s *Server) transport(name string) *transport {
	for _, t := range s.transports {
		if t.name == name {
			return t
		}
	}
	return nil
}

func (s *Server) openListeners(cfg *config.Config) error {
	for _, spec := range cfg.Listeners {
		port := spec.Port
		if port == 0 {
			port = DefaultPort
		}
		l, err := s.transport(spec.Transport).listen(spec.Address, port)
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, l)
		s.onClose("a listener", func(context.Context) error { l.Close(); return nil })
	}
	return nil
}

// Target is what is served.
func (s *Server) Target() *target.Target { return s.target }

// MetricsAddr is where metrics are served, empty if they are not.
func (s *Server) MetricsAddr() string { return s.metrics.addr() }

// Ready tells whether hosts can connect at every listener, or why not.
func (s *Server) Ready() error {
	var errs []error
	for _, l := range s.listeners {
		if err := l.Err(); err != nil {
			errs = append(errs, fmt.Errorf("listener %s: %w", l, err))
		}
	}
	return errors.Join(errs...)
}

// Close drains: listeners close, the hosts' commands end, everything that was opened is closed. The context bounds how
// long it waits for hosts and drives; what is still in use then stays open, and is named in the error.
func (s *Server) Close(ctx context.Context) error {
	var errs []error
	for len(s.closers) > 0 {
		last := s.closers[len(s.closers)-1]
		s.closers = s.closers[:len(s.closers)-1]
		if err := bounded(ctx, last); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", last.what, err))
			if ctx.Err() != nil {
				break // what comes next is used by what did not end
			}
		}
	}
	return errors.Join(errs...)
}

// bounded runs a closer, and leaves it running if the context ends first.
func bounded(ctx context.Context, c closer) error {
	done := make(chan error, 1)
	go func() { done <- c.fn(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		select {
		case err := <-done:
			return err
		default:
			return fmt.Errorf("it did not end in time: %w", ctx.Err())
		}
	}
}

func parseHugePages(word string) (memory.HugePolicy, error) {
	for _, p := range []memory.HugePolicy{memory.HugeAuto, memory.HugeRequire, memory.HugeNever} {
		if word == p.String() || word == "" {
			return p, nil
		}
	}
	return 0, fmt.Errorf("memory.hugepages %q: want auto, require or never", word)
}

// Probe returns when every reactor has answered.
func (s *Server) Probe() {
	for _, r := range s.group.Reactors() {
		r.Call(func() {})
	}
}
