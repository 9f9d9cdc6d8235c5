package target

import (
	"rocet/internal/invariants"
	"rocet/nvme"
)

// I/O commands: NVM Command Set 1.1 section 3. Everything here runs on the
// reactor, for every I/O.

// Offsets of fields of I/O commands, for error locations.
const (
	locSLBA = 40
	locNLB  = 48
)

// Bits of CDW12 that must be 0, since nothing of what they ask for is there.
const (
	cdw12Common    = 0xf<<26 | nvme.CDW12STC // PRINFO and STC: no namespace has protection information
	cdw12Directive = 0xf << 20               // DTYPE of Write
	cdw12NSZ       = nvme.CDW12NSZ           // of Write Zeroes
	cdw12Extension = 0xf << 16               // CETYPE
)

// prepareIO is Prepare on a live I/O queue.
func (q *Queue) prepareIO(r *Request) nvme.Status {
	cmd := r.Cmd
	if r.opcode == nvme.OpFabrics {
		return q.prepareFabrics(r)
	}
	nsid := cmd.NSID()
	ns := q.space.find(nsid)
	if ns == nil {
		if nsid == nvme.NSIDAll && r.opcode == nvme.OpFlush {
			r.act = actFlushAll
			return nvme.StatusSuccess
		}
		r.location = locNSID
		return nvme.StatusInvalidNamespace
	}
	if !q.anaAll {
		if st := anaStatus(q.ana[ns.group]); st != nvme.StatusSuccess {
			return st
		}
	}
	r.act = actIO
	switch r.opcode {
	case nvme.OpRead:
		r.Dir = nvme.DirControllerToHost
		r.Lent = ns.lends
		return q.prepareBlocks(r, ns, OpRead, cdw12Common)
	case nvme.OpWrite:
		r.Dir = nvme.DirHostToController
		return q.prepareBlocks(r, ns, OpWrite, cdw12Common|cdw12Directive|cdw12Extension)
	case nvme.OpFlush:
		r.begin(ns, OpFlush)
		r.io.LBA, r.io.Blocks = 0, 0
		if !ns.cached {
			r.act = actNothing
		}
		return nvme.StatusSuccess
	case nvme.OpDatasetManagement:
		if ns.ops.Has(OpDeallocate) {
			return q.prepareRanges(r, ns)
		}
	case nvme.OpWriteZeroes:
		if ns.ops.Has(OpWriteZeroes) {
			st := q.prepareBlocks(r, ns, OpWriteZeroes, cdw12Common|cdw12NSZ|cdw12Extension)
			r.Length = 0
			return st
		}
	case nvme.OpCompare:
		if ns.ops.Has(OpCompare) {
			r.Dir = nvme.DirHostToController
			return q.prepareBlocks(r, ns, OpCompare, cdw12Common)
		}
	case nvme.OpVerify:
		if ns.ops.Has(OpVerify) {
			st := q.prepareBlocks(r, ns, OpVerify, cdw12Common)
			r.Length = 0
			return st
		}
	}
	r.location = 0
	return nvme.StatusInvalidOpcode
}

// begin says what a command does to which namespace.
func (r *Request) begin(ns *nsQueue, op Op) {
	r.ns = ns
	r.io.Op = op
	r.io.Flags = 0
}

// prepareBlocks checks the fields that Read, Write, Compare, Write Zeroes and
// Verify share, and fills in the IO and the length. MDTS limits those that move no
// data as well: Identify says so in VSL and WZSL.
func (q *Queue) prepareBlocks(r *Request, ns *nsQueue, op Op, unsupported uint32) nvme.Status {
	r.begin(ns, op)
	cmd := r.Cmd
	lba, blocks, cdw12 := cmd.SLBA(), cmd.NLB(), cmd.CDW(12)
	if cdw12&unsupported != 0 {
		return r.fieldError(locCDW12)
	}
	// Neither sum nor product can overflow: blocks is at most 2^16, and the
	// geometry at most 2^63 bytes.
	if lba > ns.blocks || uint64(blocks) > ns.blocks-lba {
		r.location = locSLBA
		return nvme.StatusLBAOutOfRange
	}
	bytes := uint64(blocks) << ns.shift
	if bytes > uint64(q.target.opts.MDTS) {
		return r.fieldError(locNLB)
	}
	r.Length = uint32(bytes)
	r.io.LBA, r.io.Blocks = lba, blocks
	if cdw12&nvme.CDW12FUA != 0 {
		r.io.Flags = FUA
	}
	if cdw12&nvme.CDW12LR != 0 {
		r.io.Flags |= LimitedRetry
	}
	if op == OpWrite || op == OpWriteZeroes {
		if ns.readOnly {
			return nvme.StatusNamespaceWriteProtected
		}
		if q.forceFUA {
			r.io.Flags |= FUA
		}
		if op == OpWriteZeroes && cdw12&nvme.CDW12DEAC != 0 {
			r.io.Flags |= Deallocate
		}
	}
	return nvme.StatusSuccess
}

