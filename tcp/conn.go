package tcp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"rocet/internal/invariants"
	"rocet/nvme"
	"rocet/reactor"
	"rocet/target"
)

// connState is the life of a connection; see doc.go.
type connState uint8

const (
	connInitializing connState = iota // waits for ICReq
	connReady                         // the target has a queue for it
	connDraining                      // what is under way comes back, nothing new starts
	connLingering                     // everything is back; the host may still read a C2HTermReq
	connClosed
)

// Reasons of an end that no host or target gave.
var (
	errPeerClosed = errors.New("the host closed the connection")
	errDisplaced  = errors.New("too many connections wait for a Connect command")
	errNoICReq    = errors.New("no ICReq came in time")
	errNoReader   = errors.New("the host takes nothing of what is there for it")
	errNoData     = errors.New("the host sends nothing of the data that it was asked for")
	errClosed     = errors.New("the transport is closed")
)

// conn is one connection with the commands on it. Its reactor owns it.
type conn struct {
	owner invariants.Owner
	shard *shard
	tq    *target.Queue
	fd    int32
	index uint32
	state connState

	admin   bool // or not connected yet
	live    bool // Connect succeeded
	noFlow  bool // SQ flow control is disabled: C2HData may stand for the response
	hdgst   bool
	ddgst   bool
	blocked bool  // the socket takes nothing more
	hup     bool  // the host's end or an error is there to be read
	more    bool  // the last read was filled
	dirty   bool  // in shard.dirty
	inReady bool  // in shard.ready
	inTurn  bool  // in shard.adminTurns or ioTurns
	half    bool  // in shard.halfOpen
	linger  bool  // a C2HTermReq was sent
	ending  bool  // in shut
	misses  uint8 // reads in a row that found nothing
	hpda    uint8
	maxR2T  uint8
	capsule uint32 // in-capsule data that may come

	slots    []*slot
	freeList []uint16
	first    slot // all there is before Connect
	connect  struct{ qid, depth uint16 }

	in  input
	out slotList // what is to be sent, in order
	// fresh is the first of out that was not accounted.
	fresh *slot
	skip  uint32 // bytes of out.head that were sent
	moved bool   // something was sent since the timer was set
	came  bool   // data that was asked for came since then

	bufWait  slotList
	held     uint64 // bytes of pool memory
	nextTurn *conn
	asked    uint64 // bytes that R2Ts asked for and that did not come
	awaited  int    // writes whose R2Ts were sent and whose data is not all here

	executing int
	inUse     int
	timer     reactor.Timer
	spoke     int64 // when something was read last
	reason    error

	prevHalf, nextHalf *conn

	listener   *Listener
	host, here string
}

func newConn(s *shard, l *Listener, fd int, host, here string) *conn {
	c := &conn{
		shard: s, fd: int32(fd), listener: l, host: host, here: here,
		admin: true, capsule: nvme.TCPAdminInCapsule,
	}
	c.timer.Fire = c.onTimer
	c.slots = []*slot{&c.first}
	c.freeList = []uint16{0}
	return c
}

// discard ends a connection that no reactor took.
func (c *conn) discard() {
	_ = unix.Close(int(c.fd))
	c.state = connClosed
	c.shard.t.gone(c)
}

// onTimer is every bounded wait of a connection: one at a time, by state.
func (c *conn) onTimer() {
	switch c.state {
	case connInitializing:
		c.shut(errNoICReq)
	case connReady:
		switch {
		case c.blocked && !c.moved:
			c.shard.stats.Unread++
			c.shut(errNoReader)
		case c.awaited != 0 && !c.came:
			c.shard.stats.Withheld++
			c.shut(errNoData)
		case c.blocked || c.awaited != 0:
			c.moved, c.came = false, false
			c.shard.r.Schedule(&c.timer, c.shard.t.cfg.SendTimeout)
		}
	case connDraining:
		c.linger = false // the host had its time
	case connLingering:
		c.close()
	}
}

