package nvme

// Status is the status field of a completion without the phase bit:
//
//	14   13  12:11  10:8  7:0
//	DNR  M   CRD    SCT   SC
//
// (Base 2.1 section 4.2.3, figure "Completion Queue Entry: Status Field"). The
// constants below hold SCT and SC.
type Status uint16

// Parts of a Status.
const (
	StatusCodeMask  Status = 0x07ff // SCT and SC
	StatusCRDMask   Status = 3 << 11
	StatusMore      Status = 1 << 13
	StatusDNR       Status = 1 << 14
	statusCRDShift         = 11
	statusTypeShift        = 8
)

// Status code types.
const (
	SCTGeneric         = 0
	SCTCommandSpecific = 1
	SCTMedia           = 2
	SCTPath            = 3
	SCTVendor          = 7
)

// MakeStatus builds a Status of a status code type and a status code.
func MakeStatus(sct, sc uint8) Status { return Status(sct&7)<<statusTypeShift | Status(sc) }

// SCT returns the status code type.
func (s Status) SCT() uint8 { return uint8(s>>statusTypeShift) & 7 }

// SC returns the status code.
func (s Status) SC() uint8 { return uint8(s) }

// Code returns SCT and SC alone: compare it with the constants.
func (s Status) Code() Status { return s & StatusCodeMask }

// IsOK reports success.
func (s Status) IsOK() bool { return s&StatusCodeMask == StatusSuccess }

// DNR reports whether the host must not retry the command.
func (s Status) DNR() bool { return s&StatusDNR != 0 }

// More reports that the Error Information log holds more about this.
func (s Status) More() bool { return s&StatusMore != 0 }

// CRD returns the command retry delay index, 0 to 3.
func (s Status) CRD() uint8 { return uint8(s >> statusCRDShift & 3) }

// WithDNR returns the status with Do Not Retry set.
func (s Status) WithDNR() Status { return s | StatusDNR }

// WithMore returns the status with More set.
func (s Status) WithMore() Status { return s | StatusMore }

// WithCRD returns the status with a command retry delay index, 0 to 3.
func (s Status) WithCRD(i uint8) Status { return s&^StatusCRDMask | Status(i&3)<<statusCRDShift }

// Wire returns bytes 14 and 15 of a completion, with the phase bit 0.
func (s Status) Wire() uint16 { return uint16(s) << 1 }

// StatusFromWire is the inverse of Wire; it drops the phase bit.
func StatusFromWire(w uint16) Status { return Status(w >> 1) }

