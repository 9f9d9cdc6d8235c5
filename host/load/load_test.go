package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	backend "rocet/backend/memory"
	"rocet/host"
	"rocet/internal/invariants"
	"rocet/memory"
	"rocet/nvme"
	"rocet/reactor"
	"rocet/target"
	"rocet/tcp"
)

const (
	testNQN   = "nqn.2026-01.io.rocet:load"
	testBytes = 8 << 20
)

// faulty is a memory namespace with faults.
type faulty struct {
	*backend.Backend
	lose  atomic.Int64 // block whose writes are lost, if above 0
	fail  atomic.Int64 // block whose commands fail, if above 0
	shift atomic.Bool  // writes go to the blocks before theirs, but at the beginning
}

func (f *faulty) OpenQueue(g *target.PollGroup) (target.BackendQueue, error) {
	q, err := f.Backend.OpenQueue(g)
	return &faultyQueue{BackendQueue: q, f: f}, err
}

type faultyQueue struct {
	target.BackendQueue
	f *faulty
}

func (q *faultyQueue) Submit(io *target.IO) {
	covers := func(block int64) bool {
		return block > 0 && uint64(block) >= io.LBA && uint64(block) < io.LBA+uint64(io.Blocks)
	}
	switch {
	case covers(q.f.fail.Load()):
		io.Complete(nvme.StatusUnrecoveredRead)
		return
	case io.Op == target.OpWrite && covers(q.f.lose.Load()):
		io.Complete(nvme.StatusSuccess)
		return
	case q.f.shift.Load() && io.Op == target.OpWrite && io.LBA >= uint64(io.Blocks):
		io.LBA -= uint64(io.Blocks)
	}
	q.BackendQueue.Submit(io)
}

// serve starts a target over TCP with one namespace.
func serve(t *testing.T) (host.Options, *faulty) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	pool, err := memory.New(memory.Config{Size: 16 << 20, HugePages: memory.HugeNever, Reserve: 1 << 20, Log: log})
	must(err)
	group, err := reactor.NewGroup(reactor.Config{Count: 1, Log: log})
	must(err)
	must(group.Start())
	tgt, err := target.New(target.Options{Reactors: group.Reactors(), Pool: pool, Log: log})
	must(err)
	sub, err := tgt.AddSubsystem(target.SubsystemConfig{NQN: testNQN, AllowAnyHost: true})
	must(err)
	mem, err := backend.New(backend.Config{Pool: pool, Size: testBytes, BlockSize: 512})
	must(err)
	b := &faulty{Backend: mem}
	_, err = sub.AddNamespace(target.NamespaceConfig{NSID: 1, Backend: b})
	must(err)
	tr, err := tcp.New(tcp.Options{Target: tgt, Pool: pool, Log: log})
	must(err)
	l, err := tr.Listen("127.0.0.1", 0)
	must(err)
	t.Cleanup(func() {
		must(tr.Close())
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		must(tgt.Close(ctx))
		must(mem.Close())
		group.Stop()
		pool.Close()
	})
	return host.Options{Transport: host.TCP, Address: "127.0.0.1", Port: l.Addr().Port(), NQN: testNQN}, b
}

