package memory

import "sync/atomic"

// chunkStack holds the chunks that no cache has. It is a lock-free stack of chunk numbers; the head carries a tag that
// grows with every change, so that a head that comes back to an old value is noticed.
type chunkStack struct {
	_    [128]byte
	head atomic.Uint64 // tag << 32 | chunk + 1; chunk + 1 is 0 when empty
	_    [128]byte
	free atomic.Int64 // chunks on the stack, for statistics; lags behind head
	// hunger counts the times a cache went without: the others then give back what they only keep for speed.
	hunger atomic.Uint32
	// spare is how many wholly free chunks a cache keeps.
	spare atomic.Int32
	next  []atomic.Uint32 // by chunk: the one below, + 1
	total uint32
}

func (s *chunkStack) init(total uint32) {
	s.total = total
	s.next = make([]atomic.Uint32, total)
	s.spare.Store(1)
	for c := total; c > 0; c-- {
		s.push(c - 1)
	}
}

func (s *chunkStack) push(chunk uint32) {
	for {
		head := s.head.Load()
		s.next[chunk].Store(uint32(head))
		if s.head.CompareAndSwap(head, (head>>32+1)<<32|uint64(chunk+1)) {
			s.free.Add(1)
			return
		}
	}
}

func (s *chunkStack) pop() (chunk uint32, ok bool) {
	for {
		head := s.head.Load()
		top := uint32(head)
		if top == 0 {
			return 0, false
		}
		// The chunk may be taken by another cache here, and next be stale: then the tag differs.
		below := s.next[top-1].Load()
		if s.head.CompareAndSwap(head, (head>>32+1)<<32|uint64(below)) {
			s.free.Add(-1)
			return top - 1, true
		}
	}
}

func (s *chunkStack) empty() bool { return uint32(s.head.Load()) == 0 }
