package lab

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

const (
	monitorPort = "/dev/virtio-ports/lab.qmp"
	monitorLock = "/run/lock/qmon" // shared with the guest's qmon
)

// Monitor is the monitor of the machine that the guest runs in (QMP). It is opened for each command, and one at a time.
type Monitor struct {
	t    T
	next int
}

// NewMonitor returns the monitor; the test is skipped where there is none.
func NewMonitor(t T) *Monitor {
	t.Helper()
	RequireGuest(t)
	return &Monitor{t: t}
}

type qmpCommand struct {
	Execute   string `json:"execute"`
	Arguments any    `json:"arguments,omitempty"`
	ID        string `json:"id"`
}

type qmpReply struct {
	ID     string          `json:"id"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class, Desc string
	} `json:"error"`
}

// Execute gives a command of QMP and returns what it returns.
func (m *Monitor) Execute(command string, arguments any) json.RawMessage {
	m.t.Helper()
	reply, err := m.TryExecute(command, arguments)
	if err != nil {
		m.t.Fatalf("%v", err)
	}
	return reply
}

// TryExecute is Execute for commands that may fail.
func (m *Monitor) TryExecute(command string, arguments any) (json.RawMessage, error) {
	lock, err := os.OpenFile(monitorLock, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("%s: %w", monitorLock, err)
	}
	port, err := os.OpenFile(monitorPort, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer port.Close()
	if err := port.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return nil, fmt.Errorf("%s: %w", monitorPort, err)
	}
	m.next++
	id := fmt.Sprintf("lab-%d-%d", os.Getpid(), m.next)
	line, err := json.Marshal(qmpCommand{Execute: command, Arguments: arguments, ID: id})
	if err != nil {
		return nil, err
	}
	if _, err := port.Write(append(line, '\n')); err != nil {
		return nil, fmt.Errorf("monitor: %s: %w", command, err)
	}
	replies := bufio.NewReader(port)
	for {
		line, err := replies.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("monitor: %s: %w", command, err)
		}
		var r qmpReply
		// Events and what an earlier command left have another id, or none.
		if json.Unmarshal(line, &r) != nil || r.ID != id {
			continue
		}
		if r.Error != nil {
			return nil, fmt.Errorf("monitor: %s: %s: %s", command, r.Error.Class, r.Error.Desc)
		}
		return r.Return, nil
	}
}

// Human gives a command of the human monitor ("info block") and returns its text.
func (m *Monitor) Human(line string) string {
	m.t.Helper()
	var text string
	reply := m.Execute("human-monitor-command", map[string]string{"command-line": line})
	if err := json.Unmarshal(reply, &text); err != nil {
		m.t.Fatalf("monitor: %s: %v in %q", line, err, reply)
	}
	return strings.ReplaceAll(text, "\r\n", "\n")
}
