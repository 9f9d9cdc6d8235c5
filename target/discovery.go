package target

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"rocet/nvme"
)

// discoveryChanged counts a change of what hosts can discover, and tells those
// whose discovery controller stays connected. Target.mu is held.
func (t *Target) discoveryChanged() {
	t.genctr++
	for _, c := range t.discovery.controllers {
		if c.feat.kato != 0 {
			c.raise(eventDiscovery)
		}
	}
}

// discoveryLog is the Discovery log: Base 2.1 section 5.1.12.3.1. A host reads it
// in pieces, the header first and once more at the end; the pieces belong together
// because they are cut from what was made when it last read from the beginning.
func (x *control) discoveryLog() ([]byte, bool) {
	c := x.c
	portLocal := x.cmd.LSP()&nvme.DiscoveryLSPPortLocal != 0
	if x.cmd.LSP()&^uint8(nvme.DiscoveryLSPPortLocal) != 0 {
		x.failAt(nvme.StatusInvalidField, locCDW10+1)
		return nil, false
	}
	if x.cmd.LogOffset() == 0 || c.discLog == nil {
		c.discLog = c.makeDiscoveryLog(portLocal)
	}
	return c.discLog, true
}

// makeDiscoveryLog lists what the host may see: this discovery service, and the
// subsystems that it is allowed to, at each of their addresses.
func (c *Controller) makeDiscoveryLog(portLocal bool) []byte {
	t := c.target
	t.mu.Lock()
	defer t.mu.Unlock()
	log := nvme.DiscoveryLog{GENCTR: t.genctr}
	subs := slices.SortedFunc(maps.Values(t.subsystems), func(a, b *Subsystem) int { return cmp.Compare(a.nqn, b.nqn) })
	for _, l := range t.listeners {
		addr, family, ok := c.reachableAddress(l)
		if !ok || portLocal && l != c.listener {
			continue
		}
		if l == c.listener {
			e := t.discoveryEntry(l, addr, family, nvme.DiscoveryNQN, nvme.SubsystemCurrentDiscovery)
			e.EFLAGS = nvme.EFLAGSPersistentConnection
			log.Entries = append(log.Entries, e)
		}
		for _, s := range subs {
			if s.allowed(c.host.NQN) && s.reachable(l) {
				log.Entries = append(log.Entries, t.discoveryEntry(l, addr, family, s.nqn, nvme.SubsystemNVM))
			}
		}
	}
	b := make([]byte, log.Size())
	log.MarshalTo(b)
	return b
}

// reachableAddress is the address of a listener as this host can use it: for a
// wildcard, the one that the host came in at. A listener on loopback is of no use
// to a host from elsewhere.
func (c *Controller) reachableAddress(l *Listener) (string, nvme.AddressFamily, bool) {
	own, err := netip.ParseAddr(c.localAddr)
	own = own.Unmap()
	if l.wildcard() {
		family := nvme.AddressIPv6
		if own.Is4() {
			family = nvme.AddressIPv4
		}
		// A wildcard of IPv6 may take IPv4 as well; that one did shows in the host's own.
		return own.String(), family, err == nil && (family == l.info.AdrFam || l == c.listener)
	}
	if a, perr := netip.ParseAddr(l.info.TrAddr); perr == nil && err == nil && a.IsLoopback() && !own.IsLoopback() {
		return "", 0, false
	}
	return l.info.TrAddr, l.info.AdrFam, true
}

func (t *Target) discoveryEntry(l *Listener, addr string, family nvme.AddressFamily, nqn string, kind nvme.SubsystemType) nvme.DiscoveryEntry {
	e := nvme.DiscoveryEntry{
		TRTYPE:  l.info.TrType,
		ADRFAM:  family,
		SUBTYPE: kind,
		TREQ:    l.info.TREQ | nvme.TREQDisableSQFlow,
		PORTID:  l.id,
		CNTLID:  nvme.CNTLIDDynamic,
		ASQSZ:   max(l.info.MaxQueueDepth, nvme.DiscoveryASQSZMin),
		SUBNQN:  nvme.MakeNQNField(nqn),
		TSAS:    l.info.TSAS,
	}
	nvme.PutASCII(e.TRADDR[:], addr)
	nvme.PutASCII(e.TRSVCID[:], l.info.TrSvcID)
	return e
}
