package host

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"rocet/nvme"
)

// castagnoli is the CRC of the digests (TCP Transport 1.1 section 3.3.1.1); the library has the processor's instruction for it.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// tcp is the wire of a queue over TCP: a non-blocking socket.
//
//	Submit ─▶ pending ─┐
//	R2T    ─▶ grants  ─┴▶ build: headers in out, iov over headers and data ─▶ sendmsg
//
//	readv ─▶ in ─▶ PDU: header ─ (padding) ─ data to its place ─ (digest) ─▶ complete
//	     └──────────────────────────────────▶ data to its place, past in
type tcp struct {
	q  *Queue
	fd int

	// What the connection agreed on.
	hdgst, ddgst bool
	hpda, cpda   uint8
	maxData      uint32 // MAXH2CDATA
	maxR2T       uint8  // R2Ts of a command

	send tcpSend
	recv tcpRecv

	sends, receives, empty, bytesOut, bytesIn, copied uint64
}

// dialTCP connects, and agrees on the parameters.
func dialTCP(ctx context.Context, o *Options, q *Queue, addr netip.AddrPort) (*tcp, error) {
	fd, err := connectTCP(ctx, o.From, addr)
	if err != nil {
		return nil, fmt.Errorf("connect to %v: %w", addr, err)
	}
	t := newTCP(q, fd)
	if err := t.initialize(ctx, o); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("initialize the connection to %v: %w", addr, err)
	}
	q.wire = t
	return t, nil
}

func newTCP(q *Queue, fd int) *tcp {
	t := &tcp{q: q, fd: fd, maxData: nvme.TCPMinMAXH2CDATA, maxR2T: 1}
	t.send.init(len(q.slots))
	t.recv.init()
	return t
}

// connectTCP is a non-blocking connect that ends with ctx.
func connectTCP(ctx context.Context, from netip.Addr, addr netip.AddrPort) (fd int, err error) {
	family := unix.AF_INET6
	if addr.Addr().Unmap().Is4() {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	sock := fd
	defer func() {
		if err != nil {
			_ = unix.Close(sock)
		}
	}()
	for _, opt := range []struct{ level, name, value int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1}, // of a host that only waits: a target that lost its power
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 10},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 5},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 4},
	} {
		if err := unix.SetsockoptInt(fd, opt.level, opt.name, opt.value); err != nil {
			return -1, fmt.Errorf("socket option %d: %w", opt.name, err)
		}
	}
	if from.IsValid() {
		if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(from, 0))); err != nil {
			return -1, fmt.Errorf("bind to %v: %w", from, err)
		}
	}
	err = unix.Connect(fd, sockaddr(addr))
	if err == unix.EINPROGRESS || err == unix.EINTR {
		if err = waitFD(ctx, fd, unix.POLLOUT); err != nil {
			return -1, err
		}
		var code int
		if code, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && code != 0 {
			err = unix.Errno(code)
		}
	}
	if errors.Is(err, unix.ECONNREFUSED) {
		return -1, fmt.Errorf("%w: is the target up, and its port right?", err)
	}
	return fd, err
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	ip := a.Addr().Unmap()
	if ip.Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}
	}
	sa := &unix.SockaddrInet6{Port: int(a.Port()), Addr: ip.As16()}
	if zone := ip.Zone(); zone != "" {
		sa.ZoneId = zoneID(zone)
	}
	return sa
}

// waitFD sleeps until a descriptor is ready or ctx is done.
func waitFD(ctx context.Context, fd int, events int16) error {
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		p := []unix.PollFd{{Fd: int32(fd), Events: events}}
		if err := sleep(p, waitSlice); err != nil {
			return err
		}
		if p[0].Revents != 0 {
			return nil
		}
	}
}

