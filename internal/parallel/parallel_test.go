package parallel_test

import (
	"slices"
	"testing"

	"plimsoll/internal/parallel"
)

// Ranges cover each number once, whatever there is of them.
func TestRangesCoverAll(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 3, 7, 100, 1001} {
		for _, least := range []int{1, 2, 64, 5000} {
			seen := make([]int, n)
			parallel.Ranges(n, least, func(from, to int) {
				for i := from; i < to; i++ {
					seen[i]++
				}
			})
			if slices.ContainsFunc(seen, func(k int) bool { return k != 1 }) {
				t.Errorf("%d numbers, at least %d: %v", n, least, seen)
			}
		}
	}
}
