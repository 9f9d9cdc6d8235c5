package sim

import (
	"bytes"
	"encoding/binary"

	"rocet/nvme"
)

func (c *Controller) admin(cmd *nvme.Command) (dw0 uint32, st nvme.Status, later bool) {
	switch cmd.Opcode() {
	case nvme.AdminIdentify:
		return 0, c.identify(cmd), false
	case nvme.AdminSetFeatures:
		dw0, st = c.setFeatures(cmd)
		return dw0, st, false
	case nvme.AdminGetFeatures:
		if cmd.FID() == nvme.FeatureVolatileWriteCache && !c.cfg.NoCache {
			return nvme.WriteCacheEnable, 0, false
		}
		return 0, nvme.StatusInvalidField, false
	case nvme.AdminGetLogPage:
		return 0, c.logPage(cmd), false
	case nvme.AdminCreateCQ:
		return 0, c.createCQ(cmd), false
	case nvme.AdminCreateSQ:
		return 0, c.createSQ(cmd), false
	case nvme.AdminDeleteSQ:
		qid := uint16(cmd.CDW(10))
		if qid == 0 || c.sqs[qid] == nil {
			return 0, nvme.StatusInvalidQID, false
		}
		delete(c.sqs, qid)
		return 0, 0, false
	case nvme.AdminDeleteCQ:
		qid := uint16(cmd.CDW(10))
		if qid == 0 || c.cqs[qid] == nil {
			return 0, nvme.StatusInvalidQID, false
		}
		for _, s := range c.sqs {
			if s.cqid == qid {
				return 0, nvme.StatusInvalidQueueDeletion, false
			}
		}
		delete(c.cqs, qid)
		return 0, 0, false
	case nvme.AdminAbort:
		return c.abort(cmd), 0, false
	case nvme.AdminAER:
		c.aers = append(c.aers, cmd.CID())
		return 0, 0, true
	case nvme.AdminDoorbellBufferConfig:
		if !c.cfg.Shadow {
			return 0, nvme.StatusInvalidOpcode, false
		}
		c.shadow, c.eventIdx = cmd.PRP1(), cmd.PRP2()
		return 0, 0, false
	}
	return 0, nvme.StatusInvalidOpcode, false
}

func (c *Controller) abort(cmd *nvme.Command) uint32 {
	c.counts.Aborts++
	key := uint32(cmd.AbortSQID())<<16 | uint32(cmd.AbortCID())
	if !c.stuck[key] {
		return 1
	}
	delete(c.stuck, key)
	if q := c.sqs[cmd.AbortSQID()]; q != nil {
		c.complete(q, cmd.AbortCID(), q.id, 0, nvme.StatusAbortedByRequest)
	}
	return 0
}

func (c *Controller) identify(cmd *nvme.Command) nvme.Status {
	b := make([]byte, nvme.IdentifySize)
	switch cmd.CNS() {
	case nvme.CNSController:
		c.identifyController().MarshalTo(b)
	case nvme.CNSNamespace:
		if cmd.NSID() == 1 {
			c.identifyNamespace().MarshalTo(b)
		}
	case nvme.CNSActiveNamespaces:
		nvme.PutNSIDList(b, []uint32{1})
	case nvme.CNSNamespaceDescriptors:
		ids := nvme.NamespaceIDs{NGUID: c.nguid(), CSI: c.cfg.CSI}
		ids.MarshalTo(b)
	case nvme.CNSCommandSetController:
		c.cfg.Limits.MarshalTo(b)
	default:
		return nvme.StatusInvalidField.WithDNR()
	}
	return c.toHost(cmd, b)
}

func (c *Controller) nguid() (id nvme.NGUID) {
	copy(id[:], c.cfg.Serial)
	return id
}

