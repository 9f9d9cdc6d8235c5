package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"rocet/control/config"
)

func configCommand() *cli.Command {
	return &cli.Command{
		Name:  "config",
		Usage: "work with configuration files",
		Subcommands: []*cli.Command{{
			Name:      "check",
			Usage:     "say every mistake of a configuration file, with its line",
			ArgsUsage: "FILE",
			Action: func(c *cli.Context) error {
				if c.NArg() != 1 {
					return usage("rocet config check takes one file")
				}
				cfg, err := config.Load(c.Args().First())
				if err != nil {
					return err
				}
				namespaces := 0
				for _, s := range cfg.Subsystems {
					namespaces += len(s.Namespaces)
				}
				fmt.Fprintf(c.App.Writer, "%s: ok: subsystems: %d, namespaces: %d, listeners: %d\n",
					c.Args().First(), len(cfg.Subsystems), namespaces, len(cfg.Listeners))
				return nil
			},
		}},
	}
}
