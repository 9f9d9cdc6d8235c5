package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"rocet/nvme"
)

// Controller is a connected controller: an association of this host with a subsystem. Its methods may be called from any
// goroutine.
type Controller struct {
	opts   Options
	addr   netip.AddrPort
	fabric *fabric // RDMA
	admin  adminQueue
	id     uint16
	cap    nvme.CAP
	ver    nvme.Version
	info   nvme.IdentifyController
	maxIO  uint32 // bytes of one command; 0 until known

	stop   context.CancelFunc // of the keep-alive
	ctx    context.Context
	wg     sync.WaitGroup
	mu     sync.Mutex
	closed bool
	broken error
	qids   []bool // I/O queues in use, by identifier less 1
}

// Dial connects to a subsystem and enables its controller. Without an error the caller ends it with Close.
func Dial(ctx context.Context, o Options) (c *Controller, err error) {
	if o, err = o.withDefaults(); err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	c = &Controller{opts: o}
	c.ctx, c.stop = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			c.stop()
			c.admin.close(ErrClosed)
			c.fabric.release()
			c, err = nil, fmt.Errorf("host: %s: %w", o.URL(), err)
		}
	}()
	limited, cancel := context.WithTimeoutCause(ctx, o.Connect, fmt.Errorf("the target does not answer within %v", o.Connect))
	defer cancel()
	if c.addr, err = lookup(limited, o.Address, o.Port); err != nil {
		return c, err
	}
	if o.Transport == RDMA {
		if c.fabric, err = openFabric(&c.opts); err != nil {
			return c, err
		}
	}
	q, result, err := c.connect(limited, 0, o.AdminDepth)
	if err != nil {
		return c, err
	}
	q.onClose = func() { c.lost(q.err) }
	c.id = uint16(result)
	if err = c.admin.init(c, q); err != nil {
		q.fail(ErrClosed)
		return c, err
	}
	if result&(nvme.ConnectAuthATR|nvme.ConnectAuthASCR) != 0 {
		return c, &ConnectError{NQN: o.NQN, Status: nvme.StatusAuthRequired}
	}
	if err = c.enable(ctx); err != nil {
		return c, err
	}
	if c.info, err = c.IdentifyController(ctx); err != nil {
		return c, err
	}
	if err = c.limits(); err != nil {
		return c, err
	}
	granted := 0
	if c.info.CNTRLTYPE != nvme.ControllerDiscovery && o.NQN != nvme.DiscoveryNQN {
		if granted, err = c.setQueueCount(ctx, o.IOQueues); err != nil {
			return c, err
		}
	}
	c.qids = make([]bool, granted)
	if o.KeepAlive > 0 {
		c.wg.Go(c.keepAlive)
	}
	return c, nil
}

// lookup finds the address of a name.
func lookup(ctx context.Context, address string, port uint16) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(address); err == nil {
		return netip.AddrPortFrom(a, port), nil
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if len(addrs) == 0 {
		return netip.AddrPort{}, fmt.Errorf("%s has no address", address)
	}
	return netip.AddrPortFrom(addrs[0].Unmap(), port), nil
}

// connect makes a queue: its connection and the Connect command (Base 2.1 section 6.3). The result is dword 0.
func (c *Controller) connect(ctx context.Context, qid uint16, depth int) (*Queue, uint32, error) {
	q := newQueue(c, qid, depth)
	var err error
	if c.opts.Transport == RDMA {
		err = c.fabric.dial(ctx, q)
	} else {
		_, err = dialTCP(ctx, &c.opts, q, c.addr)
	}
	if err != nil {
		return nil, 0, err
	}
	m, err := c.newMemory(nvme.ConnectDataSize)
	if err != nil {
		q.fail(ErrClosed)
		return nil, 0, err
	}
	var io IO
	data := nvme.ConnectData{HostID: c.opts.HostID, CNTLID: nvme.CNTLIDDynamic,
		SubNQN: nvme.MakeNQNField(c.opts.NQN), HostNQN: nvme.MakeNQNField(c.opts.HostNQN)}
	io.Cmd.SetOpcode(nvme.OpFabrics)
	io.Cmd.SetFCType(nvme.FabricsConnect)
	io.Cmd.SetQID(qid)
	io.Cmd.SetSQSIZE(uint16(depth)) // one entry of the queue stays free: 0-based
	if qid != 0 {
		data.CNTLID = c.id
	} else if c.opts.KeepAlive > 0 {
		io.Cmd.SetKATO(uint32(c.opts.KeepAlive.Milliseconds()))
	}
	data.MarshalTo(m.Bytes())
	io.SetData(m, 0, nvme.ConnectDataSize)
	err = q.execute(ctx, &io)
	if err == nil && !io.Status.IsOK() {
		err = &ConnectError{NQN: c.opts.NQN, QID: qid, Status: io.Status, DW0: uint32(io.Result)}
	}
	if err != nil {
		q.fail(ErrClosed)
	}
	if ferr := m.Free(); err == nil && ferr != nil {
		q.fail(ErrClosed)
		err = ferr
	}
	if err != nil {
		return nil, 0, err
	}
	return q, uint32(io.Result), nil
}