func (c *Controller) identifyController() *nvme.IdentifyController {
	id := &nvme.IdentifyController{VID: 0x1b36, MDTS: c.cfg.MDTS, VER: nvme.Version20, CNTRLTYPE: nvme.ControllerIO,
		OAES: nvme.OAESNamespaceAttribute, AERL: 3, ELPE: 3, SQES: 0x66, CQES: 0x44, NN: 4, AWUN: c.cfg.AWUN, SGLS: c.cfg.SGLS,
		ONCS: nvme.ONCSCompare | nvme.ONCSDatasetManagement | nvme.ONCSWriteZeroes | nvme.ONCSVerify, VWC: nvme.VWCPresent | nvme.VWCFlushAllAccepted}
	nvme.PutASCII(id.SN[:], c.cfg.Serial)
	nvme.PutASCII(id.MN[:], "Simulated drive")
	nvme.PutASCII(id.FR[:], "1")
	if c.cfg.NoCache {
		id.VWC = 0
	}
	if c.cfg.Shadow {
		id.OACS |= nvme.OACSDoorbellBuffer
	}
	return id
}

func (c *Controller) identifyNamespace() *nvme.IdentifyNamespace {
	id := &nvme.IdentifyNamespace{NSZE: c.cfg.Blocks, NCAP: c.cfg.Blocks, NUSE: c.cfg.Blocks, NOIOB: c.cfg.NOIOB, NGUID: c.nguid(),
		DLFEAT: nvme.DLFEATReadZeroes}
	id.LBAF[0] = nvme.LBAFormat{LBADS: c.cfg.BlockShift, MS: c.cfg.Metadata}
	return id
}

func (c *Controller) setFeatures(cmd *nvme.Command) (uint32, nvme.Status) {
	switch cmd.FID() {
	case nvme.FeatureNumberOfQueues:
		want := nvme.QueueCounts(cmd.CDW(11))
		most := uint32(c.cfg.Queues)
		return uint32(nvme.MakeQueueCounts(min(want.Submission(), most), min(want.Completion(), most))), 0
	case nvme.FeatureAsyncEventConfig:
		c.eventCfg = cmd.CDW(11)
		return 0, 0
	}
	return 0, nvme.StatusInvalidField
}

func (c *Controller) logPage(cmd *nvme.Command) nvme.Status {
	b := make([]byte, cmd.LogLength())
	switch cmd.LID() {
	case nvme.LogError:
		e := nvme.ErrorLogEntry{Count: 7, SQID: 1, CID: 2, Status: nvme.StatusInvalidField, NSID: 1}
		e.MarshalTo(b)
	case nvme.LogSMART:
		l := nvme.SMARTLog{CriticalWarning: c.warning, Temperature: 300, AvailableSpare: 100}
		l.MarshalTo(b)
	case nvme.LogChangedNamespaces:
		nvme.PutNSIDList(b, c.changed)
		c.changed = nil
	default:
		return nvme.StatusInvalidLogPage
	}
	return c.toHost(cmd, b)
}

func (c *Controller) createCQ(cmd *nvme.Command) nvme.Status {
	qid, size := uint16(cmd.CDW(10)), cmd.CDW(10)>>16+1
	if qid == 0 || int(qid) > c.cfg.Queues || c.cqs[qid] != nil {
		return nvme.StatusInvalidQID
	}
	if size < 2 || size > uint32(c.cfg.MQES)+1 {
		return nvme.StatusInvalidQueueSize
	}
	vector := -1
	if cmd.CDW(11)&2 != 0 {
		if vector = int(cmd.CDW(11) >> 16); vector >= c.cfg.Vectors {
			return nvme.StatusInvalidInterruptVector
		}
	}
	if cmd.PRP1()%4096 != 0 || cmd.CDW(11)&1 == 0 {
		return nvme.StatusPRPOffset
	}
	c.cqs[qid] = &cq{id: qid, base: cmd.PRP1(), size: size, phase: true, vector: vector}
	c.set(nvme.DoorbellCQ(qid, c.cfg.DSTRD), 0)
	return 0
}

