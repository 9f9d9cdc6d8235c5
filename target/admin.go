package target

import (
	"rocet/nvme"
)

// Byte offsets of command dwords, for error locations.
const (
	locNSID  = 4
	locCDW10 = 40
	locCDW11 = 44
	locCDW12 = 48
	locCDW14 = 56
)

// prepareAdmin is Prepare on a live admin queue.
func (q *Queue) prepareAdmin(r *Request) nvme.Status {
	q.ka.last = q.group.Reactor.Now()
	if r.opcode == nvme.AdminFabrics {
		return q.prepareFabrics(r)
	}
	if !q.ready {
		return nvme.StatusCommandSequenceError
	}
	switch r.opcode {
	case nvme.AdminIdentify:
		r.fromController(nvme.IdentifySize)
	case nvme.AdminGetLogPage:
		n := r.Cmd.LogLength()
		if n > uint64(q.target.opts.MDTS) {
			return r.fieldError(locCDW10 + 2)
		}
		r.fromController(uint32(n))
	case nvme.AdminGetFeatures:
		if n := featureDataSize(r.Cmd.FID()); n != 0 && r.Cmd.FeatureSelect() != nvme.FeatureCapabilities {
			r.fromController(n)
		} else {
			r.act = actControl
		}
	case nvme.AdminSetFeatures:
		r.act = actControl
		if n := featureDataSize(r.Cmd.FID()); n != 0 {
			r.Dir = nvme.DirHostToController
			r.Length = n
		}
	case nvme.AdminAbort:
		return q.prepareAbort(r)
	case nvme.AdminAER:
		r.act = actAER
	case nvme.AdminKeepAlive:
		r.act = actKeepAlive
	default:
		r.location = 0
		return nvme.StatusInvalidOpcode
	}
	return nvme.StatusSuccess
}

// fromController is a control command that returns n bytes.
func (r *Request) fromController(n uint32) {
	r.act = actControl
	r.Dir = nvme.DirControllerToHost
	r.Length = n
}

// admin executes an admin command off the reactor.
func (x *control) admin() {
	switch x.cmd.Opcode() {
	case nvme.AdminIdentify:
		x.identify()
	case nvme.AdminGetLogPage:
		x.getLogPage()
	case nvme.AdminGetFeatures:
		x.getFeatures()
	case nvme.AdminSetFeatures:
		x.setFeatures()
	default:
		x.fail(nvme.StatusInvalidOpcode)
	}
}

// validNSID tells whether a command's NSID could be a namespace of this subsystem,
// active or not.
func validNSID(nsid uint32) bool { return nsid >= 1 && nsid <= MaxNamespaces }
