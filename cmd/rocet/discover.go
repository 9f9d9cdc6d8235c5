package main

import (
	"context"
	"fmt"
	"os/signal"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"rocet/host"
	"rocet/nvme"
)

func discoverCommand() *cli.Command {
	var output string
	return interleave(&cli.Command{
		Name:      "discover",
		Usage:     "list what a target offers to this host, as nvme discover does",
		ArgsUsage: "URL",
		Description: "URL is nvme-tcp://ADDRESS:PORT or nvme-rdma://ADDRESS:PORT. With hostnqn=NQN the target answers for that host:\n" +
			"nvme-tcp://ADDRESS?hostnqn=NQN",
		Flags: []cli.Flag{outputFlag(&output)},
	}, func(c *cli.Context, args []string) error {
		url, err := oneURL(c, args)
		if err != nil {
			return err
		}
		if err := checkOutput(output); err != nil {
			return err
		}
		o, err := host.ParseURL(url)
		if err != nil {
			return usage("%v", err)
		}
		if o.NQN == "" {
			o.NQN = nvme.DiscoveryNQN
		}
		return withController(c.Context, o, func(ctx context.Context, ctrl *host.Controller) error {
			d, err := ctrl.Discover(ctx)
			if err != nil {
				return err
			}
			return printDiscovery(c, d, output == "json")
		})
	})
}

// withController connects for the time of f, which SIGINT ends.
func withController(ctx context.Context, o host.Options, f func(context.Context, *host.Controller) error) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctrl, err := host.Dial(ctx, o)
	if err != nil {
		return err
	}
	err = f(ctx, ctrl)
	if cerr := ctrl.Close(); err == nil {
		err = cerr
	}
	return err
}

func printDiscovery(c *cli.Context, d *host.Discovery, asJSON bool) error {
	records := make([]fields, 0, len(d.Entries))
	for i := range d.Entries {
		records = append(records, discoveryFields(&d.Entries[i]))
	}
	w := c.App.Writer
	if asJSON {
		var top fields
		top.add("genctr", d.GENCTR)
		top.add("records", records)
		return printJSON(w, top)
	}
	fmt.Fprintf(w, "\nDiscovery Log Number of Records %d, Generation counter %d\n", len(records), d.GENCTR)
	for i, r := range records {
		fmt.Fprintf(w, "=====Discovery Log Entry %d======\n", i)
		for _, x := range r {
			fmt.Fprintf(w, "%-8s %s\n", x.name+":", printable(fmt.Sprint(x.value)))
		}
	}
	return nil
}

func discoveryFields(e *nvme.DiscoveryEntry) (f fields) {
	f.add("trtype", e.TRTYPE.String())
	f.add("adrfam", e.ADRFAM.String())
	f.add("subtype", e.SUBTYPE.String())
	f.add("treq", treqText(e.TREQ))
	f.add("portid", e.PORTID)
	f.add("trsvcid", nvme.ASCII(e.TRSVCID[:]))
	f.add("subnqn", e.SUBNQN.String())
	f.add("traddr", nvme.ASCII(e.TRADDR[:]))
	f.add("eflags", eflagsText(e.EFLAGS))
	switch e.TRTYPE {
	case nvme.TransportTCP:
		f.add("sectype", nth(e.TSAS[0], "none", "tls", "tls13"))
	case nvme.TransportRDMA:
		f.add("rdma_prtype", nth(e.TSAS[1], "", "not specified", "infiniband", "roce", "roce-v2", "iwarp"))
		f.add("rdma_qptype", nth(e.TSAS[0], "", "connected", "datagram"))
		f.add("rdma_cms", nth(e.TSAS[2], "", "rdma-cm"))
		f.add("rdma_pkey", fmt.Sprintf("0x%04x", uint16(e.TSAS[8])|uint16(e.TSAS[9])<<8))
	}
	return f
}

// nth names a value.
func nth(v uint8, names ...string) string {
	if int(v) < len(names) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("unrecognized (%d)", v)
}

func treqText(v uint8) string {
	text := nth(v&3, "not specified", "required", "not required")
	if v&nvme.TREQDisableSQFlow != 0 {
		text += ", sq flow control disable supported"
	}
	return text
}

func eflagsText(v uint16) string {
	var words []string
	for _, flag := range []struct {
		bit  uint16
		text string
	}{
		{nvme.EFLAGSPersistentConnection, "explicit discovery connections"},
		{nvme.EFLAGSDuplicateInfo, "duplicate discovery information"},
		{nvme.EFLAGSNoCDCConnectivity, "no cdc connectivity"},
	} {
		if v&flag.bit != 0 {
			words = append(words, flag.text)
		}
	}
	if words == nil {
		return "none"
	}
	return strings.Join(words, ", ")
}
