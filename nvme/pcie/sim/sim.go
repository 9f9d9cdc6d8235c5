// Package sim is an NVMe controller in memory: registers and queues are plain memory that the driver reads and writes as
// it would a drive's, and Step (or Run, on a goroutine) does what the hardware would. It parses PRPs and SGLs on its own,
// sees memory only through an IOMMU of its own, and plays every fault that a test asks for.
//
//	driver ──▶ registers, doorbells (BAR) ──▶ Step ──▶ fetch SQE ──▶ Hook ──▶ execute ──▶ post CQE, interrupt
//	                                            │          through Space: what is not mapped is a fault
package sim

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"rocet/memory"
	"rocet/nvme"
	"rocet/nvme/vfio"
)

// Layout of the BAR.
const (
	barSize   = 0x4000
	msixTable = 0x3000
	msixEntry = 16
)

// Config says what kind of drive it is. Zero values are a plain drive's.
type Config struct {
	Address    string // 0000:00:01.0
	Serial     string
	BlockShift uint8  // 9
	Blocks     uint64 // 8192
	MQES       uint16 // 0-based, 1023
	DSTRD      uint8
	MDTS       uint8
	Queues     int // I/O queues it gives, 16
	Vectors    int // of MSI-X
	SGLS       uint32
	NOIOB      uint16
	AWUN       uint16
	NoCache    bool   // no volatile write cache
	Shadow     bool   // has shadow doorbells
	Metadata   uint16 // bytes for each block
	CSI        nvme.CSI
	Limits     nvme.NVMIdentifyController
	Ready      time.Duration // until RDY follows EN
	NoReset    bool          // no function level reset
}

// Verdict is what a Hook wants done with a command.
type Verdict uint8

// Verdicts.
const (
	Execute   Verdict = iota
	Drop              // never completes; an Abort ends it
	Swallow           // never completes, and an Abort does not find it
	FailMedia         // Unrecovered Read Error, with More and a retry delay set
	BadCID            // completes with a command identifier that nobody used
	BadSQID           // completes with another queue's identifier
	Twice             // completes two times
)

// Hook looks at each command before it is executed, under the controller's lock.
type Hook func(qid uint16, cmd *nvme.Command) Verdict

// Controller is the simulated drive; it is a pcie.Function.
type Controller struct {
	cfg   Config
	space *Space
	regs  unsafe.Pointer

	mu        sync.Mutex
	hook      Hook
	media     []byte
	busMaster bool
	removed   bool
	fatal     bool
	noReady   bool // CC.EN 0 is ignored, and RDY stays as it is
	closed    bool
	enabled   bool
	readyAt   time.Time
	sqs       map[uint16]*sq
	cqs       map[uint16]*cq
	stuck     map[uint32]bool // sqid << 16 | cid of dropped commands: true if an Abort finds them
	aers      []uint16
	events    []nvme.AsyncEvent
	changed   []uint32
	warning   uint8
	eventCfg  uint32
	shadow    uint64 // address of the shadow doorbells, 0: none
	eventIdx  uint64
	eventfds  []int
	pending   []bool
	reqFD     int
	errFD     int
	stop      chan struct{}
	stopped   chan struct{}
	counts    Counts
	cmd       nvme.Command // being handled
}

// Counts is what the controller saw.
type Counts struct {
	Commands [256]uint64 // of I/O queues, by opcode
	PRP, SGL uint64      // commands with data, by kind of pointer
	Blocks   uint64      // largest command with data
	Aborts   uint64
	Enables  uint64
	Resets   uint64
	Shutdown uint64
	Shadowed uint64 // tails that were taken from the shadow
}

type sq struct {
	id, cqid uint16
	base     uint64
	size     uint32
	head     uint32
}

type cq struct {
	id     uint16
	base   uint64
	size   uint32
	tail   uint32
	phase  bool
	vector int // -1: no interrupts
}

