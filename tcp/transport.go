package tcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"rocet/target"
)

// Transport serves a target over TCP. Its methods may be called from any goroutine
// but a reactor's.
type Transport struct {
	cfg         Config
	log         *slog.Logger
	say         limiter
	target      *target.Target
	shards      []*shard
	halfOpenMax int // of a shard

	running sync.WaitGroup // connections

	mu        sync.Mutex
	closed    bool
	listeners map[*Listener]struct{}
	hosts     map[string]int
	conns     int
	refused   uint64
	load      []int64 // weight of the connections by shard
}

// New starts the transport. It has no listener yet.
func New(o Options) (*Transport, error) {
	if o.Target == nil || o.Pool == nil {
		return nil, errors.New("tcp: Target and Pool must be set")
	}
	mdts := o.Target.MDTS()
	if err := o.Config.setDefaults(mdts); err != nil {
		return nil, err
	}
	t := &Transport{
		cfg: o.Config, log: o.Log, target: o.Target,
		listeners: make(map[*Listener]struct{}), hosts: make(map[string]int),
	}
	if t.log == nil {
		t.log = slog.Default()
	}
	t.say.log = t.log
	size, groups := o.Pool.Stats().Bytes, o.Target.Groups()
	if size/uint64(len(groups)) < 2*uint64(mdts) {
		return nil, fmt.Errorf("tcp: a pool of %d bytes is too small for %d reactors and commands of %d bytes: raise memory.size to at least %d",
			size, len(groups), mdts, 2*uint64(mdts)*uint64(len(groups)))
	}
	t.halfOpenMax = max(1, t.cfg.MaxHalfOpen/len(groups))
	t.load = make([]int64, len(groups))
	for i, g := range groups {
		s, err := newShard(t, g, shareOf(size, len(groups), mdts))
		if err != nil {
			t.release()
			return nil, err
		}
		s.at = i
		t.shards = append(t.shards, s)
	}
	for _, s := range t.shards {
		s.r.Post(func() { s.r.Add(s) })
	}
	return t, nil
}

func (t *Transport) release() {
	for _, s := range t.shards {
		s.release()
	}
}

// Close ends every listener and every connection, and waits for them. The reactors
// must still run.
func (t *Transport) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	var ls []*Listener
	for l := range t.listeners {
		ls = append(ls, l)
	}
	t.mu.Unlock()
	for _, l := range ls {
		l.Close()
	}
	for _, s := range t.shards {
		s.r.Call(s.shut)
	}
	t.running.Wait()
	for _, s := range t.shards {
		s.r.Call(func() {
			s.r.Cancel(&s.retry)
			s.r.Remove(s)
		})
	}
	t.release()
	return nil
}

// shut ends the connections of a reactor.
func (s *shard) shut() {
	s.closed = true
	for _, c := range s.conns {
		if c != nil {
			c.linger = false
			c.shut(errClosed)
			if c.state == connLingering {
				c.close()
			}
		}
	}
}

// admit counts a new connection in, and finds its reactor: the one whose
// connections weigh least.
func (t *Transport) admit(host string) (*shard, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errClosed
	}
	if t.conns >= t.cfg.MaxConnections {
		t.refused++
		return nil, fmt.Errorf("all of the %d connections that MaxConnections allows are there", t.cfg.MaxConnections)
	}
	best := 0
	for i := range t.load {
		if t.load[i] < t.load[best] {
			best = i
		}
	}
	t.load[best]++
	t.conns++
	t.hosts[host]++
	t.running.Add(1)
	return t.shards[best], nil
}

// placed adds to the weight of a reactor's connections.
func (t *Transport) placed(s *shard, weight int64) {
	t.mu.Lock()
	t.load[s.at] += weight
	t.mu.Unlock()
}

// gone is the end of a connection.
func (t *Transport) gone(c *conn) {
	t.mu.Lock()
	t.load[c.shard.at] -= c.weight()
	t.conns--
	host := hostOnly(c.host)
	if t.hosts[host]--; t.hosts[host] == 0 {
		delete(t.hosts, host)
	}
	t.mu.Unlock()
	t.running.Done()
}

// ended says why a connection ends.
func (t *Transport) ended(c *conn, reason error) {
	if c.live {
		t.say.info("connection ended", "host", c.host, "qid", c.connect.qid, "reason", reason)
		return
	}
	t.say.info("connection without Connect ended", "host", c.host, "reason", reason)
}

// limiter is a log for what hosts can cause as often as they like: a few lines a
// second, and how many there were that are not there.
type limiter struct {
	log    *slog.Logger
	second atomic.Int64
	lines  atomic.Int64
	lost   atomic.Int64
}

// linesPerSecond is what a limiter lets through.
const linesPerSecond = 20

func (l *limiter) allow() (lost int64, ok bool) {
	now := time.Now().Unix()
	if was := l.second.Load(); was != now && l.second.CompareAndSwap(was, now) {
		l.lines.Store(0)
	}
	if l.lines.Add(1) > linesPerSecond {
		l.lost.Add(1)
		return 0, false
	}
	return l.lost.Swap(0), true
}

func (l *limiter) warn(msg string, args ...any) { l.say(slog.LevelWarn, msg, args) }
func (l *limiter) info(msg string, args ...any) { l.say(slog.LevelInfo, msg, args) }

// say writes a line from another goroutine: the callers are reactors.
func (l *limiter) say(level slog.Level, msg string, args []any) {
	lost, ok := l.allow()
	if !ok {
		return
	}
	if lost > 0 {
		args = append(args, "left_out", lost)
	}
	go l.log.Log(context.Background(), level, msg, args...)
}
