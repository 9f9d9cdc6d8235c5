package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// bench is the lab.T of a program that is no test.
type bench struct {
	failed   bool
	cleanups []func()
}

// stop is what Fatalf panics with.
type stop struct{}

func newBench() *bench { return &bench{} }

// main runs f and then all cleanups, newest first, and returns the exit status.
func (b *bench) main(f func()) (status int) {
	b.guard(f)
	for len(b.cleanups) > 0 {
		last := b.cleanups[len(b.cleanups)-1]
		b.cleanups = b.cleanups[:len(b.cleanups)-1]
		b.guard(last)
	}
	if b.failed {
		return 1
	}
	return 0
}

func (b *bench) guard(f func()) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(stop); !ok {
				panic(r)
			}
		}
	}()
	f()
}

func (b *bench) Helper()          {}
func (b *bench) Name() string     { return "bench" }
func (b *bench) Failed() bool     { return b.failed }
func (b *bench) Cleanup(f func()) { b.cleanups = append(b.cleanups, f) }

func (b *bench) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}

func (b *bench) Errorf(format string, args ...any) {
	b.failed = true
	b.Logf(format, args...)
}

func (b *bench) Fatalf(format string, args ...any) {
	b.Errorf(format, args...)
	panic(stop{})
}

// Skipf fails: a benchmark that cannot run has no result.
func (b *bench) Skipf(format string, args ...any) { b.Fatalf(format, args...) }

func (b *bench) TempDir() string {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		b.Fatalf("%v", err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// cpuTime reads how much processor time a process has used.
func cpuTime(b *bench, pid int) cpu {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatalf("%v", err)
	}
	c, err := parseStat(string(data))
	if err != nil {
		b.Fatalf("/proc/%d/stat: %v", pid, err)
	}
	return c
}

// parseStat takes utime and stime, fields 14 and 15 of proc_pid_stat(5), in ticks of 10 ms. Field 2 is the name, in
// parentheses, and may hold anything.
func parseStat(stat string) (cpu, error) {
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:]) // from field 3 on
	if len(fields) < 13 {
		return cpu{}, fmt.Errorf("not a stat line: %q", stat)
	}
	user, err := strconv.ParseFloat(fields[11], 64)
	if err != nil {
		return cpu{}, err
	}
	system, err := strconv.ParseFloat(fields[12], 64)
	if err != nil {
		return cpu{}, err
	}
	const tick = 1e4 // µs: USER_HZ is 100 on every platform that is supported
	return cpu{user * tick, system * tick}, nil
}
