// Package spread orders the points of a grid so that those planned first are spread evenly over it.
package spread

import "slices"

// Place is a point of a grid: positions in its four lists.
type Place [4]int

// Order returns all places of lists with these lengths, those in done first. Behind these, each place is the one whose positions, alone and
// in pairs, the places before it have least. So the places of any prefix are spread evenly over each list and each pair of lists.
func Order(lengths Place, done []Place) []Place {
	order, left := slices.Clone(done), []Place(nil)
	for _, p := range Nested(lengths) {
		if !slices.Contains(done, p) {
			left = append(left, p)
		}
	}
	count := map[part]int{}
	for _, p := range done {
		addParts(count, p)
	}
	for len(left) > 0 {
		best, least := 0, weight(count, lengths, left[0])
		for i, p := range left {
			if w := weight(count, lengths, p); w < least {
				best, least = i, w
			}
		}
		addParts(count, left[best])
		order = append(order, left[best])
		left = slices.Delete(left, best, best+1)
	}
	return order
}

// part is the positions of a place in two lists a <= b, which are the same list where a = b.
type part struct{ a, b, i, j int }

func parts(p Place) (all []part) {
	for a := range p {
		for b := a; b < len(p); b++ {
			all = append(all, part{a, b, p[a], p[b]})
		}
	}
	return all
}

func addParts(count map[part]int, p Place) {
	for _, k := range parts(p) {
		count[k]++
	}
}

// weight returns how often the parts of p are counted, each in units of what an even spread would give it.
func weight(count map[part]int, lengths, p Place) (w int) {
	for _, k := range parts(p) {
		among := lengths[k.a]
		if k.a != k.b {
			among *= lengths[k.b]
		}
		w += count[k] * among
	}
	return w
}

// Nested returns all places, the last list running fastest.
func Nested(lengths Place) (all []Place) {
	n := 1
	for _, l := range lengths {
		n *= l
	}
	for i := range n {
		var p Place
		for d := len(p) - 1; d >= 0; d-- {
			p[d] = i % lengths[d]
			i /= lengths[d]
		}
		all = append(all, p)
	}
	return all
}
