package nvme

import "fmt"

// TransportType is TRTYPE of a discovery log entry: Base 2.1 section
// 5.1.12.3.1, figure "Discovery Log Page Entry Data Structure".
type TransportType uint8

// Transport types.
const (
	TransportUnspecified TransportType = 0
	TransportRDMA        TransportType = 1
	TransportFC          TransportType = 2
	TransportTCP         TransportType = 3
	TransportLoop        TransportType = 254
)

func (t TransportType) String() string {
	switch t {
	case TransportUnspecified:
		return "unspecified"
	case TransportRDMA:
		return "rdma"
	case TransportFC:
		return "fc"
	case TransportTCP:
		return "tcp"
	case TransportLoop:
		return "loop"
	}
	return unknownName("transport type", uint64(t))
}

// AddressFamily is ADRFAM of a discovery log entry.
type AddressFamily uint8

// Address families.
const (
	AddressPCI  AddressFamily = 0
	AddressIPv4 AddressFamily = 1
	AddressIPv6 AddressFamily = 2
	AddressIB   AddressFamily = 3
	AddressFC   AddressFamily = 4
	AddressLoop AddressFamily = 254
)

func (f AddressFamily) String() string {
	switch f {
	case AddressPCI:
		return "pci"
	case AddressIPv4:
		return "ipv4"
	case AddressIPv6:
		return "ipv6"
	case AddressIB:
		return "ib"
	case AddressFC:
		return "fc"
	case AddressLoop:
		return "loop"
	}
	return unknownName("address family", uint64(f))
}

// SubsystemType is SUBTYPE of a discovery log entry.
type SubsystemType uint8

// Subsystem types.
const (
	SubsystemReferral         SubsystemType = 1 // another discovery service
	SubsystemNVM              SubsystemType = 2
	SubsystemCurrentDiscovery SubsystemType = 3 // this discovery service
)

func (t SubsystemType) String() string {
	switch t {
	case SubsystemReferral:
		return "discovery subsystem referral"
	case SubsystemNVM:
		return "nvme subsystem"
	case SubsystemCurrentDiscovery:
		return "current discovery subsystem"
	}
	return unknownName("subsystem type", uint64(t))
}

// TREQ: transport requirements of a discovery log entry.
const (
	TREQSecureNotSpecified = 0 // bits 1:0, TSC
	TREQSecureRequired     = 1
	TREQSecureNotRequired  = 2
	TREQDisableSQFlow      = 1 << 2 // SQFCD: the controller can do without SQ flow control
	TREQZeroHostID         = 1 << 3 // ZHIDS: a host identifier of 0 is accepted
	TREQAuthRequired       = 1 << 4 // bits 5:4, TASC
	TREQAuthAndSecure      = 2 << 4 // authentication, then a secure channel
)

// EFLAGS of a discovery log entry.
const (
	EFLAGSDuplicateInfo        = 1 << 0 // DUPRETINFO
	EFLAGSPersistentConnection = 1 << 1 // EPCSD
	EFLAGSNoCDCConnectivity    = 1 << 2 // NCC
)

// Bits of Get Log Page's LSP for the discovery log.
const (
	DiscoveryLSPExtended      = 1 << 0 // EXTDLPE
	DiscoveryLSPPortLocal     = 1 << 1 // PLEO
	DiscoveryLSPAllSubsystems = 1 << 2 // ALLSUBE
)

// TSAS fields of RDMA: RDMA Transport 1.1, figure "Transport Specific Address
// Subtype Definition".
const (
	RDMAQPTypeConnected = 1
	RDMAQPTypeDatagram  = 2

	RDMAProviderUnspecified = 1
	RDMAProviderInfiniBand  = 2
	RDMAProviderRoCE        = 3
	RDMAProviderRoCEv2      = 4
	RDMAProviderIWARP       = 5

	RDMACMSRDMACM = 1
)

// SECTYPE in the TSAS field of TCP: TCP Transport 1.1 section 3.6.1.1.
const (
	TCPSecurityNone  = 0
	TCPSecurityTLS12 = 1
	TCPSecurityTLS13 = 2
)

// TSAS is the transport specific address subtype of a discovery log entry.
type TSAS [256]byte

// RDMATSAS returns TSAS of RDMA; pkey is for the InfiniBand address family only.
func RDMATSAS(qpType, provider, cms uint8, pkey uint16) TSAS {
	return TSAS{0: qpType, 1: provider, 2: cms, 8: byte(pkey), 9: byte(pkey >> 8)}
}

// TCPTSAS returns TSAS of TCP.
func TCPTSAS(sectype uint8) TSAS { return TSAS{0: sectype} }