// initialize exchanges ICReq and ICResp: TCP Transport 1.1 section 3.4.1.
func (t *tcp) initialize(ctx context.Context, o *Options) error {
	var req nvme.TCPICReq
	var want uint8
	if o.HeaderDigest {
		want |= nvme.TCPDigestHeader
	}
	if o.DataDigest {
		want |= nvme.TCPDigestData
	}
	req.Set(o.DataAlign, want, o.MaxR2T)
	if err := t.transfer(ctx, req[:], unix.POLLOUT, unix.Write); err != nil {
		return err
	}
	var resp nvme.TCPICResp
	if err := t.transfer(ctx, resp[:nvme.TCPHeaderSize], unix.POLLIN, unix.Read); err != nil {
		return err
	}
	switch h := resp.Header(); {
	case h.Type() == nvme.TCPTypeC2HTermReq && h.HLEN() == nvme.TCPTermReqSize:
		b := make([]byte, nvme.TCPTermMaxPLEN)
		n := copy(b, h[:])
		end := min(max(int(min(h.PLEN(), nvme.TCPTermMaxPLEN)), nvme.TCPTermReqSize), len(b))
		if err := t.transfer(ctx, b[n:end], unix.POLLIN, unix.Read); err != nil {
			return err
		}
		return terminated(b[:end])
	case h.Type() != nvme.TCPTypeICResp:
		return protocolf(nvme.TCPFESSequenceError, 0, "it answered ICReq with a PDU %v: does an NVMe/TCP target listen there?", h.Type())
	case h.HLEN() != nvme.TCPICSize:
		return protocolf(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetHLEN, "ICResp has HLEN %d", h.HLEN())
	case h.PLEN() != nvme.TCPICSize:
		return protocolf(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetPLEN, "ICResp has PLEN %d", h.PLEN())
	}
	if err := t.transfer(ctx, resp[nvme.TCPHeaderSize:], unix.POLLIN, unix.Read); err != nil {
		return err
	}
	switch {
	case resp.PFV() != 0:
		return protocolf(nvme.TCPFESUnsupportedParameter, nvme.TCPOffsetPFV, "ICResp has PDU format version %d", resp.PFV())
	case resp.CPDA() > nvme.TCPMaxDataAlign:
		return protocolf(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetPDA, "ICResp has CPDA %d", resp.CPDA())
	case resp.DGST()&^want != 0:
		return protocolf(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetDGST, "ICResp turns on digests that were not asked for (DGST %#x)", resp.DGST())
	case resp.DGST() != want:
		return fmt.Errorf("the target does not do the digests asked for (DGST %#x, wanted %#x): connect without hdgst or ddgst", resp.DGST(), want)
	case resp.MAXH2CDATA() < nvme.TCPMinMAXH2CDATA || resp.MAXH2CDATA()%4 != 0:
		return protocolf(nvme.TCPFESInvalidHeaderField, nvme.TCPOffsetMAX, "ICResp has MAXH2CDATA %d", resp.MAXH2CDATA())
	}
	t.hdgst, t.ddgst = o.HeaderDigest, o.DataDigest
	t.hpda, t.cpda = o.DataAlign, resp.CPDA()
	t.maxData = resp.MAXH2CDATA()
	t.maxR2T = uint8(o.MaxR2T) + 1
	return nil
}

// transfer moves all of b by read or write.
func (t *tcp) transfer(ctx context.Context, b []byte, events int16, move func(int, []byte) (int, error)) error {
	for len(b) > 0 {
		n, err := move(t.fd, b)
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
			if err := waitFD(ctx, t.fd, events); err != nil {
				return err
			}
		case err != nil:
			return err
		case n == 0:
			return errTargetClosed
		}
		b = b[max(n, 0):]
	}
	return nil
}

// terminated reads a C2HTermReq of at least its header.
func terminated(b []byte) error {
	req := (*nvme.TCPTermReq)(b)
	e := &TerminatedError{Status: req.FES(), Info: req.FEI()}
	if len(b) > nvme.TCPTermReqSize {
		e.PDU, e.HasPDU = nvme.TCPPDUType(b[nvme.TCPTermReqSize]), true
	}
	return e
}

func (t *tcp) fds(p *[2]unix.PollFd) int {
	p[0] = unix.PollFd{Fd: int32(t.fd), Events: unix.POLLIN}
	if t.send.waiting() {
		p[0].Events |= unix.POLLOUT
	}
	return 1
}

func (t *tcp) arm() (bool, error) { return !t.recv.more, nil }

// close tells the target of a broken protocol, as far as the socket takes it, and closes.
func (t *tcp) close(reason error) {
	if t.fd < 0 {
		return
	}
	var pe *ProtocolError
	if errors.As(reason, &pe) && pe.Status != 0 && !t.send.partial() {
		var req nvme.TCPTermReq
		req.Set(nvme.TCPTypeH2CTermReq, pe.Status, pe.Info, len(t.recv.bad))
		_, _ = unix.Write(t.fd, append(req[:], t.recv.bad...))
		_ = unix.Shutdown(t.fd, unix.SHUT_WR)
		// Data that is unread would turn the close into a reset, which takes the PDU away from the target again.
		var b [4096]byte
		for end := time.Now().Add(waitSlice); time.Now().Before(end); {
			if n, err := unix.Read(t.fd, b[:]); n <= 0 && err != unix.EAGAIN && err != unix.EINTR {
				break
			}
			if sleep([]unix.PollFd{{Fd: int32(t.fd), Events: unix.POLLIN}}, time.Until(end)) != nil {
				break
			}
		}
	}
	_ = unix.Close(t.fd)
	t.fd = -1
}

func (t *tcp) stats(s *Stats) {
	s.Sends, s.Receives, s.Empty = t.sends, t.receives, t.empty
	s.BytesOut, s.BytesIn, s.Copied = t.bytesOut, t.bytesIn, t.copied
}
