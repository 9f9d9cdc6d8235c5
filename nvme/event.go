package nvme

// AsyncEventConfig is the Asynchronous Event Configuration feature: bits 7:0 are
// the SMART critical warnings (SMARTSpareLow and so on), the others are those of
// OAES but for the ones below.
type AsyncEventConfig uint32

// Bits of AsyncEventConfig that OAES has not, or has with another meaning: Base
// 2.1 section 5.1.25.1.5.
const (
	EventConfigTelemetry               = 1 << 10
	EventConfigReachabilityAssociation = 1 << 17
	EventConfigReachabilityGroup       = 1 << 18
	EventConfigPullModelDDC            = 1 << 28 // discovery controllers, as the next
	EventConfigAVEDiscovery            = 1 << 29
	EventConfigHostDiscovery           = 1 << 30
)

// Has reports whether all bits of mask are set.
func (c AsyncEventConfig) Has(mask uint32) bool { return uint32(c)&mask == mask }

// AsyncEventType is the type of an asynchronous event: Base 2.1 section 5.1.2,
// figure "Completion Queue Entry Dword 0".
type AsyncEventType uint8

// Asynchronous event types.
const (
	EventError      AsyncEventType = 0
	EventSMART      AsyncEventType = 1
	EventNotice     AsyncEventType = 2
	EventImmediate  AsyncEventType = 3
	EventOneShot    AsyncEventType = 4
	EventCommandSet AsyncEventType = 6
	EventVendor     AsyncEventType = 7
)

// Event information for EventError.
const (
	EventErrorInvalidDoorbell      = 0
	EventErrorInvalidDoorbellValue = 1
	EventErrorDiagnosticFailure    = 2
	EventErrorPersistentInternal   = 3
	EventErrorTransientInternal    = 4
	EventErrorFirmwareLoad         = 5
)

// Event information for EventSMART.
const (
	EventSMARTReliability = 0
	EventSMARTTemperature = 1
	EventSMARTSpare       = 2
)

// Event information for EventNotice.
const (
	EventNoticeNamespaceChanged   = 0x00
	EventNoticeFirmwareActivation = 0x01
	EventNoticeTelemetryChanged   = 0x02
	EventNoticeANAChange          = 0x03
	EventNoticePredictableLatency = 0x04
	EventNoticeLBAStatus          = 0x05
	EventNoticeEnduranceGroup     = 0x06
	EventNoticeReachabilityGroup  = 0x07
	EventNoticeReachabilityAssoc  = 0x08
	EventNoticeAllocatedNS        = 0x09
	EventNoticeZoneDescriptor     = 0xef
	EventNoticeDiscoveryChange    = 0xf0
	EventNoticeHostDiscovery      = 0xf1
	EventNoticeAVEDiscovery       = 0xf2
	EventNoticePullModelDDC       = 0xf3
)

// Event information for EventImmediate.
const (
	EventImmediateNormalShutdown      = 0
	EventImmediateTemperatureRecovery = 1
)

// Event information for EventCommandSet.
const (
	EventReservationLog            = 0
	EventSanitizeCompleted         = 1
	EventSanitizeUnexpectedDealloc = 2
)

const (
	asyncInfoShift = 8
	asyncLogShift  = 16
)

// AsyncEvent is dword 0 of an Asynchronous Event Request's completion:
// log page in bits 23:16, information in bits 15:8, type in bits 2:0. Dword 1 is
// a parameter specific to the event.
type AsyncEvent uint32

// MakeAsyncEvent builds an event. Reading log with RAE 0 re-arms it.
func MakeAsyncEvent(t AsyncEventType, info uint8, log LogID) AsyncEvent {
	return AsyncEvent(t&7) | AsyncEvent(info)<<asyncInfoShift | AsyncEvent(log)<<asyncLogShift
}

// Type returns the event's type.
func (e AsyncEvent) Type() AsyncEventType { return AsyncEventType(e & 7) }

// Info returns the event's information.
func (e AsyncEvent) Info() uint8 { return uint8(e >> asyncInfoShift) }

// Log returns the log page that goes with the event.
func (e AsyncEvent) Log() LogID { return LogID(e >> asyncLogShift) }

// Events that targets send.
const (
	AsyncNamespaceChanged = AsyncEvent(EventNotice) | EventNoticeNamespaceChanged<<asyncInfoShift | AsyncEvent(LogChangedNamespaces)<<asyncLogShift
	AsyncANAChange        = AsyncEvent(EventNotice) | EventNoticeANAChange<<asyncInfoShift | AsyncEvent(LogANA)<<asyncLogShift
	AsyncDiscoveryChange  = AsyncEvent(EventNotice) | EventNoticeDiscoveryChange<<asyncInfoShift | AsyncEvent(LogDiscovery)<<asyncLogShift
	AsyncReservationLog   = AsyncEvent(EventCommandSet) | EventReservationLog<<asyncInfoShift | AsyncEvent(LogReservation)<<asyncLogShift
)
