package config

import (
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"rocet/nvme"
)

// Bounds of values, which what they configure has too.
const (
	minMemory     = 16 << 20
	maxReactors   = 256
	minQueueDepth = 32
	maxDepthRDMA  = 1024 // twice as many receives are shared at least, and 2048 are
	maxDepthTCP   = 4096
	maxInCapsule  = 64 << 10
	defaultMemory = 256 << 20
	minBlock      = 512
	maxBlock      = 64 << 10
	minStripe     = 4 << 10
	maxStripe     = 1 << 30
	maxMembers    = 64
	maxListeners  = 256
	maxNSID       = 1024
	maxSerial     = 20
	maxModel      = 40
)

// check looks for what is well-formed and wrong.
func check(c *Config, d *decoder) {
	x := &checker{decoder: d, drives: map[string]string{}, files: map[string]string{}}
	x.reactors(&c.Reactors)
	size := c.Memory.Size
	if size == 0 {
		size = defaultMemory
	}
	if size < minMemory {
		d.fail("memory.size", "%s is too little: want at least %s, and %s for each reactor", size, Size(minMemory), Size(minMemory))
	} else if n := max(c.Reactors.Count, len(c.Reactors.Cores)); n <= maxReactors && size < Size(n)*minMemory {
		d.fail("memory.size", "%s is too little for %d reactors: want at least %s", size, n, Size(n)*minMemory)
	}
	x.word("memory.hugepages", c.Memory.HugePages, "auto", "require", "never")
	x.word("log.level", c.Log.Level, "debug", "info", "warn", "error")
	x.word("log.format", c.Log.Format, "text", "json")
	if l := c.Metrics.Listen; l != "" && l != "off" {
		_, port, err := net.SplitHostPort(l)
		if err != nil {
			d.fail("metrics.listen", "%q is no address: want HOST:PORT such as 127.0.0.1:9810, or off", l)
		} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			d.fail("metrics.listen", "%q is no port: want a number, 0 for one that the kernel chooses", port)
		}
	}
	x.transport("rdma", c.RDMA.InCapsuleData, c.RDMA.MaxQueueDepth, maxDepthRDMA)
	x.word("rdma.srq", c.RDMA.SRQ, "auto", "on", "off")
	x.transport("tcp", c.TCP.InCapsuleData, c.TCP.MaxQueueDepth, maxDepthTCP)
	x.listeners(c.Listeners)
	if len(c.Subsystems) == 0 {
		d.fail("subsystems", "there is none: hosts would find nothing")
	}
	nqns := map[string]string{}
	for i := range c.Subsystems {
		x.subsystem(&c.Subsystems[i], fmt.Sprintf("subsystems[%d]", i), nqns)
	}
}

// checker remembers what must be there only once.
type checker struct {
	*decoder
	drives map[string]string // by address or serial number and namespace: where
	files  map[string]string
	uuids  map[nvme.UUID]string
}

// word checks a value that is one of a few; empty is the default.
func (x *checker) word(path, value string, allowed ...string) {
	if value != "" && !slices.Contains(allowed, value) {
		x.fail(path, "there is no %q%s", value, suggest(value, allowed))
	}
}

func (x *checker) reactors(r *Reactors) {
	x.word("reactors.mode", r.Mode, "adaptive", "busy", "interrupt")
	if r.Count < 0 || r.Count > maxReactors {
		x.fail("reactors.count", "%d reactors: want 1 to %d", r.Count, maxReactors)
	}
	if r.Count > 0 && len(r.Cores) > 0 && r.Count != len(r.Cores) {
		x.fail("reactors.count", "%d reactors on %d cores: leave count out, or name as many cores", r.Count, len(r.Cores))
	}
	if n := len(r.Cores); n > maxReactors {
		x.fail("reactors.cores", "%d cores: want up to %d", n, maxReactors)
		return
	}
	seen := map[int]bool{}
	for i, core := range r.Cores {
		path := fmt.Sprintf("reactors.cores[%d]", i)
		if core < 0 {
			x.fail(path, "%d is no core: they count from 0", core)
		} else if seen[core] {
			x.fail(path, "core %d is there already: a core has one reactor", core)
		}
		seen[core] = true
	}
	if r.IdleSpin > 0 && (r.Mode == "busy" || r.Mode == "interrupt") {
		x.fail("reactors.idle_spin", "reactors in %s mode don't spin when idle: leave it out, or use adaptive", r.Mode)
	}
}

func (x *checker) transport(name string, inCapsule *Size, depth, most int) {
	if inCapsule != nil && (*inCapsule > maxInCapsule || *inCapsule%16 != 0) {
		x.fail(name+".in_capsule_data", "%s in a capsule: want a multiple of 16 bytes up to %s, or 0 for none", *inCapsule, Size(maxInCapsule))
	}
	if depth != 0 && (depth < minQueueDepth || depth > most) {
		x.fail(name+".max_queue_depth", "%d entries: want %d to %d", depth, minQueueDepth, most)
	}
}

