package main

import (
	"errors"
	"flag"
	"io"

	"github.com/urfave/cli/v2"
)

// interleave lets a command's flags stand after its arguments too, as in `rocet perf URL --qd 1`: cli takes none after the
// first argument. The flags need a Destination each.
func interleave(cmd *cli.Command, action func(c *cli.Context, args []string) error) *cli.Command {
	cmd.SkipFlagParsing = true
	cmd.Action = func(c *cli.Context) error {
		set := flag.NewFlagSet(cmd.Name, flag.ContinueOnError)
		set.SetOutput(io.Discard)
		for _, f := range cmd.Flags {
			if err := f.Apply(set); err != nil {
				return err
			}
		}
		var args []string
		for rest := c.Args().Slice(); ; {
			err := set.Parse(rest)
			if errors.Is(err, flag.ErrHelp) || isSet(set, "help") || isSet(set, "h") { // cli adds its own
				cli.HelpPrinter(c.App.Writer, cli.CommandHelpTemplate, cmd)
				return nil
			}
			if err != nil {
				return usage("%v: see rocet help %s", err, cmd.Name)
			}
			if rest = set.Args(); len(rest) == 0 {
				return action(c, args)
			}
			args, rest = append(args, rest[0]), rest[1:]
		}
	}
	return cmd
}

func isSet(set *flag.FlagSet, name string) bool {
	f := set.Lookup(name)
	return f != nil && f.Value.String() == "true"
}

// oneURL is the one argument that a command takes.
func oneURL(c *cli.Context, args []string) (string, error) {
	if len(args) != 1 {
		return "", usage("rocet %s takes one URL, like nvme-tcp://127.0.0.1:4420/nqn..., and %d arguments were given: see rocet help %[1]s", c.Command.Name, len(args))
	}
	return args[0], nil
}

// outputFlag chooses between text and JSON.
func outputFlag(to *string) cli.Flag {
	return &cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: "text", Usage: "`FORMAT`: text or json", Destination: to}
}

func checkOutput(format string) error {
	if format != "text" && format != "json" {
		return usage("--output %q: want text or json", format)
	}
	return nil
}
