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
	p := newPacker(slices.Concat(fixed, items), len(fixed), ops)
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

// packer gives items their places, one by one.
type packer struct {
	items  []Item
	fixed  int   // so many of the items, the first ones, have their places
	ground int64 // the end of the highest of these
	round  int   // the length of a sequence that repeats; 0: it does not
	placed []place
	parts  [][]place // the placed items of each part of the sequence, for short lives in long sequences
	length int       // of such a part
}

// place is the bytes and the life of an item that has its place.
type place struct {
	from, to    int64
	first, last int
}

// itemsOfPart is how many items begin in a part of a sequence on the mean.
const itemsOfPart = 256

func newPacker(items []Item, fixed, moments int) *packer {
	length := max(moments, 1)/(1+len(items)/itemsOfPart) + 1
	p := &packer{items: items, fixed: fixed, length: length, parts: make([][]place, max(moments-1, 0)/length+1)}
	for _, it := range items[:fixed] {
		p.ground = max(p.ground, it.Offset+it.Bytes)
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
	p.placed = p.placed[:0]
	for i := range p.parts {
		p.parts[i] = p.parts[i][:0]
	}
	for i := range p.fixed {
		p.insert(&p.items[i])
	}
	extent = p.ground
	for _, i := range order {
		it := &p.items[i]
		it.Offset = p.lowest(it)
		p.insert(it)
		extent = max(extent, it.Offset+it.Bytes)
	}
	return extent
}

// insert adds an item to those that have their places, which are sorted by their offsets.
func (p *packer) insert(it *Item) {
	if it.Bytes == 0 {
		return
	}
	x := place{it.Offset, it.Offset + it.Bytes, it.First, it.Last}
	p.placed = inserted(p.placed, x)
	if len(p.parts) > 1 {
		first, n := p.partsOf(it)
		for k := range n {
			part := &p.parts[(first+k)%len(p.parts)]
			*part = inserted(*part, x)
		}
	}
}

// partsOf returns the first part of the sequence in which an item lives, and the number of parts.
func (p *packer) partsOf(it *Item) (first, n int) {
	first, all := it.First/p.length, len(p.parts)
	if p.round > 0 && it.Last >= p.round {
		return first, min(all-first+(it.Last-p.round)/p.length+1, all)
	}
	return first, it.Last/p.length - first + 1
}

func inserted(all []place, x place) []place {
	at, _ := slices.BinarySearchFunc(all, x.from, func(y place, from int64) int { return cmp.Compare(y.from, from) })
	return slices.Insert(all, at, x)
}

// beside returns placed items, by their offsets: among them all that live together with an item.
func (p *packer) beside(it *Item) []place {
	if len(p.parts) > 1 {
		if first, n := p.partsOf(it); n == 1 {
			return p.parts[first]
		}
	}
	return p.placed
}

// lowest returns the lowest offset at which an item overlaps none of the placed items that live together with it.
func (p *packer) lowest(it *Item) (at int64) {
	placed := p.beside(it)
	for i := range placed {
		x := &placed[i]
		if x.from-at >= it.Bytes {
			break
		}
		if x.to > at && p.meets(it, x) {
			at = x.to
		}
	}
	return at
}

// meets reports whether an item lives together with a placed one. In a sequence that repeats they do if one of them begins while the other
// lives.
func (p *packer) meets(it *Item, x *place) bool {
	if p.round == 0 {
		return it.First <= x.last && x.first <= it.Last
	}
	behind := x.first - it.First
	if behind < 0 {
		behind += p.round
	}
	return behind <= it.Last-it.First || p.round-behind <= x.last-x.first
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