// New makes a drive whose DMA goes through space.
func New(space *Space, cfg Config) *Controller {
	def := func(set bool, f func()) {
		if !set {
			f()
		}
	}
	def(cfg.Address != "", func() { cfg.Address = "0000:00:01.0" })
	def(cfg.Serial != "", func() { cfg.Serial = "SIM0001" })
	def(cfg.BlockShift != 0, func() { cfg.BlockShift = 9 })
	def(cfg.Blocks != 0, func() { cfg.Blocks = 8192 })
	def(cfg.MQES != 0, func() { cfg.MQES = 1023 })
	def(cfg.Queues != 0, func() { cfg.Queues = 16 })
	c := &Controller{cfg: cfg, space: space, regs: memory.OffHeap(barSize), media: make([]byte, cfg.Blocks<<cfg.BlockShift), reqFD: -1, errFD: -1}
	c.open()
	return c
}

// open is what opening the function again finds: a controller after reset.
func (c *Controller) open() {
	for _, fd := range []*int{&c.reqFD, &c.errFD} {
		var err error
		if *fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
			panic(err)
		}
	}
	c.closed = false
	c.eventfds, c.pending = nil, make([]bool, c.cfg.Vectors)
	c.resetState()
}

// resetState is what a function level reset leaves.
func (c *Controller) resetState() {
	c.dropQueues()
	c.busMaster, c.fatal = false, false
	for i := uint32(0); i < barSize; i += 4 {
		c.set(i, 0)
	}
	cap := nvme.CAP(0).WithMQES(c.cfg.MQES).WithCQR(true).WithTO(1).WithDSTRD(c.cfg.DSTRD).WithCSS(nvme.CAPCSSNVM|nvme.CAPCSSIOCSS).WithMPS(0, 4)
	c.set(nvme.RegCAP, uint32(cap))
	c.set(nvme.RegCAP+4, uint32(cap>>32))
	c.set(nvme.RegVS, uint32(nvme.Version20))
}

func (c *Controller) dropQueues() {
	c.enabled = false
	c.sqs, c.cqs = make(map[uint16]*sq), make(map[uint16]*cq)
	c.stuck = make(map[uint32]bool)
	c.aers, c.events, c.changed = nil, nil, nil
	c.shadow, c.eventIdx = 0, 0
}

func (c *Controller) reg(offset uint32) *uint32 { return (*uint32)(unsafe.Add(c.regs, offset)) }
func (c *Controller) get(offset uint32) uint32  { return atomic.LoadUint32(c.reg(offset)) }
func (c *Controller) set(offset, v uint32)      { atomic.StoreUint32(c.reg(offset), v) }
func (c *Controller) get64(offset uint32) uint64 {
	return uint64(c.get(offset)) | uint64(c.get(offset+4))<<32
}

// Run steps until Stop.
func (c *Controller) Run() {
	c.stop, c.stopped = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(c.stopped)
		for {
			select {
			case <-c.stop:
				return
			default:
			}
			if c.Step() == 0 {
				time.Sleep(20 * time.Microsecond)
			}
			runtime.Gosched()
		}
	}()
}

// Stop ends Run.
func (c *Controller) Stop() {
	close(c.stop)
	<-c.stopped
}

// Step does what there is to do now, and returns how many commands it took.
func (c *Controller) Step() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.removed {
		for i := uint32(0); i < nvme.RegDoorbells; i += 4 {
			c.set(i, ^uint32(0))
		}
		return 0
	}
	c.stepConfig()
	c.stepInterrupts()
	if !c.enabled || !c.busMaster || c.fatal || nvme.CSTS(c.get(nvme.RegCSTS))&nvme.CSTSReady == 0 {
		return 0
	}
	n := 0
	for qid := uint16(0); int(qid) <= c.cfg.Queues; qid++ {
		if q := c.sqs[qid]; q != nil {
			n += c.stepQueue(q)
		}
	}
	c.postEvents()
	return n
}

