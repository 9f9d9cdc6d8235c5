package target

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"rocet/nvme"
)

// NamespaceConfig describes a namespace.
type NamespaceConfig struct {
	NSID     uint32 // 1 to MaxNamespaces; 0: the lowest free
	Backend  Backend
	UUID     nvme.UUID  // zero: made of the subsystem's name and the NSID, so that it stays the same
	NGUID    nvme.NGUID // zero: the device's, or else made of the UUID
	EUI64    nvme.EUI64 // zero: the device's, or else none
	ANAGroup uint32     // 1 to MaxANAGroups; 0: 1
	ReadOnly bool
}

// Namespace is an active namespace of a subsystem.
type Namespace struct {
	sub      *Subsystem
	nsid     uint32
	backend  Backend
	uuid     nvme.UUID
	nguid    nvme.NGUID
	eui64    nvme.EUI64
	anaGroup uint32
	readOnly bool
	queues   []*nsQueue // by group; what is in them belongs to the reactors

	info atomic.Pointer[Info] // as the reactors have it
	away atomic.Bool          // the device is gone

	events struct {
		sync.Mutex
		pending uint8 // bits by Event
		away    bool
		running bool
	}
	warning uint8 // critical warnings that were reported; of the event worker
}

// NSID is the namespace's identifier.
func (ns *Namespace) NSID() uint32 { return ns.nsid }

// UUID is the namespace's UUID.
func (ns *Namespace) UUID() nvme.UUID { return ns.uuid }

// NGUID is the namespace's globally unique identifier.
func (ns *Namespace) NGUID() nvme.NGUID { return ns.nguid }

// Backend is what the namespace stands on.
func (ns *Namespace) Backend() Backend { return ns.backend }

// Info is the backend's description as the reactors know it.
func (ns *Namespace) Info() Info { return *ns.info.Load() }

// Ready tells whether the backend's device is there.
func (ns *Namespace) Ready() bool { return !ns.away.Load() }

// writeProtected tells whether hosts may not write.
func (ns *Namespace) writeProtected() bool { return ns.readOnly || ns.info.Load().ReadOnly }

// AddNamespace makes a namespace active on every reactor and tells every host.
func (s *Subsystem) AddNamespace(c NamespaceConfig) (*Namespace, error) {
	s.config.Lock()
	defer s.config.Unlock()
	ns, err := s.newNamespace(c)
	if err != nil {
		return nil, fmt.Errorf("subsystem %s: %w", s.nqn, err)
	}
	info := ns.info.Load()
	for _, g := range s.target.groups {
		bq, err := c.Backend.OpenQueue(g)
		if err != nil {
			s.target.mu.Lock()
			delete(s.target.names, ns)
			s.target.mu.Unlock()
			_ = ns.closeQueues(context.Background()) // nothing is in flight
			return nil, fmt.Errorf("subsystem %s: namespace %d: opening its queue on reactor %d: %w", s.nqn, ns.nsid, g.Index, err)
		}
		q := &nsQueue{
			queue: bq,
			shift: uint8(bits.TrailingZeros32(info.BlockSize)),
			lends: info.LendsReads,
			ops:   info.Ops,
			group: uint16(ns.anaGroup),
			nsid:  ns.nsid,
			stats: new(nsStats),
		}
		q.setInfo(*info, ns.readOnly)
		ns.queues = append(ns.queues, q)
	}
	for i, g := range s.target.groups {
		g.call(func() { s.spaces[i].put(ns.nsid, ns.queues[i]) })
	}
	t := s.target
	t.mu.Lock()
	s.namespaces = append(slices.Clone(s.namespaces), ns)
	slices.SortFunc(s.namespaces, func(a, b *Namespace) int { return int(int64(a.nsid) - int64(b.nsid)) })
	s.ana.changed(ns.anaGroup)
	s.namespaceChanged(ns.nsid)
	t.mu.Unlock()
	c.Backend.Watch(ns.event)
	// What happened between newNamespace's Info and Watch was not reported.
	ns.event(EventResized)
	t.log.Info("namespace added", "subsystem", s.nqn, "nsid", ns.nsid, "bytes", info.Bytes(), "block", info.BlockSize, "uuid", ns.uuid.String())
	return ns, nil
}

