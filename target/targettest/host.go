package targettest

import (
	"crypto/sha256"

	"rocet/nvme"
	"rocet/target"
)

// Host makes a host's identity of a short name.
func Host(name string) target.HostIdentity {
	sum := sha256.Sum256([]byte(name))
	return target.HostIdentity{NQN: "nqn.2014-08.org.example:" + name, ID: nvme.UUID(sum[:16])}
}

// Fabrics commands.

// ConnectData is the data of a Connect.
func ConnectData(sub string, host target.HostIdentity, cntlid uint16) []byte {
	d := nvme.ConnectData{HostID: host.ID, CNTLID: cntlid, SubNQN: nvme.MakeNQNField(sub), HostNQN: nvme.MakeNQNField(host.NQN)}
	b := make([]byte, nvme.ConnectDataSize)
	d.MarshalTo(b)
	return b
}

// Connect is a Connect command.
func Connect(qid, sqsize uint16, kato uint32) (c nvme.Command) {
	c.SetOpcode(nvme.OpFabrics)
	c.SetFCType(nvme.FabricsConnect)
	c.SetQID(qid)
	c.SetSQSIZE(sqsize)
	c.SetKATO(kato)
	return c
}

// PropertyGet is a Property Get command of 4 or 8 bytes.
func PropertyGet(offset uint32, size int) (c nvme.Command) {
	c.SetOpcode(nvme.OpFabrics)
	c.SetFCType(nvme.FabricsPropertyGet)
	c.SetOFST(offset)
	c.SetATTRIB(uint8(size/4 - 1))
	return c
}

// PropertySet is a Property Set command of 4 bytes.
func PropertySet(offset uint32, value uint64) (c nvme.Command) {
	c.SetOpcode(nvme.OpFabrics)
	c.SetFCType(nvme.FabricsPropertySet)
	c.SetOFST(offset)
	c.SetVALUE(value)
	return c
}

// Disconnect is a Disconnect command.
func Disconnect() (c nvme.Command) {
	c.SetOpcode(nvme.OpFabrics)
	c.SetFCType(nvme.FabricsDisconnect)
	return c
}

// EnableCC is what a host writes to CC.
var EnableCC = nvme.CC(0).WithEN(true).WithIOSQES(nvme.IOSQES).WithIOCQES(nvme.IOCQES)

// Admin commands.

// Admin is an admin command without fields.
func Admin(op nvme.Opcode) (c nvme.Command) {
	c.SetOpcode(op)
	return c
}

// Identify is an Identify command.
func Identify(cns nvme.CNS, nsid uint32) (c nvme.Command) {
	c.SetOpcode(nvme.AdminIdentify)
	c.SetNSID(nsid)
	c.SetIdentify(cns, 0, nvme.CSINVM, 0)
	return c
}

// GetLog is a Get Log Page command for all namespaces.
func GetLog(id nvme.LogID, length int, offset uint64) (c nvme.Command) {
	c.SetOpcode(nvme.AdminGetLogPage)
	c.SetNSID(nvme.NSIDAll)
	c.SetLog(id, 0, false, uint64(length), offset)
	return c
}

// GetFeature is a Get Features command.
func GetFeature(id nvme.FeatureID, sel nvme.FeatureSelect, cdw11 uint32) (c nvme.Command) {
	c.SetOpcode(nvme.AdminGetFeatures)
	c.SetCDW(10, uint32(id)|uint32(sel)<<8)
	c.SetCDW(11, cdw11)
	return c
}

// SetFeature is a Set Features command.
func SetFeature(id nvme.FeatureID, cdw11 uint32) (c nvme.Command) {
	c.SetOpcode(nvme.AdminSetFeatures)
	c.SetCDW(10, uint32(id))
	c.SetCDW(11, cdw11)
	return c
}

// Abort is an Abort command.
func Abort(sqid, cid uint16) (c nvme.Command) {
	c.SetOpcode(nvme.AdminAbort)
	c.SetAbort(sqid, cid)
	return c
}

// I/O commands.

// IO is a command with an LBA range.
func IO(op nvme.Opcode, nsid uint32, lba uint64, blocks uint32) (c nvme.Command) {
	c.SetOpcode(op)
	c.SetNSID(nsid)
	c.SetSLBA(lba)
	c.SetNLB(blocks)
	return c
}

// Read is a Read command.
func Read(nsid uint32, lba uint64, blocks uint32) nvme.Command {
	return IO(nvme.OpRead, nsid, lba, blocks)
}