func (c *Controller) createSQ(cmd *nvme.Command) nvme.Status {
	qid, size := uint16(cmd.CDW(10)), cmd.CDW(10)>>16+1
	cqid := uint16(cmd.CDW(11) >> 16)
	switch {
	case qid == 0 || int(qid) > c.cfg.Queues || c.sqs[qid] != nil:
		return nvme.StatusInvalidQID
	case cqid == 0 || c.cqs[cqid] == nil:
		return nvme.StatusInvalidCQ
	case size < 2 || size > uint32(c.cfg.MQES)+1:
		return nvme.StatusInvalidQueueSize
	case cmd.PRP1()%4096 != 0:
		return nvme.StatusPRPOffset
	}
	c.sqs[qid] = &sq{id: qid, cqid: cqid, base: cmd.PRP1(), size: size}
	c.set(nvme.DoorbellSQ(qid, c.cfg.DSTRD), 0)
	return 0
}

// postEvents completes requests with the events that wait.
func (c *Controller) postEvents() {
	for len(c.events) > 0 && len(c.aers) > 0 {
		e, cid := c.events[0], c.aers[0]
		c.events, c.aers = c.events[1:], c.aers[1:]
		c.complete(c.sqs[0], cid, 0, uint32(e), 0)
	}
}

func (c *Controller) io(cmd *nvme.Command) nvme.Status {
	c.counts.Commands[cmd.Opcode()]++
	if cmd.NSID() != 1 {
		return nvme.StatusInvalidNamespace
	}
	shift := c.cfg.BlockShift
	switch op := cmd.Opcode(); op {
	case nvme.OpFlush:
		return 0
	case nvme.OpRead, nvme.OpWrite, nvme.OpCompare, nvme.OpWriteZeroes, nvme.OpVerify:
		if cmd.SLBA()+uint64(cmd.NLB()) > c.cfg.Blocks {
			return nvme.StatusLBAOutOfRange.WithDNR()
		}
		at := c.media[cmd.SLBA()<<shift : (cmd.SLBA()+uint64(cmd.NLB()))<<shift]
		switch op {
		case nvme.OpWriteZeroes:
			if m := c.cfg.Limits.WZSL; m > 0 && len(at) > 4096<<m {
				return nvme.StatusInvalidField
			}
			clear(at)
			return 0
		case nvme.OpVerify:
			if m := c.cfg.Limits.VSL; m > 0 && len(at) > 4096<<m {
				return nvme.StatusInvalidField
			}
			return 0
		}
		if m := c.cfg.MDTS; m > 0 && len(at) > 4096<<m {
			return nvme.StatusInvalidField
		}
		c.counts.Blocks = max(c.counts.Blocks, uint64(cmd.NLB()))
		if op == nvme.OpRead {
			return c.toHost(cmd, at)
		}
		data, st := c.fromHost(cmd, uint32(len(at)))
		switch {
		case !st.IsOK():
			return st
		case op == nvme.OpCompare && !bytes.Equal(data, at):
			return nvme.StatusCompareFailure
		case op == nvme.OpWrite:
			copy(at, data)
		}
		return 0
	case nvme.OpDatasetManagement:
		return c.deallocate(cmd)
	}
	return nvme.StatusInvalidOpcode
}

func (c *Controller) deallocate(cmd *nvme.Command) nvme.Status {
	limits := &c.cfg.Limits
	n := cmd.DSMRanges()
	data, st := c.fromHost(cmd, uint32(n*nvme.DSMRangeSize))
	if !st.IsOK() {
		return st
	}
	total := uint64(0)
	for i := range n {
		r := (*nvme.DSMRange)(data[i*nvme.DSMRangeSize:])
		if r.SLBA()+uint64(r.NLB()) > c.cfg.Blocks {
			return nvme.StatusLBAOutOfRange
		}
		if limits.DMRSL != 0 && r.NLB() > limits.DMRSL {
			return nvme.StatusCommandSizeLimitExceeded
		}
		total += uint64(r.NLB())
		if cmd.DSMAttributes()&nvme.DSMDeallocate != 0 {
			clear(c.media[r.SLBA()<<c.cfg.BlockShift : (r.SLBA()+uint64(r.NLB()))<<c.cfg.BlockShift])
		}
	}
	if limits.DMRL != 0 && n > int(limits.DMRL) || limits.DMSL != 0 && total > limits.DMSL {
		return nvme.StatusCommandSizeLimitExceeded
	}
	return 0
}