// prepareRanges is Prepare of Dataset Management. Only Deallocate does something;
// the other attributes are hints.
func (q *Queue) prepareRanges(r *Request, ns *nsQueue) nvme.Status {
	r.begin(ns, OpDeallocate)
	n := r.Cmd.DSMRanges()
	r.Dir = nvme.DirHostToController
	r.Length = uint32(n) * nvme.DSMRangeSize
	r.AtLeast = true
	r.act = actRanges
	r.io.LBA, r.io.Blocks = 0, uint32(n)
	if r.Cmd.DSMAttributes()&nvme.DSMDeallocate != 0 && ns.readOnly {
		return nvme.StatusNamespaceWriteProtected
	}
	return nvme.StatusSuccess
}

// executeRanges is Execute of Dataset Management: the ranges are here now.
func (q *Queue) executeRanges(r *Request) {
	if len(r.Data) != 1 || r.Data[0].Len != r.Length {
		q.respond(r, nvme.StatusDataTransferError, 0)
		return
	}
	b := r.Data[0].Bytes()
	for len(b) >= nvme.DSMRangeSize {
		d := (*nvme.DSMRange)(b)
		lba, n := d.SLBA(), uint64(d.NLB())
		if lba > r.ns.blocks || n > r.ns.blocks-lba {
			q.respond(r, nvme.StatusLBAOutOfRange, 0)
			return
		}
		b = b[nvme.DSMRangeSize:]
	}
	if r.Cmd.DSMAttributes()&nvme.DSMDeallocate == 0 {
		q.respond(r, nvme.StatusSuccess, 0)
		return
	}
	q.submit(r)
}

// submit gives the request to its namespace's backend. The namespace may have
// changed since Prepare.
func (q *Queue) submit(r *Request) {
	ns, io := r.ns, &r.io
	if ns.gone {
		r.location = locNSID
		q.respond(r, nvme.StatusInvalidNamespace, 0)
		return
	}
	if io.Op != OpDeallocate && (io.LBA > ns.blocks || uint64(io.Blocks) > ns.blocks-io.LBA) {
		q.respond(r, nvme.StatusLBAOutOfRange, 0)
		return
	}
	if r.Lent {
		io.Data = r.Segs[:0]
	} else {
		io.Data = r.Data
	}
	r.state = requestBackend
	r.counted = true
	ns.inflight++
	ns.queue.Submit(io)
}

// IODone is the backend's answer.
func (r *Request) IODone(_ *IO, st nvme.Status) {
	q := r.queue
	q.owner.Check()
	invariants.Assert(r.state == requestBackend, "a backend completes what it does not have")
	if r.act == actFlushAll {
		q.flushed(r, st)
		return
	}
	if r.Lent && st == nvme.StatusSuccess {
		r.Data = r.io.Data // the loan ends with Request.End
	} else {
		r.counted = false
		r.ns.release()
	}
	q.respond(r, st, 0)
}

// flushAll is a Flush of every namespace, one after the other. A backend that
// completes inside Submit must not make this recurse through all of them.
func (q *Queue) flushAll(r *Request) {
	r.flushing = true
	for int(r.flushNext) < len(q.space.table) {
		ns := q.space.table[r.flushNext]
		r.flushNext++
		if ns == nil || !ns.cached {
			continue
		}
		r.begin(ns, OpFlush)
		r.io.LBA, r.io.Blocks, r.io.Data = 0, 0, nil
		r.state = requestBackend
		r.counted = true
		r.flushEnded = false
		ns.inflight++
		ns.queue.Submit(&r.io)
		if !r.flushEnded {
			r.flushing = false
			return // flushed goes on
		}
		if r.flushStatus != nvme.StatusSuccess {
			break
		}
	}
	r.flushing = false
	r.ns = nil
	q.respond(r, r.flushStatus, 0)
}

// flushed is the end of one namespace's flush.
func (q *Queue) flushed(r *Request, st nvme.Status) {
	r.counted = false
	r.ns.release()
	r.flushStatus = st
	r.flushEnded = true
	switch {
	case r.flushing: // inside Submit
	case st != nvme.StatusSuccess:
		r.ns = nil
		q.respond(r, st, 0)
	default:
		q.flushAll(r)
	}
}
