package file

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rocet/backend/backendtest"
	"rocet/cgo/uring"
	"rocet/internal/inuse"
	"rocet/nvme"
	"rocet/target"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// needUring skips where the kernel has no io_uring, or the build no cgo.
func needUring(t testing.TB) {
	t.Helper()
	r, err := uring.Open(uring.Options{Entries: 8, Completions: 8})
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EPERM) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
}

func openTest(t testing.TB, c Config) *Backend {
	t.Helper()
	c.Log = quiet
	b, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fileSubject is a fresh file for each test, changed by tune before its first use.
func fileSubject(c Config, tune func(*Backend)) backendtest.Subject {
	return backendtest.Subject{Zeroed: true, Open: func(t testing.TB, rig *backendtest.Rig) target.Backend {
		t.Helper()
		needUring(t)
		c := c
		c.Engine = NewEngine(rig.Pool, quiet)
		c.Path = filepath.Join(t.TempDir(), "namespace")
		c.Size = 32 << 20
		b := openTest(t, c)
		if tune != nil {
			tune(b)
		}
		return b
	}}
}

// newLoop attaches a loop device to a new file, or skips.
func newLoop(t testing.TB, size int64) (loop string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("attaching a loop device needs root")
	}
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, size); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", "--direct-io=on", image).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device to be had: %v: %s", err, out)
	}
	loop = strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", loop).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return loop
}

func TestConformance(t *testing.T) {
	t.Run("file of 512", func(t *testing.T) { backendtest.Run(t, fileSubject(Config{BlockSize: 512}, nil)) })
	t.Run("file of 4096", func(t *testing.T) { backendtest.Run(t, fileSubject(Config{}, nil)) })
	t.Run("buffered", func(t *testing.T) { backendtest.Run(t, fileSubject(Config{Buffered: true}, nil)) })
	t.Run("loop device", func(t *testing.T) {
		needUring(t)
		backendtest.Run(t, backendtest.Subject{Zeroed: true, Open: func(t testing.TB, rig *backendtest.Rig) target.Backend {
			return openTest(t, Config{Engine: NewEngine(rig.Pool, quiet), Path: newLoop(t, 32<<20)})
		}})
	})
	// As on a file system that can do nothing.
	t.Run("zeroes written", func(t *testing.T) {
		backendtest.Run(t, fileSubject(Config{}, func(b *Backend) { b.modes.Store(0) }))
	})
	// As on a device whose DMA is particular: everything goes through a buffer.
	t.Run("staged", func(t *testing.T) {
		backendtest.Run(t, fileSubject(Config{}, func(b *Backend) { b.alignment.address = 1<<62 - 1 }))
	})
}

func TestNothingIsAllocated(t *testing.T) {
	backendtest.CheckAllocs(t, fileSubject(Config{}, nil))
	backendtest.CheckAllocs(t, fileSubject(Config{}, func(b *Backend) { b.alignment.address = 1<<62 - 1 }))
}

