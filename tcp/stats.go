package tcp

import (
	"maps"
	"reflect"
	"time"
)

// Stats are the plain counters of one shard, which its reactor keeps.
type Stats struct {
	Accepted  uint64
	Displaced uint64 // cut because too many waited for a Connect command
	Unread    uint64 // cut because the host read nothing
	Withheld  uint64 // cut because the host did not send the data that it was asked for

	Commands  uint64 // capsules taken
	Responses uint64
	PDUsIn    uint64
	InCapsule uint64 // writes whose data came in the capsule
	R2Ts      uint64
	H2CData   uint64
	BadSGLs   uint64

	EpollWaits   uint64
	Reads        uint64 // system calls
	EmptyReads   uint64 // of them those that found nothing
	Sends        uint64
	PartialSends uint64
	BytesIn      uint64
	BytesOut     uint64
	CopiedBytes  uint64 // that were read ahead and moved, or could not be sent from where they were
	Arms         uint64

	BufferWaits, BufferWaitNanos uint64 // for pool memory
	Blocked                      uint64 // sends that found no more room in the socket

	FatalErrors        uint64 // of hosts
	TermReqsSent       uint64
	TermReqsReceived   uint64
	HeaderDigestErrors uint64
	DataDigestErrors   uint64
}

// Add sums two sets of counters.
func (s *Stats) Add(o Stats) {
	a, b := reflect.ValueOf(s).Elem(), reflect.ValueOf(o)
	for i := range a.NumField() {
		a.Field(i).SetUint(a.Field(i).Uint() + b.Field(i).Uint())
	}
}

// ShardState is the transport on one reactor at one moment.
type ShardState struct {
	Reactor     int
	Connections int
	HalfOpen    int // without a successful Connect
	InUse       int // commands
	Executing   int // of them those with the target
	PoolBytes   uint64
	Waiting     int // commands that wait for pool memory
	OldestWait  time.Duration
	Stats
}

// TransportStats is the transport at one moment.
type TransportStats struct {
	Shards      []ShardState
	Connections map[string]int // by host address
	Refused     uint64         // over MaxConnections
}

// Stats asks every reactor. Off the reactors.
func (t *Transport) Stats() TransportStats {
	t.mu.Lock()
	out := TransportStats{Connections: maps.Clone(t.hosts), Refused: t.refused}
	t.mu.Unlock()
	for _, s := range t.shards {
		st := ShardState{Reactor: s.r.ID()}
		if s.r.Call(func() { s.state(&st) }) {
			out.Shards = append(out.Shards, st)
		}
	}
	return out
}

// state fills a snapshot, on the reactor.
func (s *shard) state(st *ShardState) {
	st.Stats = s.stats
	st.Connections = s.live
	st.HalfOpen = s.halfOpen.n
	now := s.r.Now()
	for _, c := range s.conns {
		if c == nil {
			continue
		}
		st.InUse += c.inUse
		st.Executing += c.executing
		st.PoolBytes += c.held
		st.Waiting += c.bufWait.n
		if c.bufWait.head != nil {
			st.OldestWait = max(st.OldestWait, time.Duration(now-c.bufWait.head.since))
		}
	}
}
