//go:build cgo && linux

package uring

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"rocet/memory"
)

// openRing makes an enabled ring on the test's thread, or skips where the kernel has none.
func openRing(t testing.TB, o Options, prepare func(*Ring) error) *Ring {
	t.Helper()
	runtime.LockOSThread()
	r, err := Open(o)
	if errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EPERM) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	if prepare != nil {
		if err := prepare(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Enable(); err != nil {
		t.Fatal(err)
	}
	return r
}

// collect enters until n completions are there.
func collect(t testing.TB, r *Ring, n int) map[uint64]int32 {
	t.Helper()
	got := map[uint64]int32{}
	for deadline := time.Now().Add(10 * time.Second); len(got) < n; {
		if time.Now().After(deadline) {
			t.Fatalf("%d completions of %d", len(got), n)
		}
		cqes, err := r.Enter()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cqes {
			if _, twice := got[c.UserData]; twice {
				t.Fatalf("%d completed twice", c.UserData)
			}
			got[c.UserData] = c.Res
		}
		if len(cqes) == 0 {
			time.Sleep(100 * time.Microsecond)
		}
	}
	return got
}

func TestFullRing(t *testing.T) {
	r := openRing(t, Options{Entries: 8, Completions: 1024}, nil)
	id := uint64(0)
	for range 100 {
		n := 0
		for s := r.Next(); s != nil; s = r.Next() {
			s.Reset(OpNop, id)
			id++
			n++
		}
		if n != 8 || r.Made() != 8 {
			t.Fatalf("%d entries, %d made, in a ring of 8", n, r.Made())
		}
		for user, res := range collect(t, r, n) {
			if res != 0 || user < id-8 || user >= id {
				t.Fatalf("no-op %d of %d to %d: %d", user, id-8, id, res)
			}
		}
		if r.Made() != 0 || r.Pending() {
			t.Fatalf("%d made, pending %v, after everything was reaped", r.Made(), r.Pending())
		}
	}
	// More completions than one Enter returns.
	for range 600 / 8 {
		for s := r.Next(); s != nil; s = r.Next() {
			s.Reset(OpNop, id)
			id++
		}
		if _, err := r.Enter(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadsAndWrites(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size = 64 << 10
	buf := memory.OffHeap(size)
	defer memory.FreeOffHeap(buf, size)
	b := unsafe.Slice((*byte)(buf), size)
	iov := (*Buffer)(memory.OffHeap(4096))
	defer memory.FreeOffHeap(unsafe.Pointer(iov), 4096)
	r := openRing(t, Options{Entries: 8, Completions: 16}, func(r *Ring) error {
		if err := r.RegisterBuffers([]Buffer{{uintptr(buf), size}}); err != nil {
			return err
		}
		return r.RegisterFiles(4)
	})
	if err := r.SetFile(2, int(f.Fd())); err != nil {
		t.Fatal(err)
	}
	do := func(s SQE) int32 {
		t.Helper()
		s.UserData = 42
		*r.Next() = s
		return collect(t, r, 1)[42]
	}
	for i := range b {
		b[i] = byte(i * 7)
	}
	want := bytes.Clone(b)
	addr := uint64(uintptr(buf))
	if got := do(SQE{Opcode: OpWriteFixed, Flags: FixedFile, FD: 2, Off: 4096, Addr: addr, Len: size, OpFlags: RWFDsync}); got != size {
		t.Fatalf("write: %d", got)
	}
	clear(b)
	*iov = Buffer{uintptr(buf) + 4096, 8192}
	if got := do(SQE{Opcode: OpReadv, FD: int32(f.Fd()), Off: 8192, Addr: uint64(uintptr(unsafe.Pointer(iov))), Len: 1}); got != 8192 || !bytes.Equal(b[4096:12288], want[4096:12288]) {
		t.Fatalf("readv: %d", got)
	}
	if got := do(SQE{Opcode: OpFsync, Flags: FixedFile, FD: 2, OpFlags: FsyncDatasync}); got != 0 {
		t.Errorf("fdatasync: %d", got)
	}
	const punch = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	if got := do(SQE{Opcode: OpFallocate, Flags: FixedFile, FD: 2, Off: 4096, Addr: 8192, Len: punch}); got != 0 {
		t.Errorf("punch a hole: %d", got)
	}
	clear(want[:8192])
	if got := do(SQE{Opcode: OpReadFixed, Flags: FixedFile, FD: 2, Off: 4096, Addr: addr, Len: size}); got != size || !bytes.Equal(b, want) {
		t.Errorf("read: %d", got)
	}
	if got := do(SQE{Opcode: OpRead, FD: int32(f.Fd()), Off: 1 << 30, Addr: addr, Len: 512}); got != 0 {
		t.Errorf("read past the end: %d", got)
	}
	if err := r.SetFile(2, -1); err != nil {
		t.Fatal(err)
	}
	if got := do(SQE{Opcode: OpReadFixed, Flags: FixedFile, FD: 2, Addr: addr, Len: 512}); got != -int32(unix.EBADF) {
		t.Errorf("read of an empty slot: %d", got)
	}
	if err := r.SetFile(9, 0); err == nil {
		t.Error("slot 9 of 4")
	}
}

// TestDescriptorWakes: epoll sees a completion that comes later, also when the kernel needs the thread to run it.
func TestDescriptorWakes(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	buf := memory.OffHeap(4096)
	defer memory.FreeOffHeap(buf, 4096)
	r := openRing(t, Options{Entries: 8, Completions: 16}, nil)
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(epoll)
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, r.FD(), &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		t.Fatal(err)
	}
	var events [4]unix.EpollEvent
	for round := range 20 {
		*r.Next() = SQE{Opcode: OpRead, FD: int32(pipe[0]), Off: ^uint64(0), Addr: uint64(uintptr(buf)), Len: 1, UserData: 5}
		if cqes, err := r.Enter(); err != nil || len(cqes) != 0 {
			t.Fatalf("%d completions, %v", len(cqes), err)
		}
		if !r.Arm() {
			t.Fatal("pending before anything happened")
		}
		if n, _ := unix.EpollWait(epoll, events[:], 0); n != 0 || r.Pending() {
			t.Fatalf("round %d: %d events, pending %v, before anything happened", round, n, r.Pending())
		}
		go func() {
			time.Sleep(time.Millisecond)
			_, _ = unix.Write(pipe[1], []byte{9})
		}()
		if n, err := unix.EpollWait(epoll, events[:], 5000); n != 1 {
			t.Fatalf("round %d: %d events, %v", round, n, err)
		}
		if !r.Pending() || r.Arm() {
			t.Fatal("readable and not pending")
		}
		r.Disarm()
		if n, _ := unix.EpollWait(epoll, events[:], 0); n != 0 {
			t.Fatal("readable after Disarm")
		}
		if got := collect(t, r, 1); got[5] != 1 {
			t.Fatalf("read: %v", got)
		}
		// Not armed, it stays quiet: no-ops cost no signal.
		r.Next().Reset(OpNop, 6)
		collect(t, r, 1)
		if n, _ := unix.EpollWait(epoll, events[:], 0); n != 0 {
			t.Fatal("readable without Arm")
		}
	}
}

func TestOpenErrors(t *testing.T) {
	if r, err := Open(Options{}); err == nil {
		r.Close()
		t.Error("a ring of no entries")
	}
}

func TestNothingIsAllocated(t *testing.T) {
	r := openRing(t, Options{Entries: 64, Completions: 128}, nil)
	if n := testing.AllocsPerRun(100, func() {
		for range 32 {
			r.Next().Reset(OpNop, 1)
		}
		for got := 0; got < 32; {
			cqes, err := r.Enter()
			if err != nil {
				t.Fatal(err)
			}
			got += len(cqes)
		}
		r.Pending()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkNop(b *testing.B) {
	for _, batch := range []int{1, 32} {
		b.Run(map[int]string{1: "one", 32: "batch32"}[batch], func(b *testing.B) {
			r := openRing(b, Options{Entries: 64, Completions: 128}, nil)
			b.ReportAllocs()
			for i := 0; i < b.N; i += batch {
				for range batch {
					r.Next().Reset(OpNop, 1)
				}
				for got := 0; got < batch; {
					cqes, err := r.Enter()
					if err != nil {
						b.Fatal(err)
					}
					got += len(cqes)
				}
			}
		})
	}
}

func BenchmarkPending(b *testing.B) {
	r := openRing(b, Options{Entries: 64, Completions: 128}, nil)
	for b.Loop() {
		r.Pending()
	}
}