// watch bounds how long the host leaves undone what is its turn to do. progress is
// where it shows that it does it. If the timer runs already, the next time counts.
func (c *conn) watch(progress *bool) {
	*progress = c.timer.Scheduled()
	if !*progress {
		c.shard.r.Schedule(&c.timer, c.shard.t.cfg.SendTimeout)
	}
}

// initialize takes ICReq: TCP Transport 1.1 section 3.4.1.
func (c *conn) initialize(p []byte) {
	req := (*nvme.TCPICReq)(p)
	cfg := &c.shard.t.cfg
	dgst := req.DGST()
	switch {
	case req.PFV() != 0:
		c.fatal(nvme.TCPFESUnsupportedParameter, nvme.TCPOffsetPFV, p, "ICReq has PDU format version %d", req.PFV())
		return
	case req.HPDA() > maxPDA:
		c.fatal(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetPDA, p, "ICReq has HPDA %d", req.HPDA())
		return
	case cfg.HeaderDigest == DigestRequire && dgst&nvme.TCPDigestHeader == 0 || cfg.DataDigest == DigestRequire && dgst&nvme.TCPDigestData == 0:
		c.fatal(nvme.TCPFESUnsupportedParameter, nvme.TCPOffsetDGST, p, "ICReq asks for digests %#x, the configuration requires more", dgst)
		return
	}
	c.hpda = req.HPDA()
	c.maxR2T = uint8(min(uint64(req.MAXR2T())+1, uint64(cfg.MaxR2T)))
	hdgst := dgst&nvme.TCPDigestHeader != 0 && cfg.HeaderDigest != DigestRefuse
	ddgst := dgst&nvme.TCPDigestData != 0 && cfg.DataDigest != DigestRefuse
	_, err := c.shard.t.target.NewQueue(target.QueueOptions{
		Group: c.shard.group, Conn: c, Listener: c.listener.known(), HostAddr: c.host, LocalAddr: c.here,
		QID: target.QIDUnknown, Depth: uint16(min(cfg.MaxQueueDepth, int(c.shard.t.target.MaxQueueDepth()))),
		Attach: func(q *target.Queue) { c.tq = q },
	})
	if err != nil {
		c.shut(err)
		return
	}
	var used uint8
	if hdgst {
		used |= nvme.TCPDigestHeader
	}
	if ddgst {
		used |= nvme.TCPDigestData
	}
	var resp nvme.TCPICResp
	resp.Set(uint8(cfg.CPDA), used, uint32(cfg.MaxH2CData))
	if !c.sendNow(resp[:]) {
		c.shut(errNoReader)
		return
	}
	c.shard.r.Cancel(&c.timer)
	c.state = connReady
	c.hdgst, c.ddgst = hdgst, ddgst
	c.in.sizes(c)
}

// connected is a successful response to Connect: the queue has its real size.
func (c *conn) connected(s *slot) {
	c.live = true
	c.admin = c.connect.qid == 0
	c.noFlow = s.req.Cqe.SQHD() == nvme.SQHDInvalid
	if !c.admin {
		c.capsule = uint32(c.shard.t.cfg.InCapsuleData)
	}
	c.in.sizes(c)
	n := int(c.connect.depth)
	more := make([]slot, n-1)
	slots := make([]*slot, n)
	slots[0] = &c.first
	c.freeList = append(make([]uint16, 0, n), c.freeList...)
	for i := range more {
		at := &more[i]
		at.index = uint16(i + 1)
		at.req.Tag = uint32(i + 1)
		slots[i+1] = at
		c.freeList = append(c.freeList, at.index)
	}
	c.slots = slots
	c.shard.halfOpen.drop(c)
	c.shard.t.placed(c.shard, c.weight()-1)
}

// weight is what a connection counts for in placing others: I/O queues carry the
// load, in proportion to what they may have under way.
func (c *conn) weight() int64 {
	if !c.live || c.admin {
		return 1
	}
	return 1 + int64(c.connect.depth)
}

