package pack

import "slices"

// Circle is Pack for a sequence that repeats without end: an item lives from moment first to moment last, both included, of
// each round of so many moments. Items may last beyond the end of a round, but no longer than one.
func Circle(items []Item, moments int) int64 { return CircleWithin(items, moments, 0) }

// CircleWithin is Circle that is content with an extent of so many bytes.
func CircleWithin(items []Item, moments int, enough int64) int64 {
	p := newPacker(slices.Clone(items), 0, moments)
	p.round = moments
	for i := range p.items { // they begin in the first round
		before := p.items[i].First / moments * moments
		p.items[i].First -= before
		p.items[i].Last -= before
	}
	return p.best(items, max(LiveCircle(items, moments), enough))
}

// LiveCircle returns the largest sum of bytes that live at one moment of a round: no packing can be lower.
func LiveCircle(items []Item, moments int) (peak int64) {
	live := make([]int64, moments)
	for _, it := range items {
		for at := it.First; at <= it.Last; at++ {
			live[at%moments] += it.Bytes
		}
	}
	for _, bytes := range live {
		peak = max(peak, bytes)
	}
	return peak
}