func run1(t *testing.T, c Config) *Result {
	t.Helper()
	res, err := Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestCount(t *testing.T) {
	o, _ := serve(t)
	for rw := range shapes {
		for _, verify := range []bool{false, true} {
			c := Config{Target: o, RW: rw, BlockSize: 8192, Depth: 7, Queues: 2, Count: 1501, Verify: verify, ReadMix: 30}
			if verify && !shapes[rw].writes {
				continue // what an earlier run wrote: TestVerifyWhatIsThere
			}
			res := run1(t, c)
			if res.IOs != 1501 || res.Failed() || res.Interrupted || res.IOPS <= 0 || res.Seconds <= 0 {
				t.Errorf("%s, verify %v: %+v", rw, verify, res)
			}
			if verify != (res.Verified > 0) {
				t.Errorf("%s, verify %v: %d blocks are verified", rw, verify, res.Verified)
			}
			l := res.Latency
			if !(0 < l.Min && l.Min <= l.P50 && l.P50 <= l.P90 && l.P90 <= l.P99 && l.P99 <= l.P999 && l.P999 <= l.P9999 && l.P9999 <= l.Max*1.001) {
				t.Errorf("%s: latencies %+v", rw, l)
			}
			if mixed := shapes[rw].reads && shapes[rw].writes; mixed != (res.Read != nil) {
				t.Errorf("%s: by direction: %v", rw, res.Read)
			} else if mixed && (res.Read.IOs+res.Write.IOs != 1501 || res.Read.IOs < 300 || res.Read.IOs > 600) {
				t.Errorf("%s: %d reads, %d writes, want 30 %% reads", rw, res.Read.IOs, res.Write.IOs)
			}
		}
	}
}

func TestTime(t *testing.T) {
	o, _ := serve(t)
	samples := 0
	res := run1(t, Config{Target: o, Time: 1200 * time.Millisecond, Ramp: 300 * time.Millisecond, Depth: 4, Progress: func(s Sample) {
		samples++
		if s.IOPS <= 0 || s.Phase != "run" {
			t.Errorf("%+v", s)
		}
	}})
	if res.Seconds < 1.1 || res.Seconds > 1.3 || samples != 1 {
		t.Errorf("%v seconds, %d samples", res.Seconds, samples)
	}
	if got := float64(res.IOs) / res.Seconds; got < 0.99*res.IOPS || got > 1.01*res.IOPS {
		t.Errorf("%d I/Os in %v s are %v a second", res.IOs, res.Seconds, res.IOPS)
	}
	if !invariants.Enabled && res.Host.Allocs > 0.05 {
		t.Errorf("%v allocations an I/O, of target and host", res.Host.Allocs)
	}
	if res.Host.Calls <= 0 || res.Host.UserUS+res.Host.SystemUS <= 0 {
		t.Errorf("%+v", res.Host)
	}
}

func TestVerifyFindsFaults(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault func(*faulty)
		note  string
	}{
		{"lost write", func(f *faulty) { f.lose.Store(1003) }, "all zeros"},
		{"misplaced write", func(f *faulty) { f.shift.Store(true) }, "wrong place"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o, f := serve(t)
			test.fault(f)
			res := run1(t, Config{Target: o, RW: "write", Count: testBytes / 4096, Depth: 1, Verify: true})
			m := res.Mismatch
			if m == nil || !res.Failed() || !strings.Contains(m.Note, test.note) {
				t.Fatalf("%+v", m)
			}
			if test.name == "lost write" && (m.LBA != 1000 || m.Offset != 0 || m.Expected != "524f434554564659" || m.Found != "0000000000000000") {
				t.Errorf("%+v", m)
			}
			var b bytes.Buffer
			if err := res.Print(&b); err != nil || !strings.Contains(b.String(), "MISMATCH at LBA") {
				t.Errorf("%v: %s", err, b.String())
			}
		})
	}
	// A block that goes back to what it was.
	o, f := serve(t)
	if res := run1(t, Config{Target: o, RW: "write", Count: testBytes / 4096, Verify: true, Seed: 5}); res.Failed() {
		t.Fatalf("%+v", res)
	}
	f.lose.Store(1)
	res := run1(t, Config{Target: o, RW: "write", Count: testBytes / 4096, Verify: true, Seed: 6})
	if m := res.Mismatch; m == nil || !strings.Contains(m.Note, "another run") {
		t.Errorf("%+v", res.Mismatch)
	}
}

func TestVerifyWhatIsThere(t *testing.T) {
	o, _ := serve(t)
	if res := run1(t, Config{Target: o, RW: "write", Count: testBytes / 4096, Verify: true}); res.Failed() || res.Verified != testBytes/512 {
		t.Fatalf("%+v", res)
	}
	res := run1(t, Config{Target: o, RW: "read", Count: testBytes / 4096, Verify: true})
	if res.Failed() || res.Verified != testBytes/512 {
		t.Errorf("%+v", res)
	}
	run1(t, Config{Target: o, RW: "write", BlockSize: 512, Offset: 77 * 512, Size: 512, Depth: 1, Count: 1}) // no pattern
	res = run1(t, Config{Target: o, RW: "read", Count: testBytes / 4096, Verify: true})
	if m := res.Mismatch; m == nil || m.LBA != 77 || !strings.Contains(m.Note, "not a block") {
		t.Errorf("%+v", res.Mismatch)
	}
}

func TestErrorsAreCounted(t *testing.T) {
	o, f := serve(t)
	f.fail.Store(80)
	res := run1(t, Config{Target: o, RW: "read", Count: testBytes / 4096})
	name := nvme.StatusUnrecoveredRead.String()
	if res.Errors != 1 || res.Statuses[name] != 1 && len(res.Statuses) != 1 || res.IOs != testBytes/4096-1 || !res.Failed() {
		t.Errorf("%+v", res)
	}
	res = run1(t, Config{Target: o, RW: "write", Count: testBytes / 4096, Verify: true, Force: true})
	if res.Errors == 0 || res.Mismatch != nil {
		t.Errorf("blocks whose writes failed are verified: %+v", res)
	}
}

func TestInterrupt(t *testing.T) {
	o, _ := serve(t)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	res, err := Run(ctx, Config{Target: o, RW: "randrw", Time: time.Minute, Verify: true})
	if err != nil || !res.Interrupted || res.IOs == 0 || res.Seconds > 2 || time.Since(begin) > 10*time.Second {
		t.Errorf("%+v, %v", res, err)
	}
	text, err := json.Marshal(res)
	if err != nil || !strings.Contains(string(text), `"p99.9":`) || !strings.Contains(string(text), `"interrupted":true`) {
		t.Errorf("%s, %v", text, err)
	}
}

