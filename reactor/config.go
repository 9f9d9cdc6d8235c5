package reactor

import (
	"fmt"
	"log/slog"
	"time"
)

// Mode is what a reactor does when there is no work.
type Mode uint8

const (
	Adaptive  Mode = iota // polls for IdleSpin, then sleeps until there is work
	Busy                  // polls for ever: lowest latency, a whole core
	Interrupt             // sleeps at once
)

// String is the word of the configuration file.
func (m Mode) String() string {
	switch m {
	case Adaptive:
		return "adaptive"
	case Busy:
		return "busy"
	case Interrupt:
		return "interrupt"
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// ParseMode reads the word of the configuration file.
func ParseMode(word string) (Mode, error) {
	for m := Adaptive; m <= Interrupt; m++ {
		if word == m.String() {
			return m, nil
		}
	}
	return 0, fmt.Errorf("reactor mode %q: want adaptive, busy or interrupt", word)
}

// DefaultIdleSpin is how long an adaptive reactor polls before it sleeps: longer than the gaps of a busy queue, shorter
// than anything that shows in the power bill.
const DefaultIdleSpin = 50 * time.Microsecond

// Config describes a Group.
type Config struct {
	Count    int   // reactors; 0: one for each of Cores, or one
	Cores    []int // where to pin them, in order; none: the last Count cores that this process may use, whole cores first
	Mode     Mode
	IdleSpin time.Duration // of Adaptive; 0: DefaultIdleSpin
	Log      *slog.Logger  // nil: slog.Default()
}
