package nvme

import (
	"fmt"
	"strings"
)

// statusNames has the specification's names. Of the values that mean two things
// it has the I/O command's, except for 190h and 191h: those come back for Get
// Log Page and for any command on a queue that has not authenticated.
var statusNames = map[Status]string{
	StatusSuccess:                    "Successful Completion",
	StatusInvalidOpcode:              "Invalid Command Opcode",
	StatusInvalidField:               "Invalid Field in Command",
	StatusCIDConflict:                "Command ID Conflict",
	StatusDataTransferError:          "Data Transfer Error",
	StatusAbortedPowerLoss:           "Commands Aborted due to Power Loss Notification",
	StatusInternalError:              "Internal Error",
	StatusAbortedByRequest:           "Command Abort Requested",
	StatusAbortedSQDeletion:          "Command Aborted due to SQ Deletion",
	StatusAbortedFailedFused:         "Command Aborted due to Failed Fused Command",
	StatusAbortedMissingFused:        "Command Aborted due to Missing Fused Command",
	StatusInvalidNamespace:           "Invalid Namespace or Format",
	StatusCommandSequenceError:       "Command Sequence Error",
	StatusInvalidSGLSegment:          "Invalid SGL Segment Descriptor",
	StatusInvalidSGLCount:            "Invalid Number of SGL Descriptors",
	StatusSGLDataLength:              "Data SGL Length Invalid",
	StatusSGLMetadataLength:          "Metadata SGL Length Invalid",
	StatusInvalidSGLType:             "SGL Descriptor Type Invalid",
	StatusInvalidCMBUse:              "Invalid Use of Controller Memory Buffer",
	StatusPRPOffset:                  "PRP Offset Invalid",
	StatusAtomicWriteUnitExceeded:    "Atomic Write Unit Exceeded",
	StatusOperationDenied:            "Operation Denied",
	StatusSGLOffset:                  "SGL Offset Invalid",
	StatusHostIDInconsistentFormat:   "Host Identifier Inconsistent Format",
	StatusKeepAliveExpired:           "Keep Alive Timer Expired",
	StatusKeepAliveInvalid:           "Keep Alive Timeout Invalid",
	StatusAbortedPreemptAbort:        "Command Aborted due to Preempt and Abort",
	StatusSanitizeFailed:             "Sanitize Failed",
	StatusSanitizeInProgress:         "Sanitize In Progress",
	StatusSGLGranularity:             "SGL Data Block Granularity Invalid",
	StatusNotSupportedInCMBQueue:     "Command Not Supported for Queue in CMB",
	StatusNamespaceWriteProtected:    "Namespace is Write Protected",
	StatusInterrupted:                "Command Interrupted",
	StatusTransientTransport:         "Transient Transport Error",
	StatusProhibitedByLockdown:       "Command Prohibited by Command and Feature Lockdown",
	StatusAdminMediaNotReady:         "Admin Command Media Not Ready",
	StatusInvalidKeyTag:              "Invalid Key Tag",
	StatusHostDispersedNSNotEnabled:  "Host Dispersed Namespace Support Not Enabled",
	StatusHostIDNotInitialized:       "Host Identifier Not Initialized",
	StatusIncorrectKey:               "Incorrect Key",
	StatusFDPDisabled:                "FDP Disabled",
	StatusInvalidPlacementHandleList: "Invalid Placement Handle List",
	StatusLBAOutOfRange:              "LBA Out of Range",
	StatusCapacityExceeded:           "Capacity Exceeded",
	StatusNamespaceNotReady:          "Namespace Not Ready",
	StatusReservationConflict:        "Reservation Conflict",
	StatusFormatInProgress:           "Format In Progress",
	StatusInvalidValueSize:           "Invalid Value Size",
	StatusInvalidKeySize:             "Invalid Key Size",
	StatusKeyDoesNotExist:            "KV Key Does Not Exist",
	StatusUnrecoveredError:           "Unrecovered Error",
	StatusKeyExists:                  "Key Exists",

	StatusInvalidCQ:                    "Completion Queue Invalid",
	StatusInvalidQID:                   "Invalid Queue Identifier",
	StatusInvalidQueueSize:             "Invalid Queue Size",
	StatusAbortLimitExceeded:           "Abort Command Limit Exceeded",
	StatusAERLimitExceeded:             "Asynchronous Event Request Limit Exceeded",
	StatusInvalidFirmwareSlot:          "Invalid Firmware Slot",
	StatusInvalidFirmwareImage:         "Invalid Firmware Image",
	StatusInvalidInterruptVector:       "Invalid Interrupt Vector",
	StatusInvalidLogPage:               "Invalid Log Page",
	StatusInvalidFormat:                "Invalid Format",
	StatusFirmwareNeedsReset:           "Firmware Activation Requires Conventional Reset",
	StatusInvalidQueueDeletion:         "Invalid Queue Deletion",
	StatusFeatureNotSaveable:           "Feature Identifier Not Saveable",
	StatusFeatureNotChangeable:         "Feature Not Changeable",
	StatusFeatureNotPerNamespace:       "Feature Not Namespace Specific",
	StatusFirmwareNeedsSubsystemReset:  "Firmware Activation Requires NVM Subsystem Reset",
	StatusFirmwareNeedsControllerReset: "Firmware Activation Requires Controller Level Reset",
	StatusFirmwareNeedsMaxTime:         "Firmware Activation Requires Maximum Time Violation",
	StatusFirmwareActivationProhibited: "Firmware Activation Prohibited",
	StatusOverlappingRange:             "Overlapping Range",
	StatusNSInsufficientCapacity:       "Namespace Insufficient Capacity",
	StatusNSIDUnavailable:              "Namespace Identifier Unavailable",
	StatusNSAlreadyAttached:            "Namespace Already Attached",
	StatusNSIsPrivate:                  "Namespace Is Private",
	StatusNSNotAttached:                "Namespace Not Attached",
	StatusThinProvisioningNotSupported: "Thin Provisioning Not Supported",
	StatusControllerListInvalid:        "Controller List Invalid",
	StatusSelfTestInProgress:           "Device Self-test In Progress",
	StatusBootPartitionWriteProhibited: "Boot Partition Write Prohibited",
	StatusInvalidControllerID:          "Invalid Controller Identifier",
	StatusInvalidSecondaryState:        "Invalid Secondary Controller State",
	StatusInvalidControllerResources:   "Invalid Number of Controller Resources",
	StatusInvalidResourceID:            "Invalid Resource Identifier",
	StatusSanitizeProhibitedByPMR:      "Sanitize Prohibited While Persistent Memory Region is Enabled",
	StatusANAGroupInvalid:              "ANA Group Identifier Invalid",
	StatusANAAttachFailed:              "ANA Attach Failed",
	StatusInsufficientCapacity:         "Insufficient Capacity",
	StatusNSAttachmentLimitExceeded:    "Namespace Attachment Limit Exceeded",
	StatusLockdownNotSupported:         "Prohibition of Command Execution Not Supported",
	StatusCommandSetNotSupported:       "I/O Command Set Not Supported",
	StatusCommandSetNotEnabled:         "I/O Command Set Not Enabled",
	StatusCommandSetCombination:        "I/O Command Set Combination Rejected",
	StatusInvalidCommandSet:            "Invalid I/O Command Set",
	StatusIdentifierUnavailable:        "Identifier Unavailable",
	StatusNamespaceIsDispersed:         "Namespace Is Dispersed",
	StatusInvalidDiscoveryInfo:         "Invalid Discovery Information",
	StatusZoningDataLocked:             "Zoning Data Structure Locked",
	StatusZoningDataNotFound:           "Zoning Data Structure Not Found",
	StatusInsufficientDiscovery:        "Insufficient Discovery Resources",
	StatusFunctionDisabled:             "Requested Function Disabled",
	StatusZoneGroupOriginator:          "ZoneGroup Originator Invalid",
	StatusInvalidHost:                  "Invalid Host",
	StatusInvalidNVMSubsystem:          "Invalid NVM Subsystem",
	StatusInvalidControllerDataQueue:   "Invalid Controller Data Queue",
	StatusNotEnoughResources:           "Not Enough Resources",
	StatusControllerSuspended:          "Controller Suspended",
	StatusControllerNotSuspended:       "Controller Not Suspended",
	StatusControllerDataQueueFull:      "Controller Data Queue Full",

	StatusConflictingAttributes:    "Conflicting Attributes",
	StatusInvalidProtectionInfo:    "Invalid Protection Information",
	StatusWriteToReadOnlyRange:     "Attempted Write to Read Only Range",
	StatusCommandSizeLimitExceeded: "Command Size Limit Exceeded",
	StatusInvalidCommandID:         "Invalid Command ID",
	StatusIncompatibleNamespace:    "Incompatible Namespace or Format",
	StatusFastCopyNotPossible:      "Fast Copy Not Possible",
	StatusOverlappingIORange:       "Overlapping I/O Range",
	StatusNamespaceNotReachable:    "Namespace Not Reachable",
	StatusInsufficientResources:    "Insufficient Resources",
	StatusDiscoveryRestart:         "Discover Restart",
	StatusAuthRequired:             "Authentication Required",
	StatusZoneBoundaryError:        "Zoned Boundary Error",
	StatusZoneFull:                 "Zone Is Full",
	StatusZoneReadOnly:             "Zone Is Read Only",
	StatusZoneOffline:              "Zone Is Offline",
	StatusZoneInvalidWrite:         "Zone Invalid Write",
	StatusTooManyActiveZones:       "Too Many Active Zones",
	StatusTooManyOpenZones:         "Too Many Open Zones",
	StatusInvalidZoneTransition:    "Invalid Zone State Transition",

	StatusWriteFault:      "Write Fault",
	StatusUnrecoveredRead: "Unrecovered Read Error",
	StatusGuardCheck:      "End-to-end Guard Check Error",
	StatusAppTagCheck:     "End-to-end Application Tag Check Error",
	StatusRefTagCheck:     "End-to-end Reference Tag Check Error",
	StatusCompareFailure:  "Compare Failure",
	StatusAccessDenied:    "Access Denied",
	StatusUnwrittenBlock:  "Deallocated or Unwritten Logical Block",
	StatusStorageTagCheck: "End-to-End Storage Tag Check Error",

	StatusInternalPath:      "Internal Path Error",
	StatusANAPersistentLoss: "Asymmetric Access Persistent Loss",
	StatusANAInaccessible:   "Asymmetric Access Inaccessible",
	StatusANATransition:     "Asymmetric Access Transition",
	StatusControllerPath:    "Controller Pathing Error",
	StatusHostPath:          "Host Pathing Error",
	StatusHostAborted:       "Command Aborted By Host",
}

