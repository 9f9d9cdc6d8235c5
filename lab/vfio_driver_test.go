//go:build lab

package lab

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	drive "rocet/backend/nvme"
	"rocet/nvme"
	"rocet/nvme/pcie"
	"rocet/reactor"
	"rocet/target"
)

// What IOMMU faults look like in the kernel's log: none of these tests may leave one.
const iommuFault = `DMAR.*fault|DMAR:.*\[DMA|vfio.*fault|pasid.*fault`

func checkNoFaults(t *testing.T) {
	t.Helper()
	mark := MarkDmesg(t)
	t.Cleanup(func() {
		if lines := mark.Matching(iommuFault); len(lines) > 0 {
			t.Errorf("IOMMU faults:\n%s", strings.Join(lines, "\n"))
		}
	})
}

// TestLabVFIODriver: what the kernel's driver wrote Rocet's reads, and the other way round, byte for byte; and the drive
// is as the driver says.
func TestLabVFIODriver(t *testing.T) {
	CheckDmesg(t)
	checkNoFaults(t)
	d := Drives(t)[0]
	d.wipe(t)
	const at = 32 << 20
	sizes := []int{512, 4096, 7 << 10, 64 << 10, 512<<10 + 512, 1 << 20}
	before := noise(1, 3<<20)
	kernelWrite(t, d.Block(), at, before)
	bindVFIO(t, d)
	for _, mode := range []reactor.Mode{reactor.Adaptive, reactor.Busy} {
		t.Run(mode.String(), func(t *testing.T) {
			r := startVFIORig(t, mode, 1, nil)
			b, err := r.manager.Open(drive.Config{PCI: d.Address})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			info := b.Info()
			if info.Serial != d.Serial || info.Bytes() != 8<<30 || info.BlockSize != 512 || !info.VolatileWriteCache ||
				!info.Ops.Has(target.OpWriteZeroes) || !info.Ops.Has(target.OpCompare) || !info.Ops.Has(target.OpDeallocate) {
				t.Errorf("info %+v", info)
			}
			if log, ok := b.SMART(); !ok || log.Temperature < 250 || log.Temperature > 400 {
				t.Errorf("SMART %+v, %v", log, ok)
			}
			q := r.open(b, 0)
			defer q.close()
			for off := 0; off < len(before); off += 1 << 20 {
				if !bytes.Equal(q.read(uint64(at+off)/512, 1<<20), before[off:off+1<<20]) {
					t.Fatalf("what the kernel wrote at %d reads as something else", at+off)
				}
			}
			for i, n := range sizes {
				lba := uint64(64<<20)/512 + uint64(i)*4096 + 3
				data := noise(uint64(n), n)
				q.write(lba, data)
				if !bytes.Equal(q.read(lba, n), data) {
					t.Fatalf("%d bytes at block %d read back as something else", n, lba)
				}
				q.must(target.OpCompare, lba, uint32(n)/512, data)
				data[0] ^= 1
				if st, _ := q.do(target.OpCompare, lba, uint32(n)/512, data); st.Code() != nvme.StatusCompareFailure {
					t.Errorf("compare with other data: %v", st)
				}
			}
			q.must(target.OpWriteZeroes, 1<<20, 4096, nil)
			if out := q.read(1<<20, 1<<20); !bytes.Equal(out, make([]byte, 1<<20)) {
				t.Error("zeroed blocks are not zero")
			}
			var ranges [2 * nvme.DSMRangeSize]byte
			(*nvme.DSMRange)(ranges[:]).SetSLBA(2 << 20)
			(*nvme.DSMRange)(ranges[:]).SetNLB(2048)
			(*nvme.DSMRange)(ranges[16:]).SetSLBA(3 << 20)
			(*nvme.DSMRange)(ranges[16:]).SetNLB(2048)
			q.must(target.OpDeallocate, 0, 2, ranges[:])
			if info.Ops.Has(target.OpVerify) {
				q.must(target.OpVerify, 0, 1024, nil)
			}
			if st, _ := q.do(target.OpRead, info.Blocks-1, 8, nil); st.Code() != nvme.StatusLBAOutOfRange {
				t.Errorf("a read past the end: %v", st)
			}
			l := q.load(16)
			time.Sleep(time.Second)
			if counts := l.end(); counts[nvme.StatusSuccess] < 50 || len(counts) != 1 {
				t.Errorf("a second of load: %v", counts)
			}
			q.must(target.OpFlush, 0, 0, nil)
			if mode == reactor.Adaptive {
				checkSleeps(t, r)
			}
		})
	}
	Run(t, vfioBind, "kernel", d.Address)
	for i, n := range sizes {
		off := int64(64<<20) + (int64(i)*4096+3)*512
		if !bytes.Equal(kernelRead(t, d.Block(), off, n), noise(uint64(n), n)) {
			t.Errorf("%d bytes at %d: the kernel reads something else", n, off)
		}
	}
}

