package nvme

// LBAFormat is an LBA format: NVM Command Set 1.1 section 4.1.5, figure "LBA
// Format Data Structure".
type LBAFormat struct {
	MS    uint16 // metadata bytes per block
	LBADS uint8  // power of two of the block size; 0: the format is not available
	RP    uint8  // relative performance, 0 (best) to 3
}

func (f *LBAFormat) layout(c *codec) {
	c.u16(&f.MS)
	c.u8(&f.LBADS)
	c.u8(&f.RP)
}

// IdentifyNamespace is the NVM command set's Identify Namespace data structure,
// CNS 00h: NVM Command Set 1.1 section 4.1.5. Fields have the
// specification's names.
type IdentifyNamespace struct {
	NSZE     uint64
	NCAP     uint64
	NUSE     uint64
	NSFEAT   uint8
	NLBAF    uint8 // 0-based
	FLBAS    uint8 // see FormatIndex
	MC       uint8
	DPC      uint8
	DPS      uint8
	NMIC     uint8
	RESCAP   uint8
	FPI      uint8
	DLFEAT   uint8
	NAWUN    uint16 // 0-based, as all of these down to NACWU
	NAWUPF   uint16
	NACWU    uint16
	NABSN    uint16 // 0-based; 0: no boundary
	NABO     uint16
	NABSPF   uint16 // 0-based; 0: no boundary
	NOIOB    uint16 // blocks; 0: no boundary
	NVMCAP   Uint128
	NPWG     uint16 // 0-based, as all of these down to NOWS
	NPWA     uint16
	NPDG     uint16
	NPDA     uint16
	NOWS     uint16
	MSSRL    uint16
	MCL      uint32
	MSRC     uint8 // 0-based
	KPIOS    uint8
	NULBAF   uint8
	KPIODAAG uint32
	ANAGRPID uint32
	NSATTR   uint8
	NVMSETID uint16
	ENDGID   uint16
	NGUID    NGUID
	EUI64    EUI64
	LBAF     [64]LBAFormat
	VS       [3712]byte
}

// NSFEAT: namespace features.
const (
	NSFEATThinProvisioning  = 1 << 0
	NSFEATAtomicUnits       = 1 << 1 // NSABP: NAWUN, NAWUPF and NACWU are valid
	NSFEATDeallocatedError  = 1 << 2 // DAE
	NSFEATUIDReuse          = 1 << 3
	NSFEATOptimalUnits      = 1 << 4 // OPTPERF: NPWG to NOWS are valid (also NPDGL with bit 5)
	NSFEATOptimalUnitsLarge = 2 << 4
)

// FLBAS: formatted LBA size.
const (
	FLBASIndexLow      = 0x0f
	FLBASMetadataInEnd = 1 << 4 // MTELBA: metadata follows each block's data
	FLBASIndexHigh     = 3 << 5
)

// MC: metadata capabilities.
const (
	MCExtendedLBA = 1 << 0
	MCSeparate    = 1 << 1
)

// DPS: protection information in use, type 0 (none) to 3, and where it is.
const (
	DPSTypeMask  = 7
	DPSFirstByte = 1 << 3
)

// NMIC: multi-path I/O and sharing.
const (
	NMICShared    = 1 << 0
	NMICDispersed = 1 << 1
)

// RESCAP: reservation capabilities.
const (
	RESCAPPersist            = 1 << 0 // PTPL
	RESCAPWriteExclusive     = 1 << 1
	RESCAPExclusiveAccess    = 1 << 2
	RESCAPWriteExclusiveReg  = 1 << 3
	RESCAPExclusiveAccessReg = 1 << 4
	RESCAPWriteExclusiveAll  = 1 << 5
	RESCAPExclusiveAccessAll = 1 << 6
	RESCAPIgnoreKey13        = 1 << 7 // IEKEY as revision 1.3 defines it
)

// DLFEAT: what reads of deallocated blocks return (bits 2:0), and more.
const (
	DLFEATReadUnreported     = 0
	DLFEATReadZeroes         = 1
	DLFEATReadOnes           = 2
	DLFEATReadMask           = 7
	DLFEATWriteZeroesDealloc = 1 << 3
	DLFEATGuardCRC           = 1 << 4
)

// NSATTR: namespace attributes.
const NSATTRWriteProtected = 1 << 0

// FormatIndex returns which LBAF the namespace is formatted with.
func (x *IdentifyNamespace) FormatIndex() int {
	return int(x.FLBAS&FLBASIndexLow) | int(x.FLBAS&FLBASIndexHigh)>>1
}

// Format returns the LBA format that the namespace is formatted with.
func (x *IdentifyNamespace) Format() LBAFormat { return x.LBAF[x.FormatIndex()] }

// BlockSize returns the bytes of a logical block without metadata, or 0 where
// the format is not available or not one this package can express (2^31 is the
// largest).
func (x *IdentifyNamespace) BlockSize() uint32 {
	ds := x.Format().LBADS
	if ds < 9 || ds > 31 {
		return 0
	}
	return 1 << ds
}

