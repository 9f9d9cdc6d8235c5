package file

import (
	"fmt"
	"log/slog"
	"sync"

	"rocet/cgo/uring"
	"rocet/memory"
	"rocet/target"
)

// Sizes of a lane.
const (
	laneOps   = 512  // operations of a reactor that the kernel has at a time
	laneFiles = 1024 // namespaces
)

// Engine has the io_urings of a process: one for each reactor that serves a file.
type Engine struct {
	pool *memory.Pool
	log  *slog.Logger

	mu    sync.Mutex
	lanes map[*target.PollGroup]*lane
}

// NewEngine makes an engine over the pool that the target's buffers come from.
func NewEngine(pool *memory.Pool, log *slog.Logger) *Engine {
	if log == nil {
		log = slog.Default()
	}
	return &Engine{pool: pool, log: log, lanes: make(map[*target.PollGroup]*lane)}
}

// attach makes fd known to the group's lane, which it makes if there is none. Off the reactors.
func (e *Engine) attach(g *target.PollGroup, fd int) (l *lane, slot int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l = e.lanes[g]
	if l == nil {
		if l, err = e.newLane(g); err != nil {
			return nil, 0, err
		}
		e.lanes[g] = l
	}
	if len(l.freeFiles) == 0 {
		return nil, 0, fmt.Errorf("reactor %d has %d files open, no more are possible", g.Index, laneFiles)
	}
	slot = l.freeFiles[len(l.freeFiles)-1]
	ran := g.Reactor.Call(func() { err = l.ring.SetFile(slot, fd) })
	if !ran {
		err = fmt.Errorf("reactor %d has stopped", g.Index)
	}
	if err != nil {
		e.drop(l)
		return nil, 0, err
	}
	l.freeFiles = l.freeFiles[:len(l.freeFiles)-1]
	return l, slot, nil
}

// detach frees a slot that SetFile has emptied, and the lane after its last one.
func (e *Engine) detach(l *lane, slot int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l.freeFiles = append(l.freeFiles, slot)
	e.drop(l)
}

// drop ends a lane that has no files. mu is held.
func (e *Engine) drop(l *lane) {
	if len(l.freeFiles) != laneFiles {
		return
	}
	delete(e.lanes, l.group)
	l.group.Reactor.Call(func() { l.group.Reactor.Remove(l) }) // false: the reactor has stopped, and nobody polls any more
	l.free()
}

// newLane makes a reactor's ring and enables it there.
func (e *Engine) newLane(g *target.PollGroup) (*lane, error) {
	ring, err := uring.Open(uring.Options{Entries: laneOps, Completions: 2 * laneOps})
	if err != nil {
		return nil, err
	}
	l := newLane(ring, g)
	if err := ring.RegisterFiles(laneFiles); err != nil {
		l.free()
		return nil, err
	}
	buffers, arenas := buffersOf(e.pool.BufferSlabs())
	if err := ring.RegisterBuffers(buffers); err != nil {
		// It works without: the kernel then pins the pages of each operation.
		e.log.Warn("buffers of the pool are not registered with io_uring: I/O on files costs more", "reactor", g.Index, "error", err)
	} else {
		l.arenas = arenas
	}
	ran := g.Reactor.Call(func() {
		if err = ring.Enable(); err == nil {
			g.Reactor.Add(l)
		}
	})
	if !ran {
		err = fmt.Errorf("reactor %d has stopped", g.Index)
	}
	if err != nil {
		l.free()
		return nil, err
	}
	return l, nil
}

// buffersOf cuts slabs into what io_uring takes, and says where each slab's begin.
func buffersOf(slabs []*memory.Slab) (buffers []uring.Buffer, arenas []arena) {
	for _, s := range slabs {
		arenas = append(arenas, arena{base: s.Base, size: s.Size, first: uint16(len(buffers))})
		for off := uint64(0); off < s.Size; off += uring.MaxBuffer {
			buffers = append(buffers, uring.Buffer{Addr: s.Base + uintptr(off), Len: min(uring.MaxBuffer, s.Size-off)})
		}
	}
	return buffers, arenas
}
