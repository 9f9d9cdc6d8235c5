// Package nvme holds the wire formats of the NVM Express specifications: NVM
// Express Base Specification 2.1 ("Base" below), NVM Command Set Specification
// 1.1, RDMA Transport Specification 1.1 and TCP Transport Specification 1.1.
// It has no behaviour and does no I/O; it imports the standard library only.
//
// Everything on the wire is little-endian. There are two kinds of types:
//
//   - What the I/O path touches is an array of bytes with methods that read and
//     write it in place: [Command], [Completion], [SGLDescriptor], and the TCP
//     PDU headers. Point one at a receive buffer and nothing is copied.
//   - What is built once per connection or per admin command is a struct with
//     MarshalTo(dst) (dst of the exact size or longer; reserved bytes are written
//     as zero) and UnmarshalBinary(src). The latter reports short and
//     contradictory data as an error and ignores what follows the structure; it
//     never panics on what came from the wire.
//
// The way of a command through the views:
//
//	receive buffer ── (*Command)(buf[:64]) ──▶ Opcode, NSID, SLBA, NLB, SGL().Key ...
//	send buffer ◀── (*Completion)(buf[:16]) ── SetCID, SetSQHD, SetStatus(StatusX.WithDNR())
//
// [Status] is the one status type: it holds SCT, SC, CRD, M and DNR, and its
// Wire method is what a completion carries.
//
// Whether reserved fields are zero, and whether values make sense, is not
// checked here: that is for the users, who know which status to answer with.
package nvme
