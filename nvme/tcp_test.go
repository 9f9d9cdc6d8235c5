package nvme

import (
	"bytes"
	"testing"
)

func TestTCPGolden(t *testing.T) {
	var req TCPICReq
	req.Set(3, TCPDigestHeader|TCPDigestData, 0x01020304)
	if want := unhex(t, 128, "00 00 80 00 80000000 0000 03 03 04030201"); !bytes.Equal(req[:], want) {
		t.Errorf("ICReq: % x", req)
	}
	if req.PFV() != 0 || req.HPDA() != 3 || req.DGST() != 3 || req.MAXR2T() != 0x01020304 || req.Header().Type() != TCPTypeICReq {
		t.Errorf("ICReq reads back wrong: % x", req)
	}
	var resp TCPICResp
	resp.Set(1, TCPDigestData, 131072)
	if want := unhex(t, 128, "01 00 80 00 80000000 0000 01 02 00000200"); !bytes.Equal(resp[:], want) {
		t.Errorf("ICResp: % x", resp)
	}
	if resp.PFV() != 0 || resp.CPDA() != 1 || resp.DGST() != 2 || resp.MAXH2CDATA() != 131072 {
		t.Errorf("ICResp reads back wrong: % x", resp)
	}

	var cmd TCPCapsuleCmd
	cmd.Header().Set(TCPTypeCapsuleCmd, TCPFlagHDGST|TCPFlagDDGST, 76, 76+4096+4)
	cmd.Command().SetOpcode(OpWrite)
	cmd.Command().SetCDW(15, 0x01020304)
	if want := unhex(t, 9, "04 03 48 4c 50100000 01"); !bytes.Equal(cmd[:9], want) || cmd[68] != 4 || cmd[71] != 1 {
		t.Errorf("CapsuleCmd: % x", cmd)
	}
	h := cmd.Header()
	if h.Type() != TCPTypeCapsuleCmd || h.Flags() != 3 || h.HLEN() != 72 || h.PDO() != 76 || h.PLEN() != 4176 {
		t.Errorf("header reads back wrong: % x", h)
	}
	h.SetFlags(TCPFlagHDGST)
	h.SetPDO(80)
	if h[1] != 1 || h[3] != 80 {
		t.Errorf("header setters: % x", h)
	}

	var rsp TCPCapsuleResp
	rsp.Header().Set(TCPTypeCapsuleResp, 0, 0, TCPCapsuleRespSize)
	rsp.Completion().SetCID(0x1234)
	if want := unhex(t, 24, "05 00 18 00 18000000 0000000000000000 0000 0000 3412"); !bytes.Equal(rsp[:], want) {
		t.Errorf("CapsuleResp: % x", rsp)
	}

	var data TCPData
	for i := range data {
		data[i] = 0xff
	}
	data.Header().Set(TCPTypeC2HData, TCPFlagLast|TCPFlagSuccess, 24, 24+512)
	data.SetFields(0x1234, 0x5678, 0x01020304, 512)
	if want := unhex(t, 24, "07 0c 18 18 18020000 3412 7856 04030201 00020000"); !bytes.Equal(data[:], want) {
		t.Errorf("C2HData: % x", data)
	}
	if data.CCCID() != 0x1234 || data.TTAG() != 0x5678 || data.DATAO() != 0x01020304 || data.DATAL() != 512 {
		t.Errorf("C2HData reads back wrong: % x", data)
	}

	var r2t TCPR2T
	for i := range r2t {
		r2t[i] = 0xff
	}
	r2t.Header().Set(TCPTypeR2T, 0, 0, TCPR2TSize)
	r2t.SetFields(0x1234, 0x5678, 0x01020304, 0x05060708)
	if want := unhex(t, 24, "09 00 18 00 18000000 3412 7856 04030201 08070605"); !bytes.Equal(r2t[:], want) {
		t.Errorf("R2T: % x", r2t)
	}
	if r2t.CCCID() != 0x1234 || r2t.TTAG() != 0x5678 || r2t.R2TO() != 0x01020304 || r2t.R2TL() != 0x05060708 {
		t.Errorf("R2T reads back wrong: % x", r2t)
	}

	var term TCPTermReq
	for i := range term {
		term[i] = 0xff
	}
	term.Set(TCPTypeC2HTermReq, TCPFESUnsupportedParameter, TCPOffsetMAX, 128)
	if want := unhex(t, 24, "03 00 18 00 98000000 0600 0c000000"); !bytes.Equal(term[:], want) {
		t.Errorf("C2HTermReq: % x", term)
	}
	if term.FES() != TCPFESUnsupportedParameter || term.FEI() != 12 || term.Header().PLEN() != TCPTermMaxPLEN {
		t.Errorf("C2HTermReq reads back wrong: % x", term)
	}
}

func TestTCPHeaderLengths(t *testing.T) {
	want := map[TCPPDUType]int{0: 128, 1: 128, 2: 24, 3: 24, 4: 72, 5: 24, 6: 24, 7: 24, 9: 24}
	for i := range 256 {
		if got := TCPPDUType(i).HLEN(); got != want[TCPPDUType(i)] {
			t.Errorf("type %#x (%s): HLEN %d, want %d", i, TCPPDUType(i), got, want[TCPPDUType(i)])
		}
	}
}

func TestTCPDataOffset(t *testing.T) {
	for _, c := range []struct {
		hlen   int
		digest bool
		pda    uint8
		want   int
	}{
		{72, false, 0, 72}, {72, true, 0, 76}, {24, true, 0, 28}, {24, false, 1, 24}, {24, true, 1, 32},
		{72, false, 31, 128}, {24, true, 2, 36}, {24, true, 31, 128},
	} {
		if got := TCPDataOffset(c.hlen, c.digest, c.pda); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
