package main

import (
	"log/slog"
	"math"
	"net"
	"os"
	"strconv"
	"time"

	"rocet/control"
)

// notify tells the service manager about a change of state: sd_notify(3). Without one it does nothing.
func notify(log *slog.Logger, state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(state))
		_ = conn.Close()
	}
	if err != nil {
		log.Warn("the service manager can't be told", "state", state, "error", err)
	}
}

// watchdog tells the service manager, as often as it wants to know (WATCHDOG_USEC), that every reactor still answers.
// A reactor that hangs keeps the message away, and the service manager starts rocet again.
func watchdog(log *slog.Logger, server *control.Server) (stop func()) {
	usec, err := strconv.ParseUint(os.Getenv("WATCHDOG_USEC"), 10, 63)
	if err != nil || usec < 2 {
		return func() {}
	}
	// It may be meant for another process, whose environment came down to this one.
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(time.Duration(min(usec, math.MaxInt64/1000)) * time.Microsecond / 2)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				server.Probe()
				notify(log, "WATCHDOG=1")
			}
		}
	}()
	return func() { close(done) }
}
