package control

import (
	"net"
	"strconv"

	"rocet/rdma"
)

var (
	rdmaHalfOpen = describe("rdma_half_open_connections", "Connections without a command yet.")
	rdmaAccepted = describe("rdma_accepted_total", "Connections that sent a command.")
	rdmaRejects  = describe("rdma_rejects_total", "Connect requests that were rejected.", "status")
	rdmaCapsules = describe("rdma_capsule_bytes", "Memory for capsules.", "kind")
	rdmaQueues   = describe("rdma_queues", "Queue pairs.", "device", "reactor")
	rdmaWaiting  = describe("rdma_commands_waiting", "Commands that wait for memory, READ depth or work requests.", "device", "reactor")
	rdmaInUse    = describe("rdma_slots_in_use", "Commands under way.", "device", "reactor")
	rdmaPool     = describe("rdma_buffer_bytes", "Buffer memory in use.", "device", "reactor")
	rdmaEvents   = describe("rdma_events_total",
		"What the lanes did: commands, RDMA operations, crossings into the libraries, doorbells, errors.", "device", "reactor", "event")
)

func collectRDMA(k *sink, s rdma.Stats) {
	k.gauge(rdmaHalfOpen, float64(s.HalfOpen))
	k.counter(rdmaAccepted, float64(s.Accepted))
	for st, n := range s.Rejects {
		k.counter(rdmaRejects, float64(n), st.String())
	}
	k.gauge(rdmaCapsules, float64(s.CapsuleBytes), "used")
	k.gauge(rdmaCapsules, float64(s.CapsuleSlabs), "mapped")

	// A device may have several lanes on a reactor.
	type at struct{ device, reactor string }
	lanes := map[at]*rdma.LaneState{}
	for i := range s.Lanes {
		l := &s.Lanes[i]
		key := at{l.Device, strconv.Itoa(l.Reactor)}
		sum := lanes[key]
		if sum == nil {
			sum = &rdma.LaneState{}
			lanes[key] = sum
		}
		sum.Queues += l.Queues
		sum.InUse += l.InUse
		sum.PoolBytes += l.PoolBytes
		sum.Waiting += l.Waiting
		sum.Add(l.LaneStats)
	}
	for key, l := range lanes {
		k.gauge(rdmaQueues, float64(l.Queues), key.device, key.reactor)
		k.gauge(rdmaInUse, float64(l.InUse), key.device, key.reactor)
		k.gauge(rdmaPool, float64(l.PoolBytes), key.device, key.reactor)
		k.gauge(rdmaWaiting, float64(l.Waiting), key.device, key.reactor)
		collectLane(k, &l.LaneStats, key.device, key.reactor)
	}
	collectLane(k, &s.Past, "", "") // lanes that are gone: sums must not go down
}

func collectLane(k *sink, s *rdma.LaneStats, device, reactor string) {
	for _, e := range []event{
		{"command", s.Commands}, {"response", s.Responses}, {"in_capsule_write", s.InCapsule},
		{"read", s.Reads}, {"write", s.Writes}, {"invalidate", s.Invalidates}, {"bad_sgl", s.BadSGLs},
		{"poll", s.Polls}, {"completion", s.Completions}, {"post", s.Posts}, {"doorbell", s.Doorbells},
		{"arm", s.Arms}, {"wake", s.Wakes}, {"slot_wait", s.SlotWaits}, {"wide_wait", s.WideWaits},
		{"error", s.Errors}, {"flush", s.Flushes}, {"stale", s.Stale}, {"post_error", s.PostErrors},
		{"abandoned", s.Abandoned}, {"late_drain", s.LateDrains},
	} {
		k.counter(rdmaEvents, float64(e.n), device, reactor, e.name)
	}
}

// hostOnly is an address without its port.
func hostOnly(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}
