// Package stats has what is in the middle of measurements, so that one that a busy machine disturbed counts for nothing.
package stats

import (
	"cmp"
	"slices"
)

// Median returns the middle of some numbers, of two the mean; 0 of none.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Clone(v)
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// Middle returns the position of the element in the middle by a value, of two that of the smaller one. There is at least one.
func Middle[T any](all []T, value func(T) float64) int {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(value(all[i]), value(all[j])) })
	return order[(len(order)-1)/2]
}
