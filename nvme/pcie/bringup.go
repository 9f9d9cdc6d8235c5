package pcie

import (
	"errors"
	"fmt"
	"time"

	"rocet/nvme"
	"rocet/nvme/vfio"
)

var (
	errFatal   = errors.New("the controller reports a fatal error (CSTS.CFS)")
	errStopped = errors.New("the drive is being closed")
)

// Bounds of what a drive says about itself, which may be up to 127 s.
const (
	maxReadyWait   = 130 * time.Second
	maxDisableWait = 10 * time.Second // DMA is ended by other means after that
	maxShutdown    = 10 * time.Second
)

// attach takes a function that was just opened.
func (d *Drive) attach(fn Function) error {
	if err := d.layout.locate(d.cfg.Table, d.cfg.Depth); err != nil {
		return err
	}
	bar, err := fn.MapBAR(0)
	if err != nil {
		return err
	}
	if !bar.Mapped(0, nvme.RegDoorbells) {
		return fmt.Errorf("%s: the kernel does not let the controller's registers be mapped", fn.Address())
	}
	d.fn, d.bar, d.regs = fn, bar, registers{bar.Base}
	d.cap = d.regs.capabilities()
	if uint32(d.cap) == allOnes {
		return errGone
	}
	d.vectors = min(fn.Vectors(), len(d.eventfds))
	if d.vectors > 0 {
		if err := fn.EnableMSIX(d.eventfds[:d.vectors]); err != nil {
			return err
		}
	}
	if d.masks, err = fn.Masks(d.vectors); err != nil {
		return err
	}
	for _, w := range []struct {
		fd   int
		kind uint32
	}{{fn.ErrorFD(), reportPCIError}, {fn.RequestFD(), reportRequest}} {
		if w.fd < 0 {
			continue
		}
		f, err := watchFD(w.fd, func() { d.report(w.kind) })
		if err != nil {
			return err
		}
		d.watches = append(d.watches, f)
	}
	return nil
}

// maskVectors silences the I/O queues' vectors: they are polled until they say otherwise.
func (d *Drive) maskVectors() {
	for i, m := range d.masks {
		m.Set(i > 0)
	}
}

// enable brings the attached controller from any state to ready, with its admin queue.
func (d *Drive) enable() error {
	d.cap = d.regs.capabilities()
	d.version = d.regs.version()
	if uint32(d.cap) == allOnes || uint32(d.version) == allOnes {
		return errGone
	}
	if err := d.checkCapabilities(); err != nil {
		return err
	}
	if err := d.disable(d.readyTimeout()); err != nil {
		return err
	}
	d.admin.reset(d.regs, d.layout, d.cap.DSTRD())
	d.regs.store32(nvme.RegAQA, uint32(nvme.MakeAQA(adminEntries, adminEntries)))
	d.regs.store64(nvme.RegASQ, d.layout.adminSQ.iova)
	d.regs.store64(nvme.RegACQ, d.layout.adminCQ.iova)
	if err := d.fn.SetBusMaster(true); err != nil {
		return err
	}
	css := uint8(nvme.CCCSSNVM)
	if d.cap.CSS()&nvme.CAPCSSIOCSS != 0 {
		css = nvme.CCCSSAll // the controller tells then what is no NVM namespace
	}
	cc := nvme.CC(0).WithCSS(css).WithIOSQES(nvme.IOSQES).WithIOCQES(nvme.IOCQES)
	d.regs.setCC(cc)
	d.regs.setCC(cc.WithEN(true))
	err := d.waitRegister(d.readyTimeout(), "CSTS.RDY to become 1", func(st nvme.CSTS) (bool, error) {
		if st.CFS() {
			return false, errFatal
		}
		return st.RDY(), nil
	})
	d.maskVectors()
	return err
}

func (d *Drive) checkCapabilities() error {
	switch {
	case d.cap.CSS()&(nvme.CAPCSSNVM|nvme.CAPCSSIOCSS) == 0:
		return fmt.Errorf("the controller has no NVM command set (CAP.CSS %#x)", d.cap.CSS())
	case d.cap.MPSMIN() > 0:
		return fmt.Errorf("the controller needs memory pages of %d KiB, Rocet's are 4 KiB (CAP.MPSMIN)", 4<<d.cap.MPSMIN())
	case d.cap.MQES() == 0:
		return errors.New("the controller's queues have one entry at most (CAP.MQES 0), which is against the specification")
	}
	if need := uint64(nvme.DoorbellCQ(uint16(d.cfg.Queues), d.cap.DSTRD())) + 4; !d.bar.Mapped(0, need) {
		return fmt.Errorf("the doorbells of %d queues lie outside what can be mapped of BAR 0 (%d bytes)", d.cfg.Queues, d.bar.Size)
	}
	return nil
}