// newNamespace checks a configuration and fills in what it leaves open.
func (s *Subsystem) newNamespace(c NamespaceConfig) (*Namespace, error) {
	if c.Backend == nil {
		return nil, fmt.Errorf("namespace %d: without a backend", c.NSID)
	}
	def(&c.ANAGroup, 1)
	if c.ANAGroup > MaxANAGroups {
		return nil, fmt.Errorf("namespace %d: ANA group %d: want 1 to %d", c.NSID, c.ANAGroup, MaxANAGroups)
	}
	if c.NSID > MaxNamespaces {
		return nil, fmt.Errorf("namespace %d: NSIDs go from 1 to %d", c.NSID, MaxNamespaces)
	}
	info := c.Backend.Info()
	if err := checkInfo(&info, s.target.opts.MDTS); err != nil {
		return nil, fmt.Errorf("namespace %d: %w", c.NSID, err)
	}
	t := s.target
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.removed {
		return nil, ErrSubsystemRemoved
	}
	free := uint32(1)
	for _, ns := range s.namespaces {
		if ns.nsid == c.NSID {
			return nil, fmt.Errorf("namespace %d: there already", c.NSID)
		}
		if ns.nsid == free {
			free++
		}
	}
	if def(&c.NSID, free); c.NSID > MaxNamespaces {
		return nil, fmt.Errorf("it has %d namespaces, no more are possible", MaxNamespaces)
	}
	ns := &Namespace{
		sub:      s,
		nsid:     c.NSID,
		backend:  c.Backend,
		uuid:     c.UUID,
		nguid:    c.NGUID,
		eui64:    c.EUI64,
		anaGroup: c.ANAGroup,
		readOnly: c.ReadOnly,
	}
	def(&ns.uuid, derivedUUID(s.nqn, c.NSID))
	// A device that stands behind two namespaces must not give both its name.
	if ns.nguid.IsZero() && !t.taken(func(x *Namespace) bool { return x.nguid == info.NGUID }) {
		ns.nguid = info.NGUID
	}
	if ns.eui64.IsZero() && !t.taken(func(x *Namespace) bool { return x.eui64 == info.EUI64 }) {
		ns.eui64 = info.EUI64
	}
	def(&ns.nguid, nvme.NGUID(ns.uuid))
	if t.taken(func(x *Namespace) bool { return x.uuid == ns.uuid || x.nguid == ns.nguid }) {
		return nil, fmt.Errorf("namespace %d: another namespace has UUID %s or NGUID %s already", c.NSID, ns.uuid, ns.nguid)
	}
	ns.info.Store(&info)
	t.names[ns] = struct{}{}
	return ns, nil
}

// taken looks for a namespace among all that are there or being added. Target.mu
// is held.
func (t *Target) taken(match func(*Namespace) bool) bool {
	for ns := range t.names {
		if match(ns) {
			return true
		}
	}
	return false
}

func checkInfo(info *Info, mdts uint32) error {
	switch {
	case bits.OnesCount32(info.BlockSize) != 1 || info.BlockSize < 512 || info.BlockSize > mdts:
		return fmt.Errorf("backend: blocks of %d bytes: want a power of two from 512 to the target's MDTS, %d", info.BlockSize, mdts)
	case info.Blocks == 0:
		return fmt.Errorf("backend: no blocks")
	case info.Blocks > 1<<63/uint64(info.BlockSize):
		return fmt.Errorf("backend: %d blocks of %d bytes are more than 2^63 bytes", info.Blocks, info.BlockSize)
	case info.MaxTransfer != 0 && info.MaxTransfer < mdts:
		return fmt.Errorf("backend: takes %d bytes at once, the target's MDTS is %d: it must split, or the MDTS be lowered", info.MaxTransfer, mdts)
	}
	return nil
}

