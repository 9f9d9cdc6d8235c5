// Package config is what a person writes: the file that describes a target, as types. Nothing here runs; package control
// turns a Config into objects.
package config

import "time"

// Config is a configuration file.
type Config struct {
	Reactors   Reactors    `yaml:"reactors"`
	Memory     Memory      `yaml:"memory"`
	Log        Log         `yaml:"log"`
	Metrics    Metrics     `yaml:"metrics"`
	RDMA       RDMA        `yaml:"rdma"`
	TCP        TCP         `yaml:"tcp"`
	Listeners  []Listener  `yaml:"listeners"`
	Subsystems []Subsystem `yaml:"subsystems"`
}

// Reactors says how many goroutines poll, and where.
type Reactors struct {
	Count    int           `yaml:"count"`     // 0: one for each of Cores, or one
	Cores    []int         `yaml:"cores"`     // where to pin them; none: the last cores that the process may use
	Mode     string        `yaml:"mode"`      // adaptive, busy, interrupt; empty: adaptive
	IdleSpin time.Duration `yaml:"idle_spin"` // of adaptive; 0: the reactor's default
}

// Memory is the pool for buffers.
type Memory struct {
	Size      Size   `yaml:"size"`      // bytes; 0: 256 MiB
	HugePages string `yaml:"hugepages"` // auto, require, never; empty: auto
	Shared    bool   `yaml:"shared"`    // shared mappings, for a stand-in of the RDMA libraries that reaches them from another process
}

// Log says what is logged to standard error.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn, error; empty: info
	Format string `yaml:"format"` // text, json; empty: text
}

// Metrics is the HTTP endpoint for /metrics, /healthz and /readyz.
type Metrics struct {
	Listen string `yaml:"listen"` // host:port; empty: 127.0.0.1:9810; "off": none
}

// RDMA tunes the RDMA transport. Zero values take the transport's defaults.
type RDMA struct {
	InCapsuleData *Size  `yaml:"in_capsule_data"` // bytes; 0: none
	MaxQueueDepth int    `yaml:"max_queue_depth"`
	SRQ           string `yaml:"srq"` // auto, on, off
}

// TCP tunes the TCP transport. Zero values take the transport's defaults.
type TCP struct {
	InCapsuleData *Size `yaml:"in_capsule_data"` // bytes; 0: none
	MaxQueueDepth int   `yaml:"max_queue_depth"`
}

// Listener is an address that hosts connect to.
type Listener struct {
	Transport string `yaml:"transport"` // rdma, tcp
	Address   string `yaml:"address"`
	Port      uint16 `yaml:"port"` // 0: 4420
}

// Subsystem is what a host sees as one NVM subsystem.
type Subsystem struct {
	NQN          string      `yaml:"nqn"`
	Serial       string      `yaml:"serial"`
	Model        string      `yaml:"model"`
	AllowAnyHost bool        `yaml:"allow_any_host"`
	Hosts        []string    `yaml:"hosts"` // NQNs of the hosts that may connect
	Namespaces   []Namespace `yaml:"namespaces"`
}

// Namespace is a block device of a subsystem.
type Namespace struct {
	NSID      uint32  `yaml:"nsid"` // 0: the lowest free
	Backend   Backend `yaml:"backend"`
	BlockSize uint32  `yaml:"block_size"` // bytes; 0: what the backend has, or 4096
	UUID      string  `yaml:"uuid"`
	ReadOnly  bool    `yaml:"read_only"`
}

// Backend is what a namespace stands on. Which fields it takes depends on its type.
type Backend struct {
	Type string `yaml:"type"` // memory, null, nvme, stripe, file

	Size Size `yaml:"size"` // memory, null, file: bytes

	PCI       string `yaml:"pci"`        // nvme: address of the drive's function, or
	Serial    string `yaml:"serial"`     // nvme: its serial number
	DriveNSID uint32 `yaml:"drive_nsid"` // nvme: 0: 1
	Force     bool   `yaml:"force"`      // nvme, file: take it although it is in use or carries somebody's data

	Path     string `yaml:"path"`     // file: a file or a block device
	Buffered bool   `yaml:"buffered"` // file: through the page cache

	StripeSize Size      `yaml:"stripe_size"` // stripe: bytes of one member before the next one's
	Members    []Backend `yaml:"members"`     // stripe
}

// Size is a number of bytes, written as 4096, 128KiB, 256MiB, 1TiB.
type Size uint64
