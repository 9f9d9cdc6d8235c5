package vfio

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"rocet/memory"
)

// model is a kernel with vfio and iommufd in it, as far as this package can see: what the guest of the lab has no kernel
// for (iommufd), and what no kernel does on command (limits, missing pieces) is played here. sysfs is a folder.
type model struct {
	t    *testing.T
	root string

	groups   map[string]*modelGroup // by name
	nodes    map[string]string      // vfio<n> to function
	noVFIO   bool
	noIOMMU  bool // TYPE1 is not there
	hasFD    bool // /dev/iommu
	denied   map[string]bool
	busy     map[string]bool
	ranges   []Range
	avail    int
	noCaps   bool
	memlockA uint64 // limit
	exempt   bool
	refuse   map[uintptr]error // ioctl: error
	partial  bool              // unmaps less than asked for

	next     int
	fds      map[int]*modelFD
	maps     map[uint64]uint64 // iova to size
	unmapped int
	locked   uint64
	regions  []regionInfo
	sparse   []area
	config   []byte
	irqs     map[uint32]irqInfo
	armed    map[uint32][]int
	resets   int
	stuckBit bool // bus mastering stays on
}

type modelGroup struct {
	function string
	viable   bool
}

type modelFD struct {
	kind      string // container, group, device, iommufd, eventfd
	name      string
	container int
	set       bool
	bound     bool
	attached  bool
}

func newModel(t *testing.T) *model {
	m := &model{t: t, root: t.TempDir(), groups: make(map[string]*modelGroup), nodes: make(map[string]string), denied: make(map[string]bool),
		busy: make(map[string]bool), ranges: []Range{{0, 0xfedfffff}, {0xfef00000, 1<<39 - 1}}, avail: 65535, memlockA: 1 << 40,
		refuse: make(map[uintptr]error), next: 100, fds: make(map[int]*modelFD), maps: make(map[uint64]uint64),
		config: make([]byte, 256), irqs: map[uint32]irqInfo{irqMSIX: {flags: irqEventFD, count: 5}, irqErr: {flags: irqEventFD, count: 1}, irqReq: {flags: irqEventFD, count: 1}},
		armed: make(map[uint32][]int)}
	m.regions = make([]regionInfo, configRegion+1)
	m.regions[0] = regionInfo{flags: regionRead | regionWrite | regionMmap, size: 0x4000, offset: 0}
	m.regions[configRegion] = regionInfo{flags: regionRead | regionWrite, size: 256, offset: 7 << 40}
	// A capability list: power management at 40h, MSI-X at 60h with its table in BAR 0 at 3000h.
	m.config[configStatus], m.config[configCaps] = statusCapList, 0x40
	m.config[0x40], m.config[0x41] = 0x01, 0x60
	m.config[0x60], m.config[0x61] = capMSIX, 0
	binary.LittleEndian.PutUint32(m.config[0x64:], 0x3000)
	return m
}

func (m *model) host() *Host { return &Host{kernel: m, root: m.root} }

func (m *model) write(path, text string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) symlink(path, target string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		m.t.Fatal(err)
	}
}

// function adds a function to sysfs.
func (m *model) function(address, driver, group string) {
	m.t.Helper()
	dir := "sys/bus/pci/devices/" + address
	m.write(dir+"/vendor", "0x1b36\n")
	m.write(dir+"/device", "0x0010\n")
	m.write(dir+"/class", "0x010802\n")
	m.write(dir+"/numa_node", "1\n")
	if driver != "" {
		m.symlink(dir+"/driver", "../../../bus/pci/drivers/"+driver)
	}
	if group != "" {
		members := "sys/kernel/iommu_groups/" + group + "/devices"
		m.symlink(members+"/"+address, "../../../../devices/"+address)
		m.symlink(dir+"/iommu_group", filepath.Join(m.root, "sys/kernel/iommu_groups", group))
		if m.groups[group] == nil {
			m.groups[group] = &modelGroup{viable: true}
		}
		m.groups[group].function = address
	}
}

// node gives a function a file of its own in /dev/vfio/devices.
func (m *model) node(address, name string) {
	m.write("sys/bus/pci/devices/"+address+"/vfio-dev/"+name+"/dev", "510:0\n")
	m.nodes[name] = address
}

func (m *model) add(f *modelFD) int {
	m.next++
	m.fds[m.next] = f
	return m.next
}

