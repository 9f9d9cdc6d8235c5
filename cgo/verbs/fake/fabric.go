package fake

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rocet/cgo/verbs"
)

// Config says what fabric to make. The zero value is one device, fake0, with
// 127.0.0.1 and ::1.
type Config struct {
	Devices []DeviceConfig

	TimeWait     time.Duration // from the end of a connection to EventTimewaitExit; 10 ms
	CMTimeout    time.Duration // until an unanswered message of the connection manager fails; 50 ms
	RetryTimeout time.Duration // until a send to a peer that isn't there fails; 20 ms
	RNRTimeout   time.Duration // per receiver-not-ready retry; 1 ms

	// InvalidateMR lets SEND_WITH_INV and LOCAL_INV take the key of a region,
	// whose remote rights end then: a stand-in for the fast registrations of
	// a kernel host. Else only windows can be invalidated.
	InvalidateMR bool

	// MemLock is how many bytes may be registered, 0 without limit.
	MemLock uint64
}

// DeviceConfig says what device to make.
type DeviceConfig struct {
	Name      string
	Addrs     []netip.Addr
	NUMANode  int
	NoLastWQE bool // never sends AsyncQPLastWQEReached, as some devices do
	MaxInline uint32
	Tune      func(*verbs.DeviceAttr) // changes the attributes, if set
}

// Fabric is the provider and all that hangs on it.
type Fabric struct {
	mu      sync.Mutex
	cfg     Config
	devices []*Device
	objects []any // by handle - 1: *QP, *SRQ, *MR, *MW; nil once destroyed
	ids     []*ID
	chans   int
	nextQPN uint32
	port    uint16 // last ephemeral port
	locked  uint64 // bytes registered
	closed  bool

	filter   func(Happening) Verdict
	held     []func()
	failures []*failure
}

var _ verbs.Provider = (*Fabric)(nil)

// New makes a fabric.
func New(c Config) *Fabric {
	if c.Devices == nil {
		c.Devices = []DeviceConfig{{Name: "fake0", Addrs: []netip.Addr{
			netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback(),
		}}}
	}
	setDefault(&c.TimeWait, 10*time.Millisecond)
	setDefault(&c.CMTimeout, 50*time.Millisecond)
	setDefault(&c.RetryTimeout, 20*time.Millisecond)
	setDefault(&c.RNRTimeout, time.Millisecond)
	f := &Fabric{cfg: c, nextQPN: 0x10, port: 32767}
	for _, d := range c.Devices {
		f.devices = append(f.devices, newDevice(f, d))
	}
	return f
}

func setDefault(d *time.Duration, v time.Duration) {
	if *d == 0 {
		*d = v
	}
}

// Close ends all timers and descriptors of devices.
func (f *Fabric) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, d := range f.devices {
		d.async.close()
	}
}

// Devices implements verbs.Provider.
func (f *Fabric) Devices() ([]verbs.Device, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fails("rdma_get_devices", ""); err != nil {
		return nil, err
	}
	var out []verbs.Device
	for _, d := range f.devices {
		if !d.gone {
			out = append(out, d)
		}
	}
	if out == nil {
		return nil, &verbs.Error{Call: "rdma_get_devices", Errno: syscall.ENODEV}
	}
	return out, nil
}

// Device returns the device of a name, nil if it is gone.
func (f *Fabric) Device(name string) *Device {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.device(name)
}

func (f *Fabric) device(name string) *Device {
	for _, d := range f.devices {
		if d.cfg.Name == name && !d.gone {
			return d
		}
	}
	return nil
}

// AddDevice plugs a device in.
func (f *Fabric) AddDevice(c DeviceConfig) *Device {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := newDevice(f, c)
	f.devices = append(f.devices, d)
	return d
}

// RemoveDevice pulls a device out: its queue pairs fail, an AsyncDeviceFatal
// and an EventDeviceRemoval for each of its IDs say so, and it is no longer
// listed. What was made on it stays until it is destroyed.
func (f *Fabric) RemoveDevice(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.device(name)
	if d == nil {
		return
	}
	d.gone = true
	f.async(d, verbs.AsyncEvent{Type: verbs.AsyncDeviceFatal})
	for _, o := range f.objects {
		if q, ok := o.(*QP); ok && q.dev == d {
			f.toError(q)
		}
	}
	for _, x := range slices.Clone(f.ids) {
		if x.dev == d {
			f.event(x, &verbs.Event{Type: verbs.EventDeviceRemoval})
		}
	}
}

