package vfio

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNoVFIO says that the kernel has no vfio, or that its modules are not loaded.
var ErrNoVFIO = errors.New("the kernel's vfio is not there: modprobe vfio-pci")

// ErrNotFound says that there is no such PCI function.
var ErrNotFound = errors.New("no such PCI function")

// NoIOMMUError says that a function's DMA does not go through an IOMMU that the kernel drives.
type NoIOMMUError struct{ Address string }

func (e *NoIOMMUError) Error() string {
	return fmt.Sprintf("%s is in no IOMMU group: switch the IOMMU on in the firmware (VT-d, AMD-Vi, SMMU) and on the kernel's command line (intel_iommu=on)", e.Address)
}

// DriverError says that a function is not with vfio.
type DriverError struct {
	Address string
	Driver  string // that it is bound to; empty: none
}

func (e *DriverError) Error() string {
	have := "bound to no driver"
	if e.Driver != "" {
		have = "bound to the driver " + e.Driver
	}
	return fmt.Sprintf("%s is %s and not to vfio-pci: scripts/vfio-bind bind %s", e.Address, have, e.Address)
}

// GroupError says that an IOMMU group holds functions that other drivers use: the hardware cannot keep the group's
// functions apart, so vfio hands out all of them or none.
type GroupError struct {
	Address string
	Group   string
	Others  []Neighbour // the functions in the way
}

func (e *GroupError) Error() string {
	names := make([]string, len(e.Others))
	for i, n := range e.Others {
		names[i] = n.String()
	}
	return fmt.Sprintf("%s shares IOMMU group %s with %s: bind these to vfio-pci or to no driver as well (scripts/vfio-bind), or move the drive to a slot with a group of its own",
		e.Address, e.Group, strings.Join(names, ", "))
}

// BusyError says that another process has the device.
type BusyError struct{ Address, Path string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("%s: %s is in use by another process", e.Address, e.Path)
}

// AccessError says that a file's permissions are in the way.
type AccessError struct {
	Path string
	Err  error
}

func (e *AccessError) Error() string {
	return fmt.Sprintf("%s: %v: give it to this user (chown; scripts/vfio-bind bind --user)", e.Path, e.Err)
}

func (e *AccessError) Unwrap() error { return e.Err }

// MemlockError says that the limit of locked memory is too small for what has to be mapped.
type MemlockError struct {
	Size  uint64 // of the mapping that failed
	Need  uint64 // limit that is needed by now
	Limit uint64
	Err   error
}

func (e *MemlockError) Error() string {
	return fmt.Sprintf("mapping %d MiB for DMA: the limit of locked memory is %d KiB and must be at least %d KiB: ulimit -l %d, or LimitMEMLOCK=infinity in the service's unit",
		e.Size>>20, e.Limit>>10, (e.Need+1023)>>10, (e.Need+1023)>>10)
}

func (e *MemlockError) Unwrap() error { return e.Err }

// LimitError says that the kernel takes no more mappings for this process.
type LimitError struct{ Err error }

func (e *LimitError) Error() string {
	return "the kernel's limit of DMA mappings is reached (module parameter vfio_iommu_type1.dma_entry_limit): use fewer and bigger memory namespaces, or raise it"
}

func (e *LimitError) Unwrap() error { return e.Err }

// SpaceError says that the I/O addresses that the IOMMU has are used up.
type SpaceError struct {
	Size   uint64
	Ranges []Range
}

func (e *SpaceError) Error() string {
	return fmt.Sprintf("no %d MiB of I/O addresses in one piece are free in the ranges that the IOMMU has: %s", e.Size>>20, rangesText(e.Ranges))
}

func rangesText(ranges []Range) string {
	if len(ranges) == 0 {
		return "none"
	}
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = fmt.Sprintf("%#x-%#x", r.Start, r.Last)
	}
	return strings.Join(texts, ", ")
}
