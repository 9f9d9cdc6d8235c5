package targettest

import (
	"sync"
	"sync/atomic"
	"time"

	"rocet/memory"
	"rocet/nvme"
	"rocet/reactor"
	"rocet/target"
)

// DialOptions describe a connection.
type DialOptions struct {
	Group       int
	Listener    *target.Listener // nil: the harness's
	QID         uint16           // as the connection request would say; 0 with KnowQID unset: unknown
	KnowQID     bool
	Depth       uint16
	LocalAddr   string
	HoldRelease bool // Release waits for Conn.LetGo, as it would for a slow teardown
}

// Conn is a queue of the fake transport, as a host sees it.
type Conn struct {
	h     *Harness
	queue *target.Queue
	group *target.PollGroup

	// Of the reactor.
	slots   map[*target.Request]*Pending
	closing bool
	slow    bool // keeps the data of responses, as a device does that still sends
	sending []*target.Request
	hold    bool
	freed   bool

	mu       sync.Mutex
	reason   error
	closed   chan struct{}
	released chan struct{}
	cid      atomic.Uint32
	// Responses counts calls of Respond.
	Responses atomic.Int64
	// Sent counts commands.
	Sent atomic.Int64
}

// Dial opens a connection.
func (h *Harness) Dial(o DialOptions) *Conn {
	h.TB.Helper()
	c, err := h.TryDial(o)
	if err != nil {
		h.TB.Fatal(err)
	}
	return c
}

// TryDial is Dial that may be refused.
func (h *Harness) TryDial(o DialOptions) (*Conn, error) {
	if o.Listener == nil {
		o.Listener = h.Listener
	}
	if !o.KnowQID {
		o.QID = target.QIDUnknown
	}
	if o.LocalAddr == "" {
		o.LocalAddr = "192.0.2.1"
	}
	c := &Conn{
		h: h, group: h.Target.Groups()[o.Group],
		slots: make(map[*target.Request]*Pending), hold: o.HoldRelease,
		closed: make(chan struct{}), released: make(chan struct{}),
	}
	_, err := h.Target.NewQueue(target.QueueOptions{
		Group: c.group, Conn: c, Listener: o.Listener, HostAddr: "192.0.2.99", LocalAddr: o.LocalAddr,
		QID: o.QID, Depth: o.Depth, Attach: func(q *target.Queue) { c.queue = q },
	})
	return c, err
}

// Pending is a command that was sent.
type Pending struct {
	c    *Conn
	req  target.Request
	cmd  nvme.Command
	out  []byte
	used int
	held bool // prepared, not executed

	prepared chan struct{}
	done     chan struct{}
	reply    Reply
}

// Reply is a response.
type Reply struct {
	Cqe    nvme.Completion
	Status nvme.Status // without DNR and More
	DNR    bool
	Data   []byte // of a successful read
	Lent   bool
}

// DW0 is dword 0 of the completion.
func (r Reply) DW0() uint32 { return r.Cqe.DW0() }

// Result64 is dwords 0 and 1 of the completion.
func (r Reply) Result64() uint64 { return r.Cqe.Result64() }

// SQHD is the completion's SQHD.
func (r Reply) SQHD() uint16 { return r.Cqe.SQHD() }

// SQID is the completion's SQID.
func (r Reply) SQID() uint16 { return r.Cqe.SQID() }

// Send gives the queue a command with its data, and a fresh CID.
func (c *Conn) Send(cmd nvme.Command, data []byte) *Pending { return c.send(cmd, data, false, false) }

// SendRaw is Send of a command just as it is: no CID, no PSDT are filled in.
func (c *Conn) SendRaw(cmd nvme.Command, data []byte) *Pending { return c.send(cmd, data, false, true) }

// Hold sends a command whose data transfer does not end before Continue.
func (c *Conn) Hold(cmd nvme.Command, data []byte) *Pending {
	p := c.send(cmd, data, true, false)
	<-p.prepared
	return p
}

// HoldRaw is Hold of a command just as it is.
func (c *Conn) HoldRaw(cmd nvme.Command, data []byte) *Pending {
	p := c.send(cmd, data, true, true)
	<-p.prepared
	return p
}

func (c *Conn) send(cmd nvme.Command, data []byte, hold, raw bool) *Pending {
	if !raw {
		cmd.SetCID(uint16(c.cid.Add(1)))
		cmd.SetPSDT(nvme.PSDTSGL)
	}
	p := &Pending{c: c, cmd: cmd, out: data, held: hold, prepared: make(chan struct{}), done: make(chan struct{})}
	c.Sent.Add(1)
	if !c.group.Reactor.Post(func() { c.receive(p) }) {
		panic("targettest: the reactor has stopped")
	}
	return p
}

