package nvme

// ControllerType is CNTRLTYPE of Identify Controller.
type ControllerType uint8

// Controller types.
const (
	ControllerIO        ControllerType = 1
	ControllerDiscovery ControllerType = 2
	ControllerAdmin     ControllerType = 3
)

// PowerState is a power state descriptor: Base 2.1 section 5.1.13.2.1, figure
// "Power State Descriptor Data Structure".
type PowerState struct {
	MP    uint16 // maximum power, in centiwatts unless Flags has MXPS
	Flags uint8  // bit 0 MXPS (units of 0.1 mW), bit 1 NOPS (non-operational)
	ENLAT uint32 // entry latency, µs
	EXLAT uint32 // exit latency, µs
	RRT   uint8
	RRL   uint8
	RWT   uint8
	RWL   uint8
	IDLP  uint16
	IPS   uint8
	ACTP  uint16
	APWS  uint8 // active power workload and scale
	EPFRT uint8 // emergency power fail recovery time
	FQVT  uint8 // forced quiescence vault time
	EPFVT uint8 // emergency power fail vault time
	// Scales of these times: FQVTS << 4 | EPFRTS, and EPFVTS.
	EPFRFQVTS uint8
	EPFVTS    uint8
}

// Bits of PowerState.Flags.
const (
	PowerStateFineScale      = 1 << 0 // MXPS
	PowerStateNonOperational = 1 << 1 // NOPS
)

const powerStateSize = 32

func (p *PowerState) layout(c *codec) {
	start := c.off
	c.u16(&p.MP)
	c.reserved(start + 3)
	c.u8(&p.Flags)
	c.u32(&p.ENLAT)
	c.u32(&p.EXLAT)
	c.u8(&p.RRT)
	c.u8(&p.RRL)
	c.u8(&p.RWT)
	c.u8(&p.RWL)
	c.u16(&p.IDLP)
	c.u8(&p.IPS)
	c.reserved(start + 20)
	c.u16(&p.ACTP)
	c.u8(&p.APWS)
	c.u8(&p.EPFRT)
	c.u8(&p.FQVT)
	c.u8(&p.EPFVT)
	c.u8(&p.EPFRFQVTS)
	c.u8(&p.EPFVTS)
	c.reserved(start + powerStateSize)
}

// IdentifyController is the Identify Controller data structure, CNS 01h: Base
// 2.1 section 5.1.13.2.1. Fields have the specification's names.
type IdentifyController struct {
	VID       uint16
	SSVID     uint16
	SN        [20]byte // ASCII: see PutASCII
	MN        [40]byte // ASCII
	FR        [8]byte  // ASCII
	RAB       uint8
	IEEE      [3]byte // little-endian, unlike in EUI64 and NGUID
	CMIC      uint8
	MDTS      uint8 // power of two of CAP.MPSMIN pages; 0: no limit
	CNTLID    uint16
	VER       Version
	RTD3R     uint32
	RTD3E     uint32
	OAES      uint32
	CTRATT    uint32
	RRLS      uint16
	BPCAP     uint8
	NSSL      uint32
	PLSI      uint8
	CNTRLTYPE ControllerType
	FGUID     [16]byte
	CRDT      [3]uint16 // command retry delays 1 to 3, in 100 ms
	CRCAP     uint8
	NVMSR     uint8
	VWCI      uint8
	MEC       uint8

	OACS      uint16
	ACL       uint8 // 0-based
	AERL      uint8 // 0-based
	FRMW      uint8
	LPA       uint8
	ELPE      uint8 // 0-based
	NPSS      uint8 // 0-based
	AVSCC     uint8
	APSTA     uint8
	WCTEMP    uint16 // kelvin
	CCTEMP    uint16 // kelvin
	MTFA      uint16
	HMPRE     uint32
	HMMIN     uint32
	TNVMCAP   Uint128
	UNVMCAP   Uint128
	RPMBS     uint32
	EDSTT     uint16
	DSTO      uint8
	FWUG      uint8
	KAS       uint16 // keep alive granularity in 100 ms; 0: not supported
	HCTMA     uint16
	MNTMT     uint16
	MXTMT     uint16
	SANICAP   uint32
	HMMINDS   uint32
	HMMAXD    uint16
	NSETIDMAX uint16
	ENDGIDMAX uint16
	ANATT     uint8 // seconds
	ANACAP    uint8
	ANAGRPMAX uint32
	NANAGRPID uint32
	PELS      uint32
	DOMAINID  uint16
	KPIOC     uint8
	MPTFAWR   uint16
	MEGCAP    Uint128
	TMPTHHA   uint8
	CQT       uint16

	SQES    uint8 // maximum << 4 | required, powers of two
	CQES    uint8
	MAXCMD  uint16
	NN      uint32
	ONCS    uint16
	FUSES   uint16
	FNA     uint8
	VWC     uint8
	AWUN    uint16 // 0-based
	AWUPF   uint16 // 0-based
	ICSVSCC uint8
	NWPC    uint8
	ACWU    uint16 // 0-based
	CDFS    uint16
	SGLS    uint32
	MNAN    uint32
	MAXDNA  Uint128
	MAXCNA  uint32
	OAQD    uint32
	RHIRI   uint8
	HIRT    uint8
	CMMRTD  uint16
	NMMRTD  uint16
	MINMRTG uint8
	MAXMRTG uint8
	TRATTR  uint8
	MCUDMQ  uint16
	MNSUDMQ uint16
	MCMR    uint16
	NMCMR   uint16
	MCDQPC  uint16
	SUBNQN  NQNField

	IOCCSZ uint32 // 16-byte units
	IORCSZ uint32 // 16-byte units
	ICDOFF uint16 // 16-byte units
	FCATT  uint8
	MSDBD  uint8
	OFCS   uint16
	DCTYPE uint8

	PSD [32]PowerState
	VS  [1024]byte // vendor specific
}

