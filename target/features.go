package target

import (
	"maps"
	"math"
	"time"

	"rocet/nvme"
)

// Features: Base 2.1 section 5.1.25 and NVM Command Set 1.1 section 4.1.3. None
// can be saved. A controller reset brings the defaults back, except for the keep
// alive timer, which belongs to the association.

// featureInfo describes a feature that exists.
type featureInfo struct {
	perNS     bool
	fixed     bool // Set Features is refused
	discovery bool // discovery controllers have it too
	size      uint32
}

var featureTable = map[nvme.FeatureID]featureInfo{
	nvme.FeatureArbitration:          {},
	nvme.FeaturePowerManagement:      {},
	nvme.FeatureTemperatureThreshold: {},
	nvme.FeatureErrorRecovery:        {perNS: true},
	nvme.FeatureVolatileWriteCache:   {},
	nvme.FeatureNumberOfQueues:       {},
	nvme.FeatureWriteAtomicity:       {},
	nvme.FeatureAsyncEventConfig:     {discovery: true},
	nvme.FeatureTimestamp:            {size: nvme.TimestampSize},
	nvme.FeatureKeepAliveTimer:       {discovery: true},
	nvme.FeatureHostBehavior:         {size: nvme.HostBehaviorSize},
	nvme.FeatureCommandSetProfile:    {},
	nvme.FeatureHostIdentifier:       {fixed: true, discovery: true, size: nvme.HostIDExtendedSize},
}

// featureDataSize is how much data Get and Set Features move.
func featureDataSize(id nvme.FeatureID) uint32 { return featureTable[id].size }

// has tells whether the controller has a feature.
func (c *Controller) feature(id nvme.FeatureID) (featureInfo, bool) {
	f, ok := featureTable[id]
	ok = ok && (f.discovery || !c.discovery())
	if id == nvme.FeatureVolatileWriteCache {
		ok = ok && c.sub.writeCache()
	}
	return f, ok
}

// features holds a controller's values, under Target.mu.
type features struct {
	values    map[nvme.FeatureID]uint32 // those that are one dword and not the default
	perNS     map[uint32]uint32         // Error Recovery by NSID
	over      uint16                    // temperature thresholds
	under     uint16
	timestamp nvme.Timestamp // at stamped
	stamped   time.Time
	behavior  nvme.HostBehavior
	kato      uint32 // ms, rounded up
}

func (f *features) reset() {
	*f = features{
		values:  make(map[nvme.FeatureID]uint32),
		perNS:   make(map[uint32]uint32),
		over:    math.MaxUint16,
		stamped: time.Now(),
		kato:    f.kato,
	}
}

// setKATO takes a keep alive timeout, rounded up to the granularity.
func (f *features) setKATO(ms uint32) {
	const g = uint64(keepAliveGranularity / time.Millisecond)
	f.kato = uint32(min((uint64(ms)+g-1)/g*g, math.MaxUint32/g*g))
}

func (f *features) keepAlive() time.Duration { return time.Duration(f.kato) * time.Millisecond }

// writeCache tells whether the host lets volatile write caches work.
func (f *features) writeCache() bool {
	v, set := f.values[nvme.FeatureVolatileWriteCache]
	return !set || v&nvme.WriteCacheEnable != 0
}

// now is the timestamp, running.
func (f *features) now() nvme.Timestamp {
	t := f.timestamp
	t.Milliseconds += uint64(time.Since(f.stamped) / time.Millisecond)
	return t
}

// defaultOf is the default of a one-dword feature.
func (c *Controller) defaultOf(id nvme.FeatureID) uint32 {
	switch id {
	case nvme.FeatureArbitration:
		return nvme.ArbitrationNoLimit
	case nvme.FeatureVolatileWriteCache:
		return nvme.WriteCacheEnable
	case nvme.FeatureNumberOfQueues:
		n := uint32(c.target.opts.MaxIOQueues)
		return uint32(nvme.MakeQueueCounts(n, n))
	}
	return 0
}

func (x *control) getFeatures() {
	c, id, sel := x.c, x.cmd.FID(), x.cmd.FeatureSelect()
	c.target.mu.Lock()
	defer c.target.mu.Unlock()
	info, ok := c.feature(id)
	switch {
	case !ok:
		x.failAt(nvme.StatusInvalidField, locCDW10)
	case sel > nvme.FeatureCapabilities:
		x.failAt(nvme.StatusInvalidField, locCDW10+1)
	case sel == nvme.FeatureCapabilities:
		x.result = info.capabilities()
	case info.perNS && !c.sub.validScope(x.cmd.NSID()):
		x.failAt(nvme.StatusInvalidNamespace, locNSID)
	default:
		// What can't be saved has its default as the saved value.
		x.getFeature(id, sel == nvme.FeatureCurrent)
	}
}

