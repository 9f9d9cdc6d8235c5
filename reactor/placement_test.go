package reactor

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestPinnedToItsCore(t *testing.T) {
	g := startGroup(t, Config{Count: runtime.NumCPU()})
	seen := map[int]bool{}
	for _, r := range g.Reactors() {
		r.Call(func() {
			var set unix.CPUSet
			if err := unix.SchedGetaffinity(0, &set); err != nil {
				t.Error(err)
			}
			if set.Count() != 1 || !set.IsSet(r.Core()) {
				t.Errorf("reactor %d on core %d has %d cores", r.ID(), r.Core(), set.Count())
			}
		})
		if seen[r.Core()] {
			t.Errorf("core %d has two reactors", r.Core())
		}
		seen[r.Core()] = true
	}
}

func TestAffinityEndsWithTheGroup(t *testing.T) {
	affinity := func(tid int) (set unix.CPUSet) {
		if err := unix.SchedGetaffinity(tid, &set); err != nil && err != unix.ESRCH {
			t.Fatal(err)
		}
		return set
	}
	before := affinity(0)
	for range 20 {
		g := startGroup(t, Config{Count: 3, Mode: Busy})
		g.Stop()
	}
	deadline := time.Now().Add(5 * time.Second) // threads take a moment to end
again:
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		if err != nil {
			t.Fatal(err)
		}
		if set := affinity(tid); set != before && set.Count() != 0 {
			if time.Now().Before(deadline) {
				time.Sleep(time.Millisecond)
				goto again
			}
			t.Fatalf("thread %d of process %d is left with %d cores of %d", tid, os.Getpid(), set.Count(), before.Count())
		}
	}
}

func TestProcsFollowTheReactors(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	g := startGroup(t, Config{Count: 3})
	if now := runtime.GOMAXPROCS(0); now < 5 {
		t.Errorf("GOMAXPROCS is %d with 3 reactors", now)
	}
	h := startGroup(t, Config{Count: 2})
	if now := runtime.GOMAXPROCS(0); now < 7 {
		t.Errorf("GOMAXPROCS is %d with 3 and 2 reactors", now)
	}
	g.Stop()
	h.Stop()
	if now := runtime.GOMAXPROCS(0); now != before {
		t.Errorf("GOMAXPROCS is %d after all, %d before", now, before)
	}
}

func TestPlacement(t *testing.T) {
	sys := system{
		online:  []int{0, 1, 2, 3, 4, 5, 6, 7},
		allowed: []int{0, 1, 2, 3, 4, 5, 6},
		sibling: map[int][]int{0: {0, 4}, 1: {1, 5}, 2: {2, 6}, 3: {3, 7}, 4: {0, 4}, 5: {1, 5}, 6: {2, 6}},
	}
	for _, c := range []struct {
		name   string
		count  int
		cores  []int
		want   []int
		shared bool
		err    string
	}{
		{name: "default", want: []int{6}},
		{name: "whole cores first", count: 5, want: []int{6, 5, 4, 3, 2}},
		{name: "all", count: 7, want: []int{6, 5, 4, 3, 2, 1, 0}},
		{name: "more than there are", count: 9, want: []int{6, 5, 4, 3, 2, 1, 0, 6, 5}, shared: true},
		{name: "chosen", cores: []int{2, 0}, want: []int{2, 0}},
		{name: "chosen and counted", count: 2, cores: []int{2, 0}, want: []int{2, 0}},
		{name: "chosen twice", cores: []int{2, 2}, want: []int{2, 2}, shared: true},
		{name: "contradiction", count: 3, cores: []int{2, 0}, err: "count 3 and 2 cores contradict"},
		{name: "no such core", cores: []int{2, 8}, err: "core 8 does not exist or is offline: the cores are 0-7"},
		{name: "not allowed", cores: []int{7}, err: "core 7 is not in this process's affinity mask, which is 0-6"},
		{name: "negative", count: -1, err: "count -1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, shared, err := place(c.count, c.cores, sys)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, c.want) || shared != c.shared {
				t.Errorf("placed %v, shared %v; want %v, %v", got, shared, c.want, c.shared)
			}
		})
	}
}

func TestCoreLists(t *testing.T) {
	for _, c := range []struct {
		list  string
		cores []int
	}{{"0", []int{0}}, {"0-3", []int{0, 1, 2, 3}}, {"0-1,4,6-8", []int{0, 1, 4, 6, 7, 8}}} {
		got, err := parseCores(c.list)
		if err != nil || !slices.Equal(got, c.cores) {
			t.Errorf("parseCores(%q) = %v, %v", c.list, got, err)
		}
		if back := formatCores(c.cores); back != c.list {
			t.Errorf("formatCores(%v) = %q", c.cores, back)
		}
	}
	for _, bad := range []string{"", "a", "3-1", "1-", "1,,2", "99999999"} {
		if got, err := parseCores(bad); err == nil {
			t.Errorf("parseCores(%q) = %v", bad, got)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Cores: []int{60000}}, "core 60000 does not exist"},
		{Config{Mode: 9}, "mode 9"},
		{Config{IdleSpin: -1}, "negative"},
	} {
		if _, err := NewGroup(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q", c.cfg, err, c.want)
		}
	}
	var logged bytes.Buffer
	if _, err := NewGroup(Config{Count: 5000, Log: slog.New(slog.NewTextHandler(&logged, nil))}); err != nil {
		t.Error(err)
	}
	if !strings.Contains(logged.String(), "more reactors than cores") {
		t.Errorf("no warning about 5000 reactors: %q", logged.String())
	}
	for m := Adaptive; m <= Interrupt; m++ {
		if got, err := ParseMode(fmt.Sprint(m)); err != nil || got != m {
			t.Errorf("ParseMode(%v) = %v, %v", m, got, err)
		}
	}
	if _, err := ParseMode("lazy"); err == nil {
		t.Error("mode lazy exists")
	}
}
