package vfio

import (
	"math/bits"
	"slices"
)

// lowest is where I/O addresses begin: 0 is kept free, since drives take a zero pointer for none.
const lowest = 1 << 20

// addresses hands out I/O addresses from the ranges that the IOMMU has.
type addresses struct {
	ranges []Range // sorted, disjoint
	used   []Range // sorted, disjoint
}

// contains tells whether a piece lies in one of the ranges.
func (a *addresses) contains(r Range) bool {
	for _, have := range a.ranges {
		if r.Start >= have.Start && r.Last <= have.Last {
			return true
		}
	}
	return false
}

// setRanges takes what the kernel reports now. Attaching a device can narrow it.
func (a *addresses) setRanges(ranges []Range) {
	a.ranges = slices.Clone(ranges)
	slices.SortFunc(a.ranges, func(x, y Range) int {
		switch {
		case x.Start < y.Start:
			return -1
		case x.Start > y.Start:
			return 1
		}
		return 0
	})
}

// take finds the lowest free piece of size bytes whose address has the same remainder as vaddr modulo align: then
// hugepages become huge entries of the IOMMU's tables.
func (a *addresses) take(size uint64, vaddr uint64, align uint64) (uint64, bool) {
	if size == 0 {
		return 0, false
	}
	for _, r := range a.ranges {
		at, ok := congruent(max(r.Start, lowest), vaddr, align)
		for ok && at <= r.Last && r.Last-at >= size-1 {
			i, hit := a.overlaps(Range{at, at + size - 1})
			if !hit {
				a.used = slices.Insert(a.used, i, Range{at, at + size - 1})
				return at, true
			}
			if a.used[i].Last == ^uint64(0) {
				break
			}
			at, ok = congruent(a.used[i].Last+1, vaddr, align)
		}
	}
	return 0, false
}

// give frees a piece that take returned.
func (a *addresses) give(iova uint64) {
	for i, r := range a.used {
		if r.Start == iova {
			a.used = slices.Delete(a.used, i, i+1)
			return
		}
	}
	panic("vfio: an I/O address is freed that was not taken")
}

// overlaps returns the first used piece that ends at or after r's start, and whether it overlaps r.
func (a *addresses) overlaps(r Range) (int, bool) {
	i, _ := slices.BinarySearchFunc(a.used, r.Start, func(u Range, start uint64) int {
		if u.Last < start {
			return -1
		}
		return 1
	})
	return i, i < len(a.used) && a.used[i].Start <= r.Last
}

// congruent returns the first address from on that equals want modulo align, a power of two.
func congruent(from, want, align uint64) (uint64, bool) {
	at, carry := bits.Add64(from, (want-from)&(align-1), 0)
	return at, carry == 0
}
