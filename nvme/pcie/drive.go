package pcie

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"rocet/nvme"
	"rocet/nvme/vfio"
)

// State is where a drive is in its life: see the package's comment.
type State uint32

// States.
const (
	Live State = iota
	Resetting
	Gone
	Closed
)

func (s State) String() string {
	switch s {
	case Live:
		return "live"
	case Resetting:
		return "resetting"
	case Gone:
		return "gone"
	}
	return "closed"
}

// Drive is an NVMe controller. Its methods are control plane: they may block, and are not for reactors.
type Drive struct {
	cfg          Config
	log          *slog.Logger
	address      atomic.Pointer[string] // of the function that it has, or had
	timeoutTicks uint32
	abortTicks   uint32
	reports      atomic.Uint32 // bits, from any goroutine; wake follows
	wake         chan struct{}
	timeouts     chan timeout
	done         chan struct{} // closed when manage has returned
	stopping     atomic.Bool   // Close was called
	hurry        atomic.Bool   // and waits for manage: no waiting for the drive
	state        atomic.Uint32
	counters     counters

	reading sync.Mutex // of Read, taken before mu

	mu       sync.Mutex // everything below, and the admin queue's commands
	layout   *layout
	eventfds []int // of the vectors: the admin queue's, and one for each I/O queue
	fn       Function
	watches  []*os.File // of fn's events
	adminIRQ *os.File
	bar      *vfio.BAR
	regs     registers
	cap      nvme.CAP
	version  nvme.Version
	vectors  int
	masks    []vfio.Mask
	admin    adminQueue

	identified  bool
	ctrl        nvme.IdentifyController
	nvm         nvme.NVMIdentifyController
	maxTransfer uint32
	allowed     int // I/O queues that the drive gives
	depth       int // entries of an I/O queue
	shadow      bool
	warning     uint8 // SMART's critical warning, as last seen
	queues      []*Queue
	namespaces  map[uint32]*Namespace
	holdUntil   time.Time // when waiting commands are ended; zero: they were, or none wait
	lastReason  string
	said        map[string]bool // reasons why it is not back that were logged
}

// counters are for any goroutine.
type counters struct {
	resets, removals, returns, aborts, events atomic.Uint64
}

// Counters is what happened to a drive.
type Counters struct{ Resets, Removals, Returns, Aborts, Events uint64 }

// Counters returns the counts so far.
func (d *Drive) Counters() Counters {
	c := &d.counters
	return Counters{c.resets.Load(), c.removals.Load(), c.returns.Load(), c.aborts.Load(), c.events.Load()}
}

// Open brings a drive up.
func Open(cfg Config) (*Drive, error) {
	cfg.setDefaults()
	fn, err := cfg.Open()
	if err != nil {
		return nil, err
	}
	d := &Drive{
		cfg:          cfg,
		log:          cfg.Log.With("drive", fn.Address()),
		timeoutTicks: ticks(cfg.Timeout),
		abortTicks:   ticks(cfg.AbortTimeout),
		wake:         make(chan struct{}, 1),
		timeouts:     make(chan timeout, 64),
		done:         make(chan struct{}),
		queues:       make([]*Queue, cfg.Queues),
		namespaces:   make(map[uint32]*Namespace),
	}
	d.setAddress(fn)
	if err := d.open(fn); err != nil {
		return nil, fmt.Errorf("%s: %w", fn.Address(), err)
	}
	go d.manage()
	return d, nil
}

