package pcie

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"rocet/nvme"
)

// errAsked says that the kernel wants the function back: it is being unplugged, or unbound.
var errAsked = errors.New("the kernel asks for the drive's function back (it is being removed or unbound)")

// recover brings a drive that has failed back to live, or lets go of it. All of it is bounded: by the controller's own
// timeouts, and by what ends its DMA when these pass.
func (d *Drive) recover(reason error) []Event {
	started := time.Now()
	d.state.Store(uint32(Resetting))
	d.lastReason = reason.Error()
	d.holdUntil = started.Add(d.cfg.Hold)
	d.log.Warn("drive is not live any more, commands wait", "reason", reason)
	asked := errors.Is(reason, errAsked)
	if asked {
		d.drain()
	}
	d.onQueues((*Queue).freeze)
	if asked {
		// It is to go in good order: what its cache holds belongs on the media.
		if err := d.shutdown(maxShutdown); err != nil {
			d.log.Warn("the drive does not shut down in order", "error", err)
		}
	}
	var events []Event
	if !asked && !errors.Is(reason, errGone) && d.stopDMA() {
		d.counters.resets.Add(1)
		d.onQueues((*Queue).end)
		var err error
		if events, err = d.restart(); err == nil {
			d.becomeLive()
			d.log.Info("drive is live again", "reset_took", time.Since(started))
			return events
		}
		reason = fmt.Errorf("%w; the reset after that failed: %w", reason, err)
		d.lastReason = reason.Error()
	} else if asked {
		d.stopDMA()
	}
	return append(events, d.letGo(reason))
}

// drainLimit is how long a drive that is to be given back may take for the commands that it has.
const drainLimit = 3 * time.Second

// drain lets the drive finish what it has, and gives it nothing new.
func (d *Drive) drain() {
	d.onQueues((*Queue).drain)
	for deadline := time.Now().Add(drainLimit); time.Now().Before(deadline); {
		var busy atomic.Bool
		d.onQueues(func(q *Queue) {
			if q.Busy() {
				busy.Store(true)
			}
		})
		if st, there := d.regs.status(); !busy.Load() || !there || st.CFS() || d.pause(time.Millisecond) != nil {
			return
		}
	}
}

// letGo closes the function, ends what the drive had, and waits for its return from then on.
func (d *Drive) letGo(reason error) Event {
	d.detach() // whatever the drive still did, its DMA ends here
	d.onQueues((*Queue).end)
	d.counters.removals.Add(1)
	if errors.Is(reason, errAsked) || errors.Is(reason, errGone) {
		d.holdUntil = time.Now().Add(d.cfg.HoldRemoved)
	}
	d.state.Store(uint32(Gone))
	d.checkHold()
	d.log.Error("drive is gone", "reason", reason)
	return Event{Kind: EventGone}
}

// stopDMA makes certain that the drive touches no memory any more: by the controller's own word, or by taking its access
// to the bus away. It returns false if neither can be had: closing the function is what is left.
func (d *Drive) stopDMA() bool {
	err := d.disable(min(d.readyTimeout(), maxDisableWait))
	if err == nil {
		return true
	}
	d.log.Warn("the controller does not stop by itself, its bus mastering is taken away", "error", err)
	if err := d.fn.SetBusMaster(false); err != nil {
		d.log.Warn("bus mastering cannot be taken away", "error", err)
		return false
	}
	if d.fn.CanReset() {
		if err := d.fn.Reset(); err != nil {
			d.log.Warn("the function cannot be reset", "error", err)
		}
	}
	return true
}

// restart brings the controller up again, with its namespaces and its queues, which are empty and frozen.
func (d *Drive) restart() ([]Event, error) {
	err := d.enableAndStart()
	if err != nil && !errors.Is(err, errGone) && !errors.Is(err, errStopped) && d.fn.CanReset() {
		d.log.Warn("the controller does not come up, resetting the function", "error", err)
		if rerr := d.fn.Reset(); rerr != nil {
			return nil, errors.Join(err, rerr)
		}
		err = d.enableAndStart()
	}
	if err != nil {
		return nil, err
	}
	return d.restore()
}

// restore gives an enabled controller what the old one had.
func (d *Drive) restore() ([]Event, error) {
	var events []Event
	for _, ns := range d.namespaces {
		different, err := d.refreshNamespace(ns, true)
		if err != nil {
			return events, err
		}
		if different {
			events = append(events, Event{Kind: EventNamespaceChanged, NSID: ns.nsid})
		}
	}
	links := make([]link, len(d.queues))
	for i, q := range d.queues {
		if q == nil {
			continue
		}
		if i >= d.allowed {
			return events, fmt.Errorf("the drive gives %d I/O queues now, and more are in use", d.allowed)
		}
		var err error
		if links[i], err = d.createQueue(q); err != nil {
			return events, err
		}
	}
	// What was reported up to here is settled.
	d.reports.And(^(reportPCIError | reportAdmin | reportGarbage | reportStuck))
	for len(d.timeouts) > 0 {
		<-d.timeouts
	}
	d.onQueues(func(q *Queue) { q.attach(links[q.id-1]) })
	return events, nil
}

func (d *Drive) becomeLive() {
	d.state.Store(uint32(Live))
	d.holdUntil = time.Time{}
	d.lastReason, d.said = "", nil
}

// reopen tries whether the drive is there again.
func (d *Drive) reopen() []Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	fn, err := d.cfg.Open()
	if err != nil {
		d.notBack(err)
		return nil
	}
	d.fn = fn
	var events []Event
	if err = d.bringUp(fn); err == nil {
		events, err = d.restore()
	}
	if err != nil {
		d.detach()
		d.notBack(err)
		return nil
	}
	d.counters.returns.Add(1)
	d.setAddress(fn)
	d.becomeLive()
	d.log.Info("drive is back", "at", fn.Address(), "firmware", nvme.ASCII(d.ctrl.FR[:]))
	return append(events, Event{Kind: EventBack})
}

// notBack says why the drive is not taken up again, once for each reason.
func (d *Drive) notBack(err error) {
	text := err.Error()
	d.lastReason = text
	if d.said[text] || len(d.said) > 20 {
		return
	}
	if d.said == nil {
		d.said = make(map[string]bool)
	}
	d.said[text] = true
	d.log.Warn("drive is not back yet", "reason", text)
}
