package rdma

import (
	"fmt"
	"testing"
	"time"

	"rocet/cgo/verbs/fake"
	"rocet/nvme"
)

// maker makes a world on a provider.
type maker func(testing.TB, worldConfig) *world

// scenarios run over the fake fabric and natively over shmverbs.
var scenarios = []struct {
	name string
	run  func(*testing.T, maker)
}{
	{"admin commands have a reserve", reserve},
	{"waits are in order", inOrder},
	{"a queue has its share of the pool", poolShare},
	{"slow writes leave shared receives", sharedReceivesUnderWrites},
	{"many queues share receives", autoSRQ},
	{"completion queues are added", manyLanes},
	{"queues spread over reactors", placement},
	{"many connects", connectStorm},
}

func TestScenarios(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			s.run(t, func(t testing.TB, c worldConfig) *world {
				w, _ := fakeWorld(t, fake.Config{}, c)
				return w
			})
		})
	}
}

func TestNativeScenarios(t *testing.T) {
	p := nativeProvider(t)
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			s.run(t, func(t testing.TB, c worldConfig) *world {
				c.provider = p
				return newWorld(t, c)
			})
		})
	}
}

// reserve exhausts the pool by I/O on a namespace that doesn't answer: new
// hosts connect, admin commands work, others' I/O waits in order and goes on.
func reserve(t *testing.T, world maker) {
	for _, srq := range []SRQPolicy{SRQOff, SRQOn} {
		t.Run(fmt.Sprint("srq ", srq), func(t *testing.T) {
			w := world(t, worldConfig{pool: 4 << 20, rdma: Config{SRQ: srq}})
			w.backend.hold.Store(true)
			var qs []*hostQueue
			for i := range 5 {
				_, q := w.connected(fmt.Sprint("greedy", i), queueAsk{depth: 32})
				for j := range 30 {
					q.must(q.send(q.rw(nvme.OpRead, uint64(j), 256, 0, 128<<10), nil))
				}
				qs = append(qs, q)
			}
			w.reaches(slotWaitBuffers, 5*20)
			time.Sleep(5 * time.Millisecond)
			oldest, waiting := time.Duration(0), 0
			for _, l := range w.tr.Stats().Lanes {
				oldest = max(oldest, l.OldestWait)
				waiting += l.Waiting
			}
			if oldest < 5*time.Millisecond || waiting < 100 {
				t.Errorf("%d commands wait, the oldest for %v", waiting, oldest)
			}
			// A new host gets in, and its admin commands are served.
			c, err := w.host("late").attach(w.addr, testNQN)
			if err != nil {
				t.Fatal(err)
			}
			identify(t, c)
			late, err := c.ioQueue(queueAsk{qid: 1})
			if err != nil {
				t.Fatal(err)
			}
			late.must(late.send(late.rw(nvme.OpRead, 0, 8, 0, 4096), nil))
			w.backend.release()
			w.eventually("all are served", func() error {
				for _, q := range append(qs, late) {
					q.poll() // all the time: over shmverbs that does its NIC's work
				}
				for i, q := range append(qs, late) {
					if n := len(q.replies); n != 30 && q != late || n != 1 && q == late {
						return fmt.Errorf("queue %d has %d responses", i, n)
					}
				}
				return nil
			})
			for i, q := range qs {
				for _, r := range q.replies {
					if !r.cqe.Status().IsOK() {
						t.Errorf("queue %d: %v", i, r.cqe.Status())
					}
				}
			}
			if st := w.lanes(); st.BufferWaits == 0 || st.BufferWaitNanos == 0 {
				t.Errorf("waits are not counted: %+v", st)
			}
		})
	}
}

// inOrder makes commands of one queue wait for memory, and sees them served in
// the order in which they came.
func inOrder(t *testing.T, world maker) {
	w := world(t, worldConfig{pool: 4 << 20})
	_, q := w.connected("a", queueAsk{depth: 32})
	w.backend.hold.Store(true)
	var cids []uint16
	for i := range 20 {
		cid, err := q.send(q.rw(nvme.OpRead, uint64(i), 2048, 0, 1<<20), nil)
		if err != nil {
			t.Fatal(err)
		}
		cids = append(cids, cid)
	}
	w.reaches(slotWaitBuffers, 19)
	w.backend.release()
	for i, want := range cids {
		r, err := q.reply()
		if err != nil {
			t.Fatal(err)
		}
		if r.cqe.CID() != want {
			t.Fatalf("response %d is for command %d, want %d", i, r.cqe.CID(), want)
		}
	}
}

