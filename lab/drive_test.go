//go:build lab

package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Drives behind Rocet's own driver, as the kernel's host has them over RDMA.

// driveConfig serves backends as namespaces 1, 2, ... of NQN.
func driveConfig(reactors int, backends ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `reactors: {count: %d}
memory: {size: 128MiB}
metrics: {listen: %q}
listeners: [{transport: rdma, address: %s, port: 4420}]
subsystems:
  - nqn: %s
    allow_any_host: true
    namespaces:
`, reactors, MetricsAddr, Addr0, NQN)
	for i, be := range backends {
		fmt.Fprintf(&b, "      - {nsid: %d, backend: %s}\n", i+1, be)
	}
	return b.String()
}

func driver(serial string) string {
	return fmt.Sprintf("{type: nvme, serial: %s, force: true}", serial)
}

// verified is a job that writes blocks with checksums; check is the same job reading them back.
func verified(file, size string) (write, check FioJob) {
	write = FioJob{File: file, RW: "write", Depth: 8, Size: size,
		Args: []string{"--bs=16k", "--verify=crc32c", "--verify_fatal=1", "--do_verify=0"}}
	check = write
	check.Args = []string{"--bs=16k", "--verify=crc32c", "--verify_fatal=1", "--verify_only=1"}
	return write, check
}

// copiedBytes is what the processor copied since the start.
func copiedBytes(r *Rocet) float64 { return r.Metrics().Sum("rocet_copied_bytes_total") }

