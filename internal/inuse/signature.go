package inuse

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// edge is how much of a drive's beginning and end is looked at.
const edge = 1 << 20

// magic is a value at a fixed place, counted from the beginning, or if negative from the end.
type magic struct {
	what  string
	at    int64
	value string
}

// magics are the signatures at fixed places, as blkid knows them.
var magics = []magic{
	{"ext2, ext3 or ext4", 0x438, "\x53\xef"},
	{"XFS", 0, "XFSB"},
	{"Btrfs", 0x10040, "_BHRfS_M"},
	{"F2FS", 0x400, "\x10\x20\xf5\xf2"},
	{"NTFS", 3, "NTFS    "},
	{"exFAT", 3, "EXFAT   "},
	{"FAT", 54, "FAT1"},
	{"FAT", 82, "FAT32   "},
	{"ISO 9660", 0x8001, "CD001"},
	{"swap", 4096 - 10, "SWAPSPACE2"},
	{"swap", 16384 - 10, "SWAPSPACE2"},
	{"swap", 65536 - 10, "SWAPSPACE2"},
	{"swap", 4096 - 10, "S1SUSPEND"},
	{"LUKS", 0, "LUKS\xba\xbe"},
	{"LVM", 0x000 + 24, "LVM2 001"},
	{"LVM", 0x200 + 24, "LVM2 001"},
	{"LVM", 0x400 + 24, "LVM2 001"},
	{"LVM", 0x600 + 24, "LVM2 001"},
	{"MD RAID (1.1)", 0, "\xfc\x4e\x2b\xa9"},
	{"MD RAID (1.2)", 4096, "\xfc\x4e\x2b\xa9"},
	{"bcache", 4096 + 24, "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"},
	{"Ceph BlueStore", 0, "bluestore block device"},
	{"a partition table (GPT)", 512, "EFI PART"},
	{"a partition table (GPT)", 4096, "EFI PART"},
	{"a partition table (GPT, backup)", -512, "EFI PART"},
	{"a partition table (GPT, backup)", -4096, "EFI PART"},
	{"Intel RAID", -1024, "Intel Raid ISM Cfg Sig. "},
	{"Intel RAID", -8192, "Intel Raid ISM Cfg Sig. "}, // 4096-byte sectors
	{"DDF RAID", -512, "\xde\x11\xde\x11"},
	{"DDF RAID", -4096, "\xde\x11\xde\x11"},
}

// Signatures looks for file systems, swap, partition tables, and members of LVM, RAID, ZFS and others, on anything that can
// be read: a block device, or a drive that no kernel driver holds. It reads the first and the last MiB.
func Signatures(r io.ReaderAt, size int64) (found []string, err error) {
	head, err := readEdge(r, 0, min(edge, size))
	if err != nil {
		return nil, err
	}
	tailAt := max(0, size-edge)
	tail, err := readEdge(r, tailAt, size-tailAt)
	if err != nil {
		return nil, err
	}
	at := func(off int64, n int) []byte { // nil if it is not inside
		switch {
		case off >= 0 && off+int64(n) <= int64(len(head)):
			return head[off : off+int64(n)]
		case off >= tailAt && off+int64(n) <= size:
			return tail[off-tailAt : off-tailAt+int64(n)]
		}
		return nil
	}
	add := func(what string) {
		for _, f := range found {
			if f == what {
				return
			}
		}
		found = append(found, what)
	}
	for _, m := range magics {
		off := m.at
		if off < 0 {
			off += size
		}
		if string(at(off, len(m.value))) == m.value {
			add(m.what)
		}
	}
	if mbr := at(0, 512); mbr != nil && mbr[510] == 0x55 && mbr[511] == 0xaa {
		for p := 446; p < 510; p += 16 { // a boot sector of a file system has the mark too, and no valid entries
			entry := mbr[p : p+16]
			if kind := entry[4]; kind != 0 && kind != 0xee && entry[0]&0x7f == 0 && binary.LittleEndian.Uint32(entry[12:]) != 0 {
				add("a partition table (MBR)")
			}
		}
	}
	const mdMagic = 0xa92b4efc
	for _, md := range []struct {
		what string
		at   int64
	}{{"MD RAID (1.0)", (size/512 - 16) &^ 7 * 512}, {"MD RAID (0.90)", size&^(64<<10-1) - 64<<10}} {
		if b := at(md.at, 4); b != nil && (binary.LittleEndian.Uint32(b) == mdMagic || binary.BigEndian.Uint32(b) == mdMagic) {
			add(md.what)
		}
	}
	if zfs(head, 0) || zfs(head, 256<<10) {
		add("ZFS")
	} else if end := size &^ (256<<10 - 1); zfs(tail, end-512<<10-tailAt) || zfs(tail, end-256<<10-tailAt) {
		add("ZFS")
	}
	return found, nil
}

// zfs looks for an uberblock in the label that begins at off: 128 KiB of them follow 128 KiB of configuration.
func zfs(b []byte, off int64) bool {
	const label, ring = 256 << 10, 128 << 10
	if off < 0 || off+label > int64(len(b)) {
		return false
	}
	for u := off + ring; u < off+label; u += 1024 {
		if m := b[u : u+8]; bytes.Equal(m, []byte{0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0}) || bytes.Equal(m, []byte{0, 0, 0, 0, 0, 0xba, 0xb1, 0x0c}) {
			return true
		}
	}
	return false
}

func readEdge(r io.ReaderAt, off, n int64) ([]byte, error) {
	b := make([]byte, n)
	if n == 0 {
		return b, nil
	}
	if _, err := r.ReadAt(b, off); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read %d bytes at %d: %w", n, off, err)
	}
	return b, nil
}
