package rdma

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"rocet/cgo/verbs"
	"rocet/memory"
	"rocet/nvme"
)

// The tests' own host: just enough of an initiator to drive every way through the
// transport, over whatever provider. It polls, on the test's goroutine.

const hostPatience = 10 * time.Second

// host is a machine with an event channel.
type host struct {
	t        testing.TB
	provider verbs.Provider
	ch       verbs.EventChannel
	nqn      string
	id       nvme.UUID
	from     netip.Addr // where its connections come from, if set
	queues   []*hostQueue
}

func newHost(t testing.TB, p verbs.Provider, name string) *host {
	t.Helper()
	ch, err := p.NewEventChannel()
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, provider: p, ch: ch, nqn: "nqn.2026-01.io.rocet:host." + name}
	copy(h.id[:], name)
	h.id[15] = 1
	return h
}

// close ends all queues and the channel.
func (h *host) close() {
	h.t.Helper()
	for _, q := range h.queues {
		q.close()
	}
	h.queues = nil
	if err := h.ch.Close(); err != nil {
		h.t.Error(err)
	}
}

// hostQueue is one queue pair of a host.
type hostQueue struct {
	h       *host
	id      verbs.ID
	pd      verbs.PD
	cq      verbs.CQ
	qp      verbs.QP
	mr      verbs.MR
	depth   int
	capsule int // bytes of a capsule's slot
	base    unsafe.Pointer
	size    int
	data    memoryView // what commands transfer
	wrs     []verbs.SendWR
	rwrs    []verbs.RecvWR
	sges    []verbs.SGE
	wcs     []verbs.WC
	ops     []verbs.PostOp
	next    uint16 // command identifier
	sent    int    // capsules
	replies []reply
	failed  verbs.WCStatus // of the first completion with an error
	closed  bool
	gone    bool // DISCONNECTED came

	noRepost bool     // keep receives back
	kept     []uint64 // those
	crqsize  uint16
	answer   verbs.Event // ESTABLISHED
}

type memoryView struct {
	addr uintptr
	b    []byte
}

// reply is a response with what came along.
type reply struct {
	cqe nvme.Completion
	inv uint32 // key that was invalidated, 0 if none
}

// queueAsk is what a connect request says. Zero values are what Linux sends.
type queueAsk struct {
	qid       uint16
	depth     int    // 32
	private   []byte // instead of the right one
	readDepth int    // READs the host serves at once: 16; -1: 0
	dataSize  int    // 1 MiB
	capsule   int    // in-capsule bytes: 8192
	noAccept  bool   // return without waiting for the answer
}

// rejectedError is a refusal by the target.
type rejectedError struct {
	reason int
	data   []byte
}

func (e *rejectedError) Error() string {
	return fmt.Sprintf("rejected, reason %d, data % x", e.reason, e.data)
}

// status is the reject's status, 0 if it has none.
func (e *rejectedError) status() nvme.RDMACMStatus {
	if e.reason != int(verbs.RejectConsumer) || len(e.data) < 4 {
		return 0
	}
	return nvme.RDMACMStatus(binary.LittleEndian.Uint16(e.data[2:]))
}

// event waits for an event of one of the queue's own.
func (h *host) event(want ...verbs.EventType) (*verbs.Event, error) {
	end := time.Now().Add(hostPatience)
	for time.Now().Before(end) {
		ev, err := h.ch.Next()
		if errors.Is(err, verbs.ErrAgain) {
			time.Sleep(50 * time.Microsecond)
			continue
		}
		if err != nil {
			return nil, err
		}
		if ev.Type == verbs.EventDisconnected {
			if q, ok := ev.ID.Context().(*hostQueue); ok {
				q.gone = true
			}
		}
		for _, w := range want {
			if ev.Type == w {
				return ev, nil
			}
		}
		typ := ev.Type
		data := ev.PrivateData
		status := ev.Status
		ev.Ack()
		switch typ {
		case verbs.EventRejected:
			return nil, &rejectedError{status, data}
		case verbs.EventUnreachable, verbs.EventConnectError, verbs.EventAddrError, verbs.EventRouteError:
			return nil, fmt.Errorf("event %v, status %d", typ, status)
		}
	}
	return nil, fmt.Errorf("none of the events %v came", want)
}

