package host

import (
	"context"
	"fmt"
	"io"

	"rocet/nvme"
)

// Reader reads a namespace's bytes, through a queue that nothing else uses. It is for looking at a few, not for speed.
type Reader struct {
	q   *Queue
	ns  *Namespace
	mem *Memory
	io  IO
}

const readerMax = 64 << 10

// NewReader makes a reader.
func NewReader(q *Queue, ns *Namespace, c *Controller) (*Reader, error) {
	size := max(min(readerMax, c.MaxTransfer())/ns.BlockSize, 1) * ns.BlockSize
	m, err := c.NewMemory(int(size))
	if err != nil {
		return nil, err
	}
	return &Reader{q: q, ns: ns, mem: m}, nil
}

// Close frees the reader's memory. The queue stays.
func (r *Reader) Close() error { return r.mem.Free() }

// ReadAt implements io.ReaderAt, for one goroutine.
func (r *Reader) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("host: read at %d", off)
	}
	bs := uint64(r.ns.BlockSize)
	for len(p) > n {
		at := uint64(off) + uint64(n)
		if at >= r.ns.Bytes() {
			return n, io.EOF
		}
		lba, skip := at/bs, at%bs
		blocks := min((skip+uint64(len(p)-n)+bs-1)/bs, uint64(len(r.mem.b))/bs, r.ns.Blocks-lba)
		r.io.SetRW(nvme.OpRead, r.ns.NSID, lba, uint32(blocks))
		r.io.SetData(r.mem, 0, uint32(blocks*bs))
		if err := r.q.execute(context.Background(), &r.io); err != nil {
			return n, err
		}
		if !r.io.Status.IsOK() {
			return n, &StatusError{Command: fmt.Sprintf("Read of %d blocks at %d", blocks, lba), Status: r.io.Status}
		}
		n += copy(p[n:], r.mem.b[skip:blocks*bs])
	}
	return n, nil
}
