package stats

import (
	"math/rand/v2"
	"slices"
)

// repeats is how often Interval draws.
const repeats = 1000

// Interval returns the 95 % interval of a figure of medians, by bootstrap: each group is drawn again from itself, with replacement and of
// equal size. Source: B. Efron, "Bootstrap methods: another look at the jackknife", 1979. The same groups give the same interval. Every
// group has a value.
func Interval(groups [][]float64, figure func(medians []float64) float64) (low, high float64) {
	rnd := rand.New(rand.NewPCG(uint64(len(groups)), repeats))
	medians, all := make([]float64, len(groups)), make([]float64, repeats)
	var drawn []float64
	for i := range all {
		for g, group := range groups {
			drawn = drawn[:0]
			for range group {
				drawn = append(drawn, group[rnd.IntN(len(group))])
			}
			medians[g] = Median(drawn)
		}
		all[i] = figure(medians)
	}
	slices.Sort(all)
	return all[repeats/40], all[repeats-1-repeats/40]
}
