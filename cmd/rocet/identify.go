package main

import (
	"context"
	"fmt"
	"math"

	"github.com/urfave/cli/v2"

	"rocet/host"
	"rocet/host/load"
	"rocet/nvme"
)

func identifyCommand() *cli.Command {
	var output string
	var nsid uint64
	return interleave(&cli.Command{
		Name:      "identify",
		Usage:     "print what a controller says about itself and its namespaces, as nvme id-ctrl and id-ns do",
		ArgsUsage: "URL",
		Flags: []cli.Flag{
			&cli.Uint64Flag{Name: "nsid", Usage: "`N` is the only namespace to print", Destination: &nsid},
			outputFlag(&output),
		},
	}, func(c *cli.Context, args []string) error {
		url, err := oneURL(c, args)
		if err != nil {
			return err
		}
		if err := checkOutput(output); err != nil {
			return err
		}
		if nsid >= math.MaxUint32 {
			return usage("--nsid %d: want 1 to 4294967294", nsid)
		}
		o, err := host.ParseURL(url)
		if err != nil {
			return usage("%v", err)
		}
		return withController(c.Context, o, func(ctx context.Context, ctrl *host.Controller) error {
			return identify(ctx, c, ctrl, uint32(nsid), output == "json")
		})
	})
}

func identify(ctx context.Context, c *cli.Context, ctrl *host.Controller, only uint32, asJSON bool) error {
	id, err := ctrl.IdentifyController(ctx)
	if err != nil {
		return err
	}
	var nsids []uint32
	if id.CNTRLTYPE != nvme.ControllerDiscovery {
		if nsids, err = ctrl.Namespaces(ctx); err != nil {
			return err
		}
	}
	if only != 0 {
		nsids = []uint32{only}
	}
	controller := controllerFields(&id)
	namespaces := make([]fields, 0, len(nsids))
	for _, n := range nsids {
		ns, err := ctrl.IdentifyNamespace(ctx, n)
		if err != nil {
			return fmt.Errorf("namespace %d: %w", n, err)
		}
		if ns.NSZE == 0 && n == only {
			return fmt.Errorf("namespace %d is not active", n)
		}
		ids, err := ctrl.NamespaceIDs(ctx, n)
		if err != nil {
			return fmt.Errorf("namespace %d: %w", n, err)
		}
		namespaces = append(namespaces, namespaceFields(n, &ns, &ids))
	}
	w := c.App.Writer
	if asJSON {
		var top fields
		top.add("controller", controller)
		top.add("namespaces", namespaces)
		return printJSON(w, top)
	}
	fmt.Fprintln(w, "NVME Identify Controller:")
	controller.print(w, 10, ": ")
	for i, f := range namespaces {
		fmt.Fprintf(w, "\nNVME Identify Namespace %d:\n", nsids[i])
		f.print(w, 10, ": ")
	}
	return nil
}

// controllerFields has nvme-cli's names, in its order.
func controllerFields(id *nvme.IdentifyController) (f fields) {
	f.hex("vid", uint64(id.VID))
	f.hex("ssvid", uint64(id.SSVID))
	f.add("sn", nvme.ASCII(id.SN[:]))
	f.add("mn", nvme.ASCII(id.MN[:]))
	f.add("fr", nvme.ASCII(id.FR[:]))
	f.add("rab", id.RAB)
	f.add("ieee", fmt.Sprintf("%02x%02x%02x", id.IEEE[2], id.IEEE[1], id.IEEE[0]))
	f.hex("cmic", uint64(id.CMIC))
	f.add("mdts", id.MDTS)
	f.hex("cntlid", uint64(id.CNTLID))
	f.hex("ver", uint64(id.VER))
	f.hex("rtd3r", uint64(id.RTD3R))
	f.hex("rtd3e", uint64(id.RTD3E))
	f.hex("oaes", uint64(id.OAES))
	f.hex("ctratt", uint64(id.CTRATT))
	f.hex("cntrltype", uint64(id.CNTRLTYPE))
	f.add("fguid", nvme.UUID(id.FGUID).String())
	for i, d := range id.CRDT {
		f.add(fmt.Sprint("crdt", i+1), d)
	}
	f.hex("oacs", uint64(id.OACS))
	f.add("acl", id.ACL)
	f.add("aerl", id.AERL)
	f.hex("frmw", uint64(id.FRMW))
	f.hex("lpa", uint64(id.LPA))
	f.add("elpe", id.ELPE)
	f.add("npss", id.NPSS)
	f.add("wctemp", id.WCTEMP)
	f.add("cctemp", id.CCTEMP)
	f.add("tnvmcap", id.TNVMCAP.String())
	f.add("unvmcap", id.UNVMCAP.String())
	f.add("kas", id.KAS)
	f.add("anatt", id.ANATT)
	f.hex("anacap", uint64(id.ANACAP))
	f.add("anagrpmax", id.ANAGRPMAX)
	f.add("nanagrpid", id.NANAGRPID)
	f.hex("sqes", uint64(id.SQES))
	f.hex("cqes", uint64(id.CQES))
	f.add("maxcmd", id.MAXCMD)
	f.add("nn", id.NN)
	f.hex("oncs", uint64(id.ONCS))
	f.hex("fuses", uint64(id.FUSES))
	f.hex("fna", uint64(id.FNA))
	f.hex("vwc", uint64(id.VWC))
	f.add("awun", id.AWUN)
	f.add("awupf", id.AWUPF)
	f.hex("nwpc", uint64(id.NWPC))
	f.add("acwu", id.ACWU)
	f.hex("sgls", uint64(id.SGLS))
	f.add("mnan", id.MNAN)
	f.add("subnqn", id.SUBNQN.String())
	f.add("ioccsz", id.IOCCSZ)
	f.add("iorcsz", id.IORCSZ)
	f.add("icdoff", id.ICDOFF)
	f.hex("fcatt", uint64(id.FCATT))
	f.add("msdbd", id.MSDBD)
	f.hex("ofcs", uint64(id.OFCS))
	return f
}

