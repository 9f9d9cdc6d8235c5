package inuse

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root builds a system's files below a folder.
type root struct {
	t   *testing.T
	dir string
}

func newRoot(t *testing.T) *root {
	r := &root{t, t.TempDir()}
	r.file("proc/self/mountinfo", "22 1 0:21 / /proc rw - proc proc rw\n")
	r.file("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n")
	return r
}

func (r *root) file(path, text string) {
	r.t.Helper()
	full := filepath.Join(r.dir, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *root) link(path, to string) {
	r.t.Helper()
	full := filepath.Join(r.dir, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Symlink(to, full); err != nil {
		r.t.Fatal(err)
	}
}

// disk adds an empty disk of 4 MiB.
func (r *root) disk(name, number string, parts ...string) {
	r.file("dev/"+name, strings.Repeat("\x00", 4<<20))
	r.file("sys/class/block/"+name+"/dev", number+"\n")
	for i, p := range parts {
		sub := "sys/class/block/" + name + "/" + p
		r.file(sub+"/partition", "1\n")
		r.link("sys/class/block/"+p, name+"/"+p)
		r.file(sub+"/dev", number[:strings.Index(number, ":")+1]+string(rune('1'+i))+"\n")
		r.file("dev/"+p, strings.Repeat("\x00", 1<<20))
	}
}

// reasons is Check's answer.
func (r *root) reasons(path string) []string {
	r.t.Helper()
	err := Checker{Root: r.dir}.Check(path)
	var inUse *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &inUse):
		if !strings.HasPrefix(err.Error(), path+" is in use: ") {
			r.t.Errorf("error %q", err)
		}
		return inUse.Reasons
	}
	r.t.Fatal(err)
	return nil
}

func (r *root) expect(path string, want ...string) {
	r.t.Helper()
	if got := r.reasons(path); !slices.Equal(got, want) {
		r.t.Errorf("%s: %q, want %q", path, got, want)
	}
}

func TestFreeDisk(t *testing.T) {
	r := newRoot(t)
	r.disk("nvme0n1", "259:0")
	r.link("dev/disk/by-id/nvme-x", "../../nvme0n1")
	r.expect("/dev/nvme0n1")
	r.expect("/dev/disk/by-id/nvme-x")
	if err := (Checker{Root: r.dir}).Check("/dev/nvme9n9"); err == nil || errors.As(err, new(*Error)) {
		t.Errorf("a device that is not there: %v", err)
	}
}

func TestMounts(t *testing.T) {
	r := newRoot(t)
	r.disk("sda", "8:0")
	r.disk("sdb", "8:16")
	r.disk("sdc", "8:32")
	r.file("proc/self/mountinfo", `22 1 0:21 / /proc rw - proc proc rw
30 1 8:0 / /srv/my\040data rw,noatime shared:1 - ext4 /dev/root rw
31 1 0:45 /sub /pool rw - btrfs /dev/disk/by-label/pool rw
broken line
`)
	r.file("proc/1/mountinfo", "99 1 8:0 / /elsewhere rw - ext4 /dev/root rw\n")
	r.link("dev/disk/by-label/pool", "../../sdb")
	r.expect("/dev/sda", "mounted on /elsewhere", "mounted on /srv/my data")
	r.expect("/dev/sdb", "mounted on /pool")
	r.expect("/dev/sdc")
}

func TestPartitionsSwapHolders(t *testing.T) {
	r := newRoot(t)
	r.disk("sda", "8:0", "sda1", "sda2")
	r.file("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2 partition 8 0 -2\n/swap\\040file file 8 0 -3\n")
	r.file("sys/class/block/sda/sda1/holders/dm-3/x", "")
	r.file("sys/class/block/dm-3/dm/name", "vg-data\n")
	r.expect("/dev/sda", "it has partitions: sda1, sda2", "sda1 is held by dm-3 (vg-data)", "sda2 is used as swap")
	r.expect("/dev/sda1", "held by dm-3 (vg-data)")
	r.expect("/dev/sda2", "used as swap")
	r.disk("sdb", "8:16")
	r.file("sys/class/block/sdb/holders/md0/x", "")
	r.expect("/dev/sdb", "held by md0")
	r.file("swap file", "x")
	r.file("free file", "x")
	r.file("image", "x")
	r.file("sys/class/block/loop3/loop/backing_file", "/image\n")
	r.expect("/swap file", "used as swap")
	r.expect("/image", "attached to /dev/loop3")
	r.expect("/free file")
	if err := (Checker{Root: r.dir}).Check("/proc"); err == nil {
		t.Error("a folder is free")
	}
}

