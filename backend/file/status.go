package file

import (
	"syscall"

	"golang.org/x/sys/unix"

	"rocet/nvme"
	"rocet/target"
)

// statusOf is the one place where an error of the kernel becomes a status of NVMe. A status without DNR is one that the
// host may try again.
func statusOf(op target.Op, errno syscall.Errno) nvme.Status {
	switch errno {
	case 0:
		return nvme.StatusSuccess
	case unix.ENOSPC, unix.EDQUOT, unix.EFBIG:
		return nvme.StatusCapacityExceeded.WithDNR()
	case unix.EROFS, unix.EPERM, unix.EACCES:
		return nvme.StatusNamespaceWriteProtected.WithDNR()
	case unix.ENODATA: // what the block layer makes of a medium error
		if op == target.OpWrite || op == target.OpWriteZeroes || op == target.OpDeallocate {
			return nvme.StatusWriteFault.WithDNR()
		}
		return nvme.StatusUnrecoveredRead.WithDNR()
	case unix.EILSEQ: // protection information
		return nvme.StatusGuardCheck.WithDNR()
	case unix.EBADE:
		return nvme.StatusReservationConflict.WithDNR()
	case unix.EOPNOTSUPP, unix.ENOSYS:
		return nvme.StatusInvalidOpcode.WithDNR()
	case unix.EREMOTEIO:
		return nvme.StatusLBAOutOfRange.WithDNR()
	case unix.ENODEV, unix.ENXIO, unix.ENOMEDIUM, unix.ESHUTDOWN:
		return nvme.StatusNamespaceNotReady
	case unix.EAGAIN, unix.EINTR, unix.ENOMEM, unix.EBUSY, unix.ENOBUFS:
		return nvme.StatusInterrupted
	case unix.ETIMEDOUT, unix.ENOLINK:
		return nvme.StatusTransientTransport
	case unix.ECANCELED:
		return nvme.StatusAbortedByRequest
	}
	return nvme.StatusInternalError
}
