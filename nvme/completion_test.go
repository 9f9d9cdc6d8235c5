package nvme

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

func TestCompletionGolden(t *testing.T) {
	var c Completion
	c.SetResult64(0x0102030405060708)
	c.SetSQHD(0x1234)
	c.SetSQID(0x5678)
	c.SetCID(0x9abc)
	c.SetStatus(StatusConnectInvalidParameters.WithDNR())
	want := Completion(unhex(t, 16, "0807060504030201 3412 7856 bc9a 0483")) // DNR, SCT 1h, SC 82h: 4182h << 1 = 8304h
	if c != want {
		t.Errorf("got % x, want % x", c, want)
	}
	if c.Result64() != 0x0102030405060708 || c.DW0() != 0x05060708 || c.DW1() != 0x01020304 ||
		c.SQHD() != 0x1234 || c.SQID() != 0x5678 || c.CID() != 0x9abc || c.Phase() {
		t.Errorf("fields read back wrong: %+v", c)
	}
	if s := c.Status(); s != StatusConnectInvalidParameters|StatusDNR || s.SCT() != 1 || s.SC() != 0x82 || !s.DNR() {
		t.Errorf("status reads back as %s", s)
	}
	c.SetPhase(true)
	if !c.Phase() || c.Status() != StatusConnectInvalidParameters|StatusDNR || c[14] != 0x05 {
		t.Errorf("phase: % x", c)
	}
	c.SetPhase(false)
	if c != want {
		t.Errorf("phase cleared: % x", c)
	}
	c.SetDW0(ConnectInvalidParameter(ConnectDataOffsetHOSTNQN, true))
	c.SetDW1(7)
	if got := [8]byte(c[:8]); got != [8]byte{0x00, 0x02, 0x01, 0x00, 7} {
		t.Errorf("invalid parameter: % x", got)
	}
	if v := ConnectInvalidParameter(ConnectOffsetSQSIZE, false); v != 44 {
		t.Errorf("invalid parameter in the command: %#x", v)
	}
	c.Reset()
	if c != (Completion{}) {
		t.Errorf("Reset left % x", c)
	}
}

func TestStatusBits(t *testing.T) {
	s := StatusNamespaceNotReady.WithCRD(2).WithMore()
	if s.CRD() != 2 || !s.More() || s.DNR() || s.Code() != StatusNamespaceNotReady || s.IsOK() {
		t.Errorf("%s", s)
	}
	if got := s.WithCRD(1).CRD(); got != 1 {
		t.Errorf("a second CRD: %d", got)
	}
	if w := s.Wire(); StatusFromWire(w) != s || StatusFromWire(w|1) != s || w != 0x6104 {
		t.Errorf("wire form %#04x", w)
	}
	if !StatusSuccess.IsOK() || StatusSuccess.Wire() != 0 {
		t.Error("success")
	}
	if MakeStatus(SCTPath, 0x71) != StatusHostAborted || MakeStatus(SCTMedia, 0x85) != StatusCompareFailure {
		t.Error("MakeStatus")
	}
	for s, want := range map[Status]string{
		StatusInvalidField.WithDNR():  "Invalid Field in Command (DNR)",
		s:                             "Namespace Not Ready (More, CRD 2)",
		StatusSuccess:                 "Successful Completion",
		MakeStatus(SCTGeneric, 0x7f):  "unknown status 0h/7Fh",
		MakeStatus(SCTMedia, 0xc5):    "vendor specific status 2h/C5h",
		MakeStatus(SCTVendor, 0x01):   "vendor specific status 7h/01h",
		StatusConflictingAttributes:   "Conflicting Attributes",
		StatusAuthRequired:            "Authentication Required",
		StatusConnectInvalidHost:      "Invalid Command ID",
		StatusANATransition.WithDNR(): "Asymmetric Access Transition (DNR)",
	} {
		if got := s.String(); got != want {
			t.Errorf("%#04x: %q, want %q", uint16(s), got, want)
		}
	}
	for s, want := range map[Status]string{
		StatusConnectIncompatibleFormat:          "Incompatible Format",
		StatusConnectInvalidParameters.WithDNR(): "Connect Invalid Parameters",
		StatusInvalidField:                       "Invalid Field in Command",
	} {
		if got := s.FabricsName(); got != want {
			t.Errorf("%#04x on fabrics: %q, want %q", uint16(s), got, want)
		}
	}
}

