package rdma

import (
	"testing"

	"rocet/nvme"
)

// keyed and plain are descriptors.
func keyed(sub nvme.SGLSubtype, addr uint64, n, key uint32) (d nvme.SGLDescriptor) {
	d.SetKeyed(sub, addr, n, key)
	return d
}

func plain(t nvme.SGLType, sub nvme.SGLSubtype, addr uint64, n uint32) (d nvme.SGLDescriptor) {
	d.SetDataBlock(t, sub, addr, n)
	return d
}

func withSGL(d nvme.SGLDescriptor) *nvme.Command {
	var c nvme.Command
	c.SetPSDT(nvme.PSDTSGL)
	*c.SGL() = d
	return &c
}

func list(ds ...nvme.SGLDescriptor) []byte {
	var b []byte
	for _, d := range ds {
		b = append(b, d[:]...)
	}
	return b
}

func TestParseSGL(t *testing.T) {
	const (
		ok  = nvme.StatusSuccess
		all = nvme.SGLAddress
		inv = nvme.SGLInvalidate
	)
	k4 := keyed(all, 0x1000, 4096, 7)
	last := func(off uint64, n uint32) nvme.SGLDescriptor {
		return plain(nvme.SGLLastSegment, nvme.SGLOffset, off, n)
	}
	in := func(off uint64, n uint32) nvme.SGLDescriptor {
		return plain(nvme.SGLDataBlock, nvme.SGLOffset, off, n)
	}
	tests := []struct {
		name    string
		sgl     nvme.SGLDescriptor
		capsule []byte
		length  uint32
		atLeast bool
		read    bool
		maxDesc int
		st      nvme.Status
		want    sglResult
	}{
		{"keyed write", k4, nil, 4096, false, false, 1, ok, sglResult{n: 1, key: 7}},
		{"keyed read", k4, nil, 4096, false, true, 1, ok, sglResult{n: 1, key: 7}},
		{"keyed with invalidate", keyed(inv, 0, 512, 9), nil, 512, false, true, 1, ok, sglResult{n: 1, invalidate: true, key: 9}},
		{"keyed, largest", keyed(all, 1, 1<<24-1, 9), nil, 1<<24 - 1, false, true, 1, ok, sglResult{n: 1, key: 9}},
		{"keyed, too short", k4, nil, 8192, false, false, 1, nvme.StatusSGLDataLength, sglResult{}},
		{"keyed, too long", k4, nil, 512, false, false, 1, nvme.StatusSGLDataLength, sglResult{}},
		{"keyed, longer is fine", k4, nil, 16, true, false, 1, ok, sglResult{n: 1, key: 7}},
		{"keyed, shorter is not", k4, nil, 4097, true, false, 1, nvme.StatusSGLDataLength, sglResult{}},
		{"keyed, unknown subtype", keyed(5, 0, 4096, 7), nil, 4096, false, false, 1, nvme.StatusInvalidSGLType, sglResult{}},

		{"in capsule", in(0, 512), make([]byte, 4096), 512, false, false, 1, ok, sglResult{}},
		{"in capsule, behind", in(3584, 512), make([]byte, 4096), 512, false, false, 1, ok, sglResult{offset: 3584}},
		{"in capsule, read", in(0, 512), make([]byte, 4096), 512, false, true, 1, nvme.StatusInvalidSGLType, sglResult{}},
		{"in capsule, out by one", in(3585, 512), make([]byte, 4096), 512, false, false, 1, nvme.StatusSGLDataLength, sglResult{}},
		{"in capsule, offset outside", in(4097, 512), make([]byte, 4096), 512, false, false, 1, nvme.StatusSGLOffset, sglResult{}},
		{"in capsule, offset wraps", in(1<<64-512, 512), make([]byte, 4096), 512, false, false, 1, nvme.StatusSGLOffset, sglResult{}},
		{"in capsule, more than was sent", in(0, 512), make([]byte, 511), 512, false, false, 1, nvme.StatusSGLDataLength, sglResult{}},
		{"in capsule, nothing was sent", in(0, 512), nil, 512, false, false, 1, nvme.StatusSGLDataLength, sglResult{}},
		{"in capsule, too short", in(0, 256), make([]byte, 4096), 512, false, false, 1, nvme.StatusSGLDataLength, sglResult{}},
		{"in capsule, too long", in(0, 1024), make([]byte, 4096), 512, false, false, 1, nvme.StatusSGLDataLength, sglResult{}},
		{"in capsule, longer is fine", in(0, 4096), make([]byte, 4096), 16, true, false, 1, ok, sglResult{}},

		{"list", last(0, 32), list(k4, k4), 8192, false, true, 16, ok, sglResult{n: 2, inList: true}},
		{"list behind data", last(16, 32), list(k4, k4, k4), 8192, false, true, 16, ok, sglResult{n: 2, inList: true, offset: 16}},
		{"list, invalidate", last(0, 32), list(k4, keyed(inv, 0, 4096, 3)), 8192, false, true, 16, ok, sglResult{n: 2, inList: true, invalidate: true, key: 3}},
		{"list with an empty block", last(0, 32), list(keyed(all, 0, 0, 1), k4), 4096, false, true, 16, ok, sglResult{n: 2, inList: true}},
		{"list, one not allowed", last(0, 16), list(k4), 4096, false, true, 1, nvme.StatusInvalidSGLType, sglResult{}},
		{"list, empty", last(0, 0), list(k4), 4096, false, true, 16, nvme.StatusInvalidSGLSegment, sglResult{}},
		{"list, odd length", last(0, 24), list(k4, k4), 4096, false, true, 16, nvme.StatusInvalidSGLSegment, sglResult{}},
		{"list, too many", last(0, 48), list(k4, k4, k4), 12288, false, true, 2, nvme.StatusInvalidSGLCount, sglResult{}},
		{"list, 2^28 descriptors", last(0, 0xfffffff0), list(k4), 4096, false, true, 16, nvme.StatusInvalidSGLCount, sglResult{}},
		{"list, outside by its length", last(0, 32), list(k4), 8192, false, true, 16, nvme.StatusInvalidSGLSegment, sglResult{}},
		{"list, outside by its offset", last(17, 16), list(k4), 4096, false, true, 16, nvme.StatusSGLOffset, sglResult{}},
		{"list, offset wraps", last(1<<64-16, 32), list(k4, k4), 8192, false, true, 16, nvme.StatusSGLOffset, sglResult{}},
		{"list, too short", last(0, 32), list(k4, k4), 8193, false, true, 16, nvme.StatusSGLDataLength, sglResult{}},
		{"list, too long", last(0, 32), list(k4, k4), 4096, false, true, 16, nvme.StatusSGLDataLength, sglResult{}},
		{"list of lists", last(0, 16), list(last(0, 16)), 16, false, true, 16, nvme.StatusInvalidSGLType, sglResult{}},
		{"list with capsule data", last(0, 16), list(in(0, 16)), 16, false, false, 16, nvme.StatusInvalidSGLType, sglResult{}},

		{"bit bucket", plain(nvme.SGLBitBucket, 0, 0, 512), nil, 512, false, true, 16, nvme.StatusInvalidSGLType, sglResult{}},
		{"data block by address", plain(nvme.SGLDataBlock, all, 0, 512), nil, 512, false, false, 16, nvme.StatusInvalidSGLType, sglResult{}},
		{"segment", plain(nvme.SGLSegment, nvme.SGLOffset, 0, 16), list(k4), 4096, false, true, 16, nvme.StatusInvalidSGLType, sglResult{}},
		{"last segment by address", plain(nvme.SGLLastSegment, all, 0, 16), list(k4), 4096, false, true, 16, nvme.StatusInvalidSGLType, sglResult{}},
		{"transport block", plain(nvme.SGLTransportDataBlock, nvme.SGLTransport, 0, 512), nil, 512, false, true, 16, nvme.StatusInvalidSGLType, sglResult{}},
		{"vendor", plain(nvme.SGLVendorSpecific, 0, 0, 512), nil, 512, false, true, 16, nvme.StatusInvalidSGLType, sglResult{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, st := parseSGL(withSGL(tt.sgl), tt.capsule, tt.length, tt.atLeast, !tt.read, tt.maxDesc)
			if st != tt.st {
				t.Fatalf("status %v, want %v", st, tt.st)
			}
			if st != ok {
				if got.errorAt < 24 || got.errorAt > 39 {
					t.Errorf("the error is at byte %d, outside the SGL", got.errorAt)
				}
				return
			}
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func FuzzParseSGL(f *testing.F) {
	k4 := keyed(nvme.SGLInvalidate, 0x1000, 4096, 7)
	f.Add(k4[:], []byte{}, uint32(4096), false, true)
	l := plain(nvme.SGLLastSegment, nvme.SGLOffset, 0, 32)
	f.Add(l[:], list(k4, k4), uint32(8192), true, false)
	d := plain(nvme.SGLDataBlock, nvme.SGLOffset, 8, 24)
	f.Add(d[:], make([]byte, 32), uint32(24), false, true)
	f.Fuzz(func(t *testing.T, sgl, capsule []byte, length uint32, atLeast, write bool) {
		var desc nvme.SGLDescriptor
		copy(desc[:], sgl)
		if length == 0 {
			return
		}
		cmd := withSGL(desc)
		for _, maxDesc := range []int{1, MaxDescriptors} {
			g, st := parseSGL(cmd, capsule, length, atLeast, write, maxDesc)
			if st != nvme.StatusSuccess {
				continue
			}
			// What was accepted can be walked without leaving the capsule, and is
			// long enough.
			var total uint64
			switch {
			case g.n == 0:
				if uint64(g.offset)+uint64(length) > uint64(len(capsule)) {
					t.Fatalf("in-capsule data leaves the capsule: %+v", g)
				}
				continue
			case g.inList:
				if g.n > maxDesc || int(g.offset)+g.n*16 > len(capsule) {
					t.Fatalf("the list leaves the capsule: %+v", g)
				}
				for i := range g.n {
					e := nvme.SGLDescriptor(capsule[int(g.offset)+i*16:])
					total += uint64(e.KeyedLength())
				}
			default:
				total = uint64(cmd.SGL().KeyedLength())
			}
			if total < uint64(length) || total > uint64(length) && !atLeast {
				t.Fatalf("%d bytes are described for %d: %+v", total, length, g)
			}
		}
	})
}
