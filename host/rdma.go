package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rocet/cgo/verbs"
	"rocet/nvme"
)

// fabric is what the queues of a controller share on their RDMA device. Whoever uses the domain holds a reference: the
// controller, each queue, each memory.
type fabric struct {
	provider verbs.Provider
	opts     *Options

	mu   sync.Mutex
	dev  verbs.Device
	pd   verbs.PD
	refs int
}

func openFabric(o *Options) (*fabric, error) {
	p := o.Provider
	if p == nil {
		var err error
		if p, err = verbs.Open(); err != nil {
			return nil, err
		}
	}
	return &fabric{provider: p, opts: o, refs: 1}, nil
}

// domain is the protection domain on the device that a connection goes over.
func (f *fabric) domain(dev verbs.Device) (verbs.PD, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pd == nil {
		pd, err := dev.AllocPD()
		if err != nil {
			return nil, err
		}
		f.dev, f.pd = dev, pd
	}
	if f.dev != dev {
		return nil, fmt.Errorf("the way to the target goes over %s now, and over %s before: connect again", dev.Name(), f.dev.Name())
	}
	f.refs++
	return f.pd, nil
}

// register makes memory known to the device.
func (f *fabric) register(m *Memory) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	mr, err := f.pd.RegMR(uintptr(m.base), uint64(len(m.b)), verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
	if err != nil {
		return err
	}
	f.refs++
	m.mr, m.lkey, m.rkey = mr, mr.LKey(), mr.RKey()
	m.done = func() { _ = f.release() }
	return nil
}

// release gives up a reference; the last one frees the domain.
func (f *fabric) release() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refs--; f.refs > 0 || f.pd == nil {
		return nil
	}
	pd := f.pd
	f.pd = nil
	return pd.Dealloc()
}

const (
	// signalEvery is how many SENDs share a completion: the answers say that they arrived.
	signalEvery = 16
	readDepth   = 16 // READs that this side serves at once, if the device does
	rdmaBatch   = 64 // completions of one poll
	eventPolls  = 4096

	destroyLimit = 2 * time.Second
)

// rdmaWire is the wire of a queue over RDMA.
//
//	Submit ─▶ capsule, work request ─▶ chain ─┐
//	consumed receives ─────────────▶ chain ─┴▶ one post: receives first
//
//	poll ─▶ receive: response ─▶ complete
//	     └▶ send: room in the send queue
type rdmaWire struct {
	q  *Queue
	f  *fabric
	ch verbs.EventChannel
	id verbs.ID
	cq verbs.CQ
	qp verbs.QP
	pd verbs.PD
	mr verbs.MR
	rdmaMem

	wcs    []verbs.WC
	op     []verbs.PostOp
	inline bool

	pending ring[uint32]
	sqSize  int // send queue
	sqUsed  int // posted, and not known to be done
	since   int // SENDs since the last that will complete
	recv    []uint32
	armed   bool
	polls   uint64

	sends, receives, empty uint64
}