// enable sets CC.EN and waits for CSTS.RDY (Base 2.1 section 3.5.1).
func (c *Controller) enable(ctx context.Context) error {
	v, err := c.Property(ctx, nvme.RegCAP)
	if err != nil {
		return err
	}
	c.cap = nvme.CAP(v)
	if v, err = c.Property(ctx, nvme.RegVS); err != nil {
		return err
	}
	c.ver = nvme.Version(v)
	if min := c.cap.MPSMIN(); min > 0 {
		return fmt.Errorf("the controller's smallest page is %d bytes (CAP.MPSMIN %d): only 4096 is supported", 4096<<min, min)
	}
	cc := nvme.CC(0).WithEN(true).WithIOSQES(nvme.IOSQES).WithIOCQES(nvme.IOCQES)
	if c.cap.CSS()&nvme.CAPCSSNVM == 0 && c.cap.CSS()&nvme.CAPCSSIOCSS != 0 {
		cc = cc.WithCSS(nvme.CCCSSAll)
	}
	if err := c.SetProperty(ctx, nvme.RegCC, uint64(cc)); err != nil {
		return err
	}
	limit := max(c.cap.Timeout(), 500*time.Millisecond)
	return c.awaitStatus(ctx, limit, "become ready", nvme.CSTS.RDY)
}

// awaitStatus reads CSTS until it is as wished, and no longer than limit.
func (c *Controller) awaitStatus(ctx context.Context, limit time.Duration, what string, ok func(nvme.CSTS) bool) error {
	end := time.Now().Add(limit)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		v, err := c.Property(ctx, nvme.RegCSTS)
		if err != nil {
			return err
		}
		st := nvme.CSTS(v)
		switch {
		case ok(st):
			return nil
		case st.CFS():
			return fmt.Errorf("the controller has failed (CSTS %#x has CFS): look at the target's log", v)
		case time.Now().After(end):
			return fmt.Errorf("the controller does not %s within %v (CSTS %#x): look at the target's log", what, limit, v)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// limits takes what Identify Controller says about transfers.
func (c *Controller) limits() error {
	c.maxIO = 16 << 20
	if c.info.MDTS > 0 && c.info.MDTS < 12 {
		c.maxIO = 4096 << c.info.MDTS
	}
	if c.opts.Transport == RDMA {
		c.maxIO = min(c.maxIO, nvme.SGLMaxKeyedLength)
	}
	switch {
	case c.info.ICDOFF != 0:
		return fmt.Errorf("the controller's in-capsule data begins at %d (ICDOFF): only 0 is supported", c.info.ICDOFF)
	case c.info.CNTRLTYPE == nvme.ControllerDiscovery || c.opts.NQN == nvme.DiscoveryNQN:
		return nil
	case c.info.IOCCSZ < nvme.CommandSize/16 || c.info.IORCSZ < nvme.CompletionSize/16:
		return fmt.Errorf("the controller's capsules are too small: IOCCSZ %d, IORCSZ %d, want at least 4 and 1", c.info.IOCCSZ, c.info.IORCSZ)
	}
	return nil
}

// inCapsule is how much data a command of an I/O queue may carry.
func (c *Controller) inCapsule() uint32 {
	if c.opts.NoInCapsule || c.info.IOCCSZ <= nvme.CommandSize/16 {
		return 0
	}
	return min(c.info.IOCCSZ*16, 1<<20) - nvme.CommandSize
}

// maxTransfer is the most data of a command, until it is known that of Connect and Identify.
func (c *Controller) maxTransfer() uint32 {
	if c.maxIO == 0 {
		return nvme.IdentifySize
	}
	return c.maxIO
}

// MaxTransfer is the most bytes that one command may move.
func (c *Controller) MaxTransfer() uint32 { return c.maxIO }

// CNTLID is the controller's identifier.
func (c *Controller) CNTLID() uint16 { return c.id }

// CAP is the controller's CAP property.
func (c *Controller) CAP() nvme.CAP { return c.cap }

// Version is the controller's VS property.
func (c *Controller) Version() nvme.Version { return c.ver }

// Info is what Identify Controller said when the controller was connected.
func (c *Controller) Info() *nvme.IdentifyController { return &c.info }

// Address is the target's.
func (c *Controller) Address() netip.AddrPort { return c.addr }

// IOQueues is how many I/O queues the controller granted.
func (c *Controller) IOQueues() int { return len(c.qids) }

// MaxDepth is the deepest that an I/O queue can be: one entry of its ring stays free.
func (c *Controller) MaxDepth() int { return min(int(c.cap.MQES()), maxDepth) }

// NewMemory makes memory for the data of commands on this controller's queues.
func (c *Controller) NewMemory(size int) (*Memory, error) { return c.newMemory(size) }

func (c *Controller) newMemory(size int) (*Memory, error) {
	m, err := newMemory(size)
	if err != nil || c.fabric == nil {
		return m, err
	}
	if err := c.fabric.register(m); err != nil {
		_ = m.Free()
		return nil, err
	}
	return m, nil
}

// NewQueue connects an I/O queue for depth commands at once.
func (c *Controller) NewQueue(ctx context.Context, depth int) (*Queue, error) {
	if depth < 1 || depth > c.MaxDepth() {
		return nil, fmt.Errorf("host: an I/O queue for %d commands: this controller takes 1 to %d", depth, c.MaxDepth())
	}
	qid, err := c.takeQID()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.opts.Connect, fmt.Errorf("the target does not answer within %v", c.opts.Connect))
	defer cancel()
	q, _, err := c.connect(ctx, qid, depth)
	if err != nil {
		c.dropQID(qid)
		return nil, fmt.Errorf("host: queue %d of %s: %w", qid, c.opts.URL(), err)
	}
	q.capsule = c.inCapsule()
	q.onClose = func() { c.dropQID(qid) }
	return q, nil
}

func (c *Controller) takeQID() (uint16, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, ErrClosed
	}
	for i, used := range c.qids {
		if !used {
			c.qids[i] = true
			return uint16(i + 1), nil
		}
	}
	return 0, fmt.Errorf("host: all %d I/O queues that the controller granted are in use: ask for more in Options.IOQueues, or close one", len(c.qids))
}

