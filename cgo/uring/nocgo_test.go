//go:build !cgo || !linux

package uring

import (
	"errors"
	"strings"
	"testing"
)

// Without cgo there are no rings, and whoever wants one is told what to do about it.
func TestWithoutCgo(t *testing.T) {
	r, err := Open(Options{Entries: 8, Completions: 8})
	if r != nil || !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("ring %v, error %v", r, err)
	}
	for _, want := range []string{"without cgo", "liburing-dev", "CGO_ENABLED=1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}