// Close implements target.Conn: the target ends the queue.
func (c *conn) Close(reason error) { c.shut(reason) }

// fatal ends the connection with a C2HTermReq: TCP Transport 1.1 section 3.5. pdu
// begins with the header at fault.
func (c *conn) fatal(fes nvme.TCPFatalStatus, fei uint32, pdu []byte, format string, args ...any) {
	if c.state >= connDraining {
		return
	}
	c.shard.stats.FatalErrors++
	reason := fmt.Errorf("protocol error: %s (%v)", fmt.Sprintf(format, args...), fes)
	// In the middle of another PDU it would be taken for its data.
	if c.skip == 0 && !c.blocked {
		var term nvme.TCPTermReq
		n := min(len(pdu), nvme.TCPTermMaxData)
		if len(pdu) >= nvme.TCPHeaderSize {
			if hlen := (*nvme.TCPHeader)(pdu).Type().HLEN(); hlen != 0 {
				n = min(n, hlen)
			} else {
				n = min(n, nvme.TCPHeaderSize)
			}
		}
		term.Set(nvme.TCPTypeC2HTermReq, fes, fei, n)
		if c.sendNow(append(term[:], pdu[:n]...)) {
			c.shard.stats.TermReqsSent++
			_ = unix.Shutdown(int(c.fd), unix.SHUT_WR)
			c.linger = true
		}
	}
	c.shut(reason)
}

// terminated takes an H2CTermReq.
func (c *conn) terminated(p []byte) {
	t := (*nvme.TCPTermReq)(p)
	c.shard.stats.TermReqsReceived++
	what := "nothing"
	if len(p) > nvme.TCPTermReqSize {
		what = nvme.TCPPDUType(p[nvme.TCPTermReqSize]).String()
	}
	// Linux hosts have FEI two bytes further on.
	c.shut(fmt.Errorf("the host ended the connection with H2CTermReq: %v, information %#x, about %s", t.FES(), t.FEI(), what))
}

// shut begins the end of a connection, once: what waits ends now, what the target
// has when it comes back.
func (c *conn) shut(reason error) {
	c.owner.Check()
	if c.state >= connDraining {
		return
	}
	c.state = connDraining
	c.ending = true
	c.reason = reason
	s := c.shard
	s.forget(c)
	s.halfOpen.drop(c)
	s.r.Cancel(&c.timer)
	if c.linger {
		s.r.Schedule(&c.timer, s.t.cfg.LingerTimeout)
	}
	c.in.drop()
	c.fresh = nil
	for c.bufWait.head != nil {
		c.tq.Fail(&c.bufWait.pop().req, nvme.StatusAbortedSQDeletion)
	}
	for c.out.head != nil {
		if at := c.out.pop(); at.state == slotSending {
			c.finish(at)
		} else {
			c.tq.Fail(&at.req, nvme.StatusAbortedSQDeletion)
		}
	}
	for _, at := range c.slots {
		if at.state == slotReceiving {
			c.tq.Fail(&at.req, nvme.StatusAbortedSQDeletion)
		}
	}
	if c.tq != nil {
		c.tq.Close()
	}
	s.t.ended(c, reason)
	c.ending = false
	c.drained()
}

// drained goes on once every command is back.
func (c *conn) drained() {
	if c.state != connDraining || c.ending || c.inUse != 0 {
		return
	}
	invariants.Assert(c.held == 0 && c.executing == 0, "a drained connection holds memory or commands")
	if c.tq != nil {
		c.tq.Release()
	}
	if c.linger {
		c.state = connLingering
		c.shard.readLater(c)
		c.more = true
		return
	}
	c.close()
}

// close is the end.
func (c *conn) close() {
	c.shard.r.Cancel(&c.timer)
	c.state = connClosed
	c.shard.remove(c)
	_ = unix.Close(int(c.fd))
	c.owner.Release()
	c.shard.t.gone(c)
}
