package rdma

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"rocet/cgo/verbs"
	"rocet/memory"
	"rocet/nvme"
	"rocet/target"
)

// heavyCalls is how many queue pairs are created or destroyed at a time: each takes
// up to 20 ms of a core and of the device's command queue.
const heavyCalls = 4

// deviceScan is after how many retry intervals the transport looks for devices that
// came, or came back. A connection finds its device at once.
const deviceScan = 5

// Transport serves a target over RDMA. Its methods may be called from any
// goroutine but a reactor's.
type Transport struct {
	cfg      Config
	log      *slog.Logger
	target   *target.Target
	pool     *memory.Pool
	provider verbs.Provider
	shards   []*shard
	capsules capsules

	channel verbs.EventChannel
	waiter  *verbs.Waiter
	events  sync.WaitGroup // the event loop
	heavies chan struct{}
	stop    chan struct{}
	tasks   sync.WaitGroup // scan, and devices that are taken apart
	running sync.WaitGroup // connections

	opening sync.Mutex // serializes the making of devices, which may take seconds

	mu        sync.Mutex
	closed    bool
	devices   map[verbs.Device]*device
	conns     map[*conn]struct{}
	listeners map[*Listener]struct{}
	halfOpen  int
	hosts     map[string]int
	rejects   [16]uint64 // by status
	accepted  uint64
	past      LaneStats // of lanes that are gone
}

// New starts the transport on every RDMA device that is there. It has no listener
// yet. Devices that can't be used are logged, and tried again.
func New(o Options) (*Transport, error) {
	if o.Target == nil || o.Pool == nil || o.Provider == nil {
		return nil, errors.New("rdma: Target, Pool and Provider must be set")
	}
	if err := o.Config.setDefaults(); err != nil {
		return nil, err
	}
	t := &Transport{
		cfg: o.Config, log: o.Log, target: o.Target, pool: o.Pool, provider: o.Provider,
		capsules: capsules{pool: o.Pool},
		heavies:  make(chan struct{}, heavyCalls), stop: make(chan struct{}),
		devices: make(map[verbs.Device]*device), conns: make(map[*conn]struct{}),
		listeners: make(map[*Listener]struct{}), hosts: make(map[string]int),
	}
	if t.log == nil {
		t.log = slog.Default()
	}
	size, groups := o.Pool.Stats().Bytes, o.Target.Groups()
	if size/uint64(len(groups)) < 2*uint64(o.Target.MDTS()) {
		return nil, fmt.Errorf("rdma: a pool of %d bytes is too small for %d reactors and commands of %d bytes: raise memory.size to at least %d",
			size, len(groups), o.Target.MDTS(), 2*uint64(o.Target.MDTS())*uint64(len(groups)))
	}
	for _, g := range groups {
		t.shards = append(t.shards, newShard(g, shareOf(size, len(groups), o.Target.MDTS())))
	}
	var err error
	if t.channel, err = o.Provider.NewEventChannel(); err != nil {
		return nil, fmt.Errorf("rdma: %w", err)
	}
	if t.waiter, err = verbs.NewWaiter(t.channel.FD()); err != nil {
		t.channel.Close()
		return nil, fmt.Errorf("rdma: %w", err)
	}
	t.scan(true)
	t.events.Go(t.eventLoop)
	t.tasks.Go(t.scanLoop)
	return t, nil
}

// Close ends every listener and every connection, waits for them, and gives all
// devices back. The reactors must still run.
func (t *Transport) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	var ls []*Listener
	for l := range t.listeners {
		ls = append(ls, l)
	}
	t.mu.Unlock()
	close(t.stop)
	for _, l := range ls {
		l.Close()
	}
	t.mu.Lock()
	for c := range t.conns {
		c.signal(sigStop)
	}
	t.mu.Unlock()
	t.running.Wait()
	t.tasks.Wait()
	t.mu.Lock()
	var ds []*device
	for _, d := range t.devices {
		ds = append(ds, d)
	}
	t.mu.Unlock()
	for _, d := range ds {
		d.close()
		d.async.Wait()
	}
	t.waiter.Close()
	t.events.Wait()
	return errors.Join(t.channel.Close(), t.capsules.close())
}

// heavy runs a call that takes milliseconds of the device.
func (t *Transport) heavy(fn func()) {
	t.heavies <- struct{}{}
	defer func() { <-t.heavies }()
	fn()
}

// ---- devices ----

// deviceFor finds the device that an id is bound to, or makes it ready, and counts
// a connection on it.
func (t *Transport) deviceFor(v verbs.Device) (*device, error) {
	d, err := t.open(v)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down {
		return nil, errDeviceDown
	}
	d.conns.Add(1)
	return d, nil
}

func (t *Transport) open(v verbs.Device) (*device, error) {
	t.mu.Lock()
	d := t.devices[v]
	t.mu.Unlock()
	if d != nil {
		return d, nil
	}
	t.opening.Lock()
	defer t.opening.Unlock()
	t.mu.Lock()
	d, closed := t.devices[v], t.closed
	t.mu.Unlock()
	switch {
	case closed:
		return nil, errors.New("rdma: the transport is closed")
	case d != nil:
		return d, nil
	}
	d, err := openDevice(t, v)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.devices[v] = d
	t.mu.Unlock()
	return d, nil
}