// Generic command status, SCT 0h: Base 2.1 section 4.2.3.1, and the I/O command
// set's values from 80h on.
const (
	StatusSuccess                    Status = 0x000
	StatusInvalidOpcode              Status = 0x001
	StatusInvalidField               Status = 0x002
	StatusCIDConflict                Status = 0x003
	StatusDataTransferError          Status = 0x004
	StatusAbortedPowerLoss           Status = 0x005
	StatusInternalError              Status = 0x006
	StatusAbortedByRequest           Status = 0x007
	StatusAbortedSQDeletion          Status = 0x008
	StatusAbortedFailedFused         Status = 0x009
	StatusAbortedMissingFused        Status = 0x00a
	StatusInvalidNamespace           Status = 0x00b
	StatusCommandSequenceError       Status = 0x00c
	StatusInvalidSGLSegment          Status = 0x00d
	StatusInvalidSGLCount            Status = 0x00e
	StatusSGLDataLength              Status = 0x00f
	StatusSGLMetadataLength          Status = 0x010
	StatusInvalidSGLType             Status = 0x011
	StatusInvalidCMBUse              Status = 0x012
	StatusPRPOffset                  Status = 0x013
	StatusAtomicWriteUnitExceeded    Status = 0x014
	StatusOperationDenied            Status = 0x015
	StatusSGLOffset                  Status = 0x016
	StatusHostIDInconsistentFormat   Status = 0x018
	StatusKeepAliveExpired           Status = 0x019
	StatusKeepAliveInvalid           Status = 0x01a
	StatusAbortedPreemptAbort        Status = 0x01b
	StatusSanitizeFailed             Status = 0x01c
	StatusSanitizeInProgress         Status = 0x01d
	StatusSGLGranularity             Status = 0x01e
	StatusNotSupportedInCMBQueue     Status = 0x01f
	StatusNamespaceWriteProtected    Status = 0x020
	StatusInterrupted                Status = 0x021
	StatusTransientTransport         Status = 0x022
	StatusProhibitedByLockdown       Status = 0x023
	StatusAdminMediaNotReady         Status = 0x024
	StatusInvalidKeyTag              Status = 0x025
	StatusHostDispersedNSNotEnabled  Status = 0x026
	StatusHostIDNotInitialized       Status = 0x027
	StatusIncorrectKey               Status = 0x028
	StatusFDPDisabled                Status = 0x029
	StatusInvalidPlacementHandleList Status = 0x02a
	StatusLBAOutOfRange              Status = 0x080
	StatusCapacityExceeded           Status = 0x081
	StatusNamespaceNotReady          Status = 0x082
	StatusReservationConflict        Status = 0x083
	StatusFormatInProgress           Status = 0x084
	StatusInvalidValueSize           Status = 0x085
	StatusInvalidKeySize             Status = 0x086
	StatusKeyDoesNotExist            Status = 0x087
	StatusUnrecoveredError           Status = 0x088
	StatusKeyExists                  Status = 0x089
)