func (x *IdentifyController) layout(c *codec) {
	c.u16(&x.VID)
	c.u16(&x.SSVID)
	c.bytes(x.SN[:])
	c.at(24)
	c.bytes(x.MN[:])
	c.at(64)
	c.bytes(x.FR[:])
	c.at(72)
	c.u8(&x.RAB)
	c.bytes(x.IEEE[:])
	c.u8(&x.CMIC)
	c.u8(&x.MDTS)
	c.u16(&x.CNTLID)
	c.u32((*uint32)(&x.VER))
	c.at(84)
	c.u32(&x.RTD3R)
	c.u32(&x.RTD3E)
	c.u32(&x.OAES)
	c.u32(&x.CTRATT)
	c.at(100)
	c.u16(&x.RRLS)
	c.u8(&x.BPCAP)
	c.reserved(104)
	c.u32(&x.NSSL)
	c.reserved(110)
	c.u8(&x.PLSI)
	c.u8((*uint8)(&x.CNTRLTYPE))
	c.at(112)
	c.bytes(x.FGUID[:])
	c.at(128)
	for i := range x.CRDT {
		c.u16(&x.CRDT[i])
	}
	c.u8(&x.CRCAP)
	c.reserved(253)
	c.u8(&x.NVMSR)
	c.u8(&x.VWCI)
	c.u8(&x.MEC)
	x.layoutAdmin(c)
	x.layoutIO(c)
	x.layoutFabrics(c)
	for i := range x.PSD {
		x.PSD[i].layout(c)
	}
	c.at(3072)
	c.bytes(x.VS[:])
}

// layoutAdmin is "Admin Command Set Attributes & Optional Controller Capabilities".
func (x *IdentifyController) layoutAdmin(c *codec) {
	c.at(256)
	c.u16(&x.OACS)
	c.u8(&x.ACL)
	c.u8(&x.AERL)
	c.u8(&x.FRMW)
	c.u8(&x.LPA)
	c.u8(&x.ELPE)
	c.u8(&x.NPSS)
	c.u8(&x.AVSCC)
	c.u8(&x.APSTA)
	c.at(266)
	c.u16(&x.WCTEMP)
	c.u16(&x.CCTEMP)
	c.u16(&x.MTFA)
	c.u32(&x.HMPRE)
	c.u32(&x.HMMIN)
	c.at(280)
	c.u128(&x.TNVMCAP)
	c.u128(&x.UNVMCAP)
	c.u32(&x.RPMBS)
	c.u16(&x.EDSTT)
	c.u8(&x.DSTO)
	c.u8(&x.FWUG)
	c.at(320)
	c.u16(&x.KAS)
	c.u16(&x.HCTMA)
	c.u16(&x.MNTMT)
	c.u16(&x.MXTMT)
	c.u32(&x.SANICAP)
	c.u32(&x.HMMINDS)
	c.u16(&x.HMMAXD)
	c.u16(&x.NSETIDMAX)
	c.u16(&x.ENDGIDMAX)
	c.at(342)
	c.u8(&x.ANATT)
	c.u8(&x.ANACAP)
	c.u32(&x.ANAGRPMAX)
	c.u32(&x.NANAGRPID)
	c.at(352)
	c.u32(&x.PELS)
	c.u16(&x.DOMAINID)
	c.u8(&x.KPIOC)
	c.reserved(360)
	c.u16(&x.MPTFAWR)
	c.reserved(368)
	c.u128(&x.MEGCAP)
	c.u8(&x.TMPTHHA)
	c.reserved(386)
	c.u16(&x.CQT)
	c.reserved(512)
}

