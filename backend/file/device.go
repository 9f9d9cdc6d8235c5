package file

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"rocet/internal/inuse"
	"rocet/target"
)

// device is what the kernel says of an open file or block device.
type device struct {
	block    bool
	isNVMe   bool
	readOnly bool
	size     uint64
	logical  uint32 // smallest unit of O_DIRECT; 1 when buffered
	memory   uint32 // alignment of buffers
	prefers  uint32 // block size of the file system
	sysfs    string // folder of a block device's disk
	part     bool   // it is a partition
	identity string // of the disk (and partition), "" if it has none
}

// openDevice opens what c names. It fills in what c leaves open. known says that what lies on the device is hosts' own.
func openDevice(c *Config, known bool) (*os.File, device, error) {
	st, err := os.Stat(c.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err = create(c); err != nil {
			return nil, device{}, err
		}
	case err != nil:
		return nil, device{}, err
	case st.Mode().IsRegular() && st.Size() == 0 && c.Size > 0 && !c.ReadOnly:
		if err := os.Truncate(c.Path, int64(c.Size)); err != nil {
			return nil, device{}, err
		}
	case !st.Mode().IsRegular() && st.Mode()&os.ModeDevice == 0 || st.Mode()&os.ModeCharDevice != 0:
		return nil, device{}, errors.New("neither a regular file nor a block device")
	}
	if !c.Force && !known {
		if err := inuse.Check(c.Path); err != nil {
			var used *inuse.Error
			if errors.As(err, &used) {
				return nil, device{}, fmt.Errorf("%w (force: true takes it all the same, and may destroy data)", err)
			}
			return nil, device{}, err
		}
	}
	f, err := openFile(c)
	if err != nil {
		return nil, device{}, err
	}
	d, err := inspect(f, c)
	if err == nil {
		err = d.check(c)
	}
	if err == nil {
		err = lock(f, &d, c)
	}
	if err != nil {
		f.Close()
		return nil, device{}, err
	}
	return f, d, nil
}

func create(c *Config) error {
	if c.Size == 0 {
		return fmt.Errorf("it does not exist: give it a size to have it made")
	}
	if c.ReadOnly {
		return fmt.Errorf("it does not exist, and a read-only file is not made")
	}
	f, err := os.OpenFile(c.Path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = f.Truncate(int64(c.Size)); err != nil {
		err = errors.Join(fmt.Errorf("make it %d bytes long: %w", c.Size, err), os.Remove(c.Path))
	}
	return errors.Join(err, f.Close())
}

func openFile(c *Config) (*os.File, error) {
	flags := os.O_RDWR
	if c.ReadOnly {
		flags = os.O_RDONLY
	}
	if !c.Buffered {
		flags |= unix.O_DIRECT
	}
	if st, err := os.Stat(c.Path); err == nil && st.Mode()&os.ModeDevice != 0 && !c.Force {
		flags |= os.O_EXCL // claims the device: no mount, no swap, no other process that claims it
	}
	f, err := os.OpenFile(c.Path, flags, 0)
	if errors.Is(err, unix.EINVAL) && !c.Buffered {
		return nil, fmt.Errorf("its file system has no O_DIRECT: buffered: true uses the page cache instead")
	}
	return f, err
}

// lock keeps other processes of the same mind away from a file.
func lock(f *os.File, d *device, c *Config) error {
	if d.block {
		return nil // openFile claimed it
	}
	how := unix.LOCK_EX
	if c.ReadOnly {
		how = unix.LOCK_SH
	}
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil && !c.Force {
		return fmt.Errorf("another process has locked it: %w", err)
	}
	return nil
}

// inspect asks the kernel for sizes and alignments.
func inspect(f *os.File, c *Config) (device, error) {
	var d device
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return d, fmt.Errorf("stat: %w", err)
	}
	d.block = st.Mode&unix.S_IFMT == unix.S_IFBLK
	size, err := d.sizeOf(f)
	if err != nil {
		return d, err
	}
	d.size = size
	d.logical, d.memory, d.prefers = 1, 1, uint32(st.Blksize)
	if d.block {
		d.prefers = 0
		logical, err := unix.IoctlGetInt(int(f.Fd()), unix.BLKSSZGET)
		if err != nil {
			return d, fmt.Errorf("logical block size: %w", err)
		}
		d.logical, d.memory = uint32(logical), uint32(logical)
		d.findSysfs(uint64(st.Rdev))
		d.readOnly = d.sysUint("ro") != 0
	}
	if c.Buffered {
		d.memory = 1
		return d, nil
	}
	var stx unix.Statx_t
	switch err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &stx); {
	case err != nil:
		return d, fmt.Errorf("statx: %w", err)
	case stx.Mask&unix.STATX_DIOALIGN == 0: // before Linux 6.1, or a file system that doesn't say
		if !d.block {
			d.logical, d.memory = 512, 512
		}
	case stx.Dio_offset_align == 0:
		return d, errors.New("its file system cannot do direct I/O on it: buffered: true uses the page cache instead")
	default:
		d.logical, d.memory = stx.Dio_offset_align, stx.Dio_mem_align
	}
	return d, nil
}

// sizeOf is the present size in bytes.
func (d *device) sizeOf(f *os.File) (uint64, error) {
	if !d.block {
		st, err := f.Stat()
		if err != nil {
			return 0, err
		}
		return uint64(st.Size()), nil
	}
	var n uint64
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.BLKGETSIZE64, uintptr(unsafe.Pointer(&n))); errno != 0 {
		return 0, fmt.Errorf("size of the device: %w", errno)
	}
	return n, nil
}

