package vfio

import (
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rocet/memory"
)

const drive0, drive1 = "0000:01:00.0", "0000:02:00.0"

// both runs a test with each of the kernel's interfaces.
func both(t *testing.T, f func(t *testing.T, m *model)) {
	for _, fd := range []bool{false, true} {
		name := map[bool]string{false: "type1", true: "iommufd"}[fd]
		t.Run(name, func(t *testing.T) {
			m := newModel(t)
			m.function(drive0, "vfio-pci", "12")
			m.function(drive1, "vfio-pci", "13")
			if fd {
				m.hasFD = true
				m.node(drive0, "vfio0")
				m.node(drive1, "vfio1")
			}
			f(t, m)
			m.wantClean()
		})
	}
}

func mustOpenDevice(t *testing.T, s *Space, address string) *Device {
	t.Helper()
	d, err := s.OpenDevice(address)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Slabs are mapped once for all devices, whenever they come, and are where the table says.
func TestSpaceLifeCycle(t *testing.T) {
	both(t, func(t *testing.T, m *model) {
		s := m.host().NewSpace()
		early := slabOf(0, 0x7f0000000000, 64<<20)
		if err := s.RegisterSlab(early); err != nil {
			t.Fatal(err)
		}
		if len(m.maps) != 0 {
			t.Error("mapped before there is a device")
		}
		if _, ok := s.Table().IOVA(early.Segment(0, 1)); ok {
			t.Error("the table has a slab that is not mapped")
		}
		d0 := mustOpenDevice(t, s, drive0)
		if len(m.maps) != 1 {
			t.Fatalf("mapped: %s", describeMaps(m.maps))
		}
		late := slabOf(5, 0x7f1000200000, 2<<20)
		if err := s.RegisterSlab(late); err != nil {
			t.Fatal(err)
		}
		if err := s.RegisterSlab(late); err == nil {
			t.Error("mapped twice")
		}
		d1 := mustOpenDevice(t, s, drive1)
		if len(m.maps) != 2 {
			t.Errorf("a second device maps again: %s", describeMaps(m.maps))
		}
		if n, pieces := s.Mapped(); n != 66<<20 || pieces != 2 {
			t.Errorf("%d bytes in %d pieces", n, pieces)
		}
		for _, slab := range []*memory.Slab{early, late} {
			a, ok := s.Table().IOVA(slab.Segment(4096+5, 10))
			if !ok || m.maps[a-4096-5] != slab.Size || a%(2<<20) != 4096+5 {
				t.Errorf("slab %d: the table says %#x; %s", slab.Index, a, describeMaps(m.maps))
			}
		}
		s.UnregisterSlab(late)
		if _, ok := s.Table().IOVA(late.Segment(0, 1)); ok || len(m.maps) != 1 {
			t.Errorf("after UnregisterSlab: %s", describeMaps(m.maps))
		}
		s.UnregisterSlab(late) // it may come from an undo
		if err := s.Close(); err == nil {
			t.Error("closed with devices open")
		}
		d0.Close()
		if len(m.maps) != 1 {
			t.Error("the second device lost its mappings")
		}
		d1.Close()
		if _, ok := s.Table().IOVA(early.Segment(0, 1)); ok {
			t.Error("mapped without a device")
		}
		// It all comes back with the next device.
		d0 = mustOpenDevice(t, s, drive0)
		if _, ok := s.Table().IOVA(early.Segment(0, 1)); !ok || len(m.maps) != 1 {
			t.Error("not mapped again")
		}
		d0.Close()
		s.UnregisterSlab(early)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := s.RegisterSlab(early); err == nil {
			t.Error("a closed space takes a slab")
		}
		if _, err := s.OpenDevice(drive0); err == nil {
			t.Error("a closed space opens a device")
		}
	})
}

func TestOpenErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		fd   bool
		set  func(m *model)
		is   any // pointer to the error's type, or an error
		want string
	}{
		{"no such function", false, func(m *model) { m.function(drive0, "vfio-pci", "12"); os.RemoveAll(m.root + "/sys") }, ErrNotFound, drive0},
		{"no IOMMU", false, func(m *model) { m.function(drive0, "vfio-pci", "") }, new(*NoIOMMUError), "intel_iommu=on"},
		{"kernel's driver", false, func(m *model) { m.function(drive0, "nvme", "12") }, new(*DriverError), "vfio-bind bind " + drive0},
		{"no driver", false, func(m *model) { m.function(drive0, "", "12") }, new(*DriverError), "bound to no driver"},
		{"group shared", false, func(m *model) {
			m.function("0000:01:00.1", "ahci", "12")
			m.function("0000:00:1c.0", "pcieport", "12")
			m.function("0000:01:00.2", "", "12")
			m.function(drive0, "vfio-pci", "12")
			m.groups["12"].viable = false
		}, new(*GroupError), "0000:01:00.1 (driver ahci):"},
		{"group not viable for reasons unknown", false, func(m *model) { m.function(drive0, "vfio-pci", "12"); m.groups["12"].viable = false }, nil, "not viable"},
		{"no vfio", false, func(m *model) { m.function(drive0, "vfio-pci", "12"); m.noVFIO = true }, ErrNoVFIO, "modprobe vfio-pci"},
		{"no type1", false, func(m *model) { m.function(drive0, "vfio-pci", "12"); m.noIOMMU = true }, nil, "vfio_iommu_type1"},
		{"group of another process", false, func(m *model) { m.function(drive0, "vfio-pci", "12"); m.busy["/dev/vfio/12"] = true }, new(*BusyError), "/dev/vfio/12"},
		{"group's file", false, func(m *model) { m.function(drive0, "vfio-pci", "12"); m.denied["/dev/vfio/12"] = true }, new(*AccessError), "/dev/vfio/12"},
		{"container's file", false, func(m *model) { m.function(drive0, "vfio-pci", "12"); m.denied["/dev/vfio/vfio"] = true }, new(*AccessError), "/dev/vfio/vfio"},
		{"set container", false, func(m *model) { m.function(drive0, "vfio-pci", "12"); m.refuse[ioctlGroupSetContainer] = unix.EINVAL }, unix.EINVAL, "cannot join"},
		{"set IOMMU", false, func(m *model) { m.function(drive0, "vfio-pci", "12"); m.refuse[ioctlSetIOMMU] = unix.EPERM }, unix.EPERM, "setting up the IOMMU"},
		{"device", false, func(m *model) { m.function(drive0, "vfio-pci", "12"); m.refuse[ioctlGroupGetDeviceFD] = unix.ENODEV }, unix.ENODEV, "hand the device out"},
		{"limits", false, func(m *model) { m.function(drive0, "vfio-pci", "12"); m.refuse[ioctlIOMMUGetInfo] = unix.EIO }, unix.EIO, "address ranges"},
		{"device info", false, func(m *model) { m.function(drive0, "vfio-pci", "12"); m.refuse[ioctlDeviceGetInfo] = unix.EIO }, unix.EIO, "about the device"},
		{"error events", false, func(m *model) { m.function(drive0, "vfio-pci", "12"); m.refuse[ioctlDeviceSetIRQs] = unix.EIO }, unix.EIO, "events of kind 3"},
		{"memlock", false, func(m *model) { m.function(drive0, "vfio-pci", "12"); m.memlockA = 32 << 20 }, new(*MemlockError), "at least 65536 KiB"},
		{"out of memory, exempt from the limit", false, func(m *model) {
			m.function(drive0, "vfio-pci", "12")
			m.memlockA, m.exempt = 1, true
			m.refuse[ioctlIOMMUMapDMA] = unix.ENOMEM
		}, unix.ENOMEM, "mapping 67108864 bytes"},
		{"too many mappings", false, func(m *model) { m.function(drive0, "vfio-pci", "12"); m.avail = 0 }, new(*LimitError), "dma_entry_limit"},
		{"too many mappings, found late", false, func(m *model) {
			m.function(drive0, "vfio-pci", "12")
			m.refuse[ioctlIOMMUMapDMA] = unix.ENOSPC
		}, new(*LimitError), "dma_entry_limit"},
		{"address space too small", false, func(m *model) { m.function(drive0, "vfio-pci", "12"); m.ranges = []Range{{0, 32<<20 - 1}} }, new(*SpaceError), "0x0-0x1ffffff"},
		{"iommufd: bound elsewhere", true, func(m *model) { m.refuse[ioctlDeviceBindIOMMUFD] = unix.EBUSY }, new(*BusyError), "vfio0"},
		{"iommufd: bind", true, func(m *model) { m.refuse[ioctlDeviceBindIOMMUFD] = unix.EINVAL }, unix.EINVAL, "binding it"},
		{"iommufd: attach", true, func(m *model) { m.refuse[ioctlDeviceAttachPT] = unix.EINVAL }, unix.EINVAL, "cannot join"},
		{"iommufd: memlock", true, func(m *model) { m.memlockA = 32 << 20 }, new(*MemlockError), "at least 65536 KiB"},
		{"iommufd: limits", true, func(m *model) { m.refuse[ioctlIOASRanges] = unix.ENOENT }, unix.ENOENT, "address ranges"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newModel(t)
			if c.fd {
				m.function(drive0, "vfio-pci", "12")
				m.hasFD = true
				m.node(drive0, "vfio0")
			}
			c.set(m)
			s := m.host().NewSpace()
			if err := s.RegisterSlab(slabOf(0, 0x7f0000000000, 64<<20)); err != nil {
				t.Fatal(err)
			}
			_, err := s.OpenDevice(drive0)
			if err == nil {
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
			switch want := c.is.(type) {
			case nil:
			case error:
				if !errors.Is(err, want) {
					t.Errorf("%v is not %v", err, want)
				}
			default:
				if !errors.As(err, want) {
					t.Errorf("%v is no %T", err, want)
				}
			}
			m.wantClean()
		})
	}
}

