package vfio

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Device is an open PCI function. Its methods are for one goroutine at a time; what they return (registers, eventfds)
// is good until Close.
type Device struct {
	kernel   kernel
	function Function
	fd       int
	info     deviceInfo
	config   regionInfo
	release  func()
	bars     [numBARs]*BAR
	vectors  int // MSI-X vectors that the function has
	errFD    int // -1: the kernel does not tell
	reqFD    int
}

func newDevice(k kernel, f Function, fd int) (*Device, error) {
	d := &Device{kernel: k, function: f, fd: fd, errFD: -1, reqFD: -1}
	d.info.argsz = uint32(unsafe.Sizeof(d.info))
	if _, err := k.ioctlPtr(fd, ioctlDeviceGetInfo, unsafe.Pointer(&d.info)); err != nil {
		return nil, fmt.Errorf("asking vfio about the device: %w", err)
	}
	if d.info.flags&devicePCI == 0 || d.info.numRegions <= configRegion {
		return nil, errors.New("vfio does not treat it as a PCI device")
	}
	var err error
	if d.config, err = d.region(configRegion); err != nil {
		return nil, err
	}
	if n, flags, err := d.irqs(irqMSIX); err != nil {
		return nil, err
	} else if flags&irqEventFD != 0 {
		d.vectors = n
	}
	if d.errFD, err = d.notify(irqErr); err == nil {
		d.reqFD, err = d.notify(irqReq)
	}
	if err != nil {
		d.closeFDs()
		return nil, err
	}
	return d, nil
}

// Function returns what sysfs said about the function when it was opened.
func (d *Device) Function() Function { return d.function }

// Address returns the function's PCI address.
func (d *Device) Address() string { return d.function.Address }

func (d *Device) region(index uint32) (regionInfo, error) {
	r := regionInfo{argsz: uint32(unsafe.Sizeof(regionInfo{})), index: index}
	if _, err := d.kernel.ioctlPtr(d.fd, ioctlDeviceGetRegion, unsafe.Pointer(&r)); err != nil {
		return regionInfo{}, fmt.Errorf("asking vfio about region %d: %w", index, err)
	}
	return r, nil
}

// ReadConfig reads the configuration space.
func (d *Device) ReadConfig(offset int64, b []byte) error {
	n, err := d.kernel.pread(d.fd, b, int64(d.config.offset)+offset)
	if err == nil && n != len(b) {
		err = unix.EIO
	}
	if err != nil {
		return fmt.Errorf("%s: reading configuration space at %#x: %w", d.function.Address, offset, err)
	}
	return nil
}

// WriteConfig writes the configuration space. vfio keeps what is not the device's from being changed.
func (d *Device) WriteConfig(offset int64, b []byte) error {
	n, err := d.kernel.pwrite(d.fd, b, int64(d.config.offset)+offset)
	if err == nil && n != len(b) {
		err = unix.EIO
	}
	if err != nil {
		return fmt.Errorf("%s: writing configuration space at %#x: %w", d.function.Address, offset, err)
	}
	return nil
}

// Offsets in the configuration space and bits there: PCI Local Bus 3.0 chapter 6.
const (
	configCommand     = 0x04
	configStatus      = 0x06
	configCaps        = 0x34
	commandMemory     = 1 << 1
	commandBusMaster  = 1 << 2
	statusCapList     = 1 << 4
	capMSIX           = 0x11
	msixTableOffset   = 4
	msixEntrySize     = 16
	msixControlOffset = 12
	msixMasked        = 1
)

// SetBusMaster allows or forbids the function's DMA, and reads back that it is so. A function that is gone from the bus
// reads as all ones: it does no DMA either, and that is no error of forbidding it.
func (d *Device) SetBusMaster(on bool) error {
	var b [2]byte
	if err := d.ReadConfig(configCommand, b[:]); err != nil {
		return err
	}
	command := uint16(b[0]) | uint16(b[1])<<8
	gone := command == 0xffff
	if !gone {
		if on {
			command |= commandBusMaster | commandMemory
		} else {
			command &^= commandBusMaster
		}
		b = [2]byte{byte(command), byte(command >> 8)}
		if err := d.WriteConfig(configCommand, b[:]); err != nil {
			return err
		}
		if err := d.ReadConfig(configCommand, b[:]); err != nil {
			return err
		}
		gone = b == [2]byte{0xff, 0xff}
	}
	switch {
	case gone && on:
		return fmt.Errorf("%s: the function is gone from the bus", d.function.Address)
	case !gone && b[0]&commandBusMaster != 0 != on:
		return fmt.Errorf("%s: bus mastering does not go %v", d.function.Address, onOff(on))
	}
	return nil
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// CanReset tells whether Reset can work.
func (d *Device) CanReset() bool { return d.info.flags&deviceCanReset != 0 }

// Reset resets the function (function level reset, or what else the kernel knows for it). Its DMA has ended after
// that; bus mastering must be allowed again.
func (d *Device) Reset() error {
	if !d.CanReset() {
		return fmt.Errorf("%s: vfio has no way to reset it", d.function.Address)
	}
	if _, err := d.kernel.ioctl(d.fd, ioctlDeviceReset, 0); err != nil {
		return fmt.Errorf("%s: reset: %w", d.function.Address, err)
	}
	return nil
}

// Close gives everything back. The kernel ends the function's DMA and resets it.
func (d *Device) Close() {
	d.closeFDs()
	for _, b := range d.bars {
		if b != nil {
			_ = d.kernel.unmap(b.Base, uintptr(b.Size))
		}
	}
	d.release()
}

func (d *Device) closeFDs() {
	for _, fd := range []int{d.errFD, d.reqFD} {
		if fd >= 0 {
			_ = d.kernel.close(fd)
		}
	}
	d.errFD, d.reqFD = -1, -1
}