// TestStatusNames reads the constants out of status.go: each must have a name,
// and only the values that fabrics and I/O commands share may occur twice.
func TestStatusNames(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "status.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	byValue := map[Status][]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 || !strings.HasPrefix(v.Names[0].Name, "Status") {
			return true
		}
		lit, ok := v.Values[0].(*ast.BasicLit)
		if !ok || v.Names[0].Name == "StatusCodeMask" {
			return true
		}
		code, err := strconv.ParseUint(lit.Value, 0, 16)
		if err != nil {
			t.Fatalf("%s: %v", v.Names[0].Name, err)
		}
		byValue[Status(code)] = append(byValue[Status(code)], v.Names[0].Name)
		return true
	})
	if len(byValue) < 120 {
		t.Fatalf("only %d status values found", len(byValue))
	}
	for code, names := range byValue {
		if statusNames[code] == "" {
			t.Errorf("%v (%#03x) has no name", names, uint16(code))
		}
		if shared := fabricsStatusNames[code] != ""; shared != (len(names) == 2) || len(names) > 2 {
			t.Errorf("%#03x is shared by %v", uint16(code), names)
		}
	}
	seen := map[string]Status{}
	for code, name := range statusNames {
		if other, ok := seen[name]; ok {
			t.Errorf("%#03x and %#03x are both %q", uint16(code), uint16(other), name)
		}
		seen[name] = code
		if byValue[code] == nil {
			t.Errorf("%#03x %q has no constant", uint16(code), name)
		}
	}
}

func TestSGLGolden(t *testing.T) {
	var d SGLDescriptor
	for i := range d {
		d[i] = 0xff
	}
	d.SetKeyed(SGLInvalidate, 0x0102030405060708, 0x123456, 0x89abcdef)
	if want := SGLDescriptor(unhex(t, 16, "0807060504030201 563412 efcdab89 4f")); d != want {
		t.Errorf("keyed: % x, want % x", d, want)
	}
	if d.Type() != SGLKeyedDataBlock || d.Subtype() != SGLInvalidate || d.Address() != 0x0102030405060708 ||
		d.KeyedLength() != 0x123456 || d.Key() != 0x89abcdef || d.Identifier() != SGLIdentifier(SGLKeyedDataBlock, SGLInvalidate) {
		t.Errorf("keyed reads back wrong: % x", d)
	}
	d.SetKeyedLength(SGLMaxKeyedLength)
	if d.KeyedLength() != SGLMaxKeyedLength || d.Key() != 0x89abcdef {
		t.Errorf("the longest length spills into the key: % x", d)
	}
	d.SetDataBlock(SGLDataBlock, SGLOffset, 0x40, 0x89abcdef)
	if want := SGLDescriptor(unhex(t, 16, "4000000000000000 efcdab89 000000 01")); d != want {
		t.Errorf("data block: % x, want % x", d, want)
	}
	if d.Length32() != 0x89abcdef || d.Type() != SGLDataBlock || d.Subtype() != SGLOffset {
		t.Errorf("data block reads back wrong: % x", d)
	}
	d.SetDataBlock(SGLTransportDataBlock, SGLTransport, 0, 4096)
	if d[15] != 0x5a {
		t.Errorf("transport data block: %#x", d[15])
	}
	// The view of a command's SGL writes into the command.
	var c Command
	c.SGL().SetKeyed(SGLAddress, 1, 2, 3)
	if c[24] != 1 || c[32] != 2 || c[35] != 3 || c[39] != 0x40 {
		t.Errorf("view: % x", c[24:40])
	}
}
