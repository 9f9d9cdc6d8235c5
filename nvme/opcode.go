package nvme

import "strconv"

// Opcode is Command Dword 0 bits 7:0. Admin and I/O commands share the number
// space: which one an opcode means depends on the queue it came in on.
type Opcode uint8

// I/O command set opcodes: Base 2.1 section 7 and NVM Command Set 1.1 section 3.
const (
	OpFlush               Opcode = 0x00
	OpWrite               Opcode = 0x01
	OpRead                Opcode = 0x02
	OpWriteUncorrectable  Opcode = 0x04
	OpCompare             Opcode = 0x05
	OpWriteZeroes         Opcode = 0x08
	OpDatasetManagement   Opcode = 0x09
	OpVerify              Opcode = 0x0c
	OpReservationRegister Opcode = 0x0d
	OpReservationReport   Opcode = 0x0e
	OpReservationAcquire  Opcode = 0x11
	OpIOManagementReceive Opcode = 0x12
	OpReservationRelease  Opcode = 0x15
	OpCancel              Opcode = 0x18
	OpCopy                Opcode = 0x19
	OpIOManagementSend    Opcode = 0x1d
	OpFabrics             Opcode = 0x7f
	OpVendorLowest        Opcode = 0x80
)

// Admin command opcodes: Base 2.1 section 5, figure "Opcodes for Admin Commands".
const (
	AdminDeleteSQ                   Opcode = 0x00
	AdminCreateSQ                   Opcode = 0x01
	AdminGetLogPage                 Opcode = 0x02
	AdminDeleteCQ                   Opcode = 0x04
	AdminCreateCQ                   Opcode = 0x05
	AdminIdentify                   Opcode = 0x06
	AdminAbort                      Opcode = 0x08
	AdminSetFeatures                Opcode = 0x09
	AdminGetFeatures                Opcode = 0x0a
	AdminAER                        Opcode = 0x0c
	AdminNSManagement               Opcode = 0x0d
	AdminFirmwareCommit             Opcode = 0x10
	AdminFirmwareDownload           Opcode = 0x11
	AdminDeviceSelfTest             Opcode = 0x14
	AdminNSAttachment               Opcode = 0x15
	AdminKeepAlive                  Opcode = 0x18
	AdminDirectiveSend              Opcode = 0x19
	AdminDirectiveReceive           Opcode = 0x1a
	AdminVirtualizationManagement   Opcode = 0x1c
	AdminMISend                     Opcode = 0x1d
	AdminMIReceive                  Opcode = 0x1e
	AdminCapacityManagement         Opcode = 0x20
	AdminDiscoveryInfoManagement    Opcode = 0x21
	AdminFabricZoningReceive        Opcode = 0x22
	AdminLockdown                   Opcode = 0x24
	AdminFabricZoningLookup         Opcode = 0x25
	AdminClearExportedNVMResource   Opcode = 0x28
	AdminFabricZoningSend           Opcode = 0x29
	AdminCreateExportedNVMSubsystem Opcode = 0x2a
	AdminManageExportedNVMSubsystem Opcode = 0x2d
	AdminManageExportedNamespace    Opcode = 0x31
	AdminManageExportedPort         Opcode = 0x35
	AdminSendDiscoveryLogPage       Opcode = 0x39
	AdminTrackSend                  Opcode = 0x3d
	AdminTrackReceive               Opcode = 0x3e
	AdminMigrationSend              Opcode = 0x41
	AdminMigrationReceive           Opcode = 0x42
	AdminControllerDataQueue        Opcode = 0x45
	AdminDoorbellBufferConfig       Opcode = 0x7c
	AdminFabrics                    Opcode = OpFabrics
	AdminFormatNVM                  Opcode = 0x80
	AdminSecuritySend               Opcode = 0x81
	AdminSecurityReceive            Opcode = 0x82
	AdminSanitize                   Opcode = 0x84
	AdminLoadProgram                Opcode = 0x85
	AdminGetLBAStatus               Opcode = 0x86
	AdminProgramActivation          Opcode = 0x88
	AdminMemoryRangeSet             Opcode = 0x89
	AdminVendorLowest               Opcode = 0xc0
)

