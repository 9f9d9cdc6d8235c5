package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"rocet/cgo/verbs"
	"rocet/internal/inuse"
	"rocet/nvme/vfio"
	"rocet/rdma"
)

// inventory is what rocet devices -o json prints.
type inventory struct {
	RDMA    []rdma.DeviceInfo `json:"rdma"`
	Drives  []driveInfo       `json:"nvme"`
	Missing []string          `json:"missing,omitempty"` // what could not be found out, and why
}

type driveInfo struct {
	PCI        string   `json:"pci"`
	Driver     string   `json:"driver"` // nvme: the kernel has it; vfio-pci: Rocet can; empty: nobody
	IOMMUGroup string   `json:"iommu_group"`
	Neighbours []string `json:"neighbours,omitempty"` // other functions of the group
	NUMANode   int      `json:"numa_node"`            // -1: unknown
	Serial     string   `json:"serial,omitempty"`     // while the kernel has it
	Model      string   `json:"model,omitempty"`
	InUse      []string `json:"in_use,omitempty"` // why it must not be taken
}

func devicesCommand() *cli.Command {
	return &cli.Command{
		Name:  "devices",
		Usage: "list RDMA devices, and NVMe drives with their driver and IOMMU group",
		Flags: []cli.Flag{&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: "table", Usage: "`FORMAT`: table or json"}},
		Action: func(c *cli.Context) error {
			if err := noArgs(c); err != nil {
				return err
			}
			format := c.String("output")
			if format != "table" && format != "json" {
				return usage("-o %s: want table or json", format)
			}
			inv := takeInventory()
			if format == "json" {
				e := json.NewEncoder(c.App.Writer)
				e.SetIndent("", "  ")
				return e.Encode(inv)
			}
			return inv.table(c.App.Writer)
		},
	}
}

func takeInventory() *inventory {
	inv := &inventory{RDMA: []rdma.DeviceInfo{}, Drives: []driveInfo{}}
	provider, err := verbs.Open()
	if err != nil {
		inv.Missing = append(inv.Missing, err.Error())
		provider = nil
	}
	if devices, err := rdma.Inventory(provider); err != nil {
		inv.Missing = append(inv.Missing, err.Error())
	} else {
		inv.RDMA = append(inv.RDMA, devices...)
	}
	drives, err := vfio.System().Drives()
	if err != nil {
		inv.Missing = append(inv.Missing, err.Error())
	}
	for i := range drives {
		d := &drives[i]
		info := driveInfo{PCI: d.Address, Driver: d.Driver, IOMMUGroup: d.Group, NUMANode: d.NUMANode, Serial: d.Serial, Model: d.Model}
		for _, n := range d.Neighbours {
			info.Neighbours = append(info.Neighbours, n.Address)
		}
		var use *inuse.Error
		if err := inuse.Check(d.Address); errors.As(err, &use) {
			info.InUse = use.Reasons
		} else if err != nil {
			info.InUse = []string{"unknown: " + err.Error()}
		}
		inv.Drives = append(inv.Drives, info)
	}
	return inv
}

func (inv *inventory) table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	if len(inv.RDMA) == 0 {
		fmt.Fprintln(w, "no RDMA devices")
	} else {
		fmt.Fprintln(w, "RDMA\tPORT\tSTATE\tNETDEV\tNUMA\tMTU\tADDRESS\tGID INDEX\tTYPE")
	}
	for i := range inv.RDMA {
		d := &inv.RDMA[i]
		for _, p := range d.Ports {
			// A port without an address still shows.
			gids := p.GIDs
			if len(gids) == 0 {
				gids = []rdma.GIDInfo{{Index: -1}}
			}
			for _, g := range gids {
				fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", d.Name, p.Number, dash(p.State),
					dash(first(g.Netdev, strings.Join(d.Netdevs, ","))), node(d.NUMANode), count(p.ActiveMTU),
					dash(first(g.Addr, g.GID)), index(g.Index), dash(g.Type))
			}
		}
	}
	fmt.Fprintln(w)
	if len(inv.Drives) == 0 {
		fmt.Fprintln(w, "no NVMe drives")
	} else {
		fmt.Fprintln(w, "NVME\tDRIVER\tIOMMU GROUP\tNUMA\tSERIAL\tMODEL\tIN USE")
	}
	for i := range inv.Drives {
		d := &inv.Drives[i]
		use := "no"
		if len(d.InUse) > 0 {
			use = strings.Join(d.InUse, "; ")
		} else if d.Driver != "nvme" {
			use = "-" // only the kernel's driver lets others look
		}
		group := dash(d.IOMMUGroup)
		if len(d.Neighbours) > 0 {
			group += " (with " + strings.Join(d.Neighbours, ", ") + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", d.PCI, dash(d.Driver), group, node(d.NUMANode), dash(d.Serial), dash(d.Model), use)
	}
	for _, m := range inv.Missing {
		fmt.Fprintf(w, "\n%s\n", m)
	}
	return w.Flush()
}

func first(words ...string) string {
	for _, s := range words {
		if s != "" {
			return s
		}
	}
	return ""
}

func dash(s string) string { return first(s, "-") }

func node(n int) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

func count(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

func index(n int) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(n)
}
