package rdma

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"rocet/cgo/verbs"
	"rocet/nvme"
)

// Signals that a connection's goroutine waits for: bits, set once.
const (
	sigEstablished  = 1 << iota // rdma_cm: both ends are ready
	sigDisconnected             // rdma_cm: the peer left, or answers our leaving
	sigTimewait                 // rdma_cm: the queue pair may not even wait any more
	sigFailed                   // rdma_cm: the connection did not come about
	sigAddrChange               // rdma_cm: the address moved to another device
	sigGone                     // the device is gone: nothing is flushed
	sigFatal                    // asynchronous: the queue pair failed
	sigCommEst                  // asynchronous: the peer sends before ESTABLISHED came
	sigLastWQE                  // asynchronous: no more shared receives are taken
	sigActive                   // reactor: the first command came
	sigShut                     // reactor: the queue is draining
	sigDrained                  // reactor: the queue is drained
	sigStop                     // the transport ends
)

const sigEnd = sigDisconnected | sigTimewait | sigFailed | sigAddrChange | sigGone | sigFatal | sigShut | sigStop

// conn is one connection, from the connect request to the destruction of its
// cm_id. Its goroutine makes and unmakes everything that takes time, in order, and
// is the only caller of its id:
//
//	refused ◀─ set-up ─▶ accepted ─▶ established ─▶ end ─▶ draining ─▶ QP destroyed ─▶ detached ─▶ id destroyed
//
// Events only set bits that it looks at.
type conn struct {
	t        *Transport
	listener *Listener
	id       verbs.ID
	request  connectRequest
	prop     proposal
	host     string // address of the other end
	log      *slog.Logger

	dev   *device
	shard *shard
	lane  *lane
	recvs *recvs // own, nil with shared receives
	q     *queue
	spec  queueSpec
	qpn   uint32

	laneIndex, laneGen uint16
	attached           bool
	accepted           bool
	halfOpen           bool // counted as such, under t.mu

	signals atomic.Uint32
	kick    chan struct{}
	reason  atomic.Pointer[error] // why the reactor shut the queue
	began   time.Time
}

// connectRequest is what the event said.
type connectRequest struct {
	private   []byte
	readDepth uint8
}

