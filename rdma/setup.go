package rdma

import (
	"fmt"
	"syscall"

	"rocet/cgo/verbs"
	"rocet/memory"
	"rocet/nvme"
	"rocet/target"
)

const errBusy = syscall.EBUSY

// setUp makes everything that a connection needs and accepts it.
func (c *conn) setUp() error {
	if c.listener == nil {
		return refuse(nvme.RDMACMNoResources, "the listener is gone")
	}
	if !c.halfOpen {
		return refuse(nvme.RDMACMNoResources, "%d connections have sent no command yet", c.t.cfg.MaxHalfOpen)
	}
	v := c.id.Device()
	if v == nil {
		return refuse(nvme.RDMACMNoResources, "the connect request names no device")
	}
	attr := v.Attr()
	prop, r := parseRequest(c.request.private, c.request.readDepth, uint16(min(c.t.cfg.MaxQueueDepth, attr.MaxQPWR/4)), maxQID)
	if r != nil {
		return r
	}
	c.prop = prop
	dev, err := c.t.deviceFor(v)
	if err != nil {
		return err
	}
	c.dev = dev // counted in dev.conns
	c.spec = c.t.spec(prop, attr)
	if err := c.place(); err != nil {
		return err
	}
	inline, err := c.makeQP()
	if err != nil {
		return err
	}
	if err := c.makeQueue(inline); err != nil {
		return err
	}
	return c.accept()
}

// maxQID is the largest queue identifier that a connect request may name: FFFFh is
// reserved (Base 2.1 section 3.3.3.1). The Connect command is held to the
// controller's own limit.
const maxQID = 0xfffe

// spec fits a proposal to the device's limits.
func (t *Transport) spec(p proposal, a verbs.DeviceAttr) queueSpec {
	s := queueSpec{
		depth:      int(p.depth),
		readDepth:  max(1, min(int(p.readDepth), a.MaxQPInitRdAtom, a.MaxQPWR/4)),
		maxSGE:     max(1, min(inlineSGEs, a.MaxSGE)),
		maxReadSGE: max(1, min(inlineSGEs, a.MaxSGE)),
		maxDesc:    t.cfg.descriptors(),
		sendMax:    a.MaxQPWR,
	}
	if a.MaxSGERd > 0 {
		s.maxReadSGE = min(s.maxReadSGE, a.MaxSGERd)
	}
	return s
}

// place chooses the reactor with the least to do and room on one of its completion
// queues.
func (c *conn) place() error {
	c.shard = c.t.place(c.prop)
	lane, err := c.dev.join(c)
	if err != nil {
		return err
	}
	c.lane = lane
	return nil
}

// makeQP creates the queue pair, which takes milliseconds on hardware: only a few
// at a time. The result says whether responses go inline.
func (c *conn) makeQP() (inline bool, err error) {
	attr := verbs.QPAttr{
		PD: c.dev.pd, SendCQ: c.lane.cq, RecvCQ: c.lane.cq,
		Caps: verbs.QPCaps{
			MaxSendWR:  uint32(c.spec.sendWRs()),
			MaxSendSGE: uint32(max(c.spec.maxSGE, c.spec.maxReadSGE)),
			MaxInline:  nvme.CompletionSize,
		},
	}
	if c.lane.srq != nil {
		attr.SRQ = c.lane.srq.srq
	} else {
		attr.Caps.MaxRecvWR, attr.Caps.MaxRecvSGE = uint32(c.spec.depth), recvSGEs
	}
	c.t.heavy(func() {
		var qp verbs.QP
		if qp, err = c.id.CreateQP(attr); err != nil {
			attr.Caps.MaxInline = 0 // not every device has it
			qp, err = c.id.CreateQP(attr)
		}
		if err == nil {
			caps := qp.Caps()
			inline = caps.MaxInline >= nvme.CompletionSize
			c.qpn = qp.Num()
		}
	})
	if err != nil {
		return false, fmt.Errorf("create a queue pair for %d commands: %w", c.spec.depth, err)
	}
	c.dev.list(c.qpn, c)
	return inline, nil
}