func (d *Drive) open(fn Function) (err error) {
	d.fn = fn
	defer func() {
		if err != nil {
			d.detach()
			d.release()
		}
	}()
	if d.layout, err = newLayout(d.cfg.Memory, d.cfg.Queues, d.cfg.Depth); err != nil {
		return err
	}
	for range min(1+d.cfg.Queues, max(fn.Vectors(), 1)) {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return fmt.Errorf("eventfd: %w", err)
		}
		d.eventfds = append(d.eventfds, fd)
	}
	if d.adminIRQ, err = watchFD(d.eventfds[0], func() { d.report(reportAdminIRQ) }); err != nil {
		return err
	}
	d.admin.pause = d.pause
	if err := d.bringUp(fn); err != nil {
		return err
	}
	d.log.Info("drive is up", "model", nvme.ASCII(d.ctrl.MN[:]), "serial", nvme.ASCII(d.ctrl.SN[:]), "firmware", nvme.ASCII(d.ctrl.FR[:]),
		"nvme", d.version.String(), "queues", d.allowed, "depth", d.depth, "vectors", d.vectors, "max_transfer", d.maxTransfer,
		"sgl", d.ctrl.SGLS&3 != 0, "shadow_doorbells", d.shadow, "write_cache", d.ctrl.VWC&nvme.VWCPresent != 0)
	return nil
}

// bringUp takes a function from opened to ready for I/O queues. A controller that fails is reset once.
func (d *Drive) bringUp(fn Function) error {
	if err := d.attach(fn); err != nil {
		return err
	}
	err := d.enableAndStart()
	if err != nil && !errors.Is(err, errGone) && !errors.Is(err, errStopped) && fn.CanReset() {
		d.log.Warn("bring-up failed, resetting the function", "error", err)
		if rerr := fn.Reset(); rerr != nil {
			return errors.Join(err, rerr)
		}
		err = d.enableAndStart()
	}
	return err
}

func (d *Drive) enableAndStart() error {
	if err := d.enable(); err != nil {
		return err
	}
	return d.start()
}

func (d *Drive) release() {
	if d.layout != nil {
		d.cfg.Memory.FreeSlab(d.layout.slab)
		d.layout = nil
	}
	if d.adminIRQ != nil {
		_ = d.adminIRQ.Close()
		d.adminIRQ = nil
	}
	for _, fd := range d.eventfds {
		_ = unix.Close(fd)
	}
	d.eventfds = nil
}

// Close shuts the drive down and gives it back. Every queue must be closed.
func (d *Drive) Close() error {
	d.mu.Lock()
	for _, q := range d.queues {
		if q != nil {
			d.mu.Unlock()
			return fmt.Errorf("%s: the drive still has open queues", d.Address())
		}
	}
	if State(d.state.Load()) == Closed {
		d.mu.Unlock()
		return nil
	}
	d.stopping.Store(true)
	d.hurry.Store(true)
	d.mu.Unlock()
	d.report(reportClose)
	<-d.done
	d.hurry.Store(false)

	d.mu.Lock()
	defer d.mu.Unlock()
	if State(d.state.Load()) == Live {
		if err := d.shutdown(maxShutdown); err != nil {
			d.log.Warn("the drive does not shut down in order", "error", err)
		}
		d.stopDMA()
	}
	d.state.Store(uint32(Closed))
	d.detach()
	d.release()
	return nil
}

// detach closes the function, which ends its DMA.
func (d *Drive) detach() {
	for _, w := range d.watches {
		_ = w.Close()
	}
	d.watches = nil
	if d.fn != nil {
		d.fn.Close()
		d.fn, d.bar, d.regs, d.masks = nil, nil, registers{}, nil
	}
}

// State returns where the drive is in its life.
func (d *Drive) State() State { return State(d.state.Load()) }

// Address returns the PCI address of the drive's function, or of the one that it had.
func (d *Drive) Address() string { return *d.address.Load() }

func (d *Drive) setAddress(fn Function) {
	a := fn.Address()
	d.address.Store(&a)
}

// Controller returns what Identify Controller said.
func (d *Drive) Controller() nvme.IdentifyController {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ctrl
}

// Serial returns the drive's serial number.
func (d *Drive) Serial() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return nvme.ASCII(d.ctrl.SN[:])
}

// MaxTransfer returns how many bytes one command moves; longer requests are split.
func (d *Drive) MaxTransfer() uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.maxTransfer
}

// live locks the drive for admin commands, if it is live.
func (d *Drive) lockLive() error {
	d.mu.Lock()
	if st := d.State(); st != Live {
		d.mu.Unlock()
		return fmt.Errorf("%s: the drive is %v (%s)", d.Address(), st, d.lastReason)
	}
	return nil
}