// A group with two drives is opened once.
func TestGroupOfTwoDrives(t *testing.T) {
	m := newModel(t)
	m.function(drive0, "vfio-pci", "12")
	m.function(drive1, "vfio-pci", "12")
	s := m.host().NewSpace()
	d0, d1 := mustOpenDevice(t, s, drive0), mustOpenDevice(t, s, drive1)
	if f := d0.Function(); len(f.Neighbours) != 1 || f.Neighbours[0].Address != drive1 || f.NUMANode != 1 || f.Vendor != 0x1b36 {
		t.Errorf("%+v", f)
	}
	d0.Close()
	slab := slabOf(1, 0x7f0000000000, 2<<20)
	if err := s.RegisterSlab(slab); err != nil {
		t.Error(err)
	}
	s.UnregisterSlab(slab)
	d1.Close()
	m.wantClean()
}

// iommufd that this process may not use, or that lacks the function's file, leaves type1.
func TestFallsBackToType1(t *testing.T) {
	for _, set := range []func(m *model){
		func(m *model) { m.denied["/dev/iommu"] = true },
		func(m *model) { m.denied["/dev/vfio/devices/vfio0"] = true },
		func(m *model) { m.hasFD = false },
		func(m *model) { m.refuse[ioctlIOASAlloc] = unix.ENOMEM },
	} {
		m := newModel(t)
		m.function(drive0, "vfio-pci", "12")
		m.hasFD = true
		m.node(drive0, "vfio0")
		set(m)
		s := m.host().NewSpace()
		d := mustOpenDevice(t, s, drive0)
		if s.io.name() != "vfio type1" {
			t.Errorf("it uses %s", s.io.name())
		}
		d.Close()
		m.wantClean()
	}
}