func (x *checker) listeners(all []Listener) {
	if len(all) == 0 {
		x.fail("listeners", "there is none: no host could connect; add {transport: rdma, address: ..., port: 4420}")
	}
	if len(all) > maxListeners {
		x.fail("listeners", "%d listeners: want up to %d; \"*\" listens on every address", len(all), maxListeners)
		return
	}
	type key struct {
		transport string
		addr      netip.Addr
		port      uint16
	}
	var seen []key
	var where []string
	for i, l := range all {
		path := fmt.Sprintf("listeners[%d]", i)
		if l.Transport == "" {
			x.fail(path+".transport", "it is missing: want rdma or tcp")
		}
		x.word(path+".transport", l.Transport, "rdma", "tcp")
		addr, err := listenAddress(l.Address)
		if err != nil {
			x.fail(path+".address", "%v", err)
			continue
		}
		port := l.Port
		if port == 0 {
			port = 4420
		}
		at := key{l.Transport, addr, port}
		for j, other := range seen {
			if other.transport == at.transport && other.port == at.port && overlap(other.addr, at.addr) {
				x.fail(path, "%s port %d is taken by %s%s", name(addr), port, where[j], everything(other.addr))
				break
			}
		}
		seen, where = append(seen, at), append(where, path)
	}
}

func listenAddress(s string) (netip.Addr, error) {
	if s == "" || s == "*" {
		return netip.IPv6Unspecified(), nil
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	if err != nil {
		return a, fmt.Errorf("%q is no IPv4 or IPv6 address: names are not looked up; want one of this machine's addresses, or \"*\" for all", s)
	}
	if a = a.Unmap(); a.IsMulticast() {
		return a, fmt.Errorf("%s is a multicast address: want one of this machine's", a)
	}
	return a, nil
}

func overlap(a, b netip.Addr) bool {
	return a == b || a == netip.IPv6Unspecified() || b == netip.IPv6Unspecified() ||
		a.Is4() == b.Is4() && (a.IsUnspecified() || b.IsUnspecified())
}

func everything(a netip.Addr) string {
	if a.IsUnspecified() {
		return ", which is every address"
	}
	return ""
}

func name(a netip.Addr) string {
	if a == netip.IPv6Unspecified() {
		return "every address,"
	}
	return a.String()
}

func (x *checker) subsystem(s *Subsystem, path string, nqns map[string]string) {
	switch err := nvme.ValidNQN(s.NQN); {
	case s.NQN == "":
		x.fail(path+".nqn", "it is missing: want a name such as nqn.2026-01.com.example:store1")
	case err != nil:
		x.fail(path+".nqn", "%v; want a name such as nqn.2026-01.com.example:store1", err)
	case s.NQN == nvme.DiscoveryNQN:
		x.fail(path+".nqn", "%s is the discovery subsystem's name, which is always there", s.NQN)
	case nqns[s.NQN] != "":
		x.fail(path+".nqn", "%s is the name of %s already", s.NQN, nqns[s.NQN])
	default:
		nqns[s.NQN] = path
	}
	x.ascii(path+".serial", s.Serial, maxSerial)
	x.ascii(path+".model", s.Model, maxModel)
	if s.AllowAnyHost && len(s.Hosts) > 0 {
		x.fail(path+".hosts", "they mean nothing beside allow_any_host: remove one of the two")
	}
	if !s.AllowAnyHost && len(s.Hosts) == 0 && !x.broken[path+".allow_any_host"] {
		x.fail(path+".hosts", "no host may connect: name hosts, or set allow_any_host: true")
	}
	seen := map[string]bool{}
	for i, h := range s.Hosts {
		at := fmt.Sprintf("%s.hosts[%d]", path, i)
		if err := nvme.ValidNQN(h); err != nil {
			x.fail(at, "%v; a Linux host's name is in /etc/nvme/hostnqn", err)
		} else if seen[h] {
			x.fail(at, "%s is there already", h)
		}
		seen[h] = true
	}
	if n := len(s.Namespaces); n > maxNSID {
		x.fail(path+".namespaces", "%d namespaces: want up to %d in a subsystem", n, maxNSID)
		return
	}
	nsids := map[uint32]string{}
	if x.uuids == nil {
		x.uuids = map[nvme.UUID]string{}
	}
	for i := range s.Namespaces {
		x.namespace(&s.Namespaces[i], fmt.Sprintf("%s.namespaces[%d]", path, i), nsids)
	}
}

func (x *checker) ascii(path, s string, limit int) {
	if len(s) > limit {
		x.fail(path, "%q has %d characters: want up to %d", s, len(s), limit)
	}
	if i := strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }); i >= 0 {
		x.fail(path, "%q has a character that is not ASCII", s)
	}
}

func (x *checker) namespace(n *Namespace, path string, nsids map[uint32]string) {
	switch {
	case n.NSID > maxNSID:
		x.fail(path+".nsid", "%d is too large: want 1 to %d", n.NSID, maxNSID)
	case n.NSID != 0 && nsids[n.NSID] != "":
		x.fail(path+".nsid", "%d is the NSID of %s already", n.NSID, nsids[n.NSID])
	default:
		nsids[n.NSID] = path
	}
	if n.UUID != "" {
		u, err := nvme.ParseUUID(n.UUID)
		switch {
		case err != nil:
			x.fail(path+".uuid", "%v", err)
		case u.IsZero():
			x.fail(path+".uuid", "it is zero: leave it out, and one is made of the subsystem's name and the NSID")
		case x.uuids[u] != "":
			x.fail(path+".uuid", "%s is the UUID of %s already", n.UUID, x.uuids[u])
		default:
			x.uuids[u] = path
		}
	}
	if b := n.BlockSize; b != 0 && (bits.OnesCount32(b) != 1 || b < minBlock || b > maxBlock) {
		x.fail(path+".block_size", "%d bytes: want a power of two from %d to %d", b, minBlock, maxBlock)
		n.BlockSize = 0 // said once is enough
	}
	x.backend(&n.Backend, path+".backend", n, false)
}
