package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Drive is one of the guest's emulated NVMe drives. It is told by its serial number and place, which stay: the kernel's
// names for them (nvme0, nvme1) may be either way round.
type Drive struct {
	t       T
	Serial  string // lab0, lab1; QEMU's id too
	Address string // PCI address, 0000:01:00.0
	number  int
}

// Drives returns the two drives. When the test ends, they are plugged in and at full speed again; a test that binds them
// to other drivers binds them back itself.
func Drives(t T) [2]*Drive {
	t.Helper()
	RequireGuest(t)
	var drives [2]*Drive
	for i := range drives {
		d := &Drive{t: t, Serial: fmt.Sprintf("lab%d", i), Address: fmt.Sprintf("0000:%02x:00.0", i+1), number: i}
		if !d.Present() {
			t.Fatalf("the drive %s is not at %s", d.Serial, d.Address)
		}
		drives[i] = d
	}
	return drives
}

func (d *Drive) path(attr string) string {
	return filepath.Join("/sys/bus/pci/devices", d.Address, attr)
}

// Present tells whether the drive is plugged in.
func (d *Drive) Present() bool {
	_, err := os.Stat(d.path("vendor"))
	return err == nil
}

// Driver returns the name of the driver that has the drive; empty if none has.
func (d *Drive) Driver() string {
	target, err := os.Readlink(d.path("driver"))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// Block returns the block device of the drive's first namespace, once the kernel's driver has it.
func (d *Drive) Block() string {
	d.t.Helper()
	var dev string
	WaitFor(d.t, 20*time.Second, "the block device of "+d.Serial, func() error {
		found, _ := filepath.Glob(d.path("nvme/nvme*/nvme*n1"))
		if len(found) == 0 {
			return fmt.Errorf("its driver is %q", d.Driver())
		}
		// A drive that is multipath-capable shows its path: nvme0c0n1.
		dev = "/dev/" + pathPart.ReplaceAllString(filepath.Base(found[0]), "n")
		_, err := os.Stat(dev)
		return err
	})
	return dev
}

// Unplug removes the drive from the machine, as if it was pulled, and waits until the kernel has let go of it.
func (d *Drive) Unplug() {
	d.t.Helper()
	NewMonitor(d.t).Execute("device_del", map[string]string{"id": d.Serial})
	d.t.Cleanup(func() {
		if !d.Present() {
			d.Plug()
		}
	})
	WaitFor(d.t, 30*time.Second, d.Serial+" to go away", func() error {
		if d.Present() {
			return errors.New("still there")
		}
		return nil
	})
}

// Plug plugs the drive in again, with its data, and waits until the kernel sees it.
func (d *Drive) Plug() {
	d.t.Helper()
	m := NewMonitor(d.t)
	WaitFor(d.t, 30*time.Second, "the machine to plug "+d.Serial+" in", func() error {
		// It refuses as long as the device that was there before is not quite gone.
		_, err := m.TryExecute("device_add", map[string]any{"driver": "nvme", "id": d.Serial,
			"bus": fmt.Sprintf("port%d", d.number), "drive": fmt.Sprintf("drive%d", d.number), "serial": d.Serial, "max_ioqpairs": 8})
		return err
	})
	WaitFor(d.t, 30*time.Second, d.Serial+" to appear", func() error {
		if !d.Present() {
			return errors.New("not there")
		}
		return nil
	})
}

// Throttle limits the drive to so many I/Os a second from now on; 0 is no limit. With a limit of 1 it as good as stops.
func (d *Drive) Throttle(iops int) {
	d.t.Helper()
	if iops != 0 {
		d.t.Cleanup(func() { d.throttle(0) })
	}
	d.throttle(iops)
}

func (d *Drive) throttle(iops int) {
	d.t.Helper()
	NewMonitor(d.t).Execute("qom-set", map[string]any{"path": fmt.Sprintf("/objects/throttle%d", d.number),
		"property": "limits", "value": map[string]int{"iops-total": iops}})
}
