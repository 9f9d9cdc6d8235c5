package host

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"golang.org/x/sys/unix"

	"rocet/nvme"
)

// wire is a connection of one queue: TCP or RDMA. All calls come from the queue's goroutine.
type wire interface {
	// submit takes the command of a slot into the next batch.
	submit(index uint32)
	// flush sends as much of the batches as the connection takes.
	flush() error
	// poll takes what has come, and completes the commands it answers.
	poll() error
	// arm prepares to sleep until fds are ready. It returns false if there is something to poll already.
	arm() (bool, error)
	fds(p *[2]unix.PollFd) int
	// close ends the connection. Nothing touches the memory of commands once it has returned.
	close(reason error)
	stats(*Stats)
}

// Stats count since the queue was made.
type Stats struct {
	Commands    uint64
	Completions uint64
	Polls       uint64
	Sends       uint64 // TCP: sendmsg calls; RDMA: posts
	Receives    uint64 // TCP: readv calls with data; RDMA: polls with completions
	Empty       uint64 // TCP: readv calls without data; RDMA: polls without completions
	Sleeps      uint64
	BytesOut    uint64 // TCP
	BytesIn     uint64 // TCP
	Copied      uint64 // TCP: bytes of data that came along with other PDUs and were copied to their place
}

// Queue is a connected queue. It belongs to one goroutine: no method may be called while another one runs.
type Queue struct {
	c     *Controller
	wire  wire
	qid   uint16
	admin bool

	slots   []slot
	free    []uint32 // a stack of slots
	shift   uint8    // where a command identifier's generation begins
	ready   []*IO    // answered, and not yet handed out
	taken   int      // how many of them are
	out     int      // commands under way
	maxLen  uint32   // of a command's data
	capsule uint32   // how much data a command of an I/O queue carries at most

	pollFDs [2]unix.PollFd // of Wait

	err     error // why the queue is closed
	count   Stats
	tick    time.Duration // time between looks at the age of commands
	lastAge time.Time
	onClose func()
}

// slot is a command under way.
type slot struct {
	io      *IO    // nil: free
	gen     uint16 // of the identifier
	cid     uint16
	dir     nvme.Direction
	age     uint8  // ticks
	sent    bool   // TCP: in a batch
	last    bool   // TCP: the last C2HData was here
	damaged bool   // TCP: a data digest was wrong
	r2ts    uint8  // TCP: R2Ts that wait for their data to be sent
	got     uint32 // TCP: bytes that came, or that R2Ts asked for
}

// A command is ticks old when it is aborted, and twice that when its queue fails.
const (
	expireTicks = 8
	agePolls    = 1024 // polls between two looks at the clock
	generations = 16
)

// newQueue makes a queue for depth commands without its connection.
func newQueue(c *Controller, qid uint16, depth int) *Queue {
	q := &Queue{
		c: c, qid: qid, admin: qid == 0,
		slots: make([]slot, depth), free: make([]uint32, depth), ready: make([]*IO, 0, 2*depth),
		shift: uint8(bits.Len32(uint32(depth - 1))), maxLen: c.maxTransfer(),
		tick: max(c.opts.Timeout/expireTicks, time.Millisecond), lastAge: time.Now(),
	}
	for i := range q.free {
		q.free[i] = uint32(depth - 1 - i)
	}
	return q
}

// Depth is how many commands the queue takes at once.
func (q *Queue) Depth() int { return len(q.slots) }

// ID is the queue's identifier.
func (q *Queue) ID() uint16 { return q.qid }

// Outstanding is how many commands are under way and not handed out yet.
func (q *Queue) Outstanding() int { return q.out + len(q.ready) - q.taken }

// Stats returns the counters.
func (q *Queue) Stats() Stats {
	s := q.count
	if q.wire != nil {
		q.wire.stats(&s)
	}
	return s
}

// Submit takes a command into the next batch: Flush sends it. ErrFull says to Poll first.
func (q *Queue) Submit(io *IO) error {
	if q.err != nil {
		return q.err
	}
	n := len(q.free)
	if n == 0 {
		return ErrFull
	}
	if io.Len != 0 && (io.Mem == nil || uint64(io.Off)+uint64(io.Len) > uint64(len(io.Mem.b)) || io.Len > q.maxLen) {
		return q.badData(io)
	}
	index := q.free[n-1]
	s := &q.slots[index]
	s.dir = nvme.DirNone
	if io.Len != 0 {
		if s.dir = nvme.DataDirection(q.admin, &io.Cmd); s.dir != nvme.DirHostToController && s.dir != nvme.DirControllerToHost {
			return fmt.Errorf("host: command %s moves data %v, and has %d bytes", io.Cmd.Opcode().Name(q.admin), s.dir, io.Len)
		}
	}
	q.free = q.free[:n-1]
	s.gen = (s.gen + 1) % generations
	s.cid = uint16(index) | s.gen<<q.shift
	s.io = io
	s.age, s.sent, s.last, s.damaged, s.r2ts, s.got = 0, false, false, false, 0, 0
	q.out++
	q.count.Commands++
	q.wire.submit(index)
	return nil
}

func (q *Queue) badData(io *IO) error {
	if io.Mem == nil {
		return fmt.Errorf("host: a command of %d bytes without memory", io.Len)
	}
	return fmt.Errorf("host: a command's data, %d bytes at %d: its memory has %d bytes, and a command at most %d",
		io.Len, io.Off, len(io.Mem.b), q.maxLen)
}

