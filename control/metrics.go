package control

import (
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	drive "rocet/backend/nvme"
	"rocet/reactor"
	"rocet/target"
)

// collector reads the counters of every reactor when somebody scrapes. Reactors keep plain counters on their own cores;
// each copies its own, by a function in its inbox.
type collector struct{ s *Server }

// sink takes the metrics of one scrape.
type sink struct{ out chan<- prometheus.Metric }

func (k *sink) counter(d *prometheus.Desc, v float64, labels ...string) {
	k.out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, printable(labels)...)
}

func (k *sink) gauge(d *prometheus.Desc, v float64, labels ...string) {
	k.out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, printable(labels)...)
}

// printable keeps what a drive or a device calls itself from being a label that the registry panics at.
func printable(labels []string) []string {
	for i, l := range labels {
		labels[i] = strings.ToValidUTF8(l, "?")
	}
	return labels
}

// descs are all metrics of Rocet's own, in the order of their definition.
var descs []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("rocet_"+name, help, labels, nil)
	descs = append(descs, d)
	return d
}

var (
	buildInfo = describe("build_info", "Version of this rocet; always 1.", "version", "go")
	startTime = describe("start_time_seconds", "When the target was started, in seconds since 1970.")

	commands = describe("commands_total", "I/O commands that succeeded.", "subsystem", "nsid", "operation")
	failures = describe("command_failures_total", "I/O commands that failed.", "subsystem", "nsid", "operation")
	bytes    = describe("bytes_total", "Bytes of I/O commands that succeeded.", "subsystem", "nsid", "operation")
	duration = describe("command_duration_seconds",
		"Time from a command's arrival to its response being posted.", "subsystem", "nsid", "operation")
	admin    = describe("admin_commands_total", "Admin and fabrics commands.", "opcode")
	statuses = describe("errors_total", "Completions with an error, by NVMe status.", "status")
	copied   = describe("copied_bytes_total",
		"Bytes of data that the processor copied instead of leaving them where the device put them.", "reason")
	waits       = describe("waits_total", "Commands that had to wait for something.", "reason")
	waitTime    = describe("wait_seconds_total", "Time that commands waited.", "reason")
	waitLongest = describe("wait_longest_seconds", "The longest such wait since the start.", "reason")

	connections = describe("connections", "Queues of connected hosts, admin queue included.", "host", "address", "subsystem", "transport")
	queues      = describe("queues", "Connections on a reactor.", "reactor")
	refused     = describe("connections_refused_total", "Connections that were turned away because too many were there.")
	listening   = describe("listener_up", "Whether hosts can connect at a listener.", "listener")

	nsSize     = describe("namespace_size_bytes", "Size of a namespace.", "subsystem", "nsid")
	nsReady    = describe("namespace_ready", "Whether a namespace's device is there.", "subsystem", "nsid")
	nsInFlight = describe("namespace_commands_in_flight", "Commands that a namespace's backend has.", "subsystem", "nsid")

	reactorBusy    = describe("reactor_busy_seconds_total", "Time of turns that did work.", "reactor", "core")
	reactorIdle    = describe("reactor_idle_seconds_total", "All other time, sleep included.", "reactor", "core")
	reactorSleep   = describe("reactor_sleep_seconds_total", "Time asleep.", "reactor", "core")
	reactorTurns   = describe("reactor_turns_total", "Turns of a reactor's loop.", "reactor", "core")
	reactorWork    = describe("reactor_work_turns_total", "Turns that did work.", "reactor", "core")
	reactorSleeps  = describe("reactor_sleeps_total", "How often a reactor went to sleep.", "reactor", "core")
	reactorEvents  = describe("reactor_events_total", "Events that pollers, timers and the inbox handled.", "reactor", "core")
	reactorInbox   = describe("reactor_messages_total", "Messages from the control plane.", "reactor", "core")
	reactorLongest = describe("reactor_longest_turn_seconds", "The longest turn since the start.", "reactor", "core")
	stalls         = describe("reactor_stalls_total",
		"Times of 20 µs or more in which a reactor could run and did not: preempted, or stopped for the garbage collector.",
		"reactor", "core")
	stallTime    = describe("reactor_stall_seconds_total", "Time of those stalls.", "reactor", "core")
	stallLongest = describe("reactor_longest_stall_seconds", "The longest of them since the start.", "reactor", "core")
	switches     = describe("reactor_context_switches_total", "Context switches of a reactor's thread.", "reactor", "core", "kind")

	poolBytes  = describe("memory_pool_bytes", "Buffer memory.")
	poolFree   = describe("memory_pool_free_bytes", "Buffer memory that no reactor holds.")
	poolPage   = describe("memory_pool_page_bytes", "Size of the pages that the buffer memory is mapped with.")
	poolSlabs  = describe("memory_namespace_bytes", "Memory of namespaces in memory.")
	cacheHeld  = describe("memory_cache_held_bytes", "Buffer memory that a reactor holds.", "reactor")
	cacheUsed  = describe("memory_cache_used_bytes", "Buffer memory of a reactor that is in use.", "reactor")
	cacheFails = describe("memory_cache_failures_total", "Allocations that found no memory and waited.", "reactor", "class")
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	k := &sink{out}
	k.gauge(buildInfo, 1, c.s.version, runtime.Version())
	k.gauge(startTime, float64(c.s.started.UnixMilli())/1e3)
	for _, sub := range c.s.target.Subsystems() {
		for _, ns := range sub.Namespaces() {
			k.namespace(sub.NQN(), ns)
		}
	}
	k.groups(c.s.target.Groups())
	k.hosts(c.s)
	k.memory(c.s)
	for _, t := range c.s.transports {
		t.collect(k)
	}
	if m := c.s.backends.drives; m != nil {
		for _, d := range m.Drives() {
			k.drive(&d)
		}
	}
}