// A second device can make the address space narrower: what is mapped must be inside.
func TestNarrowerDevice(t *testing.T) {
	both(t, func(t *testing.T, m *model) {
		m.ranges = []Range{{1 << 40, 1 << 41}}
		s := m.host().NewSpace()
		slab := slabOf(0, 0x7f0000000000, 64<<20)
		if err := s.RegisterSlab(slab); err != nil {
			t.Fatal(err)
		}
		d := mustOpenDevice(t, s, drive0)
		m.ranges = []Range{{0, 1<<32 - 1}}
		if _, err := s.OpenDevice(drive1); err == nil || !strings.Contains(err.Error(), "open this drive first") {
			t.Errorf("%v", err)
		}
		if len(m.maps) != 1 {
			t.Errorf("the first device's mappings: %s", describeMaps(m.maps))
		}
		d.Close()
		s.UnregisterSlab(slab)
	})
}

// More ranges than fit into the first question.
func TestManyRanges(t *testing.T) {
	both(t, func(t *testing.T, m *model) {
		m.ranges = nil
		for i := range uint64(40) {
			m.ranges = append(m.ranges, Range{i << 21, i<<21 + 1<<20 - 1})
		}
		m.ranges = append(m.ranges, Range{1 << 36, 1<<36 + 64<<20 - 1})
		s := m.host().NewSpace()
		slab := slabOf(3, 0x7f0000000000, 64<<20)
		if err := s.RegisterSlab(slab); err != nil {
			t.Fatal(err)
		}
		d := mustOpenDevice(t, s, drive0)
		if a, _ := s.Table().IOVA(slab.Segment(0, 1)); a != 1<<36 {
			t.Errorf("mapped at %#x", a)
		}
		d.Close()
		s.UnregisterSlab(slab)
	})
}

