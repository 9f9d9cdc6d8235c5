package drive

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"rocet/internal/inuse"
	"rocet/memory"
	"rocet/nvme/pcie"
	"rocet/nvme/vfio"
)

// Options are what all drives of the process have in common.
type Options struct {
	Pool     *memory.Pool
	Reactors int          // queue pairs that each drive needs
	Depth    int          // of these, 0: pcie.DefaultDepth
	Log      *slog.Logger // nil: slog.Default()

	// Bounds of recovery, as in pcie.Config; 0: its defaults.
	Timeout, AbortTimeout, Hold, HoldRemoved time.Duration

	// PollFor is how long a reactor polls, without sleeping, after it gave a drive something to do or got an answer:
	// longer than a drive usually takes. 0: DefaultPollFor; negative: not at all, for reactors that always wait for
	// interrupts. Reactors that always poll don't care.
	PollFor time.Duration

	bus bus // nil: the machine's vfio
}

// DefaultPollFor is longer than a read of flash memory takes.
const DefaultPollFor = 500 * time.Microsecond

// Config names a namespace of a drive.
type Config struct {
	PCI    string // address of the drive's function, or:
	Serial string // the drive's serial number
	NSID   uint32 // 0: 1
	Force  bool   // serve it although it carries somebody's data
}

func (c *Config) String() string {
	if c.PCI != "" {
		return "NVMe drive " + c.PCI
	}
	return fmt.Sprintf("NVMe drive with serial number %q", c.Serial)
}

// Manager has the drives of the process. Its methods are control plane, and may be called from any goroutine.
type Manager struct {
	opts Options
	log  *slog.Logger
	bus  bus

	mu         sync.Mutex // held while a drive is opened or closed: one at a time
	registered bool
	drives     []*drive
	closed     bool

	taken taken
}

// taken are the functions that are open: vfio would hand one out a second time.
type taken struct {
	sync.Mutex
	addresses map[string]bool
}

// openFunction opens a function that none of our drives has.
func (m *Manager) openFunction(address string) (pcie.Function, error) {
	m.taken.Lock()
	defer m.taken.Unlock()
	if m.taken.addresses[address] {
		return nil, fmt.Errorf("%s is open already, for another drive", address)
	}
	f, err := m.bus.open(address)
	if err != nil {
		return nil, err
	}
	if m.taken.addresses == nil {
		m.taken.addresses = make(map[string]bool)
	}
	m.taken.addresses[address] = true
	return &function{Function: f, manager: m}, nil
}

// function is a function that gives its address free when it is closed.
type function struct {
	pcie.Function
	manager *Manager
}

func (f *function) Close() {
	address := f.Address()
	f.Function.Close()
	f.manager.taken.Lock()
	defer f.manager.taken.Unlock()
	delete(f.manager.taken.addresses, address)
}

// NewManager makes a Manager without drives. It touches neither vfio nor the pool before the first one is opened.
func NewManager(o Options) (*Manager, error) {
	if o.Pool == nil || o.Reactors < 1 {
		return nil, errors.New("NVMe drives: a pool and at least one reactor are needed")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.PollFor == 0 {
		o.PollFor = DefaultPollFor
	}
	if o.bus == nil {
		o.bus = newVFIOBus()
	}
	return &Manager{opts: o, log: o.Log, bus: o.bus}, nil
}

// Open opens a namespace of a drive, and the drive with it unless it is open.
func (m *Manager) Open(c Config) (*Backend, error) {
	if c.NSID == 0 {
		c.NSID = 1
	}
	if (c.PCI == "") == (c.Serial == "") {
		return nil, errors.New("NVMe drive: give either its PCI address or its serial number")
	}
	if c.PCI != "" {
		address, err := vfio.ParseAddress(c.PCI)
		if err != nil {
			return nil, err
		}
		c.PCI = address
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errors.New("NVMe drives: closed")
	}
	if err := m.register(); err != nil {
		return nil, fmt.Errorf("%v: %w", &c, err)
	}
	d, err := m.find(&c)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", &c, err)
	}
	b, err := m.open(d, &c)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%v: %w", &c, err), m.drop(d))
	}
	return b, nil
}

