package target

import (
	"fmt"
	"slices"

	"rocet/nvme"
)

// MaxANAGroups is the largest ANA group identifier.
const MaxANAGroups = 32

// anaTable is a subsystem's ANA states, under Target.mu. A state that was never
// set is optimized.
type anaTable struct {
	states  map[anaKey]nvme.ANAState
	counts  [MaxANAGroups + 1]uint64 // changes, by group
	changes uint64
}

type anaKey struct {
	listener *Listener // nil: where nothing else is set
	group    uint32
}

func (a *anaTable) state(l *Listener, group uint32) nvme.ANAState {
	if s, ok := a.states[anaKey{l, group}]; ok {
		return s
	}
	if s, ok := a.states[anaKey{nil, group}]; ok {
		return s
	}
	return nvme.ANAOptimized
}

// changed counts a change of a group: of its state or its namespaces.
func (a *anaTable) changed(group uint32) {
	a.counts[group]++
	a.changes++
}

func (a *anaTable) dropListener(l *Listener) {
	for k := range a.states {
		if k.listener == l {
			delete(a.states, k)
		}
	}
}

// anaView is the states as the queues of a listener see them, by group, and
// whether I/O is possible in all of them. Target.mu is held.
func (s *Subsystem) anaView(l *Listener) (view []nvme.ANAState, all bool) {
	view = make([]nvme.ANAState, MaxANAGroups+1)
	all = true
	for g := range view {
		view[g] = s.ana.state(l, uint32(g))
		all = all && anaStatus(view[g]) == nvme.StatusSuccess
	}
	return view, all
}

// SetANAState sets the state of an ANA group as hosts see it at a listener (nil:
// at all that have no state of their own) and tells them.
func (s *Subsystem) SetANAState(l *Listener, group uint32, state nvme.ANAState) error {
	if group == 0 || group > MaxANAGroups {
		return fmt.Errorf("subsystem %s: ANA group %d: want 1 to %d", s.nqn, group, MaxANAGroups)
	}
	switch state {
	case nvme.ANAOptimized, nvme.ANANonOptimized, nvme.ANAInaccessible, nvme.ANAPersistentLoss, nvme.ANAChange:
	default:
		return fmt.Errorf("subsystem %s: ANA group %d: %s is no state", s.nqn, group, state)
	}
	s.target.mu.Lock()
	defer s.target.mu.Unlock()
	if s.ana.states == nil {
		s.ana.states = make(map[anaKey]nvme.ANAState)
	}
	s.ana.states[anaKey{l, group}] = state
	s.ana.changed(group)
	for _, c := range s.controllers {
		view, all := s.anaView(c.listener)
		for _, q := range c.queues {
			q.group.Reactor.Post(func() { q.ana, q.anaAll = view, all })
		}
		c.raise(eventANA)
	}
	return nil
}

// anaLog is the ANA log as a controller sees it: the groups that have namespaces.
func (c *Controller) anaLog(groupsOnly bool) []byte {
	s := c.sub
	s.target.mu.Lock()
	defer s.target.mu.Unlock()
	log := nvme.ANALog{ChangeCount: s.ana.changes}
	for _, ns := range s.namespaces {
		i := slices.IndexFunc(log.Groups, func(g nvme.ANAGroup) bool { return g.ID == ns.anaGroup })
		if i < 0 {
			i = len(log.Groups)
			log.Groups = append(log.Groups, nvme.ANAGroup{
				ID:          ns.anaGroup,
				ChangeCount: s.ana.counts[ns.anaGroup],
				State:       s.ana.state(c.listener, ns.anaGroup),
			})
		}
		if !groupsOnly {
			log.Groups[i].NSIDs = append(log.Groups[i].NSIDs, ns.nsid)
		}
	}
	slices.SortFunc(log.Groups, func(a, b nvme.ANAGroup) int { return int(a.ID) - int(b.ID) })
	b := make([]byte, log.Size())
	log.MarshalTo(b)
	return b
}
