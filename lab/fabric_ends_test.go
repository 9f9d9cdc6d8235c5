//go:build lab

package lab

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// testCounts holds that the metrics tell what hosts did: every I/O of fio is one command, and its bytes are its bytes.
func testCounts(t *testing.T, f fabric) {
	CheckDmesg(t)
	r := StartRocet(t, f.threeNamespaces("32MiB"))
	c := f.connect(t)
	for _, at := range []struct {
		nsid   int
		rw, bs string
		op     string
	}{{1, "randwrite", "4k", "write"}, {2, "randread", "16k", "read"}, {3, "randread", "512", "read"}} {
		labels := []string{"nsid", fmt.Sprint(at.nsid), "operation", at.op}
		dev := c.Namespace(at.nsid)
		settle(t, r, labels) // the kernel and its user space look for partitions when a namespace comes
		before := r.Metrics()
		done := make(chan FioResult, 1)
		go func() {
			res, err := TryFio(FioJob{File: dev, RW: at.rw, BS: at.bs, Depth: 8, Size: "32M", Runtime: 2 * time.Second,
				Args: []string{"--norandommap"}})
			if err != nil {
				t.Errorf("%v", err)
			}
			done <- res
		}()
		// A scrape while it runs shows a part of it, and no counter goes back.
		var res FioResult
		last, scrapes := before.Sum("rocet_commands_total", labels...), 0
		for running := true; running; {
			select {
			case res = <-done:
				running = false
			case <-time.After(200 * time.Millisecond):
				now := r.Metrics().Sum("rocet_commands_total", labels...)
				if now < last {
					t.Errorf("namespace %d: %v %ss, after %v", at.nsid, now, at.op, last)
				}
				last, scrapes = now, scrapes+1
			}
		}
		if scrapes == 0 {
			t.Errorf("namespace %d: fio ended before a scrape", at.nsid)
		}
		after := r.Metrics()
		did := res.Read
		if at.op == "write" {
			did = res.Write
		}
		commands := after.Sum("rocet_commands_total", labels...) - before.Sum("rocet_commands_total", labels...)
		moved := after.Sum("rocet_bytes_total", labels...) - before.Sum("rocet_bytes_total", labels...)
		timed := after.Sum("rocet_command_duration_seconds_count", labels...) - before.Sum("rocet_command_duration_seconds_count", labels...)
		// fio opens the device itself, and the kernel may read a partition table once more for that.
		extra := commands - float64(did.IOs)
		if did.IOs == 0 || extra < 0 || extra > 16 || at.op == "write" && extra != 0 {
			t.Errorf("namespace %d: rocet counted %v %ss, fio did %d", at.nsid, commands, at.op, did.IOs)
		}
		if more := moved - float64(did.Bytes); more < 0 || more > extra*128*1024 {
			t.Errorf("namespace %d: rocet counted %v bytes of %ss, fio moved %d", at.nsid, moved, at.op, did.Bytes)
		}
		if timed != commands {
			t.Errorf("namespace %d: %v latencies of %v %ss", at.nsid, timed, commands, at.op)
		}
	}
	if n := r.Metrics().Sum("rocet_command_failures_total"); n != 0 {
		t.Errorf("rocet counted %v failed commands", n)
	}
}

// settle waits until a counter of commands has stood still for half a second.
func settle(t *testing.T, r *Rocet, labels []string) {
	t.Helper()
	last, since := -1.0, time.Now()
	WaitFor(t, 20*time.Second, "no commands but fio's", func() error {
		if now := r.Metrics().Sum("rocet_commands_total", labels...); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < 500*time.Millisecond {
			return fmt.Errorf("%v commands, and more just now", last)
		}
		return nil
	})
}

// testStop ends rocet with SIGTERM while hosts are connected and idle: it says goodbye at once, and the hosts are back
// when it is.
func testStop(t *testing.T, f fabric) {
	CheckDmesg(t, "nvme", "failed")
	r := StartRocet(t, MemoryConfig(f.transport, Addr0, "16MiB"))
	var hosts []*Controller
	for i := range 3 {
		nqn, id := host(i)
		hosts = append(hosts, Connect(t, ConnectOptions{Transport: f.transport, Addr: Addr0, NQN: NQN, HostNQN: nqn, HostID: id, Queues: 1,
			Args: append([]string{"--reconnect-delay=1", "--ctrl-loss-tmo=120"}, f.args...)}))
	}
	for _, c := range hosts {
		c.WaitState(20*time.Second, "live")
	}
	start := time.Now()
	r.Stop()
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %v to end with idle hosts", took)
	}
	r.Start()
	for _, c := range hosts {
		c.WaitState(60*time.Second, "live")
	}
	Fio(t, FioJob{File: hosts[0].Namespace(1), RW: "randread", BS: "4k", Depth: 4, Size: "1M"})
	if log := r.Log(); strings.Contains(log, "level=ERROR") {
		t.Errorf("rocet logged errors:\n%s", log)
	}
}

// testContents follows a block through the commands that change or judge it: write, compare, write zeroes, deallocate.
func testContents(t *testing.T, f fabric) {
	CheckDmesg(t)
	StartRocet(t, f.threeNamespaces("16MiB"))
	c := f.connect(t)
	for _, at := range []struct{ nsid, block int }{{1, 4096}, {3, 512}} {
		dev := c.Namespace(at.nsid)
		dir := t.TempDir()
		data := bytes.Repeat([]byte("what rocet keeps"), 4*at.block/16)
		file, back := filepath.Join(dir, "data"), filepath.Join(dir, "back")
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
		size := fmt.Sprint(len(data))
		const first, blocks = "16", "3" // four blocks: the count is 0-based
		read := func(what string, want []byte) {
			t.Helper()
			Nvme(t, "read", dev, "-s", first, "-c", blocks, "-z", size, "-d", back)
			got, err := os.ReadFile(back)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("namespace %d after %s: other bytes than there should be", at.nsid, what)
			}
		}
		Nvme(t, "write", dev, "-s", first, "-c", blocks, "-z", size, "-d", file)
		read("a write", data)
		Nvme(t, "compare", dev, "-s", first, "-c", blocks, "-z", size, "-d", file)
		Nvme(t, "write-zeroes", dev, "-s", "17", "-c", "0")
		want := bytes.Clone(data)
		clear(want[at.block : 2*at.block])
		read("write zeroes", want)
		if _, err := TryRun(runTimeout, "nvme", "compare", dev, "-s", first, "-c", blocks, "-z", size, "-d", file); err == nil {
			t.Errorf("namespace %d: a compare with other data succeeded", at.nsid)
		}
		Nvme(t, "flush", dev, "-n", fmt.Sprint(at.nsid))
		Nvme(t, "dsm", dev, "-d", "-s", "18", "-b", "1")
		clear(want[2*at.block : 3*at.block])
		read("deallocate", want)

		// One block past the end.
		var ns struct{ Nsze uint64 }
		NvmeJSON(t, &ns, "id-ns", dev)
		out, err := TryRun(runTimeout, "nvme", "io-passthru", dev, "--opcode=2", "--namespace-id="+fmt.Sprint(at.nsid), "--read",
			"--data-len="+fmt.Sprint(at.block), fmt.Sprintf("--cdw10=%d", ns.Nsze))
		if err == nil || !strings.Contains(strings.ToLower(err.Error()+out), "lba out of range") {
			t.Errorf("namespace %d: a read past its end: %v %s", at.nsid, err, out)
		}
	}
}
