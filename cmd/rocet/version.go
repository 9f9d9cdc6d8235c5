package main

import (
	"fmt"
	"runtime"

	"github.com/urfave/cli/v2"

	"rocet/cgo/verbs"
)

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version, and what this build can do",
		Action: func(c *cli.Context) error {
			if err := noArgs(c); err != nil {
				return err
			}
			fmt.Fprintf(c.App.Writer, "rocet %s\n%s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			rdma := "yes"
			if _, err := verbs.Open(); err != nil {
				rdma = "no: " + err.Error()
			}
			fmt.Fprintf(c.App.Writer, "RDMA: %s\n", rdma)
			return nil
		},
	}
}
