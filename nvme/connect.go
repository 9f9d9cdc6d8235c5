package nvme

// ConnectDataSize is the length of the Connect command's data.
const ConnectDataSize = 1024

// Offsets of ConnectData's fields: what Invalid Connect Parameters names in IPO
// when IATTR is 1.
const (
	ConnectDataOffsetHostID  = 0
	ConnectDataOffsetCNTLID  = 16
	ConnectDataOffsetSUBNQN  = 256
	ConnectDataOffsetHOSTNQN = 512
)

// ConnectData is the data of a Connect command: Base 2.1 section 6.3, figure
// "Connect Command - Data".
type ConnectData struct {
	HostID  UUID     // HOSTID
	CNTLID  uint16   // CNTLIDDynamic, CNTLIDAnyStatic, or the controller of an I/O queue
	SubNQN  NQNField // SUBNQN
	HostNQN NQNField // HOSTNQN
}

func (d *ConnectData) layout(c *codec) {
	c.bytes(d.HostID[:])
	c.u16(&d.CNTLID)
	c.reserved(ConnectDataOffsetSUBNQN)
	c.bytes(d.SubNQN[:])
	c.bytes(d.HostNQN[:])
	c.reserved(ConnectDataSize)
}

// MarshalTo writes ConnectDataSize bytes.
func (d *ConnectData) MarshalTo(b []byte) int { return encodeTo(b, ConnectDataSize, d) }

// UnmarshalBinary reads ConnectDataSize bytes.
func (d *ConnectData) UnmarshalBinary(b []byte) error {
	return decodeFrom(b, ConnectDataSize, "Connect data", d)
}
