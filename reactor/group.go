package reactor

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// Group is the reactors of a process.
type Group struct {
	reactors []*Reactor
	log      *slog.Logger

	mu      sync.Mutex
	started bool
	stopped bool
}

// NewGroup checks the configuration and places the reactors. They run from Start on.
func NewGroup(cfg Config) (*Group, error) {
	log := cfg.Log
	if log == nil {
		log = slog.Default()
	}
	if cfg.Mode > Interrupt {
		return nil, fmt.Errorf("reactor: %v does not exist", cfg.Mode)
	}
	if cfg.IdleSpin < 0 {
		return nil, fmt.Errorf("reactor: idle spin %v is negative", cfg.IdleSpin)
	}
	sys, err := readSystem()
	if err != nil {
		return nil, err
	}
	cores, shared, err := place(cfg.Count, cfg.Cores, sys)
	if err != nil {
		return nil, err
	}
	if shared {
		log.Warn("more reactors than cores: they take turns, and latency suffers", "reactors", len(cores),
			"cores", formatCores(sys.allowed), "remedy", "set reactors.count to the number of cores at most")
	}
	spin := cfg.IdleSpin
	switch {
	case cfg.Mode == Interrupt:
		spin = 0
	case spin == 0:
		spin = DefaultIdleSpin
	}
	g := &Group{log: log}
	for id, core := range cores {
		g.reactors = append(g.reactors, &Reactor{
			id: id, core: core, mode: cfg.Mode, spin: int64(spin), log: log,
			epoll: -1, wakefd: -1, done: make(chan struct{}),
		})
	}
	return g, nil
}

// Reactors returns the group's reactors, in order of their ID.
func (g *Group) Reactors() []*Reactor { return g.reactors }

// Start runs the reactors. If one cannot, none does.
func (g *Group) Start() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.started {
		return errors.New("reactor: the group was started before")
	}
	g.started = true
	adjustProcs(len(g.reactors))
	for i, r := range g.reactors {
		err := r.openWaits()
		if err == nil {
			pinned := make(chan error)
			go r.run(pinned)
			if err = <-pinned; err == nil {
				continue
			}
			r.closeWaits()
		}
		for _, running := range g.reactors[:i] {
			running.stop()
		}
		adjustProcs(-len(g.reactors))
		g.stopped = true
		return err
	}
	return nil
}

// Stop ends the reactors. What was posted before still runs; what is posted later is refused. Queues and connections are
// their owners' to close before.
func (g *Group) Stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.started || g.stopped {
		return
	}
	g.stopped = true
	for _, r := range g.reactors {
		r.stop()
	}
	adjustProcs(-len(g.reactors))
}

func (r *Reactor) stop() {
	r.Post(func() { r.stopping = true })
	<-r.done
	r.closeWaits()
}
