package vfio

import (
	"os"
	"strings"
	"testing"
	"unsafe"
)

func TestDevice(t *testing.T) {
	both(t, func(t *testing.T, m *model) {
		s := m.host().NewSpace()
		d := mustOpenDevice(t, s, drive0)
		if d.Vectors() != 5 || d.ErrorFD() < 0 || d.RequestFD() < 0 || !d.CanReset() || d.Address() != drive0 {
			t.Errorf("%d vectors, descriptors %d and %d", d.Vectors(), d.ErrorFD(), d.RequestFD())
		}
		if len(m.armed[irqErr]) != 1 || m.armed[irqErr][0] != d.ErrorFD() || m.armed[irqReq][0] != d.RequestFD() {
			t.Errorf("armed %v", m.armed)
		}
		if err := d.EnableMSIX([]int{50, 51, 52}); err != nil {
			t.Error(err)
		}
		if got := m.armed[irqMSIX]; len(got) != 3 || got[2] != 52 {
			t.Errorf("vectors %v", got)
		}
		if d.EnableMSIX(nil) == nil || d.EnableMSIX(make([]int, 6)) == nil {
			t.Error("a wrong number of vectors was taken")
		}
		for _, on := range []bool{true, false, true} {
			if err := d.SetBusMaster(on); err != nil {
				t.Error(err)
			}
			if m.config[configCommand]&commandBusMaster != 0 != on {
				t.Errorf("bus mastering is not %v", on)
			}
		}
		m.stuckBit = true
		if err := d.SetBusMaster(false); err == nil {
			t.Error("bus mastering that stays on was not noticed")
		}
		m.stuckBit = false
		if err := d.Reset(); err != nil || m.resets != 1 {
			t.Errorf("%d resets, %v", m.resets, err)
		}
		// Gone from the bus: no DMA, and none to be had.
		m.config[configCommand], m.config[configCommand+1] = 0xff, 0xff
		if err := d.SetBusMaster(false); err != nil {
			t.Error(err)
		}
		if err := d.SetBusMaster(true); err == nil {
			t.Error("a function that is gone takes the bus")
		}
		d.Close()
	})
}

func TestBARs(t *testing.T) {
	page := uint64(os.Getpagesize())
	for _, c := range []struct {
		name    string
		sparse  []area
		masks   bool
		mapped  [][2]uint64
		holes   [][2]uint64
		refused string
	}{
		{"whole", nil, true, [][2]uint64{{0, 0x4000}, {0x3ffc, 4}, {5, 0}}, [][2]uint64{{0x4000, 1}, {0x3fff, 2}, {^uint64(0), 2}}, ""},
		{"table left out", []area{{0, 0x3000}}, false, [][2]uint64{{0, 0x3000}}, [][2]uint64{{0x2fff, 2}, {0x3000, 4}}, ""},
		{"hole in the middle", []area{{0, page}, {2 * page, 2 * page}}, true, [][2]uint64{{0, page}, {2 * page, 2 * page}}, [][2]uint64{{page - 1, 2}, {page, 4}}, ""},
		{"adjoining", []area{{0, page}, {page, page}, {2 * page, 0}}, false, [][2]uint64{{0, 2 * page}, {page - 4, 8}}, [][2]uint64{{0, 2*page + 1}}, ""},
		{"nothing", []area{}, false, nil, [][2]uint64{{0, 4}}, ""},
		{"past the end", []area{{0x3000, 0x2000}}, false, nil, nil, "not one of pages"},
		{"odd", []area{{4, 0x1000}}, false, nil, nil, "not one of pages"},
		{"overlapping", []area{{0, 0x2000}, {0x1000, 0x1000}}, false, nil, nil, "overlap"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newModel(t)
			m.function(drive0, "vfio-pci", "12")
			m.sparse = c.sparse
			s := m.host().NewSpace()
			d := mustOpenDevice(t, s, drive0)
			defer func() {
				d.Close()
				m.wantClean()
			}()
			b, err := d.MapBAR(0)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("%v; want %q", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if again, err := d.MapBAR(0); err != nil || again != b {
				t.Errorf("mapped again: %v", err)
			}
			for _, r := range c.mapped {
				if !b.Mapped(r[0], r[1]) {
					t.Errorf("%#x+%#x is not mapped", r[0], r[1])
				}
				if r[1] >= 4 {
					*(*uint32)(unsafe.Add(b.Base, r[0])) = 1 // it is there
				}
			}
			for _, r := range c.holes {
				if b.Mapped(r[0], r[1]) {
					t.Errorf("%#x+%#x is mapped", r[0], r[1])
				}
			}
			masks, err := d.Masks(3)
			if err != nil || len(masks) != 3 {
				t.Fatalf("masks %v, %v", masks, err)
			}
			for i, mask := range masks {
				if mask.OK() != c.masks {
					t.Errorf("mask %d: OK is %v", i, mask.OK())
				}
				mask.Set(true) // does nothing where it is not
				if c.masks && *(*uint32)(unsafe.Add(b.Base, 0x3000+16*i+12)) != 1 {
					t.Errorf("mask %d is not set", i)
				}
				mask.Set(false)
			}
		})
	}
	m := newModel(t)
	m.function(drive0, "vfio-pci", "12")
	d := mustOpenDevice(t, m.host().NewSpace(), drive0)
	for index, want := range map[int]string{-1: "no BAR", 6: "no BAR", 1: "no such BAR"} {
		if _, err := d.MapBAR(index); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("BAR %d: %v", index, err)
		}
	}
	m.regions[0].flags &^= regionMmap
	if _, err := d.MapBAR(0); err == nil || !strings.Contains(err.Error(), "does not allow") {
		t.Errorf("%v", err)
	}
	// Without MSI-X, or with a list of capabilities that runs in a circle, there are no masks.
	m.config[0x60] = 0x10
	m.config[0x61] = 0x40
	if masks, err := d.Masks(1); err != nil || masks[0].OK() {
		t.Errorf("%v, %v", masks, err)
	}
	d.Close()
}

// Kernels and functions without some kinds of events.
func TestFewerEvents(t *testing.T) {
	m := newModel(t)
	m.function(drive0, "vfio-pci", "12")
	m.irqs = map[uint32]irqInfo{irqMSIX: {}, irqReq: {flags: irqEventFD, count: 1}} // none for errors
	d := mustOpenDevice(t, m.host().NewSpace(), drive0)
	if d.Vectors() != 0 || d.ErrorFD() != -1 || d.RequestFD() < 0 {
		t.Errorf("%d vectors, descriptors %d and %d", d.Vectors(), d.ErrorFD(), d.RequestFD())
	}
	d.Close()
	m.wantClean()
}
