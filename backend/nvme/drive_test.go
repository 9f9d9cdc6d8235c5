package drive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rocet/backend/backendtest"
	"rocet/memory"
	"rocet/nvme"
	"rocet/nvme/pcie"
	"rocet/nvme/pcie/sim"
	"rocet/nvme/vfio"
	"rocet/target"
)

// simBus has simulated drives.
type simBus struct {
	space  *sim.Space
	drives []*sim.Controller
	closed bool
}

func newSimBus(t testing.TB, cfgs ...sim.Config) *simBus {
	b := &simBus{space: sim.NewSpace()}
	for i, c := range cfgs {
		if c.Address == "" {
			c.Address = fmt.Sprintf("0000:0%d:00.0", i+1)
		}
		if c.Serial == "" {
			c.Serial = fmt.Sprintf("SIM%d", i+1)
		}
		dev := sim.New(b.space, c)
		dev.Run()
		t.Cleanup(dev.Stop)
		b.drives = append(b.drives, dev)
	}
	return b
}

func (b *simBus) open(address string) (pcie.Function, error) {
	for _, d := range b.drives {
		if d.Address() == address {
			f, err := d.Open()
			if err != nil {
				return nil, err
			}
			return f, nil
		}
	}
	return nil, vfio.ErrNotFound
}

func (b *simBus) candidates() (out []string, err error) {
	for _, d := range b.drives {
		out = append(out, d.Address())
	}
	return out, nil
}

func (b *simBus) table() *vfio.Table            { return b.space.Table() }
func (b *simBus) registrant() memory.Registrant { return b.space }
func (b *simBus) explainSerial(serial string) error {
	if serial == "KERNEL" {
		return &vfio.DriverError{Address: "0000:09:00.0", Driver: "nvme"}
	}
	return nil
}

func (b *simBus) close() error {
	b.closed = true
	return nil
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func newManager(t testing.TB, rig *backendtest.Rig, b *simBus) *Manager {
	t.Helper()
	m, err := NewManager(Options{Pool: rig.Pool, Reactors: len(rig.Groups), Depth: 16, Log: quiet, bus: b})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if n := b.space.Faults(); n != 0 {
			t.Errorf("%d IOMMU faults", n)
		}
	})
	return m
}

func mustOpen(t testing.TB, m *Manager, c Config) *Backend {
	t.Helper()
	b, err := m.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func subject(cfg sim.Config) backendtest.Subject {
	cfg.Blocks = 16 << 20 >> cfg.BlockShift
	return backendtest.Subject{
		Zeroed: true,
		Seams:  []uint64{64 << 10, 128 << 10},
		Open: func(t testing.TB, rig *backendtest.Rig) target.Backend {
			t.Helper()
			return mustOpen(t, newManager(t, rig, newSimBus(t, cfg)), Config{PCI: "01:00.0"})
		},
	}
}

func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  sim.Config
	}{
		{"512, PRP, boundary", sim.Config{BlockShift: 9, MDTS: 4, NOIOB: 128}},
		{"4096, SGL, shadow, interrupts", sim.Config{BlockShift: 12, SGLS: nvme.SGLSSupported, Shadow: true, Vectors: 8}},
		{"512, limits, no cache", sim.Config{BlockShift: 9, MDTS: 5, NoCache: true, Vectors: 2,
			Limits: nvme.NVMIdentifyController{WZSL: 3, VSL: 2, DMRL: 2, DMRSL: 64, DMSL: 100}}},
	} {
		t.Run(c.name, func(t *testing.T) { backendtest.Run(t, subject(c.cfg)) })
	}
}

