package fake

import (
	"fmt"
	"runtime"
	"syscall"

	"rocet/cgo/verbs"
)

// cqe is a completion with what becomes free when it is polled.
type cqe struct {
	wc    verbs.WC
	q     *QP
	upto  uint64 // sends: the queue is free up to here
	reads int    // READs that are over
	recv  bool
	quiet bool // unsignalled: kept back like others, but nobody hears of it
}

// CQ is a completion queue.
type CQ struct {
	f      *Fabric
	d      *Device
	ring   []cqe
	head   int
	n      int
	bell   bell
	events bool
	armed  bool
	broken bool
	users  int
}

// CreateCQ implements verbs.Device.
func (d *Device) CreateCQ(a verbs.CQAttr) (verbs.CQ, error) {
	f := d.f
	f.mu.Lock()
	defer f.mu.Unlock()
	object := fmt.Sprintf("%s, %d entries", d.cfg.Name, a.Entries)
	if err := f.fails("ibv_create_cq", object); err != nil {
		return nil, err
	}
	if a.Entries < 1 || a.Entries > d.attr.MaxCQE || a.Vector < 0 || a.Vector >= d.attr.CompVectors {
		return nil, &verbs.Error{Call: "ibv_create_cq", Object: object, Errno: syscall.EINVAL}
	}
	c := &CQ{f: f, d: d, ring: make([]cqe, a.Entries), events: a.Events}
	c.bell.fd = -1
	if a.Events {
		c.bell = newBell()
	}
	d.cqs++
	return c, nil
}

// Device implements verbs.CQ.
func (c *CQ) Device() verbs.Device { return c.d }

// Entries implements verbs.CQ.
func (c *CQ) Entries() int { return len(c.ring) }

// FD implements verbs.CQ.
func (c *CQ) FD() int { return c.bell.fd }

// Poll implements verbs.CQ.
func (c *CQ) Poll(wc []verbs.WC, spin int) int {
	for {
		c.f.mu.Lock()
		n := c.take(wc)
		c.f.mu.Unlock()
		if n != 0 || spin <= 0 {
			return n
		}
		spin -= 8
		runtime.Gosched()
	}
}

func (c *CQ) take(wc []verbs.WC) int {
	if c.broken {
		return -1
	}
	n := min(c.n, len(wc))
	for i := range n {
		e := &c.ring[c.head]
		wc[i] = e.wc
		if e.recv {
			if e.q.srq == nil {
				e.q.rq.used--
			}
		} else if e.q.sq.head < e.upto {
			e.q.sq.head = e.upto
		}
		e.q = nil
		if c.head++; c.head == len(c.ring) {
			c.head = 0
		}
	}
	c.n -= n
	return n
}

// push queues a completion.
func (c *CQ) push(e *cqe) {
	if c.broken {
		return
	}
	if c.n == len(c.ring) {
		c.broken = true
		c.f.async(c.d, verbs.AsyncEvent{Type: verbs.AsyncCQErr, CQ: c})
		return
	}
	c.ring[(c.head+c.n)%len(c.ring)] = *e
	c.n++
	if !c.armed {
		return
	}
	c.armed = false
	if c.f.filter == nil {
		c.bell.ring()
		return
	}
	c.f.tell(Happening{Completion: c}, c.bell.ring)
}

// Arm implements verbs.CQ.
func (c *CQ) Arm() error {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if e := c.f.errno("ibv_req_notify_cq"); e != 0 {
		return &verbs.Error{Call: "ibv_req_notify_cq", Errno: e}
	}
	if !c.events {
		return &verbs.Error{Call: "ibv_req_notify_cq", Object: "a queue without a channel", Errno: syscall.EINVAL}
	}
	c.armed = true
	return nil
}

// Ack implements verbs.CQ.
func (c *CQ) Ack() error {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.bell.still()
	return nil
}

// Destroy implements verbs.CQ.
func (c *CQ) Destroy() error {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if c.users != 0 {
		return &verbs.Error{Call: "ibv_destroy_cq", Object: fmt.Sprintf("%d queue pairs use it", c.users), Errno: syscall.EBUSY}
	}
	c.bell.close()
	c.d.cqs--
	return nil
}
