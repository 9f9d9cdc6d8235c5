package pcie

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"rocet/nvme"
)

// Command identifiers of the admin queue: one command at a time, and asynchronous event requests.
const (
	adminCID  = 0
	aerCID    = 1
	maxAERs   = 4
	adminCIDs = aerCID + maxAERs
)

// errGone says that nothing answers any more.
var errGone = errors.New("the drive is gone from the bus")

// errAdminTimeout says that an admin command did not come back. The queue is of no use until the controller was reset.
var errAdminTimeout = errors.New("an admin command did not come back")

// CommandError is a status that an admin command ended with.
type CommandError struct {
	Command string
	Status  nvme.Status
}

func (e *CommandError) Error() string {
	return fmt.Sprintf("%s: %v", e.Command, e.Status)
}

// adminQueue is the admin queue pair; the Drive's mutex protects it.
type adminQueue struct {
	regs   registers
	sq, cq dma
	sqDB   unsafe.Pointer
	cqDB   unsafe.Pointer
	tail   uint32
	head   uint32
	phase  uint32

	pending [adminCIDs]bool
	done    nvme.Completion
	events  []nvme.AsyncEvent // that came and were not handled
	aers    int               // requests that the drive has
	noAERs  bool              // it refuses them
	broken  error             // why the queue takes nothing until the next reset
	pause   func(time.Duration) error
	unknown uint64 // completions of commands that nobody sent
}

// reset makes the queue empty, as the controller sees it when it is enabled.
func (a *adminQueue) reset(regs registers, l *layout, dstrd uint8) {
	*a = adminQueue{regs: regs, sq: l.adminSQ, cq: l.adminCQ, phase: 1, unknown: a.unknown, events: a.events, pause: a.pause,
		sqDB: unsafe.Add(regs.base, nvme.DoorbellSQ(0, dstrd)), cqDB: unsafe.Add(regs.base, nvme.DoorbellCQ(0, dstrd))}
	a.sq.clear()
	a.cq.clear()
}

func (a *adminQueue) submit(cid uint16, cmd *nvme.Command) {
	cmd.SetCID(cid)
	*(*nvme.Command)(unsafe.Add(a.sq.ptr, a.tail*nvme.CommandSize)) = *cmd
	a.tail = (a.tail + 1) % adminEntries
	a.pending[cid] = true
	a.regs.store32(a.offset(a.sqDB), a.tail)
}

func (a *adminQueue) offset(db unsafe.Pointer) uint32 {
	return uint32(uintptr(db) - uintptr(a.regs.base))
}

// reap takes what has completed.
func (a *adminQueue) reap() {
	seen := false
	for {
		entry := unsafe.Add(a.cq.ptr, a.head*nvme.CompletionSize)
		if atomic.LoadUint32((*uint32)(unsafe.Add(entry, 12)))>>16&1 != a.phase {
			break
		}
		c := *(*nvme.Completion)(entry)
		if a.head++; a.head == adminEntries {
			a.head, a.phase = 0, a.phase^1
		}
		seen = true
		cid := c.CID()
		if int(cid) >= adminCIDs || !a.pending[cid] {
			a.unknown++
			continue
		}
		a.pending[cid] = false
		if cid == adminCID {
			a.done = c
			continue
		}
		a.aers--
		if c.Status().IsOK() {
			a.events = append(a.events, nvme.AsyncEvent(c.DW0()))
		} else {
			a.noAERs = true
		}
	}
	if seen {
		a.regs.store32(a.offset(a.cqDB), a.head)
	}
}

// exec runs a command and waits for its end; an error status is an error.
func (a *adminQueue) exec(name string, cmd *nvme.Command, timeout time.Duration) (nvme.Completion, error) {
	if a.broken != nil {
		return nvme.Completion{}, fmt.Errorf("%s: %w", name, a.broken)
	}
	a.submit(adminCID, cmd)
	deadline := time.Now().Add(timeout)
	for pause := 10 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		if a.reap(); !a.pending[adminCID] {
			break
		}
		if st, there := a.regs.status(); !there {
			a.broken = errGone
		} else if st.CFS() {
			a.broken = errFatal
		} else if time.Now().After(deadline) {
			a.broken = errAdminTimeout
		}
		if a.broken == nil {
			a.broken = a.pause(pause)
		}
		if a.broken != nil {
			return nvme.Completion{}, fmt.Errorf("%s: %w", name, a.broken)
		}
	}
	if st := a.done.Status(); !st.IsOK() {
		return a.done, &CommandError{Command: name, Status: st}
	}
	return a.done, nil
}

// requestEvents keeps n asynchronous event requests with the drive.
func (a *adminQueue) requestEvents(n int) {
	for cid := uint16(aerCID); a.aers < n && !a.noAERs && a.broken == nil; cid++ {
		if a.pending[cid] {
			continue
		}
		var cmd nvme.Command
		cmd.SetOpcode(nvme.AdminAER)
		a.submit(cid, &cmd)
		a.aers++
	}
}