// drainEvents looks for disconnects.
func (h *host) drainEvents() {
	for {
		ev, err := h.ch.Next()
		if err != nil {
			return
		}
		if q, ok := ev.ID.Context().(*hostQueue); ok && ev.Type == verbs.EventDisconnected {
			q.gone = true
		}
		ev.Ack()
	}
}

// dial connects a queue pair.
func (h *host) dial(addr netip.AddrPort, ask queueAsk) (q *hostQueue, err error) {
	h.t.Helper()
	if ask.depth == 0 {
		ask.depth = 32
	}
	if ask.dataSize == 0 {
		ask.dataSize = 1 << 20
	}
	if ask.capsule == 0 {
		ask.capsule = 8192
	}
	switch ask.readDepth {
	case 0:
		ask.readDepth = 16
	case -1:
		ask.readDepth = 0
	}
	if ask.private == nil {
		r := nvme.RDMACMRequest{QID: ask.qid, HRQSIZE: uint16(ask.depth), HSQSIZE: uint16(ask.depth - 1)}
		ask.private = make([]byte, nvme.RDMACMRequestSize)
		r.MarshalTo(ask.private)
	}
	made := &hostQueue{h: h, depth: ask.depth, capsule: nvme.CommandSize + ask.capsule}
	q = made
	defer func() {
		if err != nil {
			made.close()
		}
	}()
	if q.id, err = h.ch.NewID(); err != nil {
		return nil, err
	}
	q.id.SetContext(q)
	step := func(err error, want verbs.EventType) error {
		if err != nil {
			return err
		}
		ev, err := h.event(want)
		if err == nil {
			ev.Ack()
		}
		return err
	}
	var from netip.AddrPort
	if h.from.IsValid() {
		from = netip.AddrPortFrom(h.from, 0)
	}
	if err = step(q.id.ResolveAddr(from, addr, time.Second), verbs.EventAddrResolved); err != nil {
		return nil, err
	}
	if err = step(q.id.ResolveRoute(time.Second), verbs.EventRouteResolved); err != nil {
		return nil, err
	}
	if err = q.make(ask); err != nil {
		return nil, err
	}
	err = q.id.Connect(verbs.ConnParam{
		PrivateData: ask.private, ResponderResources: uint8(ask.readDepth), InitiatorDepth: 0,
		FlowControl: true, RetryCount: 7, RNRRetryCount: 7,
	})
	if err != nil || ask.noAccept {
		h.queues = append(h.queues, q)
		return q, err
	}
	ev, err := h.event(verbs.EventEstablished)
	if err != nil {
		return nil, err
	}
	if len(ev.PrivateData) >= 4 {
		q.answer = *ev
		q.crqsize = binary.LittleEndian.Uint16(ev.PrivateData[2:])
	}
	ev.Ack()
	h.queues = append(h.queues, q)
	return q, nil
}

