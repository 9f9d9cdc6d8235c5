package rdma

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"sync"
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
		verifyMuch(t, w, q, 400)
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
	verifyMuch(t, w, q, 40)
}

func verifyMuch(t *testing.T, w *world, q *hostQueue, n int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 8))
	info := w.backend.info
	bs := int(info.BlockSize)
	model := make([]byte, info.Bytes())
	copy(model, w.backend.slab.Segment(0, uint32(info.Bytes())).Bytes())
	for range n {
		blocks := 1 + rng.IntN(16)
		if rng.IntN(8) == 0 {
			blocks = 1 + rng.IntN(1<<20/bs)
		}
		size := blocks * bs
		lba := rng.Uint64N(info.Blocks - uint64(blocks))
		at := model[int(lba)*bs:][:size]
		if rng.IntN(2) == 0 {
			for i := 0; i+8 <= len(at); i += 8 {
				binary.LittleEndian.PutUint64(at[i:], rng.Uint64())
			}
			cmd := rwCommand(nvme.OpWrite, lba, blocks)
			var data []byte
			if size <= 4096 && rng.IntN(2) == 0 {
				inCapsule(cmd, 0, size)
				data = at
			} else {
				copy(q.data.b, at)
				data = q.scatter(cmd, rng, size)
			}
			if r, err := q.do(cmd, data); err != nil || !r.cqe.Status().IsOK() {
				t.Fatalf("write of %d blocks at %d: %v, %v", blocks, lba, err, r.cqe.Status())
			}
		} else {
			clear(q.data.b[:size])
			cmd := rwCommand(nvme.OpRead, lba, blocks)
			data := q.scatter(cmd, rng, size)
			if r, err := q.do(cmd, data); err != nil || !r.cqe.Status().IsOK() {
				t.Fatalf("read of %d blocks at %d: %v, %v", blocks, lba, err, r.cqe.Status())
			}
			if !bytes.Equal(q.data.b[:size], at) {
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

// load keeps a queue's depth of commands outstanding: every slot writes its own
// blocks, reads them back and compares, n times.
func load(q *hostQueue, firstLBA uint64, blockSize, blocks, n int) error {
	return loadUntil(q, firstLBA, blockSize, blocks, func(done int) bool { return done >= n })
}

func loadUntil(q *hostQueue, firstLBA uint64, blockSize, blocks int, stop func(done int) bool) error {
	type job struct {
		busy, reading bool
		cid           uint16
		seed          byte
	}
	depth := q.depth - 1 // of a ring with head and tail one entry stays free
	size := blocks * blockSize
	jobs := make([]job, depth)
	done, outstanding := 0, 0
	for {
		for i := range jobs {
			j := &jobs[i]
			if j.busy || !j.reading && stop(done) {
				continue
			}
			lba := firstLBA + uint64(i*blocks)
			area := q.data.b[i*size:][:size]
			var err error
			if j.reading {
				clear(area)
				j.cid, err = q.send(q.rw(nvme.OpRead, lba, blocks, i*size, size), nil)
			} else {
				j.seed++
				fill(area, j.seed+byte(i))
				cmd := q.rw(nvme.OpWrite, lba, blocks, i*size, size)
				if size <= 4096 && j.seed%2 == 0 {
					inCapsule(cmd, 0, size)
					j.cid, err = q.send(cmd, area)
				} else {
					j.cid, err = q.send(cmd, nil)
				}
			}
			if err != nil {
				return err
			}
			j.busy = true
			outstanding++
		}
		if outstanding == 0 {
			return nil
		}
		r, err := q.reply()
		if err != nil {
			return err
		}
		if !r.cqe.Status().IsOK() {
			return fmt.Errorf("command %d: %v", r.cqe.CID(), r.cqe.Status())
		}
		found := false
		for i := range jobs {
			j := &jobs[i]
			if !j.busy || j.cid != r.cqe.CID() {
				continue
			}
			found = true
			j.busy = false
			outstanding--
			if j.reading {
				if !filled(q.data.b[i*size:][:size], j.seed+byte(i)) {
					return fmt.Errorf("slot %d read other data than it wrote", i)
				}
				done++
			}
			j.reading = !j.reading
		}
		if !found {
			return fmt.Errorf("a response for command %d, which is not outstanding", r.cqe.CID())
		}
	}
}

func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = seed + byte(i>>3)*7 + byte(i)
	}
}

func filled(b []byte, seed byte) bool {
	for i := range b {
		if b[i] != seed+byte(i>>3)*7+byte(i) {
			return false
		}
	}
	return true
}

// TestNativeFullDepth fills queues to their depth, with little pool memory.
func TestNativeFullDepth(t *testing.T) {
	for _, srq := range []SRQPolicy{SRQOff, SRQOn} {
		for _, blocks := range []int{1, 8, 128} {
			t.Run(fmt.Sprintf("srq %v, %d blocks", srq, blocks), func(t *testing.T) {
				w := newWorld(t, worldConfig{provider: nativeProvider(t), pool: 4 << 20, bytes: 16 << 20, rdma: Config{SRQ: srq}})
				_, q := w.connected("a", queueAsk{depth: 128, dataSize: 128 * 128 * 512})
				if err := load(q, 0, 512, blocks, 2000); err != nil {
					t.Fatal(err)
				}
				if st := w.lanes(); st.Errors != 0 || st.Stale != 0 {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

// TestNativeManyQueues loads several controllers with several queues each, on two
// reactors.
func TestNativeManyQueues(t *testing.T) {
	w := newWorld(t, worldConfig{provider: nativeProvider(t), reactors: 2, lends: true, bytes: 32 << 20})
	manyQueues(t, w, 4, 4, 300)
}

func manyQueues(t *testing.T, w *world, hosts, queues, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range hosts {
		h := w.host(fmt.Sprint("h", i))
		wg.Go(func() {
			c, err := h.attach(w.addr, testNQN)
			if err != nil {
				t.Error(err)
				return
			}
			var qs []*hostQueue
			for j := range queues {
				q, err := c.ioQueue(queueAsk{qid: uint16(j + 1), depth: 32})
				if err != nil {
					t.Error(err)
					return
				}
				qs = append(qs, q)
			}
			for j, q := range qs {
				if err := load(q, uint64((i*queues+j)*32*8), int(w.backend.info.BlockSize), 8, n); err != nil {
					t.Errorf("host %d, queue %d: %v", i, j, err)
				}
			}
		})
	}
	wg.Wait()
}

// childHost is set in processes that are hosts of a test and are killed by it.
const childHost = "ROCET_RDMA_TEST_HOST"

// TestNativeKill kills a host's process in the middle of its writes.
func TestNativeKill(t *testing.T) {
	if os.Getenv(childHost) != "" {
		killedHost(t)
		return
	}
	w := newWorld(t, worldConfig{provider: nativeProvider(t), bytes: 32 << 20})
	_, other := w.connected("other", queueAsk{depth: 16})
	for range 3 {
		before := w.lanes().Commands
		cmd := exec.Command(os.Args[0], "-test.run=^TestNativeKill$")
		cmd.Env = append(os.Environ(), childHost+"=1")
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.eventually("the other process writes", func() error {
			if n := w.lanes().Commands - before; n < 2000 {
				return fmt.Errorf("%d commands came", n)
			}
			return nil
		})
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
		w.eventually("its connections end", func() error {
			if n := len(w.tr.Stats().Connections); n != 1 {
				return fmt.Errorf("%d hosts are connected", n)
			}
			w.tr.mu.Lock()
			defer w.tr.mu.Unlock()
			if n := len(w.tr.conns); n != 2 {
				return fmt.Errorf("%d connections are left, want the other host's 2", n)
			}
			return nil
		})
		if err := load(other, 40000, 512, 4, 200); err != nil {
			t.Errorf("the other host: %v", err)
		}
	}
}

func killedHost(t *testing.T) {
	h := newHost(t, nativeProvider(t), "killed")
	c, err := h.attach(netip.MustParseAddrPort("127.0.0.1:4420"), testNQN)
	if err != nil {
		t.Fatal(err)
	}
	q, err := c.ioQueue(queueAsk{qid: 1, depth: 64})
	if err != nil {
		t.Fatal(err)
	}
	if err := loadUntil(q, 0, 512, 16, func(int) bool { return false }); err != nil {
		t.Fatal(err)
	}
}
