package pcie

import (
	"fmt"
	"sync"
	"time"

	"rocet/memory"
	"rocet/nvme"
)

// turn runs what is posted under a lock: the goroutine of a control-plane read takes it for each of its own steps.
type turn struct{ mu sync.Mutex }

func (t *turn) Post(fn func()) bool {
	t.do(fn)
	return true
}

func (t *turn) do(fn func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fn()
}

// single notes the end of one request.
type single struct {
	ended  bool
	status nvme.Status
}

func (s *single) Complete(st nvme.Status) { s.ended, s.status = true, st }

// Read reads whole blocks into p through an I/O queue of its own: for looking at what is on a drive before it is served.
// One of the drive's queues must be free meanwhile.
func (d *Drive) Read(ns *Namespace, lba uint64, p []byte) error {
	size := int(ns.BlockSize())
	if len(p)%size != 0 {
		return fmt.Errorf("%s: a read of %d bytes is not one of whole blocks of %d", d.Address(), len(p), size)
	}
	d.reading.Lock() // there is one buffer
	defer d.reading.Unlock()
	var t turn
	q, err := d.OpenQueue(&t, false)
	if err != nil {
		return err
	}
	defer func() {
		closed := make(chan struct{})
		t.do(func() { q.Close(func() { close(closed) }) })
		for {
			select {
			case <-closed:
				return
			case <-time.After(time.Millisecond):
				t.do(func() { q.Poll() })
			}
		}
	}()
	buffer := d.layout.buffer.seg
	for len(p) > 0 {
		n := min(len(p), int(buffer.Len)/size*size)
		var end single
		r := Request{NS: ns, Op: nvme.OpRead, LBA: lba, Blocks: uint32(n / size), Data: []memory.Segment{buffer.Slice(0, uint32(n))}, Done: &end}
		if err := d.wait(&t, q, &r, &end); err != nil {
			return err
		}
		copy(p[:n], buffer.Bytes())
		p = p[n:]
		lba += uint64(n / size)
	}
	return nil
}

// wait runs one request to its end, which the drive's recovery bounds.
func (d *Drive) wait(t *turn, q *Queue, r *Request, end *single) error {
	sent, ended := false, false
	nextTick := time.Now().Add(TickInterval)
	for pause := 5 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		t.do(func() {
			if !sent {
				sent = q.TrySubmit(r)
				q.Flush()
			}
			q.Poll()
			if time.Now().After(nextTick) {
				q.Tick()
				nextTick = time.Now().Add(TickInterval)
			}
			ended = end.ended
		})
		if ended {
			break
		}
		time.Sleep(pause)
	}
	if !end.status.IsOK() {
		return &CommandError{Command: fmt.Sprintf("%s: read of %d blocks at LBA %d", d.Address(), r.Blocks, r.LBA), Status: end.status}
	}
	return nil
}