func (c *Controller) dropQID(qid uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.qids[qid-1] = false
}

// shutdownLimit bounds the shutdown of a controller that does not say how long it takes (RTD3E).
const shutdownLimit = 5 * time.Second

// Close shuts the controller down and disconnects. The I/O queues are to be closed before, by those who poll them.
func (c *Controller) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.wg.Wait()
	err := c.shutdown()
	c.admin.close(ErrClosed)
	if ferr := c.fabric.release(); err == nil {
		err = ferr
	}
	return err
}

// shutdown tells the controller that the host leaves: Base 2.1 section 3.6.
func (c *Controller) shutdown() error {
	if c.Err() != nil {
		return nil // the connection is gone, and with it the association
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
	defer cancel()
	cc, err := c.Property(ctx, nvme.RegCC)
	if err == nil {
		err = c.SetProperty(ctx, nvme.RegCC, uint64(nvme.CC(cc).WithSHN(nvme.ShutdownNormal)))
	}
	if err == nil {
		err = c.awaitStatus(ctx, shutdownLimit, "shut down", func(st nvme.CSTS) bool { return st.SHST() == nvme.ShutdownStatusComplete })
	}
	if err != nil && c.Err() == nil {
		return fmt.Errorf("host: shut down %s: %w", c.opts.URL(), err)
	}
	return nil
}

// Err is why the controller is lost: its keep-alive failed, or its admin queue ended. Nil while all is well.
func (c *Controller) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

func (c *Controller) lost(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil && !errors.Is(err, ErrClosed) {
		c.broken = err
	}
}

// keepAlive sends Keep Alive so often that two may be lost.
func (c *Controller) keepAlive() {
	tick := time.NewTicker(c.opts.KeepAlive / 3)
	defer tick.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-tick.C:
		}
		var cmd nvme.Command
		cmd.SetOpcode(nvme.AdminKeepAlive)
		if _, err := c.Admin(c.ctx, &cmd, nil); err != nil {
			if c.ctx.Err() == nil {
				c.lost(fmt.Errorf("host: keep alive of %s: %w", c.opts.URL(), err))
			}
			return
		}
	}
}
