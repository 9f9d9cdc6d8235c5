package reactor

import "time"

// epoch has a monotonic reading, which time.Since subtracts with one read of the monotonic clock and nothing else.
var epoch = time.Now()

// Clock is the monotonic time in nanoseconds, read now. Code on a reactor mostly wants Now, which costs nothing.
func Clock() int64 { return int64(time.Since(epoch)) + 1 }