func (f featureInfo) capabilities() (dw0 uint64) {
	if f.perNS {
		dw0 |= nvme.FeaturePerNS
	}
	if !f.fixed {
		dw0 |= nvme.FeatureChangeable
	}
	return dw0
}

// getFeature returns the current or the default value.
func (x *control) getFeature(id nvme.FeatureID, current bool) {
	c := x.c
	f := &c.feat
	switch id {
	case nvme.FeatureTemperatureThreshold:
		x.getTemperature(current)
	case nvme.FeatureHostIdentifier:
		if x.cmd.CDW(11)&nvme.HostIDExtended == 0 {
			x.failAt(nvme.StatusInvalidField, locCDW11)
			return
		}
		id := c.host.ID
		x.put(id[:])
	case nvme.FeatureTimestamp:
		t := f.now()
		if !current {
			t = nvme.Timestamp{}
		}
		b := make([]byte, nvme.TimestampSize)
		t.MarshalTo(b)
		x.put(b)
	case nvme.FeatureHostBehavior:
		h := f.behavior
		if !current {
			h = nvme.HostBehavior{}
		}
		b := make([]byte, nvme.HostBehaviorSize)
		h.MarshalTo(b)
		x.put(b)
	case nvme.FeatureKeepAliveTimer:
		if current {
			x.result = uint64(f.kato)
		}
	case nvme.FeatureNumberOfQueues:
		n := uint32(c.granted)
		if !current {
			n = uint32(c.target.opts.MaxIOQueues)
		}
		x.result = uint64(nvme.MakeQueueCounts(n, n))
	default:
		x.result = uint64(c.defaultOf(id))
		if v, set := f.values[id]; set && current {
			x.result = uint64(v)
		}
		if v, set := f.perNS[x.cmd.NSID()]; set && current && id == nvme.FeatureErrorRecovery {
			x.result = uint64(v)
		}
	}
}

func (x *control) getTemperature(current bool) {
	t := nvme.TemperatureThreshold(x.cmd.CDW(11))
	if t.Sensor() != nvme.TemperatureComposite || t.Kind() > nvme.TemperatureUnder {
		x.failAt(nvme.StatusInvalidField, locCDW11)
		return
	}
	over, under := uint16(math.MaxUint16), uint16(0)
	if current {
		over, under = x.c.feat.over, x.c.feat.under
	}
	if t.Kind() == nvme.TemperatureOver {
		x.result = uint64(over)
	} else {
		x.result = uint64(under)
	}
}

func (x *control) setFeatures() {
	c, id, nsid := x.c, x.cmd.FID(), x.cmd.NSID()
	c.target.mu.Lock()
	defer c.target.mu.Unlock()
	info, ok := c.feature(id)
	switch {
	case !ok:
		x.failAt(nvme.StatusInvalidField, locCDW10)
	case x.cmd.FeatureSave():
		x.failAt(nvme.StatusFeatureNotSaveable, locCDW10+3)
	case info.perNS && !c.sub.validScope(nsid):
		x.failAt(nvme.StatusInvalidNamespace, locNSID)
	case !info.perNS && validNSID(nsid) && c.sub.active(nsid) != nil:
		x.failAt(nvme.StatusFeatureNotPerNamespace, locNSID)
	case id == nvme.FeatureHostIdentifier:
		// It came with Connect and stays.
		x.fail(nvme.StatusCommandSequenceError)
	default:
		x.setFeature(id, x.cmd.CDW(11))
	}
}

func (x *control) setFeature(id nvme.FeatureID, v uint32) {
	c, q := x.c, x.q
	f := &c.feat
	switch id {
	case nvme.FeaturePowerManagement:
		if v&nvme.PowerStateMask != 0 { // there is one power state
			x.failAt(nvme.StatusInvalidField, locCDW11)
			return
		}
	case nvme.FeatureTemperatureThreshold:
		x.setTemperature(nvme.TemperatureThreshold(v))
		return
	case nvme.FeatureErrorRecovery:
		if v&nvme.ErrorRecoveryDULBE != 0 {
			x.failAt(nvme.StatusInvalidField, locCDW11+2)
			return
		}
		if nsid := x.cmd.NSID(); nsid != nvme.NSIDAll {
			f.perNS[nsid] = v & nvme.ErrorRecoveryTimeMask
			return
		}
		clear(f.perNS)
		v &= nvme.ErrorRecoveryTimeMask
	case nvme.FeatureVolatileWriteCache:
		force := v&nvme.WriteCacheEnable == 0
		for _, io := range c.queues {
			io.group.Reactor.Post(func() { io.forceFUA = force })
		}
		v &= nvme.WriteCacheEnable
	case nvme.FeatureNumberOfQueues:
		x.setQueues(nvme.QueueCounts(v))
		return
	case nvme.FeatureWriteAtomicity:
		v &= nvme.WriteAtomicityNormalOff
	case nvme.FeatureAsyncEventConfig:
		// Bits 7:0 are SMART warnings, of which not all can occur.
		if v&^(c.asyncEvents()|0xff) != 0 {
			x.failAt(nvme.StatusInvalidField, locCDW11)
			return
		}
		x.after = func() { q.configureEvents(nvme.AsyncEventConfig(v)) }
	case nvme.FeatureTimestamp:
		var t nvme.Timestamp
		if err := t.UnmarshalBinary(x.data()); err != nil {
			x.fail(nvme.StatusDataTransferError)
			return
		}
		f.timestamp = nvme.Timestamp{Milliseconds: t.Milliseconds, Origin: nvme.TimestampOriginSetFeatures}
		f.stamped = time.Now()
		return
	case nvme.FeatureKeepAliveTimer:
		f.setKATO(v)
		period := c.kaPeriod()
		x.after = func() { q.ka.start(q, period) }
		return
	case nvme.FeatureHostBehavior:
		x.setBehavior()
		return
	case nvme.FeatureCommandSetProfile:
		if v&nvme.CommandSetIndexMask != 0 { // there is one combination
			x.failAt(nvme.StatusCommandSetCombination, locCDW11)
			return
		}
	}
	f.values[id] = v
}

