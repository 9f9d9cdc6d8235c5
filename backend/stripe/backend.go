// Package stripe is a namespace over several backends, RAID-0: blocks lie in turn on each of them, a unit at a time. It
// has their speed together, and fails if one of them does.
//
//	Submit ─▶ waiting, in order ─▶ parent ─┬─ part ─▶ member's queue
//	                                       ├─ part ─▶ member's queue      one part for each unit that data crosses,
//	                                       └─ part ─▶ ...                 one for each member where there is no data
//	Complete ◀─ the status of the foremost part that failed ◀─ all parts
//
// Data is never copied to be split: parts have slices of the operation's segments. Only members that lend what is read
// (namespaces in memory) are copied from.
package stripe

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"rocet/nvme"
	"rocet/target"
)

// Config describes a stripe.
type Config struct {
	StripeSize uint64           // bytes of one member before the next one's: a power of two from 4 KiB, at least a block
	Members    []target.Backend // two or more, of one block size. The smallest counts for all. Whoever opened them closes them
}

// Limits of a Config.
const (
	MinStripeSize = 4 << 10
	MaxStripeSize = 1 << 30
	MaxMembers    = 64
)

// Backend implements target.Backend.
type Backend struct {
	members []target.Backend
	layout  layout
	lends   []bool // members whose reads come in memory of their own
	info    atomic.Pointer[target.Info]
	open    atomic.Int32 // queues

	mu    sync.Mutex
	watch func(target.Event)
	gone  []bool
	away  int // members that are gone
}

var _ target.Backend = (*Backend)(nil)

// New makes a stripe. What members have to say they say to it from now on.
func New(c Config) (*Backend, error) {
	if len(c.Members) < 2 || len(c.Members) > MaxMembers {
		return nil, fmt.Errorf("stripe: %d members: want 2 to %d", len(c.Members), MaxMembers)
	}
	if bits.OnesCount64(c.StripeSize) != 1 || c.StripeSize < MinStripeSize || c.StripeSize > MaxStripeSize {
		return nil, fmt.Errorf("stripe: a stripe size of %d bytes: want a power of two from %d to %d", c.StripeSize, MinStripeSize, MaxStripeSize)
	}
	block := c.Members[0].Info().BlockSize
	b := &Backend{
		members: c.Members, gone: make([]bool, len(c.Members)), lends: make([]bool, len(c.Members)),
		layout: layout{unit: c.StripeSize / uint64(block), width: uint64(len(c.Members))},
	}
	if b.layout.unit == 0 {
		return nil, fmt.Errorf("stripe: a stripe size of %d bytes is less than a block of %d", c.StripeSize, block)
	}
	for i, m := range c.Members {
		info := m.Info()
		if info.BlockSize != block {
			return nil, fmt.Errorf("stripe: member %d has blocks of %d bytes, member 0 of %d: format the drives alike", i, info.BlockSize, block)
		}
		if info.MaxTransfer != 0 && uint64(info.MaxTransfer) < uint64(block) {
			return nil, fmt.Errorf("stripe: member %d takes no more than %d bytes at once, a block has %d", i, info.MaxTransfer, block)
		}
		b.lends[i] = info.LendsReads
	}
	info := b.join()
	if info.Blocks == 0 {
		return nil, fmt.Errorf("stripe: its smallest member is smaller than a stripe of %d bytes", c.StripeSize)
	}
	b.info.Store(info)
	for i, m := range c.Members {
		m.Watch(func(e target.Event) { b.event(i, e) })
	}
	return b, nil
}

// Info describes the stripe: what all of its members can do.
func (b *Backend) Info() target.Info { return *b.info.Load() }