// Kernels before 5.4 do not list ranges.
func TestNoCapabilities(t *testing.T) {
	m := newModel(t)
	m.function(drive0, "vfio-pci", "12")
	m.noCaps = true
	s := m.host().NewSpace()
	d := mustOpenDevice(t, s, drive0)
	slab := slabOf(0, 0x7f0000000000, 8<<30)
	if err := s.RegisterSlab(slab); err != nil {
		t.Fatal(err)
	}
	if a, _ := s.Table().IOVA(slab.Segment(0, 1)); a < 0xfef00000 || a >= 1<<39 {
		t.Errorf("mapped at %#x, over the interrupts' hole or beyond 39 bits", a)
	}
	s.UnregisterSlab(slab)
	d.Close()
	m.wantClean()
}

// Memory that the kernel may still have mapped must not go back to the system.
func TestUnmapThatFails(t *testing.T) {
	for _, fd := range []bool{false, true} {
		m := newModel(t)
		m.function(drive0, "vfio-pci", "12")
		if m.hasFD = fd; fd {
			m.node(drive0, "vfio0")
		}
		s := m.host().NewSpace()
		mustOpenDevice(t, s, drive0)
		slab := slabOf(0, 0x7f0000000000, 2<<20)
		if err := s.RegisterSlab(slab); err != nil {
			t.Fatal(err)
		}
		m.partial = true
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			s.UnregisterSlab(slab)
		}()
	}
}

func TestDrives(t *testing.T) {
	m := newModel(t)
	if drives, err := m.host().Drives(); err != nil || len(drives) != 0 {
		t.Errorf("a machine without PCI: %v, %v", drives, err)
	}
	m.function(drive1, "nvme", "13")
	m.function(drive0, "vfio-pci", "")
	m.write("sys/bus/pci/devices/"+drive1+"/nvme/nvme0/serial", "lab1                \n")
	m.write("sys/bus/pci/devices/"+drive1+"/nvme/nvme0/model", "QEMU NVMe Ctrl      \n")
	m.write("sys/bus/pci/devices/0000:03:00.0/class", "0x020000\n")
	m.write("sys/bus/pci/devices/0000:04:00.0/class", "garbage\n")
	drives, err := m.host().Drives()
	if err != nil || len(drives) != 2 {
		t.Fatalf("%+v, %v", drives, err)
	}
	if d := drives[0]; d.Address != drive0 || !d.WithVFIO() || d.Group != "" {
		t.Errorf("%+v", d)
	}
	if d := drives[1]; d.Address != drive1 || d.WithVFIO() || d.Serial != "lab1" || d.Model != "QEMU NVMe Ctrl" || d.Group != "13" {
		t.Errorf("%+v", d)
	}
}

