// Package vfio gives a process the PCI functions that the kernel's vfio drivers hold: their registers, their interrupts
// and an I/O address space in which their DMA sees the memory that was mapped for them, and nothing else.
//
//	Host ── Function(addr): what sysfs says of it: driver, IOMMU group, neighbours
//	  │
//	  └─ Space: one I/O address space for all drives of the process
//	       │    type1:   /dev/vfio/vfio + /dev/vfio/<group>           (every kernel with vfio)
//	       │    iommufd: /dev/iommu     + /dev/vfio/devices/vfio<n>   (where the kernel has both)
//	       ├─ RegisterSlab: a slab of the memory pool, pinned and mapped once for all drives (memory.Registrant)
//	       ├─ Table: slab index ──▶ I/O address, read by the drivers' queues
//	       └─ OpenDevice(addr) ──▶ Device: BARs, configuration space, MSI-X, reset, "give it back" events
//
// I/O addresses are the package's own choice, from the ranges that the kernel reports: IOMMUs are often narrower than
// virtual addresses (39 bits), and have holes for interrupts.
//
// No privilege is needed beyond the group's (or the device's) file and a locked-memory limit of the size of what is
// mapped. What is missing is said by name: see the errors in errors.go.
package vfio