// Flush sends the batch. What the connection does not take now goes with a later Flush or Poll.
func (q *Queue) Flush() error {
	if q.err != nil {
		return q.err
	}
	if err := q.wire.flush(); err != nil {
		q.fail(err)
	}
	return nil // Poll reports it, after the commands
}

// Poll fills done with commands that are answered, and returns how many there are. It never blocks. Once the queue has
// failed and every command was handed out it returns the reason.
func (q *Queue) Poll(done []*IO) (int, error) {
	q.count.Polls++
	if q.err == nil && len(q.ready)-q.taken < len(done) {
		if err := q.wire.poll(); err != nil {
			q.fail(err)
		} else if q.count.Polls%agePolls == 0 {
			q.look(time.Now())
		}
	}
	n := copy(done, q.ready[q.taken:])
	q.taken += n
	if q.taken == len(q.ready) {
		q.ready, q.taken = q.ready[:0], 0
	}
	if n == 0 && q.err != nil && len(done) > 0 {
		return 0, q.err
	}
	return n, nil
}

// Wait sleeps until there is something to poll, or for d.
func (q *Queue) Wait(d time.Duration) error {
	if q.err != nil || q.taken < len(q.ready) {
		return nil
	}
	armed, err := q.wire.arm()
	if err != nil {
		q.fail(err)
		return nil
	}
	if !armed {
		return nil
	}
	q.count.Sleeps++
	n := q.wire.fds(&q.pollFDs)
	if err := sleep(q.pollFDs[:n], d); err != nil {
		q.fail(err)
		return nil
	}
	q.look(time.Now())
	return nil
}

// sleep waits until a descriptor is ready, or for d.
func sleep(fds []unix.PollFd, d time.Duration) error {
	ts := unix.NsecToTimespec(int64(max(d, 0)))
	if _, err := unix.Ppoll(fds, &ts, nil); err != nil && err != unix.EINTR {
		return fmt.Errorf("host: poll of a connection: %w", err)
	}
	return nil
}

// find is the slot of a command identifier, or nil if no such command is under way.
func (q *Queue) find(cid uint16) *slot {
	index := uint32(cid) & (1<<q.shift - 1)
	if index >= uint32(len(q.slots)) {
		return nil
	}
	if s := &q.slots[index]; s.io != nil && s.cid == cid {
		return s
	}
	return nil
}

// complete ends a command.
func (q *Queue) complete(s *slot, st nvme.Status, result uint64) {
	io := s.io
	s.io = nil
	if s.damaged && st.IsOK() {
		st = nvme.StatusTransientTransport
	}
	io.Status, io.Result = st, result
	q.free = append(q.free, uint32(s.cid)&(1<<q.shift-1))
	q.ready = append(q.ready, io)
	q.out--
	q.count.Completions++
}

// fail ends the queue: its connection first, then its commands.
func (q *Queue) fail(reason error) {
	if q.err != nil {
		return
	}
	q.err = reason
	if !errors.Is(reason, ErrClosed) {
		q.err = fmt.Errorf("host: queue %d: %w", q.qid, reason)
	}
	q.wire.close(reason)
	for i := range q.slots {
		if s := &q.slots[i]; s.io != nil {
			q.complete(s, nvme.StatusHostPath, 0)
		}
	}
	if q.onClose != nil {
		q.onClose()
	}
}

// Close ends the queue. Commands that are under way end with StatusHostPath; Poll still hands them out.
func (q *Queue) Close() error {
	q.fail(ErrClosed)
	return nil
}

// look counts how old the commands are.
func (q *Queue) look(now time.Time) {
	if now.Sub(q.lastAge) < q.tick {
		return
	}
	q.lastAge = now
	for i := range q.slots {
		s := &q.slots[i]
		if s.io == nil {
			continue
		}
		// The first tick may come at once. A queue that nobody polls does not age.
		s.age++
		switch {
		case s.age == expireTicks+1 && !q.admin:
			q.c.abortLater(q.qid, s.cid)
		case s.age == 2*expireTicks+1:
			q.fail(&TimeoutError{QID: q.qid, CID: s.cid, Opcode: s.io.Cmd.Opcode(), After: (2 * q.c.opts.Timeout).String()})
			return
		}
	}
}

// execute runs one command alone and waits for its answer.
func (q *Queue) execute(ctx context.Context, io *IO) error {
	if err := q.Submit(io); err != nil {
		return err
	}
	if err := q.Flush(); err != nil {
		return err
	}
	var done [1]*IO
	for {
		n, err := q.Poll(done[:])
		if err != nil {
			return err
		}
		if n > 0 {
			if q.err != nil {
				return q.err
			}
			return nil
		}
		if err := ctx.Err(); err != nil {
			q.fail(fmt.Errorf("no answer to %s: %w", commandName(q.admin, &io.Cmd), context.Cause(ctx)))
			return q.err
		}
		if err := q.Wait(waitSlice); err != nil {
			return err
		}
	}
}

// waitSlice bounds every sleep that a context can end.
const waitSlice = 20 * time.Millisecond

func commandName(admin bool, cmd *nvme.Command) string {
	if cmd.Opcode() == nvme.OpFabrics {
		return cmd.FCType().String()
	}
	return cmd.Opcode().Name(admin)
}
