package reactor

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// wakeSlot is the wake-up descriptor's number in the epoll set.
const wakeSlot = -1

// wakeByOne is what a wake-up adds to the descriptor's counter.
var wakeByOne = binary.NativeEndian.AppendUint64(nil, 1)

// openWaits makes the epoll set and the descriptor that wakes it.
func (r *Reactor) openWaits() (err error) {
	if r.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("reactor %d: epoll: %w (raise the limit of open files)", r.id, err)
	}
	if r.wakefd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		unix.Close(r.epoll)
		return fmt.Errorf("reactor %d: eventfd: %w (raise the limit of open files)", r.id, err)
	}
	// Edge-triggered: each write is an event, and nobody has to read the counter back.
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: wakeSlot}
	if err = unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, r.wakefd, &ev); err != nil {
		r.closeWaits()
		return fmt.Errorf("reactor %d: epoll: %w", r.id, err)
	}
	return nil
}

func (r *Reactor) closeWaits() {
	for r.wakers.Load() != 0 {
		runtime.Gosched()
	}
	unix.Close(r.epoll)
	unix.Close(r.wakefd)
}

func (r *Reactor) watch(fd, at int) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(at)}
	return unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, fd, &ev)
}

// wake ends the reactor's epoll wait, from any goroutine. It is counted in before it can be the one that wakes, so that
// the descriptor is not closed, and perhaps another file by then, when it writes.
func (r *Reactor) wake() {
	r.wakers.Add(1)
	if r.sleeping.CompareAndSwap(true, false) {
		for {
			if _, err := unix.Write(r.wakefd, wakeByOne); err != unix.EINTR {
				break
			}
		}
	}
	r.wakers.Add(-1)
}

// sleep waits in epoll, unless work turns up on the way there.
func (r *Reactor) sleep() {
	if r.sleepless > 0 {
		return
	}
	for i := range len(r.slots) {
		if s := r.slots[i].sleeper; s != nil {
			r.current = s
			if !s.Arm() {
				r.current = nil
				return
			}
		}
	}
	// What came before it was armed will not make its descriptor readable.
	if work := r.poll(); work != 0 {
		r.flush()
		r.worked = work
		r.idleSince = 0
		return
	}
	r.flush()
	r.sleeping.Store(true)
	if !r.inbox.empty() {
		r.sleeping.Store(false)
		return
	}
	before := Clock()
	n := r.wait(before)
	r.sleeping.Store(false)
	after := Clock()
	r.stats.Sleeps++
	r.stats.SleepNs += uint64(after - before)
	// The turn's own time ends here; its sleep is idle time.
	r.account(before)
	r.stats.IdleNs += uint64(after - before)
	r.now, r.worked = after, 0
	r.steal.restart(after)
	for _, ev := range r.events[:n] {
		if ev.Fd == wakeSlot {
			continue
		}
		if s := r.slots[ev.Fd].sleeper; s != nil {
			r.current = s
			s.Woken()
		}
	}
	r.current = nil
	r.idleSince = 0
}

// wait is the system call. The runtime knows that the thread is in it, so it can stop the world meanwhile.
func (r *Reactor) wait(now int64) int {
	var limit *unix.Timespec
	if due := r.timers.next(); due != 0 {
		r.waitTime = unix.NsecToTimespec(max(due-now, 0))
		limit = &r.waitTime
	}
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(r.epoll), uintptr(unsafe.Pointer(&r.events[0])),
		uintptr(len(r.events)), uintptr(unsafe.Pointer(limit)), 0, 0)
	if errno == unix.ENOSYS { // before Linux 5.11: milliseconds only
		ms := -1
		if limit != nil {
			ms = int((limit.Nano() + 1e6 - 1) / 1e6)
		}
		n, err := unix.EpollWait(r.epoll, r.events[:], ms)
		if err != nil {
			return 0 // interrupted by a signal
		}
		return n
	}
	if errno != 0 {
		return 0 // interrupted by a signal
	}
	return int(n)
}
