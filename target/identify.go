package target

import (
	"math"
	"math/bits"
	"slices"

	"rocet/nvme"
)

// version is VS: Base 2.1.
const version = nvme.Version21

// nvmVersion is the NVM command set's, in its Identify Controller data: 1.1.
const nvmVersion = nvme.Version(0x00010100)

// identify executes Identify: Base 2.1 section 5.1.13, NVM Command Set 1.1 section
// 4.1.5.
func (x *control) identify() {
	c, cns, nsid := x.c, x.cmd.CNS(), x.cmd.NSID()
	if c.discovery() && cns != nvme.CNSController {
		x.failAt(nvme.StatusInvalidField, locCDW10)
		return
	}
	b := make([]byte, nvme.IdentifySize)
	switch cns {
	case nvme.CNSNamespace, nvme.CNSAllocatedNamespace:
		x.identifyNamespace(b, nsid, c.namespaceData)
	case nvme.CNSIndependentNamespace, nvme.CNSIndependentAllocatedNS:
		x.identifyNamespace(b, nsid, c.independentData)
	case nvme.CNSCommandSetNamespace, nvme.CNSCommandSetAllocatedNSData:
		if x.nvmOnly() {
			x.identifyNamespace(b, nsid, commandSetNamespaceData)
		}
	case nvme.CNSController:
		c.controllerData().MarshalTo(b)
		x.put(b)
	case nvme.CNSCommandSetController:
		if x.nvmOnly() {
			c.commandSetControllerData().MarshalTo(b)
			x.put(b)
		}
	case nvme.CNSActiveNamespaces, nvme.CNSAllocatedNamespaces:
		x.identifyList(b, nsid)
	case nvme.CNSCommandSetActiveNS, nvme.CNSCommandSetAllocatedNS:
		if x.nvmOnly() {
			x.identifyList(b, nsid)
		}
	case nvme.CNSNamespaceDescriptors:
		ns := c.sub.Namespace(nsid)
		if ns == nil {
			x.failAt(nvme.StatusInvalidNamespace, locNSID)
			return
		}
		ids := nvme.NamespaceIDs{EUI64: ns.eui64, NGUID: ns.nguid, UUID: ns.uuid, CSI: nvme.CSINVM}
		ids.MarshalTo(b)
		x.put(b)
	case nvme.CNSNamespaceControllers:
		if c.sub.Namespace(nsid) == nil {
			x.failAt(nvme.StatusInvalidNamespace, locNSID)
			return
		}
		x.identifyControllers(b)
	case nvme.CNSControllers:
		x.identifyControllers(b)
	case nvme.CNSCommandSetCombinations:
		if id := x.cmd.CNTID(); id != nvme.CNTLIDDynamic && id != c.id {
			x.failAt(nvme.StatusInvalidField, locCDW10+2)
			return
		}
		nvme.PutCommandSetCombinations(b, []nvme.CommandSetCombination{nvme.CombinationNVM})
		x.put(b)
	default:
		x.failAt(nvme.StatusInvalidField, locCDW10)
	}
}

// nvmOnly refuses what names another command set than NVM.
func (x *control) nvmOnly() bool {
	if x.cmd.CSI() != nvme.CSINVM {
		x.failAt(nvme.StatusInvalidField, locCDW11+3)
		return false
	}
	return true
}

// identifyNamespace returns one namespace's data, zeros for one that is not active.
func (x *control) identifyNamespace(b []byte, nsid uint32, data func(*Namespace, []byte)) {
	if !validNSID(nsid) {
		x.failAt(nvme.StatusInvalidNamespace, locNSID)
		return
	}
	if ns := x.c.sub.Namespace(nsid); ns != nil {
		data(ns, b)
	}
	x.put(b)
}

// identifyList returns the active namespaces above an NSID. All that exist are
// active, so the allocated ones are the same.
func (x *control) identifyList(b []byte, above uint32) {
	if above >= nvme.NSIDMax {
		x.failAt(nvme.StatusInvalidNamespace, locNSID)
		return
	}
	var ids []uint32
	for _, ns := range x.c.sub.Namespaces() {
		if ns.nsid > above {
			ids = append(ids, ns.nsid)
		}
	}
	nvme.PutNSIDList(b, ids)
	x.put(b)
}

