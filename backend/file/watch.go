package file

import (
	"errors"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"rocet/nvme"
	"rocet/target"
)

// watchEvery is how often the watcher looks for another size, and for a device that went or came.
const watchEvery = time.Second

func (b *Backend) watcher() {
	defer close(b.done)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			b.look()
		case <-b.stop:
			return
		}
	}
}

// look compares the device to what is known of it.
func (b *Backend) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	size, err := b.device.sizeOf(b.file)
	if gone := err != nil || b.device.block && size == 0; gone != b.away {
		if gone {
			b.away = true
			b.log.Warn("the device behind a namespace is gone", "path", b.cfg.Path, "error", err)
			b.tell(target.EventGone)
			return
		}
		b.back(size)
		return
	}
	if b.away {
		b.reopen()
		return
	}
	b.resized(size)
}

// back ends an absence. mu is held.
func (b *Backend) back(size uint64) {
	b.away = false
	b.log.Info("the device behind a namespace is back", "path", b.cfg.Path)
	b.resized(size)
	b.tell(target.EventBack)
}

// reopen tries to take up the device that stands under the path now: the old descriptor is of the one that left. mu is
// held.
func (b *Backend) reopen() {
	c := b.cfg
	c.Size = 0 // it may have another one
	if _, err := os.Stat(c.Path); err != nil {
		return
	}
	f, d, err := openDevice(&c, true)
	if err != nil {
		return // not there yet, or somebody else's by now
	}
	if d.block != b.device.block || d.logical > b.block || d.memory-1 > uint32(b.alignment.address) ||
		d.identity != b.device.identity || d.identity == "" && d.size>>b.shift != b.blocks.Load() {
		b.log.Warn("another device has taken the path of a namespace's", "path", c.Path)
		f.Close()
		return
	}
	for q := range b.queues {
		var err error
		q.lane.group.Reactor.Call(func() {
			if !q.gone {
				err = q.lane.ring.SetFile(q.slot, int(f.Fd()))
			}
		})
		if err != nil {
			b.log.Error("a namespace's device is back and cannot be used", "path", c.Path, "error", err)
			f.Close()
			return
		}
	}
	b.fileMu.Lock()
	old := b.file
	b.file, b.device = f, d
	b.fileMu.Unlock()
	old.Close()
	b.back(d.size)
}

// discard deallocates the ranges of a Dataset Management command. It blocks.
func (b *Backend) discard(ranges []byte, n uint32) syscall.Errno {
	b.fileMu.RLock()
	defer b.fileMu.RUnlock()
	blocks := b.blocks.Load()
	for i := range n {
		r := (*nvme.DSMRange)(ranges[i*nvme.DSMRangeSize:])
		lba, count := r.SLBA(), uint64(r.NLB())
		if lba > blocks || count > blocks-lba {
			return unix.EREMOTEIO
		}
		if count == 0 {
			continue
		}
		if err := b.discardRange(lba<<b.shift, count<<b.shift); err != nil {
			var errno syscall.Errno
			if !errors.As(err, &errno) {
				errno = unix.EIO
			}
			return errno
		}
	}
	return 0
}

func (b *Backend) discardRange(at, n uint64) error {
	for {
		var err error
		if b.device.block {
			span := [2]uint64{at, n}
			if _, _, errno := unix.Syscall(unix.SYS_IOCTL, b.file.Fd(), unix.BLKDISCARD, uintptr(unsafe.Pointer(&span))); errno != 0 {
				err = errno
			}
		} else {
			err = unix.Fallocate(int(b.file.Fd()), zeroModes[1], int64(at), int64(n))
		}
		if err != unix.EINTR {
			return err
		}
	}
}