func (c *Controller) stepConfig() {
	cc := nvme.CC(c.get(nvme.RegCC))
	st := nvme.CSTS(c.get(nvme.RegCSTS))
	switch {
	case cc.EN() && !c.enabled:
		c.enabled, c.readyAt = true, time.Now().Add(c.cfg.Ready)
		c.counts.Enables++
		aqa := nvme.AQA(c.get(nvme.RegAQA))
		c.cqs[0] = &cq{base: c.get64(nvme.RegACQ), size: uint32(aqa.ACQS()) + 1, phase: true}
		if c.cfg.Vectors == 0 {
			c.cqs[0].vector = -1
		}
		c.sqs[0] = &sq{base: c.get64(nvme.RegASQ), size: uint32(aqa.ASQS()) + 1}
		for i := uint32(0); i < 64; i++ {
			c.set(nvme.RegDoorbells+4*i, 0)
		}
	case !cc.EN() && c.enabled && !c.noReady:
		c.dropQueues()
		c.set(nvme.RegCSTS, uint32(st.WithRDY(false).WithSHST(0).WithCFS(false)))
		c.fatal = false
		return
	}
	if c.enabled && !st.RDY() && !c.noReady && !time.Now().Before(c.readyAt) {
		st = st.WithRDY(true)
	}
	if cc.SHN() != nvme.ShutdownNone && st.SHST() != nvme.ShutdownStatusComplete {
		c.counts.Shutdown++
		st = st.WithSHST(nvme.ShutdownStatusComplete)
	}
	c.set(nvme.RegCSTS, uint32(st.WithCFS(c.fatal)))
}

func (c *Controller) stepInterrupts() {
	for v := range c.pending {
		if c.pending[v] && v < len(c.eventfds) && c.get(msixTable+uint32(v)*msixEntry+12)&1 == 0 {
			c.pending[v] = false
			kick(c.eventfds[v])
		}
	}
}

func (c *Controller) interrupt(vector int) {
	if vector >= 0 && vector < len(c.pending) {
		c.pending[vector] = true
		c.stepInterrupts()
	}
}

func kick(fd int) {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(fd, one[:])
}

// tail returns a queue's tail: from its doorbell, or from the shadow of it.
func (c *Controller) tail(q *sq) uint32 {
	stride := uint64(4) << c.cfg.DSTRD
	if c.shadow != 0 && q.id != 0 {
		at := uint64(q.id) * 2 * stride
		p, ok := c.space.word(c.shadow + at)
		if !ok {
			return q.head
		}
		v := atomic.LoadUint32(p)
		if e, ok := c.space.word(c.eventIdx + at); ok {
			atomic.StoreUint32(e, v-1) // never passed: a controller that polls
		}
		if v != q.head {
			c.counts.Shadowed++
		}
		return v
	}
	return c.get(nvme.DoorbellSQ(q.id, c.cfg.DSTRD))
}

func (c *Controller) cqHead(q *cq) uint32 {
	if c.shadow != 0 && q.id != 0 {
		at := (uint64(q.id)*2 + 1) * (4 << c.cfg.DSTRD)
		if p, ok := c.space.word(c.shadow + at); ok {
			v := atomic.LoadUint32(p)
			if e, ok := c.space.word(c.eventIdx + at); ok {
				atomic.StoreUint32(e, v-1)
			}
			return v
		}
	}
	return c.get(nvme.DoorbellCQ(q.id, c.cfg.DSTRD))
}

func (c *Controller) stepQueue(q *sq) int {
	n := 0
	for tail := c.tail(q); q.head != tail; n++ {
		if tail >= q.size {
			c.fatal = true // an invalid doorbell value
			return n
		}
		done := c.cqs[q.cqid]
		if (done.tail+1)%done.size == c.cqHead(done) {
			return n // no room for its completion
		}
		cmd := &c.cmd // the hook would make it escape
		b, ok := c.space.bytes(q.base+uint64(q.head)*nvme.CommandSize, nvme.CommandSize)
		if !ok {
			c.fatal = true
			return n
		}
		copy(cmd[:], b)
		q.head = (q.head + 1) % q.size
		c.handle(q, cmd)
		if !c.enabled || c.fatal {
			return n
		}
	}
	return n
}

