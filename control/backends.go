package control

import (
	"errors"
	"fmt"
	"log/slog"

	"rocet/backend/file"
	bmemory "rocet/backend/memory"
	"rocet/backend/null"
	drive "rocet/backend/nvme"
	"rocet/backend/stripe"
	"rocet/control/config"
	"rocet/memory"
	"rocet/reactor"
	"rocet/target"
)

// defaultBlockSize is that of backends which have none of their own, in bytes.
const defaultBlockSize = 4096

// backends opens what namespaces stand on, and closes it all at the end.
type backends struct {
	pool   *memory.Pool
	log    *slog.Logger
	drives *drive.Manager
	files  *file.Engine
	opened []target.Backend // in the order of opening

	options drive.Options
}

func newBackends(pool *memory.Pool, reactors int, mode reactor.Mode, log *slog.Logger) *backends {
	o := drive.Options{Pool: pool, Reactors: reactors, Log: log}
	if mode == reactor.Interrupt {
		o.PollFor = -1
	}
	return &backends{pool: pool, log: log, options: o}
}

// backendTypes open the backends that a configuration can name.
var backendTypes = map[string]func(*backends, *config.Backend, *config.Namespace) (target.Backend, error){
	"memory": openMemoryBackend,
	"null":   openNullBackend,
	"nvme":   openDriveBackend,
	"file":   openFileBackend,
}

// A stripe's members are backends too.
func init() { backendTypes["stripe"] = openStripeBackend }

// open opens a namespace's backend.
func (b *backends) open(spec *config.Namespace) (target.Backend, error) {
	return b.openOne(&spec.Backend, spec)
}

func (b *backends) openOne(spec *config.Backend, ns *config.Namespace) (target.Backend, error) {
	open, ok := backendTypes[spec.Type]
	if !ok {
		return nil, fmt.Errorf("there is no backend %q: want memory, null, nvme, stripe or file", spec.Type)
	}
	be, err := open(b, spec, ns)
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", spec.Type, err)
	}
	b.opened = append(b.opened, be)
	return be, nil
}

func blockSize(ns *config.Namespace) uint32 {
	if ns.BlockSize == 0 {
		return defaultBlockSize
	}
	return ns.BlockSize
}

func openMemoryBackend(b *backends, spec *config.Backend, ns *config.Namespace) (target.Backend, error) {
	return bmemory.New(bmemory.Config{Pool: b.pool, Size: uint64(spec.Size), BlockSize: blockSize(ns)})
}

func openNullBackend(b *backends, spec *config.Backend, ns *config.Namespace) (target.Backend, error) {
	return null.New(null.Config{Pool: b.pool, Size: uint64(spec.Size), BlockSize: blockSize(ns)})
}

func openFileBackend(b *backends, spec *config.Backend, ns *config.Namespace) (target.Backend, error) {
	if b.files == nil {
		b.files = file.NewEngine(b.pool, b.log)
	}
	return file.Open(file.Config{
		Engine: b.files, Path: spec.Path, Size: uint64(spec.Size), BlockSize: ns.BlockSize,
		ReadOnly: ns.ReadOnly, Buffered: spec.Buffered, Force: spec.Force, Log: b.log,
	})
}

func openDriveBackend(b *backends, spec *config.Backend, ns *config.Namespace) (target.Backend, error) {
	if b.drives == nil {
		m, err := drive.NewManager(b.options)
		if err != nil {
			return nil, err
		}
		b.drives = m
	}
	be, err := b.drives.Open(drive.Config{PCI: spec.PCI, Serial: spec.Serial, NSID: spec.DriveNSID, Force: spec.Force})
	if err != nil {
		return nil, err
	}
	if has := be.Info().BlockSize; ns.BlockSize != 0 && ns.BlockSize != has {
		return nil, errors.Join(
			fmt.Errorf("the drive's namespace has blocks of %d bytes, not %d: leave block_size out, or format the drive", has, ns.BlockSize),
			be.Close())
	}
	return be, nil
}

func openStripeBackend(b *backends, spec *config.Backend, ns *config.Namespace) (target.Backend, error) {
	var members []target.Backend
	for i := range spec.Members {
		m, err := b.openOne(&spec.Members[i], ns)
		if err != nil {
			return nil, fmt.Errorf("member %d: %w", i, err)
		}
		members = append(members, m)
	}
	return stripe.New(stripe.Config{StripeSize: uint64(spec.StripeSize), Members: members})
}

// close closes everything in the reverse order of opening: a stripe before its members.
func (b *backends) close() error {
	var errs []error
	for i := len(b.opened) - 1; i >= 0; i-- {
		errs = append(errs, b.opened[i].Close())
	}
	b.opened = nil
	if b.drives != nil {
		errs = append(errs, b.drives.Close())
	}
	return errors.Join(errs...)
}
