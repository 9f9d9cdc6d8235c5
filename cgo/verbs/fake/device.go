package fake

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"syscall"

	"rocet/cgo/verbs"
)

// Device is a device of the fabric.
type Device struct {
	f     *Fabric
	cfg   DeviceConfig
	attr  verbs.DeviceAttr
	addrs []netip.Addr
	guid  uint64
	up    bool
	gone  bool
	pds   int
	cqs   int
	async asyncQueue
}

// asyncQueue is the asynchronous events that wait.
type asyncQueue struct {
	bell
	events []verbs.AsyncEvent
}

var _ verbs.Device = (*Device)(nil)

func newDevice(f *Fabric, c DeviceConfig) *Device {
	h := fnv.New64a()
	h.Write([]byte(c.Name))
	d := &Device{f: f, cfg: c, addrs: append([]netip.Addr(nil), c.Addrs...), guid: h.Sum64(), up: true}
	d.async.bell = newBell()
	d.attr = verbs.DeviceAttr{
		Transport: verbs.TransportIB, Firmware: "fake", NodeGUID: d.guid, SysImageGUID: d.guid, Ports: 1, CompVectors: 4,
		MaxMRSize: 1 << 40, MaxQP: 1 << 16, MaxQPWR: 1 << 15, MaxSGE: 30, MaxSGERd: 30, MaxCQ: 1 << 16, MaxCQE: 1 << 20,
		MaxMR: 1 << 20, MaxMW: 1 << 20, MaxPD: 1 << 16, MaxSRQ: 1 << 10, MaxSRQWR: 1 << 15, MaxSRQSGE: 30,
		MaxQPRdAtom: 16, MaxResRdAtom: 1 << 16, MaxQPInitRdAtom: 16,
		Flags: verbs.DeviceMemMgtExtensions | verbs.DeviceMemWindow | verbs.DeviceMemWindow2B,
	}
	if c.Tune != nil {
		c.Tune(&d.attr)
	}
	return d
}

func (d *Device) Name() string           { return d.cfg.Name }
func (d *Device) Attr() verbs.DeviceAttr { return d.attr }
func (d *Device) NUMANode() int          { return d.cfg.NUMANode }
func (d *Device) AsyncFD() int           { return d.async.fd }

// Port implements verbs.Device.
func (d *Device) Port(n int) (verbs.PortAttr, error) {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	if n != 1 {
		return verbs.PortAttr{}, &verbs.Error{Call: "ibv_query_port", Object: fmt.Sprintf("%s port %d", d.cfg.Name, n), Errno: syscall.EINVAL}
	}
	p := verbs.PortAttr{
		State: verbs.PortActive, LinkLayer: verbs.LinkEthernet, MaxMTU: 4096, ActiveMTU: 4096,
		GIDs: len(d.addrs), ActiveMbps: 100000,
	}
	if !d.up {
		p.State = verbs.PortDown
	}
	return p, nil
}

// GIDs implements verbs.Device.
func (d *Device) GIDs(port int) ([]verbs.GID, error) {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	if port != 1 {
		return nil, &verbs.Error{Call: "ibv_query_gid_table", Object: fmt.Sprintf("%s port %d", d.cfg.Name, port), Errno: syscall.EINVAL}
	}
	var out []verbs.GID
	for i, a := range d.addrs {
		out = append(out, verbs.GID{Index: i, Raw: a.As16(), Type: verbs.GIDRoCEv2, Netdev: d.cfg.Name + "-net", IfIndex: 1})
	}
	return out, nil
}

// Close implements verbs.Device.
func (d *Device) Close() error {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	users := d.pds + d.cqs
	for _, x := range d.f.ids {
		if x.dev == d {
			users++
		}
	}
	if users != 0 {
		return &verbs.Error{Call: "ibv_close_device", Object: fmt.Sprintf("%s, %d objects", d.cfg.Name, users), Errno: syscall.EBUSY}
	}
	d.async.close()
	for i := range d.f.devices {
		if d.f.devices[i] == d && d.gone {
			d.f.devices = append(d.f.devices[:i], d.f.devices[i+1:]...)
			break
		}
	}
	return nil
}

// AsyncEvent implements verbs.Device.
func (d *Device) AsyncEvent() (verbs.AsyncEvent, error) {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	if len(d.async.events) == 0 {
		return verbs.AsyncEvent{}, verbs.ErrAgain
	}
	ev := d.async.events[0]
	d.async.events = d.async.events[1:]
	if len(d.async.events) == 0 {
		d.async.still()
	}
	return ev, nil
}

// async tells of an asynchronous event.
func (f *Fabric) async(d *Device, ev verbs.AsyncEvent) {
	f.tell(Happening{Async: true, AsyncEvent: ev, Device: d}, func() { d.queueAsync(ev) })
}

func (d *Device) queueAsync(ev verbs.AsyncEvent) {
	d.async.events = append(d.async.events, ev)
	d.async.ring()
}

// ---- domains, regions, windows ----

// PD is a protection domain.
type PD struct {
	d    *Device
	uses int
	dead bool
}

// AllocPD implements verbs.Device.
func (d *Device) AllocPD() (verbs.PD, error) {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	if err := d.f.fails("ibv_alloc_pd", d.cfg.Name); err != nil {
		return nil, err
	}
	d.pds++
	return &PD{d: d}, nil
}

