//go:build lab

package lab

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func host(i int) (nqn, id string) {
	id = fmt.Sprintf("5ca1ab1e-0000-4000-8000-%012x", i)
	return "nqn.2014-08.org.nvmexpress:uuid:" + id, id
}

// steady waits until a process holds no more than before. Memory may differ by what a Go heap breathes.
func steady(t *testing.T, r *Rocet, before Usage) {
	t.Helper()
	WaitFor(t, 20*time.Second, "rocet to give back what the hosts cost", func() error {
		now := r.Usage()
		if now.FDs > before.FDs {
			return fmt.Errorf("%d file descriptors, were %d", now.FDs, before.FDs)
		}
		if slack := uint64(16 << 20); now.RSS > before.RSS+slack {
			return fmt.Errorf("%d KiB of memory, were %d", now.RSS>>10, before.RSS>>10)
		}
		if n := r.Metrics().Sum("rocet_queues"); n != 0 {
			return fmt.Errorf("%v queues", n)
		}
		if n := r.Metrics().Sum("rocet_memory_cache_used_bytes"); n != 0 {
			return fmt.Errorf("%v bytes of buffers in use", n)
		}
		return nil
	})
}

// testCycles connects and disconnects a hundred times.
func testCycles(t *testing.T, f fabric) {
	CheckDmesg(t)
	r := StartRocet(t, MemoryConfig(f.transport, Addr0, "16MiB"))
	cycle := func() {
		c := Connect(t, ConnectOptions{Transport: f.transport, Addr: Addr0, NQN: NQN, Queues: 1, Args: f.args})
		c.Disconnect()
	}
	for range 5 { // what is made once and kept
		cycle()
	}
	WaitFor(t, 20*time.Second, "no queue", func() error {
		if n := r.Metrics().Sum("rocet_queues"); n != 0 {
			return fmt.Errorf("%v queues", n)
		}
		return nil
	})
	before := r.Usage()
	objects, err := ReadResources()
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		cycle()
	}
	steady(t, r, before)
	WaitResources(t, objects)
}

// testSixteenHosts has sixteen hosts at once do I/O over their own associations.
func testSixteenHosts(t *testing.T, f fabric) {
	CheckDmesg(t, "nvme_keep_alive_end_io error=4", "long keepalive RTT") // one that its own disconnect cancels
	r := StartRocet(t, MemoryConfig(f.transport, Addr0, "64MiB"))
	f.connect(t).Disconnect() // what is made once and kept
	objects, err := ReadResources()
	if err != nil {
		t.Fatal(err)
	}
	before := r.Usage()
	const hosts = 16
	var all []*Controller
	for i := range hosts {
		nqn, id := host(i)
		all = append(all, Connect(t, ConnectOptions{
			Transport: f.transport, Addr: Addr0, NQN: NQN, HostNQN: nqn, HostID: id, Queues: 1, Args: f.args,
		}))
	}
	ids := map[string]bool{}
	for _, c := range all {
		c.WaitState(20*time.Second, "live")
		ids[c.CNTLID()] = true
	}
	if len(ids) != hosts {
		t.Errorf("%d controllers have %d different identifiers", hosts, len(ids))
	}
	useAllPaths(t, NQN) // to the kernel they are paths to one subsystem
	Fio(t, FioJob{File: all[0].Namespace(1), RW: "randwrite", Depth: 32, Jobs: 2, Size: "4M",
		Args: []string{"--bsrange=4k-64k", "--offset_increment=32M", "--verify=crc32c", "--verify_fatal=1"}})
	m := r.Metrics()
	for i := range hosts {
		nqn, _ := host(i)
		if n := m.Sum("rocet_connections", "host", nqn); n != 2 {
			t.Errorf("host %d has %v connections, want an admin and an I/O queue", i, n)
		}
	}
	for _, c := range all {
		c.Disconnect()
	}
	// A second completion queue was needed, and is kept.
	steady(t, r, Usage{FDs: before.FDs + 1, RSS: before.RSS + 8<<20})
	WaitResources(t, objects)
}

