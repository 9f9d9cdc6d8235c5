//go:build !cgo || !linux

package verbs

import "errors"

// Open fails: this binary was built without the C libraries.
func Open() (Provider, error) {
	return nil, errors.New("verbs: this rocet was built without cgo and has no RDMA; " +
		"on Linux install gcc, libibverbs-dev and librdmacm-dev and build with CGO_ENABLED=1")
}
