package nvme

// CNS is Identify's "Controller or Namespace Structure": Base 2.1 section
// 5.1.13, figure "CNS Values".
type CNS uint8

// CNS values.
const (
	CNSNamespace                 CNS = 0x00
	CNSController                CNS = 0x01
	CNSActiveNamespaces          CNS = 0x02
	CNSNamespaceDescriptors      CNS = 0x03
	CNSNVMSetList                CNS = 0x04
	CNSCommandSetNamespace       CNS = 0x05
	CNSCommandSetController      CNS = 0x06
	CNSCommandSetActiveNS        CNS = 0x07
	CNSIndependentNamespace      CNS = 0x08
	CNSNamespaceFormat           CNS = 0x09
	CNSCommandSetNamespaceFormat CNS = 0x0a
	CNSAllocatedNamespaces       CNS = 0x10
	CNSAllocatedNamespace        CNS = 0x11
	CNSNamespaceControllers      CNS = 0x12
	CNSControllers               CNS = 0x13
	CNSPrimaryControllerCaps     CNS = 0x14
	CNSSecondaryControllers      CNS = 0x15
	CNSNamespaceGranularity      CNS = 0x16
	CNSUUIDList                  CNS = 0x17
	CNSDomainList                CNS = 0x18
	CNSEnduranceGroupList        CNS = 0x19
	CNSCommandSetAllocatedNS     CNS = 0x1a
	CNSCommandSetAllocatedNSData CNS = 0x1b
	CNSCommandSetCombinations    CNS = 0x1c
	CNSUnderlyingNamespaces      CNS = 0x1d
	CNSPorts                     CNS = 0x1e
	CNSIndependentAllocatedNS    CNS = 0x1f
	CNSControllerStateFormats    CNS = 0x20
)

// CSI is a command set identifier: Base 2.1, figure "Command Set Identifiers".
type CSI uint8

// Command set identifiers.
const (
	CSINVM                   CSI = 0x00
	CSIKeyValue              CSI = 0x01
	CSIZoned                 CSI = 0x02
	CSISubsystemLocalMemory  CSI = 0x03
	CSIComputationalPrograms CSI = 0x04
)

// Special identifiers.
const (
	NSIDAll         = 0xffffffff // every namespace
	NSIDMax         = 0xfffffffe // largest identifier of a namespace
	CNTLIDDynamic   = 0xffff     // Connect: let the subsystem choose
	CNTLIDAnyStatic = 0xfffe     // Connect: any of the static ones
	CNTLIDMax       = 0xffef     // largest identifier of a controller
)

// IdentifySize is the length of every Identify data structure.
const IdentifySize = 4096

// LogID is a log page identifier: Base 2.1 section 5.1.12, figure "Log Page
// Identifiers".
type LogID uint8

// Log page identifiers.
const (
	LogSupportedPages           LogID = 0x00
	LogError                    LogID = 0x01
	LogSMART                    LogID = 0x02
	LogFirmwareSlot             LogID = 0x03
	LogChangedNamespaces        LogID = 0x04
	LogCommandEffects           LogID = 0x05
	LogDeviceSelfTest           LogID = 0x06
	LogTelemetryHost            LogID = 0x07
	LogTelemetryController      LogID = 0x08
	LogEnduranceGroup           LogID = 0x09
	LogPredictableLatency       LogID = 0x0a
	LogPredictableLatencyEvents LogID = 0x0b
	LogANA                      LogID = 0x0c
	LogPersistentEvent          LogID = 0x0d
	LogLBAStatus                LogID = 0x0e
	LogEnduranceGroupEvents     LogID = 0x0f
	LogMediaUnitStatus          LogID = 0x10
	LogCapacityConfigurations   LogID = 0x11
	LogFeatureEffects           LogID = 0x12
	LogMICommandEffects         LogID = 0x13
	LogLockdown                 LogID = 0x14
	LogBootPartition            LogID = 0x15
	LogRotationalMedia          LogID = 0x16
	LogDispersedNamespace       LogID = 0x17
	LogManagementAddresses      LogID = 0x18
	LogPhyRxEOM                 LogID = 0x19
	LogReachabilityGroups       LogID = 0x1a
	LogReachabilityAssociations LogID = 0x1b
	LogChangedAllocatedNS       LogID = 0x1c
	LogFDPConfigurations        LogID = 0x20
	LogFDPHandleUsage           LogID = 0x21
	LogFDPStatistics            LogID = 0x22
	LogFDPEvents                LogID = 0x23
	LogDiscovery                LogID = 0x70
	LogHostDiscovery            LogID = 0x71
	LogAVEDiscovery             LogID = 0x72
	LogPullModelDDCRequest      LogID = 0x73
	LogReservation              LogID = 0x80
	LogSanitize                 LogID = 0x81
	LogVendorLowest             LogID = 0xc0
)

