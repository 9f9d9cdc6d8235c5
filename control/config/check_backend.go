package config

import (
	"fmt"
	"math/bits"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// backendFields are the keys that each type of backend takes, type itself left out.
var backendFields = map[string][]string{
	"memory": {"size"},
	"null":   {"size"},
	"nvme":   {"pci", "serial", "drive_nsid", "force"},
	"file":   {"path", "size", "buffered", "force"},
	"stripe": {"stripe_size", "members"},
}

var backendTypes = []string{"memory", "null", "nvme", "file", "stripe"}

func (x *checker) backend(b *Backend, path string, n *Namespace, member bool) {
	fields, ok := backendFields[b.Type]
	if !ok {
		if b.Type == "" {
			x.fail(path+".type", "it is missing: want one of %s", strings.Join(backendTypes, ", "))
		} else {
			x.fail(path+".type", "there is no backend %q%s", b.Type, suggest(b.Type, backendTypes))
		}
		return
	}
	for _, name := range keys(reflect.TypeFor[Backend]()) {
		if name != "type" && x.places[path+"."+name] != nil && !slices.Contains(fields, name) {
			x.fail(path+"."+name, "a backend of type %s has no %s: it takes %s", b.Type, name, strings.Join(fields, ", "))
		}
	}
	switch b.Type {
	case "memory", "null":
		if b.Size == 0 {
			x.fail(path+".size", "it is missing: want bytes as 256MiB, 1TiB")
		} else {
			x.wholeBlocks(b, path, n)
		}
		if b.Type == "memory" && b.Size > 1<<50 {
			x.fail(path+".size", "%s of memory: no machine has that much", b.Size)
		}
	case "nvme":
		x.drive(b, path)
	case "file":
		x.file(b, path, n)
	case "stripe":
		if member {
			x.fail(path, "a stripe can't be a member of a stripe: list the drives in one")
			return
		}
		x.stripe(b, path, n)
	}
}

func (x *checker) wholeBlocks(b *Backend, path string, n *Namespace) {
	block := n.BlockSize
	if block == 0 {
		block = 4096
	}
	if uint64(b.Size)%uint64(block) != 0 {
		x.fail(path+".size", "%s is no whole number of blocks of %d bytes", b.Size, block)
	}
}

func (x *checker) drive(b *Backend, path string) {
	if (b.PCI == "") == (b.Serial == "") {
		x.fail(path, "name the drive by pci or by serial: one of the two (rocet devices lists them)")
		return
	}
	key := "serial " + b.Serial
	if b.PCI != "" {
		address, ok := pciAddress(b.PCI)
		if !ok {
			x.fail(path+".pci", "%q is no PCI address: want one as 0000:01:00.0 (rocet devices lists them)", b.PCI)
			return
		}
		key = "pci " + address
	}
	nsid := max(b.DriveNSID, 1)
	key = fmt.Sprintf("%s namespace %d", key, nsid)
	if where := x.drives[key]; where != "" {
		x.fail(path, "this drive's namespace %d is used by %s already: two would overwrite each other", nsid, where)
		return
	}
	x.drives[key] = path
}

// pciAddress is the full form of an address whose domain may be left out.
func pciAddress(s string) (string, bool) {
	s = strings.ToLower(s)
	if strings.Count(s, ":") == 1 {
		s = "0000:" + s
	}
	var domain, bus, device, function uint
	n, err := fmt.Sscanf(s, "%4x:%2x:%2x.%1x", &domain, &bus, &device, &function)
	if err != nil || n != 4 || device > 31 || function > 7 {
		return "", false
	}
	return s, s == fmt.Sprintf("%04x:%02x:%02x.%x", domain, bus, device, function)
}

func (x *checker) file(b *Backend, path string, n *Namespace) {
	if b.Path == "" {
		x.fail(path+".path", "it is missing: want a file or a block device")
		return
	}
	if !filepath.IsAbs(b.Path) {
		x.fail(path+".path", "%q depends on where rocet is started: want a path that begins with /", b.Path)
		return
	}
	if b.Size != 0 {
		x.wholeBlocks(b, path, n)
	}
	clean := filepath.Clean(b.Path)
	if where := x.files[clean]; where != "" {
		x.fail(path+".path", "%s is used by %s already: two would overwrite each other", clean, where)
		return
	}
	x.files[clean] = path
}

func (x *checker) stripe(b *Backend, path string, n *Namespace) {
	if len(b.Members) < 2 || len(b.Members) > maxMembers {
		x.fail(path+".members", "%d members: want 2 to %d", len(b.Members), maxMembers)
	}
	switch s := uint64(b.StripeSize); {
	case s == 0:
		x.fail(path+".stripe_size", "it is missing: 128KiB suits most drives")
	case bits.OnesCount64(s) != 1 || s < minStripe || s > maxStripe:
		x.fail(path+".stripe_size", "%s: want a power of two from %s to %s", b.StripeSize, Size(minStripe), Size(maxStripe))
	case s < uint64(n.BlockSize):
		x.fail(path+".stripe_size", "%s is less than a block of %d bytes", b.StripeSize, n.BlockSize)
	}
	for i := range b.Members {
		x.backend(&b.Members[i], fmt.Sprintf("%s.members[%d]", path, i), n, true)
	}
}