func TestPCI(t *testing.T) {
	r := newRoot(t)
	r.file("sys/bus/pci/devices/0000:00:04.0/nvme/nvme0/nvme0n1/size", "1")
	r.file("sys/bus/pci/devices/0000:00:04.0/nvme/nvme0/hwmon1/name", "nvme")
	r.file("sys/bus/pci/devices/0000:00:05.0/nvme/nvme1/nvme1c2n3/size", "1") // multipath: the disk is elsewhere
	r.file("sys/bus/pci/devices/0000:00:06.0/vendor", "1")
	r.disk("nvme0n1", "259:0")
	r.disk("nvme1n3", "259:4")
	r.expect("0000:00:04.0")
	r.expect("0000:00:05.0")
	r.expect("0000:00:06.0") // no driver of the kernel's
	r.file("proc/self/mountinfo", "30 1 259:0 / /a rw - ext4 /dev/x rw\n31 1 259:4 / /b rw - ext4 /dev/y rw\n")
	r.expect("0000:00:04.0", "nvme0n1: mounted on /a")
	r.expect("0000:00:05.0", "nvme1n3: mounted on /b")
	if err := (Checker{Root: r.dir}).Check("0000:00:07.0"); err == nil || errors.As(err, new(*Error)) {
		t.Errorf("a PCI device that is not there: %v", err)
	}
}

func TestSignatureOnDisk(t *testing.T) {
	r := newRoot(t)
	r.disk("sda", "8:0")
	b := make([]byte, 4<<20)
	copy(b[0x438:], "\x53\xef")
	r.file("dev/sda", string(b))
	r.expect("/dev/sda", "it carries the signature of ext2, ext3 or ext4")
}

