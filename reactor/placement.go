package reactor

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// system is what placement depends on.
type system struct {
	online  []int
	allowed []int         // this process's affinity mask
	sibling map[int][]int // hardware threads of a core's own physical core
}

func readSystem() (system, error) {
	var sys system
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return sys, fmt.Errorf("reactor: read the affinity mask: %w", err)
	}
	for core := range len(set) * 64 {
		if set.IsSet(core) {
			sys.allowed = append(sys.allowed, core)
		}
	}
	const cpus = "/sys/devices/system/cpu/"
	sys.online = readCores(cpus + "online")
	if len(sys.online) == 0 { // no sysfs: the mask is all there is to know
		sys.online = sys.allowed
	}
	sys.sibling = make(map[int][]int)
	for _, core := range sys.allowed {
		sys.sibling[core] = readCores(fmt.Sprintf("%scpu%d/topology/thread_siblings_list", cpus, core))
	}
	return sys, nil
}

func readCores(path string) []int {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	cores, err := parseCores(strings.TrimSpace(string(text)))
	if err != nil {
		return nil
	}
	return cores
}

// parseCores reads a list as the kernel writes it: "0-3,8".
func parseCores(list string) ([]int, error) {
	var cores []int
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.ParseUint(from, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("core list %q: %w", list, err)
		}
		last := first
		if isRange {
			if last, err = strconv.ParseUint(to, 10, 16); err != nil || last < first {
				return nil, fmt.Errorf("core list %q: bad range %q", list, part)
			}
		}
		for c := first; c <= last; c++ {
			cores = append(cores, int(c))
		}
	}
	return cores, nil
}

// formatCores writes a sorted list as the kernel does.
func formatCores(cores []int) string {
	var b strings.Builder
	for i := 0; i < len(cores); {
		j := i
		for j+1 < len(cores) && cores[j+1] == cores[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(cores[i]))
		if j > i {
			fmt.Fprintf(&b, "-%d", cores[j])
		}
		i = j + 1
	}
	return b.String()
}

// place chooses each reactor's core. shared tells that some core has several.
func place(count int, cores []int, sys system) (placed []int, shared bool, err error) {
	if count < 0 {
		return nil, false, fmt.Errorf("reactor: count %d is negative", count)
	}
	if len(cores) > 0 {
		if count == 0 {
			count = len(cores)
		}
		if count != len(cores) {
			return nil, false, fmt.Errorf("reactor: count %d and %d cores contradict each other: leave one of them out", count, len(cores))
		}
		for i, core := range cores {
			switch {
			case !slices.Contains(sys.online, core):
				return nil, false, fmt.Errorf("reactor: core %d does not exist or is offline: the cores are %s", core, formatCores(sys.online))
			case !slices.Contains(sys.allowed, core):
				return nil, false, fmt.Errorf("reactor: core %d is not in this process's affinity mask, which is %s: change taskset, the cgroup's cpuset or CPUAffinity of the systemd unit", core, formatCores(sys.allowed))
			}
			shared = shared || slices.Contains(cores[:i], core)
		}
		return slices.Clone(cores), shared, nil
	}
	if count == 0 {
		count = 1
	}
	order := preferred(sys)
	for i := range count {
		placed = append(placed, order[i%len(order)])
	}
	return placed, count > len(order), nil
}

// preferred orders the cores for placement: from the last down, because interrupts and everything else gather on the
// first, and one hardware thread of each physical core before the second ones.
func preferred(sys system) []int {
	var whole, second []int
	for i := len(sys.allowed) - 1; i >= 0; i-- {
		core := sys.allowed[i]
		taken := slices.ContainsFunc(sys.sibling[core], func(s int) bool { return slices.Contains(whole, s) })
		if taken {
			second = append(second, core)
		} else {
			whole = append(whole, core)
		}
	}
	return append(whole, second...)
}

// procs keeps GOMAXPROCS at what the running reactors need.
var procs struct {
	sync.Mutex
	reactors int
	before   int
}

// controlProcs is how many goroutines run beside the reactors at least: a reactor never gives its place up, so with
// fewer the collector and the control plane would wait for it to be preempted.
const controlProcs = 2

// adjustProcs counts more, or fewer, running reactors. The runtime's own choice is not kept: it looks at the affinity
// mask only, and it would change it under way. More places than the reactors and a few need would only make the
// collector's bursts wider.
func adjustProcs(more int) {
	procs.Lock()
	defer procs.Unlock()
	if procs.reactors == 0 {
		procs.before = runtime.GOMAXPROCS(0)
	}
	procs.reactors += more
	if procs.reactors == 0 {
		runtime.GOMAXPROCS(procs.before)
		return
	}
	least := procs.reactors + controlProcs
	runtime.GOMAXPROCS(max(least, min(procs.before, least+controlProcs)))
}
