// Command rocet serves NVMe drives, files and memory to hosts over NVMe over Fabrics.
//
// It exits with 0 after an orderly end, 1 if something failed, 2 if it was called wrongly, and 3 if it was made to end
// before it had drained.
package main

import (
	"context"
	"os"
)

// version is set by the linker: -X main.version=v1.2.3.
var version = "unknown"

// Exit statuses.
const (
	exitFailed = 1
	exitUsage  = 2
	exitForced = 3
)

func main() {
	os.Exit(run(context.Background(), os.Args, os.Stdout, os.Stderr))
}
