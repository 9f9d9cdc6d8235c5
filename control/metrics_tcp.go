package control

import (
	"strconv"

	"rocet/tcp"
)

var (
	tcpConnections = describe("tcp_connections", "Connections.", "reactor")
	tcpHalfOpen    = describe("tcp_half_open_connections", "Connections without a successful Connect command.", "reactor")
	tcpInUse       = describe("tcp_slots_in_use", "Commands under way.", "reactor")
	tcpPool        = describe("tcp_buffer_bytes", "Buffer memory in use.", "reactor")
	tcpWaiting     = describe("tcp_commands_waiting", "Commands that wait for memory.", "reactor")
	tcpRefused     = describe("tcp_refused_total", "Connections that were refused because too many were there.")
	tcpBytes       = describe("tcp_bytes_total", "Bytes through the sockets.", "reactor", "direction")
	tcpEvents      = describe("tcp_events_total",
		"What the transport did: commands, PDUs, system calls, errors of hosts.", "reactor", "event")
)

func collectTCP(k *sink, s tcp.TransportStats) {
	k.counter(tcpRefused, float64(s.Refused))
	for i := range s.Shards {
		sh := &s.Shards[i]
		reactor := strconv.Itoa(sh.Reactor)
		k.gauge(tcpConnections, float64(sh.Connections), reactor)
		k.gauge(tcpHalfOpen, float64(sh.HalfOpen), reactor)
		k.gauge(tcpInUse, float64(sh.InUse), reactor)
		k.gauge(tcpPool, float64(sh.PoolBytes), reactor)
		k.gauge(tcpWaiting, float64(sh.Waiting), reactor)
		k.counter(tcpBytes, float64(sh.BytesIn), reactor, "in")
		k.counter(tcpBytes, float64(sh.BytesOut), reactor, "out")
		for _, e := range []event{
			{"accepted", sh.Accepted}, {"displaced", sh.Displaced}, {"unread", sh.Unread}, {"withheld", sh.Withheld},
			{"command", sh.Commands}, {"response", sh.Responses}, {"pdu_in", sh.PDUsIn}, {"in_capsule_write", sh.InCapsule},
			{"r2t", sh.R2Ts}, {"h2c_data", sh.H2CData}, {"bad_sgl", sh.BadSGLs},
			{"epoll_wait", sh.EpollWaits}, {"read", sh.Reads}, {"empty_read", sh.EmptyReads}, {"send", sh.Sends},
			{"partial_send", sh.PartialSends}, {"blocked", sh.Blocked}, {"arm", sh.Arms},
			{"fatal_error", sh.FatalErrors}, {"term_req_sent", sh.TermReqsSent}, {"term_req_received", sh.TermReqsReceived},
			{"header_digest_error", sh.HeaderDigestErrors}, {"data_digest_error", sh.DataDigestErrors},
		} {
			k.counter(tcpEvents, float64(e.n), reactor, e.name)
		}
	}
}
