package rdma

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/Mellanox/rdmamap"

	"rocet/cgo/verbs"
)

// DeviceInfo describes an RDMA device for people.
type DeviceInfo struct {
	Name        string     `json:"name"`
	Transport   string     `json:"transport,omitempty"` // RoCE, InfiniBand, iWARP
	Driver      string     `json:"driver,omitempty"`
	PCI         string     `json:"pci,omitempty"`
	NUMANode    int        `json:"numa_node"` // -1: none
	Firmware    string     `json:"firmware,omitempty"`
	NodeGUID    string     `json:"node_guid,omitempty"`
	CharDevices []string   `json:"char_devices,omitempty"`
	Netdevs     []string   `json:"netdevs,omitempty"`
	Ports       []PortInfo `json:"ports"`
	Limits      *Limits    `json:"limits,omitempty"` // only with libibverbs
}

// PortInfo describes a port.
type PortInfo struct {
	Number    int       `json:"number"`
	State     string    `json:"state"`
	LinkLayer string    `json:"link_layer,omitempty"`
	RateMbps  int       `json:"rate_mbps,omitempty"`
	ActiveMTU int       `json:"active_mtu,omitempty"` // of RDMA; only with libibverbs
	MaxMTU    int       `json:"max_mtu,omitempty"`
	NetMTU    int       `json:"net_mtu,omitempty"` // of the network device
	GIDs      []GIDInfo `json:"gids"`
}

// GIDInfo is an address of a port.
type GIDInfo struct {
	Index  int    `json:"index"`
	GID    string `json:"gid"`
	Addr   string `json:"addr,omitempty"` // the IP address that it stands for
	Type   string `json:"type,omitempty"` // RoCE v2, RoCE v1, IB
	Netdev string `json:"netdev,omitempty"`
}

// Limits are what bounds connections on a device.
type Limits struct {
	QueuePairs       int    `json:"queue_pairs"`
	QueuePairWRs     int    `json:"queue_pair_wrs"`
	SGEs             int    `json:"sges"`
	SGEsOfRead       int    `json:"sges_of_read"`
	CompletionQueues int    `json:"completion_queues"`
	CompletionDepth  int    `json:"completion_queue_depth"`
	SharedReceives   int    `json:"shared_receive_queues"` // 0: none
	SharedDepth      int    `json:"shared_receive_queue_depth"`
	MemoryRegions    int    `json:"memory_regions"`
	MemoryRegionSize uint64 `json:"memory_region_size"`
	ReadsAsInitiator int    `json:"reads_as_initiator"`
	ReadsAsResponder int    `json:"reads_as_responder"`
	CompletionVecs   int    `json:"completion_vectors"`
	RemoteInvalidate bool   `json:"remote_invalidate"`
}

// Inventory lists the machine's RDMA devices: what sysfs and rdmamap tell, and what
// the libraries add. Without a provider (nil: a build without cgo, or libraries
// that don't load) limits and MTUs are missing.
func Inventory(p verbs.Provider) ([]DeviceInfo, error) {
	return system().inventory(p)
}

// sysinfo is where the inventory comes from.
type sysinfo struct {
	root    string // /sys
	devices func() []string
	ports   func(device string) []string
	chars   func(device string) []string
	netdevs func() map[string][]string // by device
}

func system() sysinfo {
	return sysinfo{
		root: "/sys", devices: rdmamap.GetRdmaDeviceList, ports: rdmamap.GetPorts, chars: rdmamap.GetRdmaCharDevices,
		netdevs: func() map[string][]string {
			out := make(map[string][]string)
			ifs, _ := net.Interfaces() // none if it fails: GIDs name most of them too
			for _, i := range ifs {
				if i.Flags&net.FlagLoopback != 0 {
					continue
				}
				if dev, err := rdmamap.GetRdmaDeviceForNetdevice(i.Name); err == nil && dev != "" {
					out[dev] = append(out[dev], i.Name)
				}
			}
			return out
		},
	}
}

