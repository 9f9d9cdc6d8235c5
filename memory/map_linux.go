//go:build !race

package memory

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pageKind is one way to map a slab.
type pageKind struct {
	name  string
	size  uint32
	flags int // besides the protection and MAP_ANONYMOUS
	huge  bool
}

// mapSlab maps size bytes, touches every page, and binds them to the configured nodes. With what follows it is total
// bytes: if those are not there, it does not start.
func mapSlab(size, total uint64, cfg *Config, log *slog.Logger) (*Slab, error) {
	var refused error
	if cfg.HugePages != HugeNever {
		for _, kind := range hugeKinds(size) {
			s, err := mapKind(size, total, kind, cfg)
			if err == nil {
				return s, nil
			}
			refused = fmt.Errorf("%s pages: %w", kind.name, err)
		}
		want := (size + ChunkSize - 1) / ChunkSize
		remedy := fmt.Sprintf("sysctl -w vm.nr_hugepages=%d (now %d, free %d)", want+uint64(readHuge("nr_hugepages"))-uint64(readHuge("free_hugepages")), readHuge("nr_hugepages"), readHuge("free_hugepages"))
		if cfg.HugePages == HugeRequire {
			return nil, fmt.Errorf("hugepages are required and there are not enough: %w; reserve them with %s", refused, remedy)
		}
		kind := smallKind(cfg)
		s, err := mapKind(size, total, kind, cfg)
		if err != nil {
			return nil, fmt.Errorf("%w (hugepages were tried first: %w)", err, refused)
		}
		log.Warn("no hugepages for DMA memory, using ordinary pages: registration is slower and DMA costs more",
			"bytes", size, "wanted", "hugepages", "got", kind.name, "reason", refused.Error(), "remedy", remedy)
		return s, nil
	}
	return mapKind(size, total, smallKind(cfg), cfg)
}

// hugeKinds lists the hugepages worth a try, biggest first.
func hugeKinds(size uint64) []pageKind {
	var kinds []pageKind
	const gib = 1 << 30
	if size%gib == 0 && uint64(readSysUint("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages")) >= size/gib {
		kinds = append(kinds, pageKind{"1 GiB", gib, unix.MAP_SHARED | unix.MAP_HUGETLB | 30<<unix.MAP_HUGE_SHIFT, true})
	}
	return append(kinds, pageKind{"2 MiB", ChunkSize, unix.MAP_SHARED | unix.MAP_HUGETLB | 21<<unix.MAP_HUGE_SHIFT, true})
}

// smallKind prefers a shared mapping, as hugepages are: another process may map it too. But shared memory gets
// transparent hugepages only where the administrator allowed that.
func smallKind(cfg *Config) pageKind {
	kind := pageKind{name: "private ordinary", size: uint32(os.Getpagesize()), flags: unix.MAP_PRIVATE}
	if cfg.Shared || sharedTHP() {
		kind.name, kind.flags = "shared ordinary", unix.MAP_SHARED
	}
	return kind
}

func mapKind(size, total uint64, kind pageKind, cfg *Config) (*Slab, error) {
	if !kind.huge {
		if have, known := availableMemory(); known && total > have {
			return nil, fmt.Errorf("%d bytes wanted, %d available: make it smaller or free memory", total, have)
		}
	}
	// Ordinary pages are aligned to chunks by mapping more and cutting it off, so that transparent hugepages fit.
	slack := uint64(0)
	if !kind.huge {
		slack = ChunkSize
	}
	addr, err := unix.MmapPtr(-1, 0, nil, uintptr(size+slack), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|kind.flags)
	if err != nil {
		return nil, fmt.Errorf("mmap %d bytes: %w", size, err)
	}
	base := uintptr(addr)
	if slack != 0 {
		aligned := uintptr(roundUp(uint64(base), ChunkSize))
		if before := aligned - base; before > 0 {
			err = errors.Join(err, unix.MunmapPtr(addr, before))
		}
		if after := base + uintptr(slack) - aligned; after > 0 {
			err = errors.Join(err, unix.MunmapPtr(pointerTo(aligned+uintptr(size)), after))
		}
		if err != nil {
			return nil, fmt.Errorf("align a mapping: %w", err)
		}
		base = aligned
	}
	s := &Slab{Base: base, Size: size, PageSize: kind.size, Node: -1, raw: unsafe.Slice((*byte)(pointerTo(base)), size)}
	if err := prepare(s, kind, cfg); err != nil {
		unmapSlab(s)
		return nil, err
	}
	return s, nil
}

// prepare advises, binds and touches a fresh mapping, so that no page fault is left for the hot path, and a lack of
// pages shows here as an error and not later as SIGBUS.
func prepare(s *Slab, kind pageKind, cfg *Config) error {
	if !kind.huge && cfg.HugePages != HugeNever {
		_ = unix.Madvise(s.raw, unix.MADV_HUGEPAGE) // a kernel without transparent hugepages says no; nothing is lost
	}
	_ = unix.Madvise(s.raw, unix.MADV_DONTDUMP) // keeps customers' data, and gigabytes, out of core dumps
	if err := bindToNodes(s, cfg.NUMANodes); err != nil {
		return err
	}
	switch err := unix.Madvise(s.raw, unix.MADV_POPULATE_WRITE); err {
	case nil:
		return nil
	case unix.EINVAL: // Linux before 5.14
		for off := uint64(0); off < s.Size; off += uint64(s.PageSize) {
			s.raw[off] = 0
		}
		return nil
	default:
		return fmt.Errorf("fault in %d bytes: %w", s.Size, err)
	}
}

// bindToNodes restricts the slab's pages to NUMA nodes. The pages are not there yet.
func bindToNodes(s *Slab, nodes []int) error {
	if len(nodes) == 0 {
		return nil
	}
	var mask [16]uint64
	for _, n := range nodes {
		if n < 0 || n >= len(mask)*64 {
			return fmt.Errorf("NUMA node %d does not exist: the nodes are %s", n, onlineNodes())
		}
		mask[n/64] |= 1 << (n % 64)
	}
	const mpolBind = 2
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, s.Base, uintptr(s.Size), mpolBind, uintptr(unsafe.Pointer(&mask)), uintptr(len(mask)*64+1), 0)
	switch {
	case errno == unix.ENOSYS: // a kernel without NUMA has one node
		return nil
	case errno != 0:
		return fmt.Errorf("bind to NUMA nodes %v (online: %s): %w", nodes, onlineNodes(), errno)
	}
	if len(nodes) == 1 {
		s.Node = nodes[0]
	}
	return nil
}

func unmapSlab(s *Slab) {
	if err := unix.MunmapPtr(pointerTo(s.Base), uintptr(s.Size)); err != nil {
		panic(fmt.Sprintf("memory: unmap slab %d at %#x: %v", s.Index, s.Base, err))
	}
}

func onlineNodes() string {
	text, err := os.ReadFile("/sys/devices/system/node/online")
	if err != nil {
		return "0"
	}
	return strings.TrimSpace(string(text))
}

// sharedTHP tells whether madvise gets shared memory transparent hugepages.
func sharedTHP() bool {
	text, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
	return err == nil && !strings.Contains(string(text), "[never]") && !strings.Contains(string(text), "[deny]")
}
