package lab

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	nvmetRoot = "/sys/kernel/config/nvmet"
	nullbRoot = "/sys/kernel/config/nullb"
)

// NvmetConfig says what the kernel's own target serves.
type NvmetConfig struct {
	NQN       string
	Transport string // rdma, tcp
	Addr      string
	Port      string   // 4420 if empty
	Backing   []string // block devices or files; the first is namespace 1
	Hosts     []string // allowed host NQNs; any if empty
}

// Nvmet is a subsystem and a port of the kernel's own target.
type Nvmet struct {
	t      T
	config NvmetConfig
	undo   []func() error // newest last
}

// nvmetPort numbers the ports; below what people take by hand.
var nvmetPort atomic.Int32

// StartNvmet sets the kernel's own target up. When the test ends, it is taken down.
func StartNvmet(t T, c NvmetConfig) *Nvmet {
	t.Helper()
	if c.Port == "" {
		c.Port = Port
	}
	n := &Nvmet{t: t, config: c}
	t.Cleanup(n.Stop)
	if err := n.start(); err != nil {
		t.Fatalf("nvmet: %v", err)
	}
	return n
}

func (n *Nvmet) start() error {
	c := n.config
	if _, err := TryRun(runTimeout, "modprobe", "nvmet-"+c.Transport); err != nil {
		return err
	}
	subsystem := filepath.Join(nvmetRoot, "subsystems", c.NQN)
	if err := n.mkdir(subsystem); err != nil {
		return err
	}
	anyHost := "1"
	if len(c.Hosts) > 0 {
		anyHost = "0"
	}
	if err := writeFile(filepath.Join(subsystem, "attr_allow_any_host"), anyHost); err != nil {
		return err
	}
	for _, nqn := range c.Hosts {
		host := filepath.Join(nvmetRoot, "hosts", nqn)
		if err := n.mkdir(host); err != nil {
			return err
		}
		if err := n.symlink(host, filepath.Join(subsystem, "allowed_hosts", nqn)); err != nil {
			return err
		}
	}
	for i, device := range c.Backing {
		namespace := filepath.Join(subsystem, "namespaces", strconv.Itoa(i+1))
		if err := n.mkdir(namespace); err != nil {
			return err
		}
		if err := writeFile(filepath.Join(namespace, "device_path"), device); err != nil {
			return err
		}
		if err := writeFile(filepath.Join(namespace, "enable"), "1"); err != nil {
			return err
		}
	}
	port := filepath.Join(nvmetRoot, "ports", strconv.Itoa(1000+int(nvmetPort.Add(1))))
	if err := n.mkdir(port); err != nil {
		return err
	}
	for _, attr := range [][2]string{{"addr_trtype", c.Transport}, {"addr_adrfam", "ipv4"}, {"addr_traddr", c.Addr}, {"addr_trsvcid", c.Port}} {
		if err := writeFile(filepath.Join(port, attr[0]), attr[1]); err != nil {
			return err
		}
	}
	// This starts it listening.
	return n.symlink(subsystem, filepath.Join(port, "subsystems", c.NQN))
}

func (n *Nvmet) mkdir(path string) error {
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	n.undo = append(n.undo, func() error { return os.Remove(path) })
	return nil
}

func (n *Nvmet) symlink(target, path string) error {
	if err := os.Symlink(target, path); err != nil {
		return err
	}
	n.undo = append(n.undo, func() error { return os.Remove(path) })
	return nil
}

// Stop takes the target down: its hosts lose their connections.
func (n *Nvmet) Stop() {
	n.t.Helper()
	for ; len(n.undo) > 0; n.undo = n.undo[:len(n.undo)-1] {
		if err := n.undo[len(n.undo)-1](); err != nil {
			n.t.Errorf("nvmet: %v", err)
		}
	}
}

// NewNullBlk makes a block device that answers reads with nothing and forgets writes, of the given size and block size,
// and returns its path. It goes when the test ends.
func NewNullBlk(t T, name string, mib, blockSize int) string {
	t.Helper()
	dir := filepath.Join(nullbRoot, name)
	if _, err := os.Stat(nullbRoot); err != nil {
		Run(t, "modprobe", "null_blk", "nr_devices=0")
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Errorf("%v", err)
		}
	})
	for _, attr := range [][2]string{
		{"size", strconv.Itoa(mib)}, {"blocksize", strconv.Itoa(blockSize)},
		{"queue_mode", "2"}, {"irqmode", "0"}, {"memory_backed", "0"}, // multi-queue, completes at once, keeps nothing
		{"power", "1"},
	} {
		WriteFile(t, filepath.Join(dir, attr[0]), attr[1])
	}
	return waitBlock(t, name, ReadFile(t, filepath.Join(dir, "index")))
}

// waitBlock finds the device: named after its folder, or after its index on older kernels.
func waitBlock(t T, name, index string) string {
	t.Helper()
	var dev string
	WaitFor(t, 10*time.Second, "the block device of null_blk "+name, func() error {
		for _, dev = range []string{"/dev/" + name, "/dev/nullb" + index} {
			if _, err := os.Stat(dev); err == nil {
				return nil
			}
		}
		return errors.New("not there")
	})
	return dev
}