func TestInfo(t *testing.T) {
	ctrl := &nvme.IdentifyController{ONCS: nvme.ONCSCompare | nvme.ONCSWriteZeroes, AWUN: 7, AWUPF: 0}
	nvme.PutASCII(ctrl.SN[:], "S1")
	nvme.PutASCII(ctrl.MN[:], "M1")
	id := &nvme.IdentifyNamespace{NSZE: 1000, NOIOB: 256, DLFEAT: 1, NSATTR: nvme.NSATTRWriteProtected, NGUID: nvme.NGUID{1}, EUI64: nvme.EUI64{2}}
	id.LBAF[0] = nvme.LBAFormat{LBADS: 12}
	got := describe(ctrl, id, 128<<10, true)
	want := target.Info{Geometry: target.Geometry{BlockSize: 4096, Blocks: 1000}, ReadOnly: true, VolatileWriteCache: true,
		Ops: target.Ops(target.OpCompare, target.OpWriteZeroes), Atomic: target.AtomicUnits{Normal: 8, PowerFail: 1},
		OptimalIOBoundary: 256, ReadsZeroesAfterDeallocate: true, Model: "M1", Serial: "S1", NGUID: nvme.NGUID{1}, EUI64: nvme.EUI64{2}}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	id.NSFEAT = nvme.NSFEATAtomicUnits | nvme.NSFEATOptimalUnits
	id.NAWUN, id.NAWUPF, id.NABSN, id.NABSPF, id.NABO = 63, 3, 15, 0, 2
	id.NPWG, id.NPWA, id.NPDG, id.NPDA, id.NOWS = 3, 4, 5, 6, 7
	want.Atomic = target.AtomicUnits{Normal: 32, PowerFail: 4, Boundary: 16, BoundaryOffset: 2} // 128 KiB of 4 KiB: more is split
	want.WriteGranularity, want.WriteAlignment, want.DeallocGranularity, want.DeallocAlignment, want.OptimalWriteSize = 4, 5, 6, 7, 8
	if got := describe(ctrl, id, 128<<10, true); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestOpenBySerialAndAddress(t *testing.T) {
	rig := backendtest.NewRig(t, 1)
	bus := newSimBus(t, sim.Config{}, sim.Config{}, sim.Config{})
	m := newManager(t, rig, bus)
	second := mustOpen(t, m, Config{Serial: "SIM2"})
	third := mustOpen(t, m, Config{PCI: "03:00.0"})
	if second.Info().Serial != "SIM2" || third.Info().Serial != "SIM3" {
		t.Errorf("serial numbers %s and %s", second.Info().Serial, third.Info().Serial)
	}
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "either"},
		{Config{PCI: "01:00.0", Serial: "SIM1"}, "either"},
		{Config{PCI: "1:2"}, "PCI address"},
		{Config{PCI: "07:00.0"}, "no such PCI function"},
		{Config{Serial: "SIM2"}, "served already"},
		{Config{PCI: "0000:02:00.0"}, "served already"},
		{Config{Serial: "SIM2", NSID: 3}, "not active"},
		{Config{Serial: "NONE"}, "none of the 3 drives"},
		{Config{Serial: "KERNEL"}, "bound to the driver nvme"},
	} {
		if b, err := m.Open(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v; want %q", c.cfg, err, c.want)
			if b != nil {
				b.Close()
			}
		}
	}
	// What was opened only for its serial number, or in vain, is closed again.
	drives := m.Drives()
	slices.SortFunc(drives, func(a, b Status) int { return strings.Compare(a.Address, b.Address) })
	if len(drives) != 2 || drives[0].Serial != "SIM2" || drives[1].Address != "0000:03:00.0" || drives[0].State != pcie.Live {
		t.Errorf("drives %+v", drives)
	}
	if err := m.Close(); err == nil {
		t.Error("closed with drives open")
	}
	if err := errors.Join(second.Close(), third.Close(), second.Close()); err != nil {
		t.Error(err)
	}
	if len(m.Drives()) != 0 || !bus.drives[1].Quiet() {
		t.Error("a drive is left open")
	}
	if _, err := second.OpenQueue(rig.Groups[0]); err == nil {
		t.Error("a queue of a closed namespace")
	}
}

// A drive that carries somebody's data is refused, unless it is forced.
func TestContentIsLookedAt(t *testing.T) {
	rig := backendtest.NewRig(t, 1)
	bus := newSimBus(t, sim.Config{BlockShift: 12, Blocks: 4096})
	m := newManager(t, rig, bus)
	bus.drives[0].Media(func(b []byte) { copy(b[512+24:], "LVM2 001") })
	_, err := m.Open(Config{PCI: "01:00.0"})
	var content *ContentError
	if !errors.As(err, &content) || !strings.Contains(err.Error(), "LVM") || !strings.Contains(err.Error(), "force: true") {
		t.Errorf("%v", err)
	}
	if len(m.Drives()) != 0 {
		t.Error("the refused drive is still open")
	}
	b := mustOpen(t, m, Config{PCI: "01:00.0", Force: true})
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	bus.drives[0].Media(func(b []byte) {
		clear(b)
		copy(b[len(b)-4096:], "EFI PART")
	})
	if _, err := m.Open(Config{PCI: "01:00.0"}); err == nil || !strings.Contains(err.Error(), "GPT") {
		t.Errorf("a backup partition table in the last block: %v", err)
	}
}

