package pcie

import (
	"encoding/binary"
	"unsafe"

	"rocet/nvme"
)

// sglAverage is the length of data per descriptor from which on an SGL is shorter work for the drive than PRPs.
const sglAverage = 32 << 10

// pointers fills the data pointer of slot i's command for n bytes from a cursor on: Base 2.1 sections 4.3.1 and 4.3.2.
//
// PRPs are for data as the pool has it: every piece but the first begins at a page, every piece but the last ends at
// one, unless they are neighbours. Data that is otherwise, or in few long pieces, goes by SGL where the drive has it. It
// returns false for data that one command cannot have, is too short, or is not mapped for the drive's DMA.
func (q *Queue) pointers(i uint16, at cursor, n uint32) (psdt uint8, ptr1, ptr2 uint64, ok bool) {
	if len(at.segs) == 0 {
		return 0, 0, 0, false
	}
	first := at.segs[0]
	iova, ok := q.table.IOVA(first)
	if !ok {
		return 0, 0, 0, false
	}
	iova += uint64(at.offset)
	if first.Len-at.offset >= n && iova&3 == 0 { // in one piece
		switch end := iova&(pageSize-1) + uint64(n); {
		case end <= pageSize:
			return nvme.PSDTPRP, iova, 0, true
		case end <= 2*pageSize:
			return nvme.PSDTPRP, iova, iova&^(pageSize-1) + pageSize, true
		case q.sgl:
			q.stats.SGL++
			ptr1, ptr2 = dataBlock(iova, n)
			return nvme.PSDTSGL, ptr1, ptr2, true
		}
	}
	if q.sgl && n/uint32(len(at.segs)) >= sglAverage {
		if ptr1, ptr2, ok = q.sglList(i, at, n, q.sglMax); ok {
			return nvme.PSDTSGL, ptr1, ptr2, true
		}
	}
	if ptr1, ptr2, ok = q.prpList(i, at, n); ok {
		return nvme.PSDTPRP, ptr1, ptr2, true
	}
	if q.sgl {
		ptr1, ptr2, ok = q.sglList(i, at, n, sglEntries)
		return nvme.PSDTSGL, ptr1, ptr2, ok
	}
	return 0, 0, 0, false
}

// list returns slot i's list, and its I/O address.
func (q *Queue) list(i uint16) (*[listBytes]byte, uint64) {
	offset := uintptr(i) * listBytes
	return (*[listBytes]byte)(unsafe.Add(q.lists, offset)), q.listIOVA + uint64(offset)
}

// prpList writes PRPs: the first entry goes into the command, the others into the list, or into the command if there is
// one only.
func (q *Queue) prpList(i uint16, at cursor, n uint32) (prp1, prp2 uint64, ok bool) {
	list, listIOVA := q.list(i)
	entries := 0
	var w prpWalk
	for k := range at.segs {
		piece, good := w.next(q, &at, k, n)
		if !good {
			return 0, 0, false
		}
		n -= piece
		for ; w.page < w.end; w.page += pageSize {
			if entries == listBytes/8 {
				return 0, 0, false
			}
			binary.LittleEndian.PutUint64(list[entries*8:], w.page)
			entries++
		}
		if n == 0 {
			break
		}
	}
	switch {
	case n != 0 || w.first == 0:
		return 0, 0, false
	case entries == 0:
		return w.first, 0, true
	case entries == 1:
		return w.first, binary.LittleEndian.Uint64(list[:]), true
	}
	return w.first, listIOVA, true
}

// prpWalk goes along data as PRPs see it.
type prpWalk struct {
	first uint64 // where the data begins
	end   uint64 // of what was walked
	page  uint64 // the next page that needs an entry
}

// next takes in segment k, up to most bytes of it. It returns false if PRPs cannot go on with it: it neither follows what
// is before it, nor begins a page where that ended one.
func (w *prpWalk) next(q *Queue, at *cursor, k int, most uint32) (uint32, bool) {
	seg := &at.segs[k]
	base, mapped := q.table.IOVA(*seg)
	if !mapped {
		return 0, false
	}
	offset := uint32(0)
	if k == 0 {
		offset = at.offset
	}
	start, size := base+uint64(offset), min(seg.Len-offset, most)
	switch {
	case size == 0:
		return 0, true
	case w.first == 0:
		if start&3 != 0 {
			return 0, false
		}
		w.first = start
		w.page = start&^(pageSize-1) + pageSize
	case start == w.end: // neighbours
	case (start|w.end)&(pageSize-1) != 0:
		return 0, false
	default:
		w.page = start
	}
	w.end = start + uint64(size)
	return size, true
}

// prefix returns how many of n bytes PRPs can describe in one command.
func (q *Queue) prefix(at cursor, n uint32) uint32 {
	var w prpWalk
	walked := uint32(0)
	for k := range at.segs {
		piece, good := w.next(q, &at, k, n-walked)
		if !good {
			break
		}
		walked += piece
	}
	return walked
}

// dataBlock is an SGL data block descriptor of memory, as the two halves of a command's data pointer.
func dataBlock(iova uint64, n uint32) (ptr1, ptr2 uint64) {
	return iova, uint64(n) | uint64(nvme.SGLIdentifier(nvme.SGLDataBlock, nvme.SGLAddress))<<56
}

// sglEntries is how many descriptors a slot's list has room for.
const sglEntries = listBytes / nvme.SGLDescriptorSize

// sglList describes the data by one descriptor in the command, or by a list of up to most that the command's descriptor
// names.
func (q *Queue) sglList(i uint16, at cursor, n, most uint32) (ptr1, ptr2 uint64, ok bool) {
	list, listIOVA := q.list(i)
	entries := uint32(0)
	var start uint64 // the piece under way
	var size uint32
	offset := at.offset
	for k := range at.segs {
		seg := &at.segs[k]
		base, mapped := q.table.IOVA(*seg)
		if !mapped {
			return 0, 0, false
		}
		part := min(seg.Len-offset, n)
		from := base + uint64(offset)
		offset = 0
		if part == 0 {
			continue
		}
		if !q.sglBytes && (from|uint64(part))&3 != 0 {
			return 0, 0, false
		}
		n -= part
		if size > 0 && from == start+uint64(size) { // pieces that happen to be neighbours
			size += part
		} else {
			if size > 0 {
				if entries == most {
					return 0, 0, false
				}
				putDescriptor(list, entries, start, size)
				entries++
			}
			start, size = from, part
		}
		if n == 0 {
			break
		}
	}
	if n != 0 || size == 0 {
		return 0, 0, false
	}
	if entries == 0 {
		q.stats.SGL++
		ptr1, ptr2 = dataBlock(start, size)
		return ptr1, ptr2, true
	}
	if entries == most {
		return 0, 0, false
	}
	putDescriptor(list, entries, start, size)
	entries++
	q.stats.SGL++
	last := uint64(nvme.SGLIdentifier(nvme.SGLLastSegment, nvme.SGLAddress)) << 56
	return listIOVA, uint64(entries*nvme.SGLDescriptorSize) | last, true
}

func putDescriptor(list *[listBytes]byte, k uint32, iova uint64, n uint32) {
	ptr1, ptr2 := dataBlock(iova, n)
	binary.LittleEndian.PutUint64(list[k*nvme.SGLDescriptorSize:], ptr1)
	binary.LittleEndian.PutUint64(list[k*nvme.SGLDescriptorSize+8:], ptr2)
}