func (s sysinfo) inventory(p verbs.Provider) (out []DeviceInfo, err error) {
	defer func() {
		for i := range out {
			out[i].finish()
		}
	}()
	if names := s.devices(); len(names) > 0 {
		slices.Sort(names)
		netdevs := s.netdevs()
		for _, name := range names {
			d := s.device(name)
			d.Netdevs = netdevs[name]
			out = append(out, d)
		}
	}
	if p == nil {
		return out, nil
	}
	vs, err := p.Devices()
	if err != nil {
		if len(out) > 0 {
			return out, fmt.Errorf("rdma: the devices' limits: %w", err)
		}
		return nil, fmt.Errorf("rdma: %w", err)
	}
	for _, v := range vs {
		i := slices.IndexFunc(out, func(d DeviceInfo) bool { return d.Name == v.Name() })
		if i < 0 {
			i = len(out)
			out = append(out, DeviceInfo{Name: v.Name(), NUMANode: v.NUMANode()})
		}
		if err := addVerbs(&out[i], v); err != nil {
			return out, err
		}
	}
	return out, nil
}

// device reads what sysfs has.
func (s sysinfo) device(name string) DeviceInfo {
	dir := filepath.Join(s.root, "class/infiniband", name)
	d := DeviceInfo{Name: name, NUMANode: -1, Firmware: text(dir, "fw_ver"), NodeGUID: text(dir, "node_guid"), CharDevices: s.chars(name)}
	if n, err := strconv.Atoi(text(dir, "device/numa_node")); err == nil {
		d.NUMANode = n
	}
	if link, err := filepath.EvalSymlinks(filepath.Join(dir, "device")); err == nil {
		if name := filepath.Base(link); strings.Count(name, ":") == 2 {
			d.PCI = name
		}
	}
	if link, err := os.Readlink(filepath.Join(dir, "device/driver")); err == nil {
		d.Driver = filepath.Base(link)
	}
	_, kind, _ := strings.Cut(text(dir, "node_type"), ": ")
	if kind == "RNIC" {
		d.Transport = "iWARP"
	}
	numbers := s.ports(name)
	slices.Sort(numbers)
	for _, n := range numbers {
		if number, err := strconv.Atoi(n); err == nil {
			d.Ports = append(d.Ports, s.port(filepath.Join(dir, "ports", n), number))
		}
	}
	return d
}

func (s sysinfo) port(dir string, number int) PortInfo {
	p := PortInfo{Number: number, LinkLayer: text(dir, "link_layer"), GIDs: []GIDInfo{}}
	_, p.State, _ = strings.Cut(text(dir, "state"), ": ") // "4: ACTIVE"
	p.State = strings.ToLower(p.State)
	if rate, _, ok := strings.Cut(text(dir, "rate"), " "); ok { // "100 Gb/sec (4X EDR)"
		if f, err := strconv.ParseFloat(rate, 64); err == nil {
			p.RateMbps = int(f * 1000)
		}
	}
	entries, _ := os.ReadDir(filepath.Join(dir, "gids")) // a port without has none
	for _, e := range entries {
		i, err := strconv.Atoi(e.Name())
		raw, err2 := hex.DecodeString(strings.ReplaceAll(text(dir, "gids/"+e.Name()), ":", ""))
		if err != nil || err2 != nil || len(raw) != 16 || [16]byte(raw) == ([16]byte{}) {
			continue
		}
		g := gidInfo(i, [16]byte(raw), gidTypeName(text(dir, "gid_attrs/types/"+e.Name())), text(dir, "gid_attrs/ndevs/"+e.Name()))
		p.GIDs = append(p.GIDs, g)
		if mtu, err := strconv.Atoi(text(s.root, "class/net/"+g.Netdev+"/mtu")); err == nil && g.Netdev != "" {
			p.NetMTU = mtu
		}
	}
	slices.SortFunc(p.GIDs, func(a, b GIDInfo) int { return a.Index - b.Index })
	return p
}