// make creates domain, queues and memory, and posts the receives.
func (q *hostQueue) make(ask queueAsk) (err error) {
	dev := q.id.Device()
	if q.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	if q.cq, err = dev.CreateCQ(verbs.CQAttr{Entries: 4 * q.depth}); err != nil {
		return err
	}
	q.qp, err = q.id.CreateQP(verbs.QPAttr{PD: q.pd, SendCQ: q.cq, RecvCQ: q.cq, SignalAll: true, Caps: verbs.QPCaps{
		MaxSendWR: uint32(2 * q.depth), MaxRecvWR: uint32(2 * q.depth), MaxSendSGE: 1, MaxRecvSGE: 1,
	}})
	if err != nil {
		return err
	}
	n := q.depth
	capsules := n * q.capsule
	wrs := roundUp(uint64(capsules), 64)
	rwrs := wrs + uint64(n)*uint64(unsafe.Sizeof(verbs.SendWR{}))
	sges := rwrs + uint64(n)*uint64(unsafe.Sizeof(verbs.RecvWR{}))
	cqes := sges + 2*uint64(n)*uint64(unsafe.Sizeof(verbs.SGE{}))
	data := roundUp(cqes+uint64(n)*nvme.CompletionSize, memory.PageSize)
	q.size = int(data) + ask.dataSize
	q.base = memory.OffHeap(q.size)
	at := func(off uint64) unsafe.Pointer { return unsafe.Add(q.base, off) }
	if q.mr, err = q.pd.RegMR(uintptr(q.base), uint64(q.size), verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite); err != nil {
		return err
	}
	q.wrs = unsafe.Slice((*verbs.SendWR)(at(wrs)), n)
	q.rwrs = unsafe.Slice((*verbs.RecvWR)(at(rwrs)), n)
	q.sges = unsafe.Slice((*verbs.SGE)(at(sges)), 2*n)
	q.wcs = make([]verbs.WC, 64)
	q.ops = make([]verbs.PostOp, 1)
	q.data = memoryView{uintptr(at(data)), unsafe.Slice((*byte)(at(data)), ask.dataSize)}
	for i := range n {
		q.sges[i] = verbs.SGE{Addr: uint64(uintptr(at(cqes))) + uint64(i)*nvme.CompletionSize, Length: nvme.CompletionSize, LKey: q.mr.LKey()}
		q.rwrs[i] = verbs.RecvWR{ID: uint64(i), SGList: sgeAddr(&q.sges[i]), NumSGE: 1}
		if err := q.post(verbs.PostOp{Recv: recvAddr(&q.rwrs[i])}); err != nil {
			return err
		}
		q.wrs[i] = verbs.SendWR{ID: 1 << 32, SGList: sgeAddr(&q.sges[n+i]), NumSGE: 1, Opcode: verbs.OpSend, Flags: verbs.SendSignaled}
	}
	return nil
}

func (q *hostQueue) post(op verbs.PostOp) error {
	op.QP = q.qp.Handle()
	q.ops[0] = op
	if q.h.provider.Post(q.ops) != 0 {
		return fmt.Errorf("post failed with errno %d", q.ops[0].Err)
	}
	return nil
}

// close destroys everything, in whatever state.
func (q *hostQueue) close() {
	if q.closed {
		return
	}
	q.closed = true
	check := func(err error) {
		if err != nil {
			q.h.t.Errorf("host: %v", err)
		}
	}
	if q.qp != nil {
		_ = q.id.Disconnect() // it may never have been connected
		check(q.id.DestroyQP())
	}
	if q.id != nil {
		for {
			q.h.drainEvents()
			if err := q.id.Destroy(); !errors.Is(err, errBusy) {
				check(err)
				break
			}
		}
	}
	if q.mr != nil {
		check(q.mr.Dereg())
	}
	if q.cq != nil {
		check(q.cq.Destroy())
	}
	if q.pd != nil {
		check(q.pd.Dealloc())
	}
	if q.base != nil {
		memory.FreeOffHeap(q.base, q.size)
	}
}

// capsuleAt is the i-th slot of outgoing capsules.
func (q *hostQueue) capsuleAt(i int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(q.base, i*q.capsule)), q.capsule)
}

// sendRaw sends a capsule as it is.
func (q *hostQueue) sendRaw(capsule []byte) error {
	i := q.sent % q.depth
	q.sent++
	copy(q.capsuleAt(i), capsule)
	q.sges[q.depth+i] = verbs.SGE{Addr: uint64(uintptr(q.base)) + uint64(i*q.capsule), Length: uint32(len(capsule)), LKey: q.mr.LKey()}
	return q.post(verbs.PostOp{Send: sendAddr(&q.wrs[i])})
}

// send sends a command with data behind it, and names it.
func (q *hostQueue) send(cmd *nvme.Command, data []byte) (cid uint16, err error) {
	q.next++
	cmd.SetCID(q.next)
	cmd.SetPSDT(nvme.PSDTSGL)
	return q.next, q.sendRaw(append(append([]byte(nil), cmd[:]...), data...))
}

