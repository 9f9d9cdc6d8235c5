package stripe

import (
	"rocet/memory"
	"rocet/nvme"
	"rocet/target"
)

const (
	// maxParents is how many operations of a queue are under way at once, maxParts into how many they are split.
	// What comes on top waits in order.
	maxParents = 256
	maxParts   = 512
	// maxRanges is how many ranges a Dataset Management command has at most.
	maxRanges = 256
)

// queue is the stripe on one reactor, which owns it.
type queue struct {
	backend *Backend
	group   *target.PollGroup
	members []target.BackendQueue
	block   uint32

	parents    []parent
	freeParent *parent
	parts      []part
	freePart   *part

	first, last *target.IO // waiting to be split, in order
	current     *parent    // that is being split, and has no part left to go on
	pumping     bool
	out         int // submitted and not completed
	closed      func()

	ranges     []memory.Segment // one for each member, for the descriptors of one deallocation at a time
	nRanges    []int
	rangesBusy bool
}

// parent is an operation that is split.
type parent struct {
	io     *target.IO
	next   *parent
	data   cursor
	lba    uint64 // what is left
	blocks uint64
	member int // next one, where parts go by member
	issued int
	out    int // parts with members
	whole  bool
	status nvme.Status
	failed int // the part that the status is of
}

// part is a member's share of an operation.
type part struct {
	io     target.IO
	queue  *queue
	parent *parent
	next   *part
	index  int
	lent   bool // the member lends what is read; into has room for it
	segs   [target.MaxSegments]memory.Segment
	into   [target.MaxSegments]memory.Segment
	nInto  int
}

func newQueue(b *Backend, g *target.PollGroup) *queue {
	q := &queue{backend: b, group: g, block: b.Info().BlockSize, parents: make([]parent, maxParents), parts: make([]part, maxParts)}
	for i := range q.parents {
		q.parents[i].next, q.freeParent = q.freeParent, &q.parents[i]
	}
	for i := range q.parts {
		p := &q.parts[i]
		p.queue = q
		p.io.Init(p)
		p.next, q.freePart = q.freePart, p
	}
	return q
}

// allocRanges takes a page for each member's range descriptors. On the reactor.
func (q *queue) allocRanges() bool {
	for range q.members {
		var seg [1]memory.Segment
		if _, ok := q.group.Mem.Alloc(seg[:], maxRanges*nvme.DSMRangeSize, memory.ClassAdmin); !ok {
			return false
		}
		q.ranges = append(q.ranges, seg[0])
		q.nRanges = append(q.nRanges, 0)
	}
	return true
}

// abandon closes what OpenQueue has opened before it failed. Off the reactor.
func (q *queue) abandon() {
	done := make(chan struct{})
	if q.group.Reactor.Call(func() { q.closeMembers(func() { close(done) }) }) {
		<-done
	}
}

// Submit splits an operation, or keeps it until there is room.
func (q *queue) Submit(io *target.IO) {
	q.out++
	io.Next = nil
	if q.first == nil {
		q.first = io
	} else {
		q.last.Next = io
	}
	q.last = io
	q.pump()
}

// pump splits what waits, as far as there are parts.
func (q *queue) pump() {
	if q.pumping {
		return // a part ended while its parent is being split
	}
	q.pumping = true
	for {
		p := q.current
		if p == nil {
			if p = q.begin(); p == nil {
				break
			}
			q.current = p
		}
		for !p.whole && q.freePart != nil {
			q.issue(p)
		}
		if !p.whole {
			break
		}
		q.current = nil
		if p.out == 0 {
			q.finish(p)
		}
	}
	q.pumping = false
}

// begin takes the next operation that waits.
func (q *queue) begin() *parent {
	io := q.first
	if io == nil || q.freeParent == nil || io.Op == target.OpDeallocate && q.rangesBusy {
		return nil
	}
	if q.first = io.Next; q.first == nil {
		q.last = nil
	}
	io.Next = nil
	p := q.freeParent
	q.freeParent = p.next
	*p = parent{io: io, lba: io.LBA, blocks: uint64(io.Blocks), data: cursor{segs: io.Data}}
	switch io.Op {
	case target.OpFlush:
	case target.OpDeallocate:
		q.rangesBusy = true
		if !q.splitRanges(io) {
			p.status, p.whole = nvme.StatusLBAOutOfRange, true
		}
	default:
		// The stripe may have shrunk since the target looked.
		if size := q.backend.info.Load().Blocks; p.lba > size || p.blocks > size-p.lba {
			p.status, p.whole = nvme.StatusLBAOutOfRange, true
		}
	}
	return p
}

