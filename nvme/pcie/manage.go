package pcie

import (
	"errors"
	"fmt"
	"time"

	"rocet/nvme"
)

// What the manager is told, as bits of Drive.reports.
const (
	reportClose uint32 = 1 << iota
	reportAdminIRQ
	reportPCIError
	reportRequest
	reportAdmin   // the admin queue has failed
	reportGarbage // a completion queue has
	reportStuck   // a command did not come back from its abort
)

// timeout is a command that has not come back in time.
type timeout struct{ qid, cid uint16 }

// report tells the manager something. It does not block, and does not allocate.
func (d *Drive) report(kind uint32) {
	d.reports.Or(kind)
	select {
	case d.wake <- struct{}{}:
	default: // it has been woken already
	}
}

// reportTimeout asks for a command to be aborted. If there are too many, the reset that follows serves for the rest.
func (d *Drive) reportTimeout(qid, cid uint16) {
	select {
	case d.timeouts <- timeout{qid, cid}:
	default:
	}
}

// How often the manager looks by itself.
const (
	watchInterval  = time.Second            // at a controller that has interrupts
	pollInterval   = 100 * time.Millisecond // at one that has none
	reopenInterval = time.Second
)

// manage is the drive's goroutine: events, aborts, recovery.
func (d *Drive) manage() {
	defer close(d.done)
	interval := watchInterval
	if d.vectors == 0 {
		interval = pollInterval
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		var events []Event
		select {
		case <-d.wake:
		case t := <-d.timeouts:
			events = d.abort(t)
		case <-tick.C:
			if d.State() == Gone {
				events = d.reopen()
			}
		}
		what := d.reports.Swap(0)
		if d.stopping.Load() {
			return
		}
		events = append(events, d.look(what)...)
		if d.cfg.Notify != nil {
			for _, e := range events {
				d.cfg.Notify(e)
			}
		}
	}
}

// pause waits, in a recovery or for an admin command, and sees to the bound of what waits for the drive.
func (d *Drive) pause(t time.Duration) error {
	if d.hurry.Load() {
		return errStopped
	}
	time.Sleep(t)
	d.checkHold()
	return nil
}

// checkHold ends what has waited for the drive for too long.
func (d *Drive) checkHold() {
	if d.holdUntil.IsZero() || time.Now().Before(d.holdUntil) {
		return
	}
	d.holdUntil = time.Time{}
	d.onQueues((*Queue).expire)
}

// look examines the controller and does what is needed.
func (d *Drive) look(what uint32) []Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.State() {
	case Gone:
		d.checkHold()
		return nil
	case Live:
	default:
		return nil
	}
	if what&reportRequest != 0 {
		return d.recover(errAsked)
	}
	st, there := d.regs.status()
	switch {
	case !there:
		return d.recover(errGone)
	case st.CFS():
		return d.recover(errFatal)
	case what&reportPCIError != 0:
		return d.recover(errors.New("a fatal PCI Express error was reported"))
	case what&reportGarbage != 0:
		return d.recover(errors.New("a completion queue holds what cannot be"))
	case what&reportStuck != 0:
		return d.recover(errors.New("a command came back neither in time nor from its abort"))
	}
	d.admin.reap()
	events := d.handleEvents()
	if d.admin.broken != nil {
		return append(events, d.recover(d.admin.broken)...)
	}
	return events
}

// abort asks the drive to give a command back: Base 2.1 section 5.1.1.
func (d *Drive) abort(t timeout) []Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.State() != Live {
		return nil
	}
	if st, there := d.regs.status(); !there || st.CFS() {
		return nil // look sees to it
	}
	d.counters.aborts.Add(1)
	var cmd nvme.Command
	cmd.SetOpcode(nvme.AdminAbort)
	cmd.SetAbort(t.qid, t.cid)
	c, err := d.admin.exec("Abort", &cmd, d.cfg.AbortTimeout)
	d.log.Warn("a command timed out and was aborted", "queue", t.qid, "cid", t.cid, "found", err == nil && c.DW0()&1 == 0, "error", err)
	var refused *CommandError
	if err == nil || errors.As(err, &refused) {
		return nil // if it does not come back now, it is reported as stuck
	}
	return d.recover(fmt.Errorf("aborting a command that timed out: %w", err))
}