// readyTimeout is how long the controller may take for RDY to follow EN: Base 2.1 section 3.1.4.21 (CRTO) and CAP.TO.
// Drives exist whose CRTO is shorter than CAP.TO: the longer one is meant.
func (d *Drive) readyTimeout() time.Duration {
	t := d.cap.Timeout()
	if d.cap.CRMS()&nvme.CAPCRMSWithMedia != 0 {
		t = max(t, nvme.CRTO(d.regs.load32(nvme.RegCRTO)).WithMediaTimeout())
	}
	return min(max(t, 500*time.Millisecond)+100*time.Millisecond, maxReadyWait)
}

// disable clears CC.EN and waits until the controller has stopped: it does no DMA after that.
func (d *Drive) disable(limit time.Duration) error {
	cc := d.regs.cc()
	st, there := d.regs.status()
	if !there {
		return errGone
	}
	if cc.EN() && !st.RDY() && !st.CFS() {
		// Being enabled by somebody before us: EN must not go before RDY has come. A controller that fails in this is
		// disabled all the same.
		err := d.waitRegister(limit, "CSTS.RDY to become 1", func(st nvme.CSTS) (bool, error) { return st.RDY() || st.CFS(), nil })
		if errors.Is(err, errGone) || errors.Is(err, errStopped) {
			return err
		}
	}
	if cc.EN() {
		d.regs.setCC(cc.WithEN(false).WithSHN(nvme.ShutdownNone))
	}
	return d.waitRegister(limit, "CSTS.RDY to become 0", func(st nvme.CSTS) (bool, error) { return !st.RDY(), nil })
}

// shutdown tells the controller to bring its volatile cache to the media: Base 2.1 section 3.6.1.
func (d *Drive) shutdown(limit time.Duration) error {
	if e := time.Duration(d.ctrl.RTD3E) * time.Microsecond; e > 0 {
		limit = min(limit, e+time.Second)
	}
	d.regs.setCC(d.regs.cc().WithSHN(nvme.ShutdownNormal))
	return d.waitRegister(limit, "CSTS.SHST to become 2", func(st nvme.CSTS) (bool, error) {
		if st.CFS() {
			return false, errFatal
		}
		return st.SHST() == nvme.ShutdownStatusComplete, nil
	})
}

func (d *Drive) waitRegister(limit time.Duration, what string, done func(nvme.CSTS) (bool, error)) error {
	deadline := time.Now().Add(limit)
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		st, there := d.regs.status()
		if !there {
			return errGone
		}
		if ok, err := done(st); ok || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %v for %s (CC %#x, CSTS %#x)", limit, what, uint32(d.regs.cc()), uint32(st))
		}
		if err := d.pause(pause); err != nil {
			return err
		}
	}
}

// start makes an enabled controller ready for I/O queues.
func (d *Drive) start() error {
	if err := d.identify(); err != nil {
		return err
	}
	if err := d.negotiateQueues(); err != nil {
		return err
	}
	if err := d.shareDoorbells(); err != nil {
		return err
	}
	return d.subscribe()
}

// identify reads Identify Controller and derives the limits from it. A drive that came back must be the same one.
func (d *Drive) identify() error {
	var cmd nvme.Command
	cmd.SetOpcode(nvme.AdminIdentify)
	cmd.SetIdentify(nvme.CNSController, 0, 0, 0)
	if _, err := d.execRead("Identify Controller", &cmd, nvme.IdentifySize); err != nil {
		return err
	}
	var id nvme.IdentifyController
	if err := id.UnmarshalBinary(d.layout.data.bytes()); err != nil {
		return err
	}
	if d.identified && (id.SN != d.ctrl.SN || id.MN != d.ctrl.MN) {
		return fmt.Errorf("another drive is in its place: %s, serial number %s (it was %s, %s)",
			nvme.ASCII(id.MN[:]), nvme.ASCII(id.SN[:]), nvme.ASCII(d.ctrl.MN[:]), nvme.ASCII(d.ctrl.SN[:]))
	}
	if id.CNTRLTYPE != 0 && id.CNTRLTYPE != nvme.ControllerIO {
		return fmt.Errorf("it is no I/O controller (CNTRLTYPE %d)", id.CNTRLTYPE)
	}
	if low, high := id.SQES&15, id.SQES>>4; low > nvme.IOSQES || high < nvme.IOSQES {
		return fmt.Errorf("its submission queue entries are not of 64 bytes (SQES %#x)", id.SQES)
	}
	if low, high := id.CQES&15, id.CQES>>4; low > nvme.IOCQES || high < nvme.IOCQES {
		return fmt.Errorf("its completion queue entries are not of 16 bytes (CQES %#x)", id.CQES)
	}
	d.ctrl, d.identified = id, true
	return d.readLimits()
}

