//go:build lab

package lab

import (
	"path/filepath"
	"testing"
)

// testVerify writes and checks what it wrote: every size from a block to 1 MiB, deep and from several jobs, through the
// block layer and around it.
func testVerify(t *testing.T, f fabric) {
	CheckDmesg(t)
	r := StartRocet(t, f.threeNamespaces("128MiB"))
	c := f.connect(t)
	verify := []string{"--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--randrepeat=0"}
	for _, at := range []struct{ name, file, sizes string }{
		{"block device, 512-byte blocks", c.Namespace(3), "512-1M"},
		{"block device, 4096-byte blocks", c.Namespace(1), "4k-1M"},
	} {
		Fio(t, FioJob{Name: "verify", File: at.file, RW: "randrw", Depth: 32, Jobs: 4, Size: "6M",
			Args: append([]string{"--bsrange=" + at.sizes, "--offset_increment=32M", "--rwmixwrite=60"}, verify...)})
	}
	// Two jobs, so that there always is a tag: Linux 6.12 reads a passed-through command again when it had to wait for one,
	// after its owner has reused the memory, and fails it with EFAULT.
	for _, at := range []struct{ file, sizes string }{{c.Generic(3), "512-128k"}, {c.Generic(1), "4k-128k"}} {
		Fio(t, FioJob{Name: "verify", File: at.file, RW: "randwrite", Depth: 32, Jobs: 2, Size: "6M",
			Args: append([]string{"--bsrange=" + at.sizes, "--offset_increment=32M"}, verify...)})
	}
	m := r.Metrics()
	for _, op := range []string{"read", "write"} {
		if n := m.Sum("rocet_commands_total", "operation", op); n < 100 {
			t.Errorf("rocet counted %v %ss", n, op)
		}
	}
	if n := m.Sum("rocet_command_failures_total"); n != 0 {
		t.Errorf("rocet counted %v failed commands", n)
	}
}

// testFilesystem makes a file system, fills it, and checks that everything is there after a remount.
func testFilesystem(t *testing.T, f fabric) {
	CheckDmesg(t)
	StartRocet(t, MemoryConfig(f.transport, Addr0, "128MiB"))
	c := f.connect(t)
	dev := c.Namespace(1)
	Run(t, "mkfs.ext4", "-q", dev)
	at := t.TempDir()
	Run(t, "mount", dev, at)
	mounted := true
	t.Cleanup(func() {
		if mounted {
			TryRun(runTimeout, "umount", at)
		}
	})
	umount := func() {
		t.Helper()
		Run(t, "umount", at)
		mounted = false
	}
	source := t.TempDir()
	Run(t, "cp", "-a", "/etc", "/usr/sbin/nvme", "/usr/bin/fio", source)
	Run(t, "cp", "-a", source, filepath.Join(at, "copy"))
	Run(t, "sync", "-f", at)
	umount()
	Run(t, "fsck.ext4", "-f", "-n", dev)
	Run(t, "mount", dev, at)
	mounted = true
	Run(t, "diff", "-r", "--no-dereference", source, filepath.Join(at, "copy"))
	Run(t, "fstrim", at)
	umount()
	Run(t, "fsck.ext4", "-f", "-n", dev)
}
