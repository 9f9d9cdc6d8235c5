//go:build race || invariants

package invariants

import (
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
)

// Enabled tells whether this build checks its invariants.
const Enabled = true

// Owner names the goroutine that may touch an object. The zero value is unowned, and every goroutine passes Check.
type Owner struct{ goroutine atomic.Uint64 }

// Claim makes the calling goroutine the owner. It panics if another one is.
func (o *Owner) Claim() {
	me := goroutineID()
	if !o.goroutine.CompareAndSwap(0, me) {
		if now := o.goroutine.Load(); now != me {
			panic(fmt.Sprintf("invariants: goroutine %d claims what goroutine %d owns", me, now))
		}
	}
}

// Release ends the ownership, for an object that moves to another goroutine or ends.
func (o *Owner) Release() {
	o.Check()
	o.goroutine.Store(0)
}

// Check panics unless the calling goroutine is the owner, or nobody is.
func (o *Owner) Check() {
	owner := o.goroutine.Load()
	if owner == 0 {
		return
	}
	if me := goroutineID(); me != owner {
		panic(fmt.Sprintf("invariants: goroutine %d touches what goroutine %d owns", me, owner))
	}
}

// goroutineID reads the number from the head of the stack dump: "goroutine 18 [running]:".
func goroutineID() uint64 {
	var buf [40]byte
	text := buf[:runtime.Stack(buf[:], false)]
	const head = len("goroutine ")
	end := head
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	id, err := strconv.ParseUint(string(text[min(head, len(text)):end]), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("invariants: no goroutine number in %q", text))
	}
	return id
}

// Credits counts what is handed out of a fixed amount. One goroutine uses it.
type Credits struct{ total, taken int }

// Init sets the amount. All must be back.
func (c *Credits) Init(total int) {
	c.CheckIdle()
	c.total = total
}

// Take hands out n.
func (c *Credits) Take(n int) {
	c.taken += n
	if n < 0 || c.taken > c.total {
		panic(fmt.Sprintf("invariants: %d credits taken make %d of %d", n, c.taken, c.total))
	}
}

// Give takes n back.
func (c *Credits) Give(n int) {
	c.taken -= n
	if n < 0 || c.taken < 0 {
		panic(fmt.Sprintf("invariants: %d credits given back make %d taken of %d", n, c.taken, c.total))
	}
}

// CheckIdle panics unless everything is back.
func (c *Credits) CheckIdle() {
	if c.taken != 0 {
		panic(fmt.Sprintf("invariants: %d of %d credits are still out", c.taken, c.total))
	}
}

// PoisonByte is what freed memory reads as.
const PoisonByte = 0xDB

// Poison overwrites freed memory.
func Poison(b []byte) {
	if len(b) == 0 {
		return
	}
	b[0] = PoisonByte
	for done := 1; done < len(b); done *= 2 { // copies, because the race detector notes every single store
		copy(b[done:], b[:done])
	}
}

// Assert panics with the message unless ok.
func Assert(ok bool, message string) {
	if !ok {
		panic("invariants: " + message)
	}
}
