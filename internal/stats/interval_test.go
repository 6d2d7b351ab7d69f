package stats

import (
	"math/rand/v2"
	"testing"
)

// An interval of a median holds the true one in about 95 of 100 experiments, is the same each time, and a point where nothing varies.
func TestIntervalsHoldTheTruth(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 9))
	first := func(medians []float64) float64 { return medians[0] }
	held, narrow := 0, 0.0
	const experiments = 200
	for range experiments {
		v := make([]float64, 25)
		for i := range v {
			v[i] = 10 + rnd.NormFloat64()
		}
		low, high := Interval([][]float64{v}, first)
		if again, _ := Interval([][]float64{v}, first); again != low {
			t.Fatal("another interval of the same values")
		}
		if low <= 10 && 10 <= high {
			held++
		}
		narrow += (high - low) / experiments
	}
	if held < experiments*85/100 || narrow > 1.5 || narrow < 0.5 {
		t.Errorf("%d of %d intervals hold the truth, of %.2f on average", held, experiments, narrow)
	}
	sum := func(m []float64) float64 { return m[0] + 10*m[1] }
	if low, high := Interval([][]float64{{1, 1}, {2}}, sum); low != 21 || high != 21 {
		t.Errorf("of what does not vary %g to %g", low, high)
	}
}
