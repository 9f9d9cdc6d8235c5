// Package mmio reads and writes device registers: one plain load or store each, of exactly the width asked for, neither
// joined, split, repeated nor left out by the compiler.
//
// sync/atomic is no substitute: on amd64 its stores are XCHG, which locks the bus on device memory and costs thousands of
// cycles (and faults where the kernel runs with split_lock_detect=fatal).
//
// What is ordered: a store here becomes visible to the device after every earlier store to memory, so a queue entry is
// there before its doorbell rings (amd64: the hardware's own order; arm64: DMB OSHST before the store). A load here comes
// before every later load of memory (arm64: DMB OSHLD after it).
//
// Elsewhere, and under the race detector (which does not see assembly, while tests stand a simulated device on the other
// side of the memory), the functions are sync/atomic's.
package mmio
