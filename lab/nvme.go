package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// connectTimeout is how long a connect, or a disconnect, may take.
const connectTimeout = 60 * time.Second

// ConnectOptions say what the host connects to, and how. What is empty is left to nvme-cli.
type ConnectOptions struct {
	Transport string // rdma, tcp
	Addr      string
	Port      string // 4420 if empty
	NQN       string
	HostNQN   string // give HostID too: the kernel refuses one of them with another's other
	HostID    string
	Queues    int
	Args      []string // further ones of nvme connect: "--ctrl-loss-tmo=30", "--reconnect-delay=1", ...
}

// Controller is a controller of the kernel's host, as connected by Connect.
type Controller struct {
	t    T
	Name string // nvme2
}

// Connect connects the kernel's host. When the test ends it is disconnected, if it still is there.
func Connect(t T, o ConnectOptions) *Controller {
	t.Helper()
	c, err := TryConnect(t, o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return c
}

// TryConnect is Connect for connects that may be refused.
func TryConnect(t T, o ConnectOptions) (*Controller, error) {
	t.Helper()
	if o.Port == "" {
		o.Port = Port
	}
	args := []string{"connect", "-t", o.Transport, "-a", o.Addr, "-s", o.Port, "-n", o.NQN, "-o", "json"}
	if o.HostNQN != "" {
		args = append(args, "-q", o.HostNQN)
	}
	if o.HostID != "" {
		args = append(args, "-I", o.HostID)
	}
	if o.Queues != 0 {
		args = append(args, "-i", strconv.Itoa(o.Queues))
	}
	out, err := TryRun(connectTimeout, "nvme", append(args, o.Args...)...)
	if err != nil {
		return nil, err
	}
	var reply struct{ Device string }
	if err := json.Unmarshal([]byte(out), &reply); err != nil || reply.Device == "" {
		return nil, fmt.Errorf("nvme connect names no device: %q", out)
	}
	c := &Controller{t: t, Name: reply.Device}
	subnqn := c.attr("subsysnqn")
	t.Cleanup(func() {
		// The name may be another controller's by now.
		if c.attr("subsysnqn") == subnqn && c.attr("transport") == o.Transport {
			if _, err := TryRun(connectTimeout, "nvme", "disconnect", "-d", c.Name); err != nil {
				t.Errorf("%v", err)
			}
		}
	})
	return c, nil
}

// Disconnect disconnects this controller and waits until it is gone.
func (c *Controller) Disconnect() {
	c.t.Helper()
	if out, err := TryRun(connectTimeout, "nvme", "disconnect", "-d", c.Name); err != nil {
		c.t.Fatalf("%v%s", err, out)
	}
	WaitFor(c.t, connectTimeout, c.Name+" to go away", func() error {
		if c.Exists() {
			return errors.New("still in sysfs")
		}
		return nil
	})
}

func (c *Controller) path(attr string) string { return filepath.Join("/sys/class/nvme", c.Name, attr) }

func (c *Controller) attr(name string) string {
	data, _ := os.ReadFile(c.path(name))
	return strings.TrimSpace(string(data))
}

// Exists tells whether the host (still) has the controller.
func (c *Controller) Exists() bool {
	_, err := os.Stat(c.path(""))
	return err == nil
}

// State is live, connecting, resetting, deleting, dead, ...; empty if the controller is gone.
func (c *Controller) State() string { return c.attr("state") }

// CNTLID returns the controller's id, as its target gave it.
func (c *Controller) CNTLID() string { return c.attr("cntlid") }

// WaitState waits for a state.
func (c *Controller) WaitState(limit time.Duration, state string) {
	c.t.Helper()
	WaitFor(c.t, limit, c.Name+" to be "+state, func() error {
		if now := c.State(); now != state {
			return fmt.Errorf("it is %q", now)
		}
		return nil
	})
}

// Dev returns the controller's own character device, for admin commands.
func (c *Controller) Dev() string { return "/dev/" + c.Name }

// Namespace returns the block device of a namespace. The numbers in its name need not be the controller's or the NSID.
func (c *Controller) Namespace(nsid int) string {
	c.t.Helper()
	return c.node(nsid, "nvme")
}

// Generic returns the character device of a namespace, for io_uring_cmd.
func (c *Controller) Generic(nsid int) string {
	c.t.Helper()
	return c.node(nsid, "ng")
}

func (c *Controller) node(nsid int, prefix string) string {
	c.t.Helper()
	var dev string
	WaitFor(c.t, 20*time.Second, fmt.Sprintf("namespace %d of %s", nsid, c.Name), func() error {
		head, err := c.head(nsid)
		if err != nil {
			return err
		}
		dev = "/dev/" + strings.Replace(head, "nvme", prefix, 1)
		_, err = os.Stat(dev)
		return err
	})
	return dev
}

// Namespaces returns the NSIDs that the host sees, unordered.
func (c *Controller) Namespaces() []int {
	var nsids []int
	for _, path := range c.paths() {
		data, err := os.ReadFile(filepath.Join(path, "nsid"))
		if err != nil {
			continue
		}
		if nsid, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil {
			nsids = append(nsids, nsid)
		}
	}
	return nsids
}

// pathName matches a namespace of a controller in sysfs: nvme2n1, or nvme0c2n1 where the host has multipathing.
var pathName = regexp.MustCompile(`^nvme\d+(c\d+)?n\d+$`)

func (c *Controller) paths() []string {
	entries, _ := os.ReadDir(c.path(""))
	var paths []string
	for _, e := range entries {
		if pathName.MatchString(e.Name()) {
			paths = append(paths, c.path(e.Name()))
		}
	}
	return paths
}

var pathPart = regexp.MustCompile(`c\d+n`)

func (c *Controller) head(nsid int) (string, error) {
	for _, path := range c.paths() {
		data, err := os.ReadFile(filepath.Join(path, "nsid"))
		if err == nil && strings.TrimSpace(string(data)) == strconv.Itoa(nsid) {
			return pathPart.ReplaceAllString(filepath.Base(path), "n"), nil
		}
	}
	return "", fmt.Errorf("the host does not see it (state %q)", c.State())
}

// Nvme runs nvme-cli and returns its output.
func Nvme(t T, args ...string) string {
	t.Helper()
	return Run(t, "nvme", args...)
}

// NvmeJSON runs nvme-cli with `-o json` and decodes its output.
func NvmeJSON(t T, v any, args ...string) {
	t.Helper()
	out := Run(t, "nvme", append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), v); err != nil {
		t.Fatalf("nvme %s: %v in %q", strings.Join(args, " "), err, out)
	}
}

// DiscoveryEntry is an entry of a discovery log.
type DiscoveryEntry struct {
	TrType, AdrFam, SubType, TrAddr, TrSvcID, SubNQN, EFlags string
	PortID                                                   int
}

// Discover reads the discovery log at an address.
func Discover(t T, transport, addr, port string, args ...string) []DiscoveryEntry {
	t.Helper()
	var log struct{ Records []DiscoveryEntry }
	NvmeJSON(t, &log, append([]string{"discover", "-t", transport, "-a", addr, "-s", port}, args...)...)
	return log.Records
}

// Subsystems returns the entries' NQNs, discovery subsystems not among them.
func Subsystems(entries []DiscoveryEntry) []string {
	var nqns []string
	for _, e := range entries {
		if e.SubType == "nvme subsystem" {
			nqns = append(nqns, e.SubNQN)
		}
	}
	return nqns
}
