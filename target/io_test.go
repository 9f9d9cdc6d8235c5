package target_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"rocet/nvme"
	"rocet/target"
	tt "rocet/target/targettest"
)

// LBA ranges are checked without overflow, lengths against MDTS, fields against
// what is there.
func TestIOChecks(t *testing.T) {
	h, s, _ := start(t, tt.Options{Target: target.Options{MDTS: 65536}})
	h.Namespace(s, 2, tt.NewRAM(512, 1000).Change(func(i *target.Info) { i.Ops = 0 }))
	a := h.Connect(subNQN, tt.Host("one"))
	io := a.IO(1)
	const oor = nvme.StatusLBAOutOfRange
	const field = nvme.StatusInvalidField
	edit := func(c nvme.Command, f func(*nvme.Command)) nvme.Command { f(&c); return c }
	cdw12 := func(bits uint32) func(*nvme.Command) {
		return func(c *nvme.Command) { c.SetCDW(12, c.CDW(12)|bits) }
	}
	raw := func(f func(*nvme.Command)) nvme.Command {
		return edit(tt.Read(1, 0, 1), f)
	}
	for _, test := range []struct {
		name string
		cmd  nvme.Command
		st   nvme.Status
	}{
		{"last block", tt.Read(1, 255, 1), 0},
		{"past the end by one", tt.Read(1, 255, 2), oor},
		{"from the end", tt.Read(1, 256, 1), oor},
		{"LBA 2^64-1", tt.Read(1, 1<<64-1, 1), oor},
		{"LBA 2^64-1, two blocks: the sum overflows", tt.Read(1, 1<<64-1, 2), oor},
		{"LBA 2^52: the offset in bytes overflows", tt.Read(1, 1<<52, 1), oor},
		{"all at MDTS", tt.Read(1, 0, 16), 0},
		{"above MDTS", tt.Read(1, 0, 17), field},
		{"65536 blocks", tt.Read(2, 0, 65536), oor},
		{"fused first", raw(func(c *nvme.Command) { c.SetFuse(nvme.FuseFirst) }), field},
		{"fused second", raw(func(c *nvme.Command) { c.SetFuse(nvme.FuseSecond) }), field},
		{"PRINFO", edit(tt.Read(1, 0, 1), func(c *nvme.Command) { c.SetPRINFO(nvme.PRInfoAct) }), field},
		{"PRINFO of a compare", edit(tt.IO(nvme.OpCompare, 1, 0, 1), func(c *nvme.Command) { c.SetPRINFO(1) }), field},
		{"storage tag check", edit(tt.Read(1, 0, 1), cdw12(nvme.CDW12STC)), field},
		{"directive of a write", edit(tt.Write(1, 0, 1), cdw12(1<<20)), field},
		{"command extension of a write", edit(tt.Write(1, 0, 1), cdw12(1<<16)), field},
		{"namespace zeroes", edit(tt.IO(nvme.OpWriteZeroes, 1, 0, 1), cdw12(nvme.CDW12NSZ)), field},
		{"reserved bits of a read", edit(tt.Read(1, 0, 1), cdw12(0xff<<16)), 0},
		{"write zeroes", tt.IO(nvme.OpWriteZeroes, 1, 0, 16), 0},
		{"write zeroes above WZSL", tt.IO(nvme.OpWriteZeroes, 1, 0, 17), field},
		{"verify", tt.IO(nvme.OpVerify, 1, 0, 16), 0},
		{"verify above VSL", tt.IO(nvme.OpVerify, 1, 0, 17), field},
		{"verify past the end", tt.IO(nvme.OpVerify, 1, 250, 16), oor},
		{"write zeroes without the backend", tt.IO(nvme.OpWriteZeroes, 2, 0, 1), nvme.StatusInvalidOpcode},
		{"compare without the backend", tt.IO(nvme.OpCompare, 2, 0, 1), nvme.StatusInvalidOpcode},
		{"verify without the backend", tt.IO(nvme.OpVerify, 2, 0, 1), nvme.StatusInvalidOpcode},
		{"dataset management without the backend", tt.IO(nvme.OpDatasetManagement, 2, 0, 1), nvme.StatusInvalidOpcode},
		{"write uncorrectable", tt.IO(nvme.OpWriteUncorrectable, 1, 0, 1), nvme.StatusInvalidOpcode},
		{"reservation register", tt.IO(nvme.OpReservationRegister, 1, 0, 1), nvme.StatusInvalidOpcode},
		{"copy", tt.IO(nvme.OpCopy, 1, 0, 1), nvme.StatusInvalidOpcode},
		{"vendor specific", tt.IO(0xc0, 1, 0, 1), nvme.StatusInvalidOpcode},
		{"flush", tt.Flush(1), 0},
	} {
		want(t, test.name, io.Do(test.cmd, make([]byte, 4096)), test.st, true)
	}
	// Fact 17: data by SGL, without metadata.
	for _, psdt := range []uint8{nvme.PSDTPRP, nvme.PSDTSGLMetadata, 3} {
		c := tt.Read(1, 0, 1)
		c.SetPSDT(psdt)
		want(t, "PSDT", io.SendRaw(c, nil).Wait(), field, true)
		c = tt.Identify(nvme.CNSController, 0)
		c.SetPSDT(psdt)
		want(t, "PSDT of an admin command", a.Admin.SendRaw(c, nil).Wait(), field, true)
	}
	c := tt.Read(1, 0, 1)
	c.SetPSDT(nvme.PSDTSGL)
	c[1] |= 0xf << 2
	ok(t, "reserved bits of byte 1", io.SendRaw(c, nil).Wait())
	for _, n := range []int{0, 4095, 4097} {
		want(t, "data of another length", io.Do(tt.Write(1, 0, 1), make([]byte, n)), nvme.StatusSGLDataLength, true)
	}
}

