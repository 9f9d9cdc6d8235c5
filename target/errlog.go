package target

import (
	"cmp"
	"slices"

	"rocet/nvme"
)

// errorLogEntries is how many entries the Error Information log has: ELPE + 1.
const errorLogEntries = 64

// errorsPerQueue is how many errors a queue remembers. The log of a controller is
// merged from its queues' when it is read, so that an error costs the reactor
// nothing but a few stores.
const errorsPerQueue = 32

// errorEntry is an Error Information log entry, without what is always the same.
type errorEntry struct {
	count    uint64
	lba      uint64
	nsid     uint32
	sqid     uint16
	cid      uint16
	location uint16
	status   nvme.Status
	opcode   nvme.Opcode
}

// errorRing is the latest errors of a queue, on its reactor.
type errorRing struct {
	entries [errorsPerQueue]errorEntry
	n       uint64 // ever
}

func (e *errorRing) next() *errorEntry {
	p := &e.entries[e.n%errorsPerQueue]
	e.n++
	return p
}

// take returns a copy.
func (e *errorRing) take() []errorEntry {
	return slices.Clone(e.entries[:min(e.n, errorsPerQueue)])
}

// newestFirst sorts entries and drops what is too old for the log.
func newestFirst(entries []errorEntry) []errorEntry {
	slices.SortFunc(entries, func(a, b errorEntry) int { return cmp.Compare(b.count, a.count) })
	return entries[:min(len(entries), errorLogEntries)]
}

// keepErrors takes over the errors of a queue that goes away.
func (c *Controller) keepErrors(errs []errorEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errLog = newestFirst(append(c.errLog, errs...))
}

// errorLog is the Error Information log, off the reactors.
func (c *Controller) errorLog() []byte {
	c.target.mu.Lock()
	queues := []*Queue{c.admin}
	for _, q := range c.queues {
		queues = append(queues, q)
	}
	c.target.mu.Unlock()
	var entries []errorEntry
	for _, q := range queues {
		q.group.call(func() {
			if q.state != queueReleased { // else keepErrors has them
				entries = append(entries, q.errs.take()...)
			}
		})
	}
	c.mu.Lock()
	entries = append(entries, c.errLog...)
	c.mu.Unlock()
	entries = newestFirst(entries)
	// A queue that was released between the two looks is there twice.
	entries = slices.CompactFunc(entries, func(a, b errorEntry) bool { return a.count == b.count })
	b := make([]byte, errorLogEntries*nvme.ErrorLogEntrySize)
	for i := range entries {
		e := &entries[i]
		w := nvme.ErrorLogEntry{
			Count:       e.count,
			SQID:        e.sqid,
			CID:         e.cid,
			Status:      e.status,
			Location:    e.location,
			LBA:         e.lba,
			NSID:        e.nsid,
			TRTYPE:      c.listener.info.TrType,
			Opcode:      e.opcode,
			PageVersion: nvme.ErrorLogVersion,
		}
		w.MarshalTo(b[i*nvme.ErrorLogEntrySize:])
	}
	return b
}