// checkSleeps: an adaptive reactor with a drive and no work sleeps, and wakes for the drive's interrupt.
func checkSleeps(t *testing.T, r *vfioRig) {
	t.Helper()
	stats := func() (s reactor.Stats) {
		r.group.Reactors()[0].Call(func() { s = r.group.Reactors()[0].Stats() })
		return s
	}
	time.Sleep(100 * time.Millisecond)
	before := stats()
	time.Sleep(time.Second)
	after := stats()
	if turns := after.Turns - before.Turns; turns > 2000 {
		t.Errorf("an idle reactor made %d turns in a second", turns)
	}
}

// TestLabVFIOTwoDrivesFourReactors: both drives on each of four reactors at once.
func TestLabVFIOTwoDrivesFourReactors(t *testing.T) {
	CheckDmesg(t)
	checkNoFaults(t)
	drives := Drives(t)
	for _, d := range drives {
		d.wipe(t)
		bindVFIO(t, d)
	}
	r := startVFIORig(t, reactor.Adaptive, 4, nil)
	var loads []*vfioLoad
	var queues []*vfioQueue
	for _, d := range drives {
		b, err := r.manager.Open(drive.Config{Serial: d.Serial})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		for k := range 4 {
			q := r.open(b, k)
			defer q.close()
			queues = append(queues, q)
		}
	}
	started := time.Now()
	for _, q := range queues {
		loads = append(loads, q.load(2))
	}
	time.Sleep(3 * time.Second)
	for i, l := range loads {
		if counts := l.end(); len(counts) != 1 || counts[nvme.StatusSuccess] < 10 {
			t.Errorf("queue %d: %v", i, counts)
		}
	}
	t.Logf("8 queues for %v", time.Since(started))
}

// TestLabVFIOUnplug: a drive is pulled under load and comes back; what was under way ends, nothing hangs, and the load
// goes on when the drive is bound again.
func TestLabVFIOUnplug(t *testing.T) {
	CheckDmesg(t, `pciehp`)
	checkNoFaults(t)
	drives := Drives(t)
	d, other := drives[0], drives[1]
	for _, d := range drives {
		d.wipe(t)
		bindVFIO(t, d)
	}
	r := startVFIORig(t, reactor.Adaptive, 1, nil)
	b, err := r.manager.Open(drive.Config{PCI: d.Address})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	b2, err := r.manager.Open(drive.Config{PCI: other.Address})
	if err != nil {
		t.Fatal(err)
	}
	defer b2.Close()
	events := make(chan target.Event, 16)
	b.Watch(func(e target.Event) { events <- e })
	q, q2 := r.open(b, 0), r.open(b2, 0)
	defer q.close()
	defer q2.close()
	load, load2 := q.load(8), q2.load(2)
	for round := range 2 {
		before := load.seen(nvme.StatusSuccess)
		WaitFor(t, 20*time.Second, "load", func() error {
			if n := load.seen(nvme.StatusSuccess); n < before+20 {
				return fmt.Errorf("%d rounds", n-before)
			}
			return nil
		})
		d.Unplug()
		wantEvent(t, events, target.EventGone)
		WaitFor(t, 10*time.Second, "errors", func() error {
			if load.seen(pcie.StatusGone) == 0 {
				return fmt.Errorf("none")
			}
			return nil
		})
		d.Plug()
		Run(t, vfioBind, "bind", "--force", d.Address) // the kernel's driver has it again
		wantEvent(t, events, target.EventBack)
		t.Logf("round %d: %v", round, r.manager.Drives())
	}
	after := load.seen(nvme.StatusSuccess)
	WaitFor(t, 20*time.Second, "load after the return", func() error {
		if n := load.seen(nvme.StatusSuccess); n < after+20 {
			return fmt.Errorf("%d rounds", n-after)
		}
		return nil
	})
	if counts := load2.end(); len(counts) != 1 {
		t.Errorf("the other drive was affected: %v", counts)
	}
	counts := load.end()
	for st := range counts {
		if st != nvme.StatusSuccess && st != pcie.StatusGone && st != pcie.StatusReset {
			t.Errorf("%d operations ended with %v", counts[st], st)
		}
	}
	t.Logf("%v", counts)
}