func (m *model) open(path string, _ int) (int, error) {
	name := strings.TrimPrefix(path, m.root)
	switch {
	case m.denied[name]:
		return -1, unix.EACCES
	case m.busy[name]:
		return -1, unix.EBUSY
	case name == "/dev/vfio/vfio":
		if m.noVFIO {
			return -1, unix.ENOENT
		}
		return m.add(&modelFD{kind: "container"}), nil
	case name == "/dev/iommu":
		if !m.hasFD {
			return -1, unix.ENOENT
		}
		return m.add(&modelFD{kind: "iommufd"}), nil
	case strings.HasPrefix(name, "/dev/vfio/devices/"):
		if address := m.nodes[filepath.Base(name)]; address != "" {
			return m.add(&modelFD{kind: "device", name: address}), nil
		}
	case strings.HasPrefix(name, "/dev/vfio/"):
		if g := m.groups[filepath.Base(name)]; g != nil {
			for _, f := range m.fds {
				if f.kind == "group" && f.name == filepath.Base(name) {
					return -1, unix.EBUSY
				}
			}
			return m.add(&modelFD{kind: "group", name: filepath.Base(name)}), nil
		}
	}
	return -1, unix.ENOENT
}

func (m *model) close(fd int) error {
	f := m.fds[fd]
	if f == nil {
		m.t.Errorf("close of descriptor %d, which is not open", fd)
		return unix.EBADF
	}
	delete(m.fds, fd)
	if f.kind == "iommufd" {
		m.dropMaps()
	}
	return nil
}

func (m *model) dropMaps() {
	clear(m.maps)
	m.locked = 0
}

func (m *model) ioctl(fd int, request, arg uintptr) (int, error) {
	if err := m.refuse[request]; err != nil {
		return -1, err
	}
	f := m.fds[fd]
	switch request {
	case ioctlGetAPIVersion:
		return apiVersion, nil
	case ioctlCheckExtension:
		if m.noIOMMU || arg != type1v2IOMMU {
			return 0, nil
		}
		return 1, nil
	case ioctlSetIOMMU:
		f.set = true
		return 0, nil
	case ioctlGroupUnset:
		f.container = 0
		for _, g := range m.fds {
			if g.kind == "group" && g.container != 0 {
				return 0, nil
			}
		}
		m.dropMaps() // the last group takes the mappings with it
		for _, c := range m.fds {
			c.set = false
		}
		return 0, nil
	case ioctlDeviceReset:
		m.resets++
		return 0, nil
	}
	return -1, unix.ENOTTY
}

func (m *model) ioctlPtr(fd int, request uintptr, arg unsafe.Pointer) (int, error) {
	if err := m.refuse[request]; err != nil {
		return -1, err
	}
	f := m.fds[fd]
	if f == nil {
		m.t.Fatalf("ioctl %#x on descriptor %d, which is not open", request, fd)
	}
	switch request {
	case ioctlGroupGetStatus:
		if m.groups[f.name].viable {
			(*groupStatus)(arg).flags = groupViable
		}
		return 0, nil
	case ioctlGroupSetContainer:
		f.container = int(*(*int32)(arg))
		return 0, nil
	case ioctlGroupGetDeviceFD:
		name := unix.BytePtrToString((*byte)(arg))
		if f.container == 0 || !m.fds[f.container].set {
			return -1, unix.EINVAL
		}
		return m.add(&modelFD{kind: "device", name: name, bound: true, attached: true}), nil
	case ioctlIOMMUGetInfo:
		return 0, m.iommuInfo(arg)
	case ioctlIOMMUMapDMA:
		d := (*dmaMap)(arg)
		if d.flags != dmaMapRead|dmaMapWrite || !f.set {
			return -1, unix.EINVAL
		}
		return 0, m.mapMemory(d.iova, d.size)
	case ioctlIOMMUUnmapDMA:
		d := (*dmaUnmap)(arg)
		d.size = m.unmapMemory(d.iova, d.size)
		return 0, nil
	case ioctlDeviceBindIOMMUFD:
		b := (*bindIOMMUFD)(arg)
		if i := m.fds[int(b.iommufd)]; i == nil || i.kind != "iommufd" {
			return -1, unix.EBADF
		}
		f.bound = true
		return 0, nil
	case ioctlDeviceAttachPT:
		if !f.bound || (*attachPT)(arg).ptID != 7 {
			return -1, unix.EINVAL
		}
		f.attached = true
		return 0, nil
	case ioctlIOASAlloc:
		(*ioasAlloc)(arg).outID = 7
		return 0, nil
	case ioctlIOASRanges:
		q := (*ioasRanges)(arg)
		room := q.num
		q.num = uint32(len(m.ranges))
		if int(room) < len(m.ranges) {
			return -1, unix.EMSGSIZE
		}
		copy(unsafe.Slice((*Range)(*(*unsafe.Pointer)(unsafe.Pointer(&q.ranges))), room), m.ranges)
		return 0, nil
	case ioctlIOASMap:
		d := (*ioasMap)(arg)
		if d.flags != ioasMapFixed|ioasMapRead|ioasMapWrite || d.ioas != 7 {
			return -1, unix.EINVAL
		}
		return 0, m.mapMemory(d.iova, d.length)
	case ioctlIOASUnmap:
		d := (*ioasUnmap)(arg)
		d.length = m.unmapMemory(d.iova, d.length)
		return 0, nil
	}
	return m.deviceIoctl(f, request, arg)
}

