package mmio

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"unsafe"
)

// Each access touches its own bytes only.
func TestWidth(t *testing.T) {
	const guard = 0x5555555555555555
	regs := [3]uint64{guard, guard, guard}
	Store64(unsafe.Pointer(&regs[1]), 0x0123456789abcdef)
	if regs != [3]uint64{guard, 0x0123456789abcdef, guard} {
		t.Fatalf("Store64 left %#x", regs)
	}
	if got := Load64(unsafe.Pointer(&regs[1])); got != 0x0123456789abcdef {
		t.Fatalf("Load64 = %#x", got)
	}
	words := (*[6]uint32)(unsafe.Pointer(&regs))
	Store32(unsafe.Pointer(&words[3]), 0xfedcba98)
	if *words != [6]uint32{0x55555555, 0x55555555, words[2], 0xfedcba98, 0x55555555, 0x55555555} || words[2] == 0xfedcba98 {
		t.Fatalf("Store32 left %#x", words)
	}
	if got := Load32(unsafe.Pointer(&words[3])); got != 0xfedcba98 {
		t.Fatalf("Load32 = %#x", got)
	}
}

// A store that is not elided, repeated or locked is what the package is for: look at the code that was built.
func TestNoLockedStore(t *testing.T) {
	if runtime.GOARCH != "amd64" || isRace {
		t.Skip("looks at the amd64 code of a build without race detector")
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skipf("no go command: %v", err)
	}
	archive := filepath.Join(t.TempDir(), "mmio.a")
	if out, err := exec.Command(tool, "build", "-buildvcs=false", "-o", archive, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	out, err := exec.Command(tool, "tool", "objdump", archive).CombinedOutput()
	if err != nil {
		t.Fatalf("go tool objdump: %v\n%s", err, out)
	}
	text := string(out)
	if n := strings.Count(text, "TEXT rocet/internal/mmio."); n != 4 {
		t.Fatalf("objdump found %d of 4 functions:\n%s", n, text)
	}
	if locked := regexp.MustCompile(`\b(XCHG|LOCK|MFENCE)`).FindString(text); locked != "" {
		t.Fatalf("%s in:\n%s", locked, text)
	}
}

func BenchmarkStore32(b *testing.B) {
	var reg uint32
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		Store32(unsafe.Pointer(&reg), uint32(i))
	}
}
