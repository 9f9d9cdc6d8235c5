package target

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sync"

	"rocet/nvme"
)

// MaxNamespaces is the most namespaces that a subsystem may have. It is also the
// largest NSID: hosts size their ANA log buffer by it.
const MaxNamespaces = 1024

// SubsystemConfig describes a subsystem.
type SubsystemConfig struct {
	NQN          string
	Serial       string // up to 20 ASCII characters; empty: made of the NQN, so that it stays the same
	Model        string // up to 40 ASCII characters; empty: "Rocet"
	AllowAnyHost bool
	Hosts        []string // NQNs of the hosts that may connect

	MinCNTLID, MaxCNTLID uint16 // range of controller identifiers, 0: 1 to FFEFh. Targets that serve the same NQN need ranges apart.
}

// Subsystem is an NVM subsystem: namespaces and who may use them.
type Subsystem struct {
	target      *Target
	nqn         string
	serial      string
	model       string
	isDiscovery bool
	minCNTLID   uint16
	maxCNTLID   uint16
	spaces      []*space // by group

	// config serializes changes of the namespaces, which block. It is taken before
	// Target.mu.
	config sync.Mutex

	// Under Target.mu.
	removed     bool
	allowAny    bool
	hosts       map[string]struct{}
	listeners   map[*Listener]struct{} // nil: every listener of the target
	namespaces  []*Namespace           // active, by NSID; replaced, never changed
	controllers map[uint16]*Controller // until freed
	lastCNTLID  uint16
	ana         anaTable
}

func (t *Target) newSubsystem(c SubsystemConfig) *Subsystem {
	s := &Subsystem{
		target:      t,
		nqn:         c.NQN,
		serial:      c.Serial,
		model:       c.Model,
		minCNTLID:   c.MinCNTLID,
		maxCNTLID:   c.MaxCNTLID,
		allowAny:    c.AllowAnyHost,
		hosts:       make(map[string]struct{}),
		controllers: make(map[uint16]*Controller),
	}
	for _, h := range c.Hosts {
		s.hosts[h] = struct{}{}
	}
	def(&s.model, "Rocet")
	def(&s.minCNTLID, 1)
	def(&s.maxCNTLID, nvme.CNTLIDMax)
	s.lastCNTLID = s.maxCNTLID
	if s.serial == "" {
		sum := sha256.Sum256([]byte(c.NQN))
		s.serial = hex.EncodeToString(sum[:10])
	}
	for range t.groups {
		s.spaces = append(s.spaces, &space{})
	}
	return s
}

// AddSubsystem makes a subsystem without namespaces. Hosts can connect at once.
func (t *Target) AddSubsystem(c SubsystemConfig) (*Subsystem, error) {
	if err := nvme.ValidNQN(c.NQN); err != nil {
		return nil, fmt.Errorf("subsystem: %w", err)
	}
	if err := checkASCII("serial number", c.Serial, 20); err != nil {
		return nil, fmt.Errorf("subsystem %s: %w", c.NQN, err)
	}
	if err := checkASCII("model", c.Model, 40); err != nil {
		return nil, fmt.Errorf("subsystem %s: %w", c.NQN, err)
	}
	for _, h := range c.Hosts {
		if err := checkHostNQN(h); err != nil {
			return nil, fmt.Errorf("subsystem %s: host: %w", c.NQN, err)
		}
	}
	s := t.newSubsystem(c)
	if s.minCNTLID > s.maxCNTLID || s.maxCNTLID > nvme.CNTLIDMax {
		return nil, fmt.Errorf("subsystem %s: controller identifiers %d to %d: want a range within 1 to %d", c.NQN, s.minCNTLID, s.maxCNTLID, nvme.CNTLIDMax)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isClosed() {
		return nil, fmt.Errorf("subsystem %s: %w", c.NQN, ErrTargetClosed)
	}
	if _, ok := t.subsystems[c.NQN]; ok || c.NQN == nvme.DiscoveryNQN {
		return nil, fmt.Errorf("subsystem %s: there already", c.NQN)
	}
	t.subsystems[c.NQN] = s
	t.discoveryChanged()
	t.log.Info("subsystem added", "subsystem", c.NQN)
	return s, nil
}

func checkASCII(what, s string, size int) error {
	if len(s) > size {
		return fmt.Errorf("%s %q: %d characters, at most %d fit", what, s, len(s), size)
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return fmt.Errorf("%s %q: only printable ASCII characters are allowed", what, s)
		}
	}
	return nil
}

// checkHostNQN is less strict than nvme.ValidNQN: hosts are free in their names.
func checkHostNQN(nqn string) error {
	if nqn == "" || len(nqn) > nvme.NQNMaxLength {
		return fmt.Errorf("NQN %q: want 1 to %d bytes", nqn, nvme.NQNMaxLength)
	}
	return nil
}

// Subsystem returns the subsystem of that name, or nil.
func (t *Target) Subsystem(nqn string) *Subsystem {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.subsystems[nqn]
}

// Subsystems returns all subsystems by name.
func (t *Target) Subsystems() []*Subsystem {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.subsystems), func(a, b *Subsystem) int {
		if a.nqn < b.nqn {
			return -1
		}
		return 1
	})
}

