package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"rocet/control/config"
	"rocet/host"
	"rocet/host/load"
)

// perfFlags are those of rocet perf.
type perfFlags struct {
	rw, bs, offset, size, output string
	mix, qd, queues              int
	time, ramp                   time.Duration
	count, nsid, seed            uint64
	verify, force, sleep         bool
	progress                     bool
}

func perfCommand() *cli.Command {
	var f perfFlags
	return interleave(&cli.Command{
		Name:      "perf",
		Usage:     "put a load on a namespace, and measure IOPS and latency",
		ArgsUsage: "URL",
		Description: "URL is nvme-tcp://ADDRESS:PORT/NQN?nsid=1&hdgst&ddgst or nvme-rdma://ADDRESS:PORT/NQN?nsid=1. More parameters:\n" +
			"hostnqn, hostid, kato, timeout, from.\n\n" +
			"Loads that write destroy what is on the namespace. One that carries a partition table, a file system or the like is\n" +
			"refused without --force. The status is 1 if commands failed or, with --verify, other data came back than was written.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "rw", Value: "randread", Usage: "`LOAD`: read, write, rw, randread, randwrite, randrw", Destination: &f.rw},
			&cli.IntFlag{Name: "mix", Value: 50, Usage: "`PERCENT` of reads, of rw and randrw", Destination: &f.mix},
			&cli.StringFlag{Name: "bs", Value: "4KiB", Usage: "`SIZE` of a command", Destination: &f.bs},
			&cli.IntFlag{Name: "qd", Value: 32, Usage: "`N` commands under way on each queue", Destination: &f.qd},
			&cli.IntFlag{Name: "queues", Value: 1, Usage: "`N` I/O queues, with a thread each", Destination: &f.queues},
			&cli.DurationFlag{Name: "time", Usage: "how long to measure (10s without --count)", Destination: &f.time},
			&cli.DurationFlag{Name: "ramp", Usage: "how long to run before that", Destination: &f.ramp},
			&cli.Uint64Flag{Name: "count", Usage: "`N` commands in all", Destination: &f.count},
			&cli.Uint64Flag{Name: "nsid", Usage: "namespace (the URL's, or 1)", Destination: &f.nsid},
			&cli.StringFlag{Name: "offset", Value: "0", Usage: "`BYTES` of the namespace to leave alone at its beginning", Destination: &f.offset},
			&cli.StringFlag{Name: "size", Usage: "`BYTES` to work on (to the end; with --verify 1GiB at most)", Destination: &f.size},
			&cli.Uint64Flag{Name: "seed", Usage: "`N` makes the order of a random load repeat", Destination: &f.seed},
			&cli.BoolFlag{Name: "verify", Usage: "write patterns with checksums, read them back, compare", Destination: &f.verify},
			&cli.BoolFlag{Name: "force", Usage: "write to a namespace that looks in use", Destination: &f.force},
			&cli.BoolFlag{Name: "sleep", Usage: "sleep instead of polling: less CPU, more latency", Destination: &f.sleep},
			&cli.BoolFlag{Name: "progress", Usage: "a line a second on standard error, even if that is no terminal", Destination: &f.progress},
			outputFlag(&f.output),
		},
	}, func(c *cli.Context, args []string) error { return perf(c, args, f) })
}

func perf(c *cli.Context, args []string, f perfFlags) error {
	url, err := oneURL(c, args)
	if err != nil {
		return err
	}
	cfg, err := f.config(url)
	if err != nil {
		return err
	}
	line := newProgress(c.App.ErrWriter, f.progress)
	if line != nil {
		cfg.Progress = line.show
	}
	ctx, stop := signal.NotifyContext(c.Context, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	res, err := load.Run(ctx, cfg)
	line.end()
	if res == nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return errors.New("interrupted before there was anything to measure")
		}
		return err
	}
	if res.Depth < cfg.Depth {
		fmt.Fprintf(c.App.ErrWriter, "rocet: the queue depth is %d: the target's queues have %d entries, and one stays free\n", res.Depth, res.Depth+1)
	}
	if f.output == "json" {
		e := json.NewEncoder(c.App.Writer)
		e.SetIndent("", "  ")
		if err := e.Encode(res); err != nil {
			return err
		}
	} else if err := res.Print(c.App.Writer); err != nil {
		return err
	}
	switch {
	case err != nil:
		return err
	case res.Mismatch != nil:
		return fmt.Errorf("other data came back than was written: %v", res.Mismatch)
	case res.Errors > 0:
		return fmt.Errorf("%d commands failed", res.Errors)
	}
	return nil
}

// config is the load that the flags describe.
func (f *perfFlags) config(url string) (cfg load.Config, err error) {
	if err := checkOutput(f.output); err != nil {
		return cfg, err
	}
	o, err := host.ParseURL(url)
	if err != nil {
		return cfg, usage("%v", err)
	}
	if f.nsid != 0 {
		if f.nsid >= math.MaxUint32 {
			return cfg, usage("--nsid %d: want 1 to 4294967294", f.nsid)
		}
		o.NSID = uint32(f.nsid)
	}
	size := func(name, v string) uint64 {
		if v == "" || err != nil {
			return 0
		}
		n, perr := config.ParseSize(v)
		if perr != nil {
			err = usage("--%s: %v", name, perr)
		}
		return uint64(n)
	}
	bs := size("bs", f.bs)
	cfg = load.Config{Target: o, RW: f.rw, ReadMix: f.mix, Depth: f.qd, Queues: f.queues, Time: f.time, Ramp: f.ramp,
		Count: f.count, Offset: size("offset", f.offset), Size: size("size", f.size), Seed: f.seed, Verify: f.verify, Force: f.force, Sleep: f.sleep}
	switch {
	case err != nil:
		return cfg, err
	case bs == 0 || bs > math.MaxUint32:
		return cfg, usage("--bs %s: want a block size up to 16MiB", f.bs)
	case f.qd < 1 || f.queues < 1:
		return cfg, usage("--qd %d, --queues %d: want at least 1 of each", f.qd, f.queues)
	case f.mix < 0:
		return cfg, usage("--mix %d: want 0 to 100", f.mix)
	case f.mix == 0:
		cfg.ReadMix = -1 // 0 is the default's
	}
	cfg.BlockSize = uint32(bs)
	if err := cfg.Check(); err != nil {
		return cfg, usage("%v", err)
	}
	return cfg, nil
}

// progress is the line on a terminal, or one line a second elsewhere.
type progress struct {
	w        io.Writer
	terminal bool
	shown    bool
}

// newProgress is nil if nobody looks.
func newProgress(w io.Writer, forced bool) *progress {
	if f, ok := w.(*os.File); ok {
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
			return &progress{w: w, terminal: true}
		}
	}
	if forced {
		return &progress{w: w}
	}
	return nil
}

func (p *progress) show(s load.Sample) {
	begin, end := "", "\n"
	if p.terminal {
		begin, end = "\r\x1b[K", ""
	}
	text := fmt.Sprintf("%s %3.0f s", s.Phase, s.Elapsed.Seconds())
	if s.Phase != "verify" {
		text += fmt.Sprintf("  %.0f IOPS  %.1f MiB/s", s.IOPS, s.Bytes/(1<<20))
	}
	if s.Errors > 0 {
		text += fmt.Sprintf("  %d errors", s.Errors)
	}
	fmt.Fprint(p.w, begin+text+end)
	p.shown = true
}

func (p *progress) end() {
	if p != nil && p.terminal && p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
