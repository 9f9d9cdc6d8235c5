// Package drive puts namespaces on local NVMe drives that Rocet drives itself, through vfio: reads and writes go from the
// network card's buffers to the drive and back without a copy.
//
//	Manager ── one IOMMU address space, registered with the memory pool
//	   │
//	   ├─ drive (by PCI address or serial number) ── pcie.Drive
//	   │     └─ queue, one for each reactor: poller, waiting list, clock
//	   │           └─ nsQueue, one for each namespace on it (target.BackendQueue)
//	   └─ Backend: a namespace of a drive (target.Backend)
//
// Namespaces of one drive share its queue pairs. What finds no room in a queue, or comes while the drive is being reset,
// waits in order; a drive that does not come back in time ends it with a status that hosts may retry.
package drive
