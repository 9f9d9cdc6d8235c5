package drive

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"rocet/nvme"
	"rocet/nvme/pcie"
	"rocet/target"
)

// Backend is a namespace of a local drive; it is a target.Backend.
type Backend struct {
	manager *Manager
	drive   *drive
	ns      *pcie.Namespace
	info    atomic.Pointer[target.Info]
	queues  atomic.Int32
	closed  atomic.Bool
	away    bool // as it was told last; the drive's goroutine has it

	watch struct {
		sync.Mutex
		fn func(target.Event)
	}
}

var _ target.Backend = (*Backend)(nil)

// Info describes the namespace, as the drive does.
func (b *Backend) Info() target.Info { return *b.info.Load() }

// Drive returns the drive, for people who want to know more about it.
func (b *Backend) Drive() *pcie.Drive { return b.drive.pcie }

func (b *Backend) readInfo() error {
	cached, err := b.drive.pcie.WriteCacheOn()
	if err != nil {
		return err
	}
	ctrl := b.drive.pcie.Controller()
	info := describe(&ctrl, b.ns.Identify(), b.drive.pcie.MaxTransfer(), cached)
	b.info.Store(&info)
	return nil
}

// refresh reads the description again after something has changed.
func (b *Backend) refresh() {
	if err := b.readInfo(); err != nil {
		b.manager.log.Warn("a drive's description cannot be read again", "drive", b.drive.pcie.Address(), "nsid", b.ns.ID(), "error", err)
	}
}

// describe turns what the drive says into what the target tells hosts. The wire's 0-based counts become counts.
func describe(ctrl *nvme.IdentifyController, id *nvme.IdentifyNamespace, maxTransfer uint32, cached bool) target.Info {
	info := target.Info{
		Geometry:           target.Geometry{BlockSize: id.BlockSize(), Blocks: id.NSZE},
		ReadOnly:           id.NSATTR&nvme.NSATTRWriteProtected != 0,
		VolatileWriteCache: cached,
		OptimalIOBoundary:  id.NOIOB,
		NGUID:              id.NGUID,
		EUI64:              id.EUI64,
		Model:              nvme.ASCII(ctrl.MN[:]),
		Serial:             nvme.ASCII(ctrl.SN[:]),

		ReadsZeroesAfterDeallocate: id.DLFEAT&nvme.DLFEATReadMask == nvme.DLFEATReadZeroes,
	}
	for _, o := range []struct {
		bit uint16
		op  target.Op
	}{{nvme.ONCSCompare, target.OpCompare}, {nvme.ONCSDatasetManagement, target.OpDeallocate},
		{nvme.ONCSWriteZeroes, target.OpWriteZeroes}, {nvme.ONCSVerify, target.OpVerify}} {
		if ctrl.ONCS&o.bit != 0 {
			info.Ops |= target.Ops(o.op)
		}
	}

	// A write that the driver cuts in two is not atomic, whatever the drive does with each part.
	most := max(maxTransfer/info.BlockSize, 1)
	a := target.AtomicUnits{Normal: uint32(ctrl.AWUN) + 1, PowerFail: uint32(ctrl.AWUPF) + 1}
	if id.NSFEAT&nvme.NSFEATAtomicUnits != 0 {
		for _, v := range []struct {
			from uint16
			to   *uint32
		}{{id.NAWUN, &a.Normal}, {id.NAWUPF, &a.PowerFail}} {
			if v.from != 0 {
				*v.to = uint32(v.from) + 1
			}
		}
		a.Boundary, a.BoundaryPowerFail, a.BoundaryOffset = boundary(id.NABSN), boundary(id.NABSPF), uint32(id.NABO)
	}
	a.Normal, a.PowerFail = min(a.Normal, most), min(a.PowerFail, most)
	info.Atomic = a

	if id.NSFEAT&(nvme.NSFEATOptimalUnits|nvme.NSFEATOptimalUnitsLarge) != 0 {
		info.WriteGranularity, info.WriteAlignment = uint32(id.NPWG)+1, uint32(id.NPWA)+1
		info.DeallocGranularity, info.DeallocAlignment = uint32(id.NPDG)+1, uint32(id.NPDA)+1
		info.OptimalWriteSize = uint32(id.NOWS) + 1
	}
	return info
}

// boundary turns a 0-based boundary, where 0 says that there is none, into blocks.
func boundary(v uint16) uint32 {
	if v == 0 {
		return 0
	}
	return uint32(v) + 1
}

// OpenQueue makes the namespace ready for a reactor.
func (b *Backend) OpenQueue(g *target.PollGroup) (target.BackendQueue, error) {
	if b.closed.Load() {
		return nil, errors.New("NVMe drive: the namespace is closed")
	}
	q, err := b.drive.queueOn(g)
	if err != nil {
		return nil, err
	}
	b.queues.Add(1)
	return &nsQueue{backend: b, queue: q, deac: b.ns.Identify().DLFEAT&nvme.DLFEATWriteZeroesDealloc != 0}, nil
}

// Watch sets who hears of events.
func (b *Backend) Watch(fn func(target.Event)) {
	b.watch.Lock()
	defer b.watch.Unlock()
	b.watch.fn = fn
}

func (b *Backend) tell(e target.Event) {
	b.watch.Lock()
	defer b.watch.Unlock()
	if b.watch.fn != nil {
		b.watch.fn(e)
	}
}

// setAway tells that the namespace has gone or is back, if that is news.
func (b *Backend) setAway(away bool) {
	if away == b.away {
		return
	}
	b.away = away
	if away {
		b.tell(target.EventGone)
	} else {
		b.tell(target.EventBack)
	}
}

// SMART is the drive's health.
func (b *Backend) SMART() (nvme.SMARTLog, bool) {
	log, err := b.drive.pcie.SMART()
	if err != nil {
		b.manager.log.Warn("a drive's SMART log cannot be read", "drive", b.drive.pcie.Address(), "error", err)
		return nvme.SMARTLog{}, false
	}
	return log, true
}

// Close gives the namespace back, and with the last one its drive, which is shut down in order.
func (b *Backend) Close() error {
	if n := b.queues.Load(); n != 0 {
		return fmt.Errorf("NVMe drive %s: namespace %d is closed with %d queues open", b.drive.pcie.Address(), b.ns.ID(), n)
	}
	if b.closed.Swap(true) {
		return nil
	}
	b.Watch(nil)
	m := b.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	b.drive.remove(b)
	return m.drop(b.drive)
}
