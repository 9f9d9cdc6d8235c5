package target

import (
	"math/bits"
	"time"

	"rocet/nvme"
)

// Log pages: Base 2.1 section 5.1.12.

// logTable says which log pages exist and on which kind of controller.
var logTable = map[nvme.LogID]struct{ io, discovery bool }{
	nvme.LogSupportedPages:    {true, true},
	nvme.LogError:             {true, true},
	nvme.LogSMART:             {io: true},
	nvme.LogFirmwareSlot:      {io: true},
	nvme.LogChangedNamespaces: {io: true},
	nvme.LogCommandEffects:    {io: true},
	nvme.LogANA:               {io: true},
	nvme.LogFeatureEffects:    {true, true},
	nvme.LogDiscovery:         {discovery: true},
}

// hasLog tells whether the controller has a log page.
func (c *Controller) hasLog(id nvme.LogID) bool {
	l := logTable[id]
	if c.discovery() {
		return l.discovery
	}
	return l.io
}

// locLogOffset is where Get Log Page has its offset.
const locLogOffset = locCDW12

// getLogPage executes Get Log Page. A host may read beyond the end, from within:
// it sizes its buffer by the largest that the page can be, and gets zeros.
func (x *control) getLogPage() {
	c, id, offset := x.c, x.cmd.LID(), x.cmd.LogOffset()
	switch {
	case !c.hasLog(id):
		x.failAt(nvme.StatusInvalidLogPage, locCDW10)
		return
	case x.cmd.LogOffsetIsIndex():
		x.failAt(nvme.StatusInvalidField, locCDW14+2)
		return
	case offset%4 != 0:
		x.failAt(nvme.StatusInvalidField, locLogOffset)
		return
	}
	b, ok := x.logPage(id)
	if !ok {
		return
	}
	if offset > uint64(len(b)) {
		x.failAt(nvme.StatusInvalidField, locLogOffset)
		return
	}
	x.put(b[offset:])
	if x.cmd.RAE() {
		return
	}
	if id == nvme.LogChangedNamespaces && offset+x.cmd.LogLength() >= uint64(len(b)) {
		c.clearChanges(b)
	}
	q := x.q
	x.after = func() { q.unmask(id) }
}

// logPage returns a whole log page, or fails the command.
func (x *control) logPage(id nvme.LogID) ([]byte, bool) {
	c := x.c
	switch id {
	case nvme.LogSupportedPages:
		return c.supportedLogs(), true
	case nvme.LogError:
		return c.errorLog(), true
	case nvme.LogSMART:
		return x.smartLog()
	case nvme.LogFirmwareSlot:
		l := nvme.FirmwareSlotLog{AFI: 1}
		nvme.PutASCII(l.Slot[0][:], c.target.opts.Firmware)
		b := make([]byte, nvme.FirmwareSlotLogSize)
		l.MarshalTo(b)
		return b, true
	case nvme.LogChangedNamespaces:
		return c.changedLog(), true
	case nvme.LogCommandEffects:
		return x.effectsLog()
	case nvme.LogANA:
		return c.anaLog(x.cmd.LSP()&nvme.ANAReturnGroupsOnly != 0), true
	case nvme.LogFeatureEffects:
		return c.featureEffects(), true
	case nvme.LogDiscovery:
		return x.discoveryLog()
	}
	x.failAt(nvme.StatusInvalidLogPage, locCDW10)
	return nil, false
}

func (c *Controller) supportedLogs() []byte {
	var l nvme.SupportedLogs
	for id := range logTable {
		if c.hasLog(id) {
			l[id] = nvme.LogPageSupported
		}
	}
	if c.discovery() {
		l[nvme.LogDiscovery] |= nvme.LogDiscoveryPortLocal
	}
	b := make([]byte, nvme.SupportedLogsSize)
	l.MarshalTo(b)
	return b
}

// changedLog is the Changed Namespace List log.
func (c *Controller) changedLog() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := make([]byte, nvme.ChangedNSLogSize)
	if c.changes.overflow {
		nvme.PutNSIDList(b, []uint32{nvme.ChangedNSLogOverflow})
	} else {
		nvme.PutNSIDList(b, c.changes.nsids)
	}
	return b
}

// clearChanges forgets the changes that the host has read to the end of the page,
// but not those that came meanwhile.
func (c *Controller) clearChanges(page []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes.overflow {
		c.changes = changedNamespaces{}
		return
	}
	read, err := nvme.ParseNSIDList(page)
	if err != nil {
		return
	}
	c.changes.nsids = subtract(c.changes.nsids, read)
}

// subtract returns what is in a and not in b; both ascend.
func subtract(a, b []uint32) []uint32 {
	var rest []uint32
	for _, id := range a {
		for len(b) > 0 && b[0] < id {
			b = b[1:]
		}
		if len(b) == 0 || b[0] != id {
			rest = append(rest, id)
		}
	}
	return rest
}

