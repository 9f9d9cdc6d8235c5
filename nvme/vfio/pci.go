package vfio

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ClassNVMe is the PCI class code of an NVMe I/O controller: mass storage, non-volatile memory, NVM Express.
const ClassNVMe = 0x010802

// Host is a machine's PCI functions and its vfio.
type Host struct {
	kernel kernel
	root   string // before /sys and /dev; empty but in tests
}

// System is the machine that the process runs on.
func System() *Host { return &Host{kernel: linux{}} }

// Function is a PCI function as sysfs has it.
type Function struct {
	Address    string // 0000:01:00.0
	Vendor     uint16
	Device     uint16
	Class      uint32 // ClassNVMe for the drives this is about
	Driver     string // empty: none
	Group      string // IOMMU group; empty: none
	NUMANode   int    // -1: unknown
	Neighbours []Neighbour
	Node       string // vfio<n>, the name of its file in /dev/vfio/devices; empty: the kernel has none
	Serial     string // of the drive, while the kernel's nvme driver has it
	Model      string
}

// Neighbour is another function in the same IOMMU group.
type Neighbour struct {
	Address string
	Driver  string // empty: none
}

func (n Neighbour) String() string {
	if n.Driver == "" {
		return n.Address + " (no driver)"
	}
	return n.Address + " (driver " + n.Driver + ")"
}

// inTheWay tells whether vfio refuses a group because of the function: drivers that do no DMA of their own are fine.
func (n Neighbour) inTheWay() bool {
	return n.Driver != "" && n.Driver != "pcieport" && n.Driver != "pci-stub" && !isVFIODriver(n.Driver)
}

// isVFIODriver knows vfio-pci and the variants for single vendors' devices, which all have it in their names.
func isVFIODriver(name string) bool {
	return strings.HasSuffix(strings.ReplaceAll(name, "_", "-"), "vfio-pci")
}

// WithVFIO tells whether one of vfio's drivers has the function.
func (f *Function) WithVFIO() bool { return isVFIODriver(f.Driver) }

var addressForm = regexp.MustCompile(`^([0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]$`)

// ParseAddress brings a PCI address into the form of sysfs: "1:00.0" has no such form, "01:00.0" becomes "0000:01:00.0".
func ParseAddress(s string) (string, error) {
	a := strings.ToLower(s)
	m := addressForm.FindStringSubmatch(a)
	if m == nil {
		return "", fmt.Errorf("PCI address %q: want domain:bus:device.function in hexadecimal digits, as in 0000:01:00.0", s)
	}
	if m[1] == "" {
		a = "0000:" + a
	}
	return a, nil
}

func (h *Host) functionDir(address string) string {
	return h.root + "/sys/bus/pci/devices/" + address
}

// Function reads what sysfs says about a function.
func (h *Host) Function(address string) (Function, error) {
	address, err := ParseAddress(address)
	if err != nil {
		return Function{}, err
	}
	dir := h.functionDir(address)
	if _, err := os.Stat(dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return Function{}, fmt.Errorf("%s: %w", address, ErrNotFound)
		}
		return Function{}, err
	}
	f := Function{Address: address, NUMANode: -1, Driver: linkName(dir + "/driver"), Group: linkName(dir + "/iommu_group")}
	vendor, err1 := readHex(dir + "/vendor")
	device, err2 := readHex(dir + "/device")
	class, err3 := readHex(dir + "/class")
	if err := errors.Join(err1, err2, err3); err != nil {
		return Function{}, err
	}
	f.Vendor, f.Device, f.Class = uint16(vendor), uint16(device), uint32(class)
	if node, err := strconv.Atoi(readText(dir + "/numa_node")); err == nil {
		f.NUMANode = node
	}
	if nodes, _ := filepath.Glob(dir + "/vfio-dev/vfio*"); len(nodes) == 1 {
		f.Node = filepath.Base(nodes[0])
	}
	if names, _ := filepath.Glob(dir + "/nvme/nvme*"); len(names) == 1 {
		f.Serial, f.Model = readText(names[0]+"/serial"), readText(names[0]+"/model")
	}
	if f.Group != "" {
		others, err := os.ReadDir(dir + "/iommu_group/devices")
		if err != nil {
			return Function{}, err
		}
		for _, o := range others {
			if o.Name() != address {
				f.Neighbours = append(f.Neighbours, Neighbour{Address: o.Name(), Driver: linkName(h.functionDir(o.Name()) + "/driver")})
			}
		}
	}
	return f, nil
}

// Drives lists the NVMe controllers on the machine's PCI buses, by address. One that vanishes meanwhile is left out.
func (h *Host) Drives() ([]Function, error) {
	entries, err := os.ReadDir(h.root + "/sys/bus/pci/devices")
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) { // a machine without PCI
			return nil, nil
		}
		return nil, err
	}
	var drives []Function
	for _, e := range entries {
		if class, err := readHex(h.functionDir(e.Name()) + "/class"); err != nil || class != ClassNVMe {
			continue
		}
		if f, err := h.Function(e.Name()); err == nil {
			drives = append(drives, f)
		}
	}
	slices.SortFunc(drives, func(a, b Function) int { return strings.Compare(a.Address, b.Address) })
	return drives, nil
}

// check tells why vfio would not hand the function out.
func (f *Function) check() error {
	if f.Group == "" {
		return &NoIOMMUError{Address: f.Address}
	}
	if !f.WithVFIO() {
		return &DriverError{Address: f.Address, Driver: f.Driver}
	}
	return f.checkGroup()
}

func (f *Function) checkGroup() error {
	var others []Neighbour
	for _, n := range f.Neighbours {
		if n.inTheWay() {
			others = append(others, n)
		}
	}
	if len(others) > 0 {
		return &GroupError{Address: f.Address, Group: f.Group, Others: others}
	}
	return nil
}

func linkName(path string) string {
	target, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

func readText(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func readHex(path string) (uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(string(b)), "0x"), 16, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}
