package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"rocet/nvme"
)

// The plain limit: messages of the sizes that a point's PDUs have, over a socket, with as many under way, batched as the
// socket allows. Nothing is parsed. Both ends poll, as Rocet's do under load.

// limit measures the echo.
func (c *config) limit(p point, r *result) error {
	if r.PeerName == "" {
		return nil
	}
	request, response := nvme.TCPCapsuleCmdSize, nvme.TCPDataSize+p.bs
	if p.write() {
		request, response = nvme.TCPCapsuleCmdSize+p.bs, nvme.TCPCapsuleRespSize
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	run := func(core int, args ...string) *exec.Cmd {
		cmd := exec.Command("taskset", append([]string{"-c", strconv.Itoa(core), self, "echo",
			"-request", strconv.Itoa(request), "-response", strconv.Itoa(response)}, args...)...)
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return cmd
	}
	server := run(c.targetCore)
	out, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait() // it was killed, or has ended with its connection
	}()
	var port int
	if _, err := fmt.Fscan(out, &port); err != nil {
		return fmt.Errorf("the echo does not come up: %w", err)
	}
	text, err := run(c.hostCore, "-connect", strconv.Itoa(port), "-depth", strconv.Itoa(p.depth), "-time", c.time.String()).Output()
	if err != nil {
		return fmt.Errorf("echo: %w", err)
	}
	var f figures
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	r.peer = append(r.peer, f)
	return nil
}

// echo is one end.
func echo(args []string) error {
	fs := flag.NewFlagSet("echo", flag.ExitOnError)
	request := fs.Int("request", 0, "bytes")
	response := fs.Int("response", 0, "bytes")
	connect := fs.Int("connect", 0, "port; 0: serve")
	depth := fs.Int("depth", 1, "requests under way")
	length := fs.Duration("time", time.Second, "how long")
	_ = fs.Parse(args)
	if *connect == 0 {
		return echoServe(os.Stdout, *request, *response)
	}
	f, err := echoLoad(*connect, *request, *response, *depth, *length)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}

// end is a socket with what waits to be sent.
type end struct {
	fd   int
	in   []byte
	out  []byte // one message, sent again and again
	part int    // bytes of the next message that were received
	left int    // bytes to send
	size int    // of a received message
	iov  []unix.Iovec
}

func newEnd(fd, in, out int) (*end, error) {
	for _, err := range []error{unix.SetNonblock(fd, true), unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)} {
		if err != nil {
			return nil, err
		}
	}
	return &end{fd: fd, in: make([]byte, 256<<10), out: make([]byte, out), size: in}, nil
}

var errGone = errors.New("the other end is gone")

// receive returns how many messages are complete.
func (e *end) receive() (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(e.fd), uintptr(unsafe.Pointer(&e.in[0])), uintptr(len(e.in)))
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return 0, nil
	case errno != 0:
		return 0, errno
	case n == 0:
		return 0, errGone
	}
	e.part += int(n)
	k := e.part / e.size
	e.part %= e.size
	return k, nil
}

// send sends n more messages, or what is left of those before.
func (e *end) send(n int) error {
	e.left += n * len(e.out)
	for e.left > 0 {
		e.iov = e.iov[:0]
		at := (len(e.out) - e.left%len(e.out)) % len(e.out)
		for left := e.left; left > 0 && len(e.iov) < 512; at = 0 {
			v := unix.Iovec{Base: &e.out[at]}
			v.SetLen(len(e.out) - at)
			left -= len(e.out) - at
			e.iov = append(e.iov, v)
		}
		sent, _, errno := unix.RawSyscall(unix.SYS_WRITEV, uintptr(e.fd), uintptr(unsafe.Pointer(&e.iov[0])), uintptr(len(e.iov)))
		switch {
		case errno == unix.EAGAIN:
			return nil
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return errno
		}
		e.left -= int(sent)
	}
	return nil
}

// echoServe serves one connection, until its other end is gone. It prints the port first.
func echoServe(w io.Writer, request, response int) error {
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(l)
	if err := unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	if err := unix.Listen(l, 1); err != nil {
		return err
	}
	sa, err := unix.Getsockname(l)
	if err != nil {
		return err
	}
	fmt.Fprintln(w, sa.(*unix.SockaddrInet4).Port)
	fd, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	e, err := newEnd(fd, request, response)
	if err != nil {
		return err
	}
	for {
		n, err := e.receive()
		if err == nil {
			err = e.send(n)
		}
		if errors.Is(err, errGone) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func echoLoad(port, request, response, depth int, length time.Duration) (f figures, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return f, err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: port}); err != nil {
		return f, err
	}
	e, err := newEnd(fd, response, request)
	if err != nil {
		return f, err
	}
	// Answers come in order, so the times of requests are a ring.
	starts := make([]time.Duration, depth)
	next := 0
	latencies := make([]uint32, 0, 1<<22)
	begin := time.Now()
	if err := e.send(depth); err != nil {
		return f, err
	}
	done := 0
	var measured time.Duration
	for now := time.Duration(0); now < ramp+length; {
		n, err := e.receive()
		if err != nil {
			return f, err
		}
		if n == 0 && e.left == 0 {
			if done == 0 || depth == 1 {
				now = time.Since(begin)
			}
			continue
		}
		now = time.Since(begin)
		for range n {
			if now >= ramp {
				done++
				if len(latencies) < cap(latencies) {
					latencies = append(latencies, uint32(now-starts[next]))
				}
			}
			starts[next] = now
			if next++; next == depth {
				next = 0
			}
		}
		measured = now - ramp
		if err := e.send(n); err != nil {
			return f, err
		}
	}
	if done == 0 {
		return f, fmt.Errorf("no answer came within %v", length)
	}
	slices.Sort(latencies)
	at := func(q float64) float64 {
		if len(latencies) == 0 {
			return 0
		}
		return round(float64(latencies[min(int(q*float64(len(latencies))), len(latencies)-1)]) / 1e3)
	}
	return figures{IOPS: round(float64(done) / measured.Seconds()), P50: at(0.5), P99: at(0.99), P999: at(0.999)}, nil
}
