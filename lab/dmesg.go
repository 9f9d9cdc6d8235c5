package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// harmless are warnings that the kernel gives in the lab whatever the target does.
var harmless = regexp.MustCompile(`speed is unknown, defaulting to 1000|hrtimer: interrupt took`)

// broken are lines that are bugs at whatever level they are logged.
var broken = regexp.MustCompile(`WARNING:|BUG:|Oops|general protection|Call Trace|blocked for more than|soft lockup|rcu: INFO|I/O error`)

// warningLevel is the least severe of the levels that fail a test: emerg 0, alert, crit, err, warning 4.
const warningLevel = 4

// Dmesg is a place in the kernel's log.
type Dmesg struct {
	t     T
	f     *os.File
	lines []KernelLine // read so far
}

// KernelLine is a line of the kernel's log.
type KernelLine struct {
	Level int
	Text  string
}

// CheckDmesg fails the test if the kernel logs a warning or worse from now until the test ends, other than those that
// the patterns match: a test that provokes an error names what it provokes.
func CheckDmesg(t T, allow ...string) *Dmesg {
	t.Helper()
	d := MarkDmesg(t)
	allowed := make([]*regexp.Regexp, len(allow))
	for i, pattern := range allow {
		allowed[i] = regexp.MustCompile(pattern)
	}
	t.Cleanup(func() {
		defer d.f.Close()
		lines := d.Lines()
		bad := badLines(lines, allowed)
		if len(bad) > 0 {
			t.Errorf("the kernel complained:\n\t%s", strings.Join(bad, "\n\t"))
		}
		if t.Failed() {
			all := make([]string, len(lines))
			for i, l := range lines {
				all[i] = l.Text
			}
			t.Logf("the kernel's log:\n%s", tail(strings.Join(all, "\n"), 100))
		}
	})
	return d
}

// MarkDmesg remembers where the kernel's log ends now. The log can be read from there on as often as one likes.
func MarkDmesg(t T) *Dmesg {
	t.Helper()
	f, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if _, err := f.Seek(0, 2); err != nil {
		t.Fatalf("/dev/kmsg: %v", err)
	}
	return &Dmesg{t: t, f: f}
}

// Lines returns what the kernel has logged since the mark.
func (d *Dmesg) Lines() []KernelLine {
	d.t.Helper()
	record := make([]byte, 8192) // as long as a record can be; a read returns one
	fd := int(d.f.Fd())
	if err := syscall.SetNonblock(fd, true); err != nil {
		d.t.Fatalf("/dev/kmsg: %v", err)
	}
	for {
		n, err := syscall.Read(fd, record)
		switch {
		case errors.Is(err, syscall.EAGAIN):
			return d.lines
		case errors.Is(err, syscall.EPIPE):
			d.lines = append(d.lines, KernelLine{Level: 6, Text: "(lines were lost: the log was overwritten)"})
			continue
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			d.t.Fatalf("/dev/kmsg: %v", err)
		}
		line, err := parseKmsg(record[:n])
		if err != nil {
			d.t.Fatalf("/dev/kmsg: %v", err)
		}
		d.lines = append(d.lines, line)
	}
}

// Matching returns the lines since the mark that match.
func (d *Dmesg) Matching(pattern string) []string {
	d.t.Helper()
	re := regexp.MustCompile(pattern)
	var found []string
	for _, l := range d.Lines() {
		if re.MatchString(l.Text) {
			found = append(found, l.Text)
		}
	}
	return found
}

// parseKmsg decodes a record: "6,339,5140900,-;text", continued in lines of " KEY=value".
func parseKmsg(record []byte) (KernelLine, error) {
	head, text, ok := bytes.Cut(record, []byte(";"))
	prefix, _, _ := strings.Cut(string(head), ",")
	priority, err := strconv.Atoi(prefix)
	if !ok || err != nil {
		return KernelLine{}, fmt.Errorf("not a record: %q", record)
	}
	text, _, _ = bytes.Cut(text, []byte("\n"))
	return KernelLine{Level: priority & 7, Text: string(text)}, nil // the rest is the facility
}

func badLines(lines []KernelLine, allowed []*regexp.Regexp) []string {
	var bad []string
next:
	for _, l := range lines {
		if l.Level > warningLevel && !broken.MatchString(l.Text) || harmless.MatchString(l.Text) {
			continue
		}
		for _, re := range allowed {
			if re.MatchString(l.Text) {
				continue next
			}
		}
		bad = append(bad, l.Text)
	}
	return bad
}
