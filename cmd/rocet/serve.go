package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"rocet/cgo/verbs"
	"rocet/control"
	"rocet/control/config"
	"rocet/rdma"
)

const (
	// drainTimeout is how long an orderly end waits for hosts and drives.
	drainTimeout = 20 * time.Second
	// gcPercent lets the heap, which is a few MiB and hardly grows, go without collections for long.
	gcPercent = 400
)

func serveCommand() *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "serve what a configuration file describes; without one, a namespace in memory",
		Description: "Without a configuration, a namespace in memory is served on every RDMA device with an IP address, and over TCP\n" +
			"on 127.0.0.1. SIGTERM and SIGINT end it in order: hosts' commands end, drives are shut down; a second one at once.\n" +
			"Data lies outside the Go heap, which stays at a few MiB: GOGC is 400 unless it is set; GOMEMLIMIT has no use.",
		Flags: []cli.Flag{
			&cli.PathFlag{Name: "config", Aliases: []string{"c"}, Usage: "YAML `FILE`"},
			&cli.StringFlag{Name: "size", Value: "256MiB", Usage: "without --config: the namespace's `SIZE`"},
		},
		Action: serve,
	}
}

func serve(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	cfg, missing, err := configuration(c)
	if err != nil {
		return err
	}
	log, err := newLog(cfg, c.App.ErrWriter)
	if err != nil {
		return err
	}
	slog.SetDefault(log)
	for _, m := range missing {
		log.Warn(m)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}

	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	log.Info("starting", "version", version)
	server, err := start(c.Context, signals, cfg, log)
	if err != nil || server == nil {
		return err
	}
	if c.Path("config") == "" {
		printCommands(c.App.Writer, cfg)
	}
	log.Info("ready", "subsystems", len(cfg.Subsystems), "listeners", listenerList(cfg), "metrics", server.MetricsAddr())
	notify(log, "READY=1")
	stopWatchdog := watchdog(log, server)

	var why os.Signal
	select {
	case why = <-signals:
	case <-c.Context.Done():
	}
	stopWatchdog()
	notify(log, "STOPPING=1")
	log.Info("draining", "signal", fmt.Sprint(why), "timeout", drainTimeout)
	return drain(server, signals, log)
}

// drain ends a target in order, unless a signal comes.
func drain(server *control.Server, signals <-chan os.Signal, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- server.Close(ctx) }()
	select {
	case err := <-done:
		if err != nil {
			return cli.Exit(fmt.Sprintf("not everything ended in order: %v", err), exitForced)
		}
	case s := <-signals:
		return forced(s, "draining")
	}
	log.Info("stopped")
	return nil
}

// start starts the target. A signal undoes what there is of it, and then there is no server and no error; a second one
// does not wait for that.
func start(ctx context.Context, signals <-chan os.Signal, cfg *config.Config, log *slog.Logger) (*control.Server, error) {
	ctx, interrupt := context.WithCancel(ctx)
	defer interrupt()
	type result struct {
		server *control.Server
		err    error
	}
	done := make(chan result, 1)
	go func() {
		server, err := control.Start(ctx, cfg, control.Options{Version: version, Log: log})
		done <- result{server, err}
	}()
	select {
	case r := <-done:
		return r.server, r.err
	case s := <-signals:
		log.Info("stopping before it was ready", "signal", s.String())
		notify(log, "STOPPING=1")
		interrupt()
	}
	select {
	case r := <-done:
		if r.server != nil { // it was ready at that moment
			return nil, drain(r.server, signals, log)
		}
		if !errors.Is(r.err, context.Canceled) {
			return nil, r.err
		}
		log.Info("stopped")
		return nil, nil
	case s := <-signals:
		return nil, forced(s, "stopping")
	}
}

func forced(s os.Signal, doing string) error {
	return cli.Exit(fmt.Sprintf("%v came while %s: ended at once", s, doing), exitForced)
}

// configuration is the file's, or the embedded default, which says what it could not do.
func configuration(c *cli.Context) (cfg *config.Config, missing []string, err error) {
	if path := c.Path("config"); path != "" {
		if c.IsSet("size") {
			return nil, nil, usage("--size is for serving without --config: say it in %s", path)
		}
		cfg, err = config.Load(path)
		return cfg, nil, err
	}
	size, err := config.ParseSize(c.String("size"))
	if err != nil {
		return nil, nil, usage("--size: %v", err)
	}
	provider, err := verbs.Open()
	if err != nil {
		missing = append(missing, err.Error())
		provider = nil
	}
	devices, err := rdma.Inventory(provider)
	if err != nil {
		missing = append(missing, "RDMA devices: "+err.Error())
	}
	cfg, more := control.Default(devices, uint64(size))
	missing = append(missing, more...)
	return cfg, missing, nil
}

func newLog(cfg *config.Config, w io.Writer) (*slog.Logger, error) {
	o := &slog.HandlerOptions{}
	if cfg.Log.Level != "" {
		var level slog.Level
		if err := level.UnmarshalText([]byte(cfg.Log.Level)); err != nil {
			return nil, fmt.Errorf("log.level %q: want debug, info, warn or error", cfg.Log.Level)
		}
		o.Level = level
	}
	switch cfg.Log.Format {
	case "", "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, fmt.Errorf("log.format %q: want text or json", cfg.Log.Format)
}

func listenerList(cfg *config.Config) string {
	var all []string
	for _, l := range cfg.Listeners {
		all = append(all, l.Transport+"://"+hostPort(l))
	}
	return strings.Join(all, " ")
}

func hostPort(l config.Listener) string {
	return net.JoinHostPort(l.Address, strconv.Itoa(int(port(l))))
}

func port(l config.Listener) uint16 {
	if l.Port == 0 {
		return control.DefaultPort
	}
	return l.Port
}

// printCommands says how to connect.
func printCommands(w io.Writer, cfg *config.Config) {
	nqn := cfg.Subsystems[0].NQN
	fmt.Fprintln(w, "Connect a Linux host:")
	for _, l := range cfg.Listeners {
		fmt.Fprintf(w, "  nvme connect -t %s -a %s -s %d -n %s\n", l.Transport, l.Address, port(l), nqn)
	}
	fmt.Fprintln(w, "Or measure from here, without the kernel's host:")
	for _, l := range cfg.Listeners {
		fmt.Fprintf(w, "  rocet perf 'nvme-%s://%s/%s?nsid=1'\n", l.Transport, hostPort(l), nqn)
	}
}
