//go:build lab

package lab

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	drive "rocet/backend/nvme"
	"rocet/nvme/vfio"
	"rocet/reactor"
	"rocet/target"
)

// vfioReader opens a drive and reads a block.
func vfioReader(args []string) error {
	r, err := newVFIORig(childT{}, reactor.Adaptive, 1, nil)
	if err != nil {
		return err
	}
	b, err := r.manager.Open(drive.Config{PCI: args[0]})
	if err != nil {
		return err
	}
	q := r.open(b, 0)
	q.write(8, noise(7, 4096))
	if !bytes.Equal(q.read(8, 4096), noise(7, 4096)) {
		return fmt.Errorf("wrong data")
	}
	q.close()
	if err := b.Close(); err != nil {
		return err
	}
	if err := r.close(); err != nil {
		return err
	}
	fmt.Println("fine, as user", os.Getuid())
	return nil
}

// TestLabVFIOUnprivileged: a user who was given the group's file and enough locked memory can drive the drive; what is
// missing is said.
func TestLabVFIOUnprivileged(t *testing.T) {
	checkNoFaults(t)
	d := Drives(t)[0]
	d.wipe(t)
	bindVFIO(t, d)
	const nobody = 65534
	run := func(memlock uint64) (string, error) {
		cmd := vfioChild("reader", d.Address)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		// The limits are inherited: this process takes them for a moment.
		var old syscall.Rlimit
		const rlimitMemlock = 8
		if err := syscall.Getrlimit(rlimitMemlock, &old); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Setrlimit(rlimitMemlock, &syscall.Rlimit{Cur: memlock, Max: memlock}); err != nil {
			t.Fatal(err)
		}
		defer syscall.Setrlimit(rlimitMemlock, &old)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	f, err := vfio.System().Function(d.Address)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := run(64 << 20); err == nil || !strings.Contains(out, "/dev/vfio/"+f.Group) || !strings.Contains(out, "permission denied") {
		t.Errorf("without the group's file: %v, %s", err, out)
	}
	Run(t, vfioBind, "bind", "--user", "nobody", d.Address)
	if out, err := run(1 << 20); err == nil || !strings.Contains(out, "limit of locked memory") || !strings.Contains(out, "LimitMEMLOCK") {
		t.Errorf("with 1 MiB of locked memory: %v, %s", err, out)
	}
	if out, err := run(64 << 20); err != nil || !strings.Contains(out, "fine, as user 65534") {
		t.Errorf("with all that it needs: %v, %s", err, out)
	}
}

// TestLabVFIORefusals: what stands in the way is said by name.
func TestLabVFIORefusals(t *testing.T) {
	checkNoFaults(t)
	d := Drives(t)[0]
	d.wipe(t)
	r := startVFIORig(t, reactor.Adaptive, 1, nil)
	refused := func(c drive.Config, want ...string) {
		t.Helper()
		b, err := r.manager.Open(c)
		if err == nil {
			b.Close()
			t.Errorf("%+v: opened, want %q", c, want)
			return
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: %v; want %q", c, err, w)
			}
		}
	}
	refused(drive.Config{PCI: d.Address}, "bound to the driver nvme", "vfio-bind bind "+d.Address)
	refused(drive.Config{Serial: d.Serial}, "bound to the driver nvme", d.Address)
	refused(drive.Config{PCI: "0000:00:00.0"}, "no NVMe drive")
	refused(drive.Config{PCI: "0000:55:00.0"}, "no such PCI function")
	bindVFIO(t, d)
	refused(drive.Config{PCI: d.Address, NSID: 7}, "namespace 7", "active are 1")

	// Another process has the group.
	group := "/dev/vfio/" + mustFunction(t, d).Group
	f, err := os.OpenFile(group, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	refused(drive.Config{PCI: d.Address}, "in use by another process", group)
	f.Close()

	// A drive with a partition table, written by whoever had it.
	b, err := r.manager.Open(drive.Config{PCI: d.Address})
	if err != nil {
		t.Fatal(err)
	}
	q := r.open(b, 0)
	gpt := make([]byte, 1024)
	copy(gpt[512:], "EFI PART")
	q.write(0, gpt)
	q.close()
	b.Close()
	refused(drive.Config{PCI: d.Address}, "partition table (GPT)", "force: true")
	if b, err = r.manager.Open(drive.Config{PCI: d.Address, Force: true}); err != nil {
		t.Errorf("forced: %v", err)
	} else {
		b.Close()
	}
}

func mustFunction(t *testing.T, d *Drive) vfio.Function {
	t.Helper()
	f, err := vfio.System().Function(d.Address)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestLabVFIOBind: the script refuses drives that belong to somebody, and gives drives back.
func TestLabVFIOBind(t *testing.T) {
	drives := Drives(t)
	d := drives[0]
	d.wipe(t)
	dev := d.Block()
	list := func() string { return Run(t, vfioBind, "list") }
	if out := list(); !strings.Contains(out, d.Address) || !strings.Contains(out, "lab0") || !strings.Contains(out, "QEMU NVMe Ctrl") {
		t.Errorf("list:\n%s", out)
	}
	refuse := func(why string) {
		t.Helper()
		out, err := TryRun(time.Minute, vfioBind, "bind", d.Address)
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("bind: %v %s; want %q", err, out, why)
		}
		if d.Driver() != "nvme" {
			t.Fatalf("the drive went to %q", d.Driver())
		}
	}
	dir := t.TempDir()
	Run(t, "mkfs.ext4", "-q", "-F", dev, "64M")
	refuse("carries the signature of ext4")
	Run(t, "mount", dev, dir)
	refuse("is mounted on " + dir)
	if out := list(); !strings.Contains(out, "is mounted on "+dir) {
		t.Errorf("list:\n%s", out)
	}
	Run(t, "umount", dir)
	d.wipe(t)
	Run(t, "mkswap", dev)
	refuse("carries the signature of swap")
	Run(t, "swapon", dev)
	refuse("is used as swap")
	Run(t, "swapoff", dev)
	d.wipe(t)
	Run(t, "bash", "-c", "echo '2048,65536,L' | sfdisk -q "+dev)
	WaitFor(t, 10*time.Second, "the partition", func() error { _, err := os.Stat("/sys/class/block/" + dev[5:] + "/" + dev[5:] + "p1"); return err })
	refuse("has the partition")
	Run(t, "wipefs", "-q", "-a", dev)
	Run(t, "blockdev", "--rereadpt", dev)
	Run(t, "pvcreate", "-q", "-y", dev)
	refuse("carries the signature of LVM2_member")
	Run(t, vfioBind, "bind", "--force", d.Address)
	if d.Driver() != "vfio-pci" {
		t.Errorf("forced, it is with %q", d.Driver())
	}
	if out := list(); !strings.Contains(out, "vfio-pci") {
		t.Errorf("list:\n%s", out)
	}
	Run(t, vfioBind, "unbind", d.Address)
	if d.Driver() != "" {
		t.Errorf("unbound, it is with %q", d.Driver())
	}
	Run(t, vfioBind, "kernel", d.Address)
	d.wipe(t)
	if out := Run(t, vfioBind, "rule", "--user", "nobody", d.Address); !strings.Contains(out, `KERNEL=="`+d.Address+`"`) {
		t.Errorf("rule: %s", out)
	}

	// A drive that Rocet has is given back when it is asked for, and taken up again.
	bindVFIO(t, d)
	r := startVFIORig(t, reactor.Adaptive, 1, nil)
	b, err := r.manager.Open(drive.Config{PCI: d.Address})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	events := make(chan target.Event, 16)
	b.Watch(func(e target.Event) { events <- e })
	q := r.open(b, 0)
	defer q.close()
	q.write(8, noise(3, 4096))
	Run(t, vfioBind, "kernel", d.Address)
	wantEvent(t, events, target.EventGone)
	if !bytes.Equal(kernelRead(t, d.Block(), 4096, 4096), noise(3, 4096)) {
		t.Error("what was written is not there")
	}
	Run(t, vfioBind, "bind", d.Address)
	wantEvent(t, events, target.EventBack)
	if !bytes.Equal(q.read(8, 4096), noise(3, 4096)) {
		t.Error("after the return it reads as something else")
	}
}
