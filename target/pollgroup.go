package target

import (
	"time"

	"rocet/memory"
	"rocet/nvme"
	"rocet/reactor"
)

// PollGroup is the target on one reactor: the namespace tables that its queues
// look into, its buffers and its counters. Transports and backends hang their own
// per-reactor state on it by Index.
type PollGroup struct {
	Reactor *reactor.Reactor
	Mem     *memory.Cache
	Index   int // in Target.Groups

	target *Target
	stats  groupStats
	trim   reactor.Timer
}

// trimEvery is how often a reactor gives memory back that it kept after a burst.
const trimEvery = 10 * time.Second

func (g *PollGroup) start() {
	g.trim.Fire = func() {
		g.Mem.Trim()
		g.Reactor.Schedule(&g.trim, trimEvery)
	}
	g.Reactor.Schedule(&g.trim, trimEvery)
}

func (g *PollGroup) stop() {
	g.Reactor.Cancel(&g.trim)
	g.Mem.Close()
}

// Target is the one that the group belongs to.
func (g *PollGroup) Target() *Target { return g.target }

// call runs fn on the group's reactor and waits. Never from a reactor.
func (g *PollGroup) call(fn func()) { g.Reactor.Call(fn) }

// space is a subsystem's namespaces on one reactor. The reactor owns it; the
// control plane replaces the table through the inbox.
type space struct {
	table []*nsQueue // by NSID - 1; nil: not active
}

// find returns the namespace or nil. NSID 0 and FFFFFFFFh are in no table.
func (s *space) find(nsid uint32) *nsQueue {
	if i := nsid - 1; uint64(i) < uint64(len(s.table)) {
		return s.table[i]
	}
	return nil
}

// put changes one entry, on the reactor.
func (s *space) put(nsid uint32, ns *nsQueue) {
	for uint32(len(s.table)) < nsid {
		s.table = append(s.table, nil)
	}
	s.table[nsid-1] = ns
}

// nsQueue is a namespace on one reactor.
type nsQueue struct {
	queue    BackendQueue
	blocks   uint64
	shift    uint8
	lends    bool
	readOnly bool
	cached   bool // the backend has a volatile write cache: flushes mean something
	gone     bool // removed: nothing new is submitted
	ops      OpSet
	group    uint16 // ANA group
	nsid     uint32
	inflight int
	drained  func() // of a removal that waits
	stats    *nsStats
}

// release ends what submit counted.
func (ns *nsQueue) release() {
	ns.inflight--
	if ns.gone && ns.inflight == 0 {
		ns.close()
	}
}

// remove takes the namespace out of service; closed runs once the backend's queue
// is closed, after the last command in flight.
func (ns *nsQueue) remove(closed func()) {
	ns.gone = true
	ns.drained = closed
	if ns.inflight == 0 {
		ns.close()
	}
}

func (ns *nsQueue) close() { ns.queue.Close(ns.drained) }

// setInfo takes over what can change in a backend's life.
func (ns *nsQueue) setInfo(info Info, readOnly bool) {
	ns.blocks = info.Blocks
	ns.readOnly = readOnly || info.ReadOnly
	ns.cached = info.VolatileWriteCache
}

// anaStatus is what a command gets in a state that does not allow it.
func anaStatus(s nvme.ANAState) nvme.Status {
	switch s {
	case nvme.ANAInaccessible:
		return nvme.StatusANAInaccessible
	case nvme.ANAPersistentLoss:
		return nvme.StatusANAPersistentLoss
	case nvme.ANAChange:
		return nvme.StatusANATransition
	}
	return nvme.StatusSuccess
}