// FeatureID is a feature identifier: Base 2.1 section 5.1.25, figure "Feature
// Identifiers"; NVM Command Set 1.1 section 4.1.3.
type FeatureID uint8

// Feature identifiers.
const (
	FeatureArbitration            FeatureID = 0x01
	FeaturePowerManagement        FeatureID = 0x02
	FeatureLBARangeType           FeatureID = 0x03
	FeatureTemperatureThreshold   FeatureID = 0x04
	FeatureErrorRecovery          FeatureID = 0x05
	FeatureVolatileWriteCache     FeatureID = 0x06
	FeatureNumberOfQueues         FeatureID = 0x07
	FeatureInterruptCoalescing    FeatureID = 0x08
	FeatureInterruptVectorConfig  FeatureID = 0x09
	FeatureWriteAtomicity         FeatureID = 0x0a
	FeatureAsyncEventConfig       FeatureID = 0x0b
	FeatureAutonomousPST          FeatureID = 0x0c
	FeatureHostMemoryBuffer       FeatureID = 0x0d
	FeatureTimestamp              FeatureID = 0x0e
	FeatureKeepAliveTimer         FeatureID = 0x0f
	FeatureThermalManagement      FeatureID = 0x10
	FeatureNonOpPowerState        FeatureID = 0x11
	FeatureReadRecoveryLevel      FeatureID = 0x12
	FeaturePLMConfig              FeatureID = 0x13
	FeaturePLMWindow              FeatureID = 0x14
	FeatureLBAStatusAttributes    FeatureID = 0x15
	FeatureHostBehavior           FeatureID = 0x16
	FeatureSanitizeConfig         FeatureID = 0x17
	FeatureEnduranceGroupEvents   FeatureID = 0x18
	FeatureCommandSetProfile      FeatureID = 0x19
	FeatureSpinupControl          FeatureID = 0x1a
	FeaturePowerLossSignaling     FeatureID = 0x1b
	FeaturePerformance            FeatureID = 0x1c
	FeatureFDP                    FeatureID = 0x1d
	FeatureFDPEvents              FeatureID = 0x1e
	FeatureNSAdminLabel           FeatureID = 0x1f
	FeatureKeyValueConfig         FeatureID = 0x20
	FeatureControllerDataQueue    FeatureID = 0x21
	FeatureEmbeddedMgmtAddress    FeatureID = 0x78
	FeatureHostMgmtAgentAddress   FeatureID = 0x79
	FeatureEnhancedCtrlMetadata   FeatureID = 0x7d
	FeatureControllerMetadata     FeatureID = 0x7e
	FeatureNamespaceMetadata      FeatureID = 0x7f
	FeatureSoftwareProgress       FeatureID = 0x80
	FeatureHostIdentifier         FeatureID = 0x81
	FeatureReservationNotifyMask  FeatureID = 0x82
	FeatureReservationPersistence FeatureID = 0x83
	FeatureNSWriteProtect         FeatureID = 0x84
	FeatureBootPartitionProtect   FeatureID = 0x85
)

// FeatureSelect is SEL of Get Features: Base 2.1 section 5.1.11.
type FeatureSelect uint8

// Get Features' selections.
const (
	FeatureCurrent      FeatureSelect = 0
	FeatureDefault      FeatureSelect = 1
	FeatureSaved        FeatureSelect = 2
	FeatureCapabilities FeatureSelect = 3
)

// Dword 0 of Get Features with FeatureCapabilities.
const (
	FeatureSaveable   = 1 << 0
	FeaturePerNS      = 1 << 1
	FeatureChangeable = 1 << 2
)
