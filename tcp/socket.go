package tcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// listenBacklog is how many connections may wait in the kernel.
const listenBacklog = 4096

// parseAddr reads an address to listen on.
func parseAddr(addr string, port uint16) (netip.AddrPort, error) {
	if addr == "" || addr == "*" {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), port), nil
	}
	a, err := netip.ParseAddr(strings.Trim(addr, "[]"))
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("tcp: listen on %q: want an IPv4 or IPv6 address: %w", addr, err)
	}
	return netip.AddrPortFrom(a.Unmap(), port), nil
}

// listenSocket makes the socket that listens. Connections inherit its options.
func listenSocket(ap netip.AddrPort, c *Config) (fd int, err error) {
	family := unix.AF_INET6
	if ap.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) && ap.Addr() == netip.IPv6Unspecified() {
		return listenSocket(netip.AddrPortFrom(netip.IPv4Unspecified(), ap.Port()), c)
	}
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	sock := fd
	defer func() {
		if err != nil {
			_ = unix.Close(sock)
		}
	}()
	opts := []sockopt{{"SO_REUSEADDR", unix.SOL_SOCKET, unix.SO_REUSEADDR, 1}}
	if family == unix.AF_INET6 {
		// The wildcard takes IPv4 too.
		opts = append(opts, sockopt{"IPV6_V6ONLY", unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0})
	}
	for _, o := range append(opts, connOptions(c)...) {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return -1, fmt.Errorf("socket option %s: %w", o.word, err)
		}
	}
	if c.BusyPoll > 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL, int(c.BusyPoll/time.Microsecond)); err != nil {
			return -1, fmt.Errorf("busy polling for %v: %w (it needs CAP_NET_ADMIN)", c.BusyPoll, err)
		}
	}
	sa, err := sockaddr(ap)
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, sa); err != nil {
		return -1, err
	}
	return fd, unix.Listen(fd, listenBacklog)
}

type sockopt struct {
	word               string
	level, name, value int
}

// connOptions are those of every connection: no waiting for more to send, and an
// end for hosts that lost their power.
func connOptions(c *Config) []sockopt {
	const probes = 4
	every := max(int(c.PeerTimeout/time.Second)/(probes+2), 1)
	return []sockopt{
		{"TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{"TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 2 * every},
		{"TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, every},
		{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, probes},
		{"TCP_USER_TIMEOUT", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(c.PeerTimeout / time.Millisecond)},
	}
}

func sockaddr(ap netip.AddrPort) (unix.Sockaddr, error) {
	a := ap.Addr()
	if a.Is4() {
		return &unix.SockaddrInet4{Port: int(ap.Port()), Addr: a.As4()}, nil
	}
	sa := &unix.SockaddrInet6{Port: int(ap.Port()), Addr: a.As16()}
	if zone := a.Zone(); zone != "" {
		id, err := zoneID(zone)
		if err != nil {
			return nil, err
		}
		sa.ZoneId = id
	}
	return sa, nil
}

// zoneID is the interface of a link-local address.
func zoneID(zone string) (uint32, error) {
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n), nil
	}
	ifc, err := net.InterfaceByName(zone)
	if err != nil {
		// As for an address that is not there: the interface may come yet.
		return 0, fmt.Errorf("zone %q: no such network interface: %w", zone, unix.ENODEV)
	}
	return uint32(ifc.Index), nil
}

// addrPort is a socket address as Go has it.
func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		a := netip.AddrFrom16(sa.Addr).Unmap()
		if sa.ZoneId != 0 && a.Is6() {
			zone := strconv.Itoa(int(sa.ZoneId))
			if ifc, err := net.InterfaceByIndex(int(sa.ZoneId)); err == nil {
				zone = ifc.Name
			}
			a = a.WithZone(zone)
		}
		return netip.AddrPortFrom(a, uint16(sa.Port))
	}
	return netip.AddrPort{}
}

// transient tells whether another attempt to bind may go better.
func transient(err error) bool {
	for _, e := range []unix.Errno{
		unix.EADDRNOTAVAIL, unix.ENODEV, unix.ENETDOWN, unix.ENETUNREACH, unix.EAGAIN, unix.ENOMEM, unix.ENOBUFS, unix.EMFILE, unix.ENFILE,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