// register makes the pool's memory reachable for the drives' DMA, with the first of them.
func (m *Manager) register() error {
	if m.registered {
		return nil
	}
	if err := m.opts.Pool.AddRegistrant(m.bus.registrant()); err != nil {
		return err
	}
	m.registered = true
	return nil
}

func (m *Manager) open(d *drive, c *Config) (*Backend, error) {
	for _, b := range d.list() {
		if b.ns.ID() == c.NSID {
			return nil, fmt.Errorf("its namespace %d is served already", c.NSID)
		}
	}
	ns, err := d.pcie.Namespace(c.NSID)
	if err != nil {
		return nil, err
	}
	b := &Backend{manager: m, drive: d, ns: ns}
	if err := b.readInfo(); err != nil {
		return nil, err
	}
	if err := m.checkContent(b, c); err != nil {
		return nil, err
	}
	d.add(b)
	m.log.Info("namespace of a local NVMe drive", "drive", d.pcie.Address(), "serial", d.serial, "drive_nsid", c.NSID,
		"blocks", b.Info().Blocks, "block", b.Info().BlockSize)
	return b, nil
}

// checkContent looks whether the namespace carries somebody's file system, partitions, or a part of LVM, RAID, ZFS, swap.
// No driver of the kernel has the drive any more, so nothing else would notice.
func (m *Manager) checkContent(b *Backend, c *Config) error {
	info := b.Info()
	found, err := inuse.Signatures(&contentReader{b}, int64(info.Bytes()))
	if err != nil {
		return fmt.Errorf("looking at what is on it: %w", err)
	}
	if len(found) == 0 {
		return nil
	}
	if c.Force {
		m.log.Warn("a drive is served although it carries data, as forced", "drive", b.drive.pcie.Address(), "nsid", b.ns.ID(), "found", found)
		return nil
	}
	reasons := make([]string, len(found))
	for i, f := range found {
		reasons[i] = "it carries the signature of " + f
	}
	return &ContentError{Err: &inuse.Error{Path: fmt.Sprintf("namespace %d", b.ns.ID()), Reasons: reasons}}
}

// ContentError says that a namespace carries somebody's data.
type ContentError struct{ Err *inuse.Error }

func (e *ContentError) Error() string {
	return e.Err.Error() + "; if these are your hosts' data, or nobody's any more, say so with force: true"
}

func (e *ContentError) Unwrap() error { return e.Err }

// contentReader reads a namespace at any place.
type contentReader struct{ b *Backend }

func (r *contentReader) ReadAt(p []byte, off int64) (int, error) {
	block := int64(r.b.ns.BlockSize())
	start := off / block * block
	end := (off + int64(len(p)) + block - 1) / block * block
	buf := make([]byte, end-start)
	if err := r.b.drive.pcie.Read(r.b.ns, uint64(start/block), buf); err != nil {
		return 0, err
	}
	return copy(p, buf[off-start:]), nil
}

// find returns the drive that is meant, and opens it unless it is.
func (m *Manager) find(c *Config) (*drive, error) {
	for _, d := range m.drives {
		if c.PCI != "" && d.pcie.Address() == c.PCI || c.Serial != "" && d.serial == c.Serial {
			return d, nil
		}
	}
	if c.PCI != "" {
		return m.openDrive(c.PCI, "")
	}
	return m.openSerial(c.Serial)
}

// openSerial looks for a drive by its serial number, which only the drive itself tells: every drive that vfio has and
// nobody uses is brought up for the question.
func (m *Manager) openSerial(serial string) (*drive, error) {
	candidates, err := m.bus.candidates()
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, address := range candidates {
		if m.isOpen(address) {
			continue
		}
		d, err := m.openDrive(address, serial)
		var other *otherDriveError
		switch {
		case err == nil:
			return d, nil
		case !errors.As(err, &other):
			problems = append(problems, err)
		}
	}
	if hint := m.bus.explainSerial(serial); hint != nil {
		return nil, hint
	}
	return nil, errors.Join(append([]error{fmt.Errorf("none of the %d drives that are bound to vfio-pci has it", len(candidates))}, problems...)...)
}

