package target

import (
	"math/bits"
	"time"

	"rocet/nvme"
)

// Statistics are plain counters on the core that counts. Whoever wants them has
// each reactor copy its own, and adds up.

// NumLatencyBuckets is how many buckets a latency histogram has: four to a power
// of two, from 256 ns to 68 s.
const NumLatencyBuckets = 108

// latencyBucket is where a latency of ns nanoseconds counts.
func latencyBucket(ns uint64) int {
	if ns < 1024 {
		return int(ns >> 8)
	}
	e := bits.Len64(ns) - 1
	return min((e-9)*4+int(ns>>(e-2)&3), NumLatencyBuckets-1)
}

// LatencyBound is the upper bound of a bucket, exclusive. The last bucket has none.
func LatencyBound(bucket int) time.Duration {
	if bucket < 4 {
		return time.Duration(bucket+1) << 8
	}
	e := bucket/4 + 9
	return time.Duration(bucket%4+5) << (e - 2)
}

// OpStats counts one operation of a namespace.
type OpStats struct {
	Commands  uint64 // that succeeded
	Errors    uint64 // that did not
	Bytes     uint64 // of those that succeeded
	LatencyNS uint64 // sum, of all
	Latency   [NumLatencyBuckets]uint64
}

func (s *OpStats) add(o *OpStats) {
	s.Commands += o.Commands
	s.Errors += o.Errors
	s.Bytes += o.Bytes
	s.LatencyNS += o.LatencyNS
	for i := range s.Latency {
		s.Latency[i] += o.Latency[i]
	}
}

// nsStats counts a namespace on one reactor.
type nsStats [NumOps]OpStats

// CopyReason is why the processor copied data that could have been left alone.
type CopyReason uint8

// Reasons.
const (
	CopyBounce     CopyReason = iota // a backend that can't use the buffers as they lie
	CopyCapsule                      // data of a command capsule moved to a buffer
	CopySocket                       // a socket's read or write that passed through a buffer
	CopyMemory                       // a memory namespace took or gave data
	NumCopyReasons int        = iota
)

var copyNames = [NumCopyReasons]string{"bounce", "capsule", "socket", "memory_namespace"}

func (c CopyReason) String() string { return copyNames[c] }

// WaitReason is what a request had to wait for.
type WaitReason uint8

// Reasons.
const (
	WaitBuffer     WaitReason = iota // pool memory
	WaitWork                         // work requests or READ credits of the queue
	WaitBackend                      // room in the backend's queue
	WaitSocket                       // room in the socket's send buffer
	NumWaitReasons int        = iota
)

var waitNames = [NumWaitReasons]string{"buffer", "work_request", "backend", "socket"}

func (w WaitReason) String() string { return waitNames[w] }

// WaitStats counts waits of one reason.
type WaitStats struct {
	Waits     uint64
	TotalNS   uint64
	LongestNS uint64
}

// groupStats are a reactor's own counters.
type groupStats struct {
	queues uint64 // now
	admin  [256]uint64
	errors [nvme.StatusCodeMask + 1]uint64
	copied [NumCopyReasons]uint64
	waits  [NumWaitReasons]WaitStats
}

// Account counts a request whose response was just posted. now is a reading of
// reactor.Clock, as Begin was given one. A turn's own time (Reactor.Now) would do
// for Begin; for both it makes every command that ends in its turn take no time.
func (g *PollGroup) Account(r *Request, now int64) {
	ns := r.ns
	if ns == nil {
		if q := r.queue; q != nil && q.admin {
			g.stats.admin[r.opcode]++
		}
		return
	}
	s := &ns.stats[r.io.Op]
	if r.Cqe.Status().IsOK() {
		s.Commands++
		s.Bytes += uint64(r.Length)
	} else {
		s.Errors++
	}
	d := uint64(max(now-r.started, 0))
	s.LatencyNS += d
	s.Latency[latencyBucket(d)]++
}

// CountCopied counts bytes that the processor copied.
func (g *PollGroup) CountCopied(why CopyReason, bytes uint64) { g.stats.copied[why] += bytes }

// CountWait counts a wait that is over.
func (g *PollGroup) CountWait(why WaitReason, ns int64) {
	w := &g.stats.waits[why]
	w.Waits++
	d := uint64(max(ns, 0))
	w.TotalNS += d
	w.LongestNS = max(w.LongestNS, d)
}

// GroupStats is a snapshot of a reactor's counters.
type GroupStats struct {
	Queues        uint64 // connections on this reactor
	AdminCommands map[nvme.Opcode]uint64
	Errors        map[nvme.Status]uint64 // completions by status code
	Copied        [NumCopyReasons]uint64 // bytes by reason
	Waits         [NumWaitReasons]WaitStats
}

// Stats copies the group's counters. Not from a reactor.
func (g *PollGroup) Stats() GroupStats {
	out := GroupStats{AdminCommands: make(map[nvme.Opcode]uint64), Errors: make(map[nvme.Status]uint64)}
	var s groupStats
	g.call(func() { s = g.stats })
	out.Queues, out.Copied, out.Waits = s.queues, s.copied, s.waits
	for op, n := range s.admin {
		if n != 0 {
			out.AdminCommands[nvme.Opcode(op)] = n
		}
	}
	for st, n := range s.errors {
		if n != 0 {
			out.Errors[nvme.Status(st)] = n
		}
	}
	return out
}

// Stats adds up the namespace's counters of all reactors. Not from a reactor.
func (ns *Namespace) Stats() [NumOps]OpStats {
	var sum [NumOps]OpStats
	for i, q := range ns.queues {
		var s nsStats
		ns.sub.target.groups[i].call(func() { s = *q.stats })
		for op := range sum {
			sum[op].add(&s[op])
		}
	}
	return sum
}

// InFlight is how many commands of each reactor the namespace's backend has.
func (ns *Namespace) InFlight() []int {
	n := make([]int, len(ns.queues))
	for i, q := range ns.queues {
		ns.sub.target.groups[i].call(func() { n[i] = q.inflight })
	}
	return n
}

// RefusedConnections is how many connections were turned away because MaxQueues
// were there.
func (t *Target) RefusedConnections() uint64 { return t.refused.Load() }
