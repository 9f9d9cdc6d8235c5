// Package inuse finds out whether a drive belongs to somebody: mounted, swap, partitioned, part of LVM, RAID, ZFS or a
// cluster store, or carrying the signature of one of them. Whoever takes a drive over asks first, because the answer to
// a wrong guess is lost data. It only ever reads.
package inuse

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Error says why something is in use.
type Error struct {
	Path    string
	Reasons []string
}

// Error lists the reasons.
func (e *Error) Error() string {
	return fmt.Sprintf("%s is in use: %s", e.Path, strings.Join(e.Reasons, "; "))
}

// Check looks at a block device or file by its path, or at an NVMe drive by its PCI address (0000:00:04.0). It returns an
// *Error when that is in use, another error when it could not find out, and nil otherwise. Of a drive that no kernel
// driver holds nothing is known but what Signatures finds on it.
func Check(path string) error { return Checker{Root: "/"}.Check(path) }

// Checker looks at a system that lies below Root.
type Checker struct{ Root string }

var pciAddress = regexp.MustCompile(`^[0-9a-fA-F]{4,}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$`)

// Check is the function of the same name.
func (c Checker) Check(path string) error {
	var reasons []string
	var err error
	if pciAddress.MatchString(path) {
		reasons, err = c.drive(strings.ToLower(path))
	} else {
		reasons, err = c.path(path)
	}
	if err != nil {
		return fmt.Errorf("find out whether %s is in use: %w", path, err)
	}
	if len(reasons) > 0 {
		return &Error{Path: path, Reasons: reasons}
	}
	return nil
}

// namespaceName matches a namespace's block device, and with native multipath one path's hidden device.
var namespaceName = regexp.MustCompile(`^nvme(\d+)(c\d+)?n(\d+)$`)

// drive checks the block devices of an NVMe controller.
func (c Checker) drive(address string) (reasons []string, err error) {
	dir := c.file("sys/bus/pci/devices", address)
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("no such PCI device: %w", err)
	}
	controllers, err := readNames(filepath.Join(dir, "nvme"))
	if err != nil {
		return nil, err
	}
	for _, controller := range controllers {
		entries, err := readNames(filepath.Join(dir, "nvme", controller))
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			m := namespaceName.FindStringSubmatch(entry)
			if m == nil {
				continue
			}
			found, err := c.path("/dev/nvme" + m[1] + "n" + m[3])
			if err != nil {
				return nil, err
			}
			for _, r := range found {
				reasons = append(reasons, fmt.Sprintf("nvme%sn%s: %s", m[1], m[3], r))
			}
		}
	}
	return reasons, nil
}

