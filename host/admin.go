package host

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rocet/nvme"
)

// adminMax is how much data an admin command moves at most. Longer logs are read in pieces.
const adminMax = nvme.IdentifySize

// adminQueue lets any goroutine run admin commands: each takes the lock to submit its own and to poll for all, and sleeps
// without it.
type adminQueue struct {
	mu    sync.Mutex
	idle  sync.Cond // users is 0
	q     *Queue
	mem   *Memory
	slots []adminSlot
	free  []*adminSlot
	users int
	done  [8]*IO
	ended error // closed
}

type adminSlot struct {
	io       IO
	done     bool
	deserted bool // its caller has left: the answer frees it
}

func (a *adminQueue) init(c *Controller, q *Queue) error {
	a.idle.L = &a.mu
	m, err := c.newMemory(q.Depth() * adminMax)
	if err != nil {
		return err
	}
	a.q, a.mem = q, m
	a.slots = make([]adminSlot, q.Depth())
	for i := range a.slots {
		s := &a.slots[i]
		s.io.Tag = uint64(i)
		s.io.Mem, s.io.Off = m, uint32(i*adminMax)
		a.free = append(a.free, s)
	}
	return nil
}

// turn polls. The lock is held.
func (a *adminQueue) turn() error {
	for {
		n, err := a.q.Poll(a.done[:])
		if err != nil {
			return err
		}
		for _, io := range a.done[:n] {
			s := &a.slots[io.Tag]
			if s.done = true; s.deserted {
				a.free = append(a.free, s)
			}
		}
		if n < len(a.done) {
			return a.q.err
		}
	}
}

// sleep waits for something to poll, without the lock, which is held.
func (a *adminQueue) sleep() error {
	armed, err := a.q.wire.arm()
	if err != nil {
		a.q.fail(err)
		return a.q.err
	}
	if !armed {
		return nil
	}
	var fds [2]unix.PollFd
	n := a.q.wire.fds(&fds)
	a.mu.Unlock()
	err = sleep(fds[:n], waitSlice)
	a.mu.Lock()
	if a.q.err == nil {
		a.q.look(time.Now())
	}
	return err
}

// Admin runs an admin or fabrics command with at most 4096 bytes of data, which it takes from data or puts there. A
// status other than success is a *StatusError.
func (c *Controller) Admin(ctx context.Context, cmd *nvme.Command, data []byte) (nvme.Completion, error) {
	cqe, err := c.admin.run(ctx, cmd, data)
	if err != nil {
		return cqe, err
	}
	if st := cqe.Status(); !st.IsOK() {
		return cqe, &StatusError{Command: commandName(true, cmd), Status: st, Result: cqe.Result64()}
	}
	return cqe, nil
}

func (a *adminQueue) run(ctx context.Context, cmd *nvme.Command, data []byte) (cqe nvme.Completion, err error) {
	if len(data) > adminMax {
		return cqe, fmt.Errorf("host: %d bytes of data for %s: at most %d are moved by an admin command", len(data), commandName(true, cmd), adminMax)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended != nil {
		return cqe, a.ended
	}
	a.users++
	defer func() {
		if a.users--; a.users == 0 {
			a.idle.Broadcast()
		}
	}()
	wait := func() error {
		if err := a.turn(); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("host: %s: %w", commandName(true, cmd), context.Cause(ctx))
		}
		return a.ended
	}
	for len(a.free) == 0 {
		if err := wait(); err != nil {
			return cqe, err
		}
		if len(a.free) == 0 {
			if err := a.sleep(); err != nil {
				return cqe, err
			}
		}
	}
	s := a.free[len(a.free)-1]
	a.free = a.free[:len(a.free)-1]
	s.done, s.deserted = false, false
	io := &s.io
	io.Cmd, io.Len = *cmd, uint32(len(data))
	toHost := nvme.DataDirection(true, cmd) == nvme.DirControllerToHost
	if len(data) > 0 && !toHost {
		copy(io.data(), data)
	}
	if err := a.q.Submit(io); err != nil {
		a.free = append(a.free, s)
		return cqe, err
	}
	if err := a.q.Flush(); err != nil {
		return cqe, err
	}
	for !s.done {
		err := wait()
		if s.done {
			break
		}
		if err == nil {
			err = a.sleep()
		}
		if err != nil {
			s.deserted = true
			return cqe, err
		}
	}
	a.free = append(a.free, s)
	if a.q.err != nil && io.Status == nvme.StatusHostPath {
		return cqe, a.q.err
	}
	if toHost && io.Status.IsOK() {
		copy(data, io.data())
	}
	cqe.SetStatus(io.Status)
	cqe.SetResult64(io.Result)
	return cqe, nil
}

// abortLater sends an Abort from a goroutine of its own: the caller is a queue that polls.
func (c *Controller) abortLater(qid, cid uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.wg.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, c.opts.Timeout)
		defer cancel()
		_, _ = c.Abort(ctx, qid, cid) // if that does not help, the queue ends
	})
}

// Abort asks the controller to abort a command. It returns whether that was done.
func (c *Controller) Abort(ctx context.Context, qid, cid uint16) (bool, error) {
	var cmd nvme.Command
	cmd.SetOpcode(nvme.AdminAbort)
	cmd.SetAbort(qid, cid)
	cqe, err := c.Admin(ctx, &cmd, nil)
	return err == nil && cqe.DW0()&1 == 0, err
}

// close ends the queue, and waits until nobody uses it.
func (a *adminQueue) close(reason error) {
	if a.q == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended != nil {
		return
	}
	a.ended = reason
	for a.users > 0 {
		a.idle.Wait()
	}
	a.q.fail(reason)
	_ = a.mem.Free()
}

// Property reads a controller property: Base 2.1 section 6.5.
func (c *Controller) Property(ctx context.Context, offset uint32) (uint64, error) {
	var cmd nvme.Command
	cmd.SetOpcode(nvme.OpFabrics)
	cmd.SetFCType(nvme.FabricsPropertyGet)
	cmd.SetOFST(offset)
	cmd.SetATTRIB(propertySize(offset))
	cqe, err := c.Admin(ctx, &cmd, nil)
	if err != nil {
		return 0, fmt.Errorf("property %#x: %w", offset, err)
	}
	if propertySize(offset) == nvme.PropertySize4 {
		return uint64(cqe.DW0()), nil
	}
	return cqe.Result64(), nil
}

// SetProperty writes a controller property: Base 2.1 section 6.6.
func (c *Controller) SetProperty(ctx context.Context, offset uint32, v uint64) error {
	var cmd nvme.Command
	cmd.SetOpcode(nvme.OpFabrics)
	cmd.SetFCType(nvme.FabricsPropertySet)
	cmd.SetOFST(offset)
	cmd.SetATTRIB(propertySize(offset))
	cmd.SetVALUE(v)
	if _, err := c.Admin(ctx, &cmd, nil); err != nil {
		return fmt.Errorf("property %#x: %w", offset, err)
	}
	return nil
}

func propertySize(offset uint32) uint8 {
	if offset == nvme.RegCAP {
		return nvme.PropertySize8
	}
	return nvme.PropertySize4
}