// signal sets bits and wakes the goroutine. It never blocks.
func (c *conn) signal(bits uint32) {
	c.signals.Or(bits)
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// shut is the queue saying that it drains, on the reactor.
func (c *conn) shut(reason error) {
	c.reason.CompareAndSwap(nil, &reason)
	c.signal(sigShut)
}

// event takes an rdma_cm event, on the event loop.
func (c *conn) event(ev *verbs.Event) {
	switch ev.Type {
	case verbs.EventEstablished:
		c.signal(sigEstablished)
	case verbs.EventDisconnected:
		c.signal(sigDisconnected)
	case verbs.EventTimewaitExit:
		c.signal(sigTimewait)
	case verbs.EventRejected, verbs.EventUnreachable, verbs.EventConnectError:
		c.signal(sigFailed)
	case verbs.EventAddrChange:
		c.signal(sigAddrChange)
	case verbs.EventDeviceRemoval:
		c.signal(sigGone)
		c.t.deviceGone(c.id.Device(), "it was removed")
	}
}

// run is the connection's whole life.
func (c *conn) run() {
	defer c.t.connEnded(c)
	if err := c.setUp(); err != nil {
		c.refuse(err)
	} else {
		c.serve()
	}
	c.tearDown()
}

// refuse rejects the connection with the status that says why.
func (c *conn) refuse(err error) {
	st := nvme.RDMACMNoResources
	var r *refusal
	if errors.As(err, &r) {
		st = r.status
	}
	c.t.rejected(st)
	c.log.Warn("connection refused", "status", st.String(), "error", err)
	if err := c.id.Reject(rejectData(st)); err != nil {
		c.log.Debug("the reject could not be sent", "error", err)
	}
}

// serve waits for the end of an accepted connection.
func (c *conn) serve() {
	timer := time.NewTimer(c.t.cfg.ConnectTimeout)
	defer timer.Stop()
	established, told := false, false
	for {
		s := c.signals.Load()
		if s&sigEnd != 0 {
			return
		}
		if s&sigCommEst != 0 && !established && !told {
			told = true
			if err := c.id.NotifyCommEst(); err != nil {
				c.log.Debug("communication established, but the connection manager doesn't take it", "error", err)
			}
		}
		if s&sigEstablished != 0 && !established {
			established = true
			timer.Stop()
			c.shard.r.Post(c.q.establish)
			c.log.Info("connection established", "qid", c.prop.qid, "depth", c.prop.depth, "read_depth", c.spec.readDepth,
				"device", c.dev.name, "reactor", c.shard.r.ID(), "shared_receives", c.q.shared, "setup", time.Since(c.began).Round(time.Microsecond))
		}
		if s&sigActive != 0 {
			c.t.active(c)
		}
		select {
		case <-c.kick:
		case <-timer.C:
			err := fmt.Errorf("not established within %v", c.t.cfg.ConnectTimeout)
			c.reason.CompareAndSwap(nil, &err)
			return
		}
	}
}

// why is the reason of the end, for people.
func (c *conn) why() error {
	s := c.signals.Load()
	switch {
	case s&sigStop != 0:
		return errors.New("the transport is closed")
	case s&sigGone != 0:
		return errors.New("the device is gone")
	}
	if r := c.reason.Load(); r != nil && !errors.Is(*r, errFlushed) {
		return *r
	}
	switch {
	case s&sigDisconnected != 0:
		return errPeerDisconnected
	case s&sigAddrChange != 0:
		return errors.New("the address moved")
	case s&sigFailed != 0:
		return errors.New("the connection did not come about")
	case s&sigTimewait != 0:
		return errors.New("the connection's time-wait is over")
	}
	return errFlushed
}

// tearDown takes everything back, whatever set-up got to.
func (c *conn) tearDown() {
	if c.attached {
		c.drain()
	}
	if c.dev != nil {
		if c.qpn != 0 {
			c.dev.unlist(c.qpn)
		}
		c.t.heavy(func() {
			if err := c.id.DestroyQP(); err != nil {
				c.log.Error("destroy the queue pair", "error", err)
			}
		})
	}
	if c.attached {
		c.shard.r.Call(c.q.detach)
		c.log.Info("connection closed", "qid", c.prop.qid, "reason", c.why(), "after", time.Since(c.began).Round(time.Millisecond))
	}
	if c.q != nil {
		c.q.mem.release()
	}
	if c.recvs != nil {
		c.recvs.release(&c.t.capsules)
	}
	if c.lane != nil {
		c.dev.leave(c)
	}
	destroyID(c.id, c.log)
	if c.dev != nil {
		c.dev.conns.Done()
	}
}

// drain ends the queue on its reactor and waits until everything is back that will
// come back: see queue.checkDrained.
func (c *conn) drain() {
	reason := c.why()
	onReactor := c.shard.r.Call
	gone := !c.accepted || c.signals.Load()&sigGone != 0
	if !onReactor(func() {
		if gone {
			c.q.broken(reason)
		}
		c.q.shut(reason)
	}) {
		return // the reactor has stopped and touches nothing any more
	}
	if c.accepted {
		if err := c.id.Disconnect(); err != nil {
			c.log.Debug("disconnect", "error", err)
		}
		// Also when the connection manager has nobody to tell.
		if err := c.id.QP().ToError(); err != nil {
			c.log.Debug("queue pair to error", "error", err)
		}
	}
	deadline := time.NewTimer(c.t.cfg.DrainTimeout)
	defer deadline.Stop()
	last, late := false, false
	for {
		s := c.signals.Load()
		if s&sigDrained != 0 {
			break
		}
		if s&sigLastWQE != 0 && !last {
			last = true
			onReactor(c.q.lastReached)
		}
		if s&sigGone != 0 && !gone {
			gone = true
			onReactor(func() { c.q.broken(reason) })
		}
		select {
		case <-c.kick:
		case <-deadline.C:
			var left int
			onReactor(func() {
				left = c.q.executing
				if !late && !c.q.drained {
					c.lane.stats.LateDrains++
				}
				c.q.broken(reason)
			})
			late = true
			if left != 0 {
				c.log.Warn("the connection is down and waits for its commands with the backend", "qid", c.prop.qid, "commands", left)
				deadline.Reset(30 * time.Second)
			}
		}
	}
	// What a turn put into its batch before the queue shut has been posted once
	// another turn began.
	onReactor(func() {})
}

// destroyID destroys a cm_id once its events are acknowledged, which the event
// loop does right after handing them over.
func destroyID(id verbs.ID, log *slog.Logger) {
	for wait := 50 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		err := id.Destroy()
		if err == nil {
			return
		}
		if !errors.Is(err, errBusy) {
			log.Error("destroy a cm_id", "error", err)
			return
		}
		time.Sleep(wait)
	}
}

func hostOf(a netip.AddrPort) string { return a.Addr().Unmap().String() }
