package rdma

import (
	"math/bits"

	"rocet/cgo/verbs"
)

// sharedRecvs is a lane's shared receive queue.
type sharedRecvs struct {
	srq    verbs.SRQ
	handle uintptr
	recvs  *recvs
	byQPN  qpnTable

	// This turn's batch.
	head uintptr
	tail *verbs.RecvWR

	posted int // with the device, or in the batch
}

// give posts a buffer again with this turn's batch.
func (s *sharedRecvs) give(recv uint16) {
	w := &s.recvs.wrs[recv]
	w.Next = 0
	if s.tail == nil {
		s.head = recvAddr(w)
	} else {
		s.tail.Next = recvAddr(w)
	}
	s.tail = w
	s.posted++
}

// low tells that so few receives are left that no command may keep one: the data
// in it is copied instead. So a slow namespace under in-capsule writes can't keep
// other queues' commands out.
func (s *sharedRecvs) low() bool { return s.posted < s.recvs.n/4 }

// sharedRecv takes a completion of the shared receive queue.
func (l *lane) sharedRecv(wc *verbs.WC, id wrID) {
	l.srq.posted--
	recv := id.slot()
	q := l.srq.byQPN.find(wc.QPNum)
	if q == nil {
		l.stats.Stale++
		l.srq.give(recv)
		return
	}
	if wc.Status != verbs.StatusSuccess {
		l.srq.give(recv)
		l.failed(q, wc, wrRecv)
		return
	}
	q.capsule(recv, wc.ByteLen)
}

// lastReached is the device's word that it takes no more shared receives for a
// queue. Their completions may still wait in the completion queue.
func (q *queue) lastReached() {
	q.owner.Check()
	if q.shared && q.state < queueDetached && !q.lastWQE {
		q.lane.lastWQE = append(q.lane.lastWQE, q)
	}
}

// sharedDrained follows a poll that emptied the completion queue.
func (l *lane) sharedDrained() {
	for _, q := range l.lastWQE {
		q.lastWQE = true
		q.checkDrained()
	}
	l.lastWQE = l.lastWQE[:0]
}

// qpnTable finds a queue by its queue pair's number: open addressing, and at most
// half full.
type qpnTable struct {
	keys   []uint32
	queues []*queue
	n      int
	shift  uint8
}

func (t *qpnTable) slot(qpn uint32) uint32 { return qpn * 0x9e3779b1 >> t.shift }

func (t *qpnTable) find(qpn uint32) *queue {
	if t.n == 0 {
		return nil
	}
	mask := uint32(len(t.keys) - 1)
	for i := t.slot(qpn); ; i++ {
		q := t.queues[i&mask]
		if q == nil || t.keys[i&mask] == qpn {
			return q
		}
	}
}

func (t *qpnTable) put(qpn uint32, q *queue) {
	if 2*(t.n+1) > len(t.keys) {
		t.rebuild(max(16, 2*len(t.keys)), qpn+1)
	}
	t.insert(qpn, q)
}

func (t *qpnTable) insert(qpn uint32, q *queue) {
	mask := uint32(len(t.keys) - 1)
	i := t.slot(qpn)
	for t.queues[i&mask] != nil {
		i++
	}
	t.keys[i&mask], t.queues[i&mask] = qpn, q
	t.n++
}

// drop takes a number out. It is control plane, so the table is just made anew.
func (t *qpnTable) drop(qpn uint32) { t.rebuild(len(t.keys), qpn) }

func (t *qpnTable) rebuild(size int, without uint32) {
	old := *t
	*t = qpnTable{keys: make([]uint32, size), queues: make([]*queue, size), shift: uint8(32 - bits.Len(uint(size-1)))}
	for i, q := range old.queues {
		if q != nil && old.keys[i] != without {
			t.insert(old.keys[i], q)
		}
	}
}
