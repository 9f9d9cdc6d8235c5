package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestCounter(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		verbose  bool
		want     tally
		bad      bool
		out      string // contained in what is printed
		notOut   string
	}{
		{
			name: "pass, skip, subtests count with their parent",
			in: `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/x"}
{"Action":"output","Package":"p","Test":"TestA/x","Output":"noise\n"}
{"Action":"pass","Package":"p","Test":"TestA/x"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
`,
			want: tally{passed: 1, skipped: 1}, out: "ok  \tp\t0.1s\n", notOut: "noise",
		},
		{
			name: "a failed test shows its output",
			in: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"why\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}
`,
			want: tally{failed: 1}, bad: true, out: "why\n",
		},
		{
			name: "a test that never ends has failed",
			in: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"panic: x\n"}
{"Action":"fail","Package":"p"}
`,
			want: tally{failed: 1}, bad: true, out: "panic: x\n--- FAIL: TestA (did not end)\n",
		},
		{
			name: "a stream that breaks off has failed",
			in: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
`,
			want: tally{passed: 1, failed: 1}, bad: true, out: "ended without a verdict",
		},
		{
			name: "a package that does not build",
			in: `{"ImportPath":"p [p.test]","Action":"build-output","Output":"p.go:1: broken\n"}
{"ImportPath":"p [p.test]","Action":"build-fail"}
{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p"}
`,
			want: tally{failed: 1}, bad: true, out: "broken\nFAIL\tp [build failed]\n",
		},
		{
			name: "a package without tests is no skipped test",
			in: `{"Action":"output","Package":"p","Output":"?   \tp\t[no test files]\n"}
{"Action":"skip","Package":"p"}
`,
		},
		{name: "nothing at all", in: "go: no such module\n", want: tally{failed: 1}, bad: true, out: "go: no such module\n"},
		{
			name: "verbose prints as it comes", verbose: true,
			in: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"pass","Package":"p"}
`,
			want: tally{passed: 1}, out: "=== RUN   TestA\nPASS\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			c := newCounter(&out, tt.verbose)
			if err := c.read(strings.NewReader(tt.in)); err != nil {
				t.Fatal(err)
			}
			if c.tally != tt.want || c.bad != tt.bad {
				t.Errorf("counted %v, bad %v; want %v, %v", c.tally, c.bad, tt.want, tt.bad)
			}
			if !strings.Contains(out.String(), tt.out) {
				t.Errorf("printed %q, without %q", out.String(), tt.out)
			}
			if tt.notOut != "" && strings.Contains(out.String(), tt.notOut) {
				t.Errorf("printed %q, with %q", out.String(), tt.notOut)
			}
		})
	}
}

func TestTally(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tally")
	for _, one := range []tally{{1, 0, 2}, {3, 1, 0}} {
		if err := addTally(path, one); err != nil {
			t.Fatal(err)
		}
	}
	sum, err := sumTally(path)
	if err != nil || sum != (tally{4, 1, 2}) {
		t.Errorf("sum %v, %v", sum, err)
	}
	if sum.String() != "4 passed, 1 failed, 2 skipped" {
		t.Errorf("prints %q", sum)
	}
}