// dial connects the queue pair of q.
func (f *fabric) dial(ctx context.Context, q *Queue) (err error) {
	r := &rdmaWire{q: q, f: f, op: make([]verbs.PostOp, 1), wcs: make([]verbs.WC, rdmaBatch),
		pending: newRing[uint32](len(q.slots))}
	defer func() {
		if err != nil {
			r.close(err)
			err = fmt.Errorf("connect to %v over RDMA: %w", q.c.addr, err)
		}
	}()
	if r.ch, err = f.provider.NewEventChannel(); err != nil {
		return err
	}
	if r.id, err = r.ch.NewID(); err != nil {
		return err
	}
	limit := f.opts.Connect
	if err = r.id.ResolveAddr(fromAddr(f.opts.From), q.c.addr, limit); err != nil {
		return err
	}
	if _, err = r.await(ctx, verbs.EventAddrResolved); err != nil {
		return err
	}
	if err = r.id.ResolveRoute(limit); err != nil {
		return err
	}
	if _, err = r.await(ctx, verbs.EventRouteResolved); err != nil {
		return err
	}
	if err = r.create(); err != nil {
		return err
	}
	entries := uint16(len(q.slots) + 1) // one of a ring's stays free
	req := nvme.RDMACMRequest{QID: q.qid, HRQSIZE: entries, HSQSIZE: entries - 1}
	if q.qid != 0 {
		req.CNTLID = q.c.id
	}
	private := make([]byte, nvme.RDMACMRequestSize)
	req.MarshalTo(private)
	reads := min(readDepth, r.id.Device().Attr().MaxQPRdAtom)
	if reads < 1 {
		return fmt.Errorf("device %s serves no RDMA READs, which a target needs for writes", r.id.Device().Name())
	}
	err = r.id.Connect(verbs.ConnParam{PrivateData: private, ResponderResources: uint8(reads),
		FlowControl: true, RetryCount: 7, RNRRetryCount: 7})
	if err != nil {
		return err
	}
	accept, err := r.await(ctx, verbs.EventEstablished)
	if err != nil {
		return err
	}
	if len(accept) > 0 { // a connection manager may lose it: hosts do without
		var a nvme.RDMACMAccept
		if err := a.UnmarshalBinary(accept); err != nil {
			return &ProtocolError{What: err.Error()}
		}
		if a.RECFMT != 0 {
			return &ProtocolError{What: fmt.Sprintf("its accept has record format %d", a.RECFMT)}
		}
	}
	q.wire = r
	return nil
}

