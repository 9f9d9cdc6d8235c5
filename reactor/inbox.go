package reactor

import "sync/atomic"

// Message is a function on its way to a reactor. One that is part of another object is sent without garbage; it may be
// sent again once Run was called.
type Message struct {
	Run  func()
	next *Message
}

// inbox is a lock-free stack that many push to; its one consumer takes all at once and turns the order round.
type inbox struct {
	head atomic.Pointer[Message]
}

// closed stands on an inbox that takes no more.
var closed Message

func (b *inbox) push(m *Message) bool {
	for {
		head := b.head.Load()
		if head == &closed {
			return false
		}
		m.next = head
		if b.head.CompareAndSwap(head, m) {
			return true
		}
	}
}

// empty is one load: it is looked at in every turn.
func (b *inbox) empty() bool { return b.head.Load() == nil }

// take empties the inbox and returns its messages, the oldest first.
func (b *inbox) take() *Message { return reverse(b.head.Swap(nil)) }

// close empties the inbox for good.
func (b *inbox) close() *Message { return reverse(b.head.Swap(&closed)) }

func reverse(m *Message) *Message {
	if m == &closed {
		return nil
	}
	var oldest *Message
	for m != nil {
		next := m.next
		m.next = oldest
		oldest, m = m, next
	}
	return oldest
}
