package target

import (
	"sync/atomic"

	"rocet/memory"
	"rocet/nvme"
)

// control is a command that runs off the reactor. There are as many under way as
// the transport lets commands in, and each queue's run one after the other:
//
//	reactor: Execute ──▶ executor list ──▶ its goroutine: run ──▶ inbox ──▶ reactor: finish, respond
type control struct {
	q    *Queue
	r    *Request
	c    *Controller // nil before Connect
	cmd  nvme.Command
	next *control

	status   nvme.Status
	result   uint64
	location uint16
	after    func() // on the reactor, before the response
}

// executor runs a queue's control commands in order, on a goroutine that lives as
// long as there are any.
type executor struct{ head atomic.Pointer[control] }

// running stands at the end of the list while the goroutine lives.
var running control

// push is lock-free: reactors call it.
func (e *executor) push(x *control) {
	for {
		head := e.head.Load()
		x.next = head
		if e.head.CompareAndSwap(head, x) {
			if head == nil {
				go e.run()
			}
			return
		}
	}
}

func (e *executor) run() {
	for {
		list := e.head.Swap(&running)
		var oldest *control
		for list != nil && list != &running {
			next := list.next
			list.next = oldest
			oldest, list = list, next
		}
		for oldest != nil {
			x := oldest
			oldest = x.next
			x.next = nil
			x.run()
		}
		if e.head.CompareAndSwap(&running, nil) {
			return
		}
	}
}

// control sends a command off the reactor.
func (q *Queue) control(r *Request) {
	if q.assoc == nil { // a Connect, and there is one at a time
		if q.state != queueUnconnected {
			q.respond(r, nvme.StatusCommandSequenceError, 0)
			return
		}
		q.state = queueConnecting
	}
	r.state = requestControl
	x := &control{q: q, r: r, c: q.assoc, cmd: *r.Cmd, location: noLocation}
	q.exec.push(x)
}

// run executes the command and sends it back to its reactor.
func (x *control) run() {
	if x.cmd.Opcode() == nvme.OpFabrics {
		x.fabrics()
	} else {
		x.admin()
	}
	x.q.group.Reactor.Post(x.finish)
}

func (x *control) finish() {
	if x.after != nil {
		x.after()
	}
	if x.location != noLocation {
		x.r.location = x.location
	}
	x.q.respond(x.r, x.status, x.result)
}

// fail ends the command with a status.
func (x *control) fail(st nvme.Status) { x.status = st }

// failAt is fail with the offset of what is wrong in the command.
func (x *control) failAt(st nvme.Status, offset uint16) { x.status, x.location = st, offset }

// put makes b the data that the host gets, padded with zeros to the length that it
// asked for. What does not fit is left out.
func (x *control) put(b []byte) {
	for _, s := range x.r.Data {
		d := s.Bytes()
		n := copy(d, b)
		b = b[n:]
		clear(d[n:])
	}
}

// data returns a copy of what the host sent.
func (x *control) data() []byte { return gather(x.r.Data) }

func gather(segs []memory.Segment) []byte {
	b := make([]byte, 0, memory.Length(segs))
	for _, s := range segs {
		b = append(b, s.Bytes()...)
	}
	return b
}