// handleEvents reads the log page of each asynchronous event, which re-arms it.
func (d *Drive) handleEvents() []Event {
	var out []Event
	for len(d.admin.events) > 0 && d.admin.broken == nil {
		e := d.admin.events[0]
		d.admin.events = d.admin.events[1:]
		d.counters.events.Add(1)
		var err error
		switch {
		case e.Type() == nvme.EventNotice && e.Info() == nvme.EventNoticeNamespaceChanged:
			var changed []Event
			changed, err = d.namespacesChanged()
			out = append(out, changed...)
		case e.Type() == nvme.EventSMART:
			var health []Event
			health, err = d.healthChanged()
			out = append(out, health...)
		case e.Type() == nvme.EventError:
			err = d.logErrors(e)
		default:
			d.log.Info("the drive reports an event", "type", uint8(e.Type()), "info", e.Info(), "log_page", uint8(e.Log()))
			if e.Log() != 0 {
				_, err = d.logPage(e.Log(), nvme.NSIDAll, nvme.SMARTLogSize)
			}
		}
		if err != nil {
			d.log.Warn("an event of the drive cannot be followed up", "type", uint8(e.Type()), "info", e.Info(), "error", err)
		}
	}
	d.admin.requestEvents(min(maxAERs, int(d.ctrl.AERL)+1))
	return out
}

func (d *Drive) namespacesChanged() ([]Event, error) {
	b, err := d.logPage(nvme.LogChangedNamespaces, nvme.NSIDAll, nvme.ChangedNSLogSize)
	if err != nil {
		return nil, err
	}
	changed, err := nvme.ParseNSIDList(b)
	if err != nil {
		return nil, err
	}
	if len(changed) == 1 && changed[0] == nvme.ChangedNSLogOverflow {
		changed = changed[:0]
		for nsid := range d.namespaces {
			changed = append(changed, nsid)
		}
	}
	var events []Event
	for _, nsid := range changed {
		ns := d.namespaces[nsid]
		if ns == nil {
			continue
		}
		different, err := d.refreshNamespace(ns, false)
		if err != nil {
			return events, err
		}
		if different {
			events = append(events, Event{Kind: EventNamespaceChanged, NSID: nsid})
		}
	}
	return events, nil
}

// refreshNamespace reads a namespace's data again. Its format must not have changed; its size may have.
func (d *Drive) refreshNamespace(ns *Namespace, frozen bool) (different bool, err error) {
	id, err := d.identifyNamespace(ns.nsid)
	var format *FormatError
	var refused *CommandError
	old := ns.data.Load()
	switch {
	case err == nil && !sameFormat(old, id):
		err = &FormatError{ns.nsid, "it is another one than before, or was formatted in another way"}
	case err != nil && !errors.As(err, &format) && !errors.As(err, &refused):
		return false, err
	}
	if err != nil {
		if ns.usable.Swap(false) {
			d.log.Error("a namespace can no longer be used", "nsid", ns.nsid, "reason", err)
			return true, nil
		}
		return false, nil
	}
	if frozen {
		ns.settle(d, id)
	} else {
		ns.data.Store(id)
	}
	back := !ns.usable.Swap(true)
	if old.NSZE != id.NSZE {
		d.log.Info("a namespace has another size", "nsid", ns.nsid, "blocks", id.NSZE, "before", old.NSZE)
	}
	return back || old.NSZE != id.NSZE, nil
}

func (d *Drive) healthChanged() ([]Event, error) {
	b, err := d.logPage(nvme.LogSMART, nvme.NSIDAll, nvme.SMARTLogSize)
	if err != nil {
		return nil, err
	}
	var log nvme.SMARTLog
	if err := log.UnmarshalBinary(b); err != nil {
		return nil, err
	}
	if log.CriticalWarning == d.warning {
		return nil, nil
	}
	d.warning = log.CriticalWarning
	d.log.Warn("the drive's SMART critical warning changed", "warning", log.CriticalWarning, "kelvin", log.Temperature,
		"spare_percent", log.AvailableSpare, "used_percent", log.PercentageUsed)
	return []Event{{Kind: EventHealth}}, nil
}

func (d *Drive) logErrors(e nvme.AsyncEvent) error {
	entries, err := d.errorLog()
	if err != nil {
		return err
	}
	attrs := []any{"info", e.Info(), "entries", len(entries)}
	if len(entries) > 0 {
		n := entries[0]
		attrs = append(attrs, "newest", n.Count, "status", n.Status.String(), "queue", n.SQID, "cid", n.CID, "nsid", n.NSID, "lba", n.LBA)
	}
	d.log.Error("the drive reports an error", attrs...)
	return nil
}