func (x *control) setTemperature(t nvme.TemperatureThreshold) {
	f := &x.c.feat
	switch {
	case t.Sensor() != nvme.TemperatureComposite && t.Sensor() != nvme.TemperatureAllSensors, t.Hysteresis() != 0:
		x.failAt(nvme.StatusInvalidField, locCDW11+2)
	case t.Kind() == nvme.TemperatureOver:
		f.over = t.Kelvin()
	case t.Kind() == nvme.TemperatureUnder:
		f.under = t.Kelvin()
	default:
		x.failAt(nvme.StatusInvalidField, locCDW11+2)
	}
}

// crossesThreshold tells whether a composite temperature is one that the host
// wants to be warned of.
func (c *Controller) crossesThreshold(kelvin uint16) bool {
	c.target.mu.Lock()
	defer c.target.mu.Unlock()
	return c.feat.crosses(kelvin)
}

func (f *features) crosses(kelvin uint16) bool {
	return kelvin != 0 && (kelvin >= f.over || kelvin <= f.under)
}

// setQueues grants I/O queues. There is one completion queue for each submission
// queue on fabrics.
func (x *control) setQueues(want nvme.QueueCounts) {
	c := x.c
	switch {
	case want.Submission() == 1<<16 || want.Completion() == 1<<16:
		x.failAt(nvme.StatusInvalidField, locCDW11)
	case len(c.queues) != 0:
		x.fail(nvme.StatusCommandSequenceError)
	default:
		n := min(want.Submission(), want.Completion(), uint32(c.target.opts.MaxIOQueues))
		c.granted = uint16(n)
		x.result = uint64(nvme.MakeQueueCounts(n, n))
	}
}

// setBehavior takes what a host says it understands. What the controller doesn't
// have can't be enabled.
func (x *control) setBehavior() {
	var h nvme.HostBehavior
	if err := h.UnmarshalBinary(x.data()); err != nil {
		x.fail(nvme.StatusDataTransferError)
		return
	}
	if h.ACRE > 1 || h.ETDAS != 0 || h.LBAFEE != 0 || h.HDISNS != 0 || h.CDFE != 0 {
		x.fail(nvme.StatusInvalidField)
		return
	}
	x.c.feat.behavior = h
}

// validScope tells whether a namespace specific feature may be asked for with an
// NSID: an active namespace or all. Target.mu is held.
func (s *Subsystem) validScope(nsid uint32) bool {
	return nsid == nvme.NSIDAll || s.active(nsid) != nil
}

// active returns the namespace of that NSID, or nil. Target.mu is held.
func (s *Subsystem) active(nsid uint32) *Namespace {
	for _, ns := range s.namespaces {
		if ns.nsid == nsid {
			return ns
		}
	}
	return nil
}

// writeCache tells whether any namespace has a volatile write cache. Target.mu is held.
func (s *Subsystem) writeCache() bool {
	for _, ns := range s.namespaces {
		if ns.info.Load().VolatileWriteCache {
			return true
		}
	}
	return false
}

// featureEffects is the Feature Identifiers Supported and Effects log.
func (c *Controller) featureEffects() []byte {
	c.target.mu.Lock()
	defer c.target.mu.Unlock()
	var l nvme.FeatureEffectsLog
	for id := range maps.Keys(featureTable) {
		info, ok := c.feature(id)
		if !ok {
			continue
		}
		l[id] = nvme.FeatureSupported | nvme.FeatureScopeController
		if info.perNS {
			l[id] = nvme.FeatureSupported | nvme.FeatureScopeNamespace
		}
	}
	b := make([]byte, nvme.FeatureEffectsSize)
	l.MarshalTo(b)
	return b
}