// poll takes what has completed.
func (q *hostQueue) poll() int {
	n := q.cq.Poll(q.wcs, 0)
	for i := range max(n, 0) {
		wc := &q.wcs[i]
		if wc.Status != verbs.StatusSuccess {
			if q.failed == 0 {
				q.failed = wc.Status
			}
			continue
		}
		if wc.ID >= 1<<32 {
			continue
		}
		r := reply{}
		copy(r.cqe[:], unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&q.sges[wc.ID].Addr))), nvme.CompletionSize))
		if wc.Invalidated() {
			r.inv = wc.InvalidatedRKey
		}
		q.replies = append(q.replies, r)
		q.kept = append(q.kept, wc.ID)
	}
	if !q.noRepost {
		q.repost()
	}
	return n
}

// repost gives the device the receives that were kept.
func (q *hostQueue) repost() {
	for _, i := range q.kept {
		if err := q.post(verbs.PostOp{Recv: recvAddr(&q.rwrs[i])}); err != nil && q.failed == 0 {
			q.failed = verbs.StatusGeneralErr
		}
	}
	q.kept = q.kept[:0]
}

var errNoReply = errors.New("no response came")

// reply waits for the next response.
func (q *hostQueue) reply() (reply, error) { return q.replyWithin(hostPatience) }

func (q *hostQueue) replyWithin(d time.Duration) (reply, error) {
	end := time.Now().Add(d)
	for n := 0; len(q.replies) == 0; n++ {
		if q.poll() > 0 {
			continue
		}
		if q.failed != 0 {
			return reply{}, fmt.Errorf("the queue failed: %v", q.failed)
		}
		if n%64 == 63 {
			if time.Now().After(end) {
				return reply{}, errNoReply
			}
			q.h.drainEvents()
			if q.gone {
				return reply{}, errors.New("the target disconnected")
			}
			time.Sleep(20 * time.Microsecond)
		}
	}
	r := q.replies[0]
	q.replies = q.replies[:copy(q.replies, q.replies[1:])]
	return r, nil
}

// do sends a command and waits for its response.
func (q *hostQueue) do(cmd *nvme.Command, data []byte) (reply, error) {
	cid, err := q.send(cmd, data)
	if err != nil {
		return reply{}, err
	}
	r, err := q.reply()
	if err == nil && r.cqe.CID() != cid {
		err = fmt.Errorf("the response is for command %d, not %d", r.cqe.CID(), cid)
	}
	return r, err
}

// key makes a command's SGL one keyed block of the queue's data.
func (q *hostQueue) key(cmd *nvme.Command, off, n int) {
	cmd.SGL().SetKeyed(nvme.SGLAddress, uint64(q.data.addr)+uint64(off), uint32(n), q.mr.RKey())
}

// inCapsule makes a command's SGL data in its capsule.
func inCapsule(cmd *nvme.Command, off, n int) {
	cmd.SGL().SetDataBlock(nvme.SGLDataBlock, nvme.SGLOffset, uint64(off), uint32(n))
}

// connect sends the Connect command; inline: with its data in the capsule.
func (q *hostQueue) connect(subsystem string, qid, cntlid uint16, inline bool) (reply, error) {
	var cmd nvme.Command
	cmd.SetOpcode(nvme.OpFabrics)
	cmd.SetFCType(nvme.FabricsConnect)
	cmd.SetQID(qid)
	cmd.SetSQSIZE(uint16(q.depth - 1))
	if qid == 0 {
		cmd.SetKATO(120000)
	}
	d := nvme.ConnectData{HostID: q.h.id, CNTLID: cntlid, SubNQN: nvme.MakeNQNField(subsystem), HostNQN: nvme.MakeNQNField(q.h.nqn)}
	var b [nvme.ConnectDataSize]byte
	d.MarshalTo(b[:])
	if inline {
		inCapsule(&cmd, 0, len(b))
		return q.do(&cmd, b[:])
	}
	copy(q.data.b, b[:])
	q.key(&cmd, 0, len(b))
	return q.do(&cmd, nil)
}