// makeQueue makes the queue, posts its receives and hands it to its reactor.
func (c *conn) makeQueue(inline bool) error {
	shared := c.lane.srq != nil
	n := c.spec.depth
	if shared {
		n = 0
	}
	recvs, responses, err := newRecvs(&c.t.capsules, n, c.spec.slots(), c.inCapsule(), c.dev.lkey,
		func(i int) wrID { return makeID(wrRecv, 0, c.laneGen, c.laneIndex, uint16(i)) })
	if err != nil {
		return err
	}
	c.recvs = recvs // with shared receives: room for the responses only
	use := recvs
	if shared {
		use = c.lane.srq.recvs
	}
	q := newQueue(c.spec, use, responses, c.dev.lkeys, inline)
	q.lane, q.shard, q.conn = c.lane, c.shard, c
	q.admin, q.shared = c.prop.admin(), shared
	if !q.admin {
		q.polled = 1
	}
	q.index, q.gen = c.laneIndex, c.laneGen
	q.qp, q.qpn = c.id.QP().Handle(), c.qpn
	q.canInv = c.dev.attr.Flags&verbs.DeviceMemMgtExtensions != 0
	q.heldMax = c.shard.share
	c.q = q
	if err := c.postReceives(); err != nil {
		return err
	}
	q.tq, err = c.t.target.NewQueue(target.QueueOptions{
		Group: c.shard.group, Conn: q, Listener: c.listener.known(),
		HostAddr: c.host, LocalAddr: hostOf(c.id.LocalAddr()), QID: c.prop.qid, Depth: c.prop.depth,
	})
	if err != nil {
		return err
	}
	if !c.shard.r.Call(q.attach) {
		return fmt.Errorf("reactor %d has stopped", c.shard.r.ID())
	}
	c.attached = true
	return nil
}

// recvSGEs: a capsule is scattered to its command and its data.
const recvSGEs = 2

func (c *conn) inCapsule() uint32 { return uint32(c.t.cfg.InCapsuleData) }

// postReceives posts all receives of a queue pair of its own, before the accept:
// the host may send as soon as it has the answer.
func (c *conn) postReceives() error {
	q := c.q
	if q.shared {
		return nil
	}
	wrs := q.recvs.wrs
	for i := range wrs[:len(wrs)-1] {
		wrs[i].Next = recvAddr(&wrs[i+1])
	}
	ops := []verbs.PostOp{{QP: q.qp, Recv: recvAddr(&wrs[0])}}
	if c.t.provider.Post(ops) != 0 {
		return fmt.Errorf("post %d receives: %w", len(wrs), syscall.Errno(ops[0].Err))
	}
	q.recvPosted = len(wrs)
	return nil
}

// accept answers the host. The depths: this side serves no READs, and has no more
// outstanding than both sides allow. RNR retries are without end.
func (c *conn) accept() error {
	err := c.id.Accept(verbs.ConnParam{
		PrivateData:        acceptData(c.prop.depth),
		ResponderResources: 0,
		InitiatorDepth:     uint8(c.spec.readDepth),
		FlowControl:        true,
		RetryCount:         7,
		RNRRetryCount:      7,
	})
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	c.accepted = true
	return nil
}

// newSharedRecvs makes a lane's shared receive queue with its receives posted.
func newSharedRecvs(t *Transport, d *device, n int) (*sharedRecvs, error) {
	srq, err := d.pd.CreateSRQ(verbs.SRQAttr{MaxWR: uint32(n), MaxSGE: recvSGEs})
	if err != nil {
		return nil, fmt.Errorf("create a shared receive queue of %d: %w", n, err)
	}
	r, _, err := newRecvs(&t.capsules, n, 0, uint32(t.cfg.InCapsuleData), d.lkey,
		func(i int) wrID { return makeID(wrRecv, 0, 0, 0, uint16(i)) })
	if err != nil {
		srq.Destroy()
		return nil, err
	}
	for i := range r.wrs[:n-1] {
		r.wrs[i].Next = recvAddr(&r.wrs[i+1])
	}
	ops := []verbs.PostOp{{SRQ: srq.Handle(), Recv: recvAddr(&r.wrs[0])}}
	if t.provider.Post(ops) != 0 {
		srq.Destroy()
		r.release(&t.capsules)
		return nil, fmt.Errorf("post %d shared receives: %w", n, syscall.Errno(ops[0].Err))
	}
	return &sharedRecvs{srq: srq, handle: srq.Handle(), recvs: r, posted: n}, nil
}

// shareOf is the pool memory that one queue may hold: a quarter of a reactor's
// part, and never less than what the largest command needs.
func shareOf(pool uint64, groups int, mdts uint32) uint64 {
	return max(pool/uint64(groups)/4, uint64(roundUp(uint64(mdts), memory.PageSize)))
}