// join makes one description of the members'.
func (b *Backend) join() *target.Info {
	first := b.members[0].Info()
	unit := b.layout.unit
	info := target.Info{
		Geometry: target.Geometry{BlockSize: first.BlockSize},
		Ops:      first.Ops, Atomic: first.Atomic, ReadsZeroesAfterDeallocate: true,
		Model: fmt.Sprintf("Rocet stripe of %d", len(b.members)),
	}
	smallest := ^uint64(0)
	shifted := false // boundaries lie across the units: nothing can be promised
	for _, m := range b.members {
		i := m.Info()
		smallest = min(smallest, i.Blocks)
		info.ReadOnly = info.ReadOnly || i.ReadOnly
		info.VolatileWriteCache = info.VolatileWriteCache || i.VolatileWriteCache
		info.Ops &= i.Ops
		info.ReadsZeroesAfterDeallocate = info.ReadsZeroesAfterDeallocate && i.ReadsZeroesAfterDeallocate
		if i.MaxTransfer != 0 && uint64(i.MaxTransfer) < unit*uint64(i.BlockSize) {
			// A part may be as large as a unit.
			info.MaxTransfer = lowest(info.MaxTransfer, i.MaxTransfer)
		}
		info.Atomic.Normal = min(info.Atomic.Normal, i.Atomic.Normal)
		info.Atomic.PowerFail = min(info.Atomic.PowerFail, i.Atomic.PowerFail)
		info.Atomic.Compare = min(info.Atomic.Compare, i.Atomic.Compare)
		info.Atomic.Boundary = boundary(info.Atomic.Boundary, i.Atomic.Boundary)
		info.Atomic.BoundaryPowerFail = boundary(info.Atomic.BoundaryPowerFail, i.Atomic.BoundaryPowerFail)
		shifted = shifted || i.Atomic.BoundaryOffset != 0
		info.WriteGranularity = max(info.WriteGranularity, i.WriteGranularity)
		info.WriteAlignment = max(info.WriteAlignment, i.WriteAlignment)
		info.DeallocGranularity = max(info.DeallocGranularity, i.DeallocGranularity)
		info.DeallocAlignment = max(info.DeallocAlignment, i.DeallocAlignment)
	}
	info.Blocks = b.layout.blocks(smallest)
	if shifted {
		info.Atomic = target.AtomicUnits{}
	}
	for _, n := range []*uint32{&info.WriteGranularity, &info.WriteAlignment, &info.DeallocGranularity, &info.DeallocAlignment} {
		*n = b.layout.preferred(*n)
	}
	// A write is atomic within a unit, never across.
	if a := &info.Atomic; a.Normal|a.PowerFail|a.Compare != 0 {
		a.Boundary, a.BoundaryPowerFail = boundary(a.Boundary, uint32(unit)), boundary(a.BoundaryPowerFail, uint32(unit))
		a.Normal, a.PowerFail, a.Compare = min(a.Normal, uint32(unit)), min(a.PowerFail, uint32(unit)), min(a.Compare, uint32(unit))
	}
	if unit <= 0xffff {
		info.OptimalIOBoundary = uint16(unit)
	}
	if whole := unit * b.layout.width; whole <= 0x10000 {
		info.OptimalWriteSize = uint32(whole)
	}
	return &info
}

