package target

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rocet/nvme"
)

// HostIdentity is who a host says it is.
type HostIdentity struct {
	NQN string
	ID  nvme.UUID
}

// Controller is a dynamic controller: one association of a host, from its admin
// Connect until the last of its queues is released.
//
//	     Connect              CC.EN 0→1            CC.SHN
//	──▶ disabled ───────────▶ ready ─────────────▶ shutting down ─▶ shut down
//	        ▲                   │ CC.EN 1→0              │ CC.EN 1→0   │
//	        └─── I/O queues ◀───┴────────────────────────┴─────────────┘
//	             drained
//	any state ──▶ ended: admin queue lost, keep alive expired, idle for too long,
//	              or the administrator's doing; its queues are torn down ──▶ freed
type Controller struct {
	target    *Target
	sub       *Subsystem
	id        uint16
	host      HostIdentity
	hostAddr  string
	localAddr string
	listener  *Listener
	admin     *Queue
	created   time.Time
	log       *slog.Logger

	// Under Target.mu.
	cc       nvme.CC
	csts     nvme.CSTS
	queues   map[uint16]*Queue // I/O queues, until released
	granted  uint16            // I/O queues that the host may have
	draining bool              // CC.EN went to 0 and the I/O queues are still there
	ended    bool
	lastQ    bool // the admin queue was released

	feat features

	discLog []byte        // of the admin queue's executor: the discovery log that the host is reading
	errors  atomic.Uint64 // Error Count of the latest entry

	mu      sync.Mutex // guards what follows; taken after Target.mu
	kaSeen  map[*Queue]uint64
	errLog  []errorEntry // of queues that are gone, the newest first
	changes changedNamespaces
}

// discovery tells whether this is a discovery controller.
func (c *Controller) discovery() bool { return c.sub.isDiscovery }

// end terminates the association: no Connect finds it any more, and every queue
// of it is torn down. Target.mu is held.
func (c *Controller) end(reason error) {
	if c.ended {
		return
	}
	c.ended = true
	c.log.Info("association ends", "reason", reason)
	c.admin.postEnd(reason)
	c.endIO(reason)
	c.target.broadcast()
}

// endIO tears the I/O queues down. Target.mu is held.
func (c *Controller) endIO(reason error) {
	for _, q := range c.queues {
		q.postEnd(reason)
	}
}

// drained goes on with what waits for the I/O queues to be gone. Target.mu is held.
func (c *Controller) drained() {
	if len(c.queues) != 0 {
		return
	}
	if c.draining {
		c.draining = false
		c.csts = c.csts.WithRDY(false).WithSHST(nvme.ShutdownStatusNormal)
	}
	if c.csts.SHST() == nvme.ShutdownStatusProcessing {
		c.csts = c.csts.WithSHST(nvme.ShutdownStatusComplete)
	}
	if c.lastQ {
		c.free()
	}
}

// free is the end of the last queue. Target.mu is held.
func (c *Controller) free() {
	delete(c.sub.controllers, c.id)
	delete(c.target.controllers, c)
	c.log.Info("association freed", "lasted", time.Since(c.created).Round(time.Millisecond))
}

// queueClosed hears that a connection is down.
func (t *Target) queueClosed(q *Queue, reason error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closeQueue(q, reason)
}

// closeQueue does it once, with Target.mu held.
func (t *Target) closeQueue(q *Queue, reason error) {
	if q.gone {
		return
	}
	q.gone = true
	if reason == nil {
		reason = errConnectionLost
	}
	switch {
	case q.ctrl == nil:
		t.log.Info("connection closed before Connect", "host", q.opts.HostAddr, "listener", q.listener.String(), "reason", reason)
	case q.ctrl.admin == q:
		q.ctrl.end(ErrAdminQueueLost)
	default:
		q.ctrl.log.Info("queue closed", "qid", q.qid, "reason", reason)
	}
	t.broadcast()
}

// queueReleased hears that nothing of a queue is left, but for the errors in its log.
func (t *Target) queueReleased(q *Queue, reason error, errs []errorEntry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closeQueue(q, reason)
	t.conns.Lock()
	delete(t.conns.all, q)
	t.conns.Unlock()
	if c := q.ctrl; c != nil {
		c.keepErrors(errs)
		if c.admin == q {
			c.lastQ = true
		} else if c.queues[q.qid] == q {
			delete(c.queues, q.qid)
		}
		c.drained()
	}
	t.broadcast()
}

// ControllerInfo describes an association.
type ControllerInfo struct {
	Subsystem string
	ID        uint16
	Discovery bool
	Host      HostIdentity
	HostAddr  string
	Listener  *Listener
	Created   time.Time
	Enabled   bool
	IOQueues  int
	KATO      time.Duration
}

// Controllers lists the associations, by subsystem and identifier.
func (t *Target) Controllers() []ControllerInfo {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []ControllerInfo
	for c := range t.controllers {
		list = append(list, ControllerInfo{
			Subsystem: c.sub.nqn,
			ID:        c.id,
			Discovery: c.discovery(),
			Host:      c.host,
			HostAddr:  c.hostAddr,
			Listener:  c.listener,
			Created:   c.created,
			Enabled:   c.cc.EN(),
			IOQueues:  len(c.queues),
			KATO:      c.feat.keepAlive(),
		})
	}
	slices.SortFunc(list, func(a, b ControllerInfo) int {
		return cmp.Or(cmp.Compare(a.Subsystem, b.Subsystem), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// Disconnect ends the associations of a host with a subsystem and returns how
// many there were. The host may connect again.
func (s *Subsystem) Disconnect(hostNQN string) int {
	s.target.mu.Lock()
	defer s.target.mu.Unlock()
	n := 0
	for _, c := range s.controllers {
		if c.host.NQN == hostNQN && !c.ended {
			c.end(ErrHostDisconnected)
			n++
		}
	}
	return n
}
