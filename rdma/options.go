package rdma

import (
	"fmt"
	"log/slog"
	"time"

	"rocet/cgo/verbs"
	"rocet/memory"
	"rocet/nvme"
	"rocet/target"
)

// SRQPolicy says when queues share a receive queue.
type SRQPolicy uint8

const (
	SRQAuto SRQPolicy = iota // once a device has so many I/O queues that receives of their own waste memory
	SRQOn                    // every I/O queue, where the device can
	SRQOff
)

// ParseSRQPolicy reads the word of the configuration file.
func ParseSRQPolicy(word string) (SRQPolicy, error) {
	for p := SRQAuto; p <= SRQOff; p++ {
		if word == p.String() {
			return p, nil
		}
	}
	return 0, fmt.Errorf("srq %q: want auto, on or off", word)
}

// String is the word of the configuration file.
func (p SRQPolicy) String() string { return [...]string{"auto", "on", "off"}[p%3] }

// srqAutoQueues is from how many I/O queues on a device SRQAuto shares receives: 64
// queues of 128 entries of 4 KiB are 32 MiB.
const srqAutoQueues = 64

// NoInCapsuleData is Config.InCapsuleData of a transport that takes none.
const NoInCapsuleData = -1

// Limits of Config.
const (
	maxInCapsuleData = 64 << 10
	minQueueDepth    = 32 // what an admin queue has at least (Base 2.1 section 3.3.3.2)
	maxQueueDepth    = 4096
	// safeInCapsuleData is the most in-capsule data beside which several
	// descriptors per command are offered.
	safeInCapsuleData = 4096
)

// Config tunes the transport. Zero values take the defaults given.
type Config struct {
	// InCapsuleData is how many bytes of a write may come in its capsule: 4096.
	//
	// Linux hosts 5.4 to 5.12 corrupt writes that are no multiple of 4 KiB when a
	// target offers more than 4 KiB here and MSDBD above 1. So MSDBD is
	// MaxDescriptors up to 4096 bytes, and 1 beyond.
	InCapsuleData int
	MaxQueueDepth int       // entries of a queue, from 32 on: 128
	SRQ           SRQPolicy // auto
	SRQDepth      int       // receives that the queues of one completion queue share: 2048

	MaxHalfOpen    int           // connections without a command yet: 1024
	ConnectTimeout time.Duration // from connect request to established: 10 s
	DrainTimeout   time.Duration // until a queue's completions are given up: 2 s; its backend's never
	RetryInterval  time.Duration // between attempts to bind an address or to find a device: 1 s
	CQEntries      int           // of a completion queue: 16384, and what the device allows
}

func (c *Config) setDefaults() error {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.InCapsuleData, 4096)
	def(&c.MaxQueueDepth, 128)
	def(&c.SRQDepth, 2048)
	def(&c.MaxHalfOpen, 1024)
	def(&c.CQEntries, 16384)
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{{&c.ConnectTimeout, 10 * time.Second}, {&c.DrainTimeout, 2 * time.Second}, {&c.RetryInterval, time.Second}} {
		if *d.v == 0 {
			*d.v = d.d
		}
	}
	switch {
	case c.InCapsuleData < NoInCapsuleData || c.InCapsuleData > maxInCapsuleData || c.InCapsuleData > 0 && c.InCapsuleData%16 != 0:
		return fmt.Errorf("rdma: in-capsule data of %d bytes: want a multiple of 16 up to %d", c.InCapsuleData, maxInCapsuleData)
	case c.MaxQueueDepth < minQueueDepth || c.MaxQueueDepth > maxQueueDepth:
		return fmt.Errorf("rdma: queue depth %d: want %d to %d", c.MaxQueueDepth, minQueueDepth, maxQueueDepth)
	case c.SRQDepth < 2*c.MaxQueueDepth || c.SRQDepth > 1<<15:
		return fmt.Errorf("rdma: %d shared receives: want at least two queue depths (%d) and at most %d", c.SRQDepth, 2*c.MaxQueueDepth, 1<<15)
	case c.MaxHalfOpen < 1 || c.ConnectTimeout < 0 || c.DrainTimeout < 0 || c.RetryInterval < 0 || c.CQEntries < 16:
		return fmt.Errorf("rdma: a limit or a timeout is negative or too small: %+v", *c)
	}
	if c.InCapsuleData == NoInCapsuleData {
		c.InCapsuleData = 0
	}
	return nil
}

// descriptors is MSDBD: see Config.InCapsuleData.
func (c *Config) descriptors() int {
	if c.InCapsuleData > safeInCapsuleData {
		return 1
	}
	return max(1, min(MaxDescriptors, c.InCapsuleData/nvme.SGLDescriptorSize))
}

// Options are what a Transport stands on.
type Options struct {
	Target   *target.Target
	Pool     *memory.Pool
	Provider verbs.Provider
	Config   Config
	Log      *slog.Logger // nil: slog.Default()
}