func TestSignatures(t *testing.T) {
	const size = 5<<20 + 3*4096
	image := func(changes ...any) []byte {
		b := make([]byte, size)
		for i := 0; i < len(changes); i += 2 {
			off := changes[i].(int)
			if off < 0 {
				off += size
			}
			copy(b[off:], changes[i+1].(string))
		}
		return b
	}
	partition := "\x80\x00\x00\x00\x83\x00\x00\x00\x00\x08\x00\x00\x00\x10\x00\x00"
	type test struct {
		name  string
		image []byte
		want  []string
	}
	tests := []test{
		{"empty", image(), nil},
		{"MBR", image(446, partition, 510, "\x55\xaa"), []string{"a partition table (MBR)"}},
		{"boot sector of no partitions", image(510, "\x55\xaa"), nil},
		{"protective MBR with GPT", image(446, "\x00\x00\x00\x00\xee\x00\x00\x00\x00\x08\x00\x00\x00\x10\x00\x00", 510, "\x55\xaa", 512, "EFI PART", -512, "EFI PART"), []string{"a partition table (GPT)", "a partition table (GPT, backup)"}},
		{"MD 1.0", image((size/512-16)&^7*512, "\xfc\x4e\x2b\xa9"), []string{"MD RAID (1.0)"}},
		{"MD 0.90", image(size&^(64<<10-1)-64<<10, "\xfc\x4e\x2b\xa9"), []string{"MD RAID (0.90)"}},
		{"MD 0.90, big-endian", image(size&^(64<<10-1)-64<<10, "\xa9\x2b\x4e\xfc"), []string{"MD RAID (0.90)"}},
		{"ZFS, first label", image(128<<10+5*1024, "\x0c\xb1\xba\x00\x00\x00\x00\x00"), []string{"ZFS"}},
		{"ZFS, second label, big-endian", image((256+128)<<10, "\x00\x00\x00\x00\x00\xba\xb1\x0c"), []string{"ZFS"}},
		{"ZFS, last label", image(size&^(256<<10-1)-128<<10, "\x0c\xb1\xba\x00\x00\x00\x00\x00"), []string{"ZFS"}},
		{"ZFS's value where no uberblock is", image(128<<10+512, "\x0c\xb1\xba\x00\x00\x00\x00\x00"), nil},
		{"two of them", image(0, "XFSB", 0x10040, "_BHRfS_M"), []string{"XFS", "Btrfs"}},
	}
	for _, m := range magics {
		tests = append(tests, test{m.what, image(int(m.at), m.value), []string{m.what}})
	}
	for _, c := range tests {
		got, err := Signatures(bytes.NewReader(c.image), size)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
	for _, n := range []int64{0, 1, 511, 512, 4096, 1 << 20} { // small ones are looked at, too
		if got, err := Signatures(bytes.NewReader(make([]byte, n)), n); err != nil || got != nil {
			t.Errorf("%d bytes of nothing: %q, %v", n, got, err)
		}
	}
	if _, err := Signatures(broken{}, 1<<30); err == nil {
		t.Error("an unreadable drive is free")
	}
}

type broken struct{}

func (broken) ReadAt([]byte, int64) (int, error) { return 0, errors.New("bad sector") }

// TestRealTools has the tools themselves write what is to be found.
func TestRealTools(t *testing.T) {
	for _, c := range []struct {
		tool string
		args []string
		want string
	}{
		{"mkfs.ext4", []string{"-q", "-F"}, "ext2, ext3 or ext4"},
		{"mkfs.xfs", []string{"-q", "-f"}, "XFS"},
		{"mkfs.btrfs", []string{"-q", "-f"}, "Btrfs"},
		{"mkfs.vfat", nil, "FAT"},
		{"mkswap", []string{"-q"}, "swap"},
		{"cryptsetup", []string{"-q", "--key-file", "/proc/version", "--pbkdf", "pbkdf2", "luksFormat"}, "LUKS"},
	} {
		t.Run(c.tool, func(t *testing.T) {
			tool, err := exec.LookPath(c.tool)
			if err != nil {
				t.Skip("not installed")
			}
			path := filepath.Join(t.TempDir(), "image")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, 512<<20); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(tool, append(c.args, path)...).CombinedOutput(); err != nil {
				t.Skipf("%v: %s", err, out)
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if got, err := Signatures(f, 512<<20); err != nil || !slices.Contains(got, c.want) {
				t.Errorf("found %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// TestRealDevice asks the running kernel about a loop device in several states.
func TestRealDevice(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("attaching a loop device needs root")
	}
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 64<<20); err != nil {
		t.Fatal(err)
	}
	if err := Check(image); err != nil {
		t.Errorf("a file: %v", err)
	}
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device to be had: %v: %s", err, out)
	}
	loop := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", loop).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	if err := Check(loop); err != nil {
		t.Errorf("an empty loop device: %v", err)
	}
	if err := Check(image); err == nil || !strings.Contains(err.Error(), "attached to "+loop) {
		t.Errorf("the file behind it: %v", err)
	}
	other := filepath.Join(t.TempDir(), "other-name")
	if err := os.Symlink(loop, other); err != nil {
		t.Fatal(err)
	}
	if err := Check(other); err != nil {
		t.Errorf("by another name: %v", err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", loop).CombinedOutput(); err != nil {
		t.Skipf("no file system to be had: %v: %s", err, out)
	}
	if err := Check(loop); err == nil || !strings.Contains(err.Error(), "signature of ext") {
		t.Errorf("with a file system: %v", err)
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", loop, dir).CombinedOutput(); err != nil {
		t.Skipf("mounting: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	for _, path := range []string{loop, other} {
		if err := Check(path); err == nil || !strings.Contains(err.Error(), "mounted on "+dir) {
			t.Errorf("mounted: %v", err)
		}
	}
}

func FuzzSignatures(f *testing.F) {
	b := make([]byte, 8192)
	copy(b, "XFSB")
	f.Add(b)
	b = bytes.Clone(b)
	binary.LittleEndian.PutUint32(b[4096:], 0xa92b4efc)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := Signatures(bytes.NewReader(b), int64(len(b))); err != nil {
			t.Error(err)
		}
	})
}

func FuzzMountinfo(f *testing.F) {
	f.Add("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw\n")
	f.Add("36 35 98:0 /mnt1 /a\\040b rw -\n - \n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, m := range parseMountinfo(text) {
			if m.device == "" || m.point == "" {
				t.Errorf("%+v out of %q", m, text)
			}
		}
		parseSwaps(text)
	})
}
