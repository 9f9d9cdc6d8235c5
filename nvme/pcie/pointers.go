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
// one. Data that is otherwise, or in few long pieces, goes by SGL where the drive has it. It returns false for data
// that the drive cannot take, is too short, or is not mapped for its DMA.
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
		if ptr1, ptr2, ok = q.sglList(i, at, n); ok {
			return nvme.PSDTSGL, ptr1, ptr2, true
		}
	}
	if ptr1, ptr2, ok = q.prpList(i, at, n); ok {
		return nvme.PSDTPRP, ptr1, ptr2, true
	}
	if q.sgl {
		ptr1, ptr2, ok = q.sglList(i, at, n)
		return nvme.PSDTSGL, ptr1, ptr2, ok
	}
	return 0, 0, 0, false
}

// list returns slot i's list, and its I/O address.
func (q *Queue) list(i uint16) (*[listBytes]byte, uint64) {
	offset := uintptr(i) * listBytes
	return (*[listBytes]byte)(unsafe.Add(q.lists, offset)), q.listIOVA + uint64(offset)
}

func (q *Queue) prpList(i uint16, at cursor, n uint32) (prp1, prp2 uint64, ok bool) {
	list, listIOVA := q.list(i)
	entries := 0 // in the list; the first is in the command
	offset := at.offset
	for k := range at.segs {
		seg := &at.segs[k]
		base, mapped := q.table.IOVA(*seg)
		if !mapped {
			return 0, 0, false
		}
		size := min(seg.Len-offset, n)
		if size == 0 {
			offset = 0
			continue
		}
		page, end := base+uint64(offset), base+uint64(offset)+uint64(size)
		offset = 0
		n -= size
		if prp1 == 0 {
			if page&3 != 0 {
				return 0, 0, false
			}
			prp1 = page
			page = page&^(pageSize-1) + pageSize
		} else if page&(pageSize-1) != 0 {
			return 0, 0, false
		}
		for ; page < end; page += pageSize {
			if entries == listBytes/8 {
				return 0, 0, false
			}
			binary.LittleEndian.PutUint64(list[entries*8:], page)
			entries++
		}
		if n == 0 {
			break
		}
		if end&(pageSize-1) != 0 {
			return 0, 0, false
		}
	}
	switch {
	case n != 0 || prp1 == 0:
		return 0, 0, false
	case entries == 0:
		return prp1, 0, true
	case entries == 1:
		return prp1, binary.LittleEndian.Uint64(list[:]), true
	}
	return prp1, listIOVA, true
}

// dataBlock is an SGL data block descriptor of memory, as the two halves of a command's data pointer.
func dataBlock(iova uint64, n uint32) (ptr1, ptr2 uint64) {
	return iova, uint64(n) | uint64(nvme.SGLIdentifier(nvme.SGLDataBlock, nvme.SGLAddress))<<56
}

// sglList describes the data by one descriptor in the command, or by a list that the command's descriptor names.
func (q *Queue) sglList(i uint16, at cursor, n uint32) (ptr1, ptr2 uint64, ok bool) {
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
				if entries == q.sglMax {
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
	if entries == q.sglMax {
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
