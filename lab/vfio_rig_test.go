//go:build lab

package lab

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	drive "rocet/backend/nvme"
	"rocet/memory"
	"rocet/nvme"
	"rocet/reactor"
	"rocet/target"
)

// Tests of Rocet's own NVMe driver on the guest's drives run in this process: reactors, pool and driver, without a host.

const vfioBind = "scripts/vfio-bind"

// bindVFIO hands a drive to vfio until the test ends.
func bindVFIO(t *testing.T, d *Drive, args ...string) {
	t.Helper()
	d.Block() // the kernel's driver is through with it
	Run(t, vfioBind, append([]string{"bind"}, append(args, d.Address)...)...)
	t.Cleanup(func() {
		if d.Present() && d.Driver() != "nvme" {
			Run(t, vfioBind, "kernel", d.Address)
			d.Block()
		}
	})
}

// wipe makes a drive's beginning and end read as zeroes, through the kernel: nobody's signature is left.
func (d *Drive) wipe(t *testing.T) {
	t.Helper()
	zeroes := make([]byte, 2<<20)
	kernelWrite(t, d.Block(), 0, zeroes)
	kernelWrite(t, d.Block(), 8<<30-2<<20, zeroes)
}

// logTail collects a driver's log.
type logTail struct {
	sync.Mutex
	text bytes.Buffer
}

func (l *logTail) Write(p []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.text.Write(p)
}

func (l *logTail) String() string {
	l.Lock()
	defer l.Unlock()
	return l.text.String()
}

// vfioRig is a driver with its reactors.
type vfioRig struct {
	t       T
	log     *logTail
	pool    *memory.Pool
	group   *reactor.Group
	groups  []*target.PollGroup
	manager *drive.Manager
}

func newVFIORig(t T, mode reactor.Mode, reactors int, edit func(*drive.Options)) (*vfioRig, error) {
	r := &vfioRig{t: t, log: &logTail{}}
	log := slog.New(slog.NewTextHandler(r.log, nil))
	var err error
	if r.pool, err = memory.New(memory.Config{Size: 32 << 20, Log: log}); err != nil {
		return nil, err
	}
	if r.group, err = reactor.NewGroup(reactor.Config{Count: reactors, Cores: []int{0, 1, 0, 1}[:reactors], Mode: mode, Log: log}); err != nil {
		return nil, err
	}
	if err := r.group.Start(); err != nil {
		return nil, err
	}
	for i, re := range r.group.Reactors() {
		r.groups = append(r.groups, &target.PollGroup{Reactor: re, Mem: r.pool.NewCache(), Index: i})
	}
	o := drive.Options{Pool: r.pool, Reactors: reactors, Log: log}
	if edit != nil {
		edit(&o)
	}
	if r.manager, err = drive.NewManager(o); err != nil {
		return nil, err
	}
	return r, nil
}

// startVFIORig is newVFIORig for tests: the end of the test ends it.
func startVFIORig(t *testing.T, mode reactor.Mode, reactors int, edit func(*drive.Options)) *vfioRig {
	t.Helper()
	r, err := newVFIORig(t, mode, reactors, edit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the driver's log:\n%s", r.log)
		}
	})
	return r
}

func (r *vfioRig) close() error {
	if err := r.manager.Close(); err != nil {
		return err
	}
	for _, g := range r.groups {
		g.Reactor.Call(g.Mem.Close)
	}
	r.group.Stop()
	r.pool.Close()
	return nil
}

// vfioQueue is a namespace on one of the rig's reactors.
type vfioQueue struct {
	rig   *vfioRig
	group *target.PollGroup
	info  target.Info
	queue target.BackendQueue
}

func (r *vfioRig) open(b target.Backend, reactor int) *vfioQueue {
	r.t.Helper()
	q, err := b.OpenQueue(r.groups[reactor])
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	return &vfioQueue{rig: r, group: r.groups[reactor], info: b.Info(), queue: q}
}

func (q *vfioQueue) close() {
	done := make(chan struct{})
	q.group.Reactor.Call(func() { q.queue.Close(func() { close(done) }) })
	<-done
}

// vfioCall is an operation under way.
type vfioCall struct {
	io   target.IO
	q    *vfioQueue
	segs []memory.Segment
	room [target.MaxSegments]memory.Segment
	out  []byte
	st   nvme.Status
	done chan struct{}
}

func (c *vfioCall) IODone(_ *target.IO, st nvme.Status) {
	c.st = st
	if c.io.Op == target.OpRead {
		for _, s := range c.segs {
			c.out = append(c.out, s.Bytes()...)
		}
	}
	c.q.group.Mem.Free(c.segs)
	close(c.done)
}