var ioNames = map[Opcode]string{
	OpFlush:               "Flush",
	OpWrite:               "Write",
	OpRead:                "Read",
	OpWriteUncorrectable:  "Write Uncorrectable",
	OpCompare:             "Compare",
	OpWriteZeroes:         "Write Zeroes",
	OpDatasetManagement:   "Dataset Management",
	OpVerify:              "Verify",
	OpReservationRegister: "Reservation Register",
	OpReservationReport:   "Reservation Report",
	OpReservationAcquire:  "Reservation Acquire",
	OpIOManagementReceive: "I/O Management Receive",
	OpReservationRelease:  "Reservation Release",
	OpCancel:              "Cancel",
	OpCopy:                "Copy",
	OpIOManagementSend:    "I/O Management Send",
	OpFabrics:             "Fabrics",
}

var adminNames = map[Opcode]string{
	AdminDeleteSQ:                   "Delete I/O Submission Queue",
	AdminCreateSQ:                   "Create I/O Submission Queue",
	AdminGetLogPage:                 "Get Log Page",
	AdminDeleteCQ:                   "Delete I/O Completion Queue",
	AdminCreateCQ:                   "Create I/O Completion Queue",
	AdminIdentify:                   "Identify",
	AdminAbort:                      "Abort",
	AdminSetFeatures:                "Set Features",
	AdminGetFeatures:                "Get Features",
	AdminAER:                        "Asynchronous Event Request",
	AdminNSManagement:               "Namespace Management",
	AdminFirmwareCommit:             "Firmware Commit",
	AdminFirmwareDownload:           "Firmware Image Download",
	AdminDeviceSelfTest:             "Device Self-test",
	AdminNSAttachment:               "Namespace Attachment",
	AdminKeepAlive:                  "Keep Alive",
	AdminDirectiveSend:              "Directive Send",
	AdminDirectiveReceive:           "Directive Receive",
	AdminVirtualizationManagement:   "Virtualization Management",
	AdminMISend:                     "NVMe-MI Send",
	AdminMIReceive:                  "NVMe-MI Receive",
	AdminCapacityManagement:         "Capacity Management",
	AdminDiscoveryInfoManagement:    "Discovery Information Management",
	AdminFabricZoningReceive:        "Fabric Zoning Receive",
	AdminLockdown:                   "Lockdown",
	AdminFabricZoningLookup:         "Fabric Zoning Lookup",
	AdminClearExportedNVMResource:   "Clear Exported NVM Resource Configuration",
	AdminFabricZoningSend:           "Fabric Zoning Send",
	AdminCreateExportedNVMSubsystem: "Create Exported NVM Subsystem",
	AdminManageExportedNVMSubsystem: "Manage Exported NVM Subsystem",
	AdminManageExportedNamespace:    "Manage Exported Namespace",
	AdminManageExportedPort:         "Manage Exported Port",
	AdminSendDiscoveryLogPage:       "Send Discovery Log Page",
	AdminTrackSend:                  "Track Send",
	AdminTrackReceive:               "Track Receive",
	AdminMigrationSend:              "Migration Send",
	AdminMigrationReceive:           "Migration Receive",
	AdminControllerDataQueue:        "Controller Data Queue",
	AdminDoorbellBufferConfig:       "Doorbell Buffer Config",
	AdminFabrics:                    "Fabrics",
	AdminFormatNVM:                  "Format NVM",
	AdminSecuritySend:               "Security Send",
	AdminSecurityReceive:            "Security Receive",
	AdminSanitize:                   "Sanitize",
	AdminLoadProgram:                "Load Program",
	AdminGetLBAStatus:               "Get LBA Status",
	AdminProgramActivation:          "Program Activation Management",
	AdminMemoryRangeSet:             "Memory Range Set Management",
}

// Name returns the specification's name of the opcode on an admin queue or on
// an I/O queue.
func (op Opcode) Name(admin bool) string {
	names := ioNames
	if admin {
		names = adminNames
	}
	if s, ok := names[op]; ok {
		return s
	}
	return unknownName("opcode", uint64(op))
}

// unknownName is what String methods return for a value without a name.
func unknownName(kind string, v uint64) string {
	return kind + " 0x" + strconv.FormatUint(v, 16)
}
