package tcp

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"rocet/memory"
	"rocet/reactor"
	"rocet/target"
)

const (
	// readAhead is how much one read takes of PDUs. It stays in the second level cache
	// between the kernel's copy and ours.
	readAhead = 128 << 10
	// smallAhead is how much is read beyond what goes to its place at once while a
	// host sends large writes: what is read ahead of their data is copied.
	smallAhead = 4 << 10
	largeData  = 16 << 10

	maxIovecs   = 256
	scratchSize = 64 << 10 // of headers in one sendmsg
	sendBytes   = 2 << 20  // enough for one sendmsg

	eventBatch = 64
	hotConns   = 8                            // that are read without asking epoll
	hotTime    = int64(50 * time.Microsecond) // since they last spoke
	calmPoll   = int64(5 * time.Microsecond)  // between looks at epoll while no connection speaks
)

// shard is the transport on one reactor.
type shard struct {
	_     [128]byte // no other writer's line
	t     *Transport
	group *target.PollGroup
	r     *reactor.Reactor
	mem   *memory.Cache
	share uint64 // bytes of pool memory that one connection may hold

	epoll    int32
	events   [eventBatch]unix.EpollEvent
	looked   int64 // when epoll was asked last
	spoke    int64 // when a connection had something last
	buf      []byte
	riov     []iovec
	siov     []iovec
	scratch  []byte
	msg      msghdr
	ready    []*conn // to read in the next turn
	reading  []*conn
	dirty    []*conn // with something to send
	flushing []*conn

	conns  []*conn // by the index in an epoll token
	gens   []uint32
	free   []uint32
	live   int
	at     int  // in Transport.shards
	closed bool // takes no more connections

	halfOpen halfOpenList

	adminTurns turns
	ioTurns    turns
	retry      reactor.Timer

	stats Stats
	build builder
	_     [128]byte
}

func newShard(t *Transport, g *target.PollGroup, share uint64) (*shard, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("tcp: epoll: %w (raise the limit of open files)", err)
	}
	s := &shard{
		t: t, group: g, r: g.Reactor, mem: g.Mem, share: share, epoll: int32(fd),
		buf: offHeapBytes(readAhead), scratch: offHeapBytes(scratchSize),
		riov: make([]iovec, 0, target.MaxSegments+2), siov: make([]iovec, 0, maxIovecs),
	}
	s.retry.Fire = s.pump
	return s, nil
}

func (s *shard) String() string { return fmt.Sprintf("tcp, reactor %d", s.r.ID()) }

// release gives everything back, after the last connection and off the reactor.
func (s *shard) release() {
	_ = unix.Close(int(s.epoll))
	freeOffHeap(s.buf)
	freeOffHeap(s.scratch)
}

// FD, Arm and Woken implement reactor.Sleeper.
func (s *shard) FD() int { return int(s.epoll) }

// Arm lets epoll watch the connections that were read without it.
func (s *shard) Arm() bool {
	if len(s.dirty) != 0 {
		return false
	}
	for _, c := range s.ready {
		if c.more {
			return false
		}
	}
	for _, c := range s.ready {
		c.inReady = false
	}
	clear(s.ready)
	s.ready = s.ready[:0]
	s.stats.Arms++
	return true
}

// Woken implements reactor.Sleeper.
func (s *shard) Woken() { s.spoke = s.r.Now() }

// Poll implements reactor.Poller.
func (s *shard) Poll() (work int) {
	if s.live == 0 {
		return 0
	}
	now := s.r.Now()
	s.reading, s.ready = s.ready, s.reading[:0]
	for _, c := range s.reading {
		c.inReady = false
		if c.state == connClosed {
			continue
		}
		if c.receive() {
			work++
			c.spoke = now
		}
		if c.more || now-c.spoke < hotTime && s.mayBeHot(c) {
			s.readLater(c)
		}
	}
	clear(s.reading)
	if work != 0 {
		s.spoke = now
		if now-s.looked < hotTime/4 {
			return work // those that speak go on; epoll is asked soon enough
		}
	}
	if now-s.spoke > hotTime && now-s.looked < calmPoll {
		return work
	}
	return work + s.look(now)
}