// gidTypeName says what sysfs calls IB/RoCE v1 on Ethernet and InfiniBand alike.
func gidTypeName(s string) string {
	if s == "IB/RoCE v1" {
		return "RoCE v1"
	}
	return s
}

func gidInfo(index int, raw [16]byte, kind, netdev string) GIDInfo {
	g := GIDInfo{Index: index, Type: kind, Netdev: netdev}
	a := netip.AddrFrom16(raw)
	g.GID = a.StringExpanded()
	if a.Is4In6() {
		g.GID = fmt.Sprintf("0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", raw[12], raw[13], raw[14], raw[15])
	}
	if kind != "IB" {
		g.Addr = a.Unmap().String()
	}
	return g
}

// text is a file of sysfs without its newline; "" if it can't be read.
func text(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// addVerbs adds what the libraries know of a device, which is more exact.
func addVerbs(d *DeviceInfo, v verbs.Device) error {
	a := v.Attr()
	if a.Firmware != "" {
		d.Firmware = a.Firmware
	}
	if d.NodeGUID == "" {
		g := a.NodeGUID
		d.NodeGUID = fmt.Sprintf("%04x:%04x:%04x:%04x", g>>48, g>>32&0xffff, g>>16&0xffff, g&0xffff)
	}
	if a.Transport == verbs.TransportIWARP {
		d.Transport = "iWARP"
	}
	d.Limits = &Limits{
		QueuePairs: a.MaxQP, QueuePairWRs: a.MaxQPWR, SGEs: a.MaxSGE, SGEsOfRead: a.MaxSGERd,
		CompletionQueues: a.MaxCQ, CompletionDepth: a.MaxCQE, SharedReceives: a.MaxSRQ, SharedDepth: a.MaxSRQWR,
		MemoryRegions: a.MaxMR, MemoryRegionSize: a.MaxMRSize,
		ReadsAsInitiator: a.MaxQPInitRdAtom, ReadsAsResponder: a.MaxQPRdAtom,
		CompletionVecs: a.CompVectors, RemoteInvalidate: a.Flags&verbs.DeviceMemMgtExtensions != 0,
	}
	for n := 1; n <= a.Ports; n++ {
		i := slices.IndexFunc(d.Ports, func(p PortInfo) bool { return p.Number == n })
		if i < 0 {
			i = len(d.Ports)
			d.Ports = append(d.Ports, PortInfo{Number: n, GIDs: []GIDInfo{}})
		}
		p := &d.Ports[i]
		attr, err := v.Port(n)
		if err != nil {
			return fmt.Errorf("rdma: device %s, port %d: %w", d.Name, n, err)
		}
		p.State = strings.ToLower(attr.State.String())
		p.ActiveMTU, p.MaxMTU = attr.ActiveMTU, attr.MaxMTU
		if p.RateMbps == 0 {
			p.RateMbps = attr.ActiveMbps
		}
		if p.LinkLayer == "" {
			p.LinkLayer = attr.LinkLayer.String()
		}
		gids, err := v.GIDs(n)
		if err != nil {
			return fmt.Errorf("rdma: device %s, port %d, addresses: %w", d.Name, n, err)
		}
		if len(gids) > 0 {
			p.GIDs = p.GIDs[:0]
		}
		for _, g := range gids {
			p.GIDs = append(p.GIDs, gidInfo(g.Index, g.Raw, g.Type.String(), g.Netdev))
		}
	}
	return nil
}

// finish derives what follows from the rest.
func (d *DeviceInfo) finish() {
	for _, p := range d.Ports {
		if d.Transport == "" {
			switch p.LinkLayer {
			case "Ethernet":
				d.Transport = "RoCE"
			case "InfiniBand":
				d.Transport = "InfiniBand"
			}
		}
		for _, g := range p.GIDs {
			if g.Netdev != "" && !slices.Contains(d.Netdevs, g.Netdev) {
				d.Netdevs = append(d.Netdevs, g.Netdev)
			}
		}
	}
}
