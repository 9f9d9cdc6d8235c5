package host

import (
	"context"
	"errors"
	"testing"
	"time"

	"rocet/cgo/verbs"
	"rocet/nvme"
)

// rdmaRig is a queue of 4 commands that take part in no connection: what a device would deliver is put in its place.
type rdmaRig struct {
	q    *Queue
	w    *rdmaWire
	mem  *Memory
	ios  [4]IO
	cids [4]uint16
}

func newRDMARig(t testing.TB) *rdmaRig {
	t.Helper()
	q := newQueue(&Controller{opts: Options{Timeout: time.Minute}, maxIO: 1 << 20, ctx: context.Background()}, 1, 4)
	r := &rdmaRig{q: q, w: &rdmaWire{q: q, pending: newRing[uint32](4), sqSize: 4 + 2*signalEvery}}
	q.wire = r.w
	r.w.rdmaMem.init(4)
	r.w.prepare(1)
	var err error
	if r.mem, err = newMemory(4096); err != nil {
		t.Fatal(err)
	}
	for i, op := range []nvme.Opcode{nvme.OpRead, nvme.OpWrite, nvme.OpFlush, nvme.OpRead} {
		r.ios[i].SetRW(op, 1, 0, 8)
		r.ios[i].Tag = uint64(i)
		if op != nvme.OpFlush {
			r.ios[i].SetData(r.mem, 0, 4096)
		}
		if err := q.Submit(&r.ios[i]); err != nil {
			t.Fatal(err)
		}
		r.cids[i] = q.slots[i].cid
		r.w.command(r.w.pending.pop())
	}
	return r
}

func (r *rdmaRig) close() {
	r.w.rdmaMem.free()
	_ = r.mem.Free()
}

// deliver is a receive's completion with a response in its memory.
func (r *rdmaRig) deliver(wc verbs.WC, cqe nvme.Completion) error {
	if wc.ID < uint64(len(r.w.cqes)) {
		r.w.cqes[wc.ID] = cqe
	}
	return r.w.response(&wc)
}

func TestRDMAHostileTarget(t *testing.T) {
	cqe := func(cid uint16) (c nvme.Completion) { c.SetCID(cid); return c }
	good := verbs.WC{ID: 2, Opcode: verbs.WCRecv, ByteLen: nvme.CompletionSize}
	for _, test := range []struct {
		name string
		wc   func(*verbs.WC)
		cid  func(r *rdmaRig) uint16
	}{
		{"short response", func(w *verbs.WC) { w.ByteLen = 15 }, nil},
		{"long response", func(w *verbs.WC) { w.ByteLen = 17 }, nil},
		{"invalidates a key", func(w *verbs.WC) { w.Flags, w.InvalidatedRKey = verbs.WCWithInv, 9 }, nil},
		{"unknown work request", func(w *verbs.WC) { w.ID = 5 }, nil},
		{"slot past the end", nil, func(*rdmaRig) uint16 { return 0xffff }},
		{"another generation", nil, func(r *rdmaRig) uint16 { return r.cids[2] + 1<<r.q.shift }},
	} {
		r := newRDMARig(t)
		wc, cid := good, r.cids[2]
		if test.wc != nil {
			test.wc(&wc)
		}
		if test.cid != nil {
			cid = test.cid(r)
		}
		var pe *ProtocolError
		if err := r.deliver(wc, cqe(cid)); !errors.As(err, &pe) {
			t.Errorf("%s: %v", test.name, err)
		}
		r.close()
	}
	r := newRDMARig(t)
	defer r.close()
	if err := r.deliver(good, cqe(r.cids[2])); err != nil {
		t.Error(err)
	}
	if err := r.deliver(good, cqe(r.cids[2])); err == nil {
		t.Error("a second response to a command is taken")
	}
}

// FuzzRDMAResponses delivers arbitrary responses.
func FuzzRDMAResponses(f *testing.F) {
	f.Add(uint64(0), uint32(nvme.CompletionSize), uint32(0), []byte{12: 0x10, 15: 0})
	f.Add(uint64(4), uint32(16), uint32(8), make([]byte, 16))
	f.Add(uint64(1<<63-1), uint32(1<<31), uint32(4), []byte{})
	f.Fuzz(func(t *testing.T, id uint64, n, flags uint32, b []byte) {
		r := newRDMARig(t)
		defer r.close()
		var done [8]*IO
		for i := 0; i < 8; i++ { // the same, shifted, until it is refused
			var cqe nvme.Completion
			copy(cqe[:], b[min(i, len(b)):])
			if r.deliver(verbs.WC{ID: id, Opcode: verbs.WCRecv, ByteLen: n, Flags: verbs.WCFlags(flags)}, cqe) != nil {
				break
			}
			r.w.recv = r.w.recv[:0]
		}
		if k := copy(done[:], r.q.ready); k+r.q.out != 4 {
			t.Errorf("%d commands are answered, %d under way", k, r.q.out)
		}
	})
}

// TestNativeAllocates holds that target and host allocate nothing for an I/O.
func TestNativeAllocates(t *testing.T) {
	p := nativeProvider(t)
	holdsAllocations(t, newWorld(t, 1).listenRDMA(p, "127.0.0.1"))
}