func TestIOOperations(t *testing.T) {
	h, _, b := start(t, tt.Options{})
	a := h.Connect(subNQN, tt.Host("one"))
	io := a.IO(1)
	b.Record()
	data := pattern(1 << 20)
	ok(t, "write of 1 MiB", io.Do(tt.Write(1, 0, 256), data))
	if r := ok(t, "read of 1 MiB", io.Do(tt.Read(1, 0, 256), nil)); !bytes.Equal(r.Data, data) {
		t.Error("1 MiB differs")
	}
	ok(t, "compare", io.Do(tt.IO(nvme.OpCompare, 1, 2, 1), data[8192:12288]))
	want(t, "compare of something else", io.Do(tt.IO(nvme.OpCompare, 1, 2, 1), data[:4096]), nvme.StatusCompareFailure, true)
	ok(t, "write zeroes", io.Do(tt.IO(nvme.OpWriteZeroes, 1, 1, 2), nil))
	c := tt.IO(nvme.OpWriteZeroes, 1, 3, 1)
	c.SetDEAC(true)
	c.SetFUA(true)
	ok(t, "write zeroes with DEAC", io.Do(c, nil))
	clear(data[4096:16384])
	if r := io.Do(tt.Read(1, 0, 256), nil); !bytes.Equal(r.Data, data) {
		t.Error("the zeroes are elsewhere")
	}
	ok(t, "verify", io.Do(tt.IO(nvme.OpVerify, 1, 0, 1), nil))
	c = tt.Write(1, 5, 1)
	c.SetFUA(true)
	c.SetCDW(12, c.CDW(12)|nvme.CDW12LR)
	ok(t, "write with FUA and LR", io.Do(c, data[:4096]))
	ok(t, "flush", io.Do(tt.Flush(1), nil))
	c, ranges := tt.Deallocate(1, tt.Range(0, 1), tt.Range(200, 56), tt.Range(10, 0))
	ok(t, "deallocate", io.Do(c, ranges))
	clear(data[:4096])
	clear(data[200*4096:])
	copy(data[5*4096:6*4096], make([]byte, 4096))
	if r := io.Do(tt.Read(1, 200, 56), nil); !bytes.Equal(r.Data, data[200*4096:]) {
		t.Error("deallocated blocks don't read as zeros")
	}
	wantSeen := []tt.Seen{
		{Op: target.OpWrite, LBA: 0, Blocks: 256}, {Op: target.OpRead, LBA: 0, Blocks: 256},
		{Op: target.OpCompare, LBA: 2, Blocks: 1}, {Op: target.OpCompare, LBA: 2, Blocks: 1},
		{Op: target.OpWriteZeroes, LBA: 1, Blocks: 2}, {Op: target.OpWriteZeroes, Flags: target.FUA | target.Deallocate, LBA: 3, Blocks: 1},
		{Op: target.OpRead, LBA: 0, Blocks: 256}, {Op: target.OpVerify, LBA: 0, Blocks: 1},
		{Op: target.OpWrite, Flags: target.FUA | target.LimitedRetry, LBA: 5, Blocks: 1},
		{Op: target.OpFlush}, {Op: target.OpDeallocate, Blocks: 3}, {Op: target.OpRead, LBA: 200, Blocks: 56},
	}
	if seen := b.Record(); !slices.Equal(seen, wantSeen) {
		t.Errorf("the backend saw\n%+v\nwant\n%+v", seen, wantSeen)
	}
}

