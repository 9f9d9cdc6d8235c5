package rdma

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"rocet/cgo/verbs"
	"rocet/memory"
)

// device is one RDMA device in use: its protection domain, its keys for every slab
// of the pool, and the lanes that the reactors have on it.
type device struct {
	t    *Transport
	v    verbs.Device
	name string
	attr verbs.DeviceAttr
	pd   verbs.PD

	// Keys by slab. An entry is written before any segment of its slab is handed
	// out and stays until none is left.
	lkeys []uint32
	mrs   []verbs.MR

	conns  sync.WaitGroup // connections that refer to the device
	waiter *verbs.Waiter
	async  sync.WaitGroup

	mu       sync.Mutex
	lanes    map[*shard][]*lane
	qps      map[uint32]*conn
	ioQueues int
	down     bool
}

// openDevice makes a device ready: every slab of the pool is registered with it.
func openDevice(t *Transport, v verbs.Device) (*device, error) {
	d := &device{
		t: t, v: v, name: v.Name(), attr: v.Attr(),
		lkeys: make([]uint32, memory.MaxSlabs), mrs: make([]verbs.MR, memory.MaxSlabs),
		lanes: make(map[*shard][]*lane), qps: make(map[uint32]*conn),
	}
	var err error
	if d.pd, err = v.AllocPD(); err != nil {
		return nil, fmt.Errorf("rdma: device %s: %w", d.name, err)
	}
	began := time.Now()
	if err = t.pool.AddRegistrant(d); err != nil {
		d.pd.Dealloc()
		return nil, fmt.Errorf("rdma: device %s: %w", d.name, err)
	}
	if d.waiter, err = verbs.NewWaiter(v.AsyncFD()); err != nil {
		t.pool.RemoveRegistrant(d)
		d.pd.Dealloc()
		return nil, fmt.Errorf("rdma: device %s: %w", d.name, err)
	}
	d.async.Go(d.watch)
	t.log.Info("RDMA device in use", "device", d.name, "firmware", d.attr.Firmware, "registered_in", time.Since(began).Round(time.Millisecond))
	return d, nil
}

func (d *device) String() string { return "RDMA device " + d.name }

// RegisterSlab and UnregisterSlab implement memory.Registrant. Hosts reach none of
// this memory; it is only what this side's own requests read and fill.
func (d *device) RegisterSlab(s *memory.Slab) error {
	access := verbs.AccessLocalWrite | verbs.AccessRelaxedOrder
	if d.attr.Transport == verbs.TransportIWARP {
		access |= verbs.AccessRemoteWrite // the sink of an iWARP READ needs it
	}
	mr, err := d.pd.RegMR(s.Base, s.Size, access)
	if err != nil {
		return err
	}
	d.mrs[s.Index], d.lkeys[s.Index] = mr, mr.LKey()
	return nil
}

func (d *device) UnregisterSlab(s *memory.Slab) {
	mr := d.mrs[s.Index]
	d.mrs[s.Index], d.lkeys[s.Index] = nil, 0
	if err := mr.Dereg(); err != nil {
		d.t.log.Error("take a memory region back", "device", d.name, "error", err)
	}
}

func (d *device) lkey(slab uint32) uint32 { return d.lkeys[slab] }

// ---- lanes ----

var errDeviceDown = errors.New("the device is gone")

// join finds room on a lane of the connection's reactor, or makes one. I/O queues
// share receives as the policy says.
func (d *device) join(c *conn) (*lane, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down {
		return nil, errDeviceDown
	}
	shared := !c.prop.admin() && d.sharesReceives()
	need := c.spec.cqes(shared)
	var found *lane
	for _, l := range d.lanes[c.shard] {
		if (l.srq != nil) == shared && !l.retired && l.cqesFree >= need {
			found = l
			break
		}
	}
	if found == nil {
		l, err := d.newLane(c.shard, shared, need)
		if err != nil && shared {
			d.t.log.Warn("a queue gets receives of its own", "device", d.name, "error", err)
			shared = false
			need = c.spec.cqes(false)
			l, err = d.newLane(c.shard, false, need)
		}
		if err != nil {
			return nil, err
		}
		found = l
	}
	found.cqesFree -= need
	if !c.prop.admin() {
		d.ioQueues++
	}
	c.laneIndex, c.laneGen = found.take()
	return found, nil
}