// poolShare holds a deep queue to its share of the pool, so that a second one is
// served at once.
func poolShare(t *testing.T, world maker) {
	w := world(t, worldConfig{pool: 16 << 20})
	_, deep := w.connected("deep", queueAsk{depth: 64})
	w.backend.hold.Store(true)
	for i := range 60 {
		deep.must(deep.send(deep.rw(nvme.OpRead, uint64(i), 2048, 0, 1<<20), nil))
	}
	w.reaches(slotWaitBuffers, 50)
	_, other := w.connected("other", queueAsk{depth: 64})
	other.must(other.send(other.rw(nvme.OpRead, 0, 2048, 0, 1<<20), nil))
	w.eventually("the other queue's command is with the backend", func() error {
		if n := w.backend.count.Load(); n != 5 {
			return fmt.Errorf("the backend has %d commands, want the share of 4 and one more", n)
		}
		return nil
	})
	w.backend.release()
	for _, q := range []*hostQueue{other, deep} {
		for range map[*hostQueue]int{other: 1, deep: 60}[q] {
			if _, err := q.reply(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// sharedReceivesUnderWrites keeps a slow namespace's in-capsule writes from
// using up the shared receives: what they bring is copied when few are left.
func sharedReceivesUnderWrites(t *testing.T, world maker) {
	w := world(t, worldConfig{rdma: Config{SRQ: SRQOn, SRQDepth: 256}})
	w.backend.hold.Store(true)
	var qs []*hostQueue
	for i := range 4 {
		_, q := w.connected(fmt.Sprint("w", i), queueAsk{depth: 128})
		for j := range 120 {
			cmd := rwCommand(nvme.OpWrite, uint64(j), 1)
			inCapsule(cmd, 0, 512)
			q.must(q.send(cmd, q.data.b[:512]))
		}
		qs = append(qs, q)
	}
	w.eventually("all writes are with the backend", func() error {
		for _, q := range qs {
			q.poll()
		}
		if n := w.backend.count.Load(); n != 480 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	if l := w.lanes(); l.CopiedBytes == 0 {
		t.Error("nothing was copied, yet 480 capsules are in 256 buffers")
	}
	for _, l := range w.tr.Stats().Lanes {
		if l.SharedReceives && l.Posted < 32 {
			t.Errorf("%d shared receives are left", l.Posted)
		}
	}
	w.backend.release()
	for _, q := range qs {
		for range 120 {
			if r, err := q.reply(); err != nil || !r.cqe.Status().IsOK() {
				t.Fatal(err, r.cqe.Status())
			}
		}
	}
}

// autoSRQ shares receives once there are many queues.
func autoSRQ(t *testing.T, world maker) {
	w := world(t, worldConfig{})
	c, err := w.host("a").attach(w.addr, testNQN)
	if err != nil {
		t.Fatal(err)
	}
	for i := range srqAutoQueues + 3 {
		if _, err := c.ioQueue(queueAsk{qid: uint16(i + 1), depth: 4, dataSize: 4096}); err != nil {
			t.Fatal(err)
		}
	}
	shared := 0
	for _, l := range w.tr.Stats().Lanes {
		if l.SharedReceives {
			shared += l.Queues
		}
	}
	if shared != 3 {
		t.Errorf("%d queues share receives, want 3", shared)
	}
}

// manyLanes overflows a completion queue's room: another one is made.
func manyLanes(t *testing.T, world maker) {
	w := world(t, worldConfig{rdma: Config{CQEntries: 400, SRQ: SRQOff}})
	manyQueues(t, w, 2, 3, 50)
	if n := len(w.tr.Stats().Lanes); n < 2 {
		t.Errorf("%d lanes", n)
	}
}

// placement spreads connections over the reactors.
func placement(t *testing.T, world maker) {
	w := world(t, worldConfig{reactors: 2})
	c, err := w.host("a").attach(w.addr, testNQN)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		if _, err := c.ioQueue(queueAsk{qid: uint16(i + 1), depth: 8, dataSize: 4096}); err != nil {
			t.Fatal(err)
		}
	}
	n := map[int]int{}
	for _, l := range w.tr.Stats().Lanes {
		n[l.Reactor] += l.Queues
	}
	if n[0] < 4 || n[1] < 4 || n[0]+n[1] != 9 {
		t.Errorf("queues by reactor: %v", n)
	}
}

// connectStorm connects and disconnects many times: nothing may add up.
func connectStorm(t *testing.T, world maker) {
	w := world(t, worldConfig{})
	for i := range 60 {
		_, q := w.connected("a", queueAsk{depth: 8, dataSize: 1 << 16})
		if i%3 == 0 {
			if err := q.qp.ToError(); err != nil {
				t.Error(err)
			}
		}
		w.hosts[0].close()
		w.hosts = nil
	}
	w.settled()
	if used, _ := w.tr.capsules.usage(); used != 0 {
		t.Errorf("%d bytes of capsule memory are in use", used)
	}
}
