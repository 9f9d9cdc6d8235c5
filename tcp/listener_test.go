package tcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rocet/host"
	"rocet/nvme"
)

func TestParseAddr(t *testing.T) {
	for _, c := range []struct{ addr, want string }{
		{"", "[::]:4420"},
		{"*", "[::]:4420"},
		{"0.0.0.0", "0.0.0.0:4420"},
		{"192.0.2.7", "192.0.2.7:4420"},
		{"::ffff:192.0.2.7", "192.0.2.7:4420"},
		{"2001:db8::1", "[2001:db8::1]:4420"},
		{"[2001:db8::1]", "[2001:db8::1]:4420"},
		{"fe80::1%eth0", "[fe80::1%eth0]:4420"},
	} {
		if ap, err := parseAddr(c.addr, 4420); err != nil || ap.String() != c.want {
			t.Errorf("%q: %v, %v, want %s", c.addr, ap, err, c.want)
		}
	}
	for _, bad := range []string{"localhost", "1.2.3", "1.2.3.4:4420", "2001:db8::1/64", "fe80::%"} {
		if ap, err := parseAddr(bad, 4420); err == nil {
			t.Errorf("%q is taken as %v", bad, ap)
		} else if !strings.Contains(err.Error(), bad) {
			t.Errorf("the error for %q does not name it: %v", bad, err)
		}
	}
}

// TestSockaddr: addresses and their zones go to the kernel's form and back.
func TestSockaddr(t *testing.T) {
	for _, s := range []string{"192.0.2.7:1", "[2001:db8::1]:4420", "[fe80::1%lo]:4420"} {
		ap := netip.MustParseAddrPort(s)
		sa, err := sockaddr(ap)
		if err != nil {
			t.Errorf("%s: %v", s, err)
			continue
		}
		if got := addrPort(sa); got != ap {
			t.Errorf("%s comes back as %v", s, got)
		}
	}
	if id, err := zoneID("4294967295"); err != nil || id != 1<<32-1 {
		t.Errorf("a numeric zone is %d, %v", id, err)
	}
	if _, err := zoneID("nosuchif0"); err == nil || !transient(err) || !strings.Contains(err.Error(), "nosuchif0") {
		t.Errorf("a zone that may come later: %v, want an error that names it and is worth another attempt", err)
	}
}

// TestListenErrors: what can't get better is told at once, and leaves nothing behind.
func TestListenErrors(t *testing.T) {
	w := newWorld(t, worldOptions{})
	if _, err := w.transport.Listen("localhost", 4420); err == nil {
		t.Error("a name is taken as an address")
	}
	at := w.listener.Addr()
	if _, err := w.transport.Listen(at.Addr().String(), at.Port()); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a port that is taken: %v", err)
	} else if !strings.Contains(err.Error(), at.String()) {
		t.Errorf("the error does not name the address: %v", err)
	}
	w.transport.mu.Lock()
	n := len(w.transport.listeners)
	w.transport.mu.Unlock()
	if n != 1 {
		t.Errorf("%d listeners are left, want the one of the test", n)
	}
}

// TestListenLater: an address that is not there yet is tried again and again; its
// listener says why, and closes at any time.
func TestListenLater(t *testing.T) {
	w := newWorld(t, worldOptions{config: Config{RetryInterval: time.Millisecond}})
	for range 50 {
		// TEST-NET-1 is nobody's address.
		l, err := w.transport.Listen("192.0.2.1", 4420)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Err(); !errors.Is(err, unix.EADDRNOTAVAIL) {
			t.Errorf("Err is %v", err)
		}
		if l.String() != "tcp 192.0.2.1:4420" {
			t.Errorf("String is %q", l)
		}
		time.Sleep(2 * time.Millisecond)
		l.Close()
		l.Close() // as often as one likes
	}
}

// TestBindAfterClose: an attempt to bind that comes too late leaves no socket open
// for which nobody waits.
func TestBindAfterClose(t *testing.T) {
	w := newWorld(t, worldOptions{})
	l, err := w.transport.Listen("127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := l.bind(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("bind of a closed listener: %v, want %v", err, net.ErrClosed)
	}
}

