package nvme

// Sizes of log pages.
const (
	ErrorLogEntrySize     = 64
	SMARTLogSize          = 512
	FirmwareSlotLogSize   = 512
	CommandEffectsSize    = 4096
	SupportedLogsSize     = 1024
	FeatureEffectsSize    = 1024
	ReservationLogSize    = 64
	ChangedNSLogSize      = IdentifySize
	ChangedNSLogOverflow  = 0xffffffff // alone in the list: more than MaxNSIDList changed
	ErrorLogNotACommandID = 0xffff     // SQID and CID of errors without a command
)

// ErrorLogEntry is an entry of the Error Information log, 01h: Base 2.1 section
// 5.1.12.1.2.
type ErrorLogEntry struct {
	Count       uint64 // 0: the entry is not valid
	SQID        uint16 // ErrorLogNotACommandID if there is no command
	CID         uint16
	Status      Status
	Phase       bool   // phase bit of the completion
	Location    uint16 // parameter error location: byte | bit << 8
	LBA         uint64
	NSID        uint32
	VendorLog   uint8 // log page with more information
	TRTYPE      TransportType
	CSI         CSI
	Opcode      Opcode
	Specific    uint64 // command specific information
	TRTYPEInfo  uint16
	PageVersion uint8 // 1: CSI and Opcode are valid
}

// ErrorLogVersion is what PageVersion is when CSI and Opcode are valid.
const ErrorLogVersion = 1

func (e *ErrorLogEntry) layout(c *codec) {
	c.u64(&e.Count)
	c.u16(&e.SQID)
	c.u16(&e.CID)
	status := e.Status.Wire() | uint16(bit(e.Phase))
	c.u16(&status)
	if !c.encode {
		e.Status, e.Phase = StatusFromWire(status), status&1 != 0
	}
	c.u16(&e.Location)
	c.at(16)
	c.u64(&e.LBA)
	c.u32(&e.NSID)
	c.u8(&e.VendorLog)
	c.u8((*uint8)(&e.TRTYPE))
	c.u8((*uint8)(&e.CSI))
	c.u8((*uint8)(&e.Opcode))
	c.at(32)
	c.u64(&e.Specific)
	c.u16(&e.TRTYPEInfo)
	c.reserved(63)
	c.u8(&e.PageVersion)
}

// MarshalTo writes ErrorLogEntrySize bytes.
func (e *ErrorLogEntry) MarshalTo(b []byte) int { return encodeTo(b, ErrorLogEntrySize, e) }

// UnmarshalBinary reads ErrorLogEntrySize bytes.
func (e *ErrorLogEntry) UnmarshalBinary(b []byte) error {
	return decodeFrom(b, ErrorLogEntrySize, "Error Information log entry", e)
}

// Bits of SMARTLog.CriticalWarning; the same bits enable the events in the
// Asynchronous Event Configuration feature.
const (
	SMARTSpareLow         = 1 << 0
	SMARTTemperature      = 1 << 1
	SMARTDegraded         = 1 << 2
	SMARTReadOnly         = 1 << 3
	SMARTBackupFailed     = 1 << 4
	SMARTPersistentRegion = 1 << 5
)

// SMARTLog is the SMART / Health Information log, 02h: Base 2.1 section
// 5.1.12.1.3.
type SMARTLog struct {
	CriticalWarning         uint8
	Temperature             uint16 // kelvin
	AvailableSpare          uint8  // percent
	SpareThreshold          uint8  // percent
	PercentageUsed          uint8
	EnduranceWarning        uint8
	DataUnitsRead           Uint128 // thousands of 512 bytes, rounded up
	DataUnitsWritten        Uint128
	HostReads               Uint128
	HostWrites              Uint128
	BusyTime                Uint128 // minutes
	PowerCycles             Uint128
	PowerOnHours            Uint128
	UnsafeShutdowns         Uint128
	MediaErrors             Uint128
	ErrorLogEntries         Uint128
	WarningTemperatureTime  uint32 // minutes
	CriticalTemperatureTime uint32 // minutes
	TemperatureSensor       [8]uint16
	ThermalTransitions      [2]uint32
	ThermalTime             [2]uint32 // seconds
}

