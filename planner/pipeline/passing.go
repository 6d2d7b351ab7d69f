package pipeline

import (
	"cmp"
	"math/big"
	"slices"
	"sort"
)

// passingGradients is Passing in ticks.
type passingGradients struct {
	stage, microbatch int
	stay
}

// passingThrough returns the gradients that pass through a device, in the order of their backwards. Of those that start at one instant the one
// that ends first runs first, and of those that take no time the one of the later stage.
func (l division) passingThrough(d int) (all []passingGradients) {
	rounding := new(big.Int).Div(l.span(), tolerance)
	for _, x := range l.divided {
		at := slices.Index(x.line, d)
		if at < 0 || !l.plan.Zero.dividesGradients() {
			continue
		}
		for _, round := range rounds(l.repeats, x.round) {
			i := slices.IndexFunc(round, func(r int) bool { return l.at[place{B, x.stage, r}].device == d })
			b := l.at[place{B, x.stage, round[i]}]
			left := b.end()
			for _, y := range l.sumsOf(x.stage, round) {
				gone := l.addedAt(y)
				if y.end() != at {
					gone = y.reduces[at].end()
				}
				if less(left, gone) {
					left = gone
				}
			}
			all = append(all, passingGradients{x.stage, round[i], stay{hold{1, x.stage, b.task}, b.start, before(b.start, left, rounding)}})
		}
	}
	end := func(x passingGradients) ticks { return l.at[place{B, x.stage, x.microbatch}].end() }
	slices.SortStableFunc(all, func(x, y passingGradients) int {
		return cmp.Or(x.from.Cmp(y.from), end(x).Cmp(end(y)), y.stage-x.stage)
	})
	return all
}

// Turns returns how many buffers so many things need that take them in turn, in the order in which they begin. It is told whether a later one
// begins while number i is there. If so, those between them do, too.
func Turns(n int, meets func(i, later int) bool) (buffers int) {
	for i := range n {
		buffers = max(buffers, 1+sort.Search(n-i-1, func(k int) bool { return !meets(i, i+1+k) }))
	}
	return buffers
}

// passingMoments is passingThrough in moments.
func (o *orderer) passingMoments(d int) (all []Passing) {
	for _, x := range divisionOf(o.layout).passingThrough(d) {
		all = append(all, Passing{x.stage, x.microbatch, Interval{o.moments.number(x.from), o.moments.number(x.to)}})
	}
	return all
}