// property reads or writes a controller property.
func (q *hostQueue) property(set bool, off uint32, size uint8, v uint64) (uint64, error) {
	var cmd nvme.Command
	cmd.SetOpcode(nvme.OpFabrics)
	cmd.SetFCType(nvme.FabricsPropertyGet)
	if set {
		cmd.SetFCType(nvme.FabricsPropertySet)
		cmd.SetVALUE(v)
	}
	cmd.SetATTRIB(size)
	cmd.SetOFST(off)
	cmd.SGL().SetKeyed(nvme.SGLAddress, 0, 0, 0)
	r, err := q.do(&cmd, nil)
	if err == nil && !r.cqe.Status().IsOK() {
		err = fmt.Errorf("property %#x: status %v", off, r.cqe.Status())
	}
	return r.cqe.Result64(), err
}

// controller is an association: an admin queue of an enabled controller.
type controller struct {
	*hostQueue
	host   *host
	cntlid uint16
	addr   netip.AddrPort
	sub    string
}

// attach connects an admin queue and enables the controller.
func (h *host) attach(addr netip.AddrPort, sub string) (*controller, error) {
	q, err := h.dial(addr, queueAsk{})
	if err != nil {
		return nil, err
	}
	r, err := q.connect(sub, 0, nvme.CNTLIDDynamic, false)
	if err != nil {
		return nil, err
	}
	if !r.cqe.Status().IsOK() {
		return nil, fmt.Errorf("connect: %v, dword 0 %#x", r.cqe.Status(), r.cqe.DW0())
	}
	c := &controller{hostQueue: q, host: h, cntlid: uint16(r.cqe.DW0()), addr: addr, sub: sub}
	cc := nvme.CC(0).WithIOSQES(nvme.IOSQES).WithIOCQES(nvme.IOCQES).WithEN(true)
	if _, err := c.property(true, nvme.RegCC, nvme.PropertySize4, uint64(cc)); err != nil {
		return nil, err
	}
	for end := time.Now().Add(hostPatience); ; {
		v, err := c.property(false, nvme.RegCSTS, nvme.PropertySize4, 0)
		if err != nil {
			return nil, err
		}
		if v&1 != 0 {
			return c, nil
		}
		if time.Now().After(end) {
			return nil, errors.New("the controller does not become ready")
		}
	}
}

// ioQueue connects an I/O queue.
func (c *controller) ioQueue(ask queueAsk) (*hostQueue, error) {
	q, err := c.host.dial(c.addr, ask)
	if err != nil {
		return nil, err
	}
	r, err := q.connect(c.sub, ask.qid, c.cntlid, true)
	if err != nil {
		return nil, err
	}
	if !r.cqe.Status().IsOK() {
		return nil, fmt.Errorf("connect of queue %d: %v, dword 0 %#x", ask.qid, r.cqe.Status(), r.cqe.DW0())
	}
	return q, nil
}

// rw is a read or write of blocks by key.
func (q *hostQueue) rw(op nvme.Opcode, lba uint64, blocks, off, size int) *nvme.Command {
	cmd := rwCommand(op, lba, blocks)
	q.key(cmd, off, size)
	return cmd
}

func rwCommand(op nvme.Opcode, lba uint64, blocks int) *nvme.Command {
	var cmd nvme.Command
	cmd.SetOpcode(op)
	cmd.SetNSID(1)
	cmd.SetSLBA(lba)
	cmd.SetNLB(uint32(blocks))
	return &cmd
}

func (q *hostQueue) must(_ uint16, err error) {
	q.h.t.Helper()
	if err != nil {
		q.h.t.Fatal(err)
	}
}

// ended tells whether the target let go of the queue.
func (q *hostQueue) ended() error {
	q.h.drainEvents()
	q.poll()
	if q.gone || q.failed != 0 {
		return nil
	}
	return errors.New("still connected")
}
