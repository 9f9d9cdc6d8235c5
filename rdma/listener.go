package rdma

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"rocet/cgo/verbs"
	"rocet/nvme"
	"rocet/target"
)

// listenBacklog is how many connect requests may wait in the kernel.
const listenBacklog = 1024

// Listener is an address and port that hosts connect to. Its goroutine binds it,
// again and again while the address isn't up, and anew when it moved or its device
// went away.
type Listener struct {
	t    *Transport
	addr netip.AddrPort

	rebind chan string // why
	stop   chan struct{}
	done   chan struct{}

	mu  sync.Mutex
	id  verbs.ID
	tl  *target.Listener
	err error // why it is not bound
}

// Listen serves an address and port. The address is IPv4 or IPv6, with a zone if it
// is link-local; empty or "*" is every address. An address that isn't up yet is no
// error: the listener waits for it.
func (t *Transport) Listen(addr string, port uint16) (*Listener, error) {
	ap, err := parseAddr(addr, port)
	if err != nil {
		return nil, err
	}
	l := &Listener{t: t, addr: ap, rebind: make(chan string, 1), stop: make(chan struct{}), done: make(chan struct{})}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil, errors.New("rdma: the transport is closed")
	}
	t.listeners[l] = struct{}{}
	t.mu.Unlock()
	if err := l.bind(); err != nil {
		if !transient(err) {
			t.mu.Lock()
			delete(t.listeners, l)
			t.mu.Unlock()
			close(l.done)
			return nil, fmt.Errorf("rdma: listen on %s: %w", ap, err)
		}
		t.log.Warn("the address can't be listened on yet; trying again", "address", ap.String(), "error", err)
	}
	go l.run()
	return l, nil
}

func parseAddr(addr string, port uint16) (netip.AddrPort, error) {
	if addr == "" || addr == "*" {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), port), nil
	}
	a, err := netip.ParseAddr(strings.Trim(addr, "[]"))
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("rdma: listen on %q: want an IPv4 or IPv6 address: %w", addr, err)
	}
	if port == 0 {
		return netip.AddrPort{}, fmt.Errorf("rdma: listen on %s: port 0 says nothing to hosts: name one, 4420 is NVMe's", addr)
	}
	return netip.AddrPortFrom(a.Unmap(), port), nil
}