// handle executes a command, unless the hook wants something else.
func (c *Controller) handle(q *sq, cmd *nvme.Command) {
	verdict := Execute
	if c.hook != nil {
		verdict = c.hook(q.id, cmd)
	}
	key := uint32(q.id)<<16 | uint32(cmd.CID())
	switch verdict {
	case Drop, Swallow:
		c.stuck[key] = verdict == Drop
		return
	case FailMedia:
		c.complete(q, cmd.CID(), q.id, 0, nvme.StatusUnrecoveredRead.WithMore().WithCRD(2))
		return
	case BadCID:
		c.complete(q, cmd.CID()^0x8001, q.id, 0, 0)
		return
	case BadSQID:
		c.complete(q, cmd.CID(), q.id+1, 0, 0)
		return
	}
	var dw0 uint32
	var st nvme.Status
	if q.id == 0 {
		var later bool
		if dw0, st, later = c.admin(cmd); later {
			return
		}
	} else {
		st = c.io(cmd)
	}
	c.complete(q, cmd.CID(), q.id, dw0, st)
	if verdict == Twice {
		c.complete(q, cmd.CID(), q.id, dw0, st)
	}
}

func (c *Controller) complete(q *sq, cid, sqid uint16, dw0 uint32, st nvme.Status) {
	done := c.cqs[q.cqid]
	b, ok := c.space.bytes(done.base+uint64(done.tail)*nvme.CompletionSize, nvme.CompletionSize)
	if !ok {
		c.fatal = true
		return
	}
	binary.LittleEndian.PutUint32(b[0:], dw0)
	binary.LittleEndian.PutUint32(b[4:], 0)
	binary.LittleEndian.PutUint32(b[8:], q.head|uint32(sqid)<<16)
	w3 := uint32(cid) | uint32(st)<<17
	if done.phase {
		w3 |= 1 << 16
	}
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&b[12])), w3)
	if done.tail++; done.tail == done.size {
		done.tail, done.phase = 0, !done.phase
	}
	c.interrupt(done.vector)
}

// Function of package pcie.

// Address returns the PCI address.
func (c *Controller) Address() string { return c.cfg.Address }

// MapBAR returns the registers.
func (c *Controller) MapBAR(index int) (*vfio.BAR, error) {
	if index != 0 {
		return nil, fmt.Errorf("sim: there is no BAR %d", index)
	}
	return vfio.PlainBAR(c.regs, barSize), nil
}

// SetBusMaster allows or forbids DMA.
func (c *Controller) SetBusMaster(on bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busMaster = on
	return nil
}

// CanReset tells whether Reset works.
func (c *Controller) CanReset() bool { return !c.cfg.NoReset }

// Reset is a function level reset.
func (c *Controller) Reset() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Resets++
	c.noReady = false
	c.resetState()
	return nil
}

// Vectors returns how many MSI-X vectors there are.
func (c *Controller) Vectors() int { return c.cfg.Vectors }

// EnableMSIX takes the vectors' eventfds.
func (c *Controller) EnableMSIX(fds []int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.eventfds = fds
	return nil
}

// Masks returns the vectors' mask bits.
func (c *Controller) Masks(n int) ([]vfio.Mask, error) {
	masks := make([]vfio.Mask, n)
	for i := range masks {
		masks[i] = vfio.MaskAt(unsafe.Add(c.regs, msixTable+i*msixEntry+12))
	}
	return masks, nil
}

// ErrorFD is what PCIError makes readable.
func (c *Controller) ErrorFD() int { return c.errFD }

// RequestFD is what AskBack makes readable.
func (c *Controller) RequestFD() int { return c.reqFD }

// Close ends the DMA.
func (c *Controller) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.resetState()
	_ = unix.Close(c.reqFD)
	_ = unix.Close(c.errFD)
	c.reqFD, c.errFD, c.eventfds = -1, -1, nil
}