// check compares what is there to what was asked for.
func (d *device) check(c *Config) error {
	if c.BlockSize == 0 {
		if c.BlockSize = 4096; d.block {
			c.BlockSize = d.logical
		}
	}
	bs := c.BlockSize
	switch {
	case bits.OnesCount32(bs) != 1 || bs < 512 || bs > 64<<10:
		return fmt.Errorf("blocks of %d bytes: want a power of two from 512 to 65536", bs)
	case bs < d.logical:
		return fmt.Errorf("blocks of %d bytes: the device or file system has none below %d", bs, d.logical)
	case c.Size != 0 && c.Size != d.size:
		return fmt.Errorf("it has %d bytes, the configuration says %d: correct the configuration, or resize it first", d.size, c.Size)
	case d.size < uint64(bs):
		return fmt.Errorf("it has %d bytes, that is no block of %d", d.size, bs)
	case !d.block && d.size%uint64(bs) != 0:
		return fmt.Errorf("its %d bytes are no whole number of blocks of %d", d.size, bs)
	case d.readOnly && !c.ReadOnly:
		return errors.New("the device is read-only: say so with read_only: true")
	}
	return nil
}

// describe fills in what the target asks.
func (b *Backend) describe() error {
	d := &b.device
	b.block = b.cfg.BlockSize
	b.shift = uint8(bits.TrailingZeros32(b.block))
	b.blocks.Store(d.size >> b.shift)
	b.alignment = alignment{address: uintptr(d.memory - 1), length: uintptr(d.logical - 1)}
	b.modes.Store(allModes)
	in := &target.Info{
		Geometry:           target.Geometry{BlockSize: b.block, Blocks: d.size >> b.shift},
		ReadOnly:           b.cfg.ReadOnly,
		VolatileWriteCache: true,
		Ops:                target.Ops(target.OpWriteZeroes, target.OpCompare, target.OpVerify),
		Model:              "Rocet file",
	}
	if d.block {
		b.describeDevice(in)
	} else {
		in.WriteGranularity = d.prefers / b.block
		// A hole beyond the end of the file changes nothing, and tells whether holes can be made.
		end := int64(d.size+uint64(d.prefers)) / int64(d.prefers) * int64(d.prefers)
		switch err := unix.Fallocate(int(b.file.Fd()), zeroModes[1], end, int64(d.prefers)); {
		case err == nil:
			in.Ops |= target.Ops(target.OpDeallocate)
			in.DeallocGranularity = in.WriteGranularity
			in.ReadsZeroesAfterDeallocate = true
		case b.cfg.ReadOnly: // cannot be asked, and need not be known
		case err != unix.EOPNOTSUPP && err != unix.ENOSYS:
			return fmt.Errorf("ask for holes: %w", err)
		default:
			b.modes.Store(allModes &^ 2)
		}
	}
	b.info.Store(in)
	return nil
}

func (b *Backend) describeDevice(in *target.Info) {
	d := &b.device
	per := func(name string) uint32 { return uint32(min(d.sysUint("queue/"+name)/uint64(b.block), 1<<31)) }
	in.WriteGranularity = per("physical_block_size")
	in.OptimalWriteSize = per("optimal_io_size")
	if !b.cfg.Buffered && d.sysText("queue/write_cache") == "write through" {
		in.VolatileWriteCache = false
	}
	if d.sysUint("queue/discard_max_bytes") > 0 {
		in.Ops |= target.Ops(target.OpDeallocate)
		in.DeallocGranularity = per("discard_granularity")
	}
	if d.sysUint("queue/atomic_write_boundary_bytes") == 0 {
		in.Atomic.Normal = per("atomic_write_max_bytes")
		in.Atomic.PowerFail = in.Atomic.Normal
	}
	in.Model, in.Serial = d.sysText("device/model"), d.sysText("device/serial")
	if in.Model == "" {
		in.Model = "Rocet block device"
	}
	if d.part {
		return // the names below are the whole disk's
	}
	switch id, err := hex.DecodeString(strings.TrimPrefix(d.sysText("wwid"), "eui.")); {
	case err != nil:
	case len(id) == len(in.NGUID):
		copy(in.NGUID[:], id)
	case len(id) == len(in.EUI64):
		copy(in.EUI64[:], id)
	}
}

// findSysfs finds the folder of the disk, also of a partition's.
func (d *device) findSysfs(number uint64) {
	dir, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(number), unix.Minor(number)))
	if err != nil {
		return // no sysfs: nothing is known, everything works
	}
	part := ""
	if number, err := os.ReadFile(filepath.Join(dir, "partition")); err == nil {
		d.part, part = true, " partition "+strings.TrimSpace(string(number))
		dir = filepath.Dir(dir)
	}
	d.sysfs = dir
	if d.identity = d.sysText("wwid") + d.sysText("device/wwid") + d.sysText("serial"); d.identity != "" {
		d.identity += part
	}
	d.isNVMe = strings.HasPrefix(filepath.Base(dir), "nvme")
}

func (d *device) sysText(name string) string {
	if d.sysfs == "" {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(d.sysfs, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func (d *device) sysUint(name string) uint64 {
	n, err := strconv.ParseUint(d.sysText(name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
