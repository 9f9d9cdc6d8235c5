package reactor

import "time"

// Timer calls Fire once, on its reactor, when its time has come. It is embedded in what it times, and costs no memory of
// its own. The zero value is not scheduled.
type Timer struct {
	Fire func()

	when int64
	pos  int // index in the heap + 1; 0: not scheduled
}

// Scheduled tells whether the timer is going to fire.
func (t *Timer) Scheduled() bool { return t.pos != 0 }

// timers is a heap by time, four children to a node.
type timers struct{ heap []*Timer }

const arity = 4

// Schedule makes t fire in d from now, instead of when it was going to. On the reactor only.
func (r *Reactor) Schedule(t *Timer, d time.Duration) {
	r.owner.Check()
	when := max(Clock()+int64(d), r.now+1) // never again in the turn under way
	if t.pos == 0 {
		r.timers.heap = append(r.timers.heap, t)
		t.pos = len(r.timers.heap)
		t.when = when
		r.timers.up(t.pos - 1)
		return
	}
	earlier := when < t.when
	t.when = when
	if earlier {
		r.timers.up(t.pos - 1)
	} else {
		r.timers.down(t.pos - 1)
	}
}

// Cancel makes t not fire; it may not be scheduled at all. On the reactor only.
func (r *Reactor) Cancel(t *Timer) {
	r.owner.Check()
	if t.pos != 0 {
		r.timers.remove(t)
	}
}

// next is when the first timer is due; 0 if there is none.
func (h *timers) next() int64 {
	if len(h.heap) == 0 {
		return 0
	}
	return h.heap[0].when
}

// fire runs what is due, and what becomes due meanwhile only in the next turn.
func (h *timers) fire(now int64) (fired int) {
	for len(h.heap) > 0 && h.heap[0].when <= now {
		t := h.heap[0]
		h.remove(t)
		t.Fire()
		fired++
	}
	return fired
}

func (h *timers) remove(t *Timer) {
	i := t.pos - 1
	last := len(h.heap) - 1
	moved := h.heap[last]
	h.heap[last] = nil
	h.heap = h.heap[:last]
	t.pos = 0
	if i == last {
		return
	}
	h.set(i, moved)
	h.up(i)
	h.down(moved.pos - 1)
}

func (h *timers) set(i int, t *Timer) {
	h.heap[i] = t
	t.pos = i + 1
}

func (h *timers) up(i int) {
	t := h.heap[i]
	for i > 0 {
		parent := (i - 1) / arity
		if h.heap[parent].when <= t.when {
			break
		}
		h.set(i, h.heap[parent])
		i = parent
	}
	h.set(i, t)
}

func (h *timers) down(i int) {
	t := h.heap[i]
	for {
		first := i*arity + 1
		if first >= len(h.heap) {
			break
		}
		least := first
		for c := first + 1; c < min(first+arity, len(h.heap)); c++ {
			if h.heap[c].when < h.heap[least].when {
				least = c
			}
		}
		if h.heap[least].when >= t.when {
			break
		}
		h.set(i, h.heap[least])
		i = least
	}
	h.set(i, t)
}
