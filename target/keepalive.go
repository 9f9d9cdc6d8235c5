package target

import (
	"time"

	"rocet/nvme"
)

// keepAliveGranularity is KAS: keep alive timeouts are multiples of it.
const keepAliveGranularity = 100 * time.Millisecond

// keepAlive watches over an association, on its admin queue's reactor. While the
// controller is enabled the host must send something within its keep alive
// timeout; while it is disabled, it must enable it within IdleAssociation.
//
// Commands on I/O queues count as well (traffic based keep alive, Base 2.1 section
// 3.9.4), but nobody tells this reactor about each of them: when the time is over,
// a control goroutine asks the queues whether any came since it last asked.
type keepAlive struct {
	period time.Duration // 0: no limit
	last   int64         // when the host was last heard, by the reactor's clock
}

// start begins a period, with another length perhaps.
func (k *keepAlive) start(q *Queue, period time.Duration) {
	if q.state != queueLive {
		return
	}
	k.period = period
	k.last = q.group.Reactor.Now()
	if period == 0 {
		q.disarm()
		return
	}
	q.arm(period)
}

// keepAliveCommand is Execute of Keep Alive: right here, whatever else is going on.
// Prepare has noted that the host is there.
func (q *Queue) keepAliveCommand(r *Request) { q.respond(r, nvme.StatusSuccess, 0) }

// keepAliveTimer is a live admin queue's timer.
func (q *Queue) keepAliveTimer() {
	k := &q.ka
	if k.period == 0 {
		return
	}
	if left := k.period - time.Duration(q.group.Reactor.Now()-k.last); left > 0 {
		q.arm(left)
		return
	}
	if !q.ready {
		go q.target.expire(q.assoc, ErrAssociationIdle)
		return
	}
	go q.askQueues()
}

// askQueues looks for commands on the I/O queues, off the reactors.
func (q *Queue) askQueues() {
	traffic := q.target.ioTraffic(q.assoc)
	q.group.Reactor.Post(func() {
		k := &q.ka
		switch {
		case q.state != queueLive || k.period == 0:
		case traffic:
			k.start(q, k.period)
		case time.Duration(q.group.Reactor.Now()-k.last) < k.period:
			q.arm(k.period)
		default:
			go q.target.expire(q.assoc, ErrKeepAliveExpired)
		}
	})
}

// ioTraffic tells whether commands came on the controller's I/O queues since it
// was last asked.
func (t *Target) ioTraffic(c *Controller) bool {
	t.mu.Lock()
	queues := make([]*Queue, 0, len(c.queues))
	for _, q := range c.queues {
		queues = append(queues, q)
	}
	t.mu.Unlock()
	seen := make(map[*Queue]uint64, len(queues))
	for _, q := range queues {
		q.group.call(func() { seen[q] = q.seen })
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	traffic := false
	for q, n := range seen {
		traffic = traffic || n != c.kaSeen[q]
	}
	c.kaSeen = seen
	return traffic
}

// expire ends an association whose time is over.
func (t *Target) expire(c *Controller, reason error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !c.ended {
		c.csts = c.csts.WithCFS(true)
		c.end(reason)
	}
}

// kaPeriod is the limit that applies now. Target.mu is held.
func (c *Controller) kaPeriod() time.Duration {
	if !c.ready() {
		return c.target.opts.IdleAssociation
	}
	d := c.feat.keepAlive()
	if d == 0 && c.discovery() {
		return c.target.opts.DiscoveryKATO
	}
	return d
}