// testVanish takes the network away from under a host that writes. Another host must not notice, and what the first one
// cost comes back; when its network is there again, it goes on.
func testVanish(t *testing.T, f fabric) {
	CheckDmesg(t, "nvme", "failed", "rxe9")
	NewRoCE(t, "d9", "rxe9", "10.9.9.1")
	config := fmt.Sprintf(`memory: {size: 64MiB}
metrics: {listen: %q}
listeners:
  - {transport: %[2]s, address: %[3]s, port: 4420}
  - {transport: %[2]s, address: 10.9.9.1, port: 4420}
subsystems:
  - nqn: %[4]s
    allow_any_host: true
    namespaces: [{nsid: 1, backend: {type: memory, size: 64MiB}, block_size: 4096}]
  - nqn: %[4]s-other
    allow_any_host: true
    namespaces: [{nsid: 1, backend: {type: memory, size: 64MiB}, block_size: 4096}]
`, MetricsAddr, f.transport, Addr0, NQN)
	r := StartRocet(t, config)
	lostNQN, lostID := host(1)
	// Soft-RoCE's queue pair for management (GSI) stays in the error state when its link goes: nobody connects over the
	// device any more, and a reconnect of the host would never end. So there it does not try.
	patience := "--ctrl-loss-tmo=120"
	if f.transport == "rdma" {
		patience = "--ctrl-loss-tmo=0"
	}
	lost := Connect(t, ConnectOptions{Transport: f.transport, Addr: "10.9.9.1", NQN: NQN + "-other", HostNQN: lostNQN, HostID: lostID, Queues: 1,
		Args: append([]string{"--keep-alive-tmo=2", "--reconnect-delay=1", patience}, f.args...)})
	stays := f.connect(t)
	lostDev, staysDev := lost.Namespace(1), stays.Namespace(1)

	type outcome struct {
		who string
		err error
	}
	done := make(chan outcome, 2)
	job := func(who, dev string, d time.Duration) {
		_, err := TryFio(FioJob{File: dev, RW: "randwrite", BS: "16k", Depth: 8, Size: "32M", Runtime: d, Limit: 90 * time.Second,
			Args: []string{"--verify=crc32c", "--verify_fatal=1", "--verify_backlog=64"}})
		done <- outcome{who, err}
	}
	go job("the host that vanished", lostDev, 12*time.Second)
	go job("the other host", staysDev, 12*time.Second)
	WaitFor(t, 20*time.Second, "writes over both", func() error {
		m := r.Metrics()
		for _, nqn := range []string{NQN, NQN + "-other"} {
			if m.Sum("rocet_commands_total", "subsystem", nqn, "operation", "write") < 50 {
				return fmt.Errorf("none over %s", nqn)
			}
		}
		return nil
	})
	// TCP between addresses of one machine does not care about links: there the address goes.
	const address = "10.9.9.1/24"
	if f.transport == "tcp" {
		Run(t, "ip", "addr", "del", address, "dev", "d9")
	} else {
		SetLink(t, "d9", false)
	}
	WaitFor(t, 60*time.Second, "the association of the host that vanished to end", func() error {
		if n := r.Metrics().Sum("rocet_connections", "host", lostNQN); n != 0 {
			return fmt.Errorf("%v connections", n)
		}
		return nil
	})
	if f.transport == "tcp" {
		Run(t, "ip", "addr", "add", address, "dev", "d9")
		for range 2 {
			if o := <-done; o.err != nil {
				t.Errorf("%s: %v", o.who, o.err)
			}
		}
		lost.WaitState(60*time.Second, "live")
		return
	}
	SetLink(t, "d9", true)
	WaitFor(t, 60*time.Second, "the host that vanished to give up", func() error {
		if lost.Exists() {
			return fmt.Errorf("it is %s", lost.State())
		}
		return nil
	})
	for range 2 {
		if o := <-done; o.err != nil && o.who == "the other host" {
			t.Errorf("%s: %v", o.who, o.err)
		}
	}
}

// testRestart kills rocet under a host that writes, and starts it again: the host reconnects by itself, and what was
// acknowledged is there.
func testRestart(t *testing.T, f fabric) {
	testRestartOf(t, f, fmt.Sprintf("{type: file, path: %s/namespace, size: 64MiB}", t.TempDir()))
}

func testRestartOf(t *testing.T, f fabric, backend string) {
	CheckDmesg(t, "nvme", "failed")
	config := fmt.Sprintf(`memory: {size: 64MiB}
metrics: {listen: %q}
listeners: [{transport: %s, address: %s, port: 4420}]
subsystems:
  - nqn: %s
    allow_any_host: true
    namespaces: [{nsid: 1, backend: %s}]
`, MetricsAddr, f.transport, Addr0, NQN, backend)
	r := StartRocet(t, config)
	c := f.connect(t, "--reconnect-delay=1", "--ctrl-loss-tmo=120")
	dev := c.Namespace(1)
	objects, err := ReadResources()
	if err != nil {
		t.Fatal(err)
	}
	write := FioJob{File: dev, RW: "randwrite", BS: "4k", Depth: 16, Size: "16M", Limit: 4 * time.Minute,
		Args: []string{"--verify=crc32c", "--verify_fatal=1", "--do_verify=0", "--allrandrepeat=1"}}
	for _, end := range []func(){r.Kill, r.Stop} {
		done := make(chan error, 1)
		go func() { _, err := TryFio(write); done <- err }()
		WaitFor(t, 20*time.Second, "writes", func() error {
			if n := r.Metrics().Sum("rocet_commands_total", "operation", "write"); n < 100 {
				return fmt.Errorf("%v", n)
			}
			return nil
		})
		end()
		r.Start()
		c.WaitState(60*time.Second, "live")
		if err := <-done; err != nil {
			t.Fatalf("fio, over a restart: %v", err)
		}
		check := write
		check.Args = append([]string{"--verify_only=1"}, write.Args[:2]...)
		check.Args = append(check.Args, "--allrandrepeat=1")
		Fio(t, check)
	}
	WaitResources(t, objects)
	c.Disconnect()
	if log := r.Log(); strings.Contains(log, "level=ERROR") {
		t.Errorf("rocet logged errors:\n%s", log)
	}
}

// testIdle holds that a target with idle hosts sleeps.
func testIdle(t *testing.T, f fabric) {
	r := StartRocet(t, MemoryConfig(f.transport, Addr0, "16MiB"))
	f.connect(t)
	f.connect(t, "--duplicate-connect")
	turns := func() float64 { return r.Metrics().Sum("rocet_reactor_turns_total") }
	sleeps := func() float64 { return r.Metrics().Sum("rocet_reactor_sleeps_total") }
	turns0, sleeps0 := turns(), sleeps()
	const wait = 5 * time.Second
	<-time.After(wait) // what is measured is that nothing happens
	if n := sleeps() - sleeps0; n < 1 {
		t.Errorf("an idle target slept %v times in %v", n, wait)
	}
	// Polling would be some million turns; a keep-alive is a few dozen, with the spinning after it.
	if n := turns() - turns0; n > 100_000 {
		t.Errorf("an idle target made %v turns in %v", n, wait)
	}
}