// transient tells whether another attempt may go better.
func transient(err error) bool {
	for _, e := range []syscall.Errno{
		syscall.EADDRNOTAVAIL, syscall.ENODEV, syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EAGAIN, syscall.EBUSY, syscall.ENOMEM, syscall.EIO, syscall.ENXIO,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Addr is the address as it was given.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Err is why the listener is not bound at the moment, nil if it is.
func (l *Listener) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Close stops listening. The connections that came in here end: to their hosts it
// is a path that is lost.
func (l *Listener) Close() {
	l.t.mu.Lock()
	_, here := l.t.listeners[l]
	delete(l.t.listeners, l)
	l.t.mu.Unlock()
	if !here {
		<-l.done
		return
	}
	close(l.stop)
	<-l.done
	if tl := l.known(); tl != nil {
		l.t.target.RemoveListener(tl)
	}
}

// known is what the target knows the listener as.
func (l *Listener) known() *target.Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tl
}

// run keeps the listener bound.
func (l *Listener) run() {
	defer close(l.done)
	defer l.unbind()
	timer := time.NewTimer(0)
	defer timer.Stop()
	said := ""
	if err := l.Err(); err != nil {
		said = err.Error()
	}
	for {
		var again <-chan time.Time
		if l.Err() != nil {
			timer.Reset(l.t.cfg.RetryInterval)
			again = timer.C
		}
		select {
		case <-l.stop:
			return
		case why := <-l.rebind:
			if l.Err() == nil {
				l.t.log.Warn("listening anew", "address", l.addr.String(), "reason", why)
			}
			l.unbind()
		case <-again:
		}
		switch err := l.bind(); {
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			l.t.log.Warn("the address can't be listened on yet; trying again", "address", l.addr.String(), "error", err)
		}
	}
}

// bind makes the id that listens.
func (l *Listener) bind() (err error) {
	defer func() {
		l.mu.Lock()
		l.err = err
		l.mu.Unlock()
	}()
	id, err := l.t.channel.NewID()
	if err != nil {
		return err
	}
	id.SetContext(l)
	if err = id.SetReuseAddr(true); err == nil {
		err = id.Bind(l.addr)
	}
	if err == nil {
		err = id.Listen(listenBacklog)
	}
	if err == nil {
		err = l.announce(id)
	}
	if err != nil {
		destroyID(id, l.t.log)
		return err
	}
	l.mu.Lock()
	l.id = id
	l.mu.Unlock()
	l.t.log.Info("listening", "transport", "rdma", "address", l.addr.String())
	return nil
}

// announce makes the listener known to the target, the first time it is bound.
func (l *Listener) announce(id verbs.ID) error {
	if l.known() != nil {
		return nil
	}
	fam := nvme.AddressIPv4
	if l.addr.Addr().Is6() {
		fam = nvme.AddressIPv6
	}
	tl, err := l.t.target.AddListener(target.ListenerInfo{
		TrType: nvme.TransportRDMA, AdrFam: fam,
		TrAddr: l.addr.Addr().String(), TrSvcID: strconv.Itoa(int(l.addr.Port())),
		TSAS:          nvme.RDMATSAS(nvme.RDMAQPTypeConnected, l.t.providerType(id), nvme.RDMACMSRDMACM, 0),
		InCapsuleData: uint32(l.t.cfg.InCapsuleData),
		MaxQueueDepth: l.t.maxDepth(),
		MSDBD:         uint8(l.t.cfg.descriptors()),
		SGLS:          nvme.SGLSSupported | nvme.SGLSKeyed | nvme.SGLSOffset,
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tl = tl
	return err
}

// unbind destroys the id that listens.
func (l *Listener) unbind() {
	l.mu.Lock()
	id := l.id
	l.id = nil
	l.mu.Unlock()
	if id != nil {
		destroyID(id, l.t.log)
	}
}

// event takes an rdma_cm event, on the event loop.
func (l *Listener) event(ev *verbs.Event) {
	switch ev.Type {
	case verbs.EventDeviceRemoval:
		l.t.deviceGone(ev.ID.Device(), "it was removed")
		l.again("its device is gone")
	case verbs.EventAddrChange:
		l.again("its address moved")
	}
}

func (l *Listener) again(why string) {
	select {
	case l.rebind <- why:
	default:
	}
}

// deviceGone binds anew if the listener's device is the one that is lost.
func (l *Listener) deviceGone(v verbs.Device) {
	l.mu.Lock()
	on := l.id != nil && l.id.Device() == v
	l.mu.Unlock()
	if on {
		l.again("its device is gone")
	}
}

// maxDepth is the deepest queue that every present device can have.
func (t *Transport) maxDepth() uint16 {
	depth := t.cfg.MaxQueueDepth
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range t.devices {
		depth = min(depth, d.attr.MaxQPWR/4)
	}
	return uint16(max(2, depth))
}

// providerType is the RDMA provider type of a discovery log entry.
func (t *Transport) providerType(id verbs.ID) uint8 {
	v := id.Device()
	if v == nil {
		return nvme.RDMAProviderRoCEv2 // a wildcard: the usual case
	}
	if v.Attr().Transport == verbs.TransportIWARP {
		return nvme.RDMAProviderIWARP
	}
	if p, err := v.Port(max(1, id.PortNum())); err == nil && p.LinkLayer == verbs.LinkInfiniBand {
		return nvme.RDMAProviderInfiniBand
	}
	return nvme.RDMAProviderRoCEv2
}

// String is the listener as people write it.
func (l *Listener) String() string {
	return "rdma " + net.JoinHostPort(l.addr.Addr().String(), strconv.Itoa(int(l.addr.Port())))
}