// scan makes ready what devices there are.
func (t *Transport) scan(first bool) {
	devices, err := t.provider.Devices()
	if err != nil {
		if first {
			t.log.Warn("no RDMA device yet", "error", err)
		}
		return
	}
	for _, v := range devices {
		if _, err := t.open(v); err != nil {
			t.log.Warn("an RDMA device can't be used", "device", v.Name(), "error", err)
		}
	}
}

func (t *Transport) scanLoop() {
	tick := time.NewTicker(deviceScan * t.cfg.RetryInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			t.scan(false)
		case <-t.stop:
			return
		}
	}
}

// deviceGone drops what lives on a device and takes it apart. When it is back, a
// scan or a connection makes it anew.
func (t *Transport) deviceGone(v verbs.Device, why string) {
	t.mu.Lock()
	d := t.devices[v]
	if d == nil || t.closed || !d.goDown() {
		t.mu.Unlock()
		return
	}
	for l := range t.listeners {
		l.deviceGone(v)
	}
	t.tasks.Add(1)
	t.mu.Unlock()
	t.log.Error("an RDMA device is lost", "device", d.name, "reason", why)
	go func() {
		defer t.tasks.Done()
		d.close()
		d.async.Wait()
		t.closeDevice(v)
		t.mu.Lock()
		delete(t.devices, v)
		t.mu.Unlock()
		t.log.Info("what was on the RDMA device is cleared away", "device", d.name)
	}()
}

// closeDevice gives a lost device back to the library, once listeners have left it.
func (t *Transport) closeDevice(v verbs.Device) {
	var err error
	for range 50 {
		if err = v.Close(); err == nil || !errors.Is(err, errBusy) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		t.log.Warn("a lost RDMA device is not closed", "device", v.Name(), "error", err)
	}
}

// ---- connections ----

// eventLoop takes the events of rdma_cm. It only hands them on, and acknowledges
// each at once: ids are destroyed by other goroutines, never in here.
func (t *Transport) eventLoop() {
	for {
		ev, err := t.channel.Next()
		if errors.Is(err, verbs.ErrAgain) {
			if t.waiter.Wait() != nil {
				return
			}
			continue
		}
		if err != nil {
			t.log.Error("the connection manager's events are lost; new connections will fail", "error", err)
			return
		}
		if ev.Type == verbs.EventConnectRequest {
			c := t.connRequest(ev)
			ev.Ack()
			go c.run()
			continue
		}
		switch ctx := ev.ID.Context().(type) {
		case *conn:
			ctx.event(ev)
		case *Listener:
			ctx.event(ev)
		}
		ev.Ack()
	}
}

// connRequest makes the connection of a connect request.
func (t *Transport) connRequest(ev *verbs.Event) *conn {
	c := &conn{
		t: t, id: ev.ID, kick: make(chan struct{}, 1), began: time.Now(),
		request: connectRequest{private: ev.PrivateData, readDepth: ev.InitiatorDepth},
		host:    hostOf(ev.ID.RemoteAddr()),
	}
	if ev.Listen != nil {
		c.listener, _ = ev.Listen.Context().(*Listener)
	}
	c.log = t.log.With("host", c.host)
	ev.ID.SetContext(c)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running.Add(1)
	t.conns[c] = struct{}{}
	if t.halfOpen < t.cfg.MaxHalfOpen && !t.closed {
		c.halfOpen = true
		t.halfOpen++
	}
	t.hosts[c.host]++
	if t.closed {
		c.signal(sigStop)
	}
	return c
}

// active is a connection's first command.
func (t *Transport) active(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.halfOpen {
		c.halfOpen = false
		t.halfOpen--
		t.accepted++
	}
}

func (t *Transport) connEnded(c *conn) {
	t.mu.Lock()
	if c.halfOpen {
		t.halfOpen--
	}
	if c.shard != nil {
		c.shard.load -= weight(c.prop)
	}
	if t.hosts[c.host]--; t.hosts[c.host] == 0 {
		delete(t.hosts, c.host)
	}
	delete(t.conns, c)
	t.mu.Unlock()
	t.running.Done()
}

func (t *Transport) rejected(st nvme.RDMACMStatus) {
	t.mu.Lock()
	t.rejects[st&15]++
	t.mu.Unlock()
}

// weight is what a connection counts for in placing others: I/O queues carry the
// load, in proportion to what they may have under way.
func weight(p proposal) int {
	if p.admin() {
		return 1
	}
	return 1 + int(p.depth)
}

// place chooses the reactor whose connections weigh least.
func (t *Transport) place(p proposal) *shard {
	t.mu.Lock()
	defer t.mu.Unlock()
	best := t.shards[0]
	for _, s := range t.shards[1:] {
		if s.load < best.load {
			best = s
		}
	}
	best.load += weight(p)
	return best
}