func (l *SMARTLog) layout(c *codec) {
	c.u8(&l.CriticalWarning)
	c.u16(&l.Temperature)
	c.u8(&l.AvailableSpare)
	c.u8(&l.SpareThreshold)
	c.u8(&l.PercentageUsed)
	c.u8(&l.EnduranceWarning)
	c.reserved(32)
	for _, v := range []*Uint128{
		&l.DataUnitsRead, &l.DataUnitsWritten, &l.HostReads, &l.HostWrites, &l.BusyTime,
		&l.PowerCycles, &l.PowerOnHours, &l.UnsafeShutdowns, &l.MediaErrors, &l.ErrorLogEntries,
	} {
		c.u128(v)
	}
	c.at(192)
	c.u32(&l.WarningTemperatureTime)
	c.u32(&l.CriticalTemperatureTime)
	for i := range l.TemperatureSensor {
		c.u16(&l.TemperatureSensor[i])
	}
	c.at(216)
	c.u32(&l.ThermalTransitions[0])
	c.u32(&l.ThermalTransitions[1])
	c.u32(&l.ThermalTime[0])
	c.u32(&l.ThermalTime[1])
	c.reserved(SMARTLogSize)
}

// MarshalTo writes SMARTLogSize bytes.
func (l *SMARTLog) MarshalTo(b []byte) int { return encodeTo(b, SMARTLogSize, l) }

// UnmarshalBinary reads SMARTLogSize bytes.
func (l *SMARTLog) UnmarshalBinary(b []byte) error {
	return decodeFrom(b, SMARTLogSize, "SMART / Health Information log", l)
}

// FirmwareSlotLog is the Firmware Slot Information log, 03h: Base 2.1 section
// 5.1.12.1.4.
type FirmwareSlotLog struct {
	AFI  uint8      // bits 2:0 active slot, bits 6:4 slot of the next reset
	Slot [7][8]byte // ASCII revisions of slots 1 to 7; zeros: empty
}

func (l *FirmwareSlotLog) layout(c *codec) {
	c.u8(&l.AFI)
	c.reserved(8)
	for i := range l.Slot {
		c.bytes(l.Slot[i][:])
	}
	c.at(64)
	c.reserved(FirmwareSlotLogSize)
}

// MarshalTo writes FirmwareSlotLogSize bytes.
func (l *FirmwareSlotLog) MarshalTo(b []byte) int { return encodeTo(b, FirmwareSlotLogSize, l) }

// UnmarshalBinary reads FirmwareSlotLogSize bytes.
func (l *FirmwareSlotLog) UnmarshalBinary(b []byte) error {
	return decodeFrom(b, FirmwareSlotLogSize, "Firmware Slot Information log", l)
}

// ReservationNotification is a reservation notification's type.
type ReservationNotification uint8

// Reservation notification types.
const (
	ReservationLogEmpty              ReservationNotification = 0
	ReservationRegistrationPreempted ReservationNotification = 1
	ReservationReleased              ReservationNotification = 2
	ReservationPreempted             ReservationNotification = 3
)

// ReservationLog is the Reservation Notification log, 80h: Base 2.1 section
// 5.1.12.1.32.
type ReservationLog struct {
	Count     uint64 // wraps to 1; 0 only in an empty page
	Type      ReservationNotification
	Available uint8 // further pages, at most 255
	NSID      uint32
}

func (l *ReservationLog) layout(c *codec) {
	c.u64(&l.Count)
	c.u8((*uint8)(&l.Type))
	c.u8(&l.Available)
	c.reserved(12)
	c.u32(&l.NSID)
	c.reserved(ReservationLogSize)
}

// MarshalTo writes ReservationLogSize bytes.
func (l *ReservationLog) MarshalTo(b []byte) int { return encodeTo(b, ReservationLogSize, l) }

// UnmarshalBinary reads ReservationLogSize bytes.
func (l *ReservationLog) UnmarshalBinary(b []byte) error {
	return decodeFrom(b, ReservationLogSize, "Reservation Notification log", l)
}
