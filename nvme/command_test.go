package nvme

import (
	"encoding/hex"
	"strings"
	"testing"
)

// unhex decodes hexadecimal digits, ignoring white space, and pads with zeros
// to n bytes.
func unhex(t testing.TB, n int, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > n {
		t.Fatalf("%d bytes, want at most %d", len(b), n)
	}
	return append(b, make([]byte, n-len(b))...)
}

func command(t testing.TB, s string) *Command { return (*Command)(unhex(t, CommandSize, s)) }

// TestCommandGolden reads commands as hosts send them.
func TestCommandGolden(t *testing.T) {
	type field struct {
		name      string
		got, want any
	}
	read := command(t, `02 40 3412 01000000 0000000000000000 0000000000000000
		0010203040506070 002000 78563412 4f
		efcdab8967452301 0700 0044 00000000 00000000 00000000`)

	connect := command(t, `7f 40 0100 01 00000000000000000000000000000000000000
		00000000000000000000000000000000
		0000 0300 7f00 04 00 983a0000`)
	connect.SGL().SetKeyed(SGLAddress, 0x1000, 1024, 0xdead)

	propertySet := command(t, `7f 40 0200 00 00000000000000000000000000000000000000
		00000000000000000000000000000000
		00 000000 14000000 0100460000000000`)
	propertyGet := command(t, `7f 40 0300 04 00000000000000000000000000000000000000
		00000000000000000000000000000000
		01 000000 00000000`)
	getLog := command(t, `02 40 0400 ffffffff 0000000000000000 0000000000000000
		00000000000000000000000000000000
		0c 81 ffff 0100 3412 0010000001000000 7f0080c5 00000000`)
	identify := command(t, `06 40 0500 01000000 0000000000000000 0000000000000000
		00000000000000000000000000000000
		05 00 0700 0900 0002`)
	setFeature := command(t, `09 40 0600 00000000 0000000000000000 0000000000000000
		00000000000000000000000000000000
		0b 00 0080 00ff0000`)
	getFeature := command(t, `0a 40 0600 00000000 0000000000000000 0000000000000000
		00000000000000000000000000000000
		0b 03 0000`)
	abort := command(t, `08 40 0700 00000000 0000000000000000 0000000000000000
		00000000000000000000000000000000
		0200 1700`)
	dsm := command(t, `09 40 0800 01000000 0000000000000000 0000000000000000
		00000000000000000000000000000000
		03 000000 04000000`)
	register := command(t, `0d 40 0900 01000000 0000000000000000 0000000000000000
		00000000000000000000000000000000
		0a 00 00c0`)
	report := command(t, `0e 40 0900 01000000 0000000000000000 0000000000000000
		00000000000000000000000000000000
		ff030000 01000000`)
	auth := command(t, `7f 40 0a00 05 00000000000000000000000000000000000000
		00000000000000000000000000000000
		00 01 02 e9 00100000`)

	for _, c := range []struct {
		name   string
		fields []field
	}{
		{"Read", []field{
			{"Opcode", read.Opcode(), OpRead}, {"PSDT", read.PSDT(), uint8(PSDTSGL)},
			{"Fuse", read.Fuse(), uint8(FuseNone)}, {"CID", read.CID(), uint16(0x1234)},
			{"NSID", read.NSID(), uint32(1)}, {"SLBA", read.SLBA(), uint64(0x0123456789abcdef)},
			{"NLB", read.NLB(), uint32(8)}, {"FUA", read.FUA(), true}, {"LR", read.LR(), false},
			{"PRINFO", read.PRINFO(), uint8(1)}, {"CDW12", read.CDW(12), uint32(0x44000007)},
			{"SGL.Type", read.SGL().Type(), SGLKeyedDataBlock}, {"SGL.Subtype", read.SGL().Subtype(), SGLInvalidate},
			{"SGL.Address", read.SGL().Address(), uint64(0x7060504030201000)},
			{"SGL.KeyedLength", read.SGL().KeyedLength(), uint32(0x2000)}, {"SGL.Key", read.SGL().Key(), uint32(0x12345678)},
			{"PRP1", read.PRP1(), uint64(0x7060504030201000)}, {"Direction", DataDirection(false, read), DirControllerToHost},
		}},
		{"Connect", []field{
			{"Opcode", connect.Opcode(), OpFabrics}, {"FCType", connect.FCType(), FabricsConnect},
			{"RECFMT", connect.RECFMT(), uint16(0)}, {"QID", connect.QID(), uint16(3)},
			{"SQSIZE", connect.SQSIZE(), uint16(127)}, {"CATTR", connect.CATTR(), uint8(ConnectDisableSQFlow)},
			{"KATO", connect.KATO(), uint32(15000)}, {"Direction", DataDirection(true, connect), DirHostToController},
		}},
		{"PropertySet", []field{
			{"FCType", propertySet.FCType(), FabricsPropertySet}, {"ATTRIB", propertySet.ATTRIB(), uint8(PropertySize4)},
			{"OFST", propertySet.OFST(), uint32(RegCC)}, {"VALUE", propertySet.VALUE(), uint64(0x460001)},
			{"Direction", DataDirection(true, propertySet), DirNone},
		}},
		{"PropertyGet", []field{
			{"FCType", propertyGet.FCType(), FabricsPropertyGet}, {"ATTRIB", propertyGet.ATTRIB(), uint8(PropertySize8)},
			{"OFST", propertyGet.OFST(), uint32(RegCAP)}, {"Direction", DataDirection(true, propertyGet), DirNone},
		}},
		{"AuthSend", []field{
			{"FCType", auth.FCType(), FabricsAuthSend}, {"SPSP0", auth.SPSP0(), uint8(1)}, {"SPSP1", auth.SPSP1(), uint8(2)},
			{"SECP", auth.SECP(), uint8(AuthSecurityProtocol)}, {"length", auth.AuthLength(), uint32(4096)},
		}},
		{"GetLogPage", []field{
			{"LID", getLog.LID(), LogANA}, {"LSP", getLog.LSP(), uint8(ANAReturnGroupsOnly)}, {"RAE", getLog.RAE(), true},
			{"length", getLog.LogLength(), uint64(0x20000 * 4)}, {"LSI", getLog.LSI(), uint16(0x1234)},
			{"offset", getLog.LogOffset(), uint64(0x100001000)}, {"UUID", getLog.UUIDIndex(), uint8(0x7f)},
			{"OT", getLog.LogOffsetIsIndex(), true}, {"CSI", getLog.LogCSI(), CSI(0xc5)},
			{"Direction", DataDirection(true, getLog), DirControllerToHost},
		}},
		{"Identify", []field{
			{"CNS", identify.CNS(), CNSCommandSetNamespace}, {"CNTID", identify.CNTID(), uint16(7)},
			{"CSI", identify.CSI(), CSIZoned}, {"specific", identify.CNSSpecificID(), uint16(9)},
		}},
		{"SetFeatures", []field{
			{"FID", setFeature.FID(), FeatureAsyncEventConfig}, {"SV", setFeature.FeatureSave(), true},
			{"CDW11", setFeature.CDW(11), uint32(0xff00)},
		}},
		{"GetFeatures", []field{
			{"FID", getFeature.FID(), FeatureAsyncEventConfig}, {"SEL", getFeature.FeatureSelect(), FeatureCapabilities},
		}},
		{"Abort", []field{{"SQID", abort.AbortSQID(), uint16(2)}, {"CID", abort.AbortCID(), uint16(0x17)}}},
		{"DatasetManagement", []field{
			{"ranges", dsm.DSMRanges(), 4}, {"attributes", dsm.DSMAttributes(), uint8(DSMDeallocate)},
			{"Direction", DataDirection(false, dsm), DirHostToController},
		}},
		{"ReservationRegister", []field{
			{"action", register.ReservationAction(), uint8(ReservationReplace)}, {"IEKEY", register.IgnoreExistingKey(), true},
			{"CPTPL", register.ReservationCPTPL(), uint8(ReservationPersistSet)},
		}},
		{"ReservationReport", []field{
			{"length", report.ReportLength(), uint64(4096)}, {"EDS", report.ReportExtended(), true},
		}},
	} {
		for _, f := range c.fields {
			if f.got != f.want {
				t.Errorf("%s: %s is %v (%T), want %v (%T)", c.name, f.name, f.got, f.got, f.want, f.want)
			}
		}
	}
}

