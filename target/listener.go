package target

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"rocet/nvme"
)

// ListenerInfo says where a transport listens and what its connections can do.
type ListenerInfo struct {
	TrType  nvme.TransportType
	AdrFam  nvme.AddressFamily
	TrAddr  string // may be a wildcard such as 0.0.0.0: then entries name the address that the host used
	TrSvcID string
	TSAS    nvme.TSAS
	TREQ    uint8 // security bits; the target adds what it does itself

	InCapsuleData uint32 // bytes of data in a command capsule of an I/O queue: IOCCSZ
	MaxQueueDepth uint16 // entries of a queue, where the transport has fewer than the target; 0: as the target
	MSDBD         uint8  // data block descriptors in a command; 0: 1
	SGLS          uint32 // Identify Controller's SGLS (nvme.SGLSSupported and so on)
}

// Listener is an address that hosts can connect to: a port of the discovery log.
type Listener struct {
	info    ListenerInfo
	id      uint16
	removed bool // under Target.conns
}

// Info is what the listener was made of.
func (l *Listener) Info() ListenerInfo { return l.info }

// PortID is PORTID of the listener's discovery log entries.
func (l *Listener) PortID() uint16 { return l.id }

func (l *Listener) String() string {
	return fmt.Sprintf("%s %s", l.info.TrType, net.JoinHostPort(l.info.TrAddr, l.info.TrSvcID))
}

// wildcard tells whether the address stands for every address of the machine.
func (l *Listener) wildcard() bool {
	a, err := netip.ParseAddr(l.info.TrAddr)
	return err == nil && a.IsUnspecified()
}

// AddListener makes an address known to discovery and to NewQueue. Every
// subsystem without listeners of its own is reachable there from now on.
func (t *Target) AddListener(info ListenerInfo) (*Listener, error) {
	if len(info.TrAddr) > 256 || len(info.TrSvcID) > 32 {
		return nil, fmt.Errorf("listener %s port %s: longer than a discovery log entry holds", info.TrAddr, info.TrSvcID)
	}
	if info.MSDBD == 0 {
		info.MSDBD = 1
	}
	if info.SGLS == 0 {
		info.SGLS = nvme.SGLSSupported
	}
	if info.MaxQueueDepth == 0 || info.MaxQueueDepth > t.opts.MaxQueueDepth {
		info.MaxQueueDepth = t.opts.MaxQueueDepth
	}
	if info.MaxQueueDepth < nvme.DiscoveryASQSZMin {
		return nil, fmt.Errorf("listener %s port %s: queues of %d entries: want at least %d, the smallest admin queue",
			info.TrAddr, info.TrSvcID, info.MaxQueueDepth, nvme.DiscoveryASQSZMin)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	l := &Listener{info: info, id: 1}
	for _, other := range t.listeners {
		if other.info.TrType == info.TrType && other.info.TrAddr == info.TrAddr && other.info.TrSvcID == info.TrSvcID {
			return nil, fmt.Errorf("listener %s: there already", other)
		}
		if other.id == l.id { // sorted by id: the first gap is taken
			l.id++
		}
	}
	t.listeners = append(t.listeners, l)
	slices.SortFunc(t.listeners, func(a, b *Listener) int { return int(a.id) - int(b.id) })
	t.discoveryChanged()
	t.log.Info("listener added", "listener", l.String(), "port", l.id)
	return l, nil
}

// RemoveListener takes an address out of discovery and ends the connections that
// came in there: to their hosts it is a path that is lost.
func (t *Target) RemoveListener(l *Listener) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns.Lock()
	was := l.removed
	l.removed = true
	t.conns.Unlock()
	if was {
		return
	}
	t.listeners = slices.DeleteFunc(t.listeners, func(x *Listener) bool { return x == l })
	for _, s := range t.subsystems {
		s.dropListener(l)
	}
	t.endQueues(ErrListenerRemoved, func(q *Queue) bool { return q.listener == l })
	t.discoveryChanged()
	t.log.Info("listener removed", "listener", l.String(), "port", l.id)
}

// Listeners returns the listeners by port id.
func (t *Target) Listeners() []*Listener {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.listeners)
}
