package nvme

// Logs that tell what a controller supports: Base 2.1 sections 5.1.12.1.1,
// 5.1.12.1.6 and 5.1.12.1.18.

// CommandEffect describes a command in the Commands Supported and Effects log.
type CommandEffect uint32

// Bits of CommandEffect.
const (
	EffectSupported           CommandEffect = 1 << 0  // CSUPP
	EffectBlockContent        CommandEffect = 1 << 1  // LBCC: user data changes
	EffectNSCapability        CommandEffect = 1 << 2  // NCC
	EffectNSInventory         CommandEffect = 1 << 3  // NIC
	EffectControllerCaps      CommandEffect = 1 << 4  // CCC
	EffectRelaxedNS           CommandEffect = 1 << 14 // CSER 01b
	EffectExclusiveNS         CommandEffect = 1 << 16 // CSE 001b: no other command on the namespace
	EffectExclusiveAll        CommandEffect = 2 << 16 // CSE 010b: no other command on any namespace
	EffectUUIDSelection       CommandEffect = 1 << 19 // USS
	EffectScopeNamespace      CommandEffect = 1 << 20 // CSP
	EffectScopeController     CommandEffect = 1 << 21
	EffectScopeNVMSet         CommandEffect = 1 << 22
	EffectScopeEnduranceGroup CommandEffect = 1 << 23
	EffectScopeDomain         CommandEffect = 1 << 24
	EffectScopeNVMSubsystem   CommandEffect = 1 << 25
)

// CommandEffectsLog is the Commands Supported and Effects log, 05h.
type CommandEffectsLog struct {
	Admin [256]CommandEffect
	IO    [256]CommandEffect
}

func (l *CommandEffectsLog) layout(c *codec) {
	for i := range l.Admin {
		c.u32((*uint32)(&l.Admin[i]))
	}
	for i := range l.IO {
		c.u32((*uint32)(&l.IO[i]))
	}
	c.at(2048)
	c.reserved(CommandEffectsSize)
}

// MarshalTo writes CommandEffectsSize bytes.
func (l *CommandEffectsLog) MarshalTo(b []byte) int { return encodeTo(b, CommandEffectsSize, l) }

// UnmarshalBinary reads CommandEffectsSize bytes.
func (l *CommandEffectsLog) UnmarshalBinary(b []byte) error {
	return decodeFrom(b, CommandEffectsSize, "Commands Supported and Effects log", l)
}

// LogSupport describes a log page in the Supported Log Pages log. Bits 31:16 are
// specific to the log page.
type LogSupport uint32

// Bits of LogSupport.
const (
	LogPageSupported      LogSupport = 1 << 0  // LSUPP
	LogPageIndexOffset    LogSupport = 1 << 1  // IOS
	LogDiscoveryExtended  LogSupport = 1 << 16 // of the Discovery log: EXTDLPES
	LogDiscoveryPortLocal LogSupport = 1 << 17 // PLEOS
	LogDiscoveryAllSubsys LogSupport = 1 << 18 // ALLSUBES
)

// SupportedLogs is the Supported Log Pages log, 00h.
type SupportedLogs [256]LogSupport

func (l *SupportedLogs) layout(c *codec) {
	for i := range l {
		c.u32((*uint32)(&l[i]))
	}
}

// MarshalTo writes SupportedLogsSize bytes.
func (l *SupportedLogs) MarshalTo(b []byte) int { return encodeTo(b, SupportedLogsSize, l) }

// UnmarshalBinary reads SupportedLogsSize bytes.
func (l *SupportedLogs) UnmarshalBinary(b []byte) error {
	return decodeFrom(b, SupportedLogsSize, "Supported Log Pages log", l)
}

// FeatureEffect describes a feature in the Feature Identifiers Supported and
// Effects log.
type FeatureEffect uint32

// Bits of FeatureEffect.
const (
	FeatureSupported            FeatureEffect = 1 << 0 // FSUPP
	FeatureEffectUserData       FeatureEffect = 1 << 1 // UDCC
	FeatureEffectNSCapability   FeatureEffect = 1 << 2 // NCC
	FeatureEffectNSInventory    FeatureEffect = 1 << 3 // NIC
	FeatureEffectControllerCaps FeatureEffect = 1 << 4 // CCC
	FeatureEffectUUIDSelection  FeatureEffect = 1 << 19
	FeatureScopeNamespace       FeatureEffect = 1 << 20
	FeatureScopeController      FeatureEffect = 1 << 21
	FeatureScopeNVMSet          FeatureEffect = 1 << 22
	FeatureScopeEnduranceGroup  FeatureEffect = 1 << 23
	FeatureScopeDomain          FeatureEffect = 1 << 24
	FeatureScopeNVMSubsystem    FeatureEffect = 1 << 25
	FeatureScopeControllerQueue FeatureEffect = 1 << 26
)

// FeatureEffectsLog is the Feature Identifiers Supported and Effects log, 12h.
type FeatureEffectsLog [256]FeatureEffect

func (l *FeatureEffectsLog) layout(c *codec) {
	for i := range l {
		c.u32((*uint32)(&l[i]))
	}
}

// MarshalTo writes FeatureEffectsSize bytes.
func (l *FeatureEffectsLog) MarshalTo(b []byte) int { return encodeTo(b, FeatureEffectsSize, l) }

// UnmarshalBinary reads FeatureEffectsSize bytes.
func (l *FeatureEffectsLog) UnmarshalBinary(b []byte) error {
	return decodeFrom(b, FeatureEffectsSize, "Feature Identifiers Supported and Effects log", l)
}