func (k *sink) namespace(nqn string, ns *target.Namespace) {
	nsid := strconv.FormatUint(uint64(ns.NSID()), 10)
	k.gauge(nsSize, float64(ns.Info().Bytes()), nqn, nsid)
	k.gauge(nsReady, boolean(ns.Ready()), nqn, nsid)
	inFlight := 0
	for _, n := range ns.InFlight() {
		inFlight += n
	}
	k.gauge(nsInFlight, float64(inFlight), nqn, nsid)
	stats := ns.Stats()
	for i := range stats {
		op, s := target.Op(i), &stats[i]
		if op > target.OpFlush && s.Commands+s.Errors == 0 {
			continue // optional, and never asked for
		}
		k.counter(commands, float64(s.Commands), nqn, nsid, op.String())
		k.counter(failures, float64(s.Errors), nqn, nsid, op.String())
		k.counter(bytes, float64(s.Bytes), nqn, nsid, op.String())
		k.out <- prometheus.MustNewConstHistogram(duration, s.Commands+s.Errors, float64(s.LatencyNS)/1e9,
			latencies(s), nqn, nsid, op.String())
	}
}

// latencies has a bucket for every power of two from 1 µs to 17 s; the target's own are four times as fine.
func latencies(s *target.OpStats) map[float64]uint64 {
	out := make(map[float64]uint64, 25)
	sum := uint64(0)
	for i := range s.Latency {
		sum += s.Latency[i]
		if bound := target.LatencyBound(i); i%4 == 3 && bound <= 20*time.Second {
			out[bound.Seconds()] = sum
		}
	}
	return out
}

func (k *sink) groups(groups []*target.PollGroup) {
	var copies [target.NumCopyReasons]uint64
	var waited [target.NumWaitReasons]target.WaitStats
	ops, errs := map[string]uint64{}, map[string]uint64{}
	for i, g := range groups {
		s := g.Stats()
		id, core := strconv.Itoa(i), strconv.Itoa(g.Reactor.Core())
		k.gauge(queues, float64(s.Queues), id)
		for why := range copies {
			copies[why] += s.Copied[why]
		}
		for why := range waited {
			w := &waited[why]
			w.Waits += s.Waits[why].Waits
			w.TotalNS += s.Waits[why].TotalNS
			w.LongestNS = max(w.LongestNS, s.Waits[why].LongestNS)
		}
		for op, n := range s.AdminCommands {
			ops[op.Name(true)] += n // unknown opcodes have one name
		}
		for st, n := range s.Errors {
			errs[st.Name()] += n
		}
		var r reactor.Stats
		var used uint64
		if !g.Reactor.Call(func() { r, used = g.Reactor.Stats(), g.Mem.Usage().UsedBytes }) {
			continue
		}
		k.reactor(&r, id, core)
		k.gauge(cacheUsed, float64(used), id)
	}
	for why, n := range copies {
		k.counter(copied, float64(n), target.CopyReason(why).String())
	}
	for why := range waited {
		w, name := &waited[why], target.WaitReason(why).String()
		k.counter(waits, float64(w.Waits), name)
		k.counter(waitTime, seconds(w.TotalNS), name)
		k.gauge(waitLongest, seconds(w.LongestNS), name)
	}
	for op, n := range ops {
		k.counter(admin, float64(n), op)
	}
	for st, n := range errs {
		k.counter(statuses, float64(n), st)
	}
}