// unlock ends what lockLive began. An admin queue that has failed is the manager's work.
func (d *Drive) unlock() {
	broken := d.admin.broken
	d.mu.Unlock()
	if broken != nil {
		d.report(reportAdmin)
	}
}

// Namespaces lists the active namespaces.
func (d *Drive) Namespaces() ([]uint32, error) {
	if err := d.lockLive(); err != nil {
		return nil, err
	}
	defer d.unlock()
	return d.activeNamespaces()
}

// Namespace opens a namespace, if Rocet can serve it as it is formatted. Every call with the same identifier returns
// the same one.
func (d *Drive) Namespace(nsid uint32) (*Namespace, error) {
	if err := d.lockLive(); err != nil {
		return nil, err
	}
	defer d.unlock()
	if ns := d.namespaces[nsid]; ns != nil {
		return ns, nil
	}
	id, err := d.identifyNamespace(nsid)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Address(), err)
	}
	ns := &Namespace{nsid: nsid}
	ns.settle(d, id)
	ns.usable.Store(true)
	d.namespaces[nsid] = ns
	return ns, nil
}

// WriteCacheOn tells whether the drive has a volatile write cache that is switched on.
func (d *Drive) WriteCacheOn() (bool, error) {
	if err := d.lockLive(); err != nil {
		return false, err
	}
	defer d.unlock()
	if d.ctrl.VWC&nvme.VWCPresent == 0 {
		return false, nil
	}
	var cmd nvme.Command
	cmd.SetOpcode(nvme.AdminGetFeatures)
	cmd.SetCDW(10, uint32(nvme.FeatureVolatileWriteCache))
	c, err := d.admin.exec("Get Features (Volatile Write Cache)", &cmd, d.cfg.AdminTimeout)
	var refused *CommandError
	if errors.As(err, &refused) {
		return true, nil // it cannot be switched off either
	} else if err != nil {
		return true, err
	}
	return c.DW0()&nvme.WriteCacheEnable != 0, nil
}

// SMART reads the SMART / Health Information log.
func (d *Drive) SMART() (nvme.SMARTLog, error) {
	var log nvme.SMARTLog
	if err := d.lockLive(); err != nil {
		return log, err
	}
	defer d.unlock()
	b, err := d.logPage(nvme.LogSMART, nvme.NSIDAll, nvme.SMARTLogSize)
	if err != nil {
		return log, fmt.Errorf("%s: %w", d.Address(), err)
	}
	return log, log.UnmarshalBinary(b)
}

// ErrorLog reads the newest entries of the Error Information log, the newest first.
func (d *Drive) ErrorLog() ([]nvme.ErrorLogEntry, error) {
	if err := d.lockLive(); err != nil {
		return nil, err
	}
	defer d.unlock()
	return d.errorLog()
}

func (d *Drive) errorLog() ([]nvme.ErrorLogEntry, error) {
	n := min(int(d.ctrl.ELPE)+1, pageSize/nvme.ErrorLogEntrySize)
	b, err := d.logPage(nvme.LogError, nvme.NSIDAll, n*nvme.ErrorLogEntrySize)
	if err != nil {
		return nil, err
	}
	var entries []nvme.ErrorLogEntry
	for i := range n {
		var e nvme.ErrorLogEntry
		if err := e.UnmarshalBinary(b[i*nvme.ErrorLogEntrySize:]); err != nil {
			return nil, err
		}
		if e.Count != 0 {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// doorbellAt returns a queue's doorbell: tails are even, heads odd.
func (d *Drive) doorbellAt(qid uint16, head bool) doorbell {
	offset := nvme.DoorbellSQ(qid, d.cap.DSTRD())
	if head {
		offset = nvme.DoorbellCQ(qid, d.cap.DSTRD())
	}
	b := doorbell{reg: unsafe.Add(d.regs.base, offset)}
	if d.shadow {
		k := uintptr(offset - nvme.RegDoorbells)
		b.shadow, b.event = (*uint32)(unsafe.Add(d.layout.shadow.ptr, k)), (*uint32)(unsafe.Add(d.layout.events.ptr, k))
	}
	return b
}