// Device implements verbs.PD.
func (p *PD) Device() verbs.Device { return p.d }

// Dealloc implements verbs.PD.
func (p *PD) Dealloc() error {
	p.d.f.mu.Lock()
	defer p.d.f.mu.Unlock()
	if p.uses != 0 || p.dead {
		return &verbs.Error{Call: "ibv_dealloc_pd", Object: fmt.Sprintf("%s, %d objects", p.d.cfg.Name, p.uses), Errno: syscall.EBUSY}
	}
	p.dead = true
	p.d.pds--
	return nil
}

// MR is a memory region. Its keys are its handle and a byte that counts.
type MR struct {
	pd      *PD
	handle  uintptr
	addr    uintptr
	size    uint64
	access  verbs.Access
	revoked bool // remote rights ended by an invalidation
}

// RegMR implements verbs.PD.
func (p *PD) RegMR(addr uintptr, size uint64, access verbs.Access) (verbs.MR, error) {
	f := p.d.f
	f.mu.Lock()
	defer f.mu.Unlock()
	object := fmt.Sprintf("%s, %d bytes at %#x", p.d.cfg.Name, size, addr)
	if err := f.fails("ibv_reg_mr", object); err != nil {
		return nil, err
	}
	if size == 0 || access&verbs.AccessRemoteWrite != 0 && access&verbs.AccessLocalWrite == 0 {
		return nil, &verbs.Error{Call: "ibv_reg_mr", Object: object, Errno: syscall.EINVAL}
	}
	if f.cfg.MemLock != 0 && f.locked+size > f.cfg.MemLock {
		return nil, &verbs.Error{Call: "ibv_reg_mr", Object: object, Errno: syscall.ENOMEM}
	}
	f.locked += size
	m := &MR{pd: p, addr: addr, size: size, access: access}
	m.handle = f.add(m)
	p.uses++
	return m, nil
}

// Handle implements verbs.MR.
func (m *MR) Handle() uintptr { return m.handle }

// LKey and RKey implement verbs.MR.
func (m *MR) LKey() uint32 { return uint32(m.handle) << 8 }
func (m *MR) RKey() uint32 { return uint32(m.handle) << 8 }

// Dereg implements verbs.MR.
func (m *MR) Dereg() error {
	f := m.pd.d.f
	f.mu.Lock()
	defer f.mu.Unlock()
	f.locked -= m.size
	f.remove(m.handle)
	m.pd.uses--
	return nil
}

// MW is a type 2 memory window.
type MW struct {
	pd     *PD
	handle uintptr
	key    uint32
	bound  bool
	addr   uint64
	size   uint64
	access verbs.Access
}

// AllocMW implements verbs.PD.
func (p *PD) AllocMW() (verbs.MW, error) {
	f := p.d.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fails("ibv_alloc_mw", p.d.cfg.Name); err != nil {
		return nil, err
	}
	w := &MW{pd: p}
	w.handle = f.add(w)
	w.key = uint32(w.handle) << 8
	p.uses++
	return w, nil
}

// Handle implements verbs.MW.
func (w *MW) Handle() uintptr { return w.handle }

// RKey implements verbs.MW.
func (w *MW) RKey() uint32 { return w.key }

// Dealloc implements verbs.MW.
func (w *MW) Dealloc() error {
	f := w.pd.d.f
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(w.handle)
	w.pd.uses--
	return nil
}

// object finds what a key or handle stands for.
func (f *Fabric) object(handle uintptr) any {
	if handle == 0 || handle > uintptr(len(f.objects)) {
		return nil
	}
	return f.objects[handle-1]
}

// local tells whether a key allows this side's own access.
func (f *Fabric) local(pd *PD, s *verbs.SGE, write bool) bool {
	m, ok := f.object(uintptr(s.LKey >> 8)).(*MR)
	if !ok || m.pd != pd || m.LKey() != s.LKey || write && m.access&verbs.AccessLocalWrite == 0 {
		return false
	}
	return within(s.Addr, uint64(s.Length), uint64(m.addr), m.size)
}

// remote tells whether a key allows the peer's access.
func (f *Fabric) remote(pd *PD, key uint32, addr, n uint64, need verbs.Access) bool {
	switch o := f.object(uintptr(key >> 8)).(type) {
	case *MR:
		return o.pd == pd && o.RKey() == key && !o.revoked && o.access&need == need && within(addr, n, uint64(o.addr), o.size)
	case *MW:
		return o.pd == pd && o.key == key && o.bound && o.access&need == need && within(addr, n, o.addr, o.size)
	}
	return false
}

func within(addr, n, base, size uint64) bool {
	return addr >= base && n <= size && addr-base <= size-n
}

// invalidate ends the remote rights of a key.
func (f *Fabric) invalidate(pd *PD, key uint32) bool {
	switch o := f.object(uintptr(key >> 8)).(type) {
	case *MR:
		if f.cfg.InvalidateMR && o.pd == pd && o.RKey() == key && !o.revoked {
			o.revoked = true
			return true
		}
	case *MW:
		if o.pd == pd && o.key == key && o.bound {
			o.bound = false
			return true
		}
	}
	return false
}