var fabricsStatusNames = map[Status]string{
	StatusConnectIncompatibleFormat: "Incompatible Format",
	StatusConnectControllerBusy:     "Controller Busy",
	StatusConnectInvalidParameters:  "Connect Invalid Parameters",
	StatusConnectRestartDiscovery:   "Connect Restart Discovery",
	StatusConnectInvalidHost:        "Connect Invalid Host",
	StatusInvalidQueueType:          "Invalid Queue Type",
}

// Name returns the specification's name of SCT and SC. Values from 180h to 185h
// are named as on I/O commands; FabricsName has their other meaning.
func (s Status) Name() string {
	code := s.Code()
	if n, ok := statusNames[code]; ok {
		return n
	}
	if code.SC() >= 0xc0 || code.SCT() == SCTVendor {
		return fmt.Sprintf("vendor specific status %Xh/%02Xh", code.SCT(), code.SC())
	}
	return fmt.Sprintf("unknown status %Xh/%02Xh", code.SCT(), code.SC())
}

// FabricsName returns the name that the status has as the answer to a fabrics
// command.
func (s Status) FabricsName() string {
	if n, ok := fabricsStatusNames[s.Code()]; ok {
		return n
	}
	return s.Name()
}

// String returns Name and the flags that are set, as in
// "Invalid Field in Command (DNR)".
func (s Status) String() string {
	var flags []string
	if s.DNR() {
		flags = append(flags, "DNR")
	}
	if s.More() {
		flags = append(flags, "More")
	}
	if i := s.CRD(); i != 0 {
		flags = append(flags, fmt.Sprintf("CRD %d", i))
	}
	if flags == nil {
		return s.Name()
	}
	return s.Name() + " (" + strings.Join(flags, ", ") + ")"
}
