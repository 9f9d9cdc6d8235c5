package pcie

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"sync/atomic"

	"rocet/nvme"
)

// Namespace is a namespace of a drive that Rocet can serve.
type Namespace struct {
	// What commands are built of. It changes only while the drive's queues are frozen.
	nsid         uint32
	shift        uint8  // of the block size
	flushes      bool   // a volatile write cache is there
	maxBlocks    uint32 // of a command with data
	zeroBlocks   uint32 // of Write Zeroes
	verifyBlocks uint32
	boundary     uint32 // NOIOB in blocks, 0: none
	atomicBlocks uint32 // writes of so many blocks are atomic, and not split at the boundary
	dsm          dsmLimits

	usable atomic.Bool // it is there, with the format that it had
	data   atomic.Pointer[nvme.IdentifyNamespace]
}

// dsmLimits are those of a Dataset Management command.
type dsmLimits struct {
	ranges      uint32 // in a command
	rangeBlocks uint32 // in a range
	blocks      uint64 // in a command
}

// ID returns the NSID.
func (n *Namespace) ID() uint32 { return n.nsid }

// Identify returns what the drive says about the namespace now: a snapshot that nobody changes.
func (n *Namespace) Identify() *nvme.IdentifyNamespace { return n.data.Load() }

// Usable tells whether the namespace is there, with the format that it was opened with.
func (n *Namespace) Usable() bool { return n.usable.Load() }

// BlockSize returns the bytes of a block.
func (n *Namespace) BlockSize() uint32 { return 1 << n.shift }

// Sizes of blocks that Rocet serves, as powers of two.
const (
	minBlockShift = 9
	maxBlockShift = 16
)

// FormatError says why a namespace cannot be served as it is formatted.
type FormatError struct {
	NSID   uint32
	Reason string
}

func (e *FormatError) Error() string { return fmt.Sprintf("namespace %d: %s", e.NSID, e.Reason) }

// identifyNamespace asks for a namespace's data and checks that Rocet can serve it.
func (d *Drive) identifyNamespace(nsid uint32) (*nvme.IdentifyNamespace, error) {
	if nsid == 0 || nsid > d.ctrl.NN && d.ctrl.NN != 0 {
		return nil, &FormatError{nsid, fmt.Sprintf("there is no such identifier: the drive has 1 to %d", d.ctrl.NN)}
	}
	csi, err := d.commandSet(nsid)
	if err != nil {
		return nil, err
	}
	var cmd nvme.Command
	cmd.SetOpcode(nvme.AdminIdentify)
	cmd.SetNSID(nsid)
	cmd.SetIdentify(nvme.CNSNamespace, 0, 0, 0)
	if _, err := d.execRead("Identify Namespace", &cmd, nvme.IdentifySize); err != nil {
		return nil, err
	}
	id := new(nvme.IdentifyNamespace)
	if err := id.UnmarshalBinary(d.layout.data.bytes()); err != nil {
		return nil, err
	}
	if id.NSZE == 0 {
		return nil, &FormatError{nsid, "it is not active; active are " + d.activeText()}
	}
	if csi != nvme.CSINVM {
		return nil, &FormatError{nsid, fmt.Sprintf("it is of the %s command set, Rocet serves the NVM command set", csiName(csi))}
	}
	return id, checkFormat(nsid, id)
}

// checkFormat refuses what Rocet's hosts would not get right: metadata, protection information, odd blocks.
func checkFormat(nsid uint32, id *nvme.IdentifyNamespace) error {
	f := id.Format()
	remedy := fmt.Sprintf("format it without (nvme format --lbaf=N; it has format %d now)", id.FormatIndex())
	switch {
	case f.MS != 0:
		where := "apart from the data"
		if id.FLBAS&nvme.FLBASMetadataInEnd != 0 {
			where = "with the data"
		}
		return &FormatError{nsid, fmt.Sprintf("its blocks have %d bytes of metadata, %s: %s", f.MS, where, remedy)}
	case id.DPS&nvme.DPSTypeMask != 0:
		return &FormatError{nsid, fmt.Sprintf("it has protection information of type %d: %s", id.DPS&nvme.DPSTypeMask, remedy)}
	case f.LBADS < minBlockShift || f.LBADS > maxBlockShift:
		return &FormatError{nsid, fmt.Sprintf("blocks of 2^%d bytes (format %d) are not served: 512 bytes to 64 KiB are", f.LBADS, id.FormatIndex())}
	}
	return nil
}