// TestLabDriveServed has two hosts use two drives through vfio at once, and a file and a loop device beside them. The
// kernel's own driver then reads the same from the drives, and the processor has copied nothing on the way.
func TestLabDriveServed(t *testing.T) {
	CheckDmesg(t)
	CheckResources(t)
	checkNoFaults(t)
	drives := Drives(t)
	devices := func() map[string]string {
		t.Helper()
		var inv struct {
			NVMe []struct {
				PCI, Driver, Serial string
				Group               string   `json:"iommu_group"`
				InUse               []string `json:"in_use"`
			}
		}
		if err := json.Unmarshal([]byte(Run(t, Binary(), "devices", "-o", "json")), &inv); err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, d := range inv.NVMe {
			found[d.PCI] = d.Driver
			if d.Group == "" || len(d.InUse) > 0 {
				t.Errorf("%+v", d)
			}
		}
		return found
	}
	for _, d := range drives {
		d.wipe(t)
	}
	t.Logf("before:\n%s", Run(t, Binary(), "devices"))
	for _, d := range drives {
		if got := devices()[d.Address]; got != "nvme" {
			t.Errorf("%s is with %q before it is bound to vfio", d.Address, got)
		}
		bindVFIO(t, d)
		if got := devices()[d.Address]; got != "vfio-pci" {
			t.Errorf("%s is with %q after it was bound to vfio", d.Address, got)
		}
	}
	t.Logf("after:\n%s", Run(t, Binary(), "devices"))

	dir := t.TempDir()
	backing := filepath.Join(dir, "loop")
	if err := os.WriteFile(backing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(backing, 64<<20); err != nil {
		t.Fatal(err)
	}
	Run(t, "modprobe", "loop")
	loop := strings.TrimSpace(Run(t, "losetup", "-f", "--show", backing))
	t.Cleanup(func() { Run(t, "losetup", "-d", loop) })

	r := StartRocet(t, driveConfig(2, driver("lab0"), driver("lab1"),
		fmt.Sprintf("{type: file, path: %s/file, size: 64MiB}", dir), fmt.Sprintf("{type: file, path: %s}", loop)))
	nqn1, id1 := host(1)
	nqn2, id2 := host(2)
	c := Connect(t, ConnectOptions{Transport: "rdma", Addr: Addr0, NQN: NQN, HostNQN: nqn1, HostID: id1})
	c2 := Connect(t, ConnectOptions{Transport: "rdma", Addr: Addr0, NQN: NQN, HostNQN: nqn2, HostID: id2})
	c2.WaitState(10*time.Second, "live")
	useAllPaths(t, NQN)
	var checks []FioJob
	for nsid := 1; nsid <= 4; nsid++ {
		mixed := FioJob{File: c.Namespace(nsid), RW: "randrw", Depth: 16, Jobs: 2, Size: "4M",
			Args: []string{"--bsrange=512-256k", "--offset=16M", "--offset_increment=8M", "--verify=crc32c", "--verify_fatal=1"}}
		if nsid == 3 {
			mixed.Args[0] = "--bsrange=4k-256k" // a file's blocks
		}
		Fio(t, mixed)
		write, check := verified(c.Namespace(nsid), "8M")
		Fio(t, write)
		checks = append(checks, check)
		if nsid == 2 {
			Fio(t, FioJob{File: c.Namespace(1), RW: "read", BS: "512k", Depth: 8, Size: "1G", Limit: 4 * time.Minute})
			m := r.Metrics()
			if n := m.Sum("rocet_bytes_total", "operation", "read"); n < 1<<30 {
				t.Errorf("only %v bytes were read", n)
			}
			if !m.Has("rocet_copied_bytes_total", "reason", "bounce") || copiedBytes(r) != 0 {
				t.Errorf("the processor copied %v bytes", copiedBytes(r))
			}
		}
	}
	Nvme(t, "smart-log", c.Dev())
	c.Disconnect()
	c2.Disconnect()
	r.Stop()
	for i, d := range drives {
		Run(t, vfioBind, "kernel", d.Address)
		checks[i].File = d.Block()
		Fio(t, checks[i])
	}
	checks[2].File = filepath.Join(dir, "file")
	checks[3].File = loop
	Fio(t, checks[2])
	Fio(t, checks[3])
}

// useAllPaths has the kernel's multipathing use all controllers of a subsystem.
func useAllPaths(t *testing.T, nqn string) {
	t.Helper()
	names, _ := filepath.Glob("/sys/class/nvme-subsystem/*/subsysnqn")
	for _, name := range names {
		policy := filepath.Join(filepath.Dir(name), "iopolicy")
		if _, err := os.Stat(policy); err == nil && ReadFile(t, name) == nqn {
			WriteFile(t, policy, "round-robin")
		}
	}
}

// TestLabDriveStripe has a stripe over both drives, whose halves the kernel then finds where RAID-0 has them.
func TestLabDriveStripe(t *testing.T) {
	CheckDmesg(t)
	CheckResources(t)
	checkNoFaults(t)
	drives := Drives(t)
	for _, d := range drives {
		d.wipe(t)
		bindVFIO(t, d)
	}
	const unit, size = 64 << 10, 4 << 20
	r := StartRocet(t, driveConfig(1, "{type: stripe, stripe_size: 64KiB, members: ["+driver("lab0")+", "+driver("lab1")+"]}"))
	c := Connect(t, ConnectOptions{Transport: "rdma", Addr: Addr0, NQN: NQN})
	dev := c.Namespace(1)
	Fio(t, FioJob{File: dev, RW: "randrw", Depth: 16, Jobs: 2, Size: "6M",
		Args: []string{"--bsrange=512-1M", "--offset=16M", "--offset_increment=16M", "--verify=crc32c", "--verify_fatal=1"}})
	Run(t, "blkdiscard", "-o", "67108864", "-l", "1048576", dev)
	data := noise(11, size)
	kernelWrite(t, dev, 0, data)
	if n := copiedBytes(r); n != 0 {
		t.Errorf("the processor copied %v bytes", n)
	}
	c.Disconnect()
	r.Stop()
	var got bytes.Buffer
	halves := [2][]byte{}
	for i, d := range drives {
		Run(t, vfioBind, "kernel", d.Address)
		halves[i] = kernelRead(t, d.Block(), 0, size/2)
	}
	for at := 0; at < size/2; at += unit {
		got.Write(halves[0][at:][:unit])
		got.Write(halves[1][at:][:unit])
	}
	if !bytes.Equal(got.Bytes(), data) {
		t.Error("the drives hold something else")
	}
}

// TestLabDriveRestart: SIGTERM and kill -9 in the middle of writing to a drive. The host comes back by itself, and what
// was written is there.
func TestLabDriveRestart(t *testing.T) {
	CheckResources(t)
	checkNoFaults(t)
	d := Drives(t)[0]
	d.wipe(t)
	bindVFIO(t, d)
	testRestartOf(t, fabric{transport: "rdma"}, driver(d.Serial))
}

// TestLabDriveUnplug pulls a drive from under a host that writes. Another drive's host does not notice, nobody hangs, and
// when the drive is back it serves what it has.
func TestLabDriveUnplug(t *testing.T) {
	CheckDmesg(t, "pciehp", "I/O error", "Buffer I/O", "nvme", "Namespace Not Ready", "lost async page write")
	checkNoFaults(t)
	drives := Drives(t)
	for _, d := range drives {
		d.wipe(t)
		bindVFIO(t, d)
	}
	r := StartRocet(t, driveConfig(1, driver("lab0"), driver("lab1")))
	c := Connect(t, ConnectOptions{Transport: "rdma", Addr: Addr0, NQN: NQN})
	pulled, stays := c.Namespace(1), c.Namespace(2)
	write, check := verified(pulled, "8M")
	Fio(t, write)
	done := make(chan error, 2)
	load := func(dev string) {
		_, err := TryFio(FioJob{File: dev, RW: "randwrite", BS: "16k", Depth: 8, Size: "16M", Runtime: 12 * time.Second,
			Args: []string{"--offset=32M", "--verify=crc32c", "--verify_fatal=1", "--verify_backlog=32"}})
		done <- err
	}
	go load(stays)
	pulledDone := make(chan error, 1)
	go func() {
		_, err := TryFio(FioJob{File: pulled, RW: "randwrite", BS: "16k", Depth: 8, Size: "16M", Runtime: 60 * time.Second, Args: []string{"--offset=32M"}})
		pulledDone <- err
	}()
	ready := func(nsid string) float64 { return r.Metrics().Sum("rocet_namespace_ready", "nsid", nsid) }
	WaitFor(t, 20*time.Second, "writes to the drive", func() error {
		if n := r.Metrics().Sum("rocet_commands_total", "nsid", "1", "operation", "write"); n < 600 {
			return fmt.Errorf("%v", n)
		}
		return nil
	})
	drives[0].Unplug()
	WaitFor(t, 20*time.Second, "rocet to notice", func() error {
		if ready("1") != 0 {
			return fmt.Errorf("still ready")
		}
		return nil
	})
	if err := <-pulledDone; err == nil { // an error in the end, not a hang
		t.Error("the host wrote to a drive that is gone")
	}
	if err := <-done; err != nil {
		t.Errorf("the other drive's host: %v", err)
	}
	drives[0].Plug()
	Run(t, vfioBind, "bind", "--force", drives[0].Address)
	WaitFor(t, 30*time.Second, "the drive to serve again", func() error {
		if ready("1") != 1 {
			return fmt.Errorf("not ready")
		}
		return nil
	})
	Fio(t, check)
}
