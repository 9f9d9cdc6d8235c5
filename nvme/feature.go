package nvme

import (
	"encoding/binary"
	"time"
)

// Values of features: CDW11 of Set Features, and dword 0 of Get Features and of
// Set Features' completion (Base 2.1 section 5.1.25; NVM Command Set 1.1
// section 4.1.3).

// QueueCounts is the Number of Queues feature: 0-based counts on the wire.
type QueueCounts uint32

// MakeQueueCounts builds the feature of counts of 1 to 65535.
func MakeQueueCounts(submission, completion uint32) QueueCounts {
	return QueueCounts((submission-1)&0xffff | (completion-1)<<16)
}

// Submission returns the number of I/O submission queues, 1-based. 65536 stands
// for the wire's FFFFh, which is an invalid field in Set Features.
func (q QueueCounts) Submission() uint32 { return uint32(q&0xffff) + 1 }

// Completion returns the number of I/O completion queues, 1-based; see Submission.
func (q QueueCounts) Completion() uint32 { return uint32(q>>16) + 1 }

// Arbitration is the Arbitration feature.
type Arbitration uint32

// ArbitrationNoLimit is the burst without a limit.
const ArbitrationNoLimit = 7

// Burst returns the arbitration burst as a power of two.
func (a Arbitration) Burst() uint8 { return uint8(a & 7) }

// Weights returns the weights of low, medium and high priority, 0-based.
func (a Arbitration) Weights() (low, medium, high uint8) {
	return uint8(a >> 8), uint8(a >> 16), uint8(a >> 24)
}

// TemperatureThreshold is the Temperature Threshold feature.
type TemperatureThreshold uint32

// Values of TemperatureThreshold's fields.
const (
	TemperatureComposite  = 0  // TMPSEL; 1 to 8 are sensors
	TemperatureAllSensors = 15 // TMPSEL, of Set Features only
	TemperatureOver       = 0  // THSEL
	TemperatureUnder      = 1
)

// MakeTemperatureThreshold builds the feature.
func MakeTemperatureThreshold(kelvin uint16, sensor, kind uint8) TemperatureThreshold {
	return TemperatureThreshold(kelvin) | TemperatureThreshold(sensor&0xf)<<16 | TemperatureThreshold(kind&3)<<20
}

// Kelvin returns the threshold.
func (t TemperatureThreshold) Kelvin() uint16 { return uint16(t) }

// Sensor returns TMPSEL.
func (t TemperatureThreshold) Sensor() uint8 { return uint8(t>>16) & 0xf }

// Kind returns THSEL, TemperatureOver or TemperatureUnder.
func (t TemperatureThreshold) Kind() uint8 { return uint8(t>>20) & 3 }

// Hysteresis returns TMPTHH, in kelvin.
func (t TemperatureThreshold) Hysteresis() uint8 { return uint8(t>>22) & 7 }

// Bits and fields of small features.
const (
	PowerStateMask          = 0x1f    // Power Management: PS; bits 7:5 are the workload hint
	ErrorRecoveryTimeMask   = 0xffff  // Error Recovery: TLER, 100 ms units
	ErrorRecoveryDULBE      = 1 << 16 // Error Recovery: deallocated blocks are an error
	WriteCacheEnable        = 1 << 0  // Volatile Write Cache: WCE
	WriteAtomicityNormalOff = 1 << 0  // Write Atomicity Normal: DN
	HostIDExtended          = 1 << 0  // Host Identifier: EXHID, 128 bits; always 1 on fabrics
	ReservationPersistOn    = 1 << 0  // Reservation Persistence: PTPL
	CommandSetIndexMask     = 0x1ff   // I/O Command Set Profile: IOCSCI
	AutonomousPSTEnable     = 1 << 0
	HostMemoryEnable        = 1 << 0
	HostMemoryReturn        = 1 << 1
	InterruptCoalescingOff  = 1 << 16 // Interrupt Vector Configuration: CD
	NonOperationalPower     = 1 << 0  // NOPPME
)

// InterruptCoalescing is the Interrupt Coalescing feature.
type InterruptCoalescing uint32

// Threshold returns the completions per interrupt, 0-based.
func (i InterruptCoalescing) Threshold() uint8 { return uint8(i) }

// Time returns the aggregation time.
func (i InterruptCoalescing) Time() time.Duration {
	return time.Duration(uint8(i>>8)) * 100 * time.Microsecond
}

// Reservation Notification Mask: a set bit keeps the notification back.
const (
	ReservationMaskRegistrationPreempted = 1 << 1
	ReservationMaskReleased              = 1 << 2
	ReservationMaskPreempted             = 1 << 3
)

// Namespace Write Protection Config: states, bits 2:0.
const (
	NSWriteProtectNone       = 0
	NSWriteProtectOn         = 1
	NSWriteProtectUntilPower = 2
	NSWriteProtectPermanent  = 3
	NSWriteProtectStateMask  = 7
)

// Sizes of features' data.
const (
	TimestampSize      = 8
	HostBehaviorSize   = 512
	HostIDSize         = 8  // Host Identifier with EXHID 0
	HostIDExtendedSize = 16 // with EXHID 1
	AutonomousPSTSize  = 256
)

// Origins of a Timestamp.
const (
	TimestampOriginReset       = 0 // 0 at the last controller level reset
	TimestampOriginSetFeatures = 1
)

// Timestamp is the data of the Timestamp feature: Base 2.1 section 5.1.25.1.7.
type Timestamp struct {
	Milliseconds uint64 // since 1970-01-01, 48 bits
	Origin       uint8  // TimestampOriginReset or TimestampOriginSetFeatures
	Stopped      bool   // SYNCH
}

// MarshalTo writes TimestampSize bytes.
func (t *Timestamp) MarshalTo(b []byte) int {
	b = b[:TimestampSize]
	attr := uint64(t.Origin&7)<<1 | bit(t.Stopped)
	binary.LittleEndian.PutUint64(b, t.Milliseconds&(1<<48-1)|attr<<48)
	return TimestampSize
}

// UnmarshalBinary reads TimestampSize bytes.
func (t *Timestamp) UnmarshalBinary(b []byte) error {
	if len(b) < TimestampSize {
		return tooShort("timestamp", len(b), TimestampSize)
	}
	v := binary.LittleEndian.Uint64(b)
	*t = Timestamp{
		Milliseconds: v & (1<<48 - 1),
		Origin:       uint8(v>>49) & 7,
		Stopped:      v>>48&1 != 0,
	}
	return nil
}

// HostBehavior is the data of the Host Behavior Support feature: Base 2.1
// section 5.1.25.1.14.
type HostBehavior struct {
	ACRE   uint8 // 1: advanced command retry (CRD) is understood
	ETDAS  uint8 // 1: telemetry data area 4 is understood
	LBAFEE uint8 // 1: extended LBA formats are understood
	HDISNS uint8 // 1: dispersed namespaces are understood
	CDFE   uint16
}

func (h *HostBehavior) layout(c *codec) {
	c.u8(&h.ACRE)
	c.u8(&h.ETDAS)
	c.u8(&h.LBAFEE)
	c.u8(&h.HDISNS)
	c.u16(&h.CDFE)
	c.reserved(HostBehaviorSize)
}

// MarshalTo writes HostBehaviorSize bytes.
func (h *HostBehavior) MarshalTo(b []byte) int { return encodeTo(b, HostBehaviorSize, h) }

// UnmarshalBinary reads HostBehaviorSize bytes.
func (h *HostBehavior) UnmarshalBinary(b []byte) error {
	return decodeFrom(b, HostBehaviorSize, "Host Behavior Support data", h)
}
