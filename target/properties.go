package target

import (
	"rocet/nvme"
)

// Properties: Base 2.1 section 3.1.4.

// readyTimeout is CAP.TO and CRTO.CRWMT in 500 ms units: how long a reset may
// take, which is as long as the I/O queues take to drain.
const readyTimeout = 60

// capabilities is CAP. There is one command set, NVM: to say that there could be others (CAP.CSS bit 6) makes hosts ask
// for logs of those.
func (c *Controller) capabilities() nvme.CAP {
	return nvme.CAP(0).
		WithMQES(c.listener.info.MaxQueueDepth - 1).
		WithCQR(true).
		WithTO(readyTimeout).
		WithCSS(nvme.CAPCSSNVM).
		WithCRMS(nvme.CAPCRMSWithMedia)
}

// property returns a property's value and its size, 0 where there is none.
// Target.mu is held.
func (c *Controller) property(offset uint32) (value uint64, size int) {
	switch offset {
	case nvme.RegCAP:
		return uint64(c.capabilities()), 8
	case nvme.RegVS:
		return uint64(version), 4
	case nvme.RegCC:
		return uint64(c.cc), 4
	case nvme.RegCSTS:
		return uint64(c.csts), 4
	case nvme.RegCRTO:
		return uint64(nvme.MakeCRTO(readyTimeout, 0)), 4
	}
	return 0, 0
}

func propertySize(attrib uint8) int {
	switch attrib {
	case nvme.PropertySize4:
		return 4
	case nvme.PropertySize8:
		return 8
	}
	return -1
}

// Offsets of the Property commands' fields, for error locations.
const (
	propertyATTRIB = 40
	propertyOFST   = 44
	propertyVALUE  = 48
)

func (x *control) propertyGet() {
	x.c.target.mu.Lock()
	defer x.c.target.mu.Unlock()
	value, size := x.c.property(x.cmd.OFST())
	switch {
	case size == 0:
		x.failAt(nvme.StatusInvalidField, propertyOFST)
	case size != propertySize(x.cmd.ATTRIB()):
		x.failAt(nvme.StatusInvalidField, propertyATTRIB)
	default:
		x.result = value
	}
}

func (x *control) propertySet() {
	switch {
	case x.cmd.OFST() != nvme.RegCC:
		x.failAt(nvme.StatusInvalidField, propertyOFST)
	case x.cmd.ATTRIB() != nvme.PropertySize4:
		x.failAt(nvme.StatusInvalidField, propertyATTRIB)
	default:
		x.setCC(nvme.CC(x.cmd.VALUE()))
	}
}

// setCC is a write to Controller Configuration.
func (x *control) setCC(cc nvme.CC) {
	c := x.c
	t := c.target
	t.mu.Lock()
	defer t.mu.Unlock()
	old := c.cc
	if cc.EN() {
		ok := cc.CSS() == nvme.CCCSSNVM && cc.MPS() == 0 && cc.AMS() == 0
		if !ok {
			x.failAt(nvme.StatusInvalidField, propertyVALUE)
			return
		}
		if c.draining { // CSTS.RDY is still 1
			x.failAt(nvme.StatusCommandSequenceError, propertyVALUE)
			return
		}
	}
	c.cc = cc
	resetNow := false
	switch {
	case !old.EN() && cc.EN():
		c.csts = c.csts.WithRDY(true).WithSHST(nvme.ShutdownStatusNormal)
		c.log.Info("controller enabled")
	case old.EN() && !cc.EN():
		// CSTS.RDY goes to 0 when the I/O queues are gone.
		c.log.Info("controller disabled by the host", "ioqueues", len(c.queues))
		c.reset()
		c.cc = cc
		c.draining = true
		resetNow = true
	}
	if cc.SHN() != nvme.ShutdownNone && old.SHN() != cc.SHN() && c.csts.SHST() == nvme.ShutdownStatusNormal {
		c.log.Info("controller shut down by the host", "ioqueues", len(c.queues))
		c.csts = c.csts.WithSHST(nvme.ShutdownStatusProcessing)
	}
	if c.draining || c.csts.SHST() == nvme.ShutdownStatusProcessing {
		c.endIO(ErrControllerReset)
		c.drained()
	}
	ready := c.ready()
	period := c.kaPeriod()
	q := x.q
	x.after = func() {
		if resetNow {
			q.resetEvents()
		}
		q.ready = ready
		q.ka.start(q, period)
	}
}

// ready tells whether admin commands are taken. Target.mu is held.
func (c *Controller) ready() bool {
	return c.cc.EN() && !c.draining && c.csts.RDY() && c.csts.SHST() == nvme.ShutdownStatusNormal
}

// reset is the part of a controller reset that concerns its own state: features
// and what the host was to be told. Target.mu is held.
func (c *Controller) reset() {
	c.granted = c.target.opts.MaxIOQueues
	c.feat.reset()
	c.mu.Lock()
	c.changes = changedNamespaces{}
	c.mu.Unlock()
}
