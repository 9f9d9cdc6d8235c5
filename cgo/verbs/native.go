//go:build cgo && linux

package verbs

/*
#cgo CFLAGS: -std=c11 -D_GNU_SOURCE -Wall -Wextra
#cgo LDFLAGS: -lrdmacm -libverbs
#cgo noescape rocet_post
#cgo nocallback rocet_post
#cgo noescape rocet_poll
#cgo nocallback rocet_poll
#cgo noescape rocet_drain_cq_events
#cgo nocallback rocet_drain_cq_events
#include "shim.h"
*/
import "C"

import (
	"sync"
	"syscall"
	"unsafe"
)

// native is libibverbs and librdmacm. The libraries' contexts and ids are of
// the process, and so is this.
//
// The tables lead from an address that an event carries to the Go object. An
// object is taken out before the library frees it: the next one may have the
// same address.
type native struct {
	mu      sync.Mutex
	devices map[uintptr]*device // by ibv_context
	ids     map[uintptr]*id     // by rdma_cm_id
	qps     map[uintptr]*qp     // by ibv_qp
	cqs     map[uintptr]*cq     // by ibv_cq
	srqs    map[uintptr]*srq    // by ibv_srq
}

var theNative = &native{
	devices: make(map[uintptr]*device),
	ids:     make(map[uintptr]*id),
	qps:     make(map[uintptr]*qp),
	cqs:     make(map[uintptr]*cq),
	srqs:    make(map[uintptr]*srq),
}

// Open gives access to the machine's RDMA devices. It succeeds without any:
// Devices and NewEventChannel say what is missing.
func Open() (Provider, error) { return theNative, nil }

func (p *native) Post(ops []PostOp) int {
	if len(ops) == 0 {
		return 0
	}
	return int(C.rocet_post((*C.struct_rocet_op)(unsafe.Pointer(unsafe.SliceData(ops))), C.int(len(ops))))
}

func (q *cq) Poll(wc []WC, spin int) int {
	if len(wc) == 0 {
		return 0
	}
	return int(C.rocet_poll(C.uintptr_t(q.handle), (*C.struct_ibv_wc)(unsafe.Pointer(unsafe.SliceData(wc))),
		C.int(len(wc)), C.int(spin)))
}

// fail makes an error of what a shim function returned.
func fail(rc C.int, call, object string) error {
	if rc == 0 {
		return nil
	}
	return &Error{Call: call, Object: object, Errno: syscall.Errno(rc)}
}

// handle is the address of an object of the library.
func handle[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }
