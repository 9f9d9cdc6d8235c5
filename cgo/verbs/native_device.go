//go:build cgo && linux

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

type device struct {
	p    *native
	ctx  *C.struct_ibv_context
	name string
	numa int
	attr DeviceAttr
}

func (p *native) Devices() ([]Device, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refresh()
}

// refresh lists the library's contexts and makes a device of each new one,
// which keeps its reference until Close.
func (p *native) refresh() ([]Device, error) {
	var list **C.struct_ibv_context
	var n C.int
	if rc := C.rocet_devices(&list, &n); rc != 0 {
		return nil, fail(rc, "rdma_get_devices", "")
	}
	ctxs := unsafe.Slice(list, int(n))
	keep := make([]C.uint8_t, int(n)+1)
	devices := make([]Device, 0, int(n))
	var err error
	for i, ctx := range ctxs {
		d := p.devices[handle(ctx)]
		if d == nil {
			if d, err = p.newDevice(ctx); err != nil {
				break
			}
			p.devices[handle(ctx)] = d
			keep[i] = 1
		}
		devices = append(devices, d)
	}
	C.rocet_keep_devices(list, &keep[0])
	if err != nil {
		return nil, err
	}
	return devices, nil
}

func (p *native) newDevice(ctx *C.struct_ibv_context) (*device, error) {
	d := &device{p: p, ctx: ctx, name: C.GoString(C.ibv_get_device_name(ctx.device))}
	var a C.struct_ibv_device_attr
	if rc := C.ibv_query_device(ctx, &a); rc != 0 {
		return nil, fail(rc, "ibv_query_device", d.name)
	}
	d.attr = DeviceAttr{
		Transport:       Transport(ctx.device.transport_type),
		Firmware:        C.GoString(&a.fw_ver[0]),
		NodeGUID:        hostOrder(uint64(a.node_guid)),
		SysImageGUID:    hostOrder(uint64(a.sys_image_guid)),
		VendorID:        uint32(a.vendor_id),
		VendorPartID:    uint32(a.vendor_part_id),
		HWVersion:       uint32(a.hw_ver),
		Ports:           int(a.phys_port_cnt),
		CompVectors:     int(ctx.num_comp_vectors),
		MaxMRSize:       uint64(a.max_mr_size),
		MaxQP:           int(a.max_qp),
		MaxQPWR:         int(a.max_qp_wr),
		MaxSGE:          int(a.max_sge),
		MaxSGERd:        int(a.max_sge_rd),
		MaxCQ:           int(a.max_cq),
		MaxCQE:          int(a.max_cqe),
		MaxMR:           int(a.max_mr),
		MaxMW:           int(a.max_mw),
		MaxPD:           int(a.max_pd),
		MaxSRQ:          int(a.max_srq),
		MaxSRQWR:        int(a.max_srq_wr),
		MaxSRQSGE:       int(a.max_srq_sge),
		MaxQPRdAtom:     int(a.max_qp_rd_atom),
		MaxResRdAtom:    int(a.max_res_rd_atom),
		MaxQPInitRdAtom: int(a.max_qp_init_rd_atom),
		Flags:           DeviceFlags(a.device_cap_flags),
	}
	d.numa = numaNode(C.GoString(&ctx.device.ibdev_path[0]))
	return d, nil
}

// hostOrder turns a GUID, which the library gives in network order, around.
func hostOrder(v uint64) uint64 {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	return binary.BigEndian.Uint64(b[:])
}

func numaNode(sysfs string) int {
	b, err := os.ReadFile(filepath.Join(sysfs, "device", "numa_node"))
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return -1
	}
	return n
}

// deviceOf is the device of an id's context, nil if the device is gone again.
func (p *native) deviceOf(ctx *C.struct_ibv_context) *device {
	if ctx == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.devices[handle(ctx)]; d != nil {
		return d
	}
	if _, err := p.refresh(); err != nil { // plugged in since
		return nil
	}
	return p.devices[handle(ctx)]
}

func (d *device) Name() string     { return d.name }
func (d *device) Attr() DeviceAttr { return d.attr }
func (d *device) NUMANode() int    { return d.numa }

func (d *device) Port(n int) (PortAttr, error) {
	var a C.struct_ibv_port_attr
	if n < 1 || n > d.attr.Ports {
		return PortAttr{}, fail(C.int(syscall.EINVAL), "ibv_query_port", fmt.Sprintf("%s port %d of %d", d.name, n, d.attr.Ports))
	}
	if rc := C.rocet_query_port(d.ctx, C.int(n), &a); rc != 0 {
		return PortAttr{}, fail(rc, "ibv_query_port", fmt.Sprintf("%s port %d", d.name, n))
	}
	return PortAttr{
		State:      PortState(a.state),
		LinkLayer:  LinkLayer(a.link_layer),
		MaxMTU:     mtuBytes(uint32(a.max_mtu)),
		ActiveMTU:  mtuBytes(uint32(a.active_mtu)),
		GIDs:       int(a.gid_tbl_len),
		LID:        uint16(a.lid),
		ActiveMbps: mbps(uint8(a.active_speed), uint8(a.active_width)),
	}, nil
}

// mtuBytes decodes enum ibv_mtu: 1 is 256 bytes, each next one twice that.
func mtuBytes(m uint32) int {
	if m < 1 || m > 5 {
		return 0
	}
	return 128 << m
}

// mbps is a port's data rate: the speed of a lane, less its line coding, times
// the lanes (InfiniBand Architecture Specification vol. 1, PortInfo).
func mbps(speed, width uint8) int {
	lanes := map[uint8]int{1: 1, 2: 4, 4: 8, 8: 12, 16: 2}[width]
	lane := map[uint8]int{1: 2500, 2: 5000, 4: 10000, 8: 10000, 16: 14000, 32: 25000, 64: 50000, 128: 100000}[speed]
	return lanes * lane
}

func (d *device) GIDs(port int) ([]GID, error) {
	max := 0
	for n := 1; n <= d.attr.Ports; n++ {
		a, err := d.Port(n)
		if err != nil {
			return nil, err
		}
		max += a.GIDs
	}
	raw := make([]C.struct_rocet_gid, max+1)
	var n C.int
	if rc := C.rocet_query_gids(d.ctx, &raw[0], C.int(max), &n); rc != 0 {
		return nil, fail(rc, "ibv_query_gid_table", d.name)
	}
	var gids []GID
	for _, r := range raw[:n] {
		if int(r.port) != port {
			continue
		}
		g := GID{Index: int(r.index), Type: GIDType(r._type), IfIndex: int(r.ifindex)}
		for i := range g.Raw {
			g.Raw[i] = byte(r.raw[i])
		}
		if g.IfIndex != 0 {
			if ifc, err := net.InterfaceByIndex(g.IfIndex); err == nil {
				g.Netdev = ifc.Name
			}
		}
		gids = append(gids, g)
	}
	return gids, nil
}

func (d *device) AsyncFD() int { return int(d.ctx.async_fd) }

func (d *device) AsyncEvent() (AsyncEvent, error) {
	var ev C.struct_ibv_async_event
	var a C.struct_rocet_async
	if rc := C.rocet_get_async(d.ctx, &ev, &a); rc != 0 {
		if rc == C.EAGAIN {
			return AsyncEvent{}, ErrAgain
		}
		return AsyncEvent{}, fail(rc, "ibv_get_async_event", d.name)
	}
	out := AsyncEvent{Type: AsyncType(a._type), QPNum: uint32(a.qp_num), Port: int(a.port)}
	object := uintptr(a.object)
	// Until the event is acknowledged, the library keeps its object.
	d.p.mu.Lock()
	switch a.kind {
	case C.ROCET_ASYNC_QP:
		if q := d.p.qps[object]; q != nil {
			out.QP = q
		}
	case C.ROCET_ASYNC_CQ:
		if q := d.p.cqs[object]; q != nil {
			out.CQ = q
		}
	case C.ROCET_ASYNC_SRQ:
		if q := d.p.srqs[object]; q != nil {
			out.SRQ = q
		}
	}
	d.p.mu.Unlock()
	C.ibv_ack_async_event(&ev)
	return out, nil
}

func (d *device) Close() error {
	d.p.mu.Lock()
	defer d.p.mu.Unlock()
	if d.p.devices[handle(d.ctx)] != d {
		return nil
	}
	if rc := C.rocet_release_device(d.ctx); rc != 0 {
		return fail(rc, "rdma_free_devices", d.name)
	}
	delete(d.p.devices, handle(d.ctx))
	return nil
}
