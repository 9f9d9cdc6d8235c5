package target

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"rocet/nvme"
)

// Latency buckets have no gaps, and every value lies below its bucket's bound.
func TestLatencyBuckets(t *testing.T) {
	for i := range NumLatencyBuckets - 1 {
		bound := uint64(LatencyBound(i))
		if got := latencyBucket(bound - 1); got != i {
			t.Errorf("%d ns is in bucket %d, want %d", bound-1, got, i)
		}
		if got := latencyBucket(bound); got != i+1 {
			t.Errorf("%d ns is in bucket %d, want %d", bound, got, i+1)
		}
		if i > 4 {
			if lower := uint64(LatencyBound(i - 1)); float64(bound-lower)/float64(lower) > 0.2501 {
				t.Errorf("bucket %d, %d to %d ns, is too wide", i, lower, bound)
			}
		}
	}
	if LatencyBound(0) != 256 {
		t.Errorf("the first bound is %v", LatencyBound(0))
	}
	if b := LatencyBound(NumLatencyBuckets - 1); b < time.Minute {
		t.Errorf("the last bound is %v", b)
	}
	for _, ns := range []uint64{0, 1, math.MaxInt64, math.MaxUint64} {
		if b := latencyBucket(ns); b < 0 || b >= NumLatencyBuckets {
			t.Errorf("%d ns is in bucket %d", ns, b)
		}
	}
}

type deviceError nvme.Status

func (e deviceError) Error() string           { return "device error" }
func (e deviceError) NVMeStatus() nvme.Status { return nvme.Status(e) }

func TestStatusOf(t *testing.T) {
	for _, test := range []struct {
		op   Op
		err  error
		want nvme.Status
	}{
		{OpRead, nil, nvme.StatusSuccess},
		{OpRead, syscall.EIO, nvme.StatusUnrecoveredRead},
		{OpCompare, syscall.EIO, nvme.StatusUnrecoveredRead},
		{OpWrite, &os.PathError{Op: "write", Err: syscall.EIO}, nvme.StatusWriteFault},
		{OpFlush, fmt.Errorf("sync: %w", syscall.EIO), nvme.StatusWriteFault},
		{OpWrite, syscall.ENOSPC, nvme.StatusCapacityExceeded},
		{OpWrite, syscall.EROFS, nvme.StatusNamespaceWriteProtected},
		{OpDeallocate, syscall.EOPNOTSUPP, nvme.StatusInvalidOpcode},
		{OpRead, syscall.ENODEV, nvme.StatusInternalPath},
		{OpRead, syscall.ETIMEDOUT, nvme.StatusInterrupted},
		{OpRead, syscall.EAGAIN, nvme.StatusInterrupted},
		{OpRead, syscall.EFAULT, nvme.StatusInternalError},
		{OpRead, context.DeadlineExceeded, nvme.StatusInterrupted},
		{OpRead, fs.ErrClosed, nvme.StatusInternalPath},
		{OpRead, errors.New("anything"), nvme.StatusInternalError},
		{OpRead, fmt.Errorf("wrapped: %w", deviceError(nvme.StatusGuardCheck)), nvme.StatusGuardCheck},
	} {
		if got := StatusOf(test.op, test.err); got != test.want {
			t.Errorf("%v of %v: %v, want %v", test.err, test.op, got, test.want)
		}
	}
}

// What a host should try again has no DNR.
func TestDNRPolicy(t *testing.T) {
	for _, st := range []nvme.Status{nvme.StatusInternalError, nvme.StatusInterrupted, nvme.StatusNamespaceNotReady, nvme.StatusANAInaccessible,
		nvme.StatusANATransition, nvme.StatusInternalPath, nvme.StatusConnectControllerBusy, nvme.StatusAbortedSQDeletion, nvme.StatusAbortedByRequest,
		nvme.StatusWriteFault, nvme.StatusUnrecoveredRead, nvme.StatusDataTransferError, nvme.StatusTransientTransport, nvme.StatusAERLimitExceeded} {
		if final(st) {
			t.Errorf("%v has DNR", st)
		}
	}
	for _, st := range []nvme.Status{nvme.StatusInvalidNamespace, nvme.StatusInvalidOpcode, nvme.StatusSGLDataLength, nvme.StatusLBAOutOfRange} {
		if !final(st) {
			t.Errorf("%v has no DNR", st)
		}
	}
}

func TestChangedNamespacesOverflow(t *testing.T) {
	s := &Subsystem{}
	c := hotPath(t, false, nvme.Command{})
	ctrl := &Controller{sub: s, admin: c.q}
	for nsid := uint32(1); nsid <= nvme.MaxNSIDList; nsid++ {
		ctrl.namespaceChanged(nsid)
		ctrl.namespaceChanged(nsid)
	}
	if ids, err := nvme.ParseNSIDList(ctrl.changedLog()); err != nil || len(ids) != nvme.MaxNSIDList || !slices.IsSorted(ids) {
		t.Errorf("%d namespaces, %v", len(ids), err)
	}
	ctrl.namespaceChanged(5000)
	page := ctrl.changedLog()
	if ids, _ := nvme.ParseNSIDList(page); !slices.Equal(ids, []uint32{nvme.ChangedNSLogOverflow}) {
		t.Errorf("%v", ids)
	}
	ctrl.clearChanges(page)
	if ids, _ := nvme.ParseNSIDList(ctrl.changedLog()); len(ids) != 0 {
		t.Errorf("%v", ids)
	}
	// What came between the read and its end stays.
	ctrl.namespaceChanged(1)
	ctrl.namespaceChanged(3)
	page = ctrl.changedLog()
	ctrl.namespaceChanged(2)
	ctrl.clearChanges(page)
	if ids, _ := nvme.ParseNSIDList(ctrl.changedLog()); !slices.Equal(ids, []uint32{2}) {
		t.Errorf("%v", ids)
	}
}

// Names are for metrics: each has one, and none is there twice.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	name := func(s string) {
		if s == "" || s == "unknown" || seen[s] {
			t.Errorf("name %q", s)
		}
		seen[s] = true
	}
	for i := range NumOps {
		name(Op(i).String())
	}
	clear(seen)
	for i := range NumCopyReasons {
		name(CopyReason(i).String())
	}
	clear(seen)
	for i := range NumWaitReasons {
		name(WaitReason(i).String())
	}
	for e := EventResized; e <= EventHealth; e++ {
		name(e.String())
	}
	if Op(99).String() != "unknown" || Event(99).String() != "unknown" {
		t.Error("values without a name")
	}
}

func TestCounters(t *testing.T) {
	c := hotPath(t, false, ioCommand(nvme.OpRead, 1))
	c.g.call(func() {
		c.g.CountCopied(CopyMemory, 4096)
		c.g.CountCopied(CopyMemory, 512)
		c.g.CountWait(WaitBuffer, 300)
		c.g.CountWait(WaitBuffer, 100)
		c.g.CountWait(WaitBuffer, -1)
		c.run()
	})
	s := c.g.Stats()
	if s.Copied[CopyMemory] != 4608 || s.Copied[CopyBounce] != 0 || s.Waits[WaitBuffer] != (WaitStats{3, 400, 300}) {
		t.Errorf("%+v", s)
	}
	ops := c.q.target.Subsystem("nqn.2026-01.io.rocet:bench").Namespace(1).Stats()
	r := ops[OpRead]
	if r.Commands != 1 || r.Bytes != 4096 || r.LatencyNS != 1000 || r.Latency[latencyBucket(1000)] != 1 {
		t.Errorf("%+v", r)
	}
}
