package executor

import (
	"cmp"
	"slices"
)

// item is one block of memory that lives from moment first to moment last of a sequence, both included; without transfers
// a moment is an op.
type item struct {
	bytes       int64
	first, last int
	offset      int64 // where pack put it
}

// livePeak returns the largest sum of bytes that live at one op: no packing can be lower.
func livePeak(items []item, ops int) int64 {
	change := make([]int64, ops+1)
	for _, it := range items {
		change[it.first] += it.bytes
		change[it.last+1] -= it.bytes
	}
	var live, peak int64
	for _, c := range change {
		live += c
		peak = max(peak, live)
	}
	return peak
}

// packRounds bounds the repair rounds that follow each starting order.
const packRounds = 60

// pack gives every item an offset such that items that live together do not overlap, and returns the extent: the
// end of the highest one. Optimal packing is NP-hard (dynamic storage allocation); pack tries several orders of
// greedy placement, repairs each by placing first what stuck out, and stops when the extent reaches the live peak.
func pack(items []item, ops int) int64 {
	floor := livePeak(items, ops)
	p := newPacker(items)
	best := int64(-1)
	offsets := make([]int64, len(items))
	for _, less := range packOrders {
		order := p.sorted(less)
		for range packRounds {
			extent := p.place(order)
			if best < 0 || extent < best {
				best = extent
				for i := range items {
					offsets[i] = items[i].offset
				}
			}
			if best == floor || !p.promote(order, floor) {
				break
			}
		}
		if best == floor {
			break
		}
	}
	for i := range items {
		items[i].offset = offsets[i]
	}
	return max(best, 0)
}

// packOrders are the starting orders: what is placed first lies lowest.
var packOrders = []func(a, b *item) int{
	func(a, b *item) int {
		return cmp.Or(cmp.Compare(b.last-b.first, a.last-a.first), cmp.Compare(b.bytes, a.bytes))
	},
	func(a, b *item) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(b.last-b.first, a.last-a.first))
	},
	func(a, b *item) int { return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(b.last, a.last)) },
	func(a, b *item) int { return cmp.Or(cmp.Compare(b.last, a.last), cmp.Compare(a.first, b.first)) },
	func(a, b *item) int {
		return cmp.Compare(b.bytes*int64(b.last-b.first+1), a.bytes*int64(a.last-a.first+1))
	},
}

// packer holds, for every item, the items that live together with it.
type packer struct {
	items []item
	meet  [][]int32
	done  []bool
	gaps  []*item
}

func newPacker(items []item) *packer {
	p := &packer{items: items, meet: make([][]int32, len(items)), done: make([]bool, len(items))}
	byFirst := make([]int, len(items))
	for i := range byFirst {
		byFirst[i] = i
	}
	slices.SortStableFunc(byFirst, func(a, b int) int { return cmp.Compare(items[a].first, items[b].first) })
	var open []int
	for _, i := range byFirst {
		open = slices.DeleteFunc(open, func(j int) bool { return items[j].last < items[i].first })
		for _, j := range open {
			p.meet[i] = append(p.meet[i], int32(j))
			p.meet[j] = append(p.meet[j], int32(i))
		}
		open = append(open, i)
	}
	return p
}

func (p *packer) sorted(less func(a, b *item) int) []int {
	order := make([]int, len(p.items))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return less(&p.items[a], &p.items[b]) })
	return order
}

// place puts the items, in order, each at the lowest offset that is free while it lives.
func (p *packer) place(order []int) (extent int64) {
	clear(p.done)
	for _, i := range order {
		p.items[i].offset = p.lowest(i)
		p.done[i] = true
		extent = max(extent, p.items[i].offset+p.items[i].bytes)
	}
	return extent
}

// lowest returns the lowest offset at which item i overlaps none of the placed items that live together with it.
func (p *packer) lowest(i int) int64 {
	p.gaps = p.gaps[:0]
	for _, j := range p.meet[i] {
		if p.done[j] && p.items[j].bytes > 0 {
			p.gaps = append(p.gaps, &p.items[j])
		}
	}
	slices.SortFunc(p.gaps, func(a, b *item) int { return cmp.Compare(a.offset, b.offset) })
	var at int64
	for _, g := range p.gaps {
		if g.offset-at >= p.items[i].bytes {
			break
		}
		at = max(at, g.offset+g.bytes)
	}
	return at
}

// promote moves the items that end above floor to the front of the order, for another round; false if there are
// none, or if they are in front already.
func (p *packer) promote(order []int, floor int64) bool {
	above := func(i int) bool { return p.items[i].offset+p.items[i].bytes > floor }
	front := 0
	for front < len(order) && above(order[front]) {
		front++
	}
	if !slices.ContainsFunc(order[front:], above) {
		return false
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(b2i(above(b)), b2i(above(a)))
	})
	return true
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
