package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// T is what the helpers need of a *testing.T; programs that measure bring one of their own.
type T interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Failed() bool
	Cleanup(func())
	TempDir() string
}

// The lab's two networks: each address belongs to a RoCE device that is looped back (rxe0 on d0, rxe1 on d1).
const (
	Addr0 = "10.9.0.1"
	Addr1 = "10.9.1.1"
	Port  = "4420"
)

// InGuest tells whether this is the lab's guest, with its drives and its machine's monitor, and not a machine that runs
// the suite on its own kernel.
func InGuest() bool { return os.Getenv("LAB") != "" }

// RequireGuest skips a test that needs the guest.
func RequireGuest(t T) {
	t.Helper()
	if !InGuest() {
		t.Skipf("needs the lab's guest (scripts/lab): its drives, its machine's monitor")
	}
}

// runTimeout bounds commands that should take a second or two, on a busy emulated processor.
const runTimeout = 60 * time.Second

// Run runs a command and returns what it prints to standard output. It must succeed within a minute.
func Run(t T, name string, args ...string) string {
	t.Helper()
	out, err := TryRun(runTimeout, name, args...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return out
}

// TryRun is Run for commands that may fail, or take long: the error holds the command, its status and its output.
func TryRun(limit time.Duration, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	// A process that hangs in the kernel cannot be killed: don't wait for it for ever.
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err == nil {
		return stdout.String(), nil
	}
	line := strings.Join(append([]string{name}, args...), " ")
	if ctx.Err() != nil {
		err = fmt.Errorf("still ran after %v (%w)", limit, err)
	}
	return stdout.String(), fmt.Errorf("%s: %w\n%s%s", line, err, stdout.String(), stderr.String())
}

// ExitCode returns the exit status in an error of TryRun, or -1.
func ExitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

// WaitFor calls done until it returns nil. After limit the test fails with its last error.
func WaitFor(t T, limit time.Duration, what string, done func() error) {
	t.Helper()
	if err := poll(limit, done); err != nil {
		t.Fatalf("waited %v for %s: %v", limit, what, err)
	}
}

func poll(limit time.Duration, done func() error) error {
	deadline := time.Now().Add(limit)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := done()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pause)
	}
}

// ReadFile returns a file of sysfs or the like without its last newline.
func ReadFile(t T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return strings.TrimRight(string(data), "\n")
}

// WriteFile writes to a file of sysfs, configfs or the like that exists.
func WriteFile(t T, path, value string) {
	t.Helper()
	if err := writeFile(path, value); err != nil {
		t.Fatalf("%v", err)
	}
}

func writeFile(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("writing %q: %w", value, err)
	}
	return nil
}
