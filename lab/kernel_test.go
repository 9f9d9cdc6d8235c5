//go:build lab

package lab

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// The tests here prove the lab itself, against the kernel's own target.

func TestLabKernelTargetRDMA(t *testing.T) { testKernelTarget(t, "rdma") }

func TestLabKernelTargetTCP(t *testing.T) { testKernelTarget(t, "tcp") }

func testKernelTarget(t *testing.T, transport string) {
	const nqn = "nqn.2026-01.io.rocet:kernel"
	CheckDmesg(t, "failed to connect socket: -111") // provoked at the end
	CheckResources(t)
	backing := t.TempDir() + "/backing"
	if err := os.WriteFile(backing, make([]byte, 16<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	target := StartNvmet(t, NvmetConfig{NQN: nqn, Transport: transport, Addr: Addr0, Backing: []string{backing}})
	if found := Subsystems(Discover(t, transport, Addr0, Port)); !slices.Equal(found, []string{nqn}) {
		t.Errorf("discovered %q, want %q", found, nqn)
	}
	c := Connect(t, ConnectOptions{Transport: transport, Addr: Addr0, NQN: nqn})
	c.WaitState(10*time.Second, "live")
	if got := c.Namespaces(); !slices.Equal(got, []int{1}) {
		t.Errorf("namespaces %v, want 1", got)
	}
	res := Fio(t, FioJob{File: c.Namespace(1), RW: "randwrite", BS: "4k", Depth: 8, Size: "2M", Args: []string{"--verify=crc32c"}})
	if res.Write.IOs != 512 || res.Read.IOs != 512 {
		t.Errorf("fio wrote %d blocks and read %d back, want 512 each", res.Write.IOs, res.Read.IOs)
	}
	if res.Write.P50 <= 0 || res.Write.P999 < res.Write.P50 || res.Write.IOPS <= 0 {
		t.Errorf("fio's figures make no sense: %+v", res.Write)
	}
	res = Fio(t, FioJob{File: c.Generic(1), RW: "randread", BS: "4k", Depth: 8, Size: "1M"})
	if res.Read.IOs != 256 {
		t.Errorf("fio read %d blocks through the character device, want 256", res.Read.IOs)
	}
	c.Disconnect()
	target.Stop()
	if _, err := TryConnect(t, ConnectOptions{Transport: "tcp", Addr: Addr0, Port: "4499", NQN: nqn}); err == nil {
		t.Error("connected to a port where nobody listens")
	}
}

func TestLabNullBlk(t *testing.T) {
	dev := NewNullBlk(t, "labnull", 256, 4096)
	if res := Fio(t, FioJob{File: dev, RW: "randread", BS: "4k", Depth: 4, Size: "4M"}); res.Read.IOs != 1024 {
		t.Errorf("read %d blocks, want 1024", res.Read.IOs)
	}
}

func TestLabDriveUnplugAndBack(t *testing.T) {
	CheckDmesg(t)
	d := Drives(t)[0]
	if d.Driver() != "nvme" {
		t.Fatalf("%s has the driver %q, want nvme", d.Serial, d.Driver())
	}
	write := FioJob{File: d.Block(), RW: "write", BS: "64k", Size: "1M", Args: []string{"--verify=crc32c"}}
	Fio(t, write)
	d.Unplug()
	if d.Present() {
		t.Error("unplugged, and still there")
	}
	d.Plug()
	write.File = d.Block()
	write.Args = append(write.Args, "--verify_only=1")
	Fio(t, write) // its data was kept
}

func TestLabDriveThrottle(t *testing.T) {
	d := Drives(t)[1]
	job := FioJob{File: d.Block(), RW: "randread", BS: "4k", Depth: 4, Runtime: time.Second}
	fast := Fio(t, job)
	d.Throttle(50)
	slow := Fio(t, job)
	if slow.Read.IOPS > 200 || fast.Read.IOPS < 2*slow.Read.IOPS {
		t.Errorf("%.0f I/Os a second throttled to 50, %.0f without", slow.Read.IOPS, fast.Read.IOPS)
	}
	d.Throttle(0)
	if again := Fio(t, job); again.Read.IOPS < 2*slow.Read.IOPS {
		t.Errorf("%.0f I/Os a second after the throttle's end, %.0f before", again.Read.IOPS, fast.Read.IOPS)
	}
}

func TestLabMonitor(t *testing.T) {
	m := NewMonitor(t)
	if got := m.Human("info version"); strings.TrimSpace(got) == "" {
		t.Error("the monitor has no version")
	}
	if _, err := m.TryExecute("no-such-command", nil); err == nil || !strings.Contains(err.Error(), "CommandNotFound") {
		t.Errorf("a command that is none: %v", err)
	}
	if out := Run(t, "qmon", "info", "status"); !strings.Contains(out, "running") {
		t.Errorf("qmon info status: %q", out)
	}
}

// TestLabDmesgSees proves that the check is not blind.
func TestLabDmesgSees(t *testing.T) {
	d := MarkDmesg(t)
	WriteFile(t, "/dev/kmsg", "<6>lab: all is well\n")
	WriteFile(t, "/dev/kmsg", "<4>lab: a warning\n")
	WriteFile(t, "/dev/kmsg", "<6>lab: BUG: quietly\n")
	WaitFor(t, 5*time.Second, "three lines", func() error {
		if len(d.Matching("^lab: ")) != 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if bad := badLines(d.Lines(), nil); !slices.Contains(bad, "lab: a warning") || !slices.Contains(bad, "lab: BUG: quietly") {
		t.Errorf("did not notice them: %q", bad)
	}
	if slices.Contains(badLines(d.Lines(), nil), "lab: all is well") {
		t.Error("complained about a harmless line")
	}
}

func TestLabLink(t *testing.T) {
	CheckDmesg(t)
	NewRoCE(t, "d9", "rxe9", "10.9.9.1")
	state := func() string { return ReadFile(t, "/sys/class/infiniband/rxe9/ports/1/state") }
	waitState := func(want string) {
		t.Helper()
		WaitFor(t, 10*time.Second, "rxe9 to be "+want, func() error {
			if s := state(); !strings.Contains(s, want) {
				return errors.New(s)
			}
			return nil
		})
	}
	waitState("ACTIVE")
	SetLink(t, "d9", false)
	waitState("DOWN")
	SetLink(t, "d9", true)
	waitState("ACTIVE")
}