// AddAddr gives a device another address.
func (f *Fabric) AddAddr(device string, a netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d := f.device(device); d != nil && !slices.Contains(d.addrs, a) {
		d.addrs = append(d.addrs, a)
	}
}

// RemoveAddr takes an address away; IDs bound to it get EventAddrChange.
func (f *Fabric) RemoveAddr(device string, a netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.device(device)
	if d == nil {
		return
	}
	d.addrs = slices.DeleteFunc(d.addrs, func(b netip.Addr) bool { return a == b })
	for _, x := range slices.Clone(f.ids) {
		if x.dev == d && x.local.Addr() == a {
			f.event(x, &verbs.Event{Type: verbs.EventAddrChange})
		}
	}
}

// SetPort takes a device's port down or up. While it is down nothing gets
// through, not even the connection manager's messages: that is also how a
// host loses its power.
func (f *Fabric) SetPort(device string, up bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.device(device)
	if d == nil || d.up == up {
		return
	}
	d.up = up
	t := verbs.AsyncPortErr
	if up {
		t = verbs.AsyncPortActive
	}
	f.async(d, verbs.AsyncEvent{Type: t, Port: 1})
	for _, o := range f.objects {
		if q, ok := o.(*QP); ok {
			f.progress(q)
		}
	}
}

// Leaks lists what is there and should not be at the end of a test.
func (f *Fabric) Leaks() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, o := range f.objects {
		switch o := o.(type) {
		case *QP:
			out = append(out, fmt.Sprintf("QP %#x", o.num))
		case *SRQ:
			out = append(out, "SRQ")
		case *MR:
			out = append(out, fmt.Sprintf("MR of %d bytes at %#x", o.size, o.addr))
		case *MW:
			out = append(out, "MW")
		}
	}
	for _, x := range f.ids {
		out = append(out, fmt.Sprintf("ID %v to %v in state %d, %d events unacknowledged", x.local, x.remote, x.state, x.unacked))
	}
	for _, d := range f.devices {
		if d.pds != 0 || d.cqs != 0 {
			out = append(out, fmt.Sprintf("%s: %d PDs, %d CQs", d.cfg.Name, d.pds, d.cqs))
		}
	}
	if f.chans != 0 {
		out = append(out, fmt.Sprintf("%d event channels", f.chans))
	}
	return out
}

// QPs lists the queue pairs that exist, in the order of their creation.
func (f *Fabric) QPs() []*QP {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*QP
	for _, o := range f.objects {
		if q, ok := o.(*QP); ok {
			out = append(out, q)
		}
	}
	return out
}

// IDs lists the connection identifiers that exist, in the order of their
// creation.
func (f *Fabric) IDs() []*ID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ids)
}

// add gives an object its handle.
func (f *Fabric) add(o any) uintptr {
	f.objects = append(f.objects, o)
	return uintptr(len(f.objects))
}

func (f *Fabric) remove(handle uintptr) { f.objects[handle-1] = nil }

// after runs fn with the lock held, unless the fabric was closed by then.
func (f *Fabric) after(d time.Duration, fn func()) {
	time.AfterFunc(d, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.closed {
			fn()
		}
	})
}

// bell is a descriptor that is readable while it rings.
type bell struct {
	fd   int
	rung bool
}

func newBell() bell {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		panic(fmt.Sprintf("fake: eventfd: %v", err))
	}
	return bell{fd: fd}
}

func (b *bell) ring() {
	if b.rung || b.fd < 0 {
		return
	}
	b.rung = true
	one := [8]byte{1}
	if _, err := unix.Write(b.fd, one[:]); err != nil {
		panic(fmt.Sprintf("fake: eventfd: %v", err))
	}
}

func (b *bell) still() {
	if !b.rung || b.fd < 0 {
		return
	}
	b.rung = false
	var buf [8]byte
	if _, err := unix.Read(b.fd, buf[:]); err != nil {
		panic(fmt.Sprintf("fake: eventfd: %v", err))
	}
}

func (b *bell) close() {
	if b.fd >= 0 {
		unix.Close(b.fd)
		b.fd = -1
	}
}
