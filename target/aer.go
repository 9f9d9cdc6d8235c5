package target

import (
	"slices"

	"rocet/nvme"
)

// Asynchronous events: Base 2.1 section 5.1.2. A kind of event that was reported
// is masked until the host has read its log page without Retain Asynchronous
// Event. Events that come meanwhile, or while no request is there to report them,
// are kept, each kind once.
//
// The admin queue's reactor owns all of it.

// maxAER is how many Asynchronous Event Requests a controller holds: AERL + 1.
const maxAER = 4

type eventKind uint8

const (
	eventNamespace eventKind = iota
	eventANA
	eventDiscovery
	eventReliability
	eventTemperature
	eventSpare
	numEvents = iota
)

// eventKinds says what each is on the wire, and which bits of Asynchronous Event
// Configuration enable it.
var eventKinds = [numEvents]struct {
	event  nvme.AsyncEvent
	config uint32
}{
	eventNamespace:   {nvme.AsyncNamespaceChanged, nvme.OAESNamespaceAttribute},
	eventANA:         {nvme.AsyncANAChange, nvme.OAESANAChange},
	eventDiscovery:   {nvme.AsyncDiscoveryChange, nvme.OAESDiscoveryChange},
	eventReliability: {nvme.MakeAsyncEvent(nvme.EventSMART, nvme.EventSMARTReliability, nvme.LogSMART), nvme.SMARTDegraded | nvme.SMARTReadOnly | nvme.SMARTBackupFailed},
	eventTemperature: {nvme.MakeAsyncEvent(nvme.EventSMART, nvme.EventSMARTTemperature, nvme.LogSMART), nvme.SMARTTemperature},
	eventSpare:       {nvme.MakeAsyncEvent(nvme.EventSMART, nvme.EventSMARTSpare, nvme.LogSMART), nvme.SMARTSpareLow},
}

// smartEvents are the kinds that report critical warnings.
func smartEvents(warnings uint8) []eventKind {
	var kinds []eventKind
	for _, k := range []eventKind{eventReliability, eventTemperature, eventSpare} {
		if uint32(warnings)&eventKinds[k].config != 0 {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// asyncEvents is OAES: what this kind of controller reports beside SMART warnings.
func (c *Controller) asyncEvents() uint32 {
	if c.discovery() {
		return nvme.OAESDiscoveryChange
	}
	return nvme.OAESNamespaceAttribute | nvme.OAESANAChange
}

type aerQueue struct {
	parked  []*Request
	config  nvme.AsyncEventConfig
	pending []eventKind // in the order in which they came
	masked  [numEvents]bool
}

// raise tells a controller that something happened. From anywhere.
func (c *Controller) raise(k eventKind) {
	q := c.admin
	q.group.Reactor.Post(func() { q.raise(k) })
}

func (q *Queue) raise(k eventKind) {
	a := &q.aer
	if q.state != queueLive || !q.ready || uint32(a.config)&eventKinds[k].config == 0 || slices.Contains(a.pending, k) {
		return
	}
	a.pending = append(a.pending, k)
	q.reportEvents()
}

// reportEvents answers parked requests with the events that are not masked.
func (q *Queue) reportEvents() {
	a := &q.aer
	for i := 0; i < len(a.pending) && len(a.parked) > 0; {
		k := a.pending[i]
		if a.masked[k] {
			i++
			continue
		}
		a.pending = slices.Delete(a.pending, i, i+1)
		a.masked[k] = true
		r := a.parked[0]
		a.parked = slices.Delete(a.parked, 0, 1)
		q.respond(r, nvme.StatusSuccess, uint64(eventKinds[k].event))
	}
}

// parkAER is Execute of Asynchronous Event Request.
func (q *Queue) parkAER(r *Request) {
	switch {
	case q.state != queueLive:
		q.respond(r, nvme.StatusAbortedSQDeletion, 0)
		return
	case len(q.aer.parked) == maxAER:
		q.respond(r, nvme.StatusAERLimitExceeded, 0)
		return
	}
	r.state = requestParked
	q.aer.parked = append(q.aer.parked, r)
	q.reportEvents()
}

// unmask lets events be reported again whose log page was read.
func (q *Queue) unmask(log nvme.LogID) {
	for k := range q.aer.masked {
		if eventKinds[k].event.Log() == log {
			q.aer.masked[k] = false
		}
	}
	q.reportEvents()
}

// configureEvents takes over Asynchronous Event Configuration.
func (q *Queue) configureEvents(config nvme.AsyncEventConfig) {
	q.aer.config = config
	q.aer.pending = slices.DeleteFunc(q.aer.pending, func(k eventKind) bool { return uint32(config)&eventKinds[k].config == 0 })
}

// resetEvents is a controller reset: requests end, events are forgotten.
func (q *Queue) resetEvents() {
	q.releaseParked(nvme.StatusAbortedByRequest)
	q.aer = aerQueue{parked: q.aer.parked[:0]}
}

// changedNamespaces is the Changed Namespace List log of one controller, under
// Controller.mu.
type changedNamespaces struct {
	nsids    []uint32 // ascending
	overflow bool
}

// namespaceChanged notes a namespace that is new, gone, or has other attributes.
// Target.mu is held.
func (c *Controller) namespaceChanged(nsid uint32) {
	c.mu.Lock()
	if i, there := slices.BinarySearch(c.changes.nsids, nsid); !there {
		if len(c.changes.nsids) == nvme.MaxNSIDList {
			c.changes.overflow = true
		} else {
			c.changes.nsids = slices.Insert(c.changes.nsids, i, nsid)
		}
	}
	c.mu.Unlock()
	c.raise(eventNamespace)
}