// TestCommandSetters writes each field into a command of zeros and into one of
// ones, and wants only the field's bits to change.
func TestCommandSetters(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*Command)
		off  int
		mask string // bits of the field from byte off on
		want string
	}{
		{"Opcode", func(c *Command) { c.SetOpcode(0x7f) }, 0, "ff", "7f"},
		{"Fuse", func(c *Command) { c.SetFuse(FuseSecond) }, 1, "03", "02"},
		{"PSDT", func(c *Command) { c.SetPSDT(PSDTSGLMetadata) }, 1, "c0", "80"},
		{"CID", func(c *Command) { c.SetCID(0x1234) }, 2, "ffff", "3412"},
		{"NSID", func(c *Command) { c.SetNSID(0x12345678) }, 4, "ffffffff", "78563412"},
		{"FCType", func(c *Command) { c.SetFCType(FabricsAuthReceive) }, 4, "ff", "06"},
		{"MPTR", func(c *Command) { c.SetMPTR(0x0102030405060708) }, 16, "ffffffffffffffff", "0807060504030201"},
		{"PRP1", func(c *Command) { c.SetPRP1(0x0102030405060708) }, 24, "ffffffffffffffff", "0807060504030201"},
		{"PRP2", func(c *Command) { c.SetPRP2(0x0102030405060708) }, 32, "ffffffffffffffff", "0807060504030201"},
		{"CDW2", func(c *Command) { c.SetCDW(2, 0x12345678) }, 8, "ffffffff", "78563412"},
		{"CDW10", func(c *Command) { c.SetCDW(10, 0x12345678) }, 40, "ffffffff", "78563412"},
		{"CDW15", func(c *Command) { c.SetCDW(15, 0x12345678) }, 60, "ffffffff", "78563412"},
		{"SLBA", func(c *Command) { c.SetSLBA(0x0102030405060708) }, 40, "ffffffffffffffff", "0807060504030201"},
		{"NLB 1", func(c *Command) { c.SetNLB(1) }, 48, "ffff", "0000"},
		{"NLB 65536", func(c *Command) { c.SetNLB(65536) }, 48, "ffff", "ffff"},
		{"FUA on", func(c *Command) { c.SetFUA(true) }, 51, "40", "40"},
		{"FUA off", func(c *Command) { c.SetFUA(false) }, 51, "40", "00"},
		{"DEAC on", func(c *Command) { c.SetDEAC(true) }, 51, "02", "02"},
		{"DEAC off", func(c *Command) { c.SetDEAC(false) }, 51, "02", "00"},
		{"PRINFO", func(c *Command) { c.SetPRINFO(PRInfoAct | PRInfoCheckRef) }, 51, "3c", "24"},
		{"PRINFO too wide", func(c *Command) { c.SetPRINFO(0xf0) }, 51, "3c", "00"},
		{"DSMRanges", func(c *Command) { c.SetDSMRanges(256) }, 40, "ff", "ff"},
		{"DSMAttributes", func(c *Command) { c.SetDSMAttributes(DSMDeallocate) }, 44, "07", "04"},
		{"RECFMT", func(c *Command) { c.SetRECFMT(0x1234) }, 40, "ffff", "3412"},
		{"QID", func(c *Command) { c.SetQID(0x1234) }, 42, "ffff", "3412"},
		{"SQSIZE", func(c *Command) { c.SetSQSIZE(0x1234) }, 44, "ffff", "3412"},
		{"CATTR", func(c *Command) { c.SetCATTR(ConnectIOQueueDeletion) }, 46, "ff", "08"},
		{"KATO", func(c *Command) { c.SetKATO(0x12345678) }, 48, "ffffffff", "78563412"},
		{"OFST", func(c *Command) { c.SetOFST(0x12345678) }, 44, "ffffffff", "78563412"},
		{"VALUE", func(c *Command) { c.SetVALUE(0x0102030405060708) }, 48, "ffffffffffffffff", "0807060504030201"},
		{"ATTRIB", func(c *Command) { c.SetATTRIB(PropertySize8) }, 40, "ff", "01"},
		{"Auth", func(c *Command) { c.SetAuth(0xe9, 1, 2, 0x1000) }, 41, "ffffffffffffff", "0102e900100000"},
		{"Identify", func(c *Command) { c.SetIdentify(CNSCommandSetNamespace, 0x1234, CSIZoned, 0x5678) }, 40, "ffffffffffffffff", "0500341278560002"},
		{"Log", func(c *Command) { c.SetLog(LogDiscovery, 0x7f, true, 0x80004, 0x0102030405060708) }, 40, "ffffffffffff", "70ff00000200"},
		{"Log offset", func(c *Command) { c.SetLog(LogDiscovery, 0, false, 4, 0x0102030405060708) }, 40,
			"ffffffffffff0000ffffffffffffffff", "70000000000000000807060504030201"},
		{"Abort", func(c *Command) { c.SetAbort(0x0102, 0x0304) }, 40, "ffffffff", "02010403"},
		{"CreateCQ", func(c *Command) { c.SetCreateCQ(3, 1024, true, 5) }, 40, "ffffffffffffffff", "0300ff0303000500"},
		{"CreateCQ polled", func(c *Command) { c.SetCreateCQ(3, 65536, false, 0) }, 40, "ffffffffffffffff", "0300ffff01000000"},
		{"CreateSQ", func(c *Command) { c.SetCreateSQ(3, 2, 4) }, 40, "ffffffffffffffff", "0300010001000400"},
		{"DeleteQueue", func(c *Command) { c.SetDeleteQueue(3) }, 40, "ffffffff", "03000000"},
		{"Reservation", func(c *Command) {
			c.SetReservation(ReservationReplace, true, ReservationExclusiveAccessAll, ReservationPersistClear)
		},
			40, "ffffffff", "0a060080"},
		{"Report", func(c *Command) { c.SetReport(4096, true) }, 40, "ffffffffffffffff", "ff03000001000000"},
	} {
		mask, want := unhex(t, len(c.mask)/2, c.mask), unhex(t, len(c.mask)/2, c.want)
		for _, fill := range []byte{0x00, 0xff} {
			var cmd, expect Command
			for i := range cmd {
				cmd[i], expect[i] = fill, fill
			}
			for i := range mask {
				expect[c.off+i] = expect[c.off+i]&^mask[i] | want[i]&mask[i]
			}
			// CDW11 bits 31:16 stay as they are in SetLog.
			c.set(&cmd)
			if strings.HasPrefix(c.name, "Log") {
				copy(expect[48:56], cmd[48:56])
				if cmd.LogOffset() != 0x0102030405060708 {
					t.Errorf("%s: offset is %x", c.name, cmd.LogOffset())
				}
			}
			if cmd != expect {
				t.Errorf("%s over %02xh:\n got % x\nwant % x", c.name, fill, cmd, expect)
			}
		}
	}
}

