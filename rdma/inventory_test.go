package rdma

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	"rocet/cgo/verbs/fake"
)

// fakeSys writes a sysfs with one Soft-RoCE-like device on a PCI function.
func fakeSys(t *testing.T) sysinfo {
	t.Helper()
	root := t.TempDir()
	write := func(name, s string) {
		t.Helper()
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(s+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, name string) {
		t.Helper()
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, p); err != nil {
			t.Fatal(err)
		}
	}
	pci := "devices/pci0000:00/0000:3b:00.0"
	write(pci+"/numa_node", "1")
	link("../../../bus/pci/drivers/mlx5_core", pci+"/driver")
	ib := "class/infiniband/mlx5_0"
	link(filepath.Join(root, pci), ib+"/device")
	write(ib+"/fw_ver", "22.35.1012")
	write(ib+"/node_guid", "b83f:d203:0012:3456")
	write(ib+"/node_type", "1: CA")
	p := ib + "/ports/1"
	write(p+"/state", "4: ACTIVE")
	write(p+"/rate", "100 Gb/sec (4X EDR)")
	write(p+"/link_layer", "Ethernet")
	for i, g := range []string{
		"fe80:0000:0000:0000:ba3f:d2ff:fe12:3456", "0000:0000:0000:0000:0000:ffff:0a09:0001", "0000:0000:0000:0000:0000:0000:0000:0000",
	} {
		n := string(rune('0' + i))
		write(p+"/gids/"+n, g)
		write(p+"/gid_attrs/types/"+n, []string{"IB/RoCE v1", "RoCE v2", ""}[i])
		write(p+"/gid_attrs/ndevs/"+n, []string{"eth1", "eth1", ""}[i])
	}
	write("class/net/eth1/mtu", "9000")
	return sysinfo{
		root:    root,
		devices: func() []string { return []string{"mlx5_0"} },
		ports:   func(string) []string { return []string{"1"} },
		chars:   func(string) []string { return []string{"/dev/infiniband/uverbs0"} },
		netdevs: func() map[string][]string { return nil },
	}
}

func TestInventorySysfs(t *testing.T) {
	got, err := fakeSys(t).inventory(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []DeviceInfo{{
		Name: "mlx5_0", Transport: "RoCE", Driver: "mlx5_core", PCI: "0000:3b:00.0", NUMANode: 1,
		Firmware: "22.35.1012", NodeGUID: "b83f:d203:0012:3456",
		CharDevices: []string{"/dev/infiniband/uverbs0"}, Netdevs: []string{"eth1"},
		Ports: []PortInfo{{
			Number: 1, State: "active", LinkLayer: "Ethernet", RateMbps: 100000, NetMTU: 9000,
			GIDs: []GIDInfo{
				{0, "fe80:0000:0000:0000:ba3f:d2ff:fe12:3456", "fe80::ba3f:d2ff:fe12:3456", "RoCE v1", "eth1"},
				{1, "0000:0000:0000:0000:0000:ffff:0a09:0001", "10.9.0.1", "RoCE v2", "eth1"},
			},
		}},
	}}
	if !reflect.DeepEqual(got, want) {
		g, _ := json.MarshalIndent(got, "", " ")
		w, _ := json.MarshalIndent(want, "", " ")
		t.Errorf("got %s\nwant %s", g, w)
	}
}

// TestInventoryHere runs against the machine as it is: whatever there is, it must
// not fail without a provider.
func TestInventoryHere(t *testing.T) {
	ds, err := Inventory(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range ds {
		if d.Name == "" || d.Limits != nil {
			t.Errorf("%+v", d)
		}
	}
}

// TestInventoryVerbs adds what the libraries know, to a device that sysfs shows and
// to one that it doesn't.
func TestInventoryVerbs(t *testing.T) {
	f := fake.New(fake.Config{Devices: []fake.DeviceConfig{
		{Name: "mlx5_0", Addrs: []netip.Addr{netip.MustParseAddr("10.9.0.1")}, NUMANode: 1},
		{Name: "shm0", Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, NUMANode: -1},
	}})
	defer f.Close()
	ds, err := fakeSys(t).inventory(f)
	if err != nil || len(ds) != 2 {
		t.Fatalf("%d devices, %v", len(ds), err)
	}
	for i, d := range ds {
		if d.Limits == nil || d.Limits.SGEs != 30 || !d.Limits.RemoteInvalidate || len(d.Ports) != 1 {
			t.Errorf("%s: %+v", d.Name, d)
			continue
		}
		p := d.Ports[0]
		if p.ActiveMTU != 4096 || p.State != "active" || len(p.GIDs) != 1 || p.GIDs[0].Type != "RoCE v2" || p.GIDs[0].Addr != []string{"10.9.0.1", "127.0.0.1"}[i] {
			t.Errorf("%s: %+v", d.Name, p)
		}
		if d.Transport != "RoCE" || d.NUMANode != []int{1, -1}[i] {
			t.Errorf("%s: transport %q on node %d", d.Name, d.Transport, d.NUMANode)
		}
	}
	f.Fail("rdma_get_devices", syscall.ENODEV, 0, 1)
	if ds, err := fakeSys(t).inventory(f); err == nil || len(ds) != 1 {
		t.Errorf("without the libraries: %d devices, %v", len(ds), err)
	}
}