// readLimits reads the NVM command set's limits, which controllers before revision 2.0 have not.
func (d *Drive) readLimits() error {
	d.nvm = nvme.NVMIdentifyController{}
	if d.version >= nvme.Version20 {
		var cmd nvme.Command
		cmd.SetOpcode(nvme.AdminIdentify)
		cmd.SetIdentify(nvme.CNSCommandSetController, 0, nvme.CSINVM, 0)
		_, err := d.execRead("Identify Controller for the NVM command set", &cmd, nvme.IdentifySize)
		var refused *CommandError
		if err == nil {
			err = d.nvm.UnmarshalBinary(d.layout.data.bytes())
		} else if errors.As(err, &refused) {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	d.maxTransfer = MaxTransfer
	if m := d.ctrl.MDTS; m > 0 && m < 20 {
		d.maxTransfer = min(d.maxTransfer, pageSize<<m)
	}
	return nil
}

// negotiateQueues asks for the I/O queues: Base 2.1 section 5.1.25.1.6.
func (d *Drive) negotiateQueues() error {
	var cmd nvme.Command
	cmd.SetOpcode(nvme.AdminSetFeatures)
	cmd.SetCDW(10, uint32(nvme.FeatureNumberOfQueues))
	want := uint32(d.cfg.Queues)
	cmd.SetCDW(11, uint32(nvme.MakeQueueCounts(want, want)))
	c, err := d.admin.exec("Set Features (Number of Queues)", &cmd, d.cfg.AdminTimeout)
	if err != nil {
		return err
	}
	got := nvme.QueueCounts(c.DW0())
	d.allowed = int(min(got.Submission(), got.Completion(), want))
	d.depth = min(d.cfg.Depth, int(d.cap.MQES())+1)
	return nil
}

// shareDoorbells gives the controller the shadow doorbells, where it has them: Base 2.1 section 5.2.5. They spare the
// accesses to registers, which cost an exit of the virtual machine for an emulated drive.
func (d *Drive) shareDoorbells() error {
	d.shadow = false
	d.layout.shadow.clear()
	d.layout.events.clear()
	stride := 4 << d.cap.DSTRD()
	if d.ctrl.OACS&nvme.OACSDoorbellBuffer == 0 || (d.cfg.Queues+1)*2*stride > pageSize {
		return nil
	}
	var cmd nvme.Command
	cmd.SetOpcode(nvme.AdminDoorbellBufferConfig)
	cmd.SetPRP1(d.layout.shadow.iova)
	cmd.SetPRP2(d.layout.events.iova)
	_, err := d.admin.exec("Doorbell Buffer Config", &cmd, d.cfg.AdminTimeout)
	var refused *CommandError
	if errors.As(err, &refused) {
		d.log.Warn("the drive offers shadow doorbells and refuses them", "status", refused.Status.String())
		return nil
	}
	d.shadow = err == nil
	return err
}

// subscribe asks for asynchronous events: Base 2.1 sections 5.1.2 and 5.1.25.1.5.
func (d *Drive) subscribe() error {
	const critical = nvme.SMARTSpareLow | nvme.SMARTTemperature | nvme.SMARTDegraded | nvme.SMARTReadOnly | nvme.SMARTBackupFailed
	var cmd nvme.Command
	cmd.SetOpcode(nvme.AdminSetFeatures)
	cmd.SetCDW(10, uint32(nvme.FeatureAsyncEventConfig))
	cmd.SetCDW(11, critical|d.ctrl.OAES&(nvme.OAESNamespaceAttribute|nvme.OAESFirmwareActivation))
	_, err := d.admin.exec("Set Features (Asynchronous Event Configuration)", &cmd, d.cfg.AdminTimeout)
	var refused *CommandError
	if errors.As(err, &refused) {
		d.log.Warn("the drive refuses to be asked for events", "status", refused.Status.String())
	} else if err != nil {
		return err
	}
	d.admin.requestEvents(min(maxAERs, int(d.ctrl.AERL)+1))
	return d.admin.broken
}

// execRead runs an admin command that returns up to a page of data.
func (d *Drive) execRead(name string, cmd *nvme.Command, n int) ([]byte, error) {
	d.layout.data.clear()
	cmd.SetPRP1(d.layout.data.iova)
	if _, err := d.admin.exec(name, cmd, d.cfg.AdminTimeout); err != nil {
		return nil, err
	}
	return d.layout.data.bytes()[:n], nil
}

// logPage reads up to a page of a log page. RAE 0: reading re-arms the event that goes with it.
func (d *Drive) logPage(lid nvme.LogID, nsid uint32, n int) ([]byte, error) {
	var cmd nvme.Command
	cmd.SetOpcode(nvme.AdminGetLogPage)
	cmd.SetNSID(nsid)
	cmd.SetLog(lid, 0, false, uint64(n), 0)
	return d.execRead(fmt.Sprintf("Get Log Page %02xh", uint8(lid)), &cmd, n)
}

var _ Function = (*vfio.Device)(nil)