func TestCDWOutOfRange(t *testing.T) {
	for _, n := range []int{-1, 16} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("CDW(%d) did not panic", n)
				}
			}()
			new(Command).CDW(n)
		}()
	}
}

// TestLogLengthRange: NUMD is 32 bits wide and 0-based, so lengths reach 2^34.
func TestLogLengthRange(t *testing.T) {
	for _, n := range []uint64{4, 8, 4096, 1 << 18, 1 << 34} {
		var c Command
		c.SetLog(LogError, 0, false, n, 0)
		if c.LogLength() != n {
			t.Errorf("length %d reads back as %d", n, c.LogLength())
		}
	}
}

// TestDataDirection has every opcode of the specification with the direction
// that its figures give.
func TestDataDirection(t *testing.T) {
	const none, h2c, c2h, both = DirNone, DirHostToController, DirControllerToHost, DirBidirectional
	io := map[Opcode]Direction{
		OpFlush: none, OpWrite: h2c, OpRead: c2h, OpWriteUncorrectable: none, OpCompare: h2c, OpWriteZeroes: none,
		OpDatasetManagement: h2c, OpVerify: none, OpReservationRegister: h2c, OpReservationReport: c2h,
		OpReservationAcquire: h2c, OpIOManagementReceive: c2h, OpReservationRelease: h2c, OpCancel: none,
		OpCopy: h2c, OpIOManagementSend: h2c,
	}
	admin := map[Opcode]Direction{
		AdminDeleteSQ: none, AdminCreateSQ: none, AdminGetLogPage: c2h, AdminDeleteCQ: none, AdminCreateCQ: none,
		AdminIdentify: c2h, AdminAbort: none, AdminSetFeatures: h2c, AdminGetFeatures: c2h, AdminAER: none,
		AdminNSManagement: h2c, AdminFirmwareCommit: none, AdminFirmwareDownload: h2c, AdminDeviceSelfTest: none,
		AdminNSAttachment: h2c, AdminKeepAlive: none, AdminDirectiveSend: h2c, AdminDirectiveReceive: c2h,
		AdminVirtualizationManagement: none, AdminMISend: h2c, AdminMIReceive: c2h, AdminCapacityManagement: none,
		AdminDiscoveryInfoManagement: h2c, AdminFabricZoningReceive: c2h, AdminLockdown: none,
		AdminFabricZoningLookup: h2c, AdminClearExportedNVMResource: none, AdminFabricZoningSend: h2c,
		AdminCreateExportedNVMSubsystem: c2h, AdminManageExportedNVMSubsystem: h2c, AdminManageExportedNamespace: h2c,
		AdminManageExportedPort: h2c, AdminSendDiscoveryLogPage: h2c, AdminTrackSend: h2c, AdminTrackReceive: c2h,
		AdminMigrationSend: h2c, AdminMigrationReceive: c2h, AdminControllerDataQueue: h2c,
		AdminDoorbellBufferConfig: none, AdminFormatNVM: none, AdminSecuritySend: h2c, AdminSecurityReceive: c2h,
		AdminSanitize: none, AdminLoadProgram: h2c, AdminGetLBAStatus: c2h, AdminProgramActivation: none,
		AdminMemoryRangeSet: h2c,
	}
	check := func(isAdmin bool, want map[Opcode]Direction, names map[Opcode]string) {
		for op, d := range want {
			var c Command
			c.SetOpcode(op)
			if got := DataDirection(isAdmin, &c); got != d {
				t.Errorf("%s: %s, want %s", op.Name(isAdmin), got, d)
			}
		}
		for op, name := range names {
			if _, ok := want[op]; !ok && op != OpFabrics {
				t.Errorf("%s has no direction in this test", name)
			}
		}
	}
	check(false, io, ioNames)
	check(true, admin, adminNames)

	for ft, d := range map[FabricsType]Direction{
		FabricsPropertySet: none, FabricsConnect: h2c, FabricsPropertyGet: none, FabricsAuthSend: h2c,
		FabricsAuthReceive: c2h, FabricsDisconnect: none, 0xc3: both,
	} {
		for _, isAdmin := range []bool{false, true} {
			var c Command
			c.SetOpcode(OpFabrics)
			c.SetFCType(ft)
			if got := DataDirection(isAdmin, &c); got != d {
				t.Errorf("%s: %s, want %s", ft, got, d)
			}
		}
	}
}
