package drive

import (
	"slices"
	"sync"

	"rocet/nvme/pcie"
	"rocet/target"
)

// drive is an open drive, with the queues and namespaces on it.
type drive struct {
	manager *Manager
	pcie    *pcie.Drive
	serial  string

	mu       sync.Mutex
	backends []*Backend
	queues   []*queue
}

func (d *drive) list() []*Backend {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.backends)
}

func (d *drive) add(b *Backend) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.backends = append(d.backends, b)
}

func (d *drive) remove(b *Backend) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.backends = slices.DeleteFunc(d.backends, func(have *Backend) bool { return have == b })
}

// event passes on what happened to the drive. It runs on the drive's own goroutine.
func (d *drive) event(e pcie.Event) {
	for _, b := range d.list() {
		switch e.Kind {
		case pcie.EventGone:
			b.setAway(true)
		case pcie.EventBack:
			b.refresh()
			b.setAway(!b.ns.Usable())
		case pcie.EventHealth:
			b.tell(target.EventHealth)
		case pcie.EventNamespaceChanged:
			if e.NSID != b.ns.ID() {
				continue
			}
			if b.ns.Usable() {
				b.refresh()
				b.tell(target.EventResized)
			}
			b.setAway(!b.ns.Usable())
		}
	}
}

// queueOn returns the drive's queue on a reactor for one more user, and opens it for the first.
func (d *drive) queueOn(g *target.PollGroup) (*queue, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, q := range d.queues {
		if q.reactor == g.Reactor && q.users > 0 {
			q.users++
			return q, nil
		}
	}
	q := &queue{reactor: g.Reactor, users: 1, pollFor: int64(d.manager.opts.PollFor)}
	q.awake.q = q
	q.timer.Fire = q.tick
	p, err := d.pcie.OpenQueue(g.Reactor, true)
	if err != nil {
		return nil, err
	}
	q.pcie = p
	q.ops = make([]op, d.manager.depth())
	for i := range q.ops {
		q.ops[i].queue = q
		q.ops[i].next, q.freeOps = q.freeOps, &q.ops[i]
	}
	if !g.Reactor.Call(q.start) {
		return nil, errNoQueue
	}
	d.queues = append(d.queues, q)
	return q, nil
}

// release ends a user's use of a queue, off the reactors. With the last one the queue is closed; done runs on the
// reactor at the end.
func (d *drive) release(q *queue, done func()) {
	d.mu.Lock()
	q.users--
	last := q.users == 0
	d.mu.Unlock()
	if last {
		closed := make(chan struct{})
		if q.reactor.Post(func() {
			q.pcie.Close(func() {
				q.stop()
				close(closed)
			})
		}) {
			<-closed
		}
		d.mu.Lock()
		d.queues = slices.DeleteFunc(d.queues, func(have *queue) bool { return have == q })
		d.mu.Unlock()
	}
	q.reactor.Post(done)
}

func (d *drive) queueStatus() []QueueStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []QueueStatus
	for _, q := range d.queues {
		s := QueueStatus{Reactor: q.reactor.ID()}
		if q.reactor.Call(func() { s.Stats = q.pcie.Stats() }) {
			out = append(out, s)
		}
	}
	return out
}
