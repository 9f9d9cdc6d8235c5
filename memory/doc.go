// Package memory owns the memory that devices reach by DMA: big slabs outside the Go heap, registered once with every
// RDMA device and mapped once into every IOMMU container, so that a drive's DMA and a NIC's DMA meet in the same bytes.
//
//	mmap ──▶ Slab (hugepages) ──▶ registered with each Registrant (RDMA device, IOMMU container)
//	           │
//	           ├─ buffer slabs: cut into 2 MiB chunks ──▶ Pool's chunk stack (lock-free)
//	           │                                             │ take        ▲ give back
//	           │                                             ▼             │
//	           │                                          Cache, one per reactor: buddy blocks of 4 KiB to 2 MiB
//	           │                                             │ Alloc       ▲ Free
//	           │                                             ▼             │
//	           │                                          []Segment of a request
//	           └─ namespace slabs (NewSlab): lent whole to a backend
//
// A reactor allocates from its own Cache without a lock and without garbage. Everything else here (slabs, registrants)
// is control plane, serialized by one mutex, and must stay off the reactors: registering memory takes milliseconds.
//
// Under the race detector slabs are Go memory, because the detector sees no other.
package memory