// Command specific status, SCT 1h: Base 2.1 section 4.2.3.2. Values from 80h on
// mean one thing on I/O commands and another on fabrics commands.
const (
	StatusInvalidCQ                    Status = 0x100
	StatusInvalidQID                   Status = 0x101
	StatusInvalidQueueSize             Status = 0x102
	StatusAbortLimitExceeded           Status = 0x103
	StatusAERLimitExceeded             Status = 0x105
	StatusInvalidFirmwareSlot          Status = 0x106
	StatusInvalidFirmwareImage         Status = 0x107
	StatusInvalidInterruptVector       Status = 0x108
	StatusInvalidLogPage               Status = 0x109
	StatusInvalidFormat                Status = 0x10a
	StatusFirmwareNeedsReset           Status = 0x10b
	StatusInvalidQueueDeletion         Status = 0x10c
	StatusFeatureNotSaveable           Status = 0x10d
	StatusFeatureNotChangeable         Status = 0x10e
	StatusFeatureNotPerNamespace       Status = 0x10f
	StatusFirmwareNeedsSubsystemReset  Status = 0x110
	StatusFirmwareNeedsControllerReset Status = 0x111
	StatusFirmwareNeedsMaxTime         Status = 0x112
	StatusFirmwareActivationProhibited Status = 0x113
	StatusOverlappingRange             Status = 0x114
	StatusNSInsufficientCapacity       Status = 0x115
	StatusNSIDUnavailable              Status = 0x116
	StatusNSAlreadyAttached            Status = 0x118
	StatusNSIsPrivate                  Status = 0x119
	StatusNSNotAttached                Status = 0x11a
	StatusThinProvisioningNotSupported Status = 0x11b
	StatusControllerListInvalid        Status = 0x11c
	StatusSelfTestInProgress           Status = 0x11d
	StatusBootPartitionWriteProhibited Status = 0x11e
	StatusInvalidControllerID          Status = 0x11f
	StatusInvalidSecondaryState        Status = 0x120
	StatusInvalidControllerResources   Status = 0x121
	StatusInvalidResourceID            Status = 0x122
	StatusSanitizeProhibitedByPMR      Status = 0x123
	StatusANAGroupInvalid              Status = 0x124
	StatusANAAttachFailed              Status = 0x125
	StatusInsufficientCapacity         Status = 0x126
	StatusNSAttachmentLimitExceeded    Status = 0x127
	StatusLockdownNotSupported         Status = 0x128
	StatusCommandSetNotSupported       Status = 0x129
	StatusCommandSetNotEnabled         Status = 0x12a
	StatusCommandSetCombination        Status = 0x12b
	StatusInvalidCommandSet            Status = 0x12c
	StatusIdentifierUnavailable        Status = 0x12d
	StatusNamespaceIsDispersed         Status = 0x12e
	StatusInvalidDiscoveryInfo         Status = 0x12f
	StatusZoningDataLocked             Status = 0x130
	StatusZoningDataNotFound           Status = 0x131
	StatusInsufficientDiscovery        Status = 0x132
	StatusFunctionDisabled             Status = 0x133
	StatusZoneGroupOriginator          Status = 0x134
	StatusInvalidHost                  Status = 0x135
	StatusInvalidNVMSubsystem          Status = 0x136
	StatusInvalidControllerDataQueue   Status = 0x137
	StatusNotEnoughResources           Status = 0x138
	StatusControllerSuspended          Status = 0x139
	StatusControllerNotSuspended       Status = 0x13a
	StatusControllerDataQueueFull      Status = 0x13b

	// I/O commands: Base 2.1 section 4.2.3.2, without those of the computational
	// programs command set.
	StatusConflictingAttributes    Status = 0x180
	StatusInvalidProtectionInfo    Status = 0x181
	StatusWriteToReadOnlyRange     Status = 0x182
	StatusCommandSizeLimitExceeded Status = 0x183
	StatusInvalidCommandID         Status = 0x184
	StatusIncompatibleNamespace    Status = 0x185
	StatusFastCopyNotPossible      Status = 0x186
	StatusOverlappingIORange       Status = 0x187
	StatusNamespaceNotReachable    Status = 0x188
	StatusInsufficientResources    Status = 0x189
	StatusZoneBoundaryError        Status = 0x1b8
	StatusZoneFull                 Status = 0x1b9
	StatusZoneReadOnly             Status = 0x1ba
	StatusZoneOffline              Status = 0x1bb
	StatusZoneInvalidWrite         Status = 0x1bc
	StatusTooManyActiveZones       Status = 0x1bd
	StatusTooManyOpenZones         Status = 0x1be
	StatusInvalidZoneTransition    Status = 0x1bf

	// Fabrics commands: Base 2.1 section 4.2.3.2, figure "Command Specific Status
	// Values, Fabrics Commands".
	StatusConnectIncompatibleFormat Status = 0x180
	StatusConnectControllerBusy     Status = 0x181
	StatusConnectInvalidParameters  Status = 0x182
	StatusConnectRestartDiscovery   Status = 0x183
	StatusConnectInvalidHost        Status = 0x184
	StatusInvalidQueueType          Status = 0x185
	StatusDiscoveryRestart          Status = 0x190
	StatusAuthRequired              Status = 0x191
)

// Media and data integrity errors, SCT 2h: Base 2.1 section 4.2.3.3.
const (
	StatusWriteFault      Status = 0x280
	StatusUnrecoveredRead Status = 0x281
	StatusGuardCheck      Status = 0x282
	StatusAppTagCheck     Status = 0x283
	StatusRefTagCheck     Status = 0x284
	StatusCompareFailure  Status = 0x285
	StatusAccessDenied    Status = 0x286
	StatusUnwrittenBlock  Status = 0x287
	StatusStorageTagCheck Status = 0x288
)

// Path related status, SCT 3h: Base 2.1 section 4.2.3.4.
const (
	StatusInternalPath      Status = 0x300
	StatusANAPersistentLoss Status = 0x301
	StatusANAInaccessible   Status = 0x302
	StatusANATransition     Status = 0x303
	StatusControllerPath    Status = 0x360
	StatusHostPath          Status = 0x370
	StatusHostAborted       Status = 0x371
)
