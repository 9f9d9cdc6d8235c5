package drive

import (
	"errors"

	"rocet/memory"
	"rocet/nvme/pcie"
	"rocet/nvme/vfio"
)

// bus is where drives come from: the machine's vfio, or a simulated one.
type bus interface {
	open(address string) (pcie.Function, error)
	table() *vfio.Table
	registrant() memory.Registrant
	candidates() ([]string, error)     // drives that could be opened
	explainSerial(serial string) error // why the drive with this serial number is not one of them; nil: not known
	close() error
}

type vfioBus struct{ space *vfio.Space }

func newVFIOBus() *vfioBus { return &vfioBus{vfio.System().NewSpace()} }

func (b *vfioBus) open(address string) (pcie.Function, error) {
	f, err := b.space.Host().Function(address)
	if err != nil {
		return nil, err
	}
	if f.Class != vfio.ClassNVMe {
		return nil, &notNVMeError{f}
	}
	d, err := b.space.OpenDevice(address)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (b *vfioBus) table() *vfio.Table            { return b.space.Table() }
func (b *vfioBus) registrant() memory.Registrant { return b.space }
func (b *vfioBus) close() error                  { return b.space.Close() }

func (b *vfioBus) candidates() ([]string, error) {
	drives, err := b.space.Host().Drives()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, f := range drives {
		if f.WithVFIO() {
			out = append(out, f.Address)
		}
	}
	return out, nil
}

func (b *vfioBus) explainSerial(serial string) error {
	drives, err := b.space.Host().Drives()
	if err != nil {
		return err
	}
	for _, f := range drives {
		if f.Serial == serial {
			return &vfio.DriverError{Address: f.Address, Driver: f.Driver}
		}
	}
	return nil
}

type notNVMeError struct{ f vfio.Function }

func (e *notNVMeError) Error() string {
	return e.f.Address + " is no NVMe drive: its PCI class is " + hex6(e.f.Class)
}

func hex6(v uint32) string {
	const digits = "0123456789abcdef"
	var b [6]byte
	for i := range b {
		b[5-i] = digits[v>>(4*i)&15]
	}
	return string(b[:])
}

var errNoQueue = errors.New("the drive is closed")
