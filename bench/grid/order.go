package main

import (
	"slices"
)

// place is a point of the grid: positions in the lists of models, sizes, links and limits.
type place [4]int

// spread returns all places of lists with these lengths, those in done first. Behind these, each place is the one whose positions, alone and
// in pairs, the places before it have least. So the places of any prefix are spread evenly over each list and each pair of lists.
func spread(lengths place, done []place) []place {
	order, left := slices.Clone(done), []place(nil)
	for _, p := range nested(lengths) {
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

func parts(p place) (all []part) {
	for a := range p {
		for b := a; b < len(p); b++ {
			all = append(all, part{a, b, p[a], p[b]})
		}
	}
	return all
}

func addParts(count map[part]int, p place) {
	for _, k := range parts(p) {
		count[k]++
	}
}

// weight returns how often the parts of p are counted, each in units of what an even spread would give it.
func weight(count map[part]int, lengths, p place) (w int) {
	for _, k := range parts(p) {
		among := lengths[k.a]
		if k.a != k.b {
			among *= lengths[k.b]
		}
		w += count[k] * among
	}
	return w
}

// nested returns all places, the last list running fastest.
func nested(lengths place) (all []place) {
	n := 1
	for _, l := range lengths {
		n *= l
	}
	for i := range n {
		var p place
		for d := len(p) - 1; d >= 0; d-- {
			p[d] = i % lengths[d]
			i /= lengths[d]
		}
		all = append(all, p)
	}
	return all
}
