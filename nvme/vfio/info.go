package vfio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// infoWithCaps runs an ioctl that fills a structure of the given size, which begins with argsz and grows by
// capabilities. init sets the structure's input.
func infoWithCaps(k kernel, fd int, request uintptr, size int, init func(buf []byte)) ([]byte, error) {
	const most = 1 << 20 // thousands of ranges
	for length := size; ; {
		words := make([]uint64, (length+7)/8) // aligned as the kernel's structures
		buf := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), length)
		binary.NativeEndian.PutUint32(buf, uint32(length))
		if init != nil {
			init(buf)
		}
		if _, err := k.ioctlPtr(fd, request, unsafe.Pointer(&words[0])); err != nil {
			return nil, err
		}
		need := int(binary.NativeEndian.Uint32(buf))
		if need <= length {
			return buf, nil
		}
		if need > most {
			return nil, fmt.Errorf("the kernel wants %d bytes for an answer", need)
		}
		length = need
	}
}

// eachCap visits a chain of capabilities: offset is from the start of the structure, 0 ends the chain. body is what
// follows the header, to the end of the structure.
func eachCap(buf []byte, offset uint32, visit func(id uint16, body []byte) error) error {
	for steps := 0; offset != 0; steps++ {
		at := int(offset)
		if at+capHeaderSize > len(buf) || steps > len(buf)/capHeaderSize {
			return errors.New("the kernel's list of capabilities is broken")
		}
		if err := visit(binary.NativeEndian.Uint16(buf[at:]), buf[at+capHeaderSize:]); err != nil {
			return err
		}
		offset = binary.NativeEndian.Uint32(buf[at+capNext:])
	}
	return nil
}

// explainOpen turns the error of opening one of vfio's files into what is missing.
func explainOpen(path string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("%s: %w", path, ErrNoVFIO)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return &AccessError{Path: path, Err: err}
	}
	return fmt.Errorf("%s: %w", path, err)
}