// derivedUUID is a UUID of version 8 ("custom") that is the same after a restart.
func derivedUUID(nqn string, nsid uint32) nvme.UUID {
	sum := sha256.Sum256(binary.LittleEndian.AppendUint32(append([]byte("rocet namespace\x00"), nqn...), nsid))
	u := nvme.UUID(sum[:16])
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return u
}

// RemoveNamespace takes a namespace away from the hosts, tells them, and waits
// for the commands in flight. When it returns nil the backend may be closed. When
// ctx ends first the namespace is gone for the hosts, but its backend is in use.
func (s *Subsystem) RemoveNamespace(ctx context.Context, nsid uint32) error {
	ns, err := s.detach(nsid)
	if err != nil {
		return err
	}
	if err := ns.closeQueues(ctx); err != nil {
		return fmt.Errorf("subsystem %s: namespace %d: commands are still in flight: %w", s.nqn, nsid, err)
	}
	return nil
}

// detach makes a namespace inactive. The NSID is free then.
func (s *Subsystem) detach(nsid uint32) (*Namespace, error) {
	s.config.Lock()
	defer s.config.Unlock()
	ns := s.Namespace(nsid)
	if ns == nil {
		return nil, fmt.Errorf("subsystem %s: namespace %d: there is none", s.nqn, nsid)
	}
	ns.backend.Watch(nil)
	for i, g := range s.target.groups {
		g.call(func() { s.spaces[i].put(nsid, nil) })
	}
	t := s.target
	t.mu.Lock()
	s.namespaces = slices.DeleteFunc(slices.Clone(s.namespaces), func(x *Namespace) bool { return x == ns })
	delete(t.names, ns)
	s.ana.changed(ns.anaGroup)
	s.namespaceChanged(nsid)
	t.mu.Unlock()
	t.log.Info("namespace removed", "subsystem", s.nqn, "nsid", nsid)
	return ns, nil
}

