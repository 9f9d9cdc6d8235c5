package invariants

import (
	"testing"
	"unsafe"
)

func panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}

// want is what a violation must do in this build.
func want(t *testing.T, name string, f func()) {
	t.Helper()
	if got := panics(f); got != Enabled {
		t.Errorf("%s: panicked %v, want %v", name, got, Enabled)
	}
}

// elsewhere runs f on another goroutine and tells whether it panicked.
func elsewhere(f func()) bool {
	c := make(chan bool)
	go func() { c <- panics(f) }()
	return <-c
}

func TestOwner(t *testing.T) {
	var o Owner
	if elsewhere(o.Check) {
		t.Error("an unowned object refused a goroutine")
	}
	o.Claim()
	o.Claim()
	o.Check()
	if got := elsewhere(o.Check); got != Enabled {
		t.Errorf("Check elsewhere panicked %v, want %v", got, Enabled)
	}
	if got := elsewhere(o.Claim); got != Enabled {
		t.Errorf("Claim elsewhere panicked %v, want %v", got, Enabled)
	}
	if got := elsewhere(o.Release); got != Enabled {
		t.Errorf("Release elsewhere panicked %v, want %v", got, Enabled)
	}
	o.Release()
	if elsewhere(o.Claim) {
		t.Error("a released object refused its next owner")
	}
}

func TestCredits(t *testing.T) {
	var c Credits
	c.Init(3)
	c.Take(2)
	c.Give(2)
	c.CheckIdle()
	c.Take(3)
	want(t, "idle with 3 out", c.CheckIdle)
	want(t, "init with 3 out", func() { c.Init(1) })
	want(t, "one too many", func() { c.Take(1) })
	var d Credits
	want(t, "given without being taken", func() { d.Give(1) })
	want(t, "negative take", func() { d.Take(-1) })
}

func TestPoison(t *testing.T) {
	b := make([]byte, 5000)
	Poison(b)
	for i, v := range b {
		if (v == PoisonByte) != Enabled {
			t.Fatalf("byte %d is %#x", i, v)
		}
	}
	want(t, "assertion", func() { Assert(false, "no") })
	Assert(true, "yes")
}

func TestNoSizeWhenOff(t *testing.T) {
	if !Enabled && unsafe.Sizeof(Owner{})+unsafe.Sizeof(Credits{}) != 0 {
		t.Error("switched off, the types still have a size")
	}
}
