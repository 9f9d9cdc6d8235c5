package nvme

// The wire types that are byte views have these lengths, or this file does not
// compile. Structures with a layout method are held to theirs each time one is
// encoded or decoded.
var (
	_ = [64]byte(Command{})
	_ = [16]byte(Completion{})
	_ = [16]byte(SGLDescriptor{})
	_ = [16]byte(DSMRange{})
	_ = [256]byte(NQNField{})
	_ = [256]byte(TSAS{})
	_ = [16]byte(UUID{})
	_ = [16]byte(NGUID{})
	_ = [8]byte(EUI64{})
	_ = [8]byte(TCPHeader{})
	_ = [128]byte(TCPICReq{})
	_ = [128]byte(TCPICResp{})
	_ = [72]byte(TCPCapsuleCmd{})
	_ = [24]byte(TCPCapsuleResp{})
	_ = [24]byte(TCPData{})
	_ = [24]byte(TCPR2T{})
	_ = [24]byte(TCPTermReq{})
)
