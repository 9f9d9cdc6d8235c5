// Testcount reads `go test -json` events from standard input, prints them for people while they come, and adds what it
// counted to a tally file.
//
//	go test -json ./... | testcount -tally FILE     each package's closing line, and the output of tests that fail
//	... | testcount -tally FILE -v                  every test's start and end too, and all output
//	testcount -tally FILE -sum                      prints "N passed, N failed, N skipped" and fails if any failed
//
// Counted are top-level tests. A test that started and never ended, and a package that did not build or died outside
// its tests, count as failed. Its own status is 1 if anything in the stream failed, or if the stream holds no package.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
)

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

type tally struct{ passed, failed, skipped int }

func (t tally) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", t.passed, t.failed, t.skipped)
}

// pkg is what is known of a package while its events come.
type pkg struct {
	open   map[string][]string // tests that run, with their output so far
	failed bool                // one of its tests has failed
	own    []string            // output outside of tests
}

type counter struct {
	tally
	out     io.Writer
	verbose bool
	pkgs    map[string]*pkg
	ended   int  // packages that came to an end
	bad     bool // something failed, counted or not
}

func main() {
	file := flag.String("tally", "", "file that the counts are added to")
	verbose := flag.Bool("v", false, "print every test's start, end and output")
	need := flag.Bool("need", false, "fail if no test has passed or failed")
	sum := flag.Bool("sum", false, "print the sum of the tally file")
	flag.Parse()
	if *file == "" {
		fmt.Fprintln(os.Stderr, "testcount: -tally FILE is missing")
		os.Exit(2)
	}
	if *sum {
		t, err := sumTally(*file)
		if err != nil {
			fmt.Fprintln(os.Stderr, "testcount:", err)
			os.Exit(2)
		}
		fmt.Println(t)
		if t.failed > 0 {
			os.Exit(1)
		}
		return
	}
	c := newCounter(os.Stdout, *verbose)
	if err := c.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testcount:", err)
		c.bad = true
	}
	if *need && c.passed+c.failed == 0 {
		fmt.Println("FAIL\tno test was run")
		c.failed++
		c.bad = true
	}
	if err := addTally(*file, c.tally); err != nil {
		fmt.Fprintln(os.Stderr, "testcount:", err)
		os.Exit(2)
	}
	if c.bad {
		os.Exit(1)
	}
}

func newCounter(out io.Writer, verbose bool) *counter {
	return &counter{out: out, verbose: verbose, pkgs: map[string]*pkg{}}
}

// read takes events to the end of the stream and counts what was left unfinished as failed.
func (c *counter) read(r io.Reader) error {
	lines := bufio.NewReaderSize(r, 1<<16)
	for {
		line, err := lines.ReadString('\n')
		if strings.HasPrefix(line, "{") {
			var e event
			if json.Unmarshal([]byte(line), &e) == nil {
				c.event(e)
			} else {
				fmt.Fprint(c.out, line)
			}
		} else if line != "" {
			fmt.Fprint(c.out, line) // what the go command itself says
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	names := make([]string, 0, len(c.pkgs))
	for name := range c.pkgs {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintf(c.out, "FAIL\t%s\tended without a verdict\n", name)
		c.end(name, true)
	}
	if c.ended == 0 && !c.bad {
		c.bad = true
		c.failed++
		fmt.Fprintln(c.out, "FAIL\tno package was tested")
	}
	return nil
}

func (c *counter) event(e event) {
	if e.Action == "build-output" {
		fmt.Fprint(c.out, e.Output)
		return
	}
	if e.Action == "build-fail" { // the packages that needed it fail by themselves
		c.bad = true
		return
	}
	p := c.pkgs[e.Package]
	if p == nil {
		p = &pkg{open: map[string][]string{}}
		c.pkgs[e.Package] = p
	}
	top, _, isSub := strings.Cut(e.Test, "/")
	switch e.Action {
	case "run":
		if !isSub {
			p.open[top] = nil
		}
	case "output":
		c.output(p, top, e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			c.end(e.Package, e.Action == "fail")
			return
		}
		if isSub {
			return
		}
		switch e.Action {
		case "pass":
			c.passed++
		case "skip":
			c.skipped++
		case "fail":
			c.failed++
			p.failed = true
			c.flush(p.open[top])
		}
		delete(p.open, top)
	}
}

// output prints a line at once, or keeps it until its test or package is known to have failed.
func (c *counter) output(p *pkg, test, line string) {
	switch {
	case c.verbose:
		fmt.Fprint(c.out, line)
	case test != "":
		p.open[test] = append(p.open[test], line)
	case strings.Contains(line, "[no tests to run]"): // of a pattern that is not for this package
	case isVerdict(line):
		fmt.Fprint(c.out, line)
	default:
		p.own = append(p.own, line)
	}
}

// isVerdict tells the go command's closing lines of a package from other output.
func isVerdict(line string) bool {
	return strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "FAIL\t")
}

func (c *counter) flush(lines []string) {
	if c.verbose {
		return // printed already
	}
	for _, line := range lines {
		fmt.Fprint(c.out, line)
	}
}

// end closes a package: tests that still run have not survived it.
func (c *counter) end(name string, failed bool) {
	p := c.pkgs[name]
	delete(c.pkgs, name)
	c.ended++
	if !failed {
		return
	}
	c.bad = true
	tests := make([]string, 0, len(p.open))
	for test := range p.open {
		tests = append(tests, test)
	}
	sort.Strings(tests)
	for _, test := range tests {
		c.flush(p.open[test])
		fmt.Fprintf(c.out, "--- FAIL: %s (did not end)\n", test)
		c.failed++
	}
	c.flush(p.own)
	if !p.failed && len(tests) == 0 {
		c.failed++ // it did not build, or died before or after its tests
	}
}

func addTally(path string, t tally) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%d %d %d\n", t.passed, t.failed, t.skipped)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func sumTally(path string) (tally, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return tally{}, err
	}
	var sum tally
	for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var t tally
		if _, err := fmt.Sscanf(line, "%d %d %d", &t.passed, &t.failed, &t.skipped); err != nil {
			return tally{}, fmt.Errorf("%s:%d: not a tally: %q", path, i+1, line)
		}
		sum.passed += t.passed
		sum.failed += t.failed
		sum.skipped += t.skipped
	}
	return sum, nil
}
