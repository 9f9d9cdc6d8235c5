package file

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"rocet/nvme"
)

// passthru is struct nvme_passthru_cmd of linux/nvme_ioctl.h.
type passthru struct {
	opcode, flags        uint8
	_                    uint16
	nsid, cdw2, cdw3     uint32
	metadata, addr       uint64
	metadataLen, dataLen uint32
	cdw10, cdw11, cdw12  uint32
	cdw13, cdw14, cdw15  uint32
	timeoutMS, result    uint32
}

var _ [72]byte = [unsafe.Sizeof(passthru{})]byte{}

// nvmeAdminCmd is NVME_IOCTL_ADMIN_CMD, _IOWR('N', 0x41, struct nvme_passthru_cmd).
const nvmeAdminCmd = 3<<30 | 72<<16 | 'N'<<8 | 0x41

// smartLog has the kernel's driver fetch the SMART log page.
func smartLog(f *os.File) (log nvme.SMARTLog, ok bool) {
	page := make([]byte, nvme.SMARTLogSize)
	var pin runtime.Pinner
	pin.Pin(&page[0])
	defer pin.Unpin()
	cmd := passthru{
		opcode:    uint8(nvme.AdminGetLogPage),
		nsid:      nvme.NSIDAll,
		addr:      uint64(uintptr(unsafe.Pointer(&page[0]))),
		dataLen:   uint32(len(page)),
		cdw10:     uint32(nvme.LogSMART) | uint32(len(page)/4-1)<<16,
		timeoutMS: 5000,
	}
	if status, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), nvmeAdminCmd, uintptr(unsafe.Pointer(&cmd))); errno != 0 || status != 0 {
		return log, false
	}
	return log, log.UnmarshalBinary(page) == nil
}
