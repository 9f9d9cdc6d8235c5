package vfio

import "unsafe"

// The kernel's interface, as include/uapi/linux/vfio.h and iommufd.h have it. Both use ioctl type ';', and _IO numbers
// without size or direction.

const ioctlType = ';' << 8

// vfio.h: VFIO_BASE is 100.
const (
	ioctlGetAPIVersion     = ioctlType | 100
	ioctlCheckExtension    = ioctlType | 101
	ioctlSetIOMMU          = ioctlType | 102
	ioctlGroupGetStatus    = ioctlType | 103
	ioctlGroupSetContainer = ioctlType | 104
	ioctlGroupUnset        = ioctlType | 105
	ioctlGroupGetDeviceFD  = ioctlType | 106
	ioctlDeviceGetInfo     = ioctlType | 107
	ioctlDeviceGetRegion   = ioctlType | 108
	ioctlDeviceGetIRQ      = ioctlType | 109
	ioctlDeviceSetIRQs     = ioctlType | 110
	ioctlDeviceReset       = ioctlType | 111
	ioctlIOMMUGetInfo      = ioctlType | 112
	ioctlIOMMUMapDMA       = ioctlType | 113
	ioctlIOMMUUnmapDMA     = ioctlType | 114
	ioctlDeviceBindIOMMUFD = ioctlType | 118
	ioctlDeviceAttachPT    = ioctlType | 119
)

// iommufd.h: IOMMUFD_CMD_BASE is 80h.
const (
	ioctlIOASAlloc  = ioctlType | 0x81
	ioctlIOASRanges = ioctlType | 0x84
	ioctlIOASMap    = ioctlType | 0x85
	ioctlIOASUnmap  = ioctlType | 0x86
)

const (
	apiVersion    = 0
	type1v2IOMMU  = 3
	noIOMMUPrefix = "noiommu-"
)

// Flags of groups and devices.
const (
	groupViable      = 1 << 0
	deviceCanReset   = 1 << 0
	devicePCI        = 1 << 1
	regionRead       = 1 << 0
	regionWrite      = 1 << 1
	regionMmap       = 1 << 2
	regionCaps       = 1 << 3
	regionCapSparse  = 1
	regionCapMSIX    = 3
	irqEventFD       = 1 << 0
	irqSetEventFD    = 1 << 2
	irqSetTrigger    = 1 << 5
	iommuInfoCaps    = 1 << 1
	iommuCapRanges   = 1
	iommuCapAvail    = 3
	dmaMapRead       = 1 << 0
	dmaMapWrite      = 1 << 1
	ioasMapFixed     = 1 << 0
	ioasMapWrite     = 1 << 1
	ioasMapRead      = 1 << 2
	configRegion     = 7
	numBARs          = 6
	irqMSIX          = 2
	irqErr           = 3
	irqReq           = 4
	irqSetHeaderSize = 20
)

type groupStatus struct{ argsz, flags uint32 }

type deviceInfo struct {
	argsz, flags, numRegions, numIRQs, capOffset, _ uint32
}

type regionInfo struct {
	argsz, flags, index, capOffset uint32
	size, offset                   uint64
}

type irqInfo struct{ argsz, flags, index, count uint32 }

// Each capability of an info structure begins with its id and version (2 bytes each) and the offset of the next one in
// the whole structure, or 0.
const (
	capNext       = 4
	capHeaderSize = 8
)

type iommuInfo struct {
	argsz, flags uint32
	pageSizes    uint64
	capOffset, _ uint32
}

type dmaMap struct {
	argsz, flags      uint32
	vaddr, iova, size uint64
}

type dmaUnmap struct {
	argsz, flags uint32
	iova, size   uint64
}

type bindIOMMUFD struct {
	argsz, flags uint32
	iommufd      int32
	outDevID     uint32
}

type attachPT struct{ argsz, flags, ptID uint32 }

type ioasAlloc struct{ size, flags, outID uint32 }

type ioasRanges struct {
	size, ioas, num, _ uint32
	ranges, alignment  uint64
}

type ioasMap struct {
	size, flags, ioas, _ uint32
	vaddr, length, iova  uint64
}

type ioasUnmap struct {
	size, ioas   uint32
	iova, length uint64
}

// Range is a range of I/O addresses, both ends included.
type Range struct{ Start, Last uint64 }

var (
	_ [8]byte  = [unsafe.Sizeof(groupStatus{})]byte{}
	_ [24]byte = [unsafe.Sizeof(deviceInfo{})]byte{}
	_ [32]byte = [unsafe.Sizeof(regionInfo{})]byte{}
	_ [16]byte = [unsafe.Sizeof(irqInfo{})]byte{}
	_ [24]byte = [unsafe.Sizeof(iommuInfo{})]byte{}
	_ [32]byte = [unsafe.Sizeof(dmaMap{})]byte{}
	_ [24]byte = [unsafe.Sizeof(dmaUnmap{})]byte{}
	_ [16]byte = [unsafe.Sizeof(bindIOMMUFD{})]byte{}
	_ [12]byte = [unsafe.Sizeof(attachPT{})]byte{}
	_ [12]byte = [unsafe.Sizeof(ioasAlloc{})]byte{}
	_ [32]byte = [unsafe.Sizeof(ioasRanges{})]byte{}
	_ [40]byte = [unsafe.Sizeof(ioasMap{})]byte{}
	_ [24]byte = [unsafe.Sizeof(ioasUnmap{})]byte{}
	_ [16]byte = [unsafe.Sizeof(Range{})]byte{}
)