// toHost and fromHost move data by the command's pointer.
func (c *Controller) toHost(cmd *nvme.Command, data []byte) nvme.Status {
	pieces, st := c.pieces(cmd, uint32(len(data)))
	for _, p := range pieces {
		data = data[copy(p, data):]
	}
	return st
}

func (c *Controller) fromHost(cmd *nvme.Command, n uint32) ([]byte, nvme.Status) {
	pieces, st := c.pieces(cmd, n)
	return bytes.Join(pieces, nil), st
}

// pieces walks PRPs or SGLs: Base 2.1 sections 4.3.1 and 4.3.2.
func (c *Controller) pieces(cmd *nvme.Command, n uint32) ([][]byte, nvme.Status) {
	if cmd.PSDT() == nvme.PSDTSGL {
		c.counts.SGL++
		return c.sglPieces(cmd, n)
	}
	c.counts.PRP++
	var out [][]byte
	add := func(iova uint64, size uint32) bool {
		b, ok := c.space.bytes(iova, size)
		out = append(out, b)
		n -= size
		return ok
	}
	first := min(n, 4096-uint32(cmd.PRP1()&4095))
	if cmd.PRP1()&3 != 0 {
		return nil, nvme.StatusPRPOffset
	}
	if !add(cmd.PRP1(), first) {
		return nil, nvme.StatusDataTransferError
	}
	if n == 0 {
		return out, 0
	}
	if n <= 4096 {
		if cmd.PRP2()&4095 != 0 {
			return nil, nvme.StatusPRPOffset
		}
		if !add(cmd.PRP2(), n) {
			return nil, nvme.StatusDataTransferError
		}
		return out, 0
	}
	for at := cmd.PRP2(); n > 0; at += 8 {
		if at>>12 != cmd.PRP2()>>12 {
			return nil, nvme.StatusPRPOffset // chains are not for these lists
		}
		e, ok := c.space.bytes(at, 8)
		if !ok {
			return nil, nvme.StatusDataTransferError
		}
		entry := binary.LittleEndian.Uint64(e)
		if entry&4095 != 0 {
			return nil, nvme.StatusPRPOffset
		}
		if !add(entry, min(n, 4096)) {
			return nil, nvme.StatusDataTransferError
		}
	}
	return out, 0
}

func (c *Controller) sglPieces(cmd *nvme.Command, n uint32) ([][]byte, nvme.Status) {
	descriptors := [][]byte{cmd.SGL()[:]}
	if d := cmd.SGL(); d.Type() == nvme.SGLLastSegment {
		b, ok := c.space.bytes(d.Address(), d.Length32())
		if !ok || len(b)%nvme.SGLDescriptorSize != 0 {
			return nil, nvme.StatusInvalidSGLSegment
		}
		descriptors = descriptors[:0]
		for ; len(b) > 0; b = b[nvme.SGLDescriptorSize:] {
			descriptors = append(descriptors, b[:nvme.SGLDescriptorSize])
		}
	}
	var out [][]byte
	for _, raw := range descriptors {
		d := (*nvme.SGLDescriptor)(raw)
		if d.Identifier() != nvme.SGLIdentifier(nvme.SGLDataBlock, nvme.SGLAddress) {
			return nil, nvme.StatusInvalidSGLType
		}
		if c.cfg.SGLS&3 == nvme.SGLSDwordAligned && (d.Address()|uint64(d.Length32()))&3 != 0 {
			return nil, nvme.StatusSGLGranularity
		}
		if d.Length32() > n {
			return nil, nvme.StatusSGLDataLength
		}
		b, ok := c.space.bytes(d.Address(), d.Length32())
		if !ok {
			return nil, nvme.StatusDataTransferError
		}
		out = append(out, b)
		n -= d.Length32()
	}
	if n != 0 {
		return nil, nvme.StatusSGLDataLength
	}
	return out, 0
}