// Dataset Management's ranges are checked each; a host may describe more than it uses.
func TestDatasetManagement(t *testing.T) {
	h, _, b := start(t, tt.Options{})
	a := h.Connect(subNQN, tt.Host("one"))
	io := a.IO(1)
	for name, r := range map[string]nvme.DSMRange{
		"past the end": tt.Range(255, 2), "from far": tt.Range(1<<63, 1), "overflow": tt.Range(1<<64-1, 1<<32-1), "long": tt.Range(0, 257),
	} {
		c, data := tt.Deallocate(1, tt.Range(0, 1), r)
		want(t, name, io.Do(c, data), nvme.StatusLBAOutOfRange, true)
	}
	b.Record()
	c, data := tt.Deallocate(1, tt.Range(1, 2))
	ok(t, "4096 bytes for one range, as Linux does", io.Do(c, append(data, make([]byte, 4080)...)))
	want(t, "less than the ranges", io.Do(c, data[:15]), nvme.StatusSGLDataLength, true)
	c.SetDSMAttributes(nvme.DSMIntegralRead | nvme.DSMIntegralWrite)
	ok(t, "hints", io.Do(c, data))
	all := make([]nvme.DSMRange, nvme.DSMMaxRanges)
	for i := range all {
		all[i] = tt.Range(uint64(i), 1)
	}
	c, data = tt.Deallocate(1, all...)
	ok(t, "256 ranges", io.Do(c, data))
	if seen := b.Record(); len(seen) != 2 || seen[0].Blocks != 1 || seen[1].Blocks != 256 {
		t.Errorf("the backend saw %+v", seen)
	}
}

// Flush goes to where there is a cache; to all of them with NSID FFFFFFFFh.
func TestFlushAll(t *testing.T) {
	h := tt.New(t, tt.Options{})
	s := h.Subsystem(subNQN)
	var cached []*tt.RAM
	for nsid := uint32(1); nsid <= 1000; nsid += 9 {
		b := tt.NewRAM(512, 8)
		h.Namespace(s, nsid, b)
		b.Record()
		cached = append(cached, b)
	}
	plain := tt.NewRAM(512, 8).Change(func(i *target.Info) { i.VolatileWriteCache = false })
	h.Namespace(s, 2, plain)
	plain.Record()
	a := h.Connect(subNQN, tt.Host("one"))
	io := a.IO(1)
	ok(t, "flush all", io.Do(tt.Flush(nvme.NSIDAll), nil))
	for i, b := range cached {
		if seen := b.Record(); len(seen) != 1 || seen[0].Op != target.OpFlush {
			t.Fatalf("backend %d saw %+v", i, seen)
		}
	}
	ok(t, "flush of a namespace without a cache", io.Do(tt.Flush(2), nil))
	if seen := plain.Record(); len(seen) != 0 {
		t.Errorf("a backend without a cache saw %+v", seen)
	}
	cached[3].Hold(true)
	p := io.Send(tt.Flush(nvme.NSIDAll), nil)
	h.Settle()
	if p.Done() || len(cached[4].Record()) != 1 {
		t.Error("flush all did not wait for a backend")
	}
	cached[3].Hold(false)
	ok(t, "flush all", p.Wait())
	if len(cached[len(cached)-1].Record()) != 2 {
		t.Error("flush all left the last one out")
	}
	cached[5].Fail(nvme.StatusWriteFault)
	want(t, "flush all with an error", io.Do(tt.Flush(nvme.NSIDAll), nil), nvme.StatusWriteFault, false)
	cached[5].Hold(true)
	p = io.Send(tt.Flush(nvme.NSIDAll), nil)
	h.Settle()
	cached[5].Hold(false)
	want(t, "flush all with a late error", p.Wait(), nvme.StatusWriteFault, false)
	for _, op := range []nvme.Opcode{nvme.OpRead, nvme.OpWrite, nvme.OpWriteZeroes, nvme.OpDatasetManagement} {
		want(t, op.Name(false)+" of all", io.Do(tt.IO(op, nvme.NSIDAll, 0, 1), make([]byte, 512)), nvme.StatusInvalidNamespace, true)
	}
	for _, n := range h.Target.Subsystem(subNQN).Namespaces() {
		if f := n.InFlight(); f[0] != 0 {
			t.Errorf("namespace %d has %d in flight", n.NSID(), f[0])
		}
	}
}

