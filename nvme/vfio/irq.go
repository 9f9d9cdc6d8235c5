package vfio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"rocet/internal/mmio"
)

func (d *Device) irqs(index uint32) (count int, flags uint32, err error) {
	if index >= d.info.numIRQs {
		return 0, 0, nil // a kernel that does not know this kind
	}
	i := irqInfo{argsz: uint32(unsafe.Sizeof(irqInfo{})), index: index}
	if _, err := d.kernel.ioctlPtr(d.fd, ioctlDeviceGetIRQ, unsafe.Pointer(&i)); err != nil {
		if errors.Is(err, unix.EINVAL) { // errors are reported for PCI Express functions only
			return 0, 0, nil
		}
		return 0, 0, fmt.Errorf("asking vfio about interrupts of kind %d: %w", index, err)
	}
	return int(i.count), i.flags, nil
}

func (d *Device) setIRQs(index, flags uint32, count int, fds []int) error {
	size := irqSetHeaderSize + 4*len(fds)
	words := make([]uint32, size/4)
	words[0], words[1], words[2], words[3], words[4] = uint32(size), flags|irqSetTrigger, index, 0, uint32(count)
	for i, fd := range fds {
		words[5+i] = uint32(int32(fd))
	}
	_, err := d.kernel.ioctlPtr(d.fd, ioctlDeviceSetIRQs, unsafe.Pointer(&words[0]))
	return err
}

// notify makes an eventfd of one of vfio's own events; -1 where the kernel has none of the kind.
func (d *Device) notify(index uint32) (int, error) {
	n, flags, err := d.irqs(index)
	if err != nil || n == 0 || flags&irqEventFD == 0 {
		return -1, err
	}
	fd, err := d.kernel.eventfd()
	if err != nil {
		return -1, fmt.Errorf("eventfd: %w", err)
	}
	if err := d.setIRQs(index, irqSetEventFD, 1, []int{fd}); err != nil {
		return -1, errors.Join(fmt.Errorf("asking vfio for events of kind %d: %w", index, err), d.kernel.close(fd))
	}
	return fd, nil
}

// ErrorFD becomes readable when the function reported a fatal PCI Express error; -1 where the kernel does not tell.
func (d *Device) ErrorFD() int { return d.errFD }

// RequestFD becomes readable when the kernel wants the function back (it is unbound or unplugged) and waits for Close;
// -1 where it does not tell.
func (d *Device) RequestFD() int { return d.reqFD }

// Vectors returns how many MSI-X vectors the function has.
func (d *Device) Vectors() int { return d.vectors }

// EnableMSIX makes vector i write to fds[i], which stay the caller's. It may be called once.
func (d *Device) EnableMSIX(fds []int) error {
	if len(fds) < 1 || len(fds) > d.vectors {
		return fmt.Errorf("%s: %d interrupt vectors wanted, it has %d", d.function.Address, len(fds), d.vectors)
	}
	if err := d.setIRQs(irqMSIX, irqSetEventFD, len(fds), fds); err != nil {
		return fmt.Errorf("%s: enabling %d interrupt vectors: %w", d.function.Address, len(fds), err)
	}
	return nil
}

// Mask is the mask bit of an MSI-X vector in the function's own table: with it a queue that is being polled asks for no
// interrupts, without a system call. An interrupt that comes while the vector is masked is sent when it no longer is.
type Mask struct{ control unsafe.Pointer }

// MaskAt returns the mask at a vector control word of a table that is no Device's.
func MaskAt(control unsafe.Pointer) Mask { return Mask{control} }

// Set masks the vector or unmasks it. On a Mask that is not OK it does nothing.
func (m Mask) Set(masked bool) {
	if m.control == nil {
		return
	}
	v := uint32(0)
	if masked {
		v = msixMasked
	}
	mmio.Store32(m.control, v)
}

// OK tells whether the vector can be masked.
func (m Mask) OK() bool { return m.control != nil }

// Masks returns the mask bits of vectors 0 to n-1. They are not OK where the kernel does not let the table be mapped.
func (d *Device) Masks(n int) ([]Mask, error) {
	masks := make([]Mask, n)
	at, err := d.findCapability(capMSIX)
	if err != nil || at == 0 {
		return masks, err
	}
	var b [4]byte
	if err := d.ReadConfig(int64(at)+msixTableOffset, b[:]); err != nil {
		return nil, err
	}
	table := binary.LittleEndian.Uint32(b[:])
	index, offset := int(table&7), uint64(table&^7)
	if index >= numBARs {
		return masks, nil
	}
	bar, err := d.MapBAR(index)
	if err != nil || !bar.Mapped(offset, uint64(n)*msixEntrySize) {
		return masks, nil // it may hold nothing else, and be out of bounds
	}
	for i := range masks {
		masks[i].control = unsafe.Add(bar.Base, offset+uint64(i)*msixEntrySize+msixControlOffset)
	}
	return masks, nil
}

// findCapability returns where a capability begins in the configuration space; 0 if the function has none of the kind.
func (d *Device) findCapability(id byte) (uint8, error) {
	var status [2]byte
	if err := d.ReadConfig(configStatus, status[:]); err != nil || status[0]&statusCapList == 0 {
		return 0, err
	}
	var next [1]byte
	if err := d.ReadConfig(configCaps, next[:]); err != nil {
		return 0, err
	}
	for range 48 { // as many as fit, should the chain have a loop
		at := next[0] &^ 3
		if at < 0x40 {
			return 0, nil
		}
		var head [2]byte
		if err := d.ReadConfig(int64(at), head[:]); err != nil {
			return 0, err
		}
		if head[0] == id {
			return at, nil
		}
		next[0] = head[1]
	}
	return 0, nil
}
