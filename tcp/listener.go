package tcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rocet/nvme"
	"rocet/target"
)

// acceptPause is how long accepting rests when there are no descriptors or no memory
// for another connection.
const acceptPause = 50 * time.Millisecond

// Listener is an address and port that hosts connect to. Its goroutine binds it,
// again and again while the address isn't up, and accepts.
type Listener struct {
	t    *Transport
	stop chan struct{}
	done chan struct{}

	mu   sync.Mutex
	addr netip.AddrPort
	file *os.File // the socket
	tl   *target.Listener
	err  error // why it is not bound
}

// Listen serves an address and port. The address is IPv4 or IPv6, with a zone if it
// is link-local; empty or "*" is every address. An address that isn't up yet is no
// error: the listener waits for it. Port 0 is one that the kernel chooses.
func (t *Transport) Listen(addr string, port uint16) (*Listener, error) {
	ap, err := parseAddr(addr, port)
	if err != nil {
		return nil, err
	}
	l := &Listener{t: t, addr: ap, stop: make(chan struct{}), done: make(chan struct{})}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil, errors.New("tcp: the transport is closed")
	}
	t.listeners[l] = struct{}{}
	t.mu.Unlock()
	if err := l.bind(); err != nil {
		if !transient(err) {
			t.mu.Lock()
			delete(t.listeners, l)
			t.mu.Unlock()
			close(l.done)
			return nil, fmt.Errorf("tcp: listen on %s: %w", ap, err)
		}
		t.log.Warn("the address can't be listened on yet; trying again", "address", ap.String(), "error", err)
	}
	go l.run()
	return l, nil
}

// Addr is where it listens.
func (l *Listener) Addr() netip.AddrPort {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addr
}

// Err is why the listener is not bound at the moment, nil if it is.
func (l *Listener) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// String is the listener as people write it.
func (l *Listener) String() string { return "tcp " + l.Addr().String() }

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
	l.mu.Lock()
	if l.file != nil {
		_ = l.file.Close()
	}
	l.mu.Unlock()
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

// bind makes the socket and makes the listener known to the target.
func (l *Listener) bind() (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.err = err }()
	select {
	case <-l.stop:
		return net.ErrClosed // Close was here already: it would not close this socket
	default:
	}
	fd, err := listenSocket(l.addr, &l.t.cfg)
	if err != nil {
		return err
	}
	if sa, err := unix.Getsockname(fd); err == nil && l.addr.Port() == 0 {
		l.addr = netip.AddrPortFrom(l.addr.Addr(), addrPort(sa).Port())
	}
	if l.tl == nil {
		if l.tl, err = l.t.target.AddListener(l.info()); err != nil {
			_ = unix.Close(fd)
			return err
		}
	}
	l.file = os.NewFile(uintptr(fd), l.addr.String())
	l.t.log.Info("listening", "transport", "tcp", "address", l.addr.String())
	return nil
}

// info is what the discovery log says of the listener.
func (l *Listener) info() target.ListenerInfo {
	fam := nvme.AddressIPv4
	if l.addr.Addr().Is6() {
		fam = nvme.AddressIPv6
	}
	return target.ListenerInfo{
		TrType: nvme.TransportTCP, AdrFam: fam,
		TrAddr: l.addr.Addr().String(), TrSvcID: strconv.Itoa(int(l.addr.Port())),
		TSAS:          nvme.TCPTSAS(nvme.TCPSecurityNone),
		InCapsuleData: uint32(l.t.cfg.InCapsuleData),
		MaxQueueDepth: uint16(l.t.cfg.MaxQueueDepth),
		MSDBD:         1,
		SGLS:          nvme.SGLSSupported | nvme.SGLSOffset | nvme.SGLSTransportBlock,
	}
}

// run keeps the listener bound, and accepts.
func (l *Listener) run() {
	defer close(l.done)
	for {
		if l.Err() == nil {
			err := l.accept()
			l.unbind(err)
			if l.rest(0) {
				return
			}
			l.t.log.Warn("listening anew", "address", l.Addr().String(), "error", err)
		}
		if l.rest(l.t.cfg.RetryInterval) {
			l.unbind(nil)
			return
		}
		_ = l.bind()
	}
}

// rest waits, and returns true if the listener is closed.
func (l *Listener) rest(d time.Duration) bool {
	if d == 0 {
		select {
		case <-l.stop:
			return true
		default:
			return false
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.stop:
		return true
	case <-timer.C:
		return false
	}
}

func (l *Listener) unbind(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
		l.err = err
	}
}

// accept takes connections until the socket is closed or broken.
func (l *Listener) accept() error {
	l.mu.Lock()
	file := l.file
	l.mu.Unlock()
	rc, err := file.SyscallConn()
	if err != nil {
		return err
	}
	for {
		var fd int
		var sa unix.Sockaddr
		var errno error
		if err := rc.Read(func(lfd uintptr) bool {
			fd, sa, errno = unix.Accept4(int(lfd), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			return errno != unix.EAGAIN && errno != unix.EINTR
		}); err != nil {
			return err
		}
		switch errno {
		case nil:
			l.accepted(fd, sa)
		case unix.ECONNABORTED, unix.EPROTO, unix.EPERM, unix.ENETDOWN, unix.EHOSTDOWN, unix.ENETUNREACH, unix.EHOSTUNREACH:
			// Of that one connection.
		case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
			l.t.say.warn("no connection can be accepted for now: raise the limit of open files", "address", l.Addr().String(), "error", errno)
			if l.rest(acceptPause) {
				return nil
			}
		default:
			return fmt.Errorf("accept: %w", errno)
		}
	}
}

// accepted hands a connection to a reactor.
func (l *Listener) accepted(fd int, sa unix.Sockaddr) {
	peer := addrPort(sa)
	s, err := l.t.admit(peer.Addr().String())
	if err != nil {
		_ = unix.Close(fd)
		l.t.say.warn("a connection is refused", "host", peer.String(), "reason", err)
		return
	}
	here := ""
	if sa, err := unix.Getsockname(fd); err == nil {
		here = addrPort(sa).Addr().String()
	}
	c := newConn(s, l, fd, peer.String(), here)
	if !s.r.Post(func() { s.add(c) }) {
		c.discard()
	}
}

// hostOnly is an address without its port.
func hostOnly(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}
