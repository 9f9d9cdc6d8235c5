package verbs

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
)

// sockaddr is a struct sockaddr_in or sockaddr_in6, which is the longer one.
type sockaddr [28]byte

// newSockaddr fails for an address without an IP, or of an unknown zone.
func newSockaddr(a netip.AddrPort) (sockaddr, error) {
	var sa sockaddr
	if !a.IsValid() {
		return sa, fmt.Errorf("verbs: %v is no IP address and port", a)
	}
	binary.BigEndian.PutUint16(sa[2:], a.Port())
	ip := a.Addr().Unmap()
	if ip.Is4() {
		binary.NativeEndian.PutUint16(sa[0:], syscall.AF_INET)
		v4 := ip.As4()
		copy(sa[4:], v4[:])
		return sa, nil
	}
	binary.NativeEndian.PutUint16(sa[0:], syscall.AF_INET6)
	v6 := ip.As16()
	copy(sa[8:], v6[:])
	if zone := ip.Zone(); zone != "" {
		index, err := zoneIndex(zone)
		if err != nil {
			return sa, fmt.Errorf("verbs: address %v: %w", a, err)
		}
		binary.NativeEndian.PutUint32(sa[24:], index)
	}
	return sa, nil
}

// zoneIndex is the interface of a zone: its number, or its name.
func zoneIndex(zone string) (uint32, error) {
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n), nil
	}
	ifc, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, err
	}
	return uint32(ifc.Index), nil
}

// addrPort is the zero AddrPort for any other family.
func (sa *sockaddr) addrPort() netip.AddrPort {
	port := binary.BigEndian.Uint16(sa[2:])
	switch binary.NativeEndian.Uint16(sa[0:]) {
	case syscall.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(sa[4:8])), port)
	case syscall.AF_INET6:
		ip := netip.AddrFrom16([16]byte(sa[8:24]))
		if n := binary.NativeEndian.Uint32(sa[24:]); n != 0 {
			ip = ip.WithZone(strconv.FormatUint(uint64(n), 10))
		}
		return netip.AddrPortFrom(ip, port)
	}
	return netip.AddrPort{}
}

// checkPrivate refuses private data that its message cannot carry.
func checkPrivate(b []byte, max int, call string) error {
	if len(b) > max {
		return &Error{Call: call, Object: fmt.Sprintf("%d bytes of private data, at most %d fit", len(b), max), Errno: syscall.EINVAL}
	}
	return nil
}