// poke writes bytes to the namespace.
func poke(t *testing.T, o host.Options, block uint64, b []byte) {
	t.Helper()
	c, err := host.Dial(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	q, err := c.NewQueue(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	m, err := c.NewMemory(512)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	copy(m.Bytes(), b)
	var io host.IO
	io.SetRW(nvme.OpWrite, 1, block, 1)
	io.SetData(m, 0, 512)
	if err := errors.Join(q.Submit(&io), q.Flush()); err != nil {
		t.Fatal(err)
	}
	for done := make([]*host.IO, 1); ; {
		if n, err := q.Poll(done); err != nil || n > 0 {
			if err != nil || !io.Status.IsOK() {
				t.Fatal(err, io.Status)
			}
			return
		}
	}
}

func TestSparesWhatIsInUse(t *testing.T) {
	o, _ := serve(t)
	last := uint64(testBytes/512 - 1)
	for block, magic := range map[uint64]string{1: "EFI PART", last: "EFI PART", 0: "XFSB"} {
		poke(t, o, block, []byte(magic))
		for _, rw := range []string{"write", "randrw"} {
			_, err := Run(context.Background(), Config{Target: o, RW: rw, Count: 10})
			if err == nil || !strings.Contains(err.Error(), "--force") {
				t.Errorf("%s over %s at block %d: %v", rw, magic, block, err)
			}
		}
		run1(t, Config{Target: o, RW: "read", Count: 10})
		run1(t, Config{Target: o, RW: "write", Count: 1, Offset: block * 512, Size: 512, BlockSize: 512, Depth: 1, Force: true})
	}
	if res := run1(t, Config{Target: o, RW: "write", Count: 10}); res.Failed() {
		t.Errorf("%+v", res)
	}
}

func TestRefusals(t *testing.T) {
	o, _ := serve(t)
	for _, test := range []struct {
		c    Config
		want string
	}{
		{Config{RW: "trim"}, "want read"},
		{Config{ReadMix: 101}, "0 to 100"},
		{Config{Depth: -1}, "at least 1"},
		{Config{Queues: -1}, "at least 1"},
		{Config{Time: -1}, "negative"},
		{Config{BlockSize: 1000}, "no multiple"},
		{Config{BlockSize: 2 << 20}, "moves at most 1048576"},
		{Config{Offset: 100}, "no multiple"},
		{Config{Offset: testBytes}, "has 8388608 bytes"},
		{Config{Offset: 512, Size: testBytes}, "has 8388608 bytes"},
		{Config{Size: 4096, Queues: 2}, "needs 2"},
		{Config{Size: 64 << 10, Depth: 17, Verify: true, RW: "randwrite"}, "needs 17"},
		{Config{Target: host.Options{NSID: 5}}, "not active"},
	} {
		nsid := test.c.Target.NSID
		test.c.Target = o
		test.c.Target.NSID = nsid
		if _, err := Run(context.Background(), test.c); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", test.c, err, test.want)
		}
	}
	// Deeper than the target takes: as deep as it does.
	if res := run1(t, Config{Target: o, Depth: 1000, Count: 2000}); res.Depth != 127 || res.IOs != 2000 {
		t.Errorf("depth %d, %d I/Os", res.Depth, res.IOs)
	}
}

func TestRangeAndOrder(t *testing.T) {
	o, _ := serve(t)
	// A sequential load covers its range once.
	res := run1(t, Config{Target: o, RW: "write", Offset: 1 << 20, Size: 1 << 20, BlockSize: 16384, Count: 64, Queues: 2, Depth: 4, Verify: true})
	if res.Failed() || res.Verified != 1<<20/512 {
		t.Errorf("%+v", res)
	}
	c, err := host.Dial(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ns, err := c.Namespace(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	q, err := c.NewQueue(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	r, err := host.NewReader(q, ns, c)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	all := make([]byte, testBytes)
	if n, err := r.ReadAt(all, 0); n != testBytes || err != nil {
		t.Fatal(n, err)
	}
	if n, err := r.ReadAt(make([]byte, 100), testBytes-50); n != 50 || err == nil {
		t.Errorf("a read past the end: %d, %v", n, err)
	}
	odd := make([]byte, 3000)
	if n, err := r.ReadAt(odd, 1<<20-1234); n != 3000 || err != nil || !bytes.Equal(odd, all[1<<20-1234:][:3000]) {
		t.Errorf("an odd read: %d, %v", n, err)
	}
	for i := 0; i < testBytes; i += 512 {
		in := i >= 1<<20 && i < 2<<20
		if got := word(all[i:]) == magic; got != in {
			t.Fatalf("block %d: written %v, in the range %v", i/512, got, in)
		}
	}
}
