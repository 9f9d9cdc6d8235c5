package verbs

import (
	"errors"
	"strconv"
	"strings"
	"syscall"
)

// ErrAgain says that no event waits.
var ErrAgain = errors.New("verbs: no event waits")

// Error is a call of a library that failed. errors.Is sees its errno.
type Error struct {
	Call   string // the library's function
	Object string // what it was about, with its sizes
	Errno  syscall.Errno
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("verbs: ")
	b.WriteString(e.Call)
	if e.Object != "" {
		b.WriteString(" (")
		b.WriteString(e.Object)
		b.WriteString(")")
	}
	b.WriteString(": ")
	if e.Errno == 0 {
		b.WriteString("failed without an errno")
	} else {
		b.WriteString(e.Errno.Error())
		b.WriteString(" (errno ")
		b.WriteString(strconv.Itoa(int(e.Errno)))
		b.WriteString(")")
	}
	if r := remedy(e.Call, e.Errno); r != "" {
		b.WriteString("; ")
		b.WriteString(r)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Errno }

// remedy is what to do about an error of call, as far as that is known.
func remedy(call string, errno syscall.Errno) string {
	switch call + " " + strconv.Itoa(int(errno)) {
	case "ibv_reg_mr " + eNOMEM, "ibv_reg_mr " + eAGAIN:
		return "raise the locked-memory limit (ulimit -l unlimited, systemd LimitMEMLOCK=infinity), or make the pool smaller: see MaxMRSize of the device"
	case "ibv_reg_mr " + eFAULT:
		return "the range isn't mapped, or is a file mapping that the kernel doesn't pin"
	case "ibv_reg_mr " + eINVAL:
		return "remote write access needs local write access, and the range must not be empty"
	case "rdma_create_qp " + eNOMEM, "rdma_create_qp " + eINVAL:
		return "a queue is deeper than the device takes: lower the queue depth (see MaxQPWR, MaxSGE), or raise the locked-memory limit"
	case "ibv_create_cq " + eNOMEM, "ibv_create_cq " + eINVAL:
		return "the queue is deeper than the device takes (see MaxCQE), or the locked-memory limit is too low"
	case "ibv_create_srq " + eNOMEM, "ibv_create_srq " + eINVAL:
		return "the queue is deeper than the device takes (see MaxSRQWR, MaxSRQSGE), or the locked-memory limit is too low"
	case "ibv_create_srq " + eNOSYS, "ibv_create_srq " + eNOTSUP:
		return "the device has no shared receive queues: use a receive queue per queue pair"
	case "ibv_alloc_mw " + eNOSYS, "ibv_alloc_mw " + eNOTSUP:
		return "the device has no type 2 memory windows"
	case "rdma_create_event_channel " + eNODEV, "rdma_create_event_channel " + eNOENT, "rdma_get_devices " + eNODEV:
		return "the kernel's RDMA connection manager isn't there: modprobe rdma_ucm, and for Soft-RoCE rdma_rxe and `rdma link add rxe0 type rxe netdev DEV`"
	case "rdma_create_event_channel " + eACCES, "rdma_get_devices " + eACCES:
		return "give the user access to /dev/infiniband/rdma_cm and uverbs*"
	case "rdma_bind_addr " + eNODEV:
		return "no RDMA device has this address: `rdma link` shows the network devices that have one"
	case "rdma_bind_addr " + eADDRNOTAVAIL:
		return "the address isn't up on this machine (yet): `ip addr`"
	case "rdma_bind_addr " + eADDRINUSE, "rdma_listen " + eADDRINUSE:
		return "another listener has this address and port"
	case "rdma_bind_addr " + eACCES:
		return "ports below 1024 need CAP_NET_BIND_SERVICE"
	}
	return ""
}

var (
	eNOMEM        = num(syscall.ENOMEM)
	eAGAIN        = num(syscall.EAGAIN)
	eFAULT        = num(syscall.EFAULT)
	eINVAL        = num(syscall.EINVAL)
	eNOSYS        = num(syscall.ENOSYS)
	eNOTSUP       = num(syscall.EOPNOTSUPP)
	eNODEV        = num(syscall.ENODEV)
	eNOENT        = num(syscall.ENOENT)
	eACCES        = num(syscall.EACCES)
	eADDRNOTAVAIL = num(syscall.EADDRNOTAVAIL)
	eADDRINUSE    = num(syscall.EADDRINUSE)
)

func num(e syscall.Errno) string { return strconv.Itoa(int(e)) }