func (k *sink) reactor(r *reactor.Stats, id, core string) {
	k.counter(reactorBusy, seconds(r.BusyNs), id, core)
	k.counter(reactorIdle, seconds(r.IdleNs), id, core)
	k.counter(reactorSleep, seconds(r.SleepNs), id, core)
	k.counter(reactorTurns, float64(r.Turns), id, core)
	k.counter(reactorWork, float64(r.WorkTurns), id, core)
	k.counter(reactorSleeps, float64(r.Sleeps), id, core)
	k.counter(reactorEvents, float64(r.Events), id, core)
	k.counter(reactorInbox, float64(r.Messages), id, core)
	k.gauge(reactorLongest, seconds(r.LongestTurnNs), id, core)
	k.counter(stalls, float64(r.Stalls), id, core)
	k.counter(stallTime, seconds(r.StallNs), id, core)
	k.gauge(stallLongest, seconds(r.LongestStallNs), id, core)
	k.counter(switches, float64(r.VoluntarySwitches), id, core, "voluntary")
	k.counter(switches, float64(r.InvoluntarySwitches), id, core, "involuntary")
}

func (k *sink) hosts(s *Server) {
	type key struct{ host, addr, subsystem, transport string }
	n := map[key]int{}
	for _, c := range s.target.Controllers() {
		n[key{c.Host.NQN, hostOnly(c.HostAddr), c.Subsystem, c.Listener.Info().TrType.String()}] += 1 + c.IOQueues
	}
	for at, n := range n {
		k.gauge(connections, float64(n), at.host, at.addr, at.subsystem, at.transport)
	}
	k.counter(refused, float64(s.target.RefusedConnections()))
	for _, l := range s.listeners {
		k.gauge(listening, boolean(l.Err() == nil), l.String())
	}
}

func (k *sink) memory(s *Server) {
	m := s.pool.Stats()
	k.gauge(poolBytes, float64(m.Bytes))
	k.gauge(poolFree, float64(m.FreeBytes))
	k.gauge(poolPage, float64(m.PageSize))
	k.gauge(poolSlabs, float64(m.SlabBytes))
	for i := range m.Caches {
		c, id := &m.Caches[i], strconv.Itoa(i)
		k.gauge(cacheHeld, float64(c.HeldBytes), id)
		k.counter(cacheFails, float64(c.FailuresIO), id, "io")
		k.counter(cacheFails, float64(c.FailuresAdmin), id, "admin")
	}
}

var (
	driveState  = describe("drive_state", "State of a drive: 1 for the one that it is in.", "drive", "serial", "state")
	driveEvents = describe("drive_events_total", "What happened to a drive.", "drive", "serial", "event")
	driveOut    = describe("drive_commands_outstanding", "Commands that the drive has.", "drive", "serial", "reactor")
	driveOps    = describe("drive_commands_total", "Commands that the drive got.", "drive", "serial", "reactor")
	driveFails  = describe("drive_failures_total", "Commands that the drive ended with an error.", "drive", "serial", "reactor")
	driveEnded  = describe("drive_ended_total", "Commands that a reset or a removal ended.", "drive", "serial", "reactor")
	driveBells  = describe("drive_doorbells_total", "Doorbell registers written.", "drive", "serial", "reactor")
	driveFull   = describe("drive_queue_full_total", "Commands that found no room in the drive's queue.", "drive", "serial", "reactor")
)

func (k *sink) drive(d *drive.Status) {
	k.gauge(driveState, 1, d.Address, d.Serial, d.State.String())
	c := &d.Counters
	for _, e := range []event{{"reset", c.Resets}, {"removal", c.Removals}, {"return", c.Returns}, {"abort", c.Aborts}, {"event", c.Events}} {
		k.counter(driveEvents, float64(e.n), d.Address, d.Serial, e.name)
	}
	for i := range d.Queues {
		q := &d.Queues[i]
		at := []string{d.Address, d.Serial, strconv.Itoa(q.Reactor)}
		k.gauge(driveOut, float64(q.Outstanding), at...)
		k.counter(driveOps, float64(q.Submitted), at...)
		k.counter(driveFails, float64(q.Failed), at...)
		k.counter(driveEnded, float64(q.Ended), at...)
		k.counter(driveBells, float64(q.Doorbells), at...)
		k.counter(driveFull, float64(q.Full), at...)
	}
}

// event is a counter of a transport or a drive.
type event struct {
	name string
	n    uint64
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(ns uint64) float64 { return float64(ns) / 1e9 }