func wantEvent(t *testing.T, events chan target.Event, want target.Event) {
	t.Helper()
	for {
		select {
		case e := <-events:
			if e == want {
				return
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("no event %v in 30 s", want)
		}
	}
}

// TestLabVFIOStall: a drive whose backend stands still. Commands time out, are aborted, the controller is reset; all of
// it within its bounds, and the drive serves again when the backend does.
func TestLabVFIOStall(t *testing.T) {
	CheckDmesg(t)
	checkNoFaults(t)
	drives := Drives(t)
	d, other := drives[0], drives[1]
	for _, d := range drives {
		d.wipe(t)
		bindVFIO(t, d)
	}
	r := startVFIORig(t, reactor.Adaptive, 1, func(o *drive.Options) {
		o.Timeout, o.AbortTimeout, o.Hold = time.Second, time.Second, 10*time.Second
	})
	b, err := r.manager.Open(drive.Config{PCI: d.Address})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	b2, err := r.manager.Open(drive.Config{PCI: other.Address})
	if err != nil {
		t.Fatal(err)
	}
	defer b2.Close()
	q, q2 := r.open(b, 0), r.open(b2, 0)
	defer q.close()
	defer q2.close()
	q.write(0, noise(5, 4096))
	d.Throttle(1)
	other2 := q2.load(2)
	var calls []*vfioCall
	started := time.Now()
	for i := range 10 {
		calls = append(calls, q.start(target.OpRead, uint64(i)*8, 8, nil))
	}
	statuses := make(map[nvme.Status]int)
	for _, c := range calls {
		select {
		case <-c.done:
			statuses[c.st]++
		case <-time.After(40 * time.Second):
			t.Fatalf("a command hangs; so far %v, %+v", statuses, r.manager.Drives())
		}
	}
	// Stopping the emulated controller lets what it has come to its end: then the answers are good ones.
	t.Logf("10 commands of a stalled drive ended after %v: %v; %+v", time.Since(started), statuses, r.manager.Drives())
	if statuses[pcie.StatusReset]+statuses[nvme.StatusSuccess] != 10 {
		t.Errorf("statuses %v", statuses)
	}
	if c := r.manager.Drives()[0].Counters; c.Aborts == 0 || c.Resets == 0 || c.Removals != 0 {
		t.Errorf("counters %+v", c)
	}
	if took := time.Since(started); took > 25*time.Second {
		t.Errorf("it took %v", took)
	}
	d.Throttle(0)
	WaitFor(t, 30*time.Second, "the drive to serve again", func() error {
		if st, _ := q.do(target.OpRead, 0, 8, nil); !st.IsOK() {
			return fmt.Errorf("%v", st)
		}
		return nil
	})
	if !bytes.Equal(q.read(0, 4096), noise(5, 4096)) {
		t.Error("other data after the stall")
	}
	if counts := other2.end(); len(counts) != 1 {
		t.Errorf("the other drive was affected: %v", counts)
	}
}

var vfioChildren = map[string]func(args []string) error{
	"writer": vfioWriter,
	"reader": vfioReader,
}

// vfioWriter writes and flushes blocks one after the other, and prints the number of each when it is flushed.
func vfioWriter(args []string) error {
	r, err := newVFIORig(childT{}, reactor.Adaptive, 1, nil)
	if err != nil {
		return err
	}
	b, err := r.manager.Open(drive.Config{PCI: args[0], Force: true})
	if err != nil {
		return err
	}
	q := r.open(b, 0)
	for i := uint64(0); ; i++ {
		q.write(4096+i*8, noise(i, 4096))
		q.must(target.OpFlush, 0, 0, nil)
		fmt.Println(i)
	}
}

// TestLabVFIOKill: kill -9 in the middle of writing loses nothing that was flushed, and leaves the drive to the next who
// opens it; the kernel reads the same.
func TestLabVFIOKill(t *testing.T) {
	CheckDmesg(t)
	checkNoFaults(t)
	d := Drives(t)[0]
	d.wipe(t)
	bindVFIO(t, d)
	last := -1
	for range 2 {
		cmd := vfioChild("writer", d.Address)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		last = -1
		for last < 100 && lines.Scan() {
			if last, err = strconv.Atoi(lines.Text()); err != nil {
				t.Fatalf("the writer says %q", lines.Text())
			}
		}
		if last < 100 {
			t.Fatalf("the writer ended early: %v", cmd.Wait())
		}
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it had printed
			last, _ = strconv.Atoi(lines.Text())
		}
		_ = cmd.Wait()
	}
	Run(t, vfioBind, "kernel", d.Address)
	for i := range last + 1 {
		if !bytes.Equal(kernelRead(t, d.Block(), (4096+int64(i)*8)*512, 4096), noise(uint64(i), 4096)) {
			t.Fatalf("block %d was flushed and is not there", i)
		}
	}
	t.Logf("%d flushed blocks are there", last+1)
}
