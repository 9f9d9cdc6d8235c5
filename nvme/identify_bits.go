package nvme

// Bits of Identify Controller's fields: Base 2.1 section 5.1.13.2.1, figure
// "Identify Controller Data Structure".

// CMIC: multi-path I/O and namespace sharing.
const (
	CMICMultiPort       = 1 << 0
	CMICMultiController = 1 << 1
	CMICVirtualFunction = 1 << 2
	CMICANA             = 1 << 3
)

// OAES: optional asynchronous events supported. The same bits enable the events
// in the Asynchronous Event Configuration feature; see AsyncEventConfig for
// those that are in the feature only.
const (
	OAESNamespaceAttribute  = 1 << 8
	OAESFirmwareActivation  = 1 << 9
	OAESANAChange           = 1 << 11
	OAESPredictableLatency  = 1 << 12
	OAESLBAStatus           = 1 << 13
	OAESEnduranceGroup      = 1 << 14
	OAESNormalShutdown      = 1 << 15
	OAESTemperatureRecovery = 1 << 16
	OAESReachabilityGroups  = 1 << 17 // of groups and associations
	OAESAllocatedNamespaces = 1 << 19
	OAESZoneDescriptor      = 1 << 27
	OAESDiscoveryChange     = 1 << 31
)

// CTRATT: controller attributes.
const (
	CTRATTHostID128            = 1 << 0  // HIDS
	CTRATTNonOpPowerState      = 1 << 1  // NOPSPM
	CTRATTNVMSets              = 1 << 2  // NSETS
	CTRATTReadRecoveryLevels   = 1 << 3  // RRLVLS
	CTRATTEnduranceGroups      = 1 << 4  // EGS
	CTRATTPredictableLatency   = 1 << 5  // PLM
	CTRATTTrafficKeepAlive     = 1 << 6  // TBKAS
	CTRATTNamespaceGranularity = 1 << 7  // NG
	CTRATTSQAssociations       = 1 << 8  // SQA
	CTRATTUUIDList             = 1 << 9  // ULIST
	CTRATTMultiDomain          = 1 << 10 // MDS
	CTRATTFixedCapacity        = 1 << 11 // FCM
	CTRATTVariableCapacity     = 1 << 12 // VCM
	CTRATTDeleteEnduranceGroup = 1 << 13 // DEG
	CTRATTDeleteNVMSet         = 1 << 14 // DNVMS
	CTRATTExtendedLBAFormats   = 1 << 15 // ELBAS
	CTRATTExcludeMetadata      = 1 << 16 // MEM
	CTRATTHMBRestrict          = 1 << 17 // HMBR
	CTRATTHostIDInteraction    = 1 << 18 // RHII
	CTRATTFlexiblePlacement    = 1 << 19 // FDPS
)

// OACS: optional admin command support.
const (
	OACSSecurity       = 1 << 0
	OACSFormat         = 1 << 1
	OACSFirmware       = 1 << 2
	OACSNSManagement   = 1 << 3
	OACSSelfTest       = 1 << 4
	OACSDirectives     = 1 << 5
	OACSMI             = 1 << 6
	OACSVirtualization = 1 << 7
	OACSDoorbellBuffer = 1 << 8
	OACSGetLBAStatus   = 1 << 9
	OACSLockdown       = 1 << 10
	OACSLiveMigration  = 1 << 11 // HMLMS
)

// FRMW: firmware updates. Bits 3:1 are the number of slots.
const (
	FRMWSlot1ReadOnly     = 1 << 0
	FRMWSlotsShift        = 1
	FRMWActivateWithoutCR = 1 << 4
	FRMWOverlapDetection  = 1 << 5
)

// LPA: log page attributes.
const (
	LPASMARTPerNamespace = 1 << 0 // SMARTS
	LPACommandEffects    = 1 << 1 // CSES
	LPAExtendedData      = 1 << 2 // LPEDS: offsets and 32-bit lengths
	LPATelemetry         = 1 << 3 // TS
	LPAPersistentEvents  = 1 << 4 // PES
	LPASupportedPages    = 1 << 5 // MLPS: logs 00h, 05h scope, 12h, 13h
	LPATelemetryArea4    = 1 << 6 // DA4S
)

// ANACAP: what ANA states the controller reports.
const (
	ANACAPOptimized      = 1 << 0
	ANACAPNonOptimized   = 1 << 1
	ANACAPInaccessible   = 1 << 2
	ANACAPPersistentLoss = 1 << 3
	ANACAPChange         = 1 << 4
	ANACAPGroupFixed     = 1 << 6 // ANAGRPID does not change while attached
	ANACAPGroupInNSMgmt  = 1 << 7
)

// ONCS: optional I/O command support.
const (
	ONCSCompare            = 1 << 0
	ONCSWriteUncorrectable = 1 << 1
	ONCSDatasetManagement  = 1 << 2
	ONCSWriteZeroes        = 1 << 3
	ONCSSaveFeatures       = 1 << 4
	ONCSReservations       = 1 << 5
	ONCSTimestamp          = 1 << 6
	ONCSVerify             = 1 << 7
	ONCSCopy               = 1 << 8
	ONCSCopyAtomic         = 1 << 9
	ONCSFastCopyOnly       = 1 << 10
	ONCSMaxZeroesDealloc   = 1 << 11 // MAXWZD
	ONCSNamespaceZeroes    = 1 << 12 // NSZS
)

// FUSES: fused operations supported.
const FUSESCompareAndWrite = 1 << 0

// FNA: Format NVM attributes.
const (
	FNAFormatAll         = 1 << 0
	FNASecureEraseAll    = 1 << 1
	FNACryptoErase       = 1 << 2
	FNANoBroadcastFormat = 1 << 3
)

// VWC: volatile write cache. Bits 2:1 say what Flush with NSID FFFFFFFFh does.
const (
	VWCPresent            = 1 << 0
	VWCFlushAllUnreported = 0 << 1 // not allowed since revision 1.4
	VWCFlushAllRefused    = 2 << 1
	VWCFlushAllAccepted   = 3 << 1
)

// NWPC: namespace write protection capabilities.
const (
	NWPCWriteProtect  = 1 << 0
	NWPCUntilPowerOff = 1 << 1
	NWPCPermanent     = 1 << 2
)

// SGLS: SGL support. Bits 1:0 are one of the first three.
const (
	SGLSNotSupported    = 0
	SGLSSupported       = 1 // no alignment needed
	SGLSDwordAligned    = 2
	SGLSKeyed           = 1 << 2
	SGLSBitBucket       = 1 << 16
	SGLSByteAlignedMPTR = 1 << 17
	SGLSLargerThanData  = 1 << 18 // LLDTS
	SGLSMPTRDescriptor  = 1 << 19
	SGLSOffset          = 1 << 20
	SGLSTransportBlock  = 1 << 21
)

// SGLSThresholdShift places SDT in SGLS: the number of SGL descriptors above
// which the controller becomes slower.
const SGLSThresholdShift = 8

// FCATTStaticModel in FCATT: the subsystem has static controllers.
const FCATTStaticModel = 1 << 0

// OFCSDisconnect in OFCS: Disconnect and the deletion of single I/O queues are
// supported.
const OFCSDisconnect = 1 << 0

// DCTYPE: discovery controller types.
const (
	DiscoveryUnreported  = 0
	DiscoveryDirect      = 1 // DDC
	DiscoveryCentralized = 2 // CDC
)
