package host

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"rocet/cgo/verbs"
	"rocet/nvme"
)

// Transports.
const (
	TCP  = "tcp"
	RDMA = "rdma"
)

// Options say what to connect to, and how. Zero values take the defaults given.
type Options struct {
	Transport string // TCP or RDMA
	Address   string // IP address or name
	Port      uint16 // 4420
	NQN       string // of the subsystem: the discovery subsystem's
	NSID      uint32 // the namespace that a URL names: 1. Dial does not look at it

	HostNQN string    // made up for the process
	HostID  nvme.UUID // made of HostNQN
	From    netip.Addr

	HeaderDigest bool   // TCP
	DataDigest   bool   // TCP
	DataAlign    uint8  // TCP: HPDA, in dwords, 0-based: where data may begin in the PDUs to the host
	MaxR2T       uint32 // TCP: R2Ts that a command may have outstanding beyond one
	NoInCapsule  bool   // never send data in a capsule of an I/O queue

	IOQueues   int           // to ask for: 1
	AdminDepth int           // commands: 31
	KeepAlive  time.Duration // KATO: 30 s; negative: none
	Timeout    time.Duration // of a command, before it is aborted: 30 s; twice that ends its queue
	Connect    time.Duration // limit for one connection with its Connect command: 10 s

	Provider verbs.Provider // RDMA: verbs.Open's
}

const (
	allNamespaces = 0xffffffff
	maxDepth      = 4095 // leaves 4 bits of the command identifier for a generation
	maxIOQueues   = 65534
	maxR2TExtra   = 15
	defaultKATO   = 30 * time.Second
	defaultLimit  = 10 * time.Second
	defaultExpiry = 30 * time.Second
)

// ParseURL reads nvme-tcp://address:port/nqn?nsid=1&hdgst&ddgst and nvme-rdma://... Further parameters are hostnqn,
// hostid, kato, timeout and from; an address of version 6 stands in brackets. Without a port it is 4420, without a name
// the discovery subsystem.
func ParseURL(s string) (Options, error) {
	u, err := url.Parse(s)
	if err != nil {
		return Options{}, fmt.Errorf("URL %q: %w", s, errors.Unwrap(err))
	}
	bad := func(format string, args ...any) (Options, error) {
		return Options{}, fmt.Errorf("URL %q: "+format, append([]any{s}, args...)...)
	}
	o := Options{NSID: 1}
	switch u.Scheme {
	case "nvme-tcp":
		o.Transport = TCP
	case "nvme-rdma":
		o.Transport = RDMA
	default:
		return bad("want nvme-tcp://ADDRESS:PORT/NQN or nvme-rdma://ADDRESS:PORT/NQN")
	}
	if u.User != nil || u.Fragment != "" {
		return bad("a user or a fragment has no meaning here")
	}
	if o.Address = u.Hostname(); o.Address == "" {
		return bad("it has no address")
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return bad("port %s: want 1 to 65535", p)
		}
		o.Port = uint16(n)
	}
	o.NQN = strings.TrimPrefix(u.Path, "/")
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return bad("%w", err)
	}
	for key, values := range q {
		if len(values) != 1 {
			return bad("parameter %s is given %d times", key, len(values))
		}
		if err := o.parameter(key, values[0]); err != nil {
			return bad("parameter %s=%s: %w", key, values[0], err)
		}
	}
	_, err = o.withDefaults()
	if err != nil {
		return bad("%w", err)
	}
	return o, nil
}

func (o *Options) parameter(key, v string) (err error) {
	flag := func(to *bool) error {
		if v == "" {
			*to = true
			return nil
		}
		*to, err = strconv.ParseBool(v)
		return err
	}
	switch key {
	case "nsid":
		n, err := strconv.ParseUint(v, 0, 32)
		if err != nil || n == 0 || n == allNamespaces {
			return errors.New("want a namespace identifier, 1 to 4294967294")
		}
		o.NSID = uint32(n)
	case "hdgst":
		return flag(&o.HeaderDigest)
	case "ddgst":
		return flag(&o.DataDigest)
	case "hostnqn":
		o.HostNQN = v
	case "hostid":
		o.HostID, err = nvme.ParseUUID(v)
	case "kato":
		o.KeepAlive, err = time.ParseDuration(v)
	case "timeout":
		o.Timeout, err = time.ParseDuration(v)
	case "from":
		o.From, err = netip.ParseAddr(v)
	default:
		return errors.New("not known: there are nsid, hdgst, ddgst, hostnqn, hostid, kato, timeout and from")
	}
	return err
}

