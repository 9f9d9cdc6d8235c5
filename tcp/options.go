package tcp

import (
	"fmt"
	"log/slog"
	"time"

	"rocet/memory"
	"rocet/nvme"
	"rocet/target"
)

// DigestPolicy says what happens to hosts that ask for a digest, or do not.
type DigestPolicy uint8

const (
	DigestAccept  DigestPolicy = iota // used if the host asks for it
	DigestRefuse                      // not used, whatever the host asks for
	DigestRequire                     // a host that does not ask for it can't connect
)

var digestWords = [...]string{"accept", "refuse", "require"}

// ParseDigestPolicy reads the word of the configuration file.
func ParseDigestPolicy(word string) (DigestPolicy, error) {
	for p, w := range digestWords {
		if w == word {
			return DigestPolicy(p), nil
		}
	}
	return 0, fmt.Errorf("digest policy %q: want accept, refuse or require", word)
}

// String is the word of the configuration file.
func (p DigestPolicy) String() string { return digestWords[int(p)%len(digestWords)] }

// NoInCapsuleData is Config.InCapsuleData of a transport that takes none on I/O
// queues. Admin queues take 8 KiB in any case (TCP Transport 1.1 section 3.3.2).
const NoInCapsuleData = -1

// Limits of Config.
const (
	maxInCapsuleData = 64 << 10
	minQueueDepth    = 32 // what an admin queue has at least (Base 2.1 section 3.3.3.2)
	maxQueueDepth    = 1 << ttagSlotBits
	maxPDA           = nvme.TCPMaxDataAlign
)

// Config tunes the transport. Zero values take the defaults given.
type Config struct {
	InCapsuleData int // bytes of a write that may come in its capsule: 16384
	MaxQueueDepth int // entries of a queue, from 32 on: 128
	MaxH2CData    int // bytes of one H2CData PDU (MAXH2CDATA): 1 MiB
	MaxC2HData    int // bytes of one C2HData PDU, at least an eighth of MDTS: all of a command's
	MaxR2T        int // R2Ts of one command at a time, where the host allows as many: 4
	CPDA          int // alignment of data from hosts, in dwords, 0-based: 0

	HeaderDigest DigestPolicy
	DataDigest   DigestPolicy

	MaxConnections int           // 65536
	MaxHalfOpen    int           // connections without a successful Connect; more of them cut the oldest: 8192
	ConnectTimeout time.Duration // from accept to ICReq: 10 s. The target bounds the time from there to Connect.
	SendTimeout    time.Duration // a host takes nothing of what is there for it, or sends nothing of what it was asked for: 30 s
	PeerTimeout    time.Duration // a silent host does not even answer the kernel: 30 s
	LingerTimeout  time.Duration // how long a connection stays after a C2HTermReq: 1 s
	RetryInterval  time.Duration // between attempts to bind an address: 1 s
	BusyPoll       time.Duration // SO_BUSY_POLL: how long a read polls the NIC's queue: 0
}

func (c *Config) setDefaults(mdts uint32) error {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.InCapsuleData, 16<<10)
	def(&c.MaxQueueDepth, 128)
	def(&c.MaxH2CData, 1<<20)
	def(&c.MaxC2HData, int(mdts))
	def(&c.MaxR2T, 4)
	def(&c.MaxConnections, 65536)
	def(&c.MaxHalfOpen, 8192)
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{
		{&c.ConnectTimeout, 10 * time.Second}, {&c.SendTimeout, 30 * time.Second}, {&c.PeerTimeout, 30 * time.Second},
		{&c.LingerTimeout, time.Second}, {&c.RetryInterval, time.Second},
	} {
		if *d.v == 0 {
			*d.v = d.d
		}
	}
	switch {
	case c.InCapsuleData < NoInCapsuleData || c.InCapsuleData > maxInCapsuleData || c.InCapsuleData > 0 && c.InCapsuleData%16 != 0:
		return fmt.Errorf("tcp: in-capsule data of %d bytes: want a multiple of 16 up to %d", c.InCapsuleData, maxInCapsuleData)
	case c.MaxQueueDepth < minQueueDepth || c.MaxQueueDepth > maxQueueDepth:
		return fmt.Errorf("tcp: queue depth %d: want %d to %d", c.MaxQueueDepth, minQueueDepth, maxQueueDepth)
	case c.MaxH2CData < nvme.TCPMinMAXH2CDATA || c.MaxH2CData%4 != 0 || c.MaxH2CData > 1<<30:
		return fmt.Errorf("tcp: H2CData of %d bytes: want a multiple of 4 from %d to %d", c.MaxH2CData, nvme.TCPMinMAXH2CDATA, 1<<30)
	case c.MaxC2HData < int(mdts)/maxC2HPDUs || c.MaxC2HData%4 != 0 || c.MaxC2HData > 1<<30:
		return fmt.Errorf("tcp: C2HData of %d bytes: want a multiple of 4 from %d, an eighth of the largest command, on", c.MaxC2HData, int(mdts)/maxC2HPDUs)
	case c.MaxR2T < 1 || c.MaxR2T > maxR2Ts:
		return fmt.Errorf("tcp: %d R2Ts of a command: want 1 to %d", c.MaxR2T, maxR2Ts)
	case c.CPDA < 0 || c.CPDA > maxPDA:
		return fmt.Errorf("tcp: CPDA %d: want 0 to %d dwords", c.CPDA, maxPDA)
	case c.HeaderDigest > DigestRequire || c.DataDigest > DigestRequire:
		return fmt.Errorf("tcp: unknown digest policy")
	case c.MaxConnections < 1 || c.MaxHalfOpen < 1:
		return fmt.Errorf("tcp: limits of %d connections and %d without Connect: want at least 1", c.MaxConnections, c.MaxHalfOpen)
	case min(c.ConnectTimeout, c.SendTimeout, c.PeerTimeout, c.LingerTimeout, c.RetryInterval, c.BusyPoll) < 0:
		return fmt.Errorf("tcp: a timeout is negative: %+v", *c)
	}
	if c.InCapsuleData == NoInCapsuleData {
		c.InCapsuleData = 0
	}
	return nil
}

// Options are what a Transport stands on.
type Options struct {
	Target *target.Target
	Pool   *memory.Pool
	Config Config
	Log    *slog.Logger // nil: slog.Default()
}
