package memory

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// readSysUint reads a number from a file of one line; 0 if there is none.
func readSysUint(path string) uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func readHuge(name string) uint64 {
	return readSysUint("/sys/kernel/mm/hugepages/hugepages-2048kB/" + name)
}

// availableMemory is what can be had without swapping, or, in a container, up to its limit. Touching more would call
// the kernel's OOM killer instead of giving an error.
func availableMemory() (n uint64, known bool) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	n, known = parseAvailable(string(text))
	if limit := readSysUint("/sys/fs/cgroup/memory.max"); limit != 0 {
		used := readSysUint("/sys/fs/cgroup/memory.current")
		left := limit - min(used, limit)
		if !known || left < n {
			n, known = left, true
		}
	}
	return n, known
}

func parseAvailable(meminfo string) (uint64, bool) {
	_, rest, ok := strings.Cut(meminfo, "MemAvailable:")
	if !ok {
		return 0, false
	}
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, false
	}
	kib, err := strconv.ParseUint(fields[0], 10, 54)
	return kib << 10, err == nil
}

// Memlock is the limit of memory that this process may lock, which for a process without CAP_IPC_LOCK bounds what it
// can register. It is math.MaxUint64 when there is none.
func Memlock() uint64 {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r) != nil || r.Cur == math.MaxUint64 || mayLock() {
		return math.MaxUint64
	}
	return r.Cur
}

// raiseMemlock takes what the administrator allows: the soft limit is often far below the hard one.
func raiseMemlock() {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r) == nil && r.Cur < r.Max {
		r.Cur = r.Max
		_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &r) // a sandbox may forbid it; registration then says what is missing
	}
}

// mayLock tells whether the process has CAP_IPC_LOCK, which lifts the limit.
func mayLock() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0
}

// explain adds the usual cause to an error of a registration that locks memory.
func (p *Pool) explain(err error, bytes uint64) error { return explainMemlock(err, bytes, Memlock()) }

func explainMemlock(err error, bytes, limit uint64) error {
	tooSmall := errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EPERM)
	if !tooSmall || bytes <= limit {
		return err
	}
	return fmt.Errorf("%w: the locked-memory limit is %d bytes and %d are needed: raise it (ulimit -l unlimited, LimitMEMLOCK=infinity in the systemd unit, or CAP_IPC_LOCK)", err, limit, bytes)
}