// receive is the transport's work for a capsule, on the reactor.
func (c *Conn) receive(p *Pending) {
	defer close(p.prepared)
	if c.closing { // the wire is cut: it never arrived
		p.held = false
		c.Responses.Add(1)
		p.reply.Status = nvme.StatusHostPath
		close(p.done)
		return
	}
	r := &p.req
	c.slots[r] = p
	r.Begin(reactor.Clock())
	r.Cmd = &p.cmd
	if st := c.queue.Prepare(r); st != nvme.StatusSuccess {
		p.held = false
		c.queue.Fail(r, st)
		return
	}
	if r.Length != 0 && !r.Lent {
		n, ok := c.group.Mem.Alloc(r.Segs[:], r.Length, memory.ClassAdmin)
		if !ok {
			panic("targettest: out of memory")
		}
		p.used = n
		r.SetData(n)
	}
	if r.Dir == nvme.DirHostToController && r.Length != 0 {
		if len(p.out) < int(r.Length) || len(p.out) > int(r.Length) && !r.AtLeast {
			p.held = false
			c.queue.Fail(r, nvme.StatusSGLDataLength)
			return
		}
		b := p.out
		for _, s := range r.Data {
			b = b[copy(s.Bytes(), b):]
		}
	}
	if !p.held {
		c.queue.Execute(r)
	}
}

// Continue lets a held command go on.
func (p *Pending) Continue() *Pending {
	p.c.group.Reactor.Call(func() {
		if p.held {
			p.held = false
			p.c.queue.Execute(&p.req)
		}
	})
	return p
}

// CID is the command's identifier.
func (p *Pending) CID() uint16 { return p.cmd.CID() }

// Done tells whether the response came.
func (p *Pending) Done() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Wait returns the response.
func (p *Pending) Wait() Reply {
	p.c.h.TB.Helper()
	select {
	case <-p.done:
	case <-time.After(Patience):
		p.c.h.TB.Fatalf("no response to %s within %v", p.cmd.Opcode().Name(p.c.queue.QID() == 0), Patience)
	}
	return p.reply
}

// Do is Send and Wait.
func (c *Conn) Do(cmd nvme.Command, data []byte) Reply {
	c.h.TB.Helper()
	return c.Send(cmd, data).Wait()
}

// Respond is target.Conn.
func (c *Conn) Respond(r *target.Request) {
	p := c.slots[r]
	if p == nil {
		panic("targettest: a request responded that was not under way")
	}
	delete(c.slots, r)
	c.Responses.Add(1)
	p.reply.Cqe = r.Cqe
	st := r.Cqe.Status()
	p.reply.Status, p.reply.DNR, p.reply.Lent = st.Code(), st.DNR(), r.Lent
	if r.DataOut() {
		for _, s := range r.Data {
			p.reply.Data = append(p.reply.Data, s.Bytes()...)
		}
	}
	c.group.Account(r, reactor.Clock())
	if p.used != 0 {
		c.group.Mem.Free(r.Segs[:p.used])
	}
	if c.slow {
		c.sending = append(c.sending, r)
	} else {
		r.End()
	}
	close(p.done)
	c.release()
}

// SlowSend makes the connection hold on to the data of its responses; off, all that
// it holds has been sent.
func (c *Conn) SlowSend(on bool) {
	c.group.Reactor.Call(func() {
		c.slow = on
		for _, r := range c.sending {
			r.End()
		}
		c.sending = nil
	})
}

// Close is target.Conn.
func (c *Conn) Close(reason error) {
	c.mu.Lock()
	c.reason = reason
	c.mu.Unlock()
	c.down()
}

// down is the connection's end, on the reactor.
func (c *Conn) down() {
	if c.closing {
		return
	}
	c.closing = true
	c.queue.Close()
	for r, p := range c.slots {
		if p.held {
			p.held = false
			c.queue.Fail(r, nvme.StatusAbortedSQDeletion)
		}
	}
	close(c.closed)
	c.release()
}

func (c *Conn) release() {
	if c.closing && !c.hold && !c.freed && len(c.slots) == 0 {
		c.freed = true
		c.queue.Release()
		close(c.released)
	}
}

// Drop is the host going away.
func (c *Conn) Drop() { c.group.Reactor.Post(c.down) }

// LetGo ends HoldRelease.
func (c *Conn) LetGo() {
	c.group.Reactor.Post(func() {
		c.hold = false
		c.release()
	})
}

// IsClosed tells whether the connection is down.
func (c *Conn) IsClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// WaitClosed waits for the connection's end and returns the target's reason; nil
// if the host dropped it.
func (c *Conn) WaitClosed() error {
	c.h.TB.Helper()
	select {
	case <-c.closed:
	case <-time.After(Patience):
		c.h.TB.Fatalf("the connection was not closed within %v", Patience)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason
}

// WaitReleased waits until the target let go of the connection.
func (c *Conn) WaitReleased() {
	c.h.TB.Helper()
	select {
	case <-c.released:
	case <-time.After(Patience):
		c.h.TB.Fatalf("the connection was not released within %v", Patience)
	}
}

// Queue is the target's side.
func (c *Conn) Queue() *target.Queue { return c.queue }