// identifyControllers returns the subsystem's controllers from an identifier on.
// Each has every namespace.
func (x *control) identifyControllers(b []byte) {
	t := x.c.target
	t.mu.Lock()
	var ids []uint16
	for id, c := range x.c.sub.controllers {
		if id >= x.cmd.CNTID() && !c.ended {
			ids = append(ids, id)
		}
	}
	t.mu.Unlock()
	slices.Sort(ids)
	nvme.PutControllerList(b, ids)
	x.put(b)
}

// controllerData is Identify Controller.
func (c *Controller) controllerData() *nvme.IdentifyController {
	t, l := c.target, &c.listener.info
	d := &nvme.IdentifyController{
		RAB:       6,
		MDTS:      pages(t.opts.MDTS),
		CNTLID:    c.id,
		VER:       version,
		OAES:      c.asyncEvents(),
		CTRATT:    nvme.CTRATTHostID128,
		CNTRLTYPE: nvme.ControllerIO,
		ACL:       maxAborts - 1,
		AERL:      maxAER - 1,
		LPA:       nvme.LPAExtendedData,
		ELPE:      errorLogEntries - 1,
		KAS:       uint16(keepAliveGranularity.Milliseconds() / 100),
		MAXCMD:    l.MaxQueueDepth,
		SGLS:      l.SGLS,
		SUBNQN:    nvme.MakeNQNField(c.sub.nqn),
		IORCSZ:    nvme.CompletionSize / 16,
		MSDBD:     l.MSDBD,
	}
	nvme.PutASCII(d.SN[:], c.sub.serial)
	nvme.PutASCII(d.MN[:], c.sub.model)
	nvme.PutASCII(d.FR[:], t.opts.Firmware)
	if c.discovery() {
		d.CNTRLTYPE = nvme.ControllerDiscovery
		d.LPA |= nvme.LPASupportedPages
		d.IOCCSZ = nvme.CommandSize / 16
		return d
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	common := c.sub.commonOps()
	d.CMIC = nvme.CMICMultiPort | nvme.CMICMultiController | nvme.CMICANA
	d.CTRATT |= nvme.CTRATTTrafficKeepAlive
	d.FRMW = 1<<nvme.FRMWSlotsShift | nvme.FRMWSlot1ReadOnly
	d.LPA |= nvme.LPASMARTPerNamespace | nvme.LPACommandEffects | nvme.LPASupportedPages
	d.ANATT = 10
	d.ANACAP = nvme.ANACAPOptimized | nvme.ANACAPNonOptimized | nvme.ANACAPInaccessible | nvme.ANACAPPersistentLoss | nvme.ANACAPChange | nvme.ANACAPGroupFixed
	d.ANAGRPMAX = MaxANAGroups
	d.NANAGRPID = MaxANAGroups
	d.SQES = nvme.IOSQES<<4 | nvme.IOSQES
	d.CQES = nvme.IOCQES<<4 | nvme.IOCQES
	d.NN = MaxNamespaces
	d.MNAN = MaxNamespaces
	d.ONCS = nvme.ONCSSaveFeatures | nvme.ONCSTimestamp
	for op, bit := range map[Op]uint16{
		OpCompare:     nvme.ONCSCompare,
		OpDeallocate:  nvme.ONCSDatasetManagement,
		OpWriteZeroes: nvme.ONCSWriteZeroes,
		OpVerify:      nvme.ONCSVerify,
	} {
		if common.Has(op) {
			d.ONCS |= bit
		}
	}
	d.VWC = nvme.VWCFlushAllAccepted
	if c.sub.writeCache() {
		d.VWC |= nvme.VWCPresent
	}
	d.IOCCSZ = (nvme.CommandSize + l.InCapsuleData) / 16
	d.OFCS = nvme.OFCSDisconnect
	return d
}

// commonOps are the optional operations that every namespace has. Without any
// namespace, those that one may have that is added. Target.mu is held.
func (s *Subsystem) commonOps() OpSet {
	ops := allOps
	for _, ns := range s.namespaces {
		ops &= ns.info.Load().Ops
	}
	return ops
}

// pages is a size in the form of MDTS: a power of two of 4 KiB pages (CAP.MPSMIN is 0).
func pages(bytes uint32) uint8 { return uint8(bits.Len32(bytes>>12) - 1) }

// commandSetControllerData is the NVM command set's Identify Controller. Verify
// and Write Zeroes have the same limit as what moves data: a command must not keep
// a reactor for long.
func (c *Controller) commandSetControllerData() *nvme.NVMIdentifyController {
	p := pages(c.target.opts.MDTS)
	return &nvme.NVMIdentifyController{VSL: p, WZSL: p, VER: nvmVersion}
}

// namespaceData is the NVM command set's Identify Namespace.
func (c *Controller) namespaceData(ns *Namespace, b []byte) {
	info := ns.info.Load()
	d := &nvme.IdentifyNamespace{
		NSZE:     info.Blocks,
		NCAP:     info.Blocks,
		NUSE:     info.Blocks,
		NMIC:     nvme.NMICShared,
		NOIOB:    info.OptimalIOBoundary,
		ANAGRPID: ns.anaGroup,
		NGUID:    ns.nguid,
		EUI64:    ns.eui64,
	}
	d.NVMCAP.Lo = info.Bytes()
	d.LBAF[0].LBADS = uint8(bits.TrailingZeros32(info.BlockSize))
	if ns.writeProtected() {
		d.NSATTR = nvme.NSATTRWriteProtected
	}
	if info.ReadsZeroesAfterDeallocate {
		d.DLFEAT = nvme.DLFEATReadZeroes
	}
	if info.Ops.Has(OpWriteZeroes) {
		d.DLFEAT |= nvme.DLFEATWriteZeroesDealloc
	}
	if a := info.Atomic; a != (AtomicUnits{}) {
		d.NSFEAT |= nvme.NSFEATAtomicUnits
		d.NAWUN, d.NAWUPF, d.NACWU = zeroBased(a.Normal), zeroBased(a.PowerFail), zeroBased(a.Compare)
		d.NABSN, d.NABSPF = zeroBased(a.Boundary), zeroBased(a.BoundaryPowerFail)
		d.NABO = uint16(min(a.BoundaryOffset, math.MaxUint16))
	}
	if info.WriteGranularity|info.WriteAlignment|info.DeallocGranularity|info.DeallocAlignment|info.OptimalWriteSize != 0 {
		d.NSFEAT |= nvme.NSFEATOptimalUnits
		d.NPWG, d.NPWA = zeroBased(info.WriteGranularity), zeroBased(info.WriteAlignment)
		d.NPDG, d.NPDA = zeroBased(info.DeallocGranularity), zeroBased(info.DeallocAlignment)
		d.NOWS = zeroBased(info.OptimalWriteSize)
	}
	d.MarshalTo(b)
}

// zeroBased is the wire's form of a count; 0 ("nothing to say") is that of 1.
func zeroBased(n uint32) uint16 { return uint16(min(max(n, 1)-1, math.MaxUint16)) }

// independentData is the I/O Command Set Independent Identify Namespace.
func (c *Controller) independentData(ns *Namespace, b []byte) {
	d := &nvme.IndependentNamespace{NMIC: nvme.NMICShared, ANAGRPID: ns.anaGroup}
	if ns.writeProtected() {
		d.NSATTR = nvme.NSATTRWriteProtected
	}
	if ns.Ready() {
		d.NSTAT = nvme.NSTATReady
	}
	if !ns.info.Load().VolatileWriteCache {
		d.NSFEAT |= nvme.IndependentNSFEATNoVWC
	}
	d.MarshalTo(b)
}

// commandSetNamespaceData is the NVM command set's own Identify Namespace part:
// all of it is about protection information and large granularities.
func commandSetNamespaceData(_ *Namespace, b []byte) { new(nvme.NVMIdentifyNamespace).MarshalTo(b) }
