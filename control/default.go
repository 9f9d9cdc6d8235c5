package control

import (
	"fmt"
	"net/netip"

	"rocet/control/config"
	"rocet/rdma"
)

const (
	// DefaultNQN is the subsystem that is served without a configuration.
	DefaultNQN = "nqn.2026-01.io.rocet:default"
	// DefaultSize is its namespace's size in bytes.
	DefaultSize = 256 << 20
)

// Default is the configuration that is served without one: a namespace in memory, reachable by any host on every RDMA
// device that has an IP address, and over TCP from this machine. What is missing for RDMA it says with the remedy.
func Default(devices []rdma.DeviceInfo, size uint64) (cfg *config.Config, missing []string) {
	cfg = &config.Config{
		Subsystems: []config.Subsystem{{
			NQN: DefaultNQN, AllowAnyHost: true,
			Namespaces: []config.Namespace{{NSID: 1, Backend: config.Backend{Type: "memory", Size: config.Size(size)}, BlockSize: defaultBlockSize}},
		}},
	}
	if len(devices) == 0 {
		missing = append(missing, "no RDMA device: load the NIC's driver (mlx5_ib for ConnectX; Debian's rdma-core brings the user-space part), "+
			"or make a Soft-RoCE device on a network interface with scripts/rxe-up IFACE")
	}
	seen := map[string]bool{}
	for i := range devices {
		d := &devices[i]
		addrs := addresses(d)
		if len(addrs) == 0 {
			missing = append(missing, fmt.Sprintf("RDMA device %s has no IP address on an active port: ip addr add ADDRESS/LENGTH dev %s",
				d.Name, netdev(d)))
		}
		for _, a := range addrs {
			if !seen[a] {
				seen[a] = true
				cfg.Listeners = append(cfg.Listeners, config.Listener{Transport: "rdma", Address: a, Port: DefaultPort})
			}
		}
	}
	cfg.Listeners = append(cfg.Listeners, config.Listener{Transport: "tcp", Address: "127.0.0.1", Port: DefaultPort})
	return cfg, missing
}

// addresses are those that hosts can reach a device by: of its RoCE v2 GIDs, and not link-local.
func addresses(d *rdma.DeviceInfo) []string {
	var out []string
	for _, p := range d.Ports {
		if p.State != "" && p.State != "active" {
			continue
		}
		for _, g := range p.GIDs {
			a, err := netip.ParseAddr(g.Addr)
			if err != nil || a.IsLinkLocalUnicast() || a.IsUnspecified() || g.Type == "RoCE v1" {
				continue
			}
			out = append(out, a.Unmap().String())
		}
	}
	return out
}

func netdev(d *rdma.DeviceInfo) string {
	if len(d.Netdevs) > 0 {
		return d.Netdevs[0]
	}
	return "INTERFACE"
}