// RemoveSubsystem ends the subsystem's controllers, waits until their queues are
// back, and removes its namespaces. When it returns nil the backends may be closed.
func (t *Target) RemoveSubsystem(ctx context.Context, nqn string) error {
	t.mu.Lock()
	s := t.subsystems[nqn]
	if s == nil {
		t.mu.Unlock()
		return fmt.Errorf("subsystem %s: there is none", nqn)
	}
	s.removed = true
	delete(t.subsystems, nqn)
	for _, c := range s.controllers {
		c.end(ErrSubsystemRemoved)
	}
	t.discoveryChanged()
	t.mu.Unlock()
	t.log.Info("subsystem removed", "subsystem", nqn)
	if err := t.wait(ctx, func() bool { return len(s.controllers) == 0 }); err != nil {
		return fmt.Errorf("subsystem %s: its controllers are still connected: %w", nqn, err)
	}
	s.config.Lock() // one that is being added comes first
	namespaces := s.Namespaces()
	s.config.Unlock()
	for _, ns := range namespaces {
		if err := s.RemoveNamespace(ctx, ns.nsid); err != nil {
			return err
		}
	}
	return nil
}

// NQN is the subsystem's name.
func (s *Subsystem) NQN() string { return s.nqn }

// Serial is the subsystem's serial number.
func (s *Subsystem) Serial() string { return s.serial }

// Model is the subsystem's model number.
func (s *Subsystem) Model() string { return s.model }

// Namespaces returns the active namespaces by NSID.
func (s *Subsystem) Namespaces() []*Namespace {
	s.target.mu.Lock()
	defer s.target.mu.Unlock()
	return s.namespaces
}

// Namespace returns the active namespace of that NSID, or nil.
func (s *Subsystem) Namespace(nsid uint32) *Namespace {
	list := s.Namespaces()
	i, ok := slices.BinarySearchFunc(list, nsid, func(ns *Namespace, id uint32) int { return int(int64(ns.nsid) - int64(id)) })
	if !ok {
		return nil
	}
	return list[i]
}

// AllowHost lets a host connect.
func (s *Subsystem) AllowHost(nqn string) error {
	if err := checkHostNQN(nqn); err != nil {
		return fmt.Errorf("subsystem %s: allow host: %w", s.nqn, err)
	}
	s.target.mu.Lock()
	defer s.target.mu.Unlock()
	if _, ok := s.hosts[nqn]; !ok {
		s.hosts[nqn] = struct{}{}
		s.target.discoveryChanged()
	}
	return nil
}

// DisallowHost takes a host off the list and ends its connections, unless any
// host is allowed.
func (s *Subsystem) DisallowHost(nqn string) {
	s.target.mu.Lock()
	defer s.target.mu.Unlock()
	if _, ok := s.hosts[nqn]; ok {
		delete(s.hosts, nqn)
		s.accessChanged()
	}
}

// SetAllowAnyHost opens the subsystem to every host, or closes it to those that
// are not on the list and ends their connections.
func (s *Subsystem) SetAllowAnyHost(any bool) {
	s.target.mu.Lock()
	defer s.target.mu.Unlock()
	if s.allowAny != any {
		s.allowAny = any
		s.accessChanged()
	}
}

// Hosts returns the list of allowed hosts, and whether any host is.
func (s *Subsystem) Hosts() (nqns []string, any bool) {
	s.target.mu.Lock()
	defer s.target.mu.Unlock()
	return slices.Sorted(maps.Keys(s.hosts)), s.allowAny
}

// SetListeners restricts the subsystem to some of the target's listeners; none
// given: all of them. Connections at other listeners end.
func (s *Subsystem) SetListeners(listeners ...*Listener) {
	s.target.mu.Lock()
	defer s.target.mu.Unlock()
	s.listeners = nil
	if len(listeners) != 0 {
		s.listeners = make(map[*Listener]struct{})
		for _, l := range listeners {
			s.listeners[l] = struct{}{}
		}
	}
	for _, c := range s.controllers {
		if !s.reachable(c.listener) {
			c.end(ErrListenerRemoved)
		}
	}
	s.target.discoveryChanged()
}

// dropListener forgets a removed listener. The set stays restricted even when it
// becomes empty. Target.mu is held.
func (s *Subsystem) dropListener(l *Listener) {
	delete(s.listeners, l)
	s.ana.dropListener(l)
}

// accessChanged ends controllers of hosts that may no longer be there. Target.mu
// is held.
func (s *Subsystem) accessChanged() {
	for _, c := range s.controllers {
		if !s.allowed(c.host.NQN) {
			c.end(ErrHostNotAllowed)
		}
	}
	s.target.discoveryChanged()
}

// allowed tells whether a host may connect. Target.mu is held.
func (s *Subsystem) allowed(hostNQN string) bool {
	_, ok := s.hosts[hostNQN]
	return ok || s.allowAny
}

// reachable tells whether the subsystem is served at a listener. Target.mu is held.
func (s *Subsystem) reachable(l *Listener) bool {
	if s.listeners == nil {
		return true
	}
	_, ok := s.listeners[l]
	return ok
}

// newCNTLID returns an identifier that has not been in use for long, 0 if all
// are taken. Target.mu is held.
func (s *Subsystem) newCNTLID() uint16 {
	id := s.lastCNTLID
	for range int(s.maxCNTLID-s.minCNTLID) + 1 {
		if id++; id > s.maxCNTLID || id < s.minCNTLID {
			id = s.minCNTLID
		}
		if _, taken := s.controllers[id]; !taken {
			s.lastCNTLID = id
			return id
		}
	}
	return 0
}
