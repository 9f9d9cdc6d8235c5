package nvme

import (
	"fmt"
	"strings"
	"testing"
)

// TestNames: each type with names has as many as the specification, and says
// the number of any other value.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		kind  string
		name  func(uint8) string
		known int
	}{
		{"I/O opcode", func(v uint8) string { return Opcode(v).Name(false) }, 17},
		{"admin opcode", func(v uint8) string { return Opcode(v).Name(true) }, 48},
		{"fabrics type", func(v uint8) string { return FabricsType(v).String() }, 6},
		{"RDMA CM status", func(v uint8) string { return RDMACMStatus(v).String() }, 9},
		{"PDU type", func(v uint8) string { return TCPPDUType(v).String() }, 9},
		{"fatal error status", func(v uint8) string { return TCPFatalStatus(v).String() }, 6},
		{"ANA state", func(v uint8) string { return ANAState(v).String() }, 5},
		{"transport type", func(v uint8) string { return TransportType(v).String() }, 5},
		{"address family", func(v uint8) string { return AddressFamily(v).String() }, 6},
		{"subsystem type", func(v uint8) string { return SubsystemType(v).String() }, 3},
		{"reservation type", func(v uint8) string { return ReservationType(v).String() }, 7},
	} {
		names := map[string]bool{}
		for v := range 256 {
			s := c.name(uint8(v))
			if strings.HasSuffix(s, fmt.Sprintf(" 0x%x", v)) {
				continue
			}
			if s == "" || names[s] {
				t.Errorf("%s %#x: name %q is empty or not the only one", c.kind, v, s)
			}
			names[s] = true
		}
		if len(names) != c.known {
			t.Errorf("%s: %d names, want %d", c.kind, len(names), c.known)
		}
	}
	for d, want := range map[Direction]string{
		DirNone: "none", DirHostToController: "host to controller", DirControllerToHost: "controller to host",
		DirBidirectional: "bidirectional", 4: "invalid",
	} {
		if d.String() != want {
			t.Errorf("direction %d is %q", d, d)
		}
	}
}