// look asks epoll who has something.
func (s *shard) look(now int64) (work int) {
	s.looked = now
	n := epollWait(s.epoll, s.events[:])
	s.stats.EpollWaits++
	for i := range s.events[:n] {
		ev := &s.events[i]
		token := epollToken(ev)
		index, gen := uint32(token), uint32(token>>32)
		if int(index) >= len(s.conns) || s.gens[index] != gen || s.conns[index] == nil {
			continue // of a connection that was closed meanwhile
		}
		c := s.conns[index]
		work++
		if ev.Events&unix.EPOLLOUT != 0 && c.blocked {
			c.blocked = false
			s.markDirty(c)
		}
		if ev.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			c.hup = true
		}
		if ev.Events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 && !c.inReady {
			if c.receive() {
				c.spoke = now
			}
			if c.more || s.mayBeHot(c) {
				s.readLater(c)
			}
		}
	}
	if n != 0 {
		s.spoke = now
	}
	return work
}

// mayBeHot tells whether a connection that just spoke is read without asking epoll.
// Where there are many, only those that keep speaking are.
func (s *shard) mayBeHot(c *conn) bool {
	return c.state < connDraining && len(s.ready) < hotConns && (s.live <= hotConns || c.misses < 2)
}

// readLater reads a connection in the next turn.
func (s *shard) readLater(c *conn) {
	if !c.inReady && c.state != connClosed {
		c.inReady = true
		s.ready = append(s.ready, c)
	}
}

// markDirty sends what a connection has in this turn's Flush.
func (s *shard) markDirty(c *conn) {
	if !c.dirty {
		c.dirty = true
		s.dirty = append(s.dirty, c)
	}
}

// Flush implements reactor.Flusher.
func (s *shard) Flush() {
	if s.waiting() {
		s.pump()
	}
	if len(s.dirty) == 0 {
		return
	}
	s.account()
	s.flushing, s.dirty = s.dirty, s.flushing[:0]
	for _, c := range s.flushing {
		c.dirty = false
		if !c.blocked {
			c.send()
		}
	}
	clear(s.flushing)
}

// account gives the turn's responses their latency: one look at the clock for all.
func (s *shard) account() {
	now := reactor.Clock()
	for _, c := range s.dirty {
		for at := c.fresh; at != nil; at = at.next {
			if at.state == slotSending {
				s.group.Account(&at.req, now)
			}
		}
		c.fresh = nil
	}
}

// copied counts data that was read ahead, or that could not be sent from where it was.
func (s *shard) copied(n uint32) {
	s.stats.CopiedBytes += uint64(n)
	s.group.CountCopied(target.CopySocket, uint64(n))
}

// add puts a connection on the reactor.
func (s *shard) add(c *conn) {
	if s.closed {
		c.discard()
		return
	}
	var index uint32
	if n := len(s.free); n > 0 {
		index, s.free = s.free[n-1], s.free[:n-1]
	} else {
		index = uint32(len(s.conns))
		s.conns, s.gens = append(s.conns, nil), append(s.gens, 0)
	}
	c.index = index
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET&(1<<32-1)}
	setToken(&ev, uint64(index)|uint64(s.gens[index])<<32)
	if err := unix.EpollCtl(int(s.epoll), unix.EPOLL_CTL_ADD, int(c.fd), &ev); err != nil {
		s.free = append(s.free, index)
		s.t.say.warn("a connection can't be watched", "host", c.host, "error", err)
		c.discard()
		return
	}
	s.conns[index] = c
	s.live++
	c.owner.Claim()
	s.halfOpen.push(c)
	s.stats.Accepted++
	s.r.Schedule(&c.timer, s.t.cfg.ConnectTimeout)
	if s.halfOpen.n > s.t.halfOpenMax {
		old := s.halfOpen.head
		s.stats.Displaced++
		s.t.say.warn("too many connections wait for a Connect command: the oldest is cut", "limit", s.t.cfg.MaxHalfOpen, "host", old.host)
		old.shut(errDisplaced)
	}
}

// remove is the end of a connection.
func (s *shard) remove(c *conn) {
	s.conns[c.index] = nil
	s.gens[c.index]++
	s.free = append(s.free, c.index)
	s.live--
}

// halfOpenList holds the connections without a successful Connect, oldest first.
type halfOpenList struct {
	head, tail *conn
	n          int
}

func (l *halfOpenList) push(c *conn) {
	c.prevHalf, c.nextHalf, c.half = l.tail, nil, true
	if l.tail != nil {
		l.tail.nextHalf = c
	} else {
		l.head = c
	}
	l.tail = c
	l.n++
}

func (l *halfOpenList) drop(c *conn) {
	if !c.half {
		return
	}
	if c.prevHalf != nil {
		c.prevHalf.nextHalf = c.nextHalf
	} else {
		l.head = c.nextHalf
	}
	if c.nextHalf != nil {
		c.nextHalf.prevHalf = c.prevHalf
	} else {
		l.tail = c.prevHalf
	}
	c.prevHalf, c.nextHalf, c.half = nil, nil, false
	l.n--
}