// issue gives the next part to its member.
func (q *queue) issue(p *parent) {
	io := p.io
	var at piece
	switch io.Op {
	case target.OpRead, target.OpWrite, target.OpCompare:
		at = q.backend.layout.first(p.lba, p.blocks)
		p.lba += at.blocks
		p.blocks -= at.blocks
		p.whole = p.blocks == 0
	default:
		var ok bool
		for !ok && !p.whole {
			at, ok = q.share(io, p.member)
			p.member++
			p.whole = p.member == len(q.members)
		}
		if !ok {
			return
		}
	}
	t := q.freePart
	q.freePart = t.next
	t.parent, t.index, t.lent, t.nInto = p, p.issued, false, 0
	p.issued++
	p.out++
	t.io.Op, t.io.Flags, t.io.LBA, t.io.Blocks, t.io.Next = io.Op, io.Flags, at.lba, uint32(at.blocks), nil
	t.io.Data = t.segs[:0]
	bytes := uint32(at.blocks) * q.block
	switch io.Op {
	case target.OpRead:
		if t.lent = q.backend.lends[at.member]; t.lent {
			t.nInto = len(p.data.take(t.into[:0], bytes))
			break
		}
		t.io.Data = p.data.take(t.io.Data, bytes)
	case target.OpWrite, target.OpCompare:
		t.io.Data = p.data.take(t.io.Data, bytes)
	case target.OpDeallocate:
		t.io.LBA = 0
		t.io.Data = append(t.io.Data, q.ranges[at.member].Slice(0, uint32(at.blocks)*nvme.DSMRangeSize))
	}
	q.members[at.member].Submit(&t.io)
}

// share is what an operation without data is to a member.
func (q *queue) share(io *target.IO, member int) (piece, bool) {
	switch io.Op {
	case target.OpFlush:
		return piece{member: member}, true
	case target.OpDeallocate:
		n := q.nRanges[member] // see splitRanges
		return piece{member: member, blocks: uint64(n)}, n > 0
	default:
		return q.backend.layout.on(member, io.LBA, uint64(io.Blocks))
	}
}

// splitRanges writes each member's descriptors of a deallocation. A range is one run on every member that it touches.
// It returns false if one is beyond the end, to which the stripe may have shrunk.
func (q *queue) splitRanges(io *target.IO) bool {
	clear(q.nRanges)
	size := q.backend.info.Load().Blocks
	from := io.Data[0].Bytes()
	for i := range int(io.Blocks) {
		r := (*nvme.DSMRange)(from[i*nvme.DSMRangeSize:])
		lba, blocks := r.SLBA(), uint64(r.NLB())
		if lba > size || blocks > size-lba {
			return false
		}
		if blocks == 0 {
			continue
		}
		for m := range q.members {
			at, ok := q.backend.layout.on(m, lba, blocks)
			if !ok {
				continue
			}
			to := (*nvme.DSMRange)(q.ranges[m].Bytes()[q.nRanges[m]*nvme.DSMRangeSize:])
			to.SetAttributes(r.Attributes())
			to.SetNLB(uint32(at.blocks))
			to.SetSLBA(at.lba)
			q.nRanges[m]++
		}
	}
	return true
}

// IODone hears of a part's end.
func (t *part) IODone(_ *target.IO, st nvme.Status) {
	q, p := t.queue, t.parent
	if !st.IsOK() {
		// The foremost part's, so that the same failures always give the same status.
		if p.status.IsOK() || t.index < p.failed {
			p.status, p.failed = st, t.index
		}
	} else if t.lent {
		t.copyLent()
	}
	t.parent = nil
	t.next, q.freePart = q.freePart, t
	p.out--
	if p.whole && p.out == 0 && q.current != p {
		q.finish(p)
	}
	q.pump()
}

// copyLent copies what a member lent to where the operation wants it.
func (t *part) copyLent() {
	to := cursor{segs: t.into[:t.nInto]}
	var seg [target.MaxSegments]memory.Segment
	for _, from := range t.io.Data {
		src := from.Bytes()
		for _, dst := range to.take(seg[:0], from.Len) {
			src = src[copy(dst.Bytes(), src):]
		}
		t.queue.group.CountCopied(target.CopyMemory, uint64(from.Len))
	}
}

// finish completes an operation whose parts have all ended.
func (q *queue) finish(p *parent) {
	io, st := p.io, p.status
	if io.Op == target.OpDeallocate {
		q.rangesBusy = false
	}
	p.io, p.data = nil, cursor{}
	p.next, q.freeParent = q.freeParent, p
	q.out--
	io.Complete(st)
	if q.closed != nil && q.out == 0 {
		done := q.closed
		q.closed = nil
		q.close(done)
	}
}

// Close ends the queue when nothing is under way.
func (q *queue) Close(done func()) {
	if q.out > 0 {
		q.closed = done
		return
	}
	q.close(done)
}

func (q *queue) close(done func()) {
	q.closeMembers(func() {
		q.backend.open.Add(-1)
		done()
	})
}

// closeMembers closes the members' queues and gives the descriptors' memory back.
func (q *queue) closeMembers(done func()) {
	left := len(q.members)
	last := func() {
		q.group.Mem.Free(q.ranges)
		q.ranges = nil
		done()
	}
	if left == 0 {
		last()
		return
	}
	for _, m := range q.members {
		m.Close(func() {
			if left--; left == 0 {
				last()
			}
		})
	}
}