// sharesReceives tells whether the next I/O queue does. d.mu is held.
func (d *device) sharesReceives() bool {
	if d.attr.MaxSRQ == 0 || d.attr.MaxSRQSGE < recvSGEs {
		return false
	}
	switch d.t.cfg.SRQ {
	case SRQOn:
		return true
	case SRQOff:
		return false
	}
	return d.ioQueues >= srqAutoQueues
}

// take reserves an entry of the lane's table. Its device's lock is held.
func (l *lane) take() (index, gen uint16) {
	i := 0
	for i < len(l.slots) && l.slots[i].used {
		i++
	}
	if i == len(l.slots) {
		l.slots = append(l.slots, laneSlot{})
	}
	l.slots[i].used = true
	l.slots[i].gen++
	return uint16(i), l.slots[i].gen
}

// leave gives a connection's place on its lane back.
func (d *device) leave(c *conn) {
	l := c.lane
	d.mu.Lock()
	l.slots[c.laneIndex].used = false
	l.cqesFree += c.spec.cqes(l.srq != nil)
	if !c.prop.admin() {
		d.ioQueues--
	}
	dead := l.retired && !l.inUse()
	if dead {
		d.unlink(l)
	}
	d.mu.Unlock()
	if dead {
		d.closeLane(l)
	}
}

func (l *lane) inUse() bool {
	for i := range l.slots {
		if l.slots[i].used {
			return true
		}
	}
	return false
}

func (d *device) unlink(l *lane) {
	lanes := d.lanes[l.shard]
	for i := range lanes {
		if lanes[i] == l {
			d.lanes[l.shard] = append(lanes[:i:i], lanes[i+1:]...)
			return
		}
	}
}

// retire takes a lane whose completion queue failed out of use. Called on its
// reactor, so what takes a lock happens elsewhere.
func (d *device) retire(l *lane, reason error) {
	go func() {
		d.t.log.Error("a completion queue failed; its connections are dropped", "device", d.name, "reactor", l.shard.r.ID(), "error", reason)
		d.mu.Lock()
		l.retired = true
		dead := !l.inUse() && !d.down
		if dead {
			d.unlink(l)
		}
		d.mu.Unlock()
		if dead {
			d.closeLane(l)
		}
	}()
}

// newLane makes a completion queue with room for need completions and more, each
// one bigger than the one before, and puts it on its reactor. d.mu is held.
func (d *device) newLane(s *shard, shared bool, need int) (*lane, error) {
	entries := d.t.cfg.CQEntries << (2 * min(len(d.lanes[s]), 8))
	srqDepth := 0
	if shared {
		srqDepth = min(d.t.cfg.SRQDepth, d.attr.MaxSRQWR)
		need += srqDepth
	}
	entries = min(max(entries, need), d.attr.MaxCQE)
	if entries < need {
		return nil, fmt.Errorf("a queue needs %d completion entries, the device has %d at most: lower the queue depth", need, d.attr.MaxCQE)
	}
	cq, err := d.v.CreateCQ(verbs.CQAttr{Entries: entries, Vector: s.r.ID() % max(1, d.attr.CompVectors), Events: true})
	if err != nil {
		return nil, fmt.Errorf("create a completion queue of %d entries: %w", entries, err)
	}
	l := &lane{dev: d, shard: s, cq: cq, post: d.t.provider, cqesFree: max(entries, cq.Entries()) - srqDepth}
	l.cqesFree = min(l.cqesFree, d.attr.MaxCQE-srqDepth)
	if shared {
		if l.srq, err = newSharedRecvs(d.t, d, srqDepth); err != nil {
			cq.Destroy()
			return nil, err
		}
	}
	l.mem = newBlock(carved[verbs.WC](pollBatch))
	l.wcs = carve[verbs.WC](&l.mem, pollBatch)
	if !s.r.Call(func() { s.r.Add(l) }) {
		d.freeLane(l)
		return nil, fmt.Errorf("reactor %d has stopped", s.r.ID())
	}
	d.lanes[s] = append(d.lanes[s], l)
	return l, nil
}