// The target hears of what happens to the drive, and operations end or wait meanwhile.
func TestRecovery(t *testing.T) {
	rig := backendtest.NewRig(t, 2)
	bus := newSimBus(t, sim.Config{Vectors: 8})
	m := newManager(t, rig, bus)
	b := mustOpen(t, m, Config{PCI: "01:00.0"})
	dev := bus.drives[0]
	var mu sync.Mutex
	var events []target.Event
	b.Watch(func(e target.Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	})
	heard := func(e target.Event) {
		t.Helper()
		for range 2000 {
			mu.Lock()
			found := slices.Contains(events, e)
			mu.Unlock()
			if found {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Fatalf("no event %v", e)
	}
	q0, q1 := rig.OpenQueue(t, b, 0), rig.OpenQueue(t, b, 1)
	data := backendtest.Pattern(1, 4096)
	q0.Write(8, data)

	dev.Warn(nvme.SMARTSpareLow)
	heard(target.EventHealth)
	if log, ok := b.SMART(); !ok || log.CriticalWarning != nvme.SMARTSpareLow {
		t.Errorf("SMART %+v, %v", log, ok)
	}
	dev.Resize(10000)
	heard(target.EventResized)
	if n := b.Info().Blocks; n != 10000 {
		t.Errorf("%d blocks after the resize", n)
	}

	// A reset under load on both reactors: what was under way ends once, what comes is served.
	dev.SetHook(func(qid uint16, cmd *nvme.Command) sim.Verdict {
		if qid != 0 && cmd.Opcode() == nvme.OpRead {
			return sim.Swallow
		}
		return sim.Execute
	})
	var calls []*backendtest.Call
	for i := range 40 { // more than the queues have room for
		for _, q := range []*backendtest.Queue{q0, q1} {
			calls = append(calls, q.Start(target.OpRead, 0, uint64(i), 8, nil, backendtest.Whole))
		}
	}
	for dev.Held() < 30 {
		time.Sleep(time.Millisecond)
	}
	dev.SetHook(nil)
	dev.PCIError()
	reset, served := 0, 0
	for _, c := range calls {
		switch st, _ := c.Wait(); st {
		case pcie.StatusReset:
			reset++
		case nvme.StatusSuccess:
			served++
		default:
			t.Errorf("status %v", st)
		}
	}
	if s := m.Drives()[0].Queues; len(s) != 2 || s[0].Ended != 15 || s[1].Ended != 15 || s[1].Reactor != 1 {
		t.Errorf("queues %+v", s)
	}
	if reset != 30 || served != 50 {
		t.Errorf("%d were ended by the reset, %d served after it", reset, served)
	}

	dev.Remove()
	heard(target.EventGone)
	if st, _ := q1.Do(target.OpRead, 0, 0, 8, nil); st != pcie.StatusGone {
		t.Errorf("a read of a drive that is gone: %v", st)
	}
	if _, ok := b.SMART(); ok {
		t.Error("SMART of a drive that is gone")
	}
	if s := m.Drives(); s[0].State != pcie.Gone || s[0].Counters.Removals != 1 {
		t.Errorf("status %+v", s)
	}
	dev.Insert()
	heard(target.EventBack)
	if got := q1.Read(8, 8); !bytes.Equal(got, data) {
		t.Error("the drive came back with other data")
	}
	q0.Close()
	q1.Close()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// A drive that is meant by its serial number is found in another slot.
func TestReturnInAnotherSlot(t *testing.T) {
	rig := backendtest.NewRig(t, 1)
	bus := newSimBus(t, sim.Config{}, sim.Config{Serial: "ELSE"})
	m := newManager(t, rig, bus)
	b := mustOpen(t, m, Config{Serial: "SIM1"})
	q := rig.OpenQueue(t, b, 0)
	bus.drives[0].Remove()
	bus.drives[1].Reconfigure(func(c *sim.Config) { c.Serial = "SIM1" })
	for range 2000 {
		if s := m.Drives(); s[0].Address == "0000:02:00.0" && s[0].State == pcie.Live {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	data := backendtest.Pattern(1, 512)
	q.Write(8, data)
	bus.drives[1].Media(func(b []byte) {
		if !bytes.Equal(b[8*512:9*512], data) {
			t.Error("the data went elsewhere")
		}
	})
	q.Close()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// A drive whose queues are used up says what to do.
func TestTooManyReactors(t *testing.T) {
	rig := backendtest.NewRig(t, 2)
	m := newManager(t, rig, newSimBus(t, sim.Config{Queues: 1}))
	b := mustOpen(t, m, Config{PCI: "01:00.0"})
	q := rig.OpenQueue(t, b, 0)
	if _, err := b.OpenQueue(rig.Groups[1]); err == nil || !strings.Contains(err.Error(), "fewer reactors") {
		t.Errorf("%v", err)
	}
	if err := b.Close(); err == nil {
		t.Error("closed with a queue open")
	}
	q.Close()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
