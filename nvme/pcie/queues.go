package pcie

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"rocet/nvme"
)

// OpenQueue makes an I/O queue pair whose methods are called on exec's goroutine. With interrupts it gets a vector, if
// the drive has enough of them: the queue's FD. Without, nothing interrupts a processor that polls anyway.
func (d *Drive) OpenQueue(exec Executor, interrupts bool) (*Queue, error) {
	d.mu.Lock()
	defer d.unlock()
	if d.stopping.Load() {
		return nil, fmt.Errorf("%s: the drive is being closed", d.Address())
	}
	id := 0
	for i, q := range d.queues {
		if q == nil {
			id = i + 1
			break
		}
	}
	if id == 0 || d.State() == Live && id > d.allowed {
		return nil, fmt.Errorf("%s: the drive gives %d I/O queues and all are in use: run Rocet with fewer reactors", d.Address(), min(d.allowed, len(d.queues)))
	}
	fd := -1
	if interrupts && id < len(d.eventfds) {
		fd = d.eventfds[id]
	}
	q := newQueue(d, uint16(id), exec, fd)
	if d.State() == Live {
		l, err := d.createQueue(q)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.Address(), err)
		}
		q.attach(l)
	} else if d.holdUntil.IsZero() {
		q.expire()
	}
	d.queues[id-1] = q
	return q, nil
}

// createQueue makes the queue pair in the controller: Base 2.1 sections 5.2.1 and 5.2.2. The queue is empty and frozen.
func (d *Drive) createQueue(q *Queue) (link, error) {
	q.rings.cq.clear()
	l := link{depth: d.depth, sqBell: d.doorbellAt(q.id, false), cqBell: d.doorbellAt(q.id, true),
		listIOVA: q.rings.lists.iova, sgls: d.ctrl.SGLS}
	for _, b := range []*doorbell{&l.sqBell, &l.cqBell} {
		if b.shadow != nil {
			atomic.StoreUint32(b.shadow, 0)
			atomic.StoreUint32(b.event, 0)
		}
	}
	interrupts := q.fd >= 0 && int(q.id) < d.vectors
	vector := uint16(0)
	if interrupts {
		vector = q.id
		if int(q.id) < len(d.masks) {
			l.mask = d.masks[q.id]
		}
	}
	var cmd nvme.Command
	cmd.SetOpcode(nvme.AdminCreateCQ)
	cmd.SetPRP1(q.rings.cq.iova)
	cmd.SetCreateCQ(q.id, uint32(d.depth), interrupts, vector)
	if _, err := d.admin.exec("Create I/O Completion Queue", &cmd, d.cfg.AdminTimeout); err != nil {
		return link{}, err
	}
	cmd = nvme.Command{}
	cmd.SetOpcode(nvme.AdminCreateSQ)
	cmd.SetPRP1(q.rings.sq.iova)
	cmd.SetCreateSQ(q.id, uint32(d.depth), q.id)
	if _, err := d.admin.exec("Create I/O Submission Queue", &cmd, d.cfg.AdminTimeout); err != nil {
		return link{}, errors.Join(err, d.deleteCQ(q.id))
	}
	return l, nil
}

func (d *Drive) deleteCQ(qid uint16) error {
	var cmd nvme.Command
	cmd.SetOpcode(nvme.AdminDeleteCQ)
	cmd.SetDeleteQueue(qid)
	_, err := d.admin.exec("Delete I/O Completion Queue", &cmd, d.cfg.AdminTimeout)
	return err
}

// deleteQueue takes an idle queue away from the controller and ends its Close.
func (d *Drive) deleteQueue(q *Queue) {
	d.mu.Lock()
	if d.State() == Live {
		var cmd nvme.Command
		cmd.SetOpcode(nvme.AdminDeleteSQ)
		cmd.SetDeleteQueue(q.id)
		_, err := d.admin.exec("Delete I/O Submission Queue", &cmd, d.cfg.AdminTimeout)
		if err == nil {
			err = d.deleteCQ(q.id)
		}
		if err != nil {
			// A reset is the other way to be rid of it, and of its DMA into the rings.
			d.log.Warn("a queue cannot be deleted", "queue", q.id, "error", err)
			if d.admin.broken == nil {
				d.admin.broken = err
			}
		}
	}
	d.queues[q.id-1] = nil
	d.unlock()
	q.exec.Post(q.closing)
}

// onQueues runs fn for every open queue on its goroutine, and waits for all of them.
func (d *Drive) onQueues(fn func(*Queue)) {
	var waiting []chan struct{}
	for _, q := range d.queues {
		if q == nil {
			continue
		}
		c := make(chan struct{})
		if q.exec.Post(func() {
			fn(q)
			close(c)
		}) {
			waiting = append(waiting, c)
		}
	}
	for _, c := range waiting {
		for done := false; !done; {
			select {
			case <-c:
				done = true
			case <-time.After(5 * time.Second):
				d.log.Error("a reactor has not run for 5 s, the drive's recovery waits for it")
			}
		}
	}
}