func TestParseAddress(t *testing.T) {
	for in, want := range map[string]string{
		"0000:01:00.0": "0000:01:00.0", "01:00.0": "0000:01:00.0", "10000:E1:1f.7": "10000:e1:1f.7",
		"": "", "1:00.0": "", "01:00": "", "01:20.0": "", "01:00.8": "", "nvme0": "", "0000:01:00.0/..": "",
	} {
		got, err := ParseAddress(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

func TestParseStatus(t *testing.T) {
	locked, exempt := parseStatus("Name:\tx\nVmLck:\t    4096 kB\nCapEff:\t0000000000004000\n")
	if locked != 4<<20 || !exempt {
		t.Error(locked, exempt)
	}
	if locked, exempt := parseStatus("VmLck:\t0 kB\nCapEff:\t0000000000003fff\n"); locked != 0 || exempt {
		t.Error(locked, exempt)
	}
	if limit, _, _ := (linux{}).memlock(); limit == 0 {
		t.Error("no limit is 0 here")
	}
}

// The allocator against a list of what it gave.
func TestAddresses(t *testing.T) {
	var a addresses
	a.setRanges([]Range{{1 << 32, 1<<33 - 1}, {0, 1<<24 - 1}, {^uint64(0) - 1<<24, ^uint64(0)}})
	rng := rand.New(rand.NewPCG(1, 2))
	type piece struct{ at, size uint64 }
	var have []piece
	for i := range 3000 {
		if rng.IntN(3) == 0 && len(have) > 0 {
			k := rng.IntN(len(have))
			a.give(have[k].at)
			have = append(have[:k], have[k+1:]...)
			continue
		}
		size := uint64(4096) << rng.IntN(14)
		align := uint64(4096) << rng.IntN(10)
		vaddr := rng.Uint64() &^ 4095
		at, ok := a.take(size, vaddr, align)
		if !ok {
			continue
		}
		if (at-vaddr)%align != 0 || at < lowest || !a.contains(Range{at, at + size - 1}) {
			t.Fatalf("step %d: %#x+%#x for %#x", i, at, size, vaddr)
		}
		for _, p := range have {
			if at < p.at+p.size && p.at < at+size && p.at+p.size != 0 {
				t.Fatalf("step %d: %#x+%#x overlaps %#x+%#x", i, at, size, p.at, p.size)
			}
		}
		have = append(have, piece{at, size})
	}
	for _, p := range have {
		a.give(p.at)
	}
	if len(a.used) != 0 {
		t.Errorf("left: %v", a.used)
	}
	if _, ok := a.take(0, 0, 4096); ok {
		t.Error("nothing was taken")
	}
	if _, ok := a.take(2<<32, 0, 4096); ok {
		t.Error("more than there is was taken")
	}
}

// FuzzCaps reads capability chains as a broken kernel could give them.
func FuzzCaps(f *testing.F) {
	f.Add([]byte{1, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0}, uint32(0))
	f.Add([]byte{1, 0, 1, 0, 4, 0, 0, 0, 1, 0, 0, 0}, uint32(4))
	f.Fuzz(func(t *testing.T, b []byte, offset uint32) {
		_ = eachCap(b, offset, func(_ uint16, body []byte) error { return nil })
		_, _ = sparseAreas(b, regionInfo{size: 1 << 20, capOffset: offset})
	})
}

func BenchmarkIOVA(b *testing.B) {
	var t Table
	slab := slabOf(9, 0x7f0000000000, 2<<20)
	t.Set(slab, 1<<30)
	s := slab.Segment(4096, 512)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := t.IOVA(s); !ok {
			b.Fatal()
		}
	}
}