// smartLog is the SMART / Health Information log: of one namespace, or of the
// subsystem's together, with what hosts did from the target's own counters.
func (x *control) smartLog() ([]byte, bool) {
	c, nsid := x.c, x.cmd.NSID()
	list := c.sub.Namespaces()
	if nsid != 0 && nsid != nvme.NSIDAll {
		ns := c.sub.Namespace(nsid)
		if ns == nil {
			x.failAt(nvme.StatusInvalidNamespace, locNSID)
			return nil, false
		}
		list = []*Namespace{ns}
	}
	up := time.Since(c.target.started)
	l := nvme.SMARTLog{AvailableSpare: 100}
	l.PowerOnHours.Lo = uint64(up / time.Hour)
	l.PowerCycles.Lo = 1
	devices := 0
	var read, written uint64
	for _, ns := range list {
		if dev, ok := ns.backend.SMART(); ok {
			mergeSMART(&l, &dev, devices == 0)
			devices++
		}
		stats := ns.Stats()
		for _, op := range []Op{OpRead, OpCompare, OpVerify} {
			l.HostReads.Lo += stats[op].Commands
		}
		l.HostWrites.Lo += stats[OpWrite].Commands
		// Verify moves nothing to the host and does not count as data read.
		read += stats[OpRead].Bytes + stats[OpCompare].Bytes
		written += stats[OpWrite].Bytes
	}
	if c.crossesThreshold(l.Temperature) {
		l.CriticalWarning |= nvme.SMARTTemperature
	}
	l.DataUnitsRead.Lo = dataUnits(read)
	l.DataUnitsWritten.Lo = dataUnits(written)
	l.ErrorLogEntries.Lo = c.errors.Load()
	b := make([]byte, nvme.SMARTLogSize)
	l.MarshalTo(b)
	return b, true
}

// dataUnits counts thousands of 512 bytes, rounded up.
func dataUnits(bytes uint64) uint64 { return (bytes + 512*1000 - 1) / (512 * 1000) }

// mergeSMART adds a device: the worst of each health figure, the sum of each count.
func mergeSMART(l, dev *nvme.SMARTLog, first bool) {
	if first {
		l.AvailableSpare, l.SpareThreshold = dev.AvailableSpare, dev.SpareThreshold
		l.PowerCycles, l.PowerOnHours = dev.PowerCycles, dev.PowerOnHours
		l.TemperatureSensor = dev.TemperatureSensor
	}
	l.CriticalWarning |= dev.CriticalWarning
	l.EnduranceWarning |= dev.EnduranceWarning
	l.Temperature = max(l.Temperature, dev.Temperature)
	if int(dev.AvailableSpare)-int(dev.SpareThreshold) < int(l.AvailableSpare)-int(l.SpareThreshold) {
		l.AvailableSpare, l.SpareThreshold = dev.AvailableSpare, dev.SpareThreshold
	}
	l.PercentageUsed = max(l.PercentageUsed, dev.PercentageUsed)
	for i := range l.TemperatureSensor {
		l.TemperatureSensor[i] = max(l.TemperatureSensor[i], dev.TemperatureSensor[i])
	}
	l.PowerCycles.Lo = max(l.PowerCycles.Lo, dev.PowerCycles.Lo)
	l.PowerOnHours.Lo = max(l.PowerOnHours.Lo, dev.PowerOnHours.Lo)
	addTo(&l.MediaErrors, dev.MediaErrors)
	addTo(&l.UnsafeShutdowns, dev.UnsafeShutdowns)
	addTo(&l.BusyTime, dev.BusyTime)
	l.WarningTemperatureTime = max(l.WarningTemperatureTime, dev.WarningTemperatureTime)
	l.CriticalTemperatureTime = max(l.CriticalTemperatureTime, dev.CriticalTemperatureTime)
	for i := range l.ThermalTransitions {
		l.ThermalTransitions[i] = max(l.ThermalTransitions[i], dev.ThermalTransitions[i])
		l.ThermalTime[i] = max(l.ThermalTime[i], dev.ThermalTime[i])
	}
}

func addTo(sum *nvme.Uint128, v nvme.Uint128) {
	var carry uint64
	sum.Lo, carry = bits.Add64(sum.Lo, v.Lo, 0)
	sum.Hi, _ = bits.Add64(sum.Hi, v.Hi, carry)
}

// effectsLog is the Commands Supported and Effects log.
func (x *control) effectsLog() ([]byte, bool) {
	if x.cmd.LogCSI() != nvme.CSINVM {
		x.failAt(nvme.StatusInvalidField, locCDW14+3)
		return nil, false
	}
	var l nvme.CommandEffectsLog
	for _, op := range []nvme.Opcode{nvme.AdminGetLogPage, nvme.AdminIdentify, nvme.AdminAbort, nvme.AdminSetFeatures,
		nvme.AdminGetFeatures, nvme.AdminAER, nvme.AdminKeepAlive} {
		l.Admin[op] = nvme.EffectSupported | nvme.EffectScopeController
	}
	// No scopes (CSP): Linux warns of I/O commands with any effect but on the blocks' content.
	l.IO[nvme.OpRead] = nvme.EffectSupported
	l.IO[nvme.OpFlush] = nvme.EffectSupported
	l.IO[nvme.OpWrite] = nvme.EffectSupported | nvme.EffectBlockContent
	x.c.target.mu.Lock()
	common := x.c.sub.commonOps()
	x.c.target.mu.Unlock()
	for op, e := range map[Op]struct {
		opcode nvme.Opcode
		effect nvme.CommandEffect
	}{
		OpCompare:     {nvme.OpCompare, 0},
		OpVerify:      {nvme.OpVerify, 0},
		OpDeallocate:  {nvme.OpDatasetManagement, nvme.EffectBlockContent},
		OpWriteZeroes: {nvme.OpWriteZeroes, nvme.EffectBlockContent},
	} {
		if common.Has(op) {
			l.IO[e.opcode] = nvme.EffectSupported | e.effect
		}
	}
	b := make([]byte, nvme.CommandEffectsSize)
	l.MarshalTo(b)
	return b, true
}