// Write is a Write command.
func Write(nsid uint32, lba uint64, blocks uint32) nvme.Command {
	return IO(nvme.OpWrite, nsid, lba, blocks)
}

// Flush is a Flush command.
func Flush(nsid uint32) (c nvme.Command) {
	c.SetOpcode(nvme.OpFlush)
	c.SetNSID(nsid)
	return c
}

// Deallocate is a Dataset Management command with its data.
func Deallocate(nsid uint32, ranges ...nvme.DSMRange) (c nvme.Command, data []byte) {
	c.SetOpcode(nvme.OpDatasetManagement)
	c.SetNSID(nsid)
	c.SetDSMRanges(len(ranges))
	c.SetDSMAttributes(nvme.DSMDeallocate)
	for _, r := range ranges {
		data = append(data, r[:]...)
	}
	return c, data
}

// Range is a Dataset Management range.
func Range(lba uint64, blocks uint32) (r nvme.DSMRange) {
	r.SetSLBA(lba)
	r.SetNLB(blocks)
	return r
}

// Association is a host's connection to a subsystem.
type Association struct {
	h      *Harness
	Host   target.HostIdentity
	Sub    string
	CNTLID uint16
	Admin  *Conn
}

// Connect makes an association as the Linux host does: admin Connect, CAP, CC,
// CSTS, number of queues.
func (h *Harness) Connect(sub string, host target.HostIdentity) *Association {
	h.TB.Helper()
	return h.ConnectWith(sub, host, 0, DialOptions{})
}

// ConnectWith is Connect with a keep alive timeout and options.
func (h *Harness) ConnectWith(sub string, host target.HostIdentity, kato uint32, o DialOptions) *Association {
	h.TB.Helper()
	a := h.ConnectOnly(sub, host, kato, o)
	a.Enable()
	return a
}

// ConnectOnly leaves the controller disabled.
func (h *Harness) ConnectOnly(sub string, host target.HostIdentity, kato uint32, o DialOptions) *Association {
	h.TB.Helper()
	a := &Association{h: h, Host: host, Sub: sub, Admin: h.Dial(o)}
	r := a.Admin.Do(Connect(0, 31, kato), ConnectData(sub, host, nvme.CNTLIDDynamic))
	if r.Status != nvme.StatusSuccess {
		h.TB.Fatalf("admin Connect: %v, dword 0 %#x", r.Status, r.DW0())
	}
	a.CNTLID = uint16(r.DW0())
	return a
}

// Enable sets CC.EN.
func (a *Association) Enable() {
	a.h.TB.Helper()
	if r := a.Admin.Do(PropertySet(nvme.RegCC, uint64(EnableCC)), nil); r.Status != nvme.StatusSuccess {
		a.h.TB.Fatalf("CC.EN: %v", r.Status)
	}
	if !a.CSTS().RDY() {
		a.h.TB.Fatalf("CSTS is %#x after CC.EN", a.CSTS())
	}
}

// CSTS reads the status property.
func (a *Association) CSTS() nvme.CSTS {
	a.h.TB.Helper()
	r := a.Admin.Do(PropertyGet(nvme.RegCSTS, 4), nil)
	if r.Status != nvme.StatusSuccess {
		a.h.TB.Fatalf("CSTS: %v", r.Status)
	}
	return nvme.CSTS(r.DW0())
}

// TryIO connects an I/O queue.
func (a *Association) TryIO(qid uint16, o DialOptions) (*Conn, Reply) {
	a.h.TB.Helper()
	c := a.h.Dial(o)
	return c, c.Do(Connect(qid, 31, 0), ConnectData(a.Sub, a.Host, a.CNTLID))
}

// IO connects an I/O queue on the first reactor.
func (a *Association) IO(qid uint16) *Conn {
	a.h.TB.Helper()
	return a.IOOn(qid, 0)
}

// IOOn connects an I/O queue on a reactor.
func (a *Association) IOOn(qid uint16, group int) *Conn {
	a.h.TB.Helper()
	c, r := a.TryIO(qid, DialOptions{Group: group})
	if r.Status != nvme.StatusSuccess {
		a.h.TB.Fatalf("Connect of queue %d: %v, dword 0 %#x", qid, r.Status, r.DW0())
	}
	return c
}

// Log reads a whole log page.
func (a *Association) Log(id nvme.LogID, length int) []byte {
	a.h.TB.Helper()
	r := a.Admin.Do(GetLog(id, length, 0), nil)
	if r.Status != nvme.StatusSuccess {
		a.h.TB.Fatalf("Get Log Page %#x: %v", id, r.Status)
	}
	return r.Data
}