func (q *vfioQueue) start(op target.Op, lba uint64, blocks uint32, data []byte) *vfioCall {
	c := &vfioCall{q: q, done: make(chan struct{})}
	c.io.Init(c)
	c.io.Op, c.io.LBA, c.io.Blocks = op, lba, blocks
	q.group.Reactor.Call(func() {
		n := len(data)
		if op == target.OpRead {
			n = int(blocks * q.info.BlockSize)
		}
		if n > 0 {
			used, ok := q.group.Mem.Alloc(c.room[:], uint32(n), memory.ClassIO)
			if !ok {
				panic("no buffer")
			}
			c.segs = c.room[:used]
			c.io.Data = c.segs
			for _, s := range c.segs {
				data = data[copy(s.Bytes(), data):]
			}
		}
		q.queue.Submit(&c.io)
	})
	return c
}

func (q *vfioQueue) do(op target.Op, lba uint64, blocks uint32, data []byte) (nvme.Status, []byte) {
	c := q.start(op, lba, blocks, data)
	<-c.done
	return c.st, c.out
}

func (q *vfioQueue) must(op target.Op, lba uint64, blocks uint32, data []byte) []byte {
	q.rig.t.Helper()
	st, out := q.do(op, lba, blocks, data)
	if !st.IsOK() {
		q.rig.t.Fatalf("%v of %d blocks at %d: %v", op, blocks, lba, st)
	}
	return out
}

func (q *vfioQueue) write(lba uint64, data []byte) {
	q.rig.t.Helper()
	q.must(target.OpWrite, lba, uint32(len(data))/q.info.BlockSize, data)
}

func (q *vfioQueue) read(lba uint64, n int) []byte {
	q.rig.t.Helper()
	return q.must(target.OpRead, lba, uint32(n)/q.info.BlockSize, nil)
}

// noise is data that depends on a seed.
func noise(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 99))
	b := make([]byte, n)
	for i := 0; i+8 <= n; i += 8 {
		v := rng.Uint64()
		for j := range 8 {
			b[i+j] = byte(v >> (8 * j))
		}
	}
	return b
}

// vfioLoad keeps operations under way until stop, one after the other in each of its goroutines.
type vfioLoad struct {
	stop   atomic.Bool
	wg     sync.WaitGroup
	mu     sync.Mutex
	counts map[nvme.Status]int
}

// load reads and writes blocks of 4 KiB: goroutine k has every kth.
func (q *vfioQueue) load(n int) *vfioLoad {
	l := &vfioLoad{counts: make(map[nvme.Status]int)}
	for k := range n {
		l.wg.Add(1)
		go func() {
			defer l.wg.Done()
			for i := uint64(0); !l.stop.Load(); i++ {
				lba := (i%64*uint64(n) + uint64(k)) * 8
				data := noise(lba, 4096)
				st, _ := q.do(target.OpWrite, lba, 8, data)
				if st.IsOK() {
					var out []byte
					if st, out = q.do(target.OpRead, lba, 8, nil); st.IsOK() && !bytes.Equal(out, data) {
						q.rig.t.Errorf("wrong data at block %d", lba)
					}
				}
				l.mu.Lock()
				l.counts[st]++
				l.mu.Unlock()
				if !st.IsOK() {
					time.Sleep(time.Millisecond)
				}
			}
		}()
	}
	return l
}

// seen returns how many rounds ended with a status so far.
func (l *vfioLoad) seen(st nvme.Status) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[st]
}

func (l *vfioLoad) end() map[nvme.Status]int {
	l.stop.Store(true)
	l.wg.Wait()
	return l.counts
}

// kernelRead reads from a drive through the kernel's driver.
func kernelRead(t *testing.T, dev string, offset int64, n int) []byte {
	t.Helper()
	f, err := os.Open(dev)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, n)
	if _, err := f.ReadAt(b, offset); err != nil {
		t.Fatal(err)
	}
	return b
}

// kernelWrite writes to a drive through the kernel's driver, and flushes.
func kernelWrite(t *testing.T, dev string, offset int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(dev, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(b, offset)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		t.Fatal(err)
	}
}

// vfioChild is this program as a child that does one of vfioChildren.
func vfioChild(name string, args ...string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "LAB_VFIO_CHILD="+name, "LAB_VFIO_ARGS="+strings.Join(args, " "))
	return cmd
}

// Before TestMain: a child need not be root, nor find the lab's ground.
func init() {
	if name := os.Getenv("LAB_VFIO_CHILD"); name != "" {
		if err := vfioChildren[name](strings.Fields(os.Getenv("LAB_VFIO_ARGS"))); err != nil {
			fmt.Println("error:", err)
			os.Exit(3)
		}
		os.Exit(0)
	}
}

// childT is the T of a child, which has no test.
type childT struct{}

func (childT) Helper()                   {}
func (childT) Name() string              { return "child" }
func (childT) Logf(f string, a ...any)   { fmt.Printf(f+"\n", a...) }
func (childT) Errorf(f string, a ...any) { fmt.Printf("error: "+f+"\n", a...) }
func (childT) Fatalf(f string, a ...any) { fmt.Printf("error: "+f+"\n", a...); os.Exit(3) }
func (childT) Skipf(f string, a ...any)  { os.Exit(0) }
func (childT) Failed() bool              { return false }
func (childT) Cleanup(func())            {}
func (childT) TempDir() string           { return os.TempDir() }
