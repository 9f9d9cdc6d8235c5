package verbs

import "unsafe"

// Mirrors of what libibverbs reads and writes on the hot path. The native
// files assert sizes and offsets against <infiniband/verbs.h>; uintptr fields
// are C pointers: addresses of memory outside the Go heap.

// SGE is struct ibv_sge.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// SendWR is struct ibv_send_wr, as RDMA over RC uses it.
type SendWR struct {
	ID             uint64
	Next           uintptr // *SendWR, 0 ends the chain
	SGList         uintptr // *SGE
	NumSGE         int32
	Opcode         Opcode
	Flags          SendFlags
	InvalidateRKey uint32 // OpSendWithInv, OpLocalInv; shared with immediate data
	RemoteAddr     uint64 // OpRDMAWrite, OpRDMARead
	RKey           uint32
	_              [28]byte
	BindMW         uintptr // OpBindMW: MW.Handle
	BindRKey       uint32  // OpBindMW: key of the bind
	_              uint32
	BindMR         uintptr // OpBindMW: MR.Handle; the region needs AccessMWBind
	BindAddr       uint64
	BindLength     uint64
	BindAccess     Access
	_              uint32
}

// RecvWR is struct ibv_recv_wr.
type RecvWR struct {
	ID     uint64
	Next   uintptr // *RecvWR, 0 ends the chain
	SGList uintptr // *SGE
	NumSGE int32
	_      uint32
}

// WC is struct ibv_wc. If Status isn't StatusSuccess only ID, Status, VendorErr
// and QPNum are valid.
type WC struct {
	ID              uint64
	Status          WCStatus
	Opcode          WCOpcode
	VendorErr       uint32
	ByteLen         uint32 // receives and READs
	InvalidatedRKey uint32 // if Invalidated(); shared with immediate data
	QPNum           uint32
	SrcQP           uint32
	Flags           WCFlags
	PKeyIndex       uint16
	SLID            uint16
	SL              uint8
	DLIDPathBits    uint8
	_               [2]byte
}

// Invalidated says whether a receive took back InvalidatedRKey. Soft-RoCE's
// user library passes the kernel's flag bit on unchanged (IB_WC_WITH_INVALIDATE,
// bit 2), which for the verbs is a checksum flag that only datagrams have.
func (w *WC) Invalidated() bool {
	return w.Opcode == WCRecv && w.Flags&(WCWithInv|wcKernelWithInv) != 0
}

// PostOp is one entry of Provider.Post: work for one queue pair, one shared
// receive queue, or one of each.
type PostOp struct {
	QP   uintptr // QP.Handle: where Send goes, and Recv if SRQ is 0
	SRQ  uintptr // SRQ.Handle: where Recv goes, or 0
	Send uintptr // head of a SendWR chain, or 0
	Recv uintptr // head of a RecvWR chain, or 0

	// Results. The receive chain goes first; if it fails, the send chain isn't
	// tried (BadSend = Send). What comes before the bad request is posted.
	BadSend uintptr // first *SendWR not posted, 0 if all were
	BadRecv uintptr // first *RecvWR not posted, 0 if all were
	Err     int32   // errno, 0 if all is posted
	_       int32
}

// Sizes that both sides of the crossing assert.
const (
	sizeSGE    = 16
	sizeSendWR = 128
	sizeRecvWR = 32
	sizeWC     = 48
	sizePostOp = 56
)

var (
	_ = [1]struct{}{}[unsafe.Sizeof(SGE{})-sizeSGE]
	_ = [1]struct{}{}[unsafe.Sizeof(SendWR{})-sizeSendWR]
	_ = [1]struct{}{}[unsafe.Sizeof(RecvWR{})-sizeRecvWR]
	_ = [1]struct{}{}[unsafe.Sizeof(WC{})-sizeWC]
	_ = [1]struct{}{}[unsafe.Sizeof(PostOp{})-sizePostOp]

	_ = [1]struct{}{}[unsafe.Offsetof(SGE{}.Length)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(SGE{}.LKey)-12]

	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.Next)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.SGList)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.NumSGE)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.Opcode)-28]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.Flags)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.InvalidateRKey)-36]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.RemoteAddr)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.RKey)-48]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.BindMW)-80]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.BindRKey)-88]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.BindMR)-96]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.BindAddr)-104]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.BindLength)-112]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.BindAccess)-120]

	_ = [1]struct{}{}[unsafe.Offsetof(RecvWR{}.Next)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(RecvWR{}.SGList)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(RecvWR{}.NumSGE)-24]

	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.Status)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.Opcode)-12]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.VendorErr)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.ByteLen)-20]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.InvalidatedRKey)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.QPNum)-28]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.SrcQP)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.Flags)-36]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.PKeyIndex)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.SLID)-42]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.SL)-44]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.DLIDPathBits)-45]

	_ = [1]struct{}{}[unsafe.Offsetof(PostOp{}.SRQ)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(PostOp{}.Send)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(PostOp{}.Recv)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(PostOp{}.BadSend)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(PostOp{}.BadRecv)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(PostOp{}.Err)-48]
)
