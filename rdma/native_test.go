package rdma

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"rocet/cgo/verbs"
	"rocet/nvme"
)

// nativeProvider opens the real libraries, which must be shmverbs' (a fabric over
// shared memory): no other is known to have 127.0.0.1.
func nativeProvider(t testing.TB) verbs.Provider {
	t.Helper()
	if os.Getenv("SHMVERBS") == "" {
		t.Skip("left out: SHMVERBS does not name a build of shmverbs (libibverbs and librdmacm over shared memory)")
	}
	p, err := verbs.Open()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestNativeConversation connects, identifies, and moves data of every size.
func TestNativeConversation(t *testing.T) {
	for _, lends := range []bool{false, true} {
		w := newWorld(t, worldConfig{provider: nativeProvider(t), lends: lends})
		c, q := w.connected("a", queueAsk{depth: 64})
		identify(t, c)
		verifyIO(t, w, q)
		w.close()
	}
}

func identify(t *testing.T, c *controller) {
	t.Helper()
	var cmd nvme.Command
	cmd.SetOpcode(nvme.AdminIdentify)
	cmd.SetCDW(10, 1)
	c.key(&cmd, 0, 4096)
	r, err := c.do(&cmd, nil)
	if err != nil || !r.cqe.Status().IsOK() {
		t.Fatalf("identify: %v, %v", err, r.cqe.Status())
	}
	var id nvme.IdentifyController
	if err := id.UnmarshalBinary(c.data.b[:4096]); err != nil {
		t.Fatal(err)
	}
	if got := string(bytes.TrimRight(id.SUBNQN[:], "\x00")); got != testNQN {
		t.Errorf("SUBNQN %q", got)
	}
	if id.IOCCSZ != (64+4096)/16 || id.MSDBD != MaxDescriptors || id.SGLS&(nvme.SGLSKeyed|nvme.SGLSOffset) != nvme.SGLSKeyed|nvme.SGLSOffset || id.ICDOFF != 0 {
		t.Errorf("IOCCSZ %d, ICDOFF %d, MSDBD %d, SGLS %#x", id.IOCCSZ, id.ICDOFF, id.MSDBD, id.SGLS)
	}
}

// verifyIO writes and reads back random extents against a copy of what must be
// there: in capsules, by key, by lists.
func verifyIO(t *testing.T, w *world, q *hostQueue) {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 8))
	info := w.backend.info
	bs := int(info.BlockSize)
	model := make([]byte, info.Bytes())
	copy(model, w.backend.slab.Segment(0, uint32(info.Bytes())).Bytes())
	for range 400 {
		blocks := 1 + rng.IntN(16)
		if rng.IntN(8) == 0 {
			blocks = 1 + rng.IntN(1<<20/bs)
		}
		n := blocks * bs
		lba := rng.Uint64N(info.Blocks - uint64(blocks))
		at := model[int(lba)*bs:][:n]
		if rng.IntN(2) == 0 {
			for i := range at {
				at[i] = byte(rng.Uint32())
			}
			cmd := rwCommand(nvme.OpWrite, lba, blocks)
			var data []byte
			if n <= 4096 && rng.IntN(2) == 0 {
				inCapsule(cmd, 0, n)
				data = at
			} else {
				copy(q.data.b, at)
				data = q.scatter(cmd, rng, n)
			}
			if r, err := q.do(cmd, data); err != nil || !r.cqe.Status().IsOK() {
				t.Fatalf("write of %d blocks at %d: %v, %v", blocks, lba, err, r.cqe.Status())
			}
		} else {
			clear(q.data.b[:n])
			cmd := rwCommand(nvme.OpRead, lba, blocks)
			data := q.scatter(cmd, rng, n)
			if r, err := q.do(cmd, data); err != nil || !r.cqe.Status().IsOK() {
				t.Fatalf("read of %d blocks at %d: %v, %v", blocks, lba, err, r.cqe.Status())
			}
			if !bytes.Equal(q.data.b[:n], at) {
				t.Fatalf("read of %d blocks at %d brought other data", blocks, lba)
			}
		}
	}
}

// scatter describes n bytes of the queue's data by one key or by a list of several,
// which is returned to go into the capsule.
func (q *hostQueue) scatter(cmd *nvme.Command, rng *rand.Rand, n int) []byte {
	if rng.IntN(3) != 0 {
		q.key(cmd, 0, n)
		return nil
	}
	var b []byte
	off := 0
	for i := 1; off < n; i++ {
		m := n - off
		if i < MaxDescriptors {
			m = 1 + rng.IntN(m)
		}
		d := keyed(nvme.SGLAddress, uint64(q.data.addr)+uint64(off), uint32(m), q.mr.RKey())
		b = append(b, d[:]...)
		off += m
	}
	cmd.SGL().SetDataBlock(nvme.SGLLastSegment, nvme.SGLOffset, 0, uint32(len(b)))
	return b
}

// TestNativeRejects sees the refusals through the real libraries.
func TestNativeRejects(t *testing.T) {
	w := newWorld(t, worldConfig{provider: nativeProvider(t)})
	h := w.host("a")
	_, err := h.dial(w.addr, queueAsk{private: request(7, 0, 32, 31, 0, 32)})
	var r *rejectedError
	if !errors.As(err, &r) || r.status() != nvme.RDMACMInvalidRECFMT {
		t.Errorf("got %v", err)
	}
}