// closeLane takes a lane without queues off its reactor and destroys it.
func (d *device) closeLane(l *lane) {
	l.shard.r.Call(func() { l.shard.r.Remove(l) })
	d.t.keepStats(l)
	d.freeLane(l)
}

func (d *device) freeLane(l *lane) {
	if l.srq != nil {
		if err := l.srq.srq.Destroy(); err != nil {
			d.t.log.Error("destroy a shared receive queue", "device", d.name, "error", err)
		}
		l.srq.recvs.release(&d.t.capsules)
	}
	if err := l.cq.Destroy(); err != nil {
		d.t.log.Error("destroy a completion queue", "device", d.name, "error", err)
	}
	l.mem.release()
}

// ---- connections and asynchronous events ----

func (d *device) list(qpn uint32, c *conn) {
	d.mu.Lock()
	d.qps[qpn] = c
	d.mu.Unlock()
}

func (d *device) unlist(qpn uint32) {
	d.mu.Lock()
	delete(d.qps, qpn)
	d.mu.Unlock()
}

func (d *device) conn(qpn uint32) *conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.qps[qpn]
}

// watch is the goroutine that takes the device's asynchronous events.
func (d *device) watch() {
	for {
		ev, err := d.v.AsyncEvent()
		switch {
		case err == nil:
			d.event(ev)
		case errors.Is(err, verbs.ErrAgain):
			if d.waiter.Wait() != nil {
				return // closed
			}
		default:
			d.t.log.Error("the device's asynchronous events are lost", "device", d.name, "error", err)
			d.t.deviceGone(d.v, err.Error())
			return
		}
	}
}

func (d *device) event(ev verbs.AsyncEvent) {
	signal := uint32(0)
	switch ev.Type {
	case verbs.AsyncQPFatal, verbs.AsyncQPReqErr, verbs.AsyncQPAccessErr:
		signal = sigFatal
	case verbs.AsyncCommEst:
		signal = sigCommEst
	case verbs.AsyncQPLastWQEReached:
		signal = sigLastWQE
	case verbs.AsyncCQErr, verbs.AsyncSRQErr:
		d.laneFailed(ev)
	case verbs.AsyncDeviceFatal:
		d.t.deviceGone(d.v, "it reports a fatal error")
	case verbs.AsyncPortErr, verbs.AsyncPortActive:
		d.t.log.Info("port changed", "device", d.name, "port", ev.Port, "event", ev.Type.String())
	default:
		d.t.log.Debug("asynchronous event", "device", d.name, "event", ev.Type.String())
	}
	if signal == 0 {
		return
	}
	if c := d.conn(ev.QPNum); c != nil {
		if signal == sigFatal {
			err := fmt.Errorf("the device reports %v", ev.Type)
			c.reason.CompareAndSwap(nil, &err)
		}
		c.signal(signal)
	}
}

// laneFailed ends the lane whose queue an event names.
func (d *device) laneFailed(ev verbs.AsyncEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, lanes := range d.lanes {
		for _, l := range lanes {
			if ev.CQ != nil && l.cq == ev.CQ || ev.SRQ != nil && l.srq != nil && l.srq.srq == ev.SRQ {
				l.shard.r.Post(func() { l.fail(fmt.Errorf("the device reports %v", ev.Type)) })
			}
		}
	}
}

// goDown ends the device's connections, once, and tells whether it was up.
func (d *device) goDown() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down {
		return false
	}
	d.down = true
	for _, c := range d.qps {
		c.signal(sigGone)
	}
	return true
}

// close takes the device apart after its connections are gone.
func (d *device) close() {
	d.conns.Wait()
	d.mu.Lock()
	d.down = true
	all := d.lanes
	d.lanes = nil
	d.mu.Unlock()
	for _, lanes := range all {
		for _, l := range lanes {
			d.closeLane(l)
		}
	}
	d.t.pool.RemoveRegistrant(d)
	if err := d.pd.Dealloc(); err != nil {
		d.t.log.Error("give a protection domain back", "device", d.name, "error", err)
	}
	d.waiter.Close()
}
