//go:build !race && !invariants

package invariants

// Enabled tells whether this build checks its invariants.
const Enabled = false

// Owner names the goroutine that may touch an object. The zero value is unowned, and every goroutine passes Check.
type Owner struct{}

// Claim makes the calling goroutine the owner. It panics if another one is.
func (*Owner) Claim() {}

// Release ends the ownership, for an object that moves to another goroutine or ends.
func (*Owner) Release() {}

// Check panics unless the calling goroutine is the owner, or nobody is.
func (*Owner) Check() {}

// Credits counts what is handed out of a fixed amount. One goroutine uses it.
type Credits struct{}

// Init sets the amount. All must be back.
func (*Credits) Init(int) {}

// Take hands out n.
func (*Credits) Take(int) {}

// Give takes n back.
func (*Credits) Give(int) {}

// CheckIdle panics unless everything is back.
func (*Credits) CheckIdle() {}

// PoisonByte is what freed memory reads as.
const PoisonByte = 0xDB

// Poison overwrites freed memory.
func Poison([]byte) {}

// Assert panics with the message unless ok.
func Assert(bool, string) {}
