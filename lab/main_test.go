//go:build lab

package lab

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if err := ground(); err != nil {
		fmt.Fprintf(os.Stderr, "the lab suite cannot run here: %v\nrun it in the guest: make lab\n", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// ground tells what is missing for any test to work.
func ground() error {
	if os.Getuid() != 0 {
		return fmt.Errorf("it needs root")
	}
	for _, need := range []struct{ path, what string }{
		{"/dev/nvme-fabrics", "the kernel's NVMe-oF host (modprobe nvme-rdma nvme-tcp)"},
		{"/sys/kernel/config", "configfs"},
		{"/sys/class/infiniband/rxe0", "the RoCE device rxe0 on d0 (" + Addr0 + ")"},
		{"/sys/class/infiniband/rxe1", "the RoCE device rxe1 on d1 (" + Addr1 + ")"},
	} {
		if _, err := os.Stat(need.path); err != nil {
			return fmt.Errorf("there is no %s: %s", need.path, need.what)
		}
	}
	return nil
}
