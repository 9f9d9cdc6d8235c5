package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"
)

// run runs the command line and returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	app := &cli.App{
		Name:    "rocet",
		Usage:   "NVMe over Fabrics target for storage nodes, over RDMA and TCP",
		Version: version,
		Writer:  stdout, ErrWriter: stderr,
		HideVersion: true, // rocet version says more
		Commands: []*cli.Command{
			serveCommand(),
			perfCommand(),
			discoverCommand(),
			identifyCommand(),
			devicesCommand(),
			configCommand(),
			versionCommand(),
		},
		// The default would end the process.
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   usageError,
		CommandNotFound: func(c *cli.Context, name string) {
			fmt.Fprintf(stderr, "rocet: there is no command %q: see rocet help\n", name)
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usage("there is no command %q: see rocet help", c.Args().First())
			}
			return cli.ShowAppHelp(c)
		},
	}
	for _, c := range app.Commands {
		setUsageErrors(c)
	}
	err := app.RunContext(ctx, args)
	if err == nil {
		return 0
	}
	status := exitFailed
	if coder := cli.ExitCoder(nil); errors.As(err, &coder) {
		status = coder.ExitCode()
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(stderr, "rocet: "+strings.TrimPrefix(text, "rocet: "))
	}
	return status
}

func setUsageErrors(c *cli.Command) {
	c.OnUsageError = usageError
	for _, sub := range c.Subcommands {
		setUsageErrors(sub)
	}
}

func usageError(c *cli.Context, err error, _ bool) error {
	return usage("%v: see rocet help %s", err, c.Command.Name)
}

// usage is an error of whoever called.
func usage(format string, args ...any) error {
	return cli.Exit(fmt.Sprintf(format, args...), exitUsage)
}

// noArgs refuses arguments that would be ignored.
func noArgs(c *cli.Context) error {
	if c.Args().Present() {
		return usage("rocet %s takes no argument, %q is one: see rocet help %[1]s", c.Command.Name, c.Args().First())
	}
	return nil
}