// namespaceFields has nvme-cli's names, and the identification descriptors.
func namespaceFields(nsid uint32, id *nvme.IdentifyNamespace, ids *nvme.NamespaceIDs) (f fields) {
	f.add("nsid", nsid)
	f.hex("nsze", id.NSZE)
	f.hex("ncap", id.NCAP)
	f.hex("nuse", id.NUSE)
	f.hex("nsfeat", uint64(id.NSFEAT))
	f.add("nlbaf", id.NLBAF)
	f.hex("flbas", uint64(id.FLBAS))
	f.hex("mc", uint64(id.MC))
	f.hex("dpc", uint64(id.DPC))
	f.hex("dps", uint64(id.DPS))
	f.hex("nmic", uint64(id.NMIC))
	f.hex("rescap", uint64(id.RESCAP))
	f.hex("fpi", uint64(id.FPI))
	f.hex("dlfeat", uint64(id.DLFEAT))
	f.add("nawun", id.NAWUN)
	f.add("nawupf", id.NAWUPF)
	f.add("nacwu", id.NACWU)
	f.add("nabsn", id.NABSN)
	f.add("nabo", id.NABO)
	f.add("nabspf", id.NABSPF)
	f.add("noiob", id.NOIOB)
	f.add("nvmcap", id.NVMCAP.String())
	if id.NSFEAT&nvme.NSFEATOptimalUnits != 0 {
		f.add("npwg", id.NPWG)
		f.add("npwa", id.NPWA)
		f.add("npdg", id.NPDG)
		f.add("npda", id.NPDA)
		f.add("nows", id.NOWS)
	}
	f.add("anagrpid", id.ANAGRPID)
	f.hex("nsattr", uint64(id.NSATTR))
	f.add("nguid", id.NGUID.String())
	f.add("eui64", id.EUI64.String())
	f.add("uuid", ids.UUID.String())
	f.add("csi", ids.CSI)
	type format struct {
		MS    uint16 `json:"ms"`
		DS    uint8  `json:"ds"`
		RP    uint8  `json:"rp"`
		InUse bool   `json:"in_use"`
	}
	for i := 0; i <= int(id.NLBAF) && i < len(id.LBAF); i++ {
		l := id.LBAF[i]
		if l.LBADS == 0 {
			continue
		}
		text := fmt.Sprintf("ms:%d lbads:%d rp:%#x", l.MS, l.LBADS, l.RP)
		if i == id.FormatIndex() {
			text += " (in use)"
		}
		f = append(f, field{name: fmt.Sprintf("lbaf%d", i), value: format{l.MS, l.LBADS, l.RP, i == id.FormatIndex()}, text: text})
	}
	if bs := id.BlockSize(); bs != 0 && id.NSZE <= math.MaxUint64/uint64(bs) {
		f = append(f, field{name: "size", value: id.NSZE * uint64(bs), text: load.SizeString(id.NSZE * uint64(bs))})
	}
	return f
}