// commandSet asks which command set a namespace is of; controllers before revision 2.0 know one only.
func (d *Drive) commandSet(nsid uint32) (nvme.CSI, error) {
	if d.version < nvme.Version13 || d.regs.cc().CSS() != nvme.CCCSSAll {
		return nvme.CSINVM, nil
	}
	var cmd nvme.Command
	cmd.SetOpcode(nvme.AdminIdentify)
	cmd.SetNSID(nsid)
	cmd.SetIdentify(nvme.CNSNamespaceDescriptors, 0, 0, 0)
	b, err := d.execRead("Identify (Namespace Identification Descriptors)", &cmd, nvme.IdentifySize)
	var refused *CommandError
	if errors.As(err, &refused) {
		return nvme.CSINVM, nil
	} else if err != nil {
		return 0, err
	}
	var ids nvme.NamespaceIDs
	if err := ids.UnmarshalBinary(b); err != nil {
		return 0, err
	}
	return ids.CSI, nil
}

func csiName(c nvme.CSI) string {
	switch c {
	case nvme.CSIKeyValue:
		return "Key Value"
	case nvme.CSIZoned:
		return "Zoned Namespace"
	case nvme.CSISubsystemLocalMemory:
		return "Subsystem Local Memory"
	case nvme.CSIComputationalPrograms:
		return "Computational Programs"
	}
	return fmt.Sprintf("%#02x", uint8(c))
}

// activeNamespaces lists the active namespaces, up to a page of them.
func (d *Drive) activeNamespaces() ([]uint32, error) {
	var cmd nvme.Command
	cmd.SetOpcode(nvme.AdminIdentify)
	cmd.SetIdentify(nvme.CNSActiveNamespaces, 0, 0, 0)
	b, err := d.execRead("Identify (Active Namespace ID list)", &cmd, nvme.IdentifySize)
	if err != nil {
		return nil, err
	}
	return nvme.ParseNSIDList(b)
}

func (d *Drive) activeText() string {
	ids, err := d.activeNamespaces()
	if err != nil {
		return "not known: " + err.Error()
	}
	if len(ids) == 0 {
		return "none"
	}
	return strings.Trim(fmt.Sprint(ids), "[]")
}

// settle derives what commands are built of. The drive's queues are frozen, or nobody uses the namespace yet.
func (n *Namespace) settle(d *Drive, id *nvme.IdentifyNamespace) {
	n.shift = id.Format().LBADS
	n.flushes = d.ctrl.VWC&nvme.VWCPresent != 0
	n.maxBlocks = max(d.maxTransfer>>n.shift, 1)
	n.zeroBlocks = d.limitBlocks(d.nvm.WZSL, n.shift)
	n.verifyBlocks = d.limitBlocks(d.nvm.VSL, n.shift)
	n.boundary = uint32(id.NOIOB)
	n.atomicBlocks = uint32(d.ctrl.AWUN) + 1
	if id.NSFEAT&nvme.NSFEATAtomicUnits != 0 && id.NAWUN != 0 {
		n.atomicBlocks = uint32(id.NAWUN) + 1
	}
	n.dsm = dsmLimits{
		ranges:      orMost(uint32(d.nvm.DMRL), listBytes/nvme.DSMRangeSize),
		rangeBlocks: orMost(d.nvm.DMRSL, ^uint32(0)),
		blocks:      d.nvm.DMSL,
	}
	if n.dsm.blocks == 0 {
		n.dsm.blocks = ^uint64(0)
	}
	n.data.Store(id)
}

func orMost(limit, most uint32) uint32 {
	if limit == 0 {
		return most
	}
	return min(limit, most)
}

// limitBlocks turns a limit of commands without data into blocks: pages as a power of two, 0 for none. Without one the
// driver is careful and takes that of data: drives exist that want it.
func (d *Drive) limitBlocks(pagesLog2, shift uint8) uint32 {
	const most = 1 << 16 // NLB
	if pagesLog2 == 0 {
		if d.ctrl.MDTS == 0 {
			return most
		}
		pagesLog2 = d.ctrl.MDTS
	}
	if pagesLog2 >= 32 {
		return most
	}
	return uint32(max(min(uint64(pageSize)<<pagesLog2>>shift, most), 1))
}

// sameFormat tells whether commands built for one can be used with the other.
func sameFormat(a, b *nvme.IdentifyNamespace) bool {
	return a.Format() == b.Format() && a.NGUID == b.NGUID && a.EUI64 == b.EUI64
}

// room returns how many blocks from lba on a command may have, given the most by size: it ends at the boundary.
func (n *Namespace) room(lba uint64, most uint32) uint32 {
	b := n.boundary
	if b == 0 {
		return most
	}
	var rest uint32
	if bits.OnesCount32(b) == 1 {
		rest = b - uint32(lba)&(b-1)
	} else {
		rest = b - uint32(lba%uint64(b))
	}
	return min(most, rest)
}
