package rdma

import (
	"maps"
	"reflect"
	"time"

	"rocet/nvme"
)

// LaneStats are the plain counters of one lane, which its reactor keeps.
type LaneStats struct {
	Commands    uint64 // capsules taken into a slot
	Responses   uint64
	InCapsule   uint64 // writes whose data came in the capsule and stayed there
	Reads       uint64 // RDMA READs posted
	Writes      uint64 // RDMA WRITEs posted
	Invalidates uint64 // responses by SEND_WITH_INV
	CopiedBytes uint64 // by the processor, out of capsules
	BadSGLs     uint64

	Polls       uint64 // crossings that polled
	Completions uint64
	Posts       uint64 // crossings that posted
	Doorbells   uint64 // chains posted
	Arms, Wakes uint64

	BufferWaits, BufferWaitNanos uint64 // for pool memory
	ReadWaits, ReadWaitNanos     uint64 // for READ depth
	SendWaits, SendWaitNanos     uint64 // for send work requests
	WideWaits                    uint64 // for the work requests of a large chain
	SlotWaits                    uint64 // capsules that found no free slot

	Errors     uint64 // completions with an error that is no flush
	Flushes    uint64
	Stale      uint64 // completions of queues or slots that are no more
	PostErrors uint64
	Abandoned  uint64 // slots that the device never gave back
	LateDrains uint64 // queues that were not drained in time
}

// Add sums two sets of counters.
func (s *LaneStats) Add(o LaneStats) {
	a, b := reflect.ValueOf(s).Elem(), reflect.ValueOf(o)
	for i := range a.NumField() {
		a.Field(i).SetUint(a.Field(i).Uint() + b.Field(i).Uint())
	}
}

// LaneState is a lane at one moment.
type LaneState struct {
	Device         string
	Reactor        int
	SharedReceives bool
	Queues         int
	InUse          int // slots
	Executing      int // commands with the target
	PoolBytes      uint64
	Posted         int // shared receives that are with the device
	Waiting        int // commands that wait for memory, READ depth or send work requests
	OldestWait     time.Duration
	LaneStats
}

// Stats is the transport at one moment.
type Stats struct {
	Lanes        []LaneState
	Past         LaneStats // sums of lanes that are gone
	Connections  map[string]int
	HalfOpen     int
	Accepted     uint64 // connections that sent a command
	Rejects      map[nvme.RDMACMStatus]uint64
	CapsuleBytes uint64 // in use
	CapsuleSlabs uint64 // bytes of the slabs
}

// Stats asks every lane. Off the reactors.
func (t *Transport) Stats() Stats {
	t.mu.Lock()
	st := Stats{
		Past: t.past, Connections: maps.Clone(t.hosts), HalfOpen: t.halfOpen, Accepted: t.accepted,
		Rejects: make(map[nvme.RDMACMStatus]uint64),
	}
	for i, n := range t.rejects {
		if n != 0 {
			st.Rejects[nvme.RDMACMStatus(i)] = n
		}
	}
	var ds []*device
	for _, d := range t.devices {
		ds = append(ds, d)
	}
	t.mu.Unlock()
	st.CapsuleBytes, st.CapsuleSlabs = t.capsules.usage()
	for _, d := range ds {
		d.mu.Lock()
		for s, lanes := range d.lanes {
			for _, l := range lanes {
				state := LaneState{Device: d.name, Reactor: s.r.ID(), SharedReceives: l.srq != nil}
				if s.r.Call(func() { l.state(&state) }) {
					st.Lanes = append(st.Lanes, state)
				}
			}
		}
		d.mu.Unlock()
	}
	return st
}

// state fills a snapshot, on the reactor.
func (l *lane) state(st *LaneState) {
	st.LaneStats = l.stats
	st.Queues = l.live
	if l.srq != nil {
		st.Posted = l.srq.posted
	}
	now := l.shard.r.Now()
	for _, q := range l.queues {
		if q == nil {
			continue
		}
		st.InUse += q.inUse
		st.Executing += q.executing
		st.PoolBytes += q.held
		for _, w := range []*slotList{&q.bufWait, &q.readWait, &q.sendWait} {
			st.Waiting += w.n
			if since := w.since(); since != 0 {
				st.OldestWait = max(st.OldestWait, time.Duration(now-since))
			}
		}
	}
}

// keepStats adds what a lane counted to the past. After it left its reactor.
func (t *Transport) keepStats(l *lane) {
	t.mu.Lock()
	t.past.Add(l.stats)
	t.mu.Unlock()
}
