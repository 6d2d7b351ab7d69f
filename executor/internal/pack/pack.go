// Package pack gives blocks of memory their places: those that live at the same time do not overlap.
package pack

import (
	"cmp"
	"slices"
)

// Item is one block of memory that lives from moment first to moment last of a sequence, both included; without transfers
// a moment is an op.
type Item struct {
	Bytes       int64
	First, Last int
	Offset      int64 // where Pack put it
}

// Live returns the largest sum of bytes that live at one op: no packing can be lower.
func Live(items []Item, ops int) int64 {
	change := make([]int64, ops+1)
	for _, it := range items {
		change[it.First] += it.Bytes
		change[it.Last+1] -= it.Bytes
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

// Pack gives every item an offset such that items that live together do not overlap, and returns the extent: the
// end of the highest one. Optimal packing is NP-hard (dynamic storage allocation). Pack tries several orders of
// greedy placement, and repairs each by placing first the items that stuck out. It stops when the extent reaches
// the live peak.
func Pack(items []Item, ops int) int64 { return Around(nil, items, ops) }

// Around is Pack for memory in which fixed items have their places already, in the gaps that these leave and above them.
func Around(fixed, items []Item, ops int) int64 {
	p := newPacker(slices.Concat(fixed, items), len(fixed))
	return p.best(items, max(Live(p.items, ops), p.ground))
}

// best places the items that are not fixed until the extent is at most the floor, or nothing is left to try, and returns the extent.
func (p *packer) best(items []Item, floor int64) int64 {
	best := int64(-1)
	offsets := make([]int64, len(items))
	for _, less := range packOrders {
		order := p.sorted(less)
		for range packRounds {
			extent := p.place(order)
			if best < 0 || extent < best {
				best = extent
				for i := range items {
					offsets[i] = p.items[p.fixed+i].Offset
				}
			}
			if best <= floor || !p.promote(order, floor) {
				break
			}
		}
		if best <= floor {
			break
		}
	}
	for i := range items {
		items[i].Offset = offsets[i]
	}
	return max(best, 0)
}

// packOrders are the starting orders: what is placed first lies lowest.
var packOrders = []func(a, b *Item) int{
	func(a, b *Item) int {
		return cmp.Or(cmp.Compare(b.Last-b.First, a.Last-a.First), cmp.Compare(b.Bytes, a.Bytes))
	},
	func(a, b *Item) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Last-b.First, a.Last-a.First))
	},
	func(a, b *Item) int { return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(b.Last, a.Last)) },
	func(a, b *Item) int { return cmp.Or(cmp.Compare(b.Last, a.Last), cmp.Compare(a.First, b.First)) },
	func(a, b *Item) int {
		return cmp.Compare(b.Bytes*int64(b.Last-b.First+1), a.Bytes*int64(a.Last-a.First+1))
	},
}

// packer holds, for every item, the items that live together with it.
type packer struct {
	items  []Item
	fixed  int   // so many of the items, the first ones, have their places
	ground int64 // the end of the highest of these
	meet   [][]int32
	done   []bool
	gaps   []*Item
}

func newPacker(items []Item, fixed int) *packer {
	p := &packer{items: items, fixed: fixed, meet: make([][]int32, len(items)), done: make([]bool, len(items))}
	for _, it := range items[:fixed] {
		p.ground = max(p.ground, it.Offset+it.Bytes)
	}
	byFirst := make([]int, len(items))
	for i := range byFirst {
		byFirst[i] = i
	}
	slices.SortStableFunc(byFirst, func(a, b int) int { return cmp.Compare(items[a].First, items[b].First) })
	var open []int
	for _, i := range byFirst {
		open = slices.DeleteFunc(open, func(j int) bool { return items[j].Last < items[i].First })
		for _, j := range open {
			p.meet[i] = append(p.meet[i], int32(j))
			p.meet[j] = append(p.meet[j], int32(i))
		}
		open = append(open, i)
	}
	return p
}

func (p *packer) sorted(less func(a, b *Item) int) []int {
	order := make([]int, len(p.items)-p.fixed)
	for i := range order {
		order[i] = p.fixed + i
	}
	slices.SortStableFunc(order, func(a, b int) int { return less(&p.items[a], &p.items[b]) })
	return order
}

// place puts the items, in order, each at the lowest offset that is free while it lives.
func (p *packer) place(order []int) (extent int64) {
	for i := range p.done {
		p.done[i] = i < p.fixed
	}
	extent = p.ground
	for _, i := range order {
		p.items[i].Offset = p.lowest(i)
		p.done[i] = true
		extent = max(extent, p.items[i].Offset+p.items[i].Bytes)
	}
	return extent
}

// lowest returns the lowest offset at which item i overlaps none of the placed items that live together with it.
func (p *packer) lowest(i int) int64 {
	p.gaps = p.gaps[:0]
	for _, j := range p.meet[i] {
		if p.done[j] && p.items[j].Bytes > 0 {
			p.gaps = append(p.gaps, &p.items[j])
		}
	}
	slices.SortFunc(p.gaps, func(a, b *Item) int { return cmp.Compare(a.Offset, b.Offset) })
	var at int64
	for _, g := range p.gaps {
		if g.Offset-at >= p.items[i].Bytes {
			break
		}
		at = max(at, g.Offset+g.Bytes)
	}
	return at
}

// promote moves the items that end above floor to the front of the order, for another round; false if there are
// none, or if they are in front already.
func (p *packer) promote(order []int, floor int64) bool {
	above := func(i int) bool { return p.items[i].Offset+p.items[i].Bytes > floor }
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