// Without its write cache a host's writes go to the media.
func TestWriteCacheOff(t *testing.T) {
	h, _, b := start(t, tt.Options{Reactors: 2})
	a := h.Connect(subNQN, tt.Host("one"))
	io := a.IOOn(1, 1)
	ok(t, "WCE = 0", a.Admin.Do(tt.SetFeature(nvme.FeatureVolatileWriteCache, 0), nil))
	h.Settle()
	late := a.IO(2)
	other := h.Connect(subNQN, tt.Host("two")).IO(1)
	b.Record()
	ok(t, "write", io.Do(tt.Write(1, 0, 1), make([]byte, 4096)))
	ok(t, "write", late.Do(tt.Write(1, 0, 1), make([]byte, 4096)))
	ok(t, "write zeroes", late.Do(tt.IO(nvme.OpWriteZeroes, 1, 0, 1), nil))
	ok(t, "write", other.Do(tt.Write(1, 0, 1), make([]byte, 4096)))
	var flags []target.IOFlags
	for _, s := range b.Record() {
		flags = append(flags, s.Flags)
	}
	if !slices.Equal(flags, []target.IOFlags{target.FUA, target.FUA, target.FUA, 0}) {
		t.Errorf("flags %v", flags)
	}
	ok(t, "WCE = 1", a.Admin.Do(tt.SetFeature(nvme.FeatureVolatileWriteCache, 1), nil))
	h.Settle()
	ok(t, "write", io.Do(tt.Write(1, 0, 1), make([]byte, 4096)))
	if seen := b.Record(); seen[len(seen)-1].Flags != 0 {
		t.Error("FUA stays on")
	}
}

// A backend's error reaches the host and is counted.
func TestBackendErrors(t *testing.T) {
	h, s, b := start(t, tt.Options{})
	a := h.Connect(subNQN, tt.Host("one"))
	io := a.IO(1)
	b.Fail(nvme.StatusUnrecoveredRead)
	want(t, "read", io.Do(tt.Read(1, 0, 1), nil), nvme.StatusUnrecoveredRead, false)
	b.Fail(nvme.StatusCapacityExceeded)
	want(t, "write", io.Do(tt.Write(1, 0, 1), make([]byte, 4096)), nvme.StatusCapacityExceeded, true)
	b.Fail(0)
	ok(t, "read", io.Do(tt.Read(1, 0, 1), nil))
	g := h.Target.Groups()[0].Stats()
	if g.Errors[nvme.StatusUnrecoveredRead] != 1 || g.Errors[nvme.StatusCapacityExceeded] != 1 || g.Queues != 2 {
		t.Errorf("%+v", g)
	}
	st := s.Namespace(1).Stats()
	if r := st[target.OpRead]; r.Commands != 1 || r.Errors != 1 || r.Bytes != 4096 || r.LatencyNS == 0 {
		t.Errorf("reads: %+v", r)
	}
	if w := st[target.OpWrite]; w.Commands != 0 || w.Errors != 1 || w.Bytes != 0 {
		t.Errorf("writes: %+v", w)
	}
	if g.AdminCommands[nvme.AdminFabrics] == 0 {
		t.Errorf("admin commands %v", g.AdminCommands)
	}
}

// Reads of a backend that lends go out of its own memory, and the namespace stays
// until the transport has sent them.
func TestLentReads(t *testing.T) {
	h := tt.New(t, tt.Options{})
	s := h.Subsystem(subNQN)
	b, err := tt.NewLendingRAM(h.Pool, 4096, 64)
	if err != nil {
		t.Fatal(err)
	}
	h.Namespace(s, 1, b)
	a := h.Connect(subNQN, tt.Host("one"))
	io := a.IO(1)
	data := pattern(16384)
	ok(t, "write", io.Do(tt.Write(1, 8, 4), data))
	r := ok(t, "read", io.Do(tt.Read(1, 8, 4), nil))
	if !r.Lent || !bytes.Equal(r.Data, data) {
		t.Errorf("lent %v, equal %v", r.Lent, bytes.Equal(r.Data, data))
	}
	want(t, "read past the end", io.Do(tt.Read(1, 63, 4), nil), nvme.StatusLBAOutOfRange, true)
	b.Fail(nvme.StatusUnrecoveredRead)
	want(t, "read with an error", io.Do(tt.Read(1, 8, 4), nil), nvme.StatusUnrecoveredRead, false)
	if f := s.Namespace(1).InFlight(); f[0] != 0 {
		t.Errorf("%d in flight", f[0])
	}
	b.Fail(0)
	io.SlowSend(true)
	ok(t, "read that is being sent", io.Do(tt.Read(1, 8, 4), nil))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := s.RemoveNamespace(ctx, 1); !errors.Is(err, context.DeadlineExceeded) || b.OpenQueues() != 1 {
		t.Errorf("removal while its memory is being sent: %v, %d queues open", err, b.OpenQueues())
	}
	io.SlowSend(false)
	h.Eventually("the backend's queue is closed", func() bool { return b.OpenQueues() == 0 })
}