func TestOpen(t *testing.T) {
	needUring(t)
	rig := backendtest.NewRig(t, 1)
	engine := NewEngine(rig.Pool, quiet)
	dir := t.TempDir()
	write := func(name string, n int) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	locked := write("locked", 8192)
	first := openTest(t, Config{Engine: engine, Path: locked})
	defer first.Close()
	for _, c := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"missing without a size", Config{Path: filepath.Join(dir, "none")}, "give it a size"},
		{"missing and read-only", Config{Path: filepath.Join(dir, "none"), Size: 4096, ReadOnly: true}, "read-only file is not made"},
		{"missing folder", Config{Path: filepath.Join(dir, "no/where"), Size: 4096}, "no such file"},
		{"impossible size", Config{Path: filepath.Join(dir, "huge"), Size: 1 << 62}, "make it"},
		{"folder", Config{Path: dir}, "neither a regular file nor a block device"},
		{"character device", Config{Path: "/dev/null"}, "neither a regular file nor a block device"},
		{"other size", Config{Path: write("other", 8192), Size: 4096}, "it has 8192 bytes, the configuration says 4096"},
		{"odd size", Config{Path: write("odd", 8192+512)}, "no whole number of blocks of 4096"},
		{"empty", Config{Path: write("empty", 0)}, "no block"},
		{"block of 1000", Config{Path: write("b", 8192), BlockSize: 1000}, "blocks of 1000 bytes"},
		{"block of 128 KiB", Config{Path: write("b", 1<<20), BlockSize: 128 << 10}, "blocks of 131072 bytes"},
		{"locked", Config{Path: locked}, "another process has locked it"},
	} {
		c.cfg.Engine = engine
		b, err := Open(c.cfg)
		if err == nil {
			b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.cfg.Path) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "huge")); err == nil {
		t.Error("a file that could not be made was left behind")
	}
	// What is empty takes the size, what exists keeps its data, and a reader may be beside another.
	b := openTest(t, Config{Engine: engine, Path: filepath.Join(dir, "empty"), Size: 1 << 20, BlockSize: 512})
	if info := b.Info(); info.Blocks != 2048 || info.BlockSize != 512 || !info.VolatileWriteCache || info.LendsReads {
		t.Errorf("info %+v", info)
	}
	q := rig.OpenQueue(t, b, 0)
	data := backendtest.Pattern(1, 4096)
	q.Write(8, data)
	if err := b.Close(); err == nil || !strings.Contains(err.Error(), "1 queues open") {
		t.Errorf("closed with a queue open: %v", err)
	}
	q.Close()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err == nil {
		t.Error("closed twice")
	}
	ro := Config{Engine: engine, Path: filepath.Join(dir, "empty"), ReadOnly: true}
	b, other := openTest(t, ro), openTest(t, ro)
	defer b.Close()
	defer other.Close()
	if !b.Info().ReadOnly {
		t.Error("not read-only")
	}
	q = rig.OpenQueue(t, b, 0)
	defer q.Close()
	if got := q.Read(1, 1); !bytes.Equal(got, data) {
		t.Error("other data after opening again")
	}
	if st, _ := q.Do(target.OpWrite, 0, 0, 1, data); st.IsOK() {
		t.Error("wrote to a read-only file")
	}
	if err := b.Resize(1); err == nil {
		t.Error("resized a read-only file")
	}
}