// await takes events until the one that is wanted comes, and returns its private data.
func (r *rdmaWire) await(ctx context.Context, want verbs.EventType) ([]byte, error) {
	for {
		ev, err := r.ch.Next()
		if errors.Is(err, verbs.ErrAgain) {
			if err := waitFD(ctx, r.ch.FD(), unix.POLLIN); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		typ, status, private := ev.Type, ev.Status, ev.PrivateData
		ev.Ack()
		switch typ {
		case want:
			return private, nil
		case verbs.EventRejected:
			e := &RejectError{Address: r.q.c.addr.String(), Reason: verbs.RejectReason(status)}
			var rej nvme.RDMACMReject
			if e.Reason == verbs.RejectConsumer && rej.UnmarshalBinary(private) == nil {
				e.Status = rej.Status
			}
			return nil, e
		case verbs.EventAddrError, verbs.EventRouteError:
			return nil, fmt.Errorf("%v (status %d): no RDMA device leads there: `rdma link` shows the network devices that have one", typ, status)
		case verbs.EventUnreachable, verbs.EventConnectError, verbs.EventDisconnected, verbs.EventDeviceRemoval:
			return nil, fmt.Errorf("%v (status %d)", typ, status)
		}
	}
}

// create makes the queue pair, and posts its receives.
func (r *rdmaWire) create() (err error) {
	depth := len(r.q.slots)
	dev := r.id.Device()
	if r.pd, err = r.f.domain(dev); err != nil {
		return err
	}
	r.sqSize = depth + 2*signalEvery
	if r.cq, err = dev.CreateCQ(verbs.CQAttr{Entries: r.sqSize + depth + 1, Events: true}); err != nil {
		return err
	}
	attr := verbs.QPAttr{PD: r.pd, SendCQ: r.cq, RecvCQ: r.cq, Caps: verbs.QPCaps{
		MaxSendWR: uint32(r.sqSize), MaxRecvWR: uint32(depth + 1), MaxSendSGE: 2, MaxRecvSGE: 1, MaxInline: nvme.CommandSize,
	}}
	if r.qp, err = r.id.CreateQP(attr); err != nil {
		attr.Caps.MaxInline = 0
		if r.qp, err = r.id.CreateQP(attr); err != nil {
			return err
		}
	}
	r.inline = r.qp.Caps().MaxInline >= nvme.CommandSize
	r.rdmaMem.init(depth)
	if r.mr, err = r.pd.RegMR(uintptr(r.base), uint64(r.size), verbs.AccessLocalWrite); err != nil {
		return err
	}
	r.rdmaMem.prepare(r.mr.LKey())
	r.recv = make([]uint32, 0, depth+1)
	for i := range depth + 1 {
		r.recv = append(r.recv, uint32(i))
	}
	return r.post(0)
}

// post gives the device the consumed receives, and a chain of SENDs.
func (r *rdmaWire) post(chain uintptr) error {
	var recvs uintptr
	for i, index := range r.recv {
		next := uintptr(0)
		if i+1 < len(r.recv) {
			next = recvAddr(&r.rwrs[r.recv[i+1]])
		}
		r.rwrs[index].Next = next
	}
	if len(r.recv) > 0 {
		recvs = recvAddr(&r.rwrs[r.recv[0]])
	}
	r.recv = r.recv[:0]
	r.op[0] = verbs.PostOp{QP: r.qp.Handle(), Send: chain, Recv: recvs}
	r.sends++
	if r.f.provider.Post(r.op) != 0 {
		return fmt.Errorf("post to the queue pair: %w", syscall.Errno(r.op[0].Err))
	}
	return nil
}

func (r *rdmaWire) submit(index uint32) { r.pending.push(index) }

func (r *rdmaWire) flush() error {
	var head, last *verbs.SendWR
	for r.pending.len() > 0 && r.sqUsed < r.sqSize {
		wr := r.command(r.pending.pop())
		if head == nil {
			head = wr
		} else {
			last.Next = sendAddr(wr)
		}
		last = wr
	}
	if head == nil {
		return nil
	}
	return r.post(sendAddr(head))
}

// command builds a command capsule and its SEND.
func (r *rdmaWire) command(index uint32) *verbs.SendWR {
	slot := &r.q.slots[index]
	slot.sent = true
	io := slot.io
	cmd := &r.capsules[index]
	*cmd = io.Cmd
	cmd.SetCID(slot.cid)
	cmd.SetPSDT(nvme.PSDTSGL)
	wr := &r.wrs[index]
	wr.Next, wr.NumSGE, wr.Flags = 0, 1, 0
	switch {
	case io.Len == 0:
		cmd.SGL().SetKeyed(nvme.SGLAddress, 0, 0, 0)
	case slot.dir == nvme.DirHostToController && !r.q.admin && cmd.Opcode() != nvme.OpFabrics && io.Len <= r.q.capsule:
		cmd.SGL().SetDataBlock(nvme.SGLDataBlock, nvme.SGLOffset, 0, io.Len)
		r.sges[2*index+1] = verbs.SGE{Addr: dataAddr(io), Length: io.Len, LKey: io.Mem.lkey}
		wr.NumSGE = 2
	default:
		cmd.SGL().SetKeyed(nvme.SGLAddress, dataAddr(io), io.Len, io.Mem.rkey)
	}
	if r.inline && wr.NumSGE == 1 {
		wr.Flags = verbs.SendInline
	}
	wr.ID = sendID
	r.sqUsed++
	if r.since++; r.since == signalEvery {
		wr.Flags |= verbs.SendSignaled
		wr.ID = sendID | uint64(r.since)
		r.since = 0
	}
	return wr
}

// sendID marks the work requests of SENDs; the rest is how many are done with it.
const sendID = 1 << 63

func (r *rdmaWire) poll() error {
	if r.armed {
		r.armed = false
		if err := r.cq.Ack(); err != nil {
			return err
		}
		if r.q.admin || r.q.pollFDs[1].Revents != 0 { // the admin queue is waited for elsewhere
			if err := r.events(); err != nil {
				return err
			}
		}
	}
	n := r.cq.Poll(r.wcs, 0)
	if n <= 0 {
		r.empty++
		if n < 0 {
			return errors.New("the completion queue is broken: the device is gone, or it overran")
		}
		if r.polls++; r.polls%eventPolls == 0 {
			return r.events()
		}
		return nil
	}
	r.receives++
	for i := range n {
		wc := &r.wcs[i]
		if wc.Status != verbs.StatusSuccess {
			return r.broken(wc)
		}
		if wc.ID&sendID != 0 {
			r.sqUsed -= int(wc.ID &^ sendID)
			continue
		}
		if err := r.response(wc); err != nil {
			return err
		}
	}
	if r.pending.len() > 0 {
		return r.flush()
	}
	return nil
}

// response takes a response capsule: RDMA Transport 1.1 section 3.2.
func (r *rdmaWire) response(wc *verbs.WC) error {
	switch {
	case wc.ID >= uint64(len(r.cqes)):
		return &ProtocolError{What: fmt.Sprintf("a completion with identifier %#x", wc.ID)}
	case wc.ByteLen != nvme.CompletionSize:
		return &ProtocolError{What: fmt.Sprintf("a response of %d bytes, want %d", wc.ByteLen, nvme.CompletionSize)}
	case wc.Invalidated():
		return &ProtocolError{What: fmt.Sprintf("a response invalidates key %#x, which no command asked for", wc.InvalidatedRKey)}
	}
	c := r.cqes[wc.ID]
	r.recv = append(r.recv, uint32(wc.ID))
	s := r.q.find(c.CID())
	if s == nil || !s.sent {
		return &ProtocolError{What: fmt.Sprintf("a response for command %#x, which is not under way", c.CID())}
	}
	r.q.complete(s, c.Status(), c.Result64())
	return nil
}

// broken is why a completion has an error.
func (r *rdmaWire) broken(wc *verbs.WC) error {
	if wc.Status == verbs.StatusWRFlushErr {
		// The event that says why may be on its way.
		for end := time.Now().Add(waitSlice); time.Now().Before(end); {
			if err := r.events(); err != nil {
				return err
			}
			if sleep([]unix.PollFd{{Fd: int32(r.ch.FD()), Events: unix.POLLIN}}, time.Until(end)) != nil {
				break
			}
		}
	}
	return fmt.Errorf("the connection broke: work request %#x ended with %v", wc.ID, wc.Status)
}

// events looks whether the connection still stands.
func (r *rdmaWire) events() error {
	for {
		ev, err := r.ch.Next()
		if errors.Is(err, verbs.ErrAgain) {
			return nil
		}
		if err != nil {
			return err
		}
		typ := ev.Type
		ev.Ack()
		switch typ {
		case verbs.EventDisconnected:
			return errTargetClosed
		case verbs.EventDeviceRemoval:
			return errors.New("the RDMA device was removed")
		case verbs.EventAddrChange:
			return errors.New("the address of the RDMA device changed: connect again")
		}
	}
}

func (r *rdmaWire) arm() (bool, error) {
	if !r.armed {
		r.armed = true
		if err := r.cq.Arm(); err != nil {
			return false, err
		}
	}
	// What came before the queue was armed makes no event.
	n := r.cq.Poll(r.wcs[:1], 0)
	if n == 0 {
		return true, nil
	}
	if n < 0 {
		return false, errors.New("the completion queue is broken: the device is gone, or it overran")
	}
	wc := &r.wcs[0]
	switch {
	case wc.Status != verbs.StatusSuccess:
		return false, r.broken(wc)
	case wc.ID&sendID != 0:
		r.sqUsed -= int(wc.ID &^ sendID)
	default:
		if err := r.response(wc); err != nil {
			return false, err
		}
	}
	return false, nil
}

func (r *rdmaWire) fds(p *[2]unix.PollFd) int {
	p[0] = unix.PollFd{Fd: int32(r.cq.FD()), Events: unix.POLLIN}
	p[1] = unix.PollFd{Fd: int32(r.ch.FD()), Events: unix.POLLIN}
	return 2
}

// close ends the connection, from any state of dial on.
func (r *rdmaWire) close(error) {
	if r.ch == nil {
		return
	}
	if r.qp != nil {
		_ = r.id.Disconnect() // it may not be connected
		_ = r.id.DestroyQP()
	}
	if r.id != nil {
		for end := time.Now().Add(destroyLimit); r.id.Destroy() != nil && time.Now().Before(end); {
			_ = r.events() // one that is not acknowledged keeps the identifier
			time.Sleep(time.Millisecond)
		}
	}
	if r.mr != nil {
		_ = r.mr.Dereg()
	}
	if r.cq != nil {
		_ = r.cq.Destroy()
	}
	if r.pd != nil {
		_ = r.f.release()
	}
	r.rdmaMem.free()
	_ = r.ch.Close()
	r.ch = nil
}

func (r *rdmaWire) stats(s *Stats) { s.Sends, s.Receives, s.Empty = r.sends, r.receives, r.empty }
