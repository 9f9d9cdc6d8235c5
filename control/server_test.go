package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"rocet/cgo/verbs"
	"rocet/cgo/verbs/fake"
	"rocet/control/config"
	"rocet/host"
	"rocet/nvme"
	"rocet/rdma"
)

const testNQN = "nqn.2026-01.io.rocet:test"

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func parse(t testing.TB, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// both serves over both transports, on ports that tests of one process don't share.
func both(t testing.TB, port int) *config.Config {
	return parse(t, fmt.Sprintf(`
memory: {size: 32MiB, hugepages: never}
metrics: {listen: "127.0.0.1:0"}
listeners:
  - {transport: rdma, address: 127.0.0.1, port: %[1]d}
  - {transport: tcp, address: 127.0.0.1, port: %[1]d}
subsystems:
  - nqn: %[2]s
    allow_any_host: true
    namespaces:
      - {nsid: 1, backend: {type: memory, size: 8MiB}, block_size: 4096}
      - {nsid: 2, backend: {type: "null", size: 1TiB}}
      - {nsid: 3, backend: {type: stripe, stripe_size: 64KiB, members: [{type: memory, size: 4MiB}, {type: memory, size: 4MiB}]}}
`, port, testNQN))
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func start(t testing.TB, cfg *config.Config, fabric *fake.Fabric) *Server {
	t.Helper()
	s, err := Start(context.Background(), cfg, Options{Version: "v1.2.3", Log: quiet(), OpenVerbs: func() (verbs.Provider, error) { return fabric, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t testing.TB, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}

func get(t testing.TB, s *Server, path string) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + s.MetricsAddr() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// use writes and reads a block over a transport.
func use(t testing.TB, transport string, port int, nsid uint32, provider verbs.Provider) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := host.Dial(ctx, host.Options{Transport: transport, Address: "127.0.0.1", Port: uint16(port), NQN: testNQN, Provider: provider})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	q, err := c.NewQueue(ctx, 8)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	mem, err := c.NewMemory(8192)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := mem.Free(); err != nil {
			t.Error(err)
		}
	}()
	copy(mem.Bytes(), "written over "+transport)
	for i, op := range []nvme.Opcode{nvme.OpWrite, nvme.OpRead} {
		var cmd host.IO
		cmd.SetRW(op, nsid, 7, 1)
		cmd.SetData(mem, uint32(i)*4096, 4096)
		if err := q.Submit(&cmd); err != nil {
			t.Fatal(err)
		}
		if err := q.Flush(); err != nil {
			t.Fatal(err)
		}
		done := make([]*host.IO, 1)
		for n := 0; n == 0; {
			if err := q.Wait(time.Second); err != nil {
				t.Fatal(err)
			}
			if n, err = q.Poll(done); err != nil {
				t.Fatal(err)
			}
		}
		if !cmd.Status.IsOK() {
			t.Fatalf("%v ended with %v", op.Name(false), cmd.Status)
		}
	}
	if got := string(mem.Bytes()[4096:][:13+len(transport)]); got != "written over "+transport {
		t.Errorf("read %q", got)
	}
}

func TestServe(t *testing.T) {
	fabric := fake.New(fake.Config{})
	port := freePort(t)
	s := start(t, both(t, port), fabric)
	if err := s.Ready(); err != nil {
		t.Error(err)
	}
	for _, nsid := range []uint32{1, 3} {
		use(t, host.TCP, port, nsid, nil)
		use(t, host.RDMA, port, nsid, fabric)
	}
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "ready"} {
		if code, body := get(t, s, path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	_, text := get(t, s, "/metrics")
	for _, want := range []string{
		`rocet_build_info{go="` + runtime.Version() + `",version="v1.2.3"} 1`,
		`rocet_commands_total{nsid="1",operation="write",subsystem="` + testNQN + `"} 2`,
		`rocet_bytes_total{nsid="3",operation="read",subsystem="` + testNQN + `"} 8192`,
		`rocet_command_duration_seconds_count{nsid="1",operation="read",subsystem="` + testNQN + `"} 2`,
		`rocet_copied_bytes_total{reason="bounce"} 0`,
		`rocet_admin_commands_total{opcode="Identify"}`,
		`rocet_reactor_busy_seconds_total{core=`,
		`rocet_listener_up{listener="rdma 127.0.0.1:`,
		`rocet_rdma_events_total{device="fake0",event="read",reactor="0"}`,
		`rocet_tcp_events_total{event="command",reactor="0"}`,
		`go_goroutines`, `process_open_fds`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
	if problems, err := testutil.GatherAndLint(s.metrics.registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", err, problems)
	}
	stop(t, s)
	if leaks := fabric.Leaks(); len(leaks) > 0 {
		t.Errorf("RDMA objects were left: %v", leaks)
	}
}

// TestScrapeWhileStopping holds that a scrape ends, and breaks nothing, whatever has been closed meanwhile.
func TestScrapeWhileStopping(t *testing.T) {
	fabric := fake.New(fake.Config{})
	defer fabric.Close()
	s := start(t, both(t, freePort(t)), fabric)
	var scrapes sync.WaitGroup
	begun, ended := make(chan struct{}, 2), make(chan struct{})
	for range 2 {
		scrapes.Go(func() {
			for n := 0; ; n++ {
				families, err := s.metrics.registry.Gather()
				if err != nil || len(families) == 0 {
					t.Errorf("%d families, %v", len(families), err)
				}
				if n == 0 {
					begun <- struct{}{}
				}
				select {
				case <-ended:
					return
				default:
				}
			}
		})
	}
	<-begun
	<-begun
	stop(t, s)
	close(ended)
	scrapes.Wait()
	if families, err := s.metrics.registry.Gather(); err != nil || len(families) == 0 { // after everything was closed
		t.Errorf("%d families, %v", len(families), err)
	}
}

func TestPrintable(t *testing.T) {
	out := make(chan prometheus.Metric, 1)
	k := &sink{out}
	k.gauge(driveState, 1, "0000:01:00.0", "S\xff\xfe1", "ready")
	var m dto.Metric
	if err := (<-out).Write(&m); err != nil {
		t.Fatal(err)
	}
	for _, l := range m.Label {
		if l.GetName() == "serial" && l.GetValue() != "S?1" {
			t.Errorf("serial %q", l.GetValue())
		}
	}
}

func TestQueueDepth(t *testing.T) {
	rdma, tcp := config.Listener{Transport: "rdma"}, config.Listener{Transport: "tcp"}
	for i, c := range []struct {
		rdma, tcp int
		listeners []config.Listener
		want      uint16
	}{
		{32, 0, []config.Listener{rdma, tcp}, 128}, // TCP keeps its default
		{32, 0, []config.Listener{rdma}, 32},
		{0, 256, []config.Listener{rdma, tcp}, 256},
		{512, 64, []config.Listener{tcp}, 64},
		{0, 0, nil, 0}, // the target's own
	} {
		cfg := &config.Config{RDMA: config.RDMA{MaxQueueDepth: c.rdma}, TCP: config.TCP{MaxQueueDepth: c.tcp}, Listeners: c.listeners}
		if got := queueDepth(cfg); got != c.want {
			t.Errorf("%d: %d, want %d", i, got, c.want)
		}
	}
}

// TestStop holds that a stop leaves nothing behind, also with hosts connected.
func TestStop(t *testing.T) {
	count := func() (int, int) {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(fds), runtime.NumGoroutine()
	}
	round := func() {
		fabric := fake.New(fake.Config{})
		port := freePort(t)
		s, err := Start(context.Background(), both(t, port), Options{Log: quiet(), OpenVerbs: func() (verbs.Provider, error) { return fabric, nil }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		var all []*host.Controller
		for _, transport := range []string{host.TCP, host.RDMA} {
			c, err := host.Dial(ctx, host.Options{Transport: transport, Address: "127.0.0.1", Port: uint16(port), NQN: testNQN, Provider: fabric})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
		_, _ = get(t, s, "/metrics")
		http.DefaultClient.CloseIdleConnections()
		stop(t, s)
		for _, c := range all {
			_ = c.Close() // it lost its connection
		}
		fabric.Close()
	}
	round()
	fds, goroutines := count()
	for range 3 {
		round()
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		f, g := count()
		if f <= fds && g <= goroutines {
			return
		}
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d descriptors and %d goroutines, were %d and %d\n%s", f, g, fds, goroutines, buf[:runtime.Stack(buf, true)])
		}
		runtime.Gosched()
	}
}

// TestFailedStart holds that a start that fails says why, and leaves nothing running.
func TestFailedStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	fabric := fake.New(fake.Config{})
	notVerbs := errors.New("no libraries")
	for name, c := range map[string]struct {
		change func(*config.Config)
		verbs  error
		want   string
	}{
		"metrics": {change: func(c *config.Config) { c.Metrics.Listen = taken.Addr().String() }, want: "metrics.listen " + taken.Addr().String()},
		"memory":  {change: func(c *config.Config) { c.Memory.HugePages = "require"; c.Memory.Size = 1 << 50 }, want: "memory.size"},
		"core":    {change: func(c *config.Config) { c.Reactors.Cores = []int{4000} }, want: "4000"},
		"backend": {change: func(c *config.Config) {
			c.Subsystems[0].Namespaces[0].Backend = config.Backend{Type: "nvme", PCI: "0000:ff:1f.7"}
		}, want: "namespace 1: backend nvme: "},
		"member": {change: func(c *config.Config) {
			c.Subsystems[0].Namespaces[2].Backend.Members[1] = config.Backend{Type: "memory", Size: 4097}
		}, want: "member 1"},
		"verbs":    {verbs: notVerbs, want: "transport rdma: no libraries"},
		"listener": {change: func(c *config.Config) { c.Listeners[0].Address = "nonsense" }, want: `"nonsense"`},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := both(t, freePort(t))
			if c.change != nil {
				c.change(cfg)
			}
			s, err := Start(context.Background(), cfg, Options{Log: quiet(), OpenVerbs: func() (verbs.Provider, error) {
				if c.verbs != nil {
					return nil, c.verbs
				}
				return fabric, nil
			}})
			if s != nil || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if leaks := fabric.Leaks(); len(leaks) > 0 {
				t.Errorf("RDMA objects were left: %v", leaks)
			}
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Start(ctx, both(t, freePort(t)), Options{Log: quiet()}); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted start: %v", err)
	}
}

func TestFileNamespace(t *testing.T) {
	cfg := both(t, freePort(t))
	path := filepath.Join(t.TempDir(), "x.img")
	cfg.Subsystems[0].Namespaces = []config.Namespace{{NSID: 1, Backend: config.Backend{Type: "file", Path: path, Size: 1 << 20, Buffered: true}}}
	s, err := Start(context.Background(), cfg, Options{Log: quiet(), OpenVerbs: func() (verbs.Provider, error) { return fake.New(fake.Config{}), nil }})
	if err != nil {
		if strings.Contains(err.Error(), "built without cgo") || strings.Contains(err.Error(), "io_uring") {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	defer stop(t, s)
	if info, err := os.Stat(path); err != nil || info.Size() != 1<<20 {
		t.Errorf("%v %v", info, err)
	}
}

func TestDefault(t *testing.T) {
	device := func(name, state string, addrs ...string) rdma.DeviceInfo {
		d := rdma.DeviceInfo{Name: name, Netdevs: []string{"eth" + name}, Ports: []rdma.PortInfo{{State: state}}}
		for _, a := range addrs {
			d.Ports[0].GIDs = append(d.Ports[0].GIDs, rdma.GIDInfo{Addr: a, Type: "RoCE v2"})
		}
		return d
	}
	cfg, missing := Default(nil, DefaultSize)
	if len(cfg.Listeners) != 1 || cfg.Listeners[0].Transport != "tcp" || cfg.Listeners[0].Address != "127.0.0.1" || len(missing) != 1 {
		t.Errorf("%+v %q", cfg.Listeners, missing)
	}
	cfg, missing = Default([]rdma.DeviceInfo{
		device("0", "active", "fe80::1", "10.9.0.1", "10.9.0.1"), device("1", "down", "10.9.1.1"), device("2", "active", "2001:db8::1"),
	}, DefaultSize)
	var got []string
	for _, l := range cfg.Listeners {
		got = append(got, l.Transport+" "+l.Address)
	}
	if want := "rdma 10.9.0.1, rdma 2001:db8::1, tcp 127.0.0.1"; strings.Join(got, ", ") != want {
		t.Errorf("listeners %q, want %q", got, want)
	}
	if len(missing) != 1 || !strings.Contains(missing[0], "ip addr add ADDRESS/LENGTH dev eth1") {
		t.Errorf("missing: %q", missing)
	}
}

func TestFirmware(t *testing.T) {
	for version, want := range map[string]string{"v1.2.3-4-gabc": "v1.2.3-4", "": "", "v 1\x7f": "v1"} {
		if got := firmware(version); got != want {
			t.Errorf("%q: %q, want %q", version, got, want)
		}
	}
}