func (m *model) deviceIoctl(f *modelFD, request uintptr, arg unsafe.Pointer) (int, error) {
	if f.kind != "device" || !f.attached {
		return -1, unix.EINVAL
	}
	switch request {
	case ioctlDeviceGetInfo:
		i := (*deviceInfo)(arg)
		i.flags, i.numRegions, i.numIRQs = devicePCI|deviceCanReset, configRegion+1, 5
		return 0, nil
	case ioctlDeviceGetRegion:
		return 0, m.regionInfo(arg)
	case ioctlDeviceGetIRQ:
		i := (*irqInfo)(arg)
		have, ok := m.irqs[i.index]
		if !ok {
			return -1, unix.EINVAL
		}
		i.flags, i.count = have.flags, have.count
		return 0, nil
	case ioctlDeviceSetIRQs:
		words := unsafe.Slice((*uint32)(arg), 5)
		size, flags, index, start, count := words[0], words[1], words[2], words[3], words[4]
		if flags != irqSetEventFD|irqSetTrigger || start != 0 || size != 20+4*count || count > m.irqs[index].count {
			return -1, unix.EINVAL
		}
		m.armed[index] = nil
		for _, fd := range unsafe.Slice((*int32)(unsafe.Add(arg, 20)), count) {
			m.armed[index] = append(m.armed[index], int(fd))
		}
		return 0, nil
	}
	return -1, unix.ENOTTY
}

func (m *model) iommuInfo(arg unsafe.Pointer) error {
	i := (*iommuInfo)(arg)
	i.pageSizes = 4096
	if m.noCaps {
		return nil
	}
	caps := binary.NativeEndian.AppendUint16(nil, 2) // one that is not known
	caps = binary.NativeEndian.AppendUint16(caps, 1)
	caps = binary.NativeEndian.AppendUint32(caps, 24+16)
	caps = append(caps, make([]byte, 8)...)
	caps = binary.NativeEndian.AppendUint16(caps, iommuCapRanges)
	caps = binary.NativeEndian.AppendUint16(caps, 1)
	caps = binary.NativeEndian.AppendUint32(caps, uint32(24+16+16+16*len(m.ranges)))
	caps = binary.NativeEndian.AppendUint32(caps, uint32(len(m.ranges)))
	caps = binary.NativeEndian.AppendUint32(caps, 0)
	for _, r := range m.ranges {
		caps = binary.NativeEndian.AppendUint64(caps, r.Start)
		caps = binary.NativeEndian.AppendUint64(caps, r.Last)
	}
	caps = binary.NativeEndian.AppendUint16(caps, iommuCapAvail)
	caps = binary.NativeEndian.AppendUint16(caps, 1)
	caps = binary.NativeEndian.AppendUint32(caps, 0)
	caps = binary.NativeEndian.AppendUint32(caps, uint32(m.avail))
	i.flags = 1 | iommuInfoCaps
	return m.withCaps(arg, 24, caps, &i.capOffset)
}