func (x *IdentifyNamespace) layout(c *codec) {
	c.u64(&x.NSZE)
	c.u64(&x.NCAP)
	c.u64(&x.NUSE)
	c.u8(&x.NSFEAT)
	c.u8(&x.NLBAF)
	c.u8(&x.FLBAS)
	c.u8(&x.MC)
	c.u8(&x.DPC)
	c.u8(&x.DPS)
	c.u8(&x.NMIC)
	c.u8(&x.RESCAP)
	c.at(32)
	c.u8(&x.FPI)
	c.u8(&x.DLFEAT)
	c.u16(&x.NAWUN)
	c.u16(&x.NAWUPF)
	c.u16(&x.NACWU)
	c.u16(&x.NABSN)
	c.u16(&x.NABO)
	c.u16(&x.NABSPF)
	c.u16(&x.NOIOB)
	c.at(48)
	c.u128(&x.NVMCAP)
	c.u16(&x.NPWG)
	c.u16(&x.NPWA)
	c.u16(&x.NPDG)
	c.u16(&x.NPDA)
	c.at(72)
	c.u16(&x.NOWS)
	c.u16(&x.MSSRL)
	c.u32(&x.MCL)
	c.u8(&x.MSRC)
	c.u8(&x.KPIOS)
	c.u8(&x.NULBAF)
	c.reserved(84)
	c.u32(&x.KPIODAAG)
	c.reserved(92)
	c.u32(&x.ANAGRPID)
	c.reserved(99)
	c.u8(&x.NSATTR)
	c.at(100)
	c.u16(&x.NVMSETID)
	c.u16(&x.ENDGID)
	c.bytes(x.NGUID[:])
	c.bytes(x.EUI64[:])
	c.at(128)
	for i := range x.LBAF {
		x.LBAF[i].layout(c)
	}
	c.at(384)
	c.bytes(x.VS[:])
}

// MarshalTo writes IdentifySize bytes.
func (x *IdentifyNamespace) MarshalTo(b []byte) int { return encodeTo(b, IdentifySize, x) }

// UnmarshalBinary reads IdentifySize bytes.
func (x *IdentifyNamespace) UnmarshalBinary(b []byte) error {
	return decodeFrom(b, IdentifySize, "Identify Namespace data", x)
}

// NVMIdentifyNamespace is the I/O Command Set specific Identify Namespace data
// structure of the NVM command set, CNS 05h with CSI 00h: NVM Command Set 1.1
// section 4.1.5.
type NVMIdentifyNamespace struct {
	LBSTM  uint64
	PIC    uint8
	PIFA   uint8
	ELBAF  [64]uint32
	NPDGL  uint32
	NPRG   uint32
	NPRA   uint32
	NORS   uint32
	NPDAL  uint32
	LBAPSS uint32
	TLBAAG uint32
}

func (x *NVMIdentifyNamespace) layout(c *codec) {
	c.u64(&x.LBSTM)
	c.u8(&x.PIC)
	c.u8(&x.PIFA)
	c.reserved(12)
	for i := range x.ELBAF {
		c.u32(&x.ELBAF[i])
	}
	c.at(268)
	c.u32(&x.NPDGL)
	c.u32(&x.NPRG)
	c.u32(&x.NPRA)
	c.u32(&x.NORS)
	c.u32(&x.NPDAL)
	c.u32(&x.LBAPSS)
	c.u32(&x.TLBAAG)
	c.reserved(IdentifySize)
}

// MarshalTo writes IdentifySize bytes.
func (x *NVMIdentifyNamespace) MarshalTo(b []byte) int { return encodeTo(b, IdentifySize, x) }

// UnmarshalBinary reads IdentifySize bytes.
func (x *NVMIdentifyNamespace) UnmarshalBinary(b []byte) error {
	return decodeFrom(b, IdentifySize, "NVM command set Identify Namespace data", x)
}

// IndependentNamespace is the I/O Command Set Independent Identify Namespace
// data structure, CNS 08h: Base 2.1 section 5.1.13.2.8.
type IndependentNamespace struct {
	NSFEAT   uint8
	NMIC     uint8
	RESCAP   uint8
	FPI      uint8
	ANAGRPID uint32
	NSATTR   uint8
	NVMSETID uint16
	ENDGID   uint16
	NSTAT    uint8
	KPIOS    uint8
	MAXKT    uint16
	RGRPID   uint32
}

// NSTATReady in NSTAT: the namespace is ready.
const NSTATReady = 1 << 0

// NSFEAT bits of the independent structure that the NVM command set's lacks.
const (
	IndependentNSFEATUIDReuse   = 1 << 3
	IndependentNSFEATRotational = 1 << 4 // RMEDIA
	IndependentNSFEATNoVWC      = 1 << 5 // VWCNP: this namespace has no volatile cache
)

func (x *IndependentNamespace) layout(c *codec) {
	c.u8(&x.NSFEAT)
	c.u8(&x.NMIC)
	c.u8(&x.RESCAP)
	c.u8(&x.FPI)
	c.u32(&x.ANAGRPID)
	c.u8(&x.NSATTR)
	c.reserved(10)
	c.u16(&x.NVMSETID)
	c.u16(&x.ENDGID)
	c.u8(&x.NSTAT)
	c.u8(&x.KPIOS)
	c.u16(&x.MAXKT)
	c.reserved(20)
	c.u32(&x.RGRPID)
	c.reserved(IdentifySize)
}

// MarshalTo writes IdentifySize bytes.
func (x *IndependentNamespace) MarshalTo(b []byte) int { return encodeTo(b, IdentifySize, x) }

// UnmarshalBinary reads IdentifySize bytes.
func (x *IndependentNamespace) UnmarshalBinary(b []byte) error {
	return decodeFrom(b, IdentifySize, "I/O command set independent Identify Namespace data", x)
}
