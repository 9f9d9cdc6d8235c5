//go:build lab

package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What only TCP has: a wire that a dissector reads, and networks that lose and delay.

// capture writes what goes over port 4420 to a file until stop.
func capture(t *testing.T) (file string, stop func()) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "wire.pcapng")
	cmd := exec.Command("tshark", "-q", "-i", "lo", "-f", "tcp port "+Port, "-w", file, "-B", "64")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	WaitFor(t, 30*time.Second, "tshark to capture", func() error {
		select {
		case err := <-done:
			done <- err
			t.Fatalf("tshark: %v\n%s", err, out.String())
		default:
		}
		if st, err := os.Stat(file); err != nil || st.Size() == 0 {
			return fmt.Errorf("nothing in %s", file)
		}
		return nil
	})
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			_ = cmd.Process.Kill()
			<-done
		}
		if text := out.String(); strings.Contains(text, "dropped") && !strings.Contains(text, "0 packets dropped") {
			t.Logf("tshark lost packets, which reads as malformed: %s", text)
		}
	}
	t.Cleanup(stop)
	return file, stop
}

// dissect returns what a display filter finds, the named fields of it. On an emulated processor it takes long.
func dissect(t *testing.T, file, filter string, fields ...string) []string {
	t.Helper()
	args := []string{"-r", file, "-d", "tcp.port==" + Port + ",nvme-tcp", "-Y", filter, "-T", "fields", "-e", "frame.number"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	out, err := TryRun(3*time.Minute, "tshark", args...)
	if err != nil {
		t.Fatalf("tshark -Y %q: %v\n%s", filter, err, out)
	}
	var lines []string
	for _, l := range strings.Split(out, "\n") {
		if l = strings.TrimSpace(l); l != "" && l[0] >= '0' && l[0] <= '9' {
			lines = append(lines, l)
		}
	}
	return lines
}

// TestLabTCPDissector has tshark read everything from the first ICReq to the disconnect: nothing malformed, no
// digest that is wrong, and each kind of PDU was there.
func TestLabTCPDissector(t *testing.T) {
	for _, f := range []fabric{overTCP, withDigests} {
		t.Run(strings.Join(append([]string{f.transport}, f.args...), " "), func(t *testing.T) {
			CheckDmesg(t)
			StartRocet(t, f.threeNamespaces("32MiB"))
			file, stop := capture(t)
			Discover(t, f.transport, Addr0, Port)
			c := f.connect(t)
			for _, size := range []string{"512", "4k", "16k", "128k", "1M"} {
				Fio(t, FioJob{File: c.Namespace(3), RW: "randrw", BS: size, Depth: 4, Size: "1M",
					Args: []string{"--verify=crc32c", "--verify_fatal=1", "--number_ios=8"}})
			}
			Nvme(t, "id-ctrl", c.Dev())
			Nvme(t, "smart-log", c.Dev())
			c.Disconnect()
			stop()
			if bad := dissect(t, file, "_ws.malformed || (nvme-tcp && _ws.expert.severity == error)", "_ws.col.Info", "_ws.expert.message"); len(bad) != 0 {
				t.Errorf("tshark finds %d PDUs malformed:\n%s", len(bad), strings.Join(bad[:min(len(bad), 20)], "\n"))
			}
			kinds := map[string]int{}
			for _, frame := range dissect(t, file, "nvme-tcp", "nvme-tcp.type") {
				_, types, _ := strings.Cut(frame, "\t")
				for _, kind := range strings.Split(types, ",") {
					kinds[kind]++
				}
			}
			for kind, name := range map[string]string{"0": "ICReq", "1": "ICResp", "4": "CapsuleCmd", "5": "CapsuleResp",
				"6": "H2CData", "7": "C2HData", "9": "R2T"} {
				if kinds[kind] == 0 {
					t.Errorf("no %s in the capture: %v", name, kinds)
				}
			}
			if kinds["2"]+kinds["3"] != 0 {
				t.Errorf("a connection was terminated: %v", kinds)
			}
		})
	}
}

// TestLabTCPLoss has a network that loses, delays and reorders between host and target.
func TestLabTCPLoss(t *testing.T) {
	CheckDmesg(t)
	StartRocet(t, MemoryConfig("tcp", Addr0, "64MiB"))
	for _, f := range []fabric{overTCP, withDigests} {
		c := f.connect(t)
		dev := c.Namespace(1)
		Run(t, "tc", "qdisc", "replace", "dev", "lo", "root", "netem", "delay", "1ms", "1ms", "loss", "1%", "reorder", "5%", "duplicate", "1%")
		clean := func() { _, _ = TryRun(time.Minute, "tc", "qdisc", "del", "dev", "lo", "root") }
		t.Cleanup(clean)
		Fio(t, FioJob{File: dev, RW: "randrw", Depth: 16, Size: "4M", Limit: 3 * time.Minute,
			Args: []string{"--bsrange=4k-256k", "--verify=crc32c", "--verify_fatal=1"}})
		clean()
		c.Disconnect()
	}
}

// TestLabTCPQueues connects as many queues of every kind as the host makes.
func TestLabTCPQueues(t *testing.T) {
	CheckDmesg(t)
	r := StartRocet(t, MemoryConfig("tcp", Addr0, "64MiB"))
	c := overTCP.connect(t, "--nr-write-queues=2", "--nr-poll-queues=2", "--queue-size=128")
	if n := r.Metrics().Sum("rocet_tcp_connections"); n < 5 {
		t.Errorf("%v connections, want an admin queue and at least 4 for I/O", n)
	}
	Fio(t, FioJob{File: c.Namespace(1), RW: "randrw", BS: "4k", Depth: 128, Jobs: 4, Size: "4M",
		Args: []string{"--offset_increment=8M", "--verify=crc32c", "--verify_fatal=1"}})
}

// TestLabTCPDisconnects takes the connection away from under I/O, again and again.
func TestLabTCPDisconnects(t *testing.T) {
	CheckDmesg(t, "nvme", "error", "Buffer I/O")
	r := StartRocet(t, MemoryConfig("tcp", Addr0, "64MiB"))
	f := withDigests
	f.connect(t).Disconnect()
	r.Metrics() // its connection is kept
	before := r.Usage()
	for range 5 {
		c := f.connect(t)
		done := make(chan struct{})
		dev := c.Namespace(1)
		go func() {
			defer close(done)
			// It ends with an error: that is what the test does.
			_, _ = TryFio(FioJob{File: dev, RW: "randrw", Depth: 32, Jobs: 2, Size: "32M", Runtime: 20 * time.Second,
				Args: []string{"--bsrange=4k-1M"}})
		}()
		start := r.Metrics().Sum("rocet_tcp_bytes_total")
		WaitFor(t, 20*time.Second, "I/O", func() error {
			if n := r.Metrics().Sum("rocet_tcp_bytes_total") - start; n < 1<<20 {
				return fmt.Errorf("%v bytes", n)
			}
			return nil
		})
		c.Disconnect()
		<-done
	}
	steady(t, r, before)
}
