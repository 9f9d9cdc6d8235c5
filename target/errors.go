package target

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"rocet/nvme"
)

// Everything that turns into an NVMe status, and what is added to one, is here.

// StatusOf translates what an operating system or a driver said of an operation.
// Backends use it, so that all of them say the same.
func StatusOf(op Op, err error) nvme.Status {
	if err == nil {
		return nvme.StatusSuccess
	}
	var st interface{ NVMeStatus() nvme.Status }
	if errors.As(err, &st) {
		return st.NVMeStatus()
	}
	var no syscall.Errno
	if errors.As(err, &no) {
		switch no {
		case syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG:
			return nvme.StatusCapacityExceeded
		case syscall.EROFS, syscall.EPERM, syscall.EACCES:
			return nvme.StatusNamespaceWriteProtected
		case syscall.EOPNOTSUPP, syscall.ENOSYS:
			return nvme.StatusInvalidOpcode
		case syscall.ENODEV, syscall.ENXIO, syscall.ESHUTDOWN, syscall.ENOLINK:
			return nvme.StatusInternalPath
		case syscall.EAGAIN, syscall.EINTR, syscall.EBUSY, syscall.ENOMEM, syscall.ECANCELED, syscall.ETIMEDOUT:
			return nvme.StatusInterrupted
		case syscall.EILSEQ, syscall.ENODATA, syscall.EIO, syscall.EREMOTEIO:
			switch op {
			case OpRead, OpCompare, OpVerify:
				return nvme.StatusUnrecoveredRead
			case OpWrite, OpWriteZeroes, OpFlush, OpDeallocate:
				return nvme.StatusWriteFault
			}
		}
		return nvme.StatusInternalError
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return nvme.StatusInterrupted
	case errors.Is(err, fs.ErrClosed):
		return nvme.StatusInternalPath
	}
	return nvme.StatusInternalError
}

// final tells whether repeating the command can't help: DNR is set.
func final(st nvme.Status) bool {
	switch st.Code() {
	case nvme.StatusInvalidOpcode, nvme.StatusInvalidField, nvme.StatusInvalidNamespace, nvme.StatusCommandSequenceError,
		nvme.StatusInvalidSGLSegment, nvme.StatusInvalidSGLCount, nvme.StatusSGLDataLength, nvme.StatusSGLMetadataLength,
		nvme.StatusInvalidSGLType, nvme.StatusSGLOffset, nvme.StatusKeepAliveInvalid, nvme.StatusNamespaceWriteProtected,
		nvme.StatusLBAOutOfRange, nvme.StatusCapacityExceeded, nvme.StatusReservationConflict,
		nvme.StatusCompareFailure, nvme.StatusInvalidLogPage, nvme.StatusFeatureNotSaveable, nvme.StatusFeatureNotChangeable,
		nvme.StatusFeatureNotPerNamespace, nvme.StatusCommandSetCombination, nvme.StatusInvalidControllerID,
		nvme.StatusConnectIncompatibleFormat, nvme.StatusConnectInvalidParameters, nvme.StatusConnectInvalidHost,
		nvme.StatusInvalidQueueType, nvme.StatusANAPersistentLoss:
		return true
	}
	return false
}

// logged tells whether an error goes into the Error Information log: not what the
// target does to commands of a queue that ends.
func logged(st nvme.Status) bool {
	switch st.Code() {
	case nvme.StatusAbortedSQDeletion, nvme.StatusAbortedByRequest:
		return false
	}
	return true
}

// failed completes an error status: DNR, a log entry and, where there is one, More.
func (q *Queue) failed(r *Request, st nvme.Status) nvme.Status {
	if final(st) {
		st = st.WithDNR()
	}
	q.group.stats.errors[st.Code()&nvme.StatusCodeMask]++
	if q.assoc == nil || !logged(st) {
		return st
	}
	st = st.WithMore()
	e := q.errs.next()
	*e = errorEntry{
		count:    q.assoc.errors.Add(1),
		status:   st,
		sqid:     q.errQID,
		cid:      r.cid,
		opcode:   r.opcode,
		location: r.location,
	}
	if r.opcode != nvme.OpFabrics {
		e.nsid = r.Cmd.NSID()
		if !q.admin {
			e.lba = r.Cmd.SLBA()
		}
	}
	return st
}