// path checks a block device or a file.
func (c Checker) path(path string) (reasons []string, err error) {
	real, err := filepath.EvalSymlinks(c.file(path))
	if err != nil {
		return nil, err
	}
	name, err := c.blockName(real)
	if err != nil {
		return nil, err
	}
	if name == "" {
		return c.regular(real)
	}
	parts, err := c.partitions(name)
	if err != nil {
		return nil, err
	}
	if len(parts) > 0 {
		reasons = append(reasons, "it has partitions: "+strings.Join(parts, ", "))
	}
	uses, err := c.readUses()
	if err != nil {
		return nil, err
	}
	for _, device := range append([]string{name}, parts...) {
		found, err := c.uses(device, uses)
		if err != nil {
			return nil, err
		}
		if device != name {
			for i := range found {
				found[i] = device + " is " + found[i]
			}
		}
		reasons = append(reasons, found...)
	}
	f, err := os.OpenFile(real, os.O_RDONLY|unix.O_EXCL, 0)
	if errors.Is(err, unix.EBUSY) {
		if len(reasons) == 0 {
			reasons = append(reasons, "opened exclusively by the kernel or another process")
		}
		return reasons, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Seek(0, 2)
	if err != nil {
		return nil, fmt.Errorf("size of %s: %w", path, err)
	}
	signatures, err := Signatures(f, size)
	if err != nil {
		return nil, err
	}
	for _, s := range signatures {
		reasons = append(reasons, "it carries the signature of "+s)
	}
	return reasons, nil
}

// blockName is the kernel's name of a block device, "" for a regular file.
func (c Checker) blockName(real string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(real, &st); err != nil {
		return "", &fs.PathError{Op: "stat", Path: real, Err: err}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFBLK:
		link, err := os.Readlink(c.file(fmt.Sprintf("sys/dev/block/%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))))
		if err != nil {
			return "", err
		}
		return filepath.Base(link), nil
	case unix.S_IFREG:
		// A test's root has no device nodes: what stands in its dev is one.
		if c.Root != "/" && filepath.Dir(real) == c.file("dev") {
			return filepath.Base(real), nil
		}
		return "", nil
	}
	return "", fmt.Errorf("%s is neither a block device nor a regular file", real)
}

// partitions lists a disk's.
func (c Checker) partitions(name string) ([]string, error) {
	dir := c.file("sys/class/block", name)
	entries, err := readNames(dir)
	if err != nil {
		return nil, err
	}
	var parts []string
	for _, entry := range entries {
		if _, err := os.Stat(filepath.Join(dir, entry, "partition")); err == nil {
			parts = append(parts, entry)
		}
	}
	return parts, nil
}

// regular checks a file: swap, or behind a loop device.
func (c Checker) regular(real string) (reasons []string, err error) {
	uses, err := c.readUses()
	if err != nil {
		return nil, err
	}
	inRoot := c.outside(real)
	if slices.Contains(uses.swaps, inRoot) {
		reasons = append(reasons, "used as swap")
	}
	loops, err := readNames(c.file("sys/class/block"))
	if err != nil {
		return nil, err
	}
	for _, loop := range loops {
		if text, err := os.ReadFile(c.file("sys/class/block", loop, "loop/backing_file")); err == nil && strings.TrimSpace(string(text)) == inRoot {
			reasons = append(reasons, "attached to /dev/"+loop)
		}
	}
	return reasons, nil
}

// uses says what a device is used for.
func (c Checker) uses(name string, all uses) (reasons []string, err error) {
	number, err := os.ReadFile(c.file("sys/class/block", name, "dev"))
	if err != nil {
		return nil, err
	}
	majorMinor := strings.TrimSpace(string(number))
	for _, m := range all.mounts {
		if m.device == majorMinor || c.names(m.source, name) {
			reasons = append(reasons, "mounted on "+m.point)
		}
	}
	for _, s := range all.swaps {
		if c.names(s, name) {
			reasons = append(reasons, "used as swap")
		}
	}
	holders, err := readNames(c.file("sys/class/block", name, "holders"))
	if err != nil {
		return nil, err
	}
	for _, h := range holders {
		if text, err := os.ReadFile(c.file("sys/class/block", h, "dm/name")); err == nil {
			h += " (" + strings.TrimSpace(string(text)) + ")"
		}
		reasons = append(reasons, "held by "+h)
	}
	return reasons, nil
}

// names tells whether a path leads to a block device of that name.
func (c Checker) names(path, name string) bool {
	if !strings.HasPrefix(path, "/dev/") {
		return false
	}
	if real, err := filepath.EvalSymlinks(c.file(path)); err == nil {
		path = real
	}
	return filepath.Base(path) == name
}

// file is a path below the root.
func (c Checker) file(parts ...string) string {
	return filepath.Join(append([]string{c.Root}, parts...)...)
}

// outside takes the root off a path.
func (c Checker) outside(path string) string {
	return "/" + strings.TrimPrefix(strings.TrimPrefix(path, filepath.Clean(c.Root)), "/")
}

// uses are the mounts and swap spaces of a system.
type uses struct {
	mounts []mount
	swaps  []string
}

type mount struct{ device, point, source string }

func (c Checker) readUses() (u uses, err error) {
	// The first process sees what is mounted outside a container. Not everybody may look.
	for _, of := range []string{"1", "self"} {
		text, err := os.ReadFile(c.file("proc", of, "mountinfo"))
		if err != nil {
			if of == "1" {
				continue
			}
			return u, err
		}
		u.mounts = append(u.mounts, parseMountinfo(string(text))...)
	}
	slices.SortFunc(u.mounts, func(a, b mount) int { return strings.Compare(a.point, b.point) })
	u.mounts = slices.Compact(u.mounts)
	text, err := os.ReadFile(c.file("proc/swaps"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without swap
		return u, err
	}
	u.swaps = parseSwaps(string(text))
	return u, nil
}

// parseMountinfo reads proc(5)'s mountinfo: "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw".
func parseMountinfo(text string) (mounts []mount) {
	for line := range strings.Lines(text) {
		head, tail, ok := strings.Cut(line, " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if !ok || len(h) < 5 || len(t) < 2 {
			continue
		}
		mounts = append(mounts, mount{device: h[2], point: unescape(h[4]), source: unescape(t[1])})
	}
	return mounts
}

// parseSwaps reads proc(5)'s swaps: a heading, then lines that begin with a path.
func parseSwaps(text string) (paths []string) {
	first := true
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); !first && len(f) > 0 {
			paths = append(paths, unescape(f[0]))
		}
		first = false
	}
	return paths
}

// unescape undoes the octal escapes of blanks in those files.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// readNames lists a folder; one that is not there is empty.
func readNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}