// TestLanesComeAndGo: the last queue of a reactor takes the ring with it.
func TestLanesComeAndGo(t *testing.T) {
	needUring(t)
	rig := backendtest.NewRig(t, 2)
	engine := NewEngine(rig.Pool, quiet)
	lanes := func() int {
		engine.mu.Lock()
		defer engine.mu.Unlock()
		return len(engine.lanes)
	}
	waitFor := func(n int) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Second); lanes() != n; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d lanes, want %d", lanes(), n)
			}
		}
	}
	for range 3 {
		var backends []*Backend
		var queues []*backendtest.Queue
		for range 3 {
			b := openTest(t, Config{Engine: engine, Path: filepath.Join(t.TempDir(), "f"), Size: 1 << 20})
			backends = append(backends, b)
			for i := range rig.Groups {
				q := rig.OpenQueue(t, b, i)
				q.Write(0, make([]byte, 4096))
				queues = append(queues, q)
			}
		}
		waitFor(2)
		for _, q := range queues {
			q.Close()
		}
		waitFor(0)
		for _, b := range backends {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestDataIsThere reads with other means what went through the backend.
func TestDataIsThere(t *testing.T) {
	needUring(t)
	rig := backendtest.NewRig(t, 1)
	path := filepath.Join(t.TempDir(), "f")
	b := openTest(t, Config{Engine: NewEngine(rig.Pool, quiet), Path: path, Size: 1 << 20})
	defer b.Close()
	q := rig.OpenQueue(t, b, 0)
	defer q.Close()
	data := backendtest.Pattern(3, 64<<10)
	q.Must(target.OpWrite, target.FUA, 16, 16, data)
	q.Must(target.OpFlush, 0, 0, 0, nil)
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 1<<20)
	copy(want[64<<10:], data)
	if !bytes.Equal(got, want) {
		t.Error("the file holds something else")
	}
	// Holes are holes.
	var before, after unix.Stat_t
	if err := unix.Stat(path, &before); err != nil {
		t.Fatal(err)
	}
	q.Must(target.OpDeallocate, 0, 0, 1, backendtest.Ranges(16, 16))
	if err := unix.Stat(path, &after); err != nil {
		t.Fatal(err)
	}
	if after.Blocks > before.Blocks-128 {
		t.Errorf("%d blocks of 512 bytes in use, %d before", after.Blocks, before.Blocks)
	}
}

// TestRegisteredBuffersAreUsed: data moves without a copy and without pinning.
func TestRegisteredBuffersAreUsed(t *testing.T) {
	needUring(t)
	rig := backendtest.NewRig(t, 1)
	b := openTest(t, Config{Engine: NewEngine(rig.Pool, quiet), Path: filepath.Join(t.TempDir(), "f"), Size: 1 << 20})
	defer b.Close()
	q := rig.OpenQueue(t, b, 0)
	defer q.Close()
	q.Write(0, make([]byte, 128<<10))
	q.Read(0, 32)
	if n := rig.Groups[0].Stats().Copied[target.CopyBounce]; n != 0 {
		t.Errorf("%d bytes were copied", n)
	}
	var l *lane
	for _, l = range b.engine.lanes {
	}
	slab := rig.Pool.BufferSlabs()[0]
	for _, c := range []struct {
		addr uintptr
		n    uint32
		slab uint32
		ok   bool
	}{
		{slab.Base, 4096, 0, true},
		{slab.Base + uintptr(slab.Size) - 4096, 4096, 0, true},
		{slab.Base + uintptr(slab.Size) - 4096, 8192, 0, false},
		{slab.Base - 4096, 4096, 0, false},
		{slab.Base + uintptr(slab.Size), 4096, 0, false},
		{slab.Base, 4096, 1, false},
		{slab.Base, 4096, 1<<32 - 1, false},
	} {
		if _, ok := l.fixed(c.addr, c.n, c.slab); ok != c.ok {
			t.Errorf("%d bytes at %#x of slab %d: registered %v", c.n, c.addr, c.slab, ok)
		}
	}
	big := &lane{arenas: []arena{{base: 0x10000, size: 3 << 30, first: 5}}}
	if i, ok := big.fixed(0x10000+2<<30, 4096, 0); !ok || i != 7 {
		t.Errorf("buffer %d, %v", i, ok)
	}
	if _, ok := big.fixed(0x10000+1<<30-2048, 4096, 0); ok {
		t.Error("a run in two buffers")
	}
}

func TestResize(t *testing.T) {
	needUring(t)
	rig := backendtest.NewRig(t, 1)
	path := filepath.Join(t.TempDir(), "f")
	b := openTest(t, Config{Engine: NewEngine(rig.Pool, quiet), Path: path, Size: 1 << 20})
	defer b.Close()
	q := rig.OpenQueue(t, b, 0)
	defer q.Close()
	events := make(chan target.Event, 10)
	b.Watch(func(e target.Event) { events <- e })
	next := func() target.Event {
		t.Helper()
		select {
		case e := <-events:
			return e
		case <-time.After(10 * time.Second):
			t.Fatal("no event")
			return 0
		}
	}
	if err := b.Resize(512); err != nil {
		t.Fatal(err)
	}
	if e := next(); e != target.EventResized || b.Info().Blocks != 512 {
		t.Errorf("event %v, %d blocks", e, b.Info().Blocks)
	}
	q.Write(511, backendtest.Pattern(1, 4096))
	// Somebody else makes it longer, and shorter.
	if err := os.Truncate(path, 4<<20+100); err != nil {
		t.Fatal(err)
	}
	if e := next(); e != target.EventResized || b.Info().Blocks != 1024 {
		t.Errorf("event %v, %d blocks", e, b.Info().Blocks)
	}
	if err := os.Truncate(path, 1<<20); err != nil {
		t.Fatal(err)
	}
	if st, _ := q.Do(target.OpRead, 0, 255, 2, nil); st.Code() != nvme.StatusLBAOutOfRange { // before it is noticed
		t.Errorf("read across the end of a file that shrank: %v", st)
	}
	if st, _ := q.Do(target.OpRead, 0, 400, 1, nil); st.Code() != nvme.StatusLBAOutOfRange {
		t.Errorf("read past the end of a file that shrank: %v", st)
	}
	if e := next(); e != target.EventResized || b.Info().Blocks != 256 {
		t.Errorf("event %v, %d blocks", e, b.Info().Blocks)
	}
	if b.Resize(0) == nil || b.Resize(1<<60) == nil {
		t.Error("resized to nothing, or to more than there can be")
	}
}

// TestLoopDevice: geometry, claims, in-use checks and a size that changes.
func TestLoopDevice(t *testing.T) {
	needUring(t)
	loop := newLoop(t, 16<<20)
	rig := backendtest.NewRig(t, 1)
	engine := NewEngine(rig.Pool, quiet)
	if _, err := Open(Config{Engine: engine, Path: loop, Size: 1 << 20}); err == nil || !strings.Contains(err.Error(), "it has 16777216 bytes") {
		t.Errorf("wrong size: %v", err)
	}
	b := openTest(t, Config{Engine: engine, Path: loop})
	if info := b.Info(); info.BlockSize != 512 || info.Bytes() != 16<<20 || !info.Ops.Has(target.OpDeallocate) {
		t.Errorf("info %+v", info)
	}
	if _, ok := b.SMART(); ok {
		t.Error("a loop device has a SMART log")
	}
	if err := b.Resize(1); err == nil {
		t.Error("resized a block device")
	}
	_, err := Open(Config{Engine: engine, Path: loop})
	var used *inuse.Error
	if !errors.As(err, &used) || !strings.Contains(err.Error(), "force: true") {
		t.Errorf("taken twice: %v", err)
	}
	events := make(chan target.Event, 10)
	b.Watch(func(e target.Event) { events <- e })
	image, err := os.ReadFile("/sys/class/block/" + filepath.Base(loop) + "/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(strings.TrimSpace(string(image)), 24<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("losetup", "--set-capacity", loop).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	select {
	case e := <-events:
		if e != target.EventResized || b.Info().Bytes() != 24<<20 {
			t.Errorf("event %v, %d bytes", e, b.Info().Bytes())
		}
	case <-time.After(10 * time.Second):
		t.Error("another size went unnoticed")
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", loop).CombinedOutput(); err != nil {
		t.Skipf("no file system to be had: %v: %s", err, out)
	}
	if _, err := Open(Config{Engine: engine, Path: loop}); !errors.As(err, &used) || !strings.Contains(err.Error(), "signature of ext") {
		t.Errorf("with a file system: %v", err)
	}
	b = openTest(t, Config{Engine: engine, Path: loop, Force: true})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestDeviceGoesAndComes has the path lead to another loop device once the first is found gone.
func TestDeviceGoesAndComes(t *testing.T) {
	needUring(t)
	first, second := newLoop(t, 16<<20), newLoop(t, 16<<20)
	path := filepath.Join(t.TempDir(), "drive")
	if err := os.Symlink(first, path); err != nil {
		t.Fatal(err)
	}
	rig := backendtest.NewRig(t, 1)
	b, err := openBackend(Config{Engine: NewEngine(rig.Pool, quiet), Path: path, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	close(b.done) // the test looks itself
	q := rig.OpenQueue(t, b, 0)
	var events []target.Event
	b.Watch(func(e target.Event) { events = append(events, e) })
	q.Write(0, backendtest.Pattern(1, 512))
	b.look()
	if len(events) != 0 {
		t.Fatalf("events %v of a device that is there", events)
	}
	b.mu.Lock()
	broken := b.file
	if b.file, err = os.Open("/dev/null"); err != nil { // the ioctl fails as on a device that was pulled
		t.Fatal(err)
	}
	b.mu.Unlock()
	broken.Close()
	b.look()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	b.look() // nothing there
	if len(events) != 1 || events[0] != target.EventGone {
		t.Fatalf("events %v, want gone", events)
	}
	if err := os.Symlink(second, path); err != nil {
		t.Fatal(err)
	}
	b.look()
	if len(events) != 2 || events[1] != target.EventBack {
		t.Fatalf("events %v, want back", events)
	}
	if got := q.Read(0, 1); !bytes.Equal(got, make([]byte, 512)) {
		t.Error("the queue still reads the old device")
	}
	q.Write(0, backendtest.Pattern(2, 512))
	got := make([]byte, 512)
	f, err := os.Open(second)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, backendtest.Pattern(2, 512)) {
		t.Errorf("the new device holds something else (%v)", err)
	}
	q.Close()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestStatusOf(t *testing.T) {
	for _, c := range []struct {
		op    target.Op
		errno syscall.Errno
		want  nvme.Status
	}{
		{target.OpRead, 0, nvme.StatusSuccess},
		{target.OpWrite, unix.ENOSPC, nvme.StatusCapacityExceeded.WithDNR()},
		{target.OpWrite, unix.EROFS, nvme.StatusNamespaceWriteProtected.WithDNR()},
		{target.OpRead, unix.ENODATA, nvme.StatusUnrecoveredRead.WithDNR()},
		{target.OpCompare, unix.ENODATA, nvme.StatusUnrecoveredRead.WithDNR()},
		{target.OpWrite, unix.ENODATA, nvme.StatusWriteFault.WithDNR()},
		{target.OpRead, unix.EILSEQ, nvme.StatusGuardCheck.WithDNR()},
		{target.OpWrite, unix.EBADE, nvme.StatusReservationConflict.WithDNR()},
		{target.OpDeallocate, unix.EOPNOTSUPP, nvme.StatusInvalidOpcode.WithDNR()},
		{target.OpDeallocate, unix.EREMOTEIO, nvme.StatusLBAOutOfRange.WithDNR()},
		{target.OpRead, unix.ENODEV, nvme.StatusNamespaceNotReady},
		{target.OpRead, unix.EAGAIN, nvme.StatusInterrupted},
		{target.OpRead, unix.ETIMEDOUT, nvme.StatusTransientTransport},
		{target.OpRead, unix.ECANCELED, nvme.StatusAbortedByRequest},
		{target.OpRead, unix.EIO, nvme.StatusInternalError},
	} {
		if got := statusOf(c.op, c.errno); got != c.want {
			t.Errorf("%v, %v: %v, want %v", c.op, c.errno, got, c.want)
		}
	}
}

// TestFileSystemFull: a sparse file on a full file system.
func TestFileSystemFull(t *testing.T) {
	needUring(t)
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("no tmpfs to be had: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	rig := backendtest.NewRig(t, 1)
	b := openTest(t, Config{Engine: NewEngine(rig.Pool, quiet), Path: filepath.Join(dir, "f"), Size: 64 << 20, Buffered: true})
	defer b.Close()
	q := rig.OpenQueue(t, b, 0)
	defer q.Close()
	var st nvme.Status
	for i := range uint64(4) {
		if st, _ = q.Do(target.OpWrite, 0, i*256, 256, make([]byte, 1<<20)); !st.IsOK() {
			break
		}
	}
	if st != nvme.StatusCapacityExceeded.WithDNR() {
		t.Errorf("status %v, want capacity exceeded", st)
	}
}

func BenchmarkBackend(b *testing.B) {
	b.Run("read4k", func(b *testing.B) { backendtest.Bench(b, fileSubject(Config{}, nil), target.OpRead, 4096, 32) })
	b.Run("buffered_read4k", func(b *testing.B) {
		backendtest.Bench(b, fileSubject(Config{Buffered: true}, nil), target.OpRead, 4096, 32)
	})
	b.Run("write4k", func(b *testing.B) { backendtest.Bench(b, fileSubject(Config{}, nil), target.OpWrite, 4096, 32) })
}
