// Package nvme holds the wire formats of the NVM Express specifications: NVM
// Express Base Specification 2.1 ("Base" below), NVM Command Set Specification
// 1.1, RDMA Transport Specification 1.1 and TCP Transport Specification 1.1.
// It has no behaviour and does no I/O; it imports the standard library only.
//
// Everything on the wire is little-endian. There are two kinds of types:
//
//   - What the I/O path touches is an array of bytes with methods that read and
//     write it in place: [Command], [Completion], [SGLDescriptor], and the TCP
//     PDU headers. Point one at a receive buffer and nothing is copied:
//
//     capsule ── (*Command)(buf[:64]) ──▶ c.Opcode(), c.SLBA(), c.SGL().Key() ...
//
//   - What is built once per connection or per admin command is a struct with
//     MarshalTo(dst) (dst of the exact size or longer; reserved bytes are written
//     as zero) and Unmarshal(src). These check lengths and report errors; they
//     never panic on what came from the wire.
//
// [Status] is the one status type: it holds SCT, SC, CRD, M and DNR, and its
// Wire method is what a completion carries.
//
// A bit that is reserved on the wire is neither checked nor kept by this
// package, except where a method's comment says so: policy belongs to the users.
package nvme
