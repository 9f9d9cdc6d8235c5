//go:build !cgo || !linux

package uring

import "errors"

// errNoCgo is the answer of everything here.
var errNoCgo error = noCgo{}

// noCgo is an errors.ErrUnsupported, as is the ENOSYS of a kernel that has no io_uring.
type noCgo struct{}

func (noCgo) Error() string {
	return "uring: this rocet was built without cgo and has no io_uring, which files and block devices need; " +
		"on Linux install gcc and liburing-dev and build with CGO_ENABLED=1"
}

func (noCgo) Is(target error) bool { return target == errors.ErrUnsupported }

// Ring is an io_uring, of which there are none in this build.
type Ring struct{}

// Open fails: this binary was built without the C library.
func Open(Options) (*Ring, error) { return nil, errNoCgo }

// Enable fails.
func (*Ring) Enable() error { return errNoCgo }

// Close does nothing.
func (*Ring) Close() {}

// FD is none.
func (*Ring) FD() int { return -1 }

// Arm is true.
func (*Ring) Arm() bool { return true }

// Disarm does nothing.
func (*Ring) Disarm() {}

// RegisterBuffers fails.
func (*Ring) RegisterBuffers([]Buffer) error { return errNoCgo }

// RegisterFiles fails.
func (*Ring) RegisterFiles(int) error { return errNoCgo }

// SetFile fails.
func (*Ring) SetFile(_, _ int) error { return errNoCgo }

// Next has no entry.
func (*Ring) Next() *SQE { return nil }

// Made is 0.
func (*Ring) Made() int { return 0 }

// Pending is false.
func (*Ring) Pending() bool { return false }

// Enter fails.
func (*Ring) Enter() ([]CQE, error) { return nil, errNoCgo }
