package pcie

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rocet/nvme"
	"rocet/nvme/pcie/sim"
)

func TestBringUpAndShutdown(t *testing.T) {
	r := newRig(t, sim.Config{MDTS: 5, Vectors: 8}, nil)
	if got := r.drive.MaxTransfer(); got != 128<<10 {
		t.Errorf("longest transfer %d", got)
	}
	if r.drive.Serial() != "SIM0001" || r.drive.Address() != "0000:00:01.0" {
		t.Errorf("%s at %s", r.drive.Serial(), r.drive.Address())
	}
	if ids, err := r.drive.Namespaces(); err != nil || len(ids) != 1 || ids[0] != 1 {
		t.Errorf("namespaces %v, %v", ids, err)
	}
	if log, err := r.drive.SMART(); err != nil || log.Temperature != 300 {
		t.Errorf("SMART %+v, %v", log, err)
	}
	if log, err := r.drive.ErrorLog(); err != nil || len(log) != 1 || log[0].Count != 7 {
		t.Errorf("error log %+v, %v", log, err)
	}
	if on, err := r.drive.WriteCacheOn(); !on || err != nil {
		t.Errorf("write cache %v, %v", on, err)
	}
	r.close()
	c := r.dev.Counts()
	if c.Shutdown != 1 || c.Enables != 1 {
		t.Errorf("enabled %d times, shut down %d times", c.Enables, c.Shutdown)
	}
	if !r.dev.Quiet() {
		t.Error("the controller is still enabled")
	}
	if err := r.drive.Close(); err != nil {
		t.Errorf("closing it again: %v", err)
	}
	if _, err := r.drive.SMART(); err == nil {
		t.Error("SMART of a closed drive")
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// tryOpen opens a drive that must refuse, and checks that nothing is left.
func tryOpen(t *testing.T, cfg sim.Config, edit func(*Config, *sim.Controller)) error {
	t.Helper()
	space := sim.NewSpace()
	pool := newPool(t, space)
	dev := sim.New(space, cfg)
	dev.Run()
	defer dev.Stop()
	c := Config{Open: func() (Function, error) { f, err := dev.Open(); return f, err }, Table: space.Table(), Memory: pool, Queues: 2,
		AdminTimeout: 200 * time.Millisecond}
	edit(&c, dev)
	before, files := pool.Stats(), openFiles(t)
	d, err := Open(c)
	if err == nil {
		_ = d.Close()
		t.Fatal("it was opened")
	}
	if after := pool.Stats(); before.SlabBytes != after.SlabBytes {
		t.Errorf("slabs of %d bytes are left", after.SlabBytes)
	}
	for range 100 { // their watchers end on their own
		if openFiles(t) <= files {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if n := openFiles(t); n > files {
		t.Errorf("%d files are left open", n-files)
	}
	return err
}

func TestBringUpFailures(t *testing.T) {
	drop := func(op nvme.Opcode) func(*Config, *sim.Controller) {
		return func(_ *Config, dev *sim.Controller) {
			dev.SetHook(func(qid uint16, cmd *nvme.Command) sim.Verdict {
				if qid == 0 && cmd.Opcode() == op {
					return sim.Swallow
				}
				return sim.Execute
			})
		}
	}
	for _, c := range []struct {
		name string
		cfg  sim.Config
		edit func(*Config, *sim.Controller)
		want string
	}{
		{"not there", sim.Config{}, func(c *Config, dev *sim.Controller) { dev.Remove() }, "no such PCI function"},
		{"pulled after it was opened", sim.Config{}, func(c *Config, dev *sim.Controller) {
			open := c.Open
			c.Open = func() (Function, error) {
				f, err := open()
				dev.Remove()
				time.Sleep(10 * time.Millisecond)
				return f, err
			}
		}, "gone from the bus"},
		{"never ready", sim.Config{Ready: time.Hour}, func(*Config, *sim.Controller) {}, "CSTS.RDY to become 1"},
		{"fatal", sim.Config{}, func(_ *Config, dev *sim.Controller) {
			dev.SetHook(func(uint16, *nvme.Command) sim.Verdict { go dev.Fail(); return sim.Swallow })
		}, "CSTS.CFS"},
		{"Identify does not come back", sim.Config{}, drop(nvme.AdminIdentify), "did not come back"},
		{"Set Features does not come back", sim.Config{}, drop(nvme.AdminSetFeatures), "did not come back"},
		{"memory that is not mapped for it", sim.Config{}, func(c *Config, _ *sim.Controller) { c.Table = sim.NewSpace().Table() }, "not mapped"},
		{"stride beyond the BAR", sim.Config{DSTRD: 15}, func(*Config, *sim.Controller) {}, "doorbells"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := tryOpen(t, c.cfg, c.edit); !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

func TestQueuesAreNegotiated(t *testing.T) {
	r := newRig(t, sim.Config{Queues: 1, MQES: 3}, func(c *Config) { c.Queues = 4 })
	if r.q.depth != 4 {
		t.Errorf("depth %d, the drive has 4", r.q.depth)
	}
	if _, err := r.drive.OpenQueue(r, true); err == nil || !strings.Contains(err.Error(), "fewer reactors") {
		t.Errorf("a second queue of a drive with one: %v", err)
	}
	segs := r.alloc(40 * 4096)
	r.roundTrip(0, segs, 3)
	r.cache.Free(segs)
	// Closed, it can be opened again.
	r.closeQueue()
	r.open()
	r.wantWorking()
}

func TestNamespacesAreRefusedByName(t *testing.T) {
	for _, c := range []struct {
		nsid uint32
		edit func(*sim.Config)
		want string
	}{
		{0, nil, "no such identifier"},
		{9, nil, "the drive has 1 to 4"},
		{2, nil, "not active; active are 1"},
		{1, func(c *sim.Config) { c.Metadata = 8 }, "8 bytes of metadata"},
		{1, func(c *sim.Config) { c.BlockShift = 17 }, "2^17"},
		{1, func(c *sim.Config) { c.BlockShift = 8 }, "2^8"},
		{1, func(c *sim.Config) { c.CSI = nvme.CSIZoned }, "Zoned Namespace"},
	} {
		r := newRig(t, sim.Config{}, nil)
		delete(r.drive.namespaces, 1)
		if c.edit != nil {
			r.dev.Reconfigure(c.edit)
		}
		_, err := r.drive.Namespace(c.nsid)
		var format *FormatError
		if !errors.As(err, &format) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("namespace %d: %v; want %q", c.nsid, err, c.want)
		}
		r.close()
		r.drive.cfg.Notify = nil
	}
	for _, id := range []*nvme.IdentifyNamespace{
		{NSZE: 1, DPS: 1, LBAF: [64]nvme.LBAFormat{{LBADS: 12}}},
		{NSZE: 1, FLBAS: 0x21, LBAF: [64]nvme.LBAFormat{17: {LBADS: 12, MS: 64}}},
	} {
		if err := checkFormat(1, id); err == nil {
			t.Errorf("accepted: %+v", id.Format())
		}
	}
}

func TestEvents(t *testing.T) {
	for _, vectors := range []int{0, 3} {
		r := newRig(t, sim.Config{Vectors: vectors}, nil)
		r.dev.Warn(nvme.SMARTSpareLow)
		r.pump("the health event", r.sawEvent(Event{Kind: EventHealth}))
		r.dev.Resize(16384)
		r.pump("the namespace event", r.sawEvent(Event{Kind: EventNamespaceChanged, NSID: 1}))
		if n := r.ns.Identify().NSZE; n != 16384 {
			t.Errorf("%d blocks", n)
		}
		r.dev.Event(nvme.MakeAsyncEvent(nvme.EventError, nvme.EventErrorTransientInternal, nvme.LogError))
		r.pump("the error", func() bool { return strings.Contains(r.logged(), "the drive reports an error") })
		r.dev.Event(nvme.MakeAsyncEvent(nvme.EventVendor, 1, 0xc0))
		r.pump("the vendor's event", func() bool { return strings.Contains(r.logged(), "cannot be followed up") })
		// More than there are requests for at a time.
		for i := range 20 {
			r.dev.Warn(uint8(i & 1))
		}
		r.pump("the rest", func() bool { return r.drive.Counters().Events == 24 })
		r.wantWorking()
	}
}

// A queue's interrupt comes only when it was asked for, and is not lost.
func TestInterrupts(t *testing.T) {
	r := newRig(t, sim.Config{Vectors: 3}, nil)
	fd := r.q.FD()
	readable := func(ms int) bool {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, ms)
		return n > 0
	}
	segs := r.alloc(4096)
	// Polled: no interrupts.
	for range 5 {
		r.mustDo(nvme.OpRead, 0, 8, segs)
	}
	if readable(0) {
		t.Error("interrupts came while the queue was polled")
	}
	// The device kept one back while it was masked; it comes when it no longer is, and is acknowledged.
	if !r.q.Arm() {
		t.Fatal("there are completions")
	}
	if readable(1000) {
		r.q.Woken()
	}
	if readable(0) {
		t.Error("still readable after Woken")
	}
	for i := range 5 {
		q := r.newRequest(nvme.OpRead, 0, 8, segs)
		r.send(q)
		armed := r.q.Arm()
		if armed && !readable(5000) {
			t.Fatalf("round %d: no interrupt in 5 s", i)
		}
		if armed {
			r.q.Woken()
		}
		r.pump("the read", func() bool { return q.ended > 0 })
	}
	// Completions that are there already keep it awake.
	q := r.newRequest(nvme.OpRead, 0, 8, segs)
	r.send(q)
	for !r.q.ready() {
		time.Sleep(time.Millisecond)
	}
	if r.q.Arm() {
		t.Error("Arm lets the reactor sleep on a completion")
	}
	r.pump("the read", func() bool { return q.ended > 0 })
	// The same after a reset: the FD stays.
	r.dev.PCIError()
	r.pump("the reset", func() bool { return r.drive.Counters().Resets == 1 && r.drive.State() == Live })
	r.turn()
	if r.q.FD() != fd {
		t.Error("the FD changed")
	}
	q = r.newRequest(nvme.OpRead, 0, 8, segs)
	r.send(q)
	if r.q.Arm() && !readable(5000) {
		t.Error("no interrupt after the reset")
	}
	r.pump("the read", func() bool { return q.ended > 0 })
	r.cache.Free(segs)
}

func TestQueueWithoutVector(t *testing.T) {
	r := newRig(t, sim.Config{Vectors: 2}, nil)
	second, err := r.drive.OpenQueue(r, true)
	if err != nil {
		t.Fatal(err)
	}
	if r.q.FD() < 0 || second.FD() >= 0 {
		t.Errorf("FDs %d and %d", r.q.FD(), second.FD())
	}
	closed := false
	second.Close(func() { closed = true })
	r.pump("the second queue", func() bool { return closed })
	r.wantWorking()
}

func TestControlPlaneRead(t *testing.T) {
	r := newRig(t, sim.Config{}, nil)
	want := make([]byte, 200*512)
	rng := rand.New(rand.NewPCG(5, 5))
	for i := range want {
		want[i] = byte(rng.Uint32())
	}
	r.dev.Media(func(m []byte) { copy(m[10*512:], want) })
	got := make([]byte, len(want))
	if err := r.drive.Read(r.ns, 10, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("other data")
	}
	if err := r.drive.Read(r.ns, 0, got[:100]); err == nil {
		t.Error("a read of a part of a block")
	}
	if err := r.drive.Read(r.ns, 8192, got[:512]); err == nil || !strings.Contains(err.Error(), "LBA") {
		t.Errorf("a read past the end: %v", err)
	}
	// A drive that fails meanwhile ends it.
	r.dev.SetHook(onIO(nvme.OpRead, sim.Swallow))
	end := make(chan error)
	go func() { end <- r.drive.Read(r.ns, 0, got[:512]) }()
	r.pump("the drive to have it", func() bool { return r.dev.Held() == 1 })
	r.dev.SetHook(nil)
	r.dev.PCIError()
	var err error
	r.pump("the read to end", func() bool {
		select {
		case err = <-end:
			return true
		default:
			return false
		}
	})
	if err == nil {
		t.Error("no error")
	}
}

// A BAR that the kernel has taken away reads as all ones.
func TestRegistersThatAreGone(t *testing.T) {
	p, err := unix.MmapPtr(-1, 0, nil, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.MunmapPtr(p, 4096) }()
	regs := registers{p}
	if _, there := regs.status(); there {
		t.Error("it answers")
	}
	regs.setCC(0)
	if got := regs.capabilities(); got != nvme.CAP(^uint64(0)) {
		t.Errorf("CAP %#x", uint64(got))
	}
}
