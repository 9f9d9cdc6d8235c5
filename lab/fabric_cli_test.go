//go:build lab

package lab

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The tests in fabric_*_test.go are what every transport must do with the kernel's host; each transport's own file runs
// them.

// fabric is a transport as the kernel's host connects over it.
type fabric struct {
	transport string
	args      []string // of nvme connect
}

// threeNamespaces is MemoryConfig and a third namespace in blocks of 512 bytes.
func (f fabric) threeNamespaces(size string) string {
	return MemoryConfig(f.transport, Addr0, size) +
		fmt.Sprintf("      - {nsid: 3, backend: {type: memory, size: %s}, block_size: 512}\n", size)
}

func (f fabric) connect(t *testing.T, args ...string) *Controller {
	t.Helper()
	return Connect(t, ConnectOptions{Transport: f.transport, Addr: Addr0, NQN: NQN, Args: append(slices.Clone(f.args), args...)})
}

// testCLI runs the commands of nvme-cli that people use on a connected controller.
func testCLI(t *testing.T, f fabric) {
	CheckDmesg(t, "resetting controller")
	r := StartRocet(t, f.threeNamespaces("32MiB"))
	entries := Discover(t, f.transport, Addr0, Port)
	if got := Subsystems(entries); !slices.Equal(got, []string{NQN}) {
		t.Fatalf("discovered %q, want %q", got, NQN)
	}
	if text := Nvme(t, "discover", "-t", f.transport, "-a", Addr0, "-s", Port); strings.Contains(text, "unrecognized") {
		t.Errorf("nvme-cli does not know what the discovery log says:\n%s", text)
	}
	c := f.connect(t)
	c.WaitState(10*time.Second, "live")
	dev, ns1, ns3 := c.Dev(), c.Namespace(1), c.Namespace(3)
	if got := c.Namespaces(); len(got) != 3 {
		t.Errorf("the host sees namespaces %v, want 3", got)
	}

	var ctrl struct {
		Mn, Fr, Subnqn      string
		Nn, Cntlid, Sgls    int
		Oacs, Oncs, Mdts    int
		Ioccsz, Icdoff, Ver int
	}
	NvmeJSON(t, &ctrl, "id-ctrl", dev)
	if strings.TrimSpace(ctrl.Mn) != "Rocet" || ctrl.Subnqn != NQN || fmt.Sprint(ctrl.Cntlid) != c.CNTLID() {
		t.Errorf("id-ctrl: %+v", ctrl)
	}
	for nsid, want := range map[int]struct {
		blocks uint64
		lbads  int
	}{1: {32 << 20 / 4096, 12}, 3: {32 << 20 / 512, 9}} {
		var ns struct {
			Nsze, Ncap uint64
			Flbas      int
			Lbafs      []struct{ Ds, Ms int }
		}
		NvmeJSON(t, &ns, "id-ns", dev, "-n", fmt.Sprint(nsid))
		if ns.Nsze != want.blocks || ns.Ncap != want.blocks || ns.Lbafs[ns.Flbas&0xf].Ds != want.lbads {
			t.Errorf("id-ns of namespace %d: %+v, want %d blocks of 2^%d", nsid, ns, want.blocks, want.lbads)
		}
	}

	// What must succeed, and what its output must have.
	for _, cmd := range []struct {
		args []string
		want string
	}{
		{[]string{"list"}, "Rocet"},
		{[]string{"list", "-v"}, NQN},
		{[]string{"list-subsys"}, NQN},
		{[]string{"list-ns", dev}, `0x3`},
		{[]string{"list-ctrl", dev}, ""},
		{[]string{"ns-descs", dev, "-n", "1"}, `(?i)uuid`},
		{[]string{"id-ctrl", dev, "-H"}, "Keyed|SGL"},
		{[]string{"id-ns", ns1, "-H"}, ""},
		{[]string{"nvm-id-ctrl", dev}, ""},
		{[]string{"smart-log", dev}, `critical_warning\s*:\s*0`},
		{[]string{"error-log", dev}, ""},
		{[]string{"effects-log", dev}, "Read"},
		{[]string{"fw-log", dev}, ""},
		{[]string{"changed-ns-list-log", dev}, ""},
		{[]string{"ana-log", dev}, "(?i)optimized"},
		{[]string{"supported-log-pages", dev}, ""},
		{[]string{"get-log", dev, "--log-id=2", "--log-len=512"}, ""},
		{[]string{"get-log", dev, "--log-id=5", "--log-len=4096"}, ""},
		{[]string{"get-feature", dev, "-f", "7", "-H"}, "(?i)queue"},
		{[]string{"get-feature", dev, "-f", "0xf"}, ""},
		{[]string{"get-feature", dev, "-f", "0xb", "-H"}, ""},
		{[]string{"show-regs", dev}, "(?i)cap"},
		{[]string{"flush", ns1, "-n", "1"}, ""},
		{[]string{"write-zeroes", ns1, "-s", "0", "-c", "7"}, ""},
		{[]string{"dsm", ns1, "-d", "-s", "0", "-b", "8"}, ""},
		{[]string{"verify", ns1, "-s", "0", "-c", "7"}, ""},
		{[]string{"read", ns3, "-s", "0", "-c", "0", "-z", "512", "-d", "/dev/null"}, ""},
	} {
		out := Nvme(t, cmd.args...)
		if !regexp.MustCompile(cmd.want).MatchString(out) {
			t.Errorf("nvme %s printed nothing like %q:\n%s", strings.Join(cmd.args, " "), cmd.want, tail(out, 20))
		}
	}

	// What must fail, and with which status.
	for _, cmd := range []struct {
		args []string
		want string
	}{
		{[]string{"admin-passthru", dev, "--opcode=0xc1"}, "(?i)invalid.*opcode"},
		{[]string{"format", ns1, "--force", "-l", "0"}, "(?i)invalid.*opcode"},
		{[]string{"sanitize", dev, "-a", "2"}, "(?i)invalid.*opcode"},
		{[]string{"get-feature", dev, "-f", "0xc0"}, "(?i)invalid field"},
		{[]string{"get-log", dev, "--log-id=0xc0", "--log-len=512"}, "(?i)invalid log page"},
		{[]string{"id-ns", dev, "-n", "0x900"}, "(?i)invalid namespace"},
		{[]string{"compare", ns1, "-s", "1", "-c", "0", "-z", "4096", "-d", "/bin/true"}, "(?i)compare"},
	} {
		out, err := TryRun(runTimeout, "nvme", cmd.args...)
		if err == nil {
			t.Errorf("nvme %s succeeded:\n%s", strings.Join(cmd.args, " "), tail(out, 20))
		} else if text := err.Error() + out; !regexp.MustCompile(cmd.want).MatchString(text) {
			t.Errorf("nvme %s: %v, want %q", strings.Join(cmd.args, " "), text, cmd.want)
		}
	}

	// A reset by the host, with everything there again.
	Nvme(t, "reset", dev)
	c.WaitState(20*time.Second, "live")
	Fio(t, FioJob{File: ns1, RW: "randread", BS: "4k", Depth: 4, Size: "1M"})
	Nvme(t, "disconnect", "-n", NQN)
	WaitFor(t, 10*time.Second, "the controller to go", func() error {
		if c.Exists() {
			return fmt.Errorf("%s is there", c.Name)
		}
		return nil
	})
	r.Stop()
}
