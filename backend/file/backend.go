package file

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"rocet/memory"
	"rocet/nvme"
	"rocet/target"
)

// Config describes a namespace on a file or block device.
type Config struct {
	Engine    *Engine
	Path      string
	Size      uint64 // bytes. A file that is not there is made, sparse. Otherwise 0, or the size that it has
	BlockSize uint32 // 0: the device's logical block, or 4096 for a file
	ReadOnly  bool
	Buffered  bool         // through the page cache, for file systems without O_DIRECT
	Force     bool         // take a device that is in use, or looks like it
	Log       *slog.Logger // nil: slog.Default()
}

// Backend is a namespace on a file or block device. It implements target.Backend and target.Resizer.
type Backend struct {
	engine *Engine
	cfg    Config
	log    *slog.Logger
	block  uint32
	shift  uint8

	blocks atomic.Uint64
	info   atomic.Pointer[target.Info]
	open   atomic.Int32 // queues
	// modes are the ways of fallocate that work, as far as is known: bits by zeroModes' index.
	modes     atomic.Uint32
	alignment alignment

	mu     sync.Mutex // of the control plane: queues, watch, a change of size
	queues map[*queue]struct{}
	watch  func(target.Event)
	away   bool
	closed bool

	fileMu sync.RWMutex // held for writing while file is replaced
	file   *os.File
	device device

	stop chan struct{} // ends the watcher
	done chan struct{}
}

var (
	_ target.Backend = (*Backend)(nil)
	_ target.Resizer = (*Backend)(nil)
)

// Open opens, or makes, what the namespace stands on.
func Open(c Config) (*Backend, error) {
	b, err := openBackend(c)
	if err != nil {
		return nil, fmt.Errorf("namespace on %s: %w", c.Path, err)
	}
	go b.watcher()
	return b, nil
}

func openBackend(c Config) (*Backend, error) {
	f, d, err := openDevice(&c, false)
	if err != nil {
		return nil, err
	}
	b := &Backend{
		engine: c.Engine, cfg: c, log: c.Log, file: f, device: d,
		queues: make(map[*queue]struct{}), stop: make(chan struct{}), done: make(chan struct{}),
	}
	if b.log == nil {
		b.log = slog.Default()
	}
	if err := b.describe(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return b, nil
}

// Info describes the namespace.
func (b *Backend) Info() target.Info { return *b.info.Load() }

// Watch sets who hears of events.
func (b *Backend) Watch(f func(target.Event)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watch = f
}

// SMART is the health of an NVMe drive that the kernel drives.
func (b *Backend) SMART() (nvme.SMARTLog, bool) {
	b.fileMu.RLock()
	defer b.fileMu.RUnlock()
	if !b.device.isNVMe {
		return nvme.SMARTLog{}, false
	}
	return smartLog(b.file)
}

// Resize changes a file's size. A device has the size that it has.
func (b *Backend) Resize(blocks uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	bytes := blocks << b.shift
	switch {
	case blocks == 0 || bytes>>b.shift != blocks || bytes > 1<<62:
		return fmt.Errorf("%s: %d blocks of %d bytes are no possible size", b.cfg.Path, blocks, b.block)
	case b.closed:
		return fmt.Errorf("%s: closed", b.cfg.Path)
	case b.cfg.ReadOnly:
		return fmt.Errorf("%s: it is read-only", b.cfg.Path)
	case b.device.block:
		return fmt.Errorf("%s: a block device is resized with its own tools; the namespace follows by itself", b.cfg.Path)
	}
	if err := b.file.Truncate(int64(bytes)); err != nil {
		return err
	}
	b.resized(bytes)
	return nil
}

// resized takes over another size. mu is held.
func (b *Backend) resized(bytes uint64) {
	blocks := bytes >> b.shift
	if blocks == b.blocks.Load() {
		return
	}
	info := *b.info.Load()
	info.Blocks = blocks
	b.info.Store(&info)
	b.blocks.Store(blocks)
	b.tell(target.EventResized)
}

// tell reports an event. mu is held.
func (b *Backend) tell(e target.Event) {
	if b.watch != nil {
		b.watch(e)
	}
}

// Close ends the watcher and closes the file. Every queue is closed already.
func (b *Backend) Close() error {
	if n := b.open.Load(); n != 0 {
		return fmt.Errorf("%s: closed with %d queues open", b.cfg.Path, n)
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return fmt.Errorf("%s: closed twice", b.cfg.Path)
	}
	b.closed = true
	b.watch = nil
	b.mu.Unlock()
	close(b.stop)
	<-b.done
	b.fileMu.Lock()
	defer b.fileMu.Unlock()
	return b.file.Close()
}

// zeroModes are the ways to have the kernel write zeroes, the best first: keeping the space, and giving it up.
var zeroModes = [...]uint32{
	unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE,
	unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE,
}

const allModes = 1<<len(zeroModes) - 1

// zeroIndex is the best way that works: punching holes if the host allows to deallocate; -1 if none does.
func (b *Backend) zeroIndex(flags target.IOFlags) int {
	modes := b.modes.Load()
	if flags&target.Deallocate != 0 && modes&2 != 0 {
		return 1
	}
	if modes&1 != 0 {
		return 0
	}
	return -1
}

// zeroMode is the mode of fallocate; 0 if zeroes have to be written.
func (b *Backend) zeroMode(flags target.IOFlags) uint32 {
	if i := b.zeroIndex(flags); i >= 0 {
		return zeroModes[i]
	}
	return 0
}

// zeroModeFails strikes the present way out, and returns the next.
func (b *Backend) zeroModeFails(flags target.IOFlags) uint32 {
	if i := b.zeroIndex(flags); i >= 0 {
		b.modes.And(^uint32(1 << i))
	}
	return b.zeroMode(flags)
}

// alignment is what O_DIRECT asks of memory.
type alignment struct{ address, length uintptr } // masks

// takes tells whether the kernel reads and writes these segments as they are.
func (b *Backend) takes(segs []memory.Segment) bool {
	for i := range segs {
		if segs[i].Addr&b.alignment.address != 0 || uintptr(segs[i].Len)&b.alignment.length != 0 {
			return false
		}
	}
	return true
}