// Sizes of the discovery log.
const (
	DiscoveryHeaderSize = 1024
	DiscoveryEntrySize  = 1024
)

// DiscoveryASQSZMin is the smallest ASQSZ that an entry may have.
const DiscoveryASQSZMin = 32

// DiscoveryEntry is a discovery log page entry.
type DiscoveryEntry struct {
	TRTYPE  TransportType
	ADRFAM  AddressFamily
	SUBTYPE SubsystemType
	TREQ    uint8
	PORTID  uint16
	CNTLID  uint16 // CNTLIDDynamic
	ASQSZ   uint16
	EFLAGS  uint16
	TRSVCID [32]byte // ASCII: see PutASCII
	SUBNQN  NQNField
	TRADDR  [256]byte // ASCII
	TSAS    TSAS
}

func (e *DiscoveryEntry) layout(c *codec) {
	c.u8((*uint8)(&e.TRTYPE))
	c.u8((*uint8)(&e.ADRFAM))
	c.u8((*uint8)(&e.SUBTYPE))
	c.u8(&e.TREQ)
	c.u16(&e.PORTID)
	c.u16(&e.CNTLID)
	c.u16(&e.ASQSZ)
	c.u16(&e.EFLAGS)
	c.reserved(32)
	c.bytes(e.TRSVCID[:])
	c.reserved(256)
	c.bytes(e.SUBNQN[:])
	c.bytes(e.TRADDR[:])
	c.at(768)
	c.bytes(e.TSAS[:])
}

// MarshalTo writes DiscoveryEntrySize bytes.
func (e *DiscoveryEntry) MarshalTo(b []byte) int { return encodeTo(b, DiscoveryEntrySize, e) }

// UnmarshalBinary reads DiscoveryEntrySize bytes.
func (e *DiscoveryEntry) UnmarshalBinary(b []byte) error {
	return decodeFrom(b, DiscoveryEntrySize, "discovery log entry", e)
}

// DiscoveryHeader is the beginning of the discovery log, 70h.
type DiscoveryHeader struct {
	GENCTR uint64
	NUMREC uint64
	RECFMT uint16 // 0
}

func (h *DiscoveryHeader) layout(c *codec) {
	c.u64(&h.GENCTR)
	c.u64(&h.NUMREC)
	c.u16(&h.RECFMT)
	c.reserved(DiscoveryHeaderSize)
}

// MarshalTo writes DiscoveryHeaderSize bytes.
func (h *DiscoveryHeader) MarshalTo(b []byte) int { return encodeTo(b, DiscoveryHeaderSize, h) }

// UnmarshalBinary reads DiscoveryHeaderSize bytes.
func (h *DiscoveryHeader) UnmarshalBinary(b []byte) error {
	return decodeFrom(b, DiscoveryHeaderSize, "discovery log header", h)
}

// DiscoveryLog is a whole discovery log.
type DiscoveryLog struct {
	GENCTR  uint64
	Entries []DiscoveryEntry
}

// Size returns how many bytes MarshalTo writes.
func (l *DiscoveryLog) Size() int { return DiscoveryHeaderSize + len(l.Entries)*DiscoveryEntrySize }

// MarshalTo writes Size bytes.
func (l *DiscoveryLog) MarshalTo(b []byte) int {
	h := DiscoveryHeader{GENCTR: l.GENCTR, NUMREC: uint64(len(l.Entries))}
	n := h.MarshalTo(b)
	for i := range l.Entries {
		n += l.Entries[i].MarshalTo(b[n:])
	}
	return n
}

// UnmarshalBinary reads a whole log of record format 0; bytes after it are ignored.
func (l *DiscoveryLog) UnmarshalBinary(b []byte) error {
	var h DiscoveryHeader
	if err := h.UnmarshalBinary(b); err != nil {
		return err
	}
	if h.RECFMT != 0 {
		return fmt.Errorf("discovery log: record format %d is not known, only 0 is", h.RECFMT)
	}
	b = b[DiscoveryHeaderSize:]
	if h.NUMREC > uint64(len(b)/DiscoveryEntrySize) {
		return fmt.Errorf("discovery log: %d records, %d bytes are left for them", h.NUMREC, len(b))
	}
	log := DiscoveryLog{GENCTR: h.GENCTR, Entries: make([]DiscoveryEntry, h.NUMREC)}
	for i := range log.Entries {
		if err := log.Entries[i].UnmarshalBinary(b[i*DiscoveryEntrySize:]); err != nil {
			return err
		}
	}
	*l = log
	return nil
}