// closeQueues closes what is open of the namespace's queues and waits for them.
func (ns *Namespace) closeQueues(ctx context.Context) error {
	done := make(chan struct{})
	var left atomic.Int32
	left.Store(int32(len(ns.queues)))
	for i, q := range ns.queues {
		ns.sub.target.groups[i].Reactor.Post(func() {
			q.remove(func() {
				if left.Add(-1) == 0 {
					close(done)
				}
			})
		})
	}
	if len(ns.queues) == 0 {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ResizeNamespace changes a namespace's size, where its backend can. Shrinking
// loses data and is refused without force.
func (s *Subsystem) ResizeNamespace(nsid uint32, blocks uint64, force bool) error {
	s.config.Lock()
	defer s.config.Unlock()
	ns := s.Namespace(nsid)
	if ns == nil {
		return fmt.Errorf("subsystem %s: namespace %d: there is none", s.nqn, nsid)
	}
	r, ok := ns.backend.(Resizer)
	if !ok {
		return fmt.Errorf("subsystem %s: namespace %d: its backend can't be resized", s.nqn, nsid)
	}
	info := ns.Info()
	shrink := blocks < info.Blocks
	if shrink && !force {
		return fmt.Errorf("subsystem %s: namespace %d: %d blocks are fewer than its %d: data would be lost; force it if you mean it", s.nqn, nsid, blocks, info.Blocks)
	}
	info.Blocks = blocks
	if err := checkInfo(&info, s.target.opts.MDTS); err != nil {
		return fmt.Errorf("subsystem %s: namespace %d: resize: %w", s.nqn, nsid, err)
	}
	if shrink {
		// Nothing new may start beyond the new end once the backend begins.
		ns.setInfo(info)
	}
	err := r.Resize(blocks)
	ns.refresh()
	if err != nil {
		return fmt.Errorf("subsystem %s: namespace %d: resize to %d blocks: %w", s.nqn, nsid, blocks, err)
	}
	return nil
}

// event is the backend's Watch function. It only notes what happened.
func (ns *Namespace) event(e Event) {
	ns.events.Lock()
	defer ns.events.Unlock()
	switch e {
	case EventGone:
		ns.events.away = true
	case EventBack:
		ns.events.away = false
	}
	ns.events.pending |= 1 << e
	if !ns.events.running {
		ns.events.running = true
		go ns.handleEvents()
	}
}

func (ns *Namespace) handleEvents() {
	for {
		ns.events.Lock()
		pending, away := ns.events.pending, ns.events.away
		ns.events.pending = 0
		if pending == 0 {
			ns.events.running = false
			ns.events.Unlock()
			return
		}
		ns.events.Unlock()
		if ns.away.Swap(away) != away {
			ns.sub.target.log.Warn("namespace's device", "subsystem", ns.sub.nqn, "nsid", ns.nsid, "present", !away)
			ns.changed()
		}
		if !away && pending&(1<<EventResized|1<<EventBack) != 0 {
			ns.sub.config.Lock()
			if ns.sub.Namespace(ns.nsid) == ns {
				ns.refresh()
			}
			ns.sub.config.Unlock()
		}
		if pending&(1<<EventHealth) != 0 {
			ns.health()
		}
	}
}

// refresh takes over the backend's present description. Subsystem.config is held.
func (ns *Namespace) refresh() {
	old, info := ns.Info(), ns.backend.Info()
	log := ns.sub.target.log.With("subsystem", ns.sub.nqn, "nsid", ns.nsid)
	if info.BlockSize != old.BlockSize || info.Blocks == 0 {
		log.Error("backend reports a geometry that the namespace can't take over", "block", info.BlockSize, "blocks", info.Blocks)
		return
	}
	info.LendsReads, info.Ops = old.LendsReads, old.Ops
	if info == old {
		return
	}
	if info.Blocks < old.Blocks {
		log.Warn("namespace shrank", "from", old.Blocks, "to", info.Blocks)
	} else if info.Blocks > old.Blocks {
		log.Info("namespace grew", "from", old.Blocks, "to", info.Blocks)
	}
	ns.setInfo(info)
	ns.changed()
}

// setInfo makes every reactor work with info.
func (ns *Namespace) setInfo(info Info) {
	for i, g := range ns.sub.target.groups {
		g.call(func() { ns.queues[i].setInfo(info, ns.readOnly) })
	}
	ns.info.Store(&info)
}

// changed tells every host.
func (ns *Namespace) changed() {
	ns.sub.target.mu.Lock()
	ns.sub.namespaceChanged(ns.nsid)
	ns.sub.target.mu.Unlock()
}

// namespaceChanged tells every controller. Target.mu is held.
func (s *Subsystem) namespaceChanged(nsid uint32) {
	for _, c := range s.controllers {
		c.namespaceChanged(nsid)
	}
}

// health turns new critical warnings of the device, and temperatures beyond what a
// host has set, into events.
func (ns *Namespace) health() {
	smart, ok := ns.backend.SMART()
	if !ok {
		return
	}
	fresh := smart.CriticalWarning &^ ns.warning
	ns.warning = smart.CriticalWarning
	if fresh != 0 {
		ns.sub.target.log.Warn("namespace's device reports a critical warning", "subsystem", ns.sub.nqn, "nsid", ns.nsid, "warning", smart.CriticalWarning)
	}
	ns.sub.target.mu.Lock()
	defer ns.sub.target.mu.Unlock()
	for _, c := range ns.sub.controllers {
		warn := fresh
		if c.feat.crosses(smart.Temperature) {
			warn |= nvme.SMARTTemperature
		}
		for _, k := range smartEvents(warn) {
			c.raise(k)
		}
	}
}