// lowest is the smaller of two limits, 0 being none.
func lowest(a, b uint32) uint32 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// boundary is the distance of boundaries at which two sets of them meet: 0 is no boundary.
func boundary(a, b uint32) uint32 {
	if a == 0 || b == 0 {
		return a | b
	}
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Watch sets who hears of events.
func (b *Backend) Watch(f func(target.Event)) {
	b.mu.Lock()
	b.watch = f
	b.mu.Unlock()
}

// event takes a member's event. The stripe is gone while any of its members is.
func (b *Backend) event(member int, e target.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e {
	case target.EventGone:
		if b.gone[member] {
			return
		}
		b.gone[member] = true
		if b.away++; b.away > 1 {
			return
		}
	case target.EventBack:
		if !b.gone[member] {
			return
		}
		b.gone[member] = false
		if b.away--; b.away > 0 {
			return
		}
	case target.EventResized:
		info := b.join()
		if info.Blocks == b.info.Load().Blocks {
			return
		}
		b.info.Store(info)
	}
	if b.watch != nil {
		b.watch(e)
	}
}

// SMART joins the members' health: the worst of what wears out, the sum of what is counted.
func (b *Backend) SMART() (nvme.SMARTLog, bool) {
	var sum nvme.SMARTLog
	found := false
	for _, m := range b.members {
		s, ok := m.SMART()
		if !ok {
			continue
		}
		if !found {
			sum, found = s, true
			continue
		}
		sum.CriticalWarning |= s.CriticalWarning
		sum.Temperature = max(sum.Temperature, s.Temperature)
		sum.AvailableSpare = min(sum.AvailableSpare, s.AvailableSpare)
		sum.SpareThreshold = max(sum.SpareThreshold, s.SpareThreshold)
		sum.PercentageUsed = max(sum.PercentageUsed, s.PercentageUsed)
		sum.EnduranceWarning |= s.EnduranceWarning
		for _, c := range []struct{ to, from *nvme.Uint128 }{
			{&sum.DataUnitsRead, &s.DataUnitsRead}, {&sum.DataUnitsWritten, &s.DataUnitsWritten},
			{&sum.HostReads, &s.HostReads}, {&sum.HostWrites, &s.HostWrites},
			{&sum.UnsafeShutdowns, &s.UnsafeShutdowns}, {&sum.MediaErrors, &s.MediaErrors}, {&sum.ErrorLogEntries, &s.ErrorLogEntries},
		} {
			*c.to = add128(*c.to, *c.from)
		}
		for _, c := range []struct{ to, from *nvme.Uint128 }{
			{&sum.BusyTime, &s.BusyTime}, {&sum.PowerCycles, &s.PowerCycles}, {&sum.PowerOnHours, &s.PowerOnHours},
		} {
			if less128(*c.to, *c.from) {
				*c.to = *c.from
			}
		}
		sum.WarningTemperatureTime = max(sum.WarningTemperatureTime, s.WarningTemperatureTime)
		sum.CriticalTemperatureTime = max(sum.CriticalTemperatureTime, s.CriticalTemperatureTime)
	}
	sum.TemperatureSensor = [8]uint16{} // each drive has its own
	return sum, found
}

// Close ends the stripe. Its members stay open.
func (b *Backend) Close() error {
	if n := b.open.Load(); n != 0 {
		return fmt.Errorf("stripe: closed with %d queues open", n)
	}
	for _, m := range b.members {
		m.Watch(nil)
	}
	return nil
}

// OpenQueue makes every member ready for a reactor.
func (b *Backend) OpenQueue(g *target.PollGroup) (target.BackendQueue, error) {
	q := newQueue(b, g)
	for i, m := range b.members {
		mq, err := m.OpenQueue(g)
		if err != nil {
			q.abandon()
			return nil, fmt.Errorf("stripe: member %d: %w", i, err)
		}
		q.members = append(q.members, mq)
	}
	ok := false
	if !g.Reactor.Call(func() { ok = q.allocRanges() }) || !ok {
		q.abandon()
		return nil, errors.New("stripe: no memory for range descriptors: make memory.size larger")
	}
	b.open.Add(1)
	return q, nil
}

func add128(a, b nvme.Uint128) nvme.Uint128 {
	lo, carry := bits.Add64(a.Lo, b.Lo, 0)
	hi, over := bits.Add64(a.Hi, b.Hi, carry)
	if over != 0 {
		return nvme.Uint128{Lo: ^uint64(0), Hi: ^uint64(0)}
	}
	return nvme.Uint128{Lo: lo, Hi: hi}
}

func less128(a, b nvme.Uint128) bool { return a.Hi < b.Hi || a.Hi == b.Hi && a.Lo < b.Lo }