// layoutIO is "NVM Command Set Attributes".
func (x *IdentifyController) layoutIO(c *codec) {
	c.u8(&x.SQES)
	c.u8(&x.CQES)
	c.u16(&x.MAXCMD)
	c.u32(&x.NN)
	c.at(520)
	c.u16(&x.ONCS)
	c.u16(&x.FUSES)
	c.u8(&x.FNA)
	c.u8(&x.VWC)
	c.u16(&x.AWUN)
	c.u16(&x.AWUPF)
	c.u8(&x.ICSVSCC)
	c.u8(&x.NWPC)
	c.u16(&x.ACWU)
	c.u16(&x.CDFS)
	c.at(536)
	c.u32(&x.SGLS)
	c.u32(&x.MNAN)
	c.u128(&x.MAXDNA)
	c.u32(&x.MAXCNA)
	c.u32(&x.OAQD)
	c.at(568)
	c.u8(&x.RHIRI)
	c.u8(&x.HIRT)
	c.u16(&x.CMMRTD)
	c.u16(&x.NMMRTD)
	c.u8(&x.MINMRTG)
	c.u8(&x.MAXMRTG)
	c.u8(&x.TRATTR)
	c.reserved(578)
	c.u16(&x.MCUDMQ)
	c.u16(&x.MNSUDMQ)
	c.u16(&x.MCMR)
	c.u16(&x.NMCMR)
	c.u16(&x.MCDQPC)
	c.reserved(768)
	c.bytes(x.SUBNQN[:])
	c.reserved(1792)
}

// layoutFabrics is "Fabrics Specific".
func (x *IdentifyController) layoutFabrics(c *codec) {
	c.u32(&x.IOCCSZ)
	c.u32(&x.IORCSZ)
	c.u16(&x.ICDOFF)
	c.u8(&x.FCATT)
	c.u8(&x.MSDBD)
	c.u16(&x.OFCS)
	c.u8(&x.DCTYPE)
	c.reserved(2048)
}

// MarshalTo writes IdentifySize bytes.
func (x *IdentifyController) MarshalTo(b []byte) int { return encodeTo(b, IdentifySize, x) }

// UnmarshalBinary reads IdentifySize bytes.
func (x *IdentifyController) UnmarshalBinary(b []byte) error {
	return decodeFrom(b, IdentifySize, "Identify Controller data", x)
}

// NVMIdentifyController is the I/O Command Set specific Identify Controller
// data structure of the NVM command set, CNS 06h with CSI 00h: NVM Command Set
// 1.1 section 4.1.5.
type NVMIdentifyController struct {
	VSL     uint8 // limits: power of two of CAP.MPSMIN pages; 0: none
	WZSL    uint8
	WUSL    uint8
	DMRL    uint8  // ranges of a Dataset Management command
	DMRSL   uint32 // blocks in one range
	DMSL    uint64 // blocks in all ranges
	KPIOCAP uint8
	WZDSL   uint8
	AOCS    uint16
	VER     Version
	LBAMQF  uint8
}

func (x *NVMIdentifyController) layout(c *codec) {
	c.u8(&x.VSL)
	c.u8(&x.WZSL)
	c.u8(&x.WUSL)
	c.u8(&x.DMRL)
	c.u32(&x.DMRSL)
	c.u64(&x.DMSL)
	c.at(16)
	c.u8(&x.KPIOCAP)
	c.u8(&x.WZDSL)
	c.u16(&x.AOCS)
	c.u32((*uint32)(&x.VER))
	c.u8(&x.LBAMQF)
	c.reserved(IdentifySize)
}

// MarshalTo writes IdentifySize bytes.
func (x *NVMIdentifyController) MarshalTo(b []byte) int { return encodeTo(b, IdentifySize, x) }

// UnmarshalBinary reads IdentifySize bytes.
func (x *NVMIdentifyController) UnmarshalBinary(b []byte) error {
	return decodeFrom(b, IdentifySize, "NVM command set Identify Controller data", x)
}