// TestFamilies serves hosts over IPv4 and IPv6, at one address and at all of them.
func TestFamilies(t *testing.T) {
	if c, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skipf("left out: no IPv6 here: %v", err)
	} else {
		_ = c.Close()
	}
	w := newWorld(t, worldOptions{})
	for i, c := range []struct{ listen, dial string }{{"::1", "::1"}, {"", "127.0.0.1"}, {"", "::1"}, {"0.0.0.0", "127.0.0.1"}} {
		l, err := w.transport.Listen(c.listen, 0)
		if err != nil {
			t.Fatal(err)
		}
		o := w.options()
		o.Address, o.Port = c.dial, l.Addr().Port()
		ctl := dial(t, o)
		if err := newMover(t, ctl, openQueue(t, ctl, 4), 32<<10, uint64(i)*2048, 1<<20).run(20); err != nil {
			t.Errorf("listening at %q, a host at %s: %v", c.listen, c.dial, err)
		}
		if n := w.transport.Stats().Connections[c.dial]; n < 2 {
			t.Errorf("listening at %q: %d connections from %s", c.listen, n, c.dial)
		}
		_ = ctl.Close()
		l.Close()
	}
}

// TestListenerClose: hosts on a listener that goes away lose their path, others don't.
func TestListenerClose(t *testing.T) {
	w := newWorld(t, worldOptions{})
	second, err := w.transport.Listen("127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	stay := dial(t, w.options())
	o := w.options()
	o.Port = second.Addr().Port()
	leave := dial(t, o)
	lost := openQueue(t, leave, 4)
	second.Close()
	var io host.IO
	io.SetRW(nvme.OpFlush, 1, 0, 1)
	w.eventually("the path is lost", func() bool {
		if lost.Submit(&io) != nil || lost.Flush() != nil {
			return true
		}
		_ = lost.Wait(10 * time.Millisecond)
		_, err := lost.Poll(make([]*host.IO, 4))
		return err != nil
	})
	if _, err := net.DialTimeout("tcp", second.Addr().String(), time.Second); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a host still gets in: %v", err)
	}
	if err := newMover(t, stay, openQueue(t, stay, 4), 32<<10, 0, 1<<20).run(50); err != nil {
		t.Errorf("a host on the other listener: %v", err)
	}
	_ = leave.Close()
	_ = stay.Close()
}

// TestPlacement: queues go where least is under way.
func TestPlacement(t *testing.T) {
	w := newWorld(t, worldOptions{reactors: 2})
	c := dial(t, w.options())
	var qs []*host.Queue
	for range 4 {
		qs = append(qs, openQueue(t, c, 16))
	}
	var per []int
	for _, s := range w.transport.Stats().Shards {
		per = append(per, s.Connections)
	}
	if len(per) != 2 || per[0]+per[1] != 5 || min(per[0], per[1]) < 2 {
		t.Errorf("an admin queue and four for I/O lie on the reactors as %v", per)
	}
	for _, q := range qs {
		_ = q.Close()
	}
	_ = c.Close()
}

// TestConfig: what can't work is refused, with the value that is wrong.
func TestConfig(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{InCapsuleData: 17}, "17"},
		{Config{InCapsuleData: 128 << 10}, "131072"},
		{Config{InCapsuleData: -2}, "-2"},
		{Config{MaxQueueDepth: 31}, "31"},
		{Config{MaxQueueDepth: 4097}, "4097"},
		{Config{MaxH2CData: 4092}, "4092"},
		{Config{MaxH2CData: 4098}, "4098"},
		{Config{MaxC2HData: 4096}, "4096"},
		{Config{MaxR2T: 9}, "9"},
		{Config{CPDA: 32}, "32"},
		{Config{DataDigest: 3}, "digest"},
		{Config{MaxConnections: -1}, "-1"},
		{Config{SendTimeout: -time.Second}, "-1s"},
	} {
		cfg := c.config
		if err := cfg.setDefaults(1 << 20); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want an error with %s", c.config, err, c.want)
		}
	}
	cfg := Config{InCapsuleData: NoInCapsuleData}
	if err := cfg.setDefaults(1 << 20); err != nil || cfg.InCapsuleData != 0 {
		t.Errorf("without in-capsule data: %d, %v", cfg.InCapsuleData, err)
	}
	for _, word := range digestWords {
		if p, err := ParseDigestPolicy(word); err != nil || p.String() != word {
			t.Errorf("%q reads as %v, %v", word, p, err)
		}
	}
	if _, err := ParseDigestPolicy("maybe"); err == nil || !strings.Contains(err.Error(), "maybe") {
		t.Errorf("an unknown policy: %v", err)
	}
	if _, err := New(Options{}); err == nil {
		t.Error("a transport without a target is made")
	}
}

// TestTransportClose: what the transport is asked for after its end is refused.
func TestTransportClose(t *testing.T) {
	w := newWorld(t, worldOptions{})
	c := dial(t, w.options())
	q := openQueue(t, c, 4)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := w.transport.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.transport.Listen("127.0.0.1", 0); err == nil {
		t.Error("a closed transport listens")
	}
	if _, err := host.Dial(ctx, w.options()); err == nil {
		t.Error("a closed transport takes hosts")
	}
	_ = q.Close()
	_ = c.Close()
}
