package pack

// Circle is Pack for a sequence that repeats without end: an item lives from moment first to moment last, both included, of
// each round of so many moments. Items may last beyond the end of a round, but no longer than one.
func Circle(items []Item, moments int) int64 { return CircleWithin(items, moments, 0) }

// CircleWithin is Circle that is content with an extent of so many bytes.
func CircleWithin(items []Item, moments int, enough int64) int64 {
	p := &packer{items: items, meet: make([][]int32, len(items)), done: make([]bool, len(items))}
	for i := range items {
		for j := range i {
			if items[i].meetsRound(&items[j], moments) {
				p.meet[i] = append(p.meet[i], int32(j))
				p.meet[j] = append(p.meet[j], int32(i))
			}
		}
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

// meetsRound reports whether two items live at one moment: whether one of them begins while the other lives.
func (a *Item) meetsRound(b *Item, moments int) bool {
	behind := func(x, y *Item) int { return ((y.First-x.First)%moments + moments) % moments }
	return behind(a, b) <= a.Last-a.First || behind(b, a) <= b.Last-b.First
}
