package lab

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Resources are counts of RDMA objects, by "device kind": "rxe0 qp".
type Resources map[string]int

// ReadResources counts the RDMA objects of all devices, the kernel's and those of user space. Of completion queues it
// counts user space's only: the kernel keeps its own in a pool that never shrinks.
func ReadResources() (Resources, error) {
	var devices []map[string]any
	if err := rdmaJSON(&devices, "resource", "show"); err != nil {
		return nil, err
	}
	var cqs []struct {
		Ifname string
		Pid    *int
	}
	if err := rdmaJSON(&cqs, "resource", "show", "cq"); err != nil {
		return nil, err
	}
	res := Resources{}
	for _, d := range devices {
		name, _ := d["ifname"].(string)
		for kind, n := range d {
			if count, ok := n.(float64); ok && kind != "ifindex" && kind != "cq" {
				res[name+" "+kind] = int(count)
			}
		}
		res[name+" cq"] = 0
	}
	for _, cq := range cqs {
		if cq.Pid != nil {
			res[cq.Ifname+" cq"]++
		}
	}
	return res, nil
}

func rdmaJSON(v any, args ...string) error {
	out, err := TryRun(runTimeout, "rdma", append([]string{"-j"}, args...)...)
	if err != nil {
		return err
	}
	if strings.TrimSpace(out) == "" {
		out = "[]" // no device
	}
	if err := json.Unmarshal([]byte(out), v); err != nil {
		return fmt.Errorf("rdma %s: %w in %q", strings.Join(args, " "), err, out)
	}
	return nil
}

// diff tells how other differs; empty if it does not.
func (r Resources) diff(other Resources) string {
	var lines []string
	all := Resources{}
	maps.Copy(all, r)
	maps.Copy(all, other)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if r[key] != other[key] {
			lines = append(lines, fmt.Sprintf("%s: %d, was %d", key, other[key], r[key]))
		}
	}
	return strings.Join(lines, "; ")
}

// resourceTimeout is how long objects may take to go after what used them is gone: connections linger in TIMEWAIT.
const resourceTimeout = 20 * time.Second

// CheckResources fails the test if it ends with other RDMA objects than it began with. Call it first: what the test
// starts afterwards is stopped before it looks.
func CheckResources(t T) {
	t.Helper()
	before, err := ReadResources()
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { before.waitFor(t) })
}

// WaitResources waits until the RDMA objects are what they were.
func WaitResources(t T, before Resources) {
	t.Helper()
	before.waitFor(t)
}

func (r Resources) waitFor(t T) {
	t.Helper()
	err := poll(resourceTimeout, func() error {
		now, err := ReadResources()
		if err != nil {
			return err
		}
		if diff := r.diff(now); diff != "" {
			return fmt.Errorf("%s", diff)
		}
		return nil
	})
	if err != nil {
		var details []string
		for _, kind := range []string{"qp", "cm_id", "mr"} {
			out, _ := TryRun(runTimeout, "rdma", "resource", "show", kind)
			details = append(details, tail(out, 20))
		}
		t.Errorf("RDMA objects were not given back: %v\n%s", err, strings.Join(details, ""))
	}
}

// SetLink takes a network interface up or down. When the test ends it is up.
func SetLink(t T, iface string, up bool) {
	t.Helper()
	state := "down"
	if up {
		state = "up"
	} else {
		t.Cleanup(func() {
			if _, err := TryRun(runTimeout, "ip", "link", "set", iface, "up"); err != nil {
				t.Errorf("%v", err)
			}
		})
	}
	Run(t, "ip", "link", "set", iface, state)
}

// NewRoCE makes a Soft-RoCE device on an interface of its own that has the address ("10.9.7.1"). Both go when the test
// ends, if they still are there.
func NewRoCE(t T, iface, device, addr string) {
	t.Helper()
	t.Cleanup(func() {
		TryRun(runTimeout, "rdma", "link", "delete", device)
		TryRun(runTimeout, "ip", "link", "delete", iface)
	})
	Run(t, "ip", "link", "add", iface, "type", "dummy")
	Run(t, "ip", "link", "set", iface, "mtu", "9000", "up")
	Run(t, "ip", "addr", "add", addr+"/24", "dev", iface)
	Run(t, "rdma", "link", "add", device, "type", "rxe", "netdev", iface)
}
