package vfio

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"rocet/memory"
)

// explainMap tells why the kernel refuses a mapping.
func (s *Space) explainMap(slab *memory.Slab, iova uint64, err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC):
		return &LimitError{Err: err}
	case errors.Is(err, unix.ENOMEM):
		// What the process has locked already counts. Who has CAP_IPC_LOCK has no limit.
		limit, locked, exempt := s.host.kernel.memlock()
		if need := locked + slab.Size; !exempt && need > limit {
			return &MemlockError{Size: slab.Size, Need: need, Limit: limit, Err: err}
		}
	}
	return fmt.Errorf("%s: mapping %d bytes at I/O address %#x: %w", s.io.name(), slab.Size, iova, err)
}

func (linux) memlock() (limit, locked uint64, exempt bool) {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r) != nil {
		return 0, 0, true
	}
	status, _ := os.ReadFile("/proc/self/status")
	locked, exempt = parseStatus(string(status))
	return r.Cur, locked, exempt
}

// parseStatus finds the locked memory and CAP_IPC_LOCK in /proc/self/status.
func parseStatus(status string) (locked uint64, exempt bool) {
	const capIPCLock = 14
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); key {
		case "VmLck":
			kib, _ := strconv.ParseUint(strings.TrimSuffix(value, " kB"), 10, 64)
			locked = kib << 10
		case "CapEff":
			caps, _ := strconv.ParseUint(value, 16, 64)
			exempt = caps>>capIPCLock&1 != 0
		}
	}
	return locked, exempt
}