func (m *Manager) isOpen(address string) bool {
	for _, d := range m.drives {
		if d.pcie.Address() == address {
			return true
		}
	}
	return false
}

// otherDriveError says that a drive has another serial number than the one that is looked for.
type otherDriveError struct{ address, serial string }

func (e *otherDriveError) Error() string {
	return fmt.Sprintf("%s has serial number %s", e.address, e.serial)
}

// openDrive brings up the drive at an address; with a serial number only if it has that.
func (m *Manager) openDrive(address, serial string) (*drive, error) {
	d := &drive{manager: m}
	attempts := 0
	p, err := pcie.Open(pcie.Config{
		Open: func() (pcie.Function, error) {
			place := address
			if attempts++; serial != "" && attempts%elsewhere == 0 {
				place = m.otherPlace(address, attempts/elsewhere)
			}
			return m.openFunction(place)
		},
		Table:        m.bus.table(),
		Memory:       m.opts.Pool,
		Queues:       m.opts.Reactors + 1, // the one more is for looking at what is on it
		Depth:        m.opts.Depth,
		Timeout:      m.opts.Timeout,
		AbortTimeout: m.opts.AbortTimeout,
		Hold:         m.opts.Hold,
		HoldRemoved:  m.opts.HoldRemoved,
		Log:          m.log,
		Notify:       d.event,
	})
	if err != nil {
		return nil, err
	}
	d.pcie, d.serial = p, p.Serial()
	if serial != "" && d.serial != serial {
		return nil, errors.Join(&otherDriveError{p.Address(), d.serial}, p.Close())
	}
	m.drives = append(m.drives, d)
	return d, nil
}

// elsewhere is how often a drive that has gone, and is meant by its serial number, is looked for in another slot than its
// own: with every so manyth attempt.
const elsewhere = 5

// otherPlace returns the kth of the drives that vfio has and nobody uses, going round; the given one if there is none.
func (m *Manager) otherPlace(address string, k int) string {
	candidates, err := m.bus.candidates()
	if err != nil {
		return address
	}
	m.taken.Lock()
	defer m.taken.Unlock()
	candidates = slices.DeleteFunc(candidates, func(c string) bool { return c == address || m.taken.addresses[c] })
	if len(candidates) == 0 {
		return address
	}
	return candidates[k%len(candidates)]
}

// drop closes a drive that no namespace stands on. The manager is locked.
func (m *Manager) drop(d *drive) error {
	if len(d.list()) > 0 {
		return nil
	}
	if err := d.pcie.Close(); err != nil {
		return err
	}
	m.drives = slices.DeleteFunc(m.drives, func(have *drive) bool { return have == d })
	return nil
}

func (m *Manager) depth() int {
	if m.opts.Depth == 0 {
		return pcie.DefaultDepth
	}
	return min(max(m.opts.Depth, 2), pcie.MaxDepth)
}

// Close ends the manager. Every Backend must be closed.
func (m *Manager) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.drives) > 0 {
		return fmt.Errorf("NVMe drives: %d are still open", len(m.drives))
	}
	m.closed = true
	if m.registered {
		m.opts.Pool.RemoveRegistrant(m.bus.registrant())
		m.registered = false
	}
	return m.bus.close()
}

// Status is what an open drive is doing.
type Status struct {
	Address  string
	Serial   string
	State    pcie.State
	Counters pcie.Counters
	NSIDs    []uint32 // that are served
	Queues   []QueueStatus
}

// QueueStatus is what a drive's queue pair on a reactor has done.
type QueueStatus struct {
	Reactor int
	pcie.Stats
}

// Drives lists the open drives.
func (m *Manager) Drives() []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Status
	for _, d := range m.drives {
		s := Status{Address: d.pcie.Address(), Serial: d.serial, State: d.pcie.State(), Counters: d.pcie.Counters()}
		for _, b := range d.list() {
			s.NSIDs = append(s.NSIDs, b.ns.ID())
		}
		s.Queues = d.queueStatus()
		out = append(out, s)
	}
	return out
}
