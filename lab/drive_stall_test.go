//go:build lab

package lab

import (
	"fmt"
	"strconv"
	"testing"
	"time"
)

// TestLabDriveStall has three hosts on four reactors use one drive, which then as good as stops. Commands are aborted and
// the controller reset; the hosts wait or see errors, for a bounded time, hosts of another drive notice nothing, and all
// of the data is right when the drive is well again.
func TestLabDriveStall(t *testing.T) {
	CheckDmesg(t, "nvme", "I/O error", "Buffer I/O", "lost async page write")
	CheckResources(t)
	checkNoFaults(t)
	drives := Drives(t)
	for _, d := range drives {
		d.wipe(t)
		bindVFIO(t, d)
	}
	r := StartRocet(t, driveConfig(4, driver("lab0"), driver("lab1")))
	var hosts []*Controller
	for i := range 3 {
		nqn, id := host(i + 1)
		hosts = append(hosts, Connect(t, ConnectOptions{Transport: "rdma", Addr: Addr0, NQN: NQN, HostNQN: nqn, HostID: id}))
	}
	c := hosts[0]
	for _, h := range hosts {
		h.WaitState(10*time.Second, "live")
	}
	useAllPaths(t, NQN)
	stalls, well := c.Namespace(1), c.Namespace(2)
	Fio(t, FioJob{File: stalls, RW: "randrw", BS: "4k", Depth: 8, Jobs: 4, Size: "2M", Args: []string{"--offset=16M",
		"--offset_increment=4M", "--verify=crc32c", "--verify_fatal=1", "--cpus_allowed=0,1", "--cpus_allowed_policy=split"}})
	m := r.Metrics()
	for reactor := range 4 {
		if n := m.Sum("rocet_drive_commands_total", "serial", "lab0", "reactor", strconv.Itoa(reactor)); n == 0 {
			t.Errorf("reactor %d gave the drive no command", reactor)
		}
	}
	write, check := verified(stalls, "4M")
	Fio(t, write)

	drives[0].Throttle(1)
	stalled, other := make(chan error, 1), make(chan error, 1)
	started := time.Now()
	go func() {
		_, err := TryFio(FioJob{File: stalls, RW: "randread", BS: "4k", Depth: 32, Size: "4M", Runtime: 20 * time.Second,
			Args: []string{"--time_based=1"}})
		stalled <- err
	}()
	go func() {
		_, err := TryFio(FioJob{File: well, RW: "randwrite", BS: "16k", Depth: 4, Size: "16M", Runtime: 20 * time.Second,
			Args: []string{"--time_based=1", "--verify=crc32c", "--verify_fatal=1", "--verify_backlog=32"}})
		other <- err
	}()
	WaitFor(t, 40*time.Second, "the drive to be reset", func() error {
		if n := r.Metrics().Sum("rocet_drive_events_total", "serial", "lab0", "event", "reset"); n == 0 {
			return fmt.Errorf("no reset")
		}
		return nil
	})
	if err := <-other; err != nil {
		t.Errorf("the other drive's host: %v", err)
	}
	select {
	case err := <-stalled:
		t.Logf("the stalled drive's host ended after %v: %v", time.Since(started).Round(time.Second), err)
	case <-time.After(100 * time.Second):
		t.Error("the stalled drive's host hangs")
	}
	drives[0].Throttle(0)
	WaitFor(t, 40*time.Second, "the drive to serve again", func() error {
		if r.Metrics().Sum("rocet_namespace_ready", "nsid", "1") != 1 {
			return fmt.Errorf("not ready")
		}
		return nil
	})
	Fio(t, check)
	if n := copiedBytes(r); n != 0 {
		t.Errorf("the processor copied %v bytes", n)
	}
	for _, h := range hosts {
		h.Disconnect()
	}
	r.Stop()
}