// URL is what ParseURL would read.
func (o Options) URL() string {
	u := url.URL{Scheme: "nvme-" + o.Transport, Host: joinHost(o.Address, o.Port), Path: "/" + o.NQN}
	return u.String()
}

func joinHost(address string, port uint16) string {
	if strings.Contains(address, ":") {
		address = "[" + address + "]"
	}
	if port == 0 {
		return address
	}
	return address + ":" + strconv.Itoa(int(port))
}

// withDefaults fills in and checks.
func (o Options) withDefaults() (Options, error) {
	if o.Port == 0 {
		o.Port = nvme.TCPPort
	}
	if o.NQN == "" {
		o.NQN = nvme.DiscoveryNQN
	}
	if o.HostNQN == "" {
		o.HostNQN = processNQN()
	}
	if o.HostID.IsZero() {
		o.HostID = hostID(o.HostNQN)
	}
	def(&o.NSID, 1)
	def(&o.IOQueues, 1)
	def(&o.AdminDepth, nvme.DiscoveryASQSZMin-1)
	def(&o.KeepAlive, defaultKATO)
	def(&o.Timeout, defaultExpiry)
	def(&o.Connect, defaultLimit)
	switch {
	case o.Transport != TCP && o.Transport != RDMA:
		return o, fmt.Errorf("transport %q: want %s or %s", o.Transport, TCP, RDMA)
	case o.Address == "":
		return o, errors.New("no address to connect to")
	case o.Transport == RDMA && (o.HeaderDigest || o.DataDigest):
		return o, errors.New("digests belong to TCP: RDMA has its own checksums, leave hdgst and ddgst away")
	case o.DataAlign > nvme.TCPMaxDataAlign:
		return o, fmt.Errorf("data alignment %d: want 0 to %d dwords, 0-based", o.DataAlign, nvme.TCPMaxDataAlign)
	case o.MaxR2T > maxR2TExtra:
		return o, fmt.Errorf("%d more R2Ts for a command: at most %d are taken", o.MaxR2T, maxR2TExtra)
	case o.IOQueues < 1 || o.IOQueues > maxIOQueues:
		return o, fmt.Errorf("%d I/O queues: want 1 to %d", o.IOQueues, maxIOQueues)
	case o.AdminDepth < nvme.DiscoveryASQSZMin-1 || o.AdminDepth > maxDepth:
		return o, fmt.Errorf("an admin queue for %d commands: want %d to %d", o.AdminDepth, nvme.DiscoveryASQSZMin-1, maxDepth)
	case o.Timeout < 0 || o.Connect < 0:
		return o, errors.New("a timeout is negative")
	case o.KeepAlive > 0 && (o.KeepAlive < 100*time.Millisecond || o.KeepAlive > 24*time.Hour):
		return o, fmt.Errorf("keep alive %v: want 100ms to 24h, or a negative one for none", o.KeepAlive)
	}
	for _, nqn := range []string{o.NQN, o.HostNQN} {
		if len(nqn) > nvme.NQNMaxLength || strings.IndexByte(nqn, 0) >= 0 {
			return o, fmt.Errorf("NQN %.40q: want at most %d bytes without NUL", nqn, nvme.NQNMaxLength)
		}
	}
	return o, nil
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// processNQN is a name that no other process has.
var processNQN = sync.OnceValue(func() string {
	var u nvme.UUID
	rand.Read(u[:])
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80 // RFC 9562: version 4
	return nvme.NQNUUIDPrefix + u.String()
})

// hostID is the identifier that goes with a name: the UUID in it, or else a digest of it.
func hostID(nqn string) nvme.UUID {
	if s, ok := strings.CutPrefix(nqn, nvme.NQNUUIDPrefix); ok {
		if u, err := nvme.ParseUUID(s); err == nil && !u.IsZero() {
			return u
		}
	}
	sum := sha256.Sum256([]byte(nqn))
	u := nvme.UUID(sum[:16])
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80 // RFC 9562: version 8, of one's own making
	return u
}
