//go:build !race

#include "textflag.h"

// The operand of DMB: outer shareable, stores (OSHST) or loads (OSHLD).
#define OSHST $0x2
#define OSHLD $0x1

// func Load32(p unsafe.Pointer) uint32
TEXT ·Load32(SB), NOSPLIT, $0-12
	MOVD p+0(FP), R0
	MOVWU (R0), R1
	DMB OSHLD
	MOVW R1, ret+8(FP)
	RET

// func Load64(p unsafe.Pointer) uint64
TEXT ·Load64(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD (R0), R1
	DMB OSHLD
	MOVD R1, ret+8(FP)
	RET

// func Store32(p unsafe.Pointer, v uint32)
TEXT ·Store32(SB), NOSPLIT, $0-12
	MOVD p+0(FP), R0
	MOVWU v+8(FP), R1
	DMB OSHST
	MOVW R1, (R0)
	RET

// func Store64(p unsafe.Pointer, v uint64)
TEXT ·Store64(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD v+8(FP), R1
	DMB OSHST
	MOVD R1, (R0)
	RET