// withCaps appends capabilities to a structure, or says how much room they need.
func (m *model) withCaps(arg unsafe.Pointer, size int, caps []byte, offset *uint32) error {
	argsz := (*uint32)(arg)
	room := int(*argsz)
	*argsz = uint32(size + len(caps))
	if room < size+len(caps) {
		*offset = 0
		return nil
	}
	copy(unsafe.Slice((*byte)(unsafe.Add(arg, size)), len(caps)), caps)
	*offset = uint32(size)
	return nil
}

func (m *model) regionInfo(arg unsafe.Pointer) error {
	i := (*regionInfo)(arg)
	if int(i.index) >= len(m.regions) {
		return unix.EINVAL
	}
	r := m.regions[i.index]
	i.flags, i.size, i.offset = r.flags, r.size, r.offset
	if i.index != 0 || m.sparse == nil {
		return nil
	}
	i.flags |= regionCaps
	caps := binary.NativeEndian.AppendUint16(nil, regionCapMSIX)
	caps = binary.NativeEndian.AppendUint16(caps, 1)
	caps = binary.NativeEndian.AppendUint32(caps, 32+8)
	caps = binary.NativeEndian.AppendUint16(caps, regionCapSparse)
	caps = binary.NativeEndian.AppendUint16(caps, 1)
	caps = binary.NativeEndian.AppendUint32(caps, 0)
	caps = binary.NativeEndian.AppendUint32(caps, uint32(len(m.sparse)))
	caps = binary.NativeEndian.AppendUint32(caps, 0)
	for _, a := range m.sparse {
		caps = binary.NativeEndian.AppendUint64(caps, a.offset)
		caps = binary.NativeEndian.AppendUint64(caps, a.size)
	}
	return m.withCaps(arg, 32, caps, &i.capOffset)
}

func (m *model) mapMemory(iova, size uint64) error {
	switch r := (Range{iova, iova + size - 1}); {
	case !slices.ContainsFunc(m.ranges, func(have Range) bool { return r.Start >= have.Start && r.Last <= have.Last }):
		return unix.EINVAL
	case len(m.maps) >= m.avail:
		return unix.ENOSPC
	case !m.exempt && m.locked+size > m.memlockA:
		return unix.ENOMEM
	}
	for have, n := range m.maps {
		if iova < have+n && have < iova+size {
			return unix.EEXIST
		}
	}
	m.maps[iova] = size
	m.locked += size
	return nil
}

func (m *model) unmapMemory(iova, size uint64) uint64 {
	if m.maps[iova] != size || m.partial {
		return 0
	}
	delete(m.maps, iova)
	m.locked -= size
	m.unmapped++
	return size
}

func (m *model) pread(_ int, b []byte, offset int64) (int, error) {
	return copy(b, m.config[offset-7<<40:]), nil
}

func (m *model) pwrite(_ int, b []byte, offset int64) (int, error) {
	if m.stuckBit {
		b = slices.Clone(b)
		b[0] |= commandBusMaster
	}
	return copy(m.config[offset-7<<40:], b), nil
}

func (m *model) reserve(size uintptr) (unsafe.Pointer, error) {
	return linux{}.reserve(size)
}

// mapAt maps ordinary memory where the device's would be.
func (m *model) mapAt(at unsafe.Pointer, size uintptr, _ int, _ int64) error {
	_, err := unix.MmapPtr(-1, 0, at, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED)
	return err
}

func (m *model) unmap(at unsafe.Pointer, size uintptr) error { return linux{}.unmap(at, size) }

func (m *model) eventfd() (int, error) { return m.add(&modelFD{kind: "eventfd"}), nil }

func (m *model) memlock() (limit, locked uint64, exempt bool) { return m.memlockA, m.locked, m.exempt }

// wantClean checks that everything was given back.
func (m *model) wantClean() {
	m.t.Helper()
	for fd, f := range m.fds {
		m.t.Errorf("descriptor %d is left open: %s %s", fd, f.kind, f.name)
	}
	if len(m.maps) != 0 {
		m.t.Errorf("mappings are left: %v", m.maps)
	}
}

func slabOf(index uint32, base uintptr, size uint64) *memory.Slab {
	return &memory.Slab{Index: index, Base: base, Size: size, PageSize: 2 << 20}
}

func describeMaps(maps map[uint64]uint64) string {
	var keys []uint64
	for k := range maps {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "%#x+%#x ", k, maps[k])
	}
	return b.String()
}
