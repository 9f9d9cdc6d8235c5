package rdma

import (
	"bytes"
	"encoding/binary"
	"testing"

	"rocet/nvme"
)

// request is a connect request's private data as a host writes it.
func request(recfmt, qid, hrqsize, hsqsize, cntlid uint16, size int) []byte {
	b := make([]byte, size)
	for i, v := range []uint16{recfmt, qid, hrqsize, hsqsize, cntlid} {
		if 2*i+2 <= size {
			binary.LittleEndian.PutUint16(b[2*i:], v)
		}
	}
	return b
}

func TestParseRequest(t *testing.T) {
	tests := []struct {
		name   string
		data   []byte
		reads  uint8
		status nvme.RDMACMStatus // 0: accepted
		want   proposal
	}{
		{"Linux admin queue", request(0, 0, 32, 31, 0, 32), 16, 0, proposal{0, 32, 32, 16}},
		{"padded by the CM", request(0, 1, 128, 127, 0, 56), 1, 0, proposal{1, 128, 128, 1}},
		{"cntlid of newer hosts", request(0, 3, 128, 127, 7, 56), 128, 0, proposal{3, 128, 128, 128}},
		{"smallest queue", request(0, 1, 1, 1, 0, 32), 1, 0, proposal{1, 2, 1, 1}},
		{"admin queue with a controller", request(0, 0, 32, 31, 0xffff, 32), 1, 0, proposal{0, 32, 32, 1}},
		{"no data", nil, 1, nvme.RDMACMInvalidPrivateDataLength, proposal{}},
		{"a byte short", request(0, 0, 32, 31, 0, 31), 1, nvme.RDMACMInvalidPrivateDataLength, proposal{}},
		{"unknown format", request(1, 0, 32, 31, 0, 32), 1, nvme.RDMACMInvalidRECFMT, proposal{}},
		{"reserved queue id", request(0, 0xffff, 32, 31, 0, 32), 1, nvme.RDMACMInvalidQID, proposal{}},
		{"hsqsize 0", request(0, 1, 32, 0, 0, 32), 1, nvme.RDMACMInvalidHSQSIZE, proposal{}},
		{"hsqsize too large", request(0, 1, 128, 128, 0, 32), 1, nvme.RDMACMInvalidHSQSIZE, proposal{}},
		{"hsqsize ffff", request(0, 1, 128, 0xffff, 0, 32), 1, nvme.RDMACMInvalidHSQSIZE, proposal{}},
		{"hrqsize 0", request(0, 1, 0, 31, 0, 32), 1, nvme.RDMACMInvalidHRQSIZE, proposal{}},
		{"no READs", request(0, 1, 32, 31, 0, 32), 0, nvme.RDMACMInvalidIRD, proposal{}},
		{"impossible controller", request(0, 1, 32, 31, 0xfff0, 32), 1, nvme.RDMACMInvalidCNTLID, proposal{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, r := parseRequest(tt.data, tt.reads, 128, maxQID)
			var st nvme.RDMACMStatus
			if r != nil {
				st = r.status
			}
			if st != tt.status || r == nil && got != tt.want {
				t.Errorf("got %+v, status %d (%v), want %+v, status %d", got, st, r, tt.want, tt.status)
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	want := make([]byte, 32)
	want[2] = 128
	if got := acceptData(128); !bytes.Equal(got, want) {
		t.Errorf("accept: % x, want % x", got, want)
	}
	for st := nvme.RDMACMInvalidPrivateDataLength; st <= nvme.RDMACMInvalidCNTLID; st++ {
		if got, want := rejectData(st), []byte{0, 0, byte(st), 0}; !bytes.Equal(got, want) {
			t.Errorf("reject: % x, want % x", got, want)
		}
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add(request(0, 0, 32, 31, 0, 32), uint8(16))
	f.Add(request(0, 5, 128, 127, 9, 56), uint8(0))
	f.Add(request(1, 0xffff, 0, 0, 0xffff, 31), uint8(255))
	f.Fuzz(func(t *testing.T, data []byte, reads uint8) {
		p, r := parseRequest(data, reads, 128, maxQID)
		if r != nil {
			if r.status < nvme.RDMACMInvalidPrivateDataLength || r.status > nvme.RDMACMInvalidCNTLID || r.Error() == "" {
				t.Fatalf("refused with status %d", r.status)
			}
			return
		}
		if len(data) < nvme.RDMACMRequestSize || p.depth < 2 || p.depth > 128 || p.responses == 0 || p.readDepth == 0 || p.qid > maxQID {
			t.Fatalf("accepted %+v of % x", p, data)
		}
	})
}
