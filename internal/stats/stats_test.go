package stats

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The median of an odd number of values is the element in the middle; of an even number it lies between the two.
func TestMedianAndMiddle(t *testing.T) {
	t.Parallel()
	if got := Median(nil); got != 0 {
		t.Errorf("of none %g", got)
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		v := make([]float64, 1+rnd.IntN(8))
		for i := range v {
			v[i] = float64(rnd.IntN(5))
		}
		sorted := slices.Sorted(slices.Values(v))
		before, middle, median := slices.Clone(v), v[Middle(v, func(x float64) float64 { return x })], Median(v)
		lower, upper := sorted[(len(v)-1)/2], sorted[len(v)/2]
		if middle != lower || median != (lower+upper)/2 || !slices.Equal(v, before) {
			t.Fatalf("%v: middle %g, median %g", before, middle, median)
		}
	}
	if got := Middle([]string{"b1", "a", "b2"}, func(s string) float64 { return float64(s[0]) }); got != 0 {
		t.Errorf("of equals the element at %d, want the first", got)
	}
}
