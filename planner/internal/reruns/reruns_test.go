package reruns

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Against a greedy choice made anew for every set: the layers by time for each byte, the last one in part.
func TestLeastIsTheFractionalKnapsack(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n := 1 + rng.IntN(12)
		again, saved := make([]float64, n), make([]float64, n)
		for l := range n {
			again[l], saved[l] = float64(rng.IntN(9)), float64(rng.IntN(9))
		}
		set := New(again, saved)
		in := make([]bool, n)
		for l := range in {
			in[l] = saved[l] > 0
		}
		for range n {
			for bytes := -1.0; bytes < 9*float64(n); bytes += 0.5 {
				if got, want := set.Least(bytes), greedy(again, saved, in, bytes); math.Abs(got-want) > 1e-6 || got > want {
					t.Fatalf("times %v, bytes %v, %v: %v for %v, want %v", again, saved, in, got, bytes, want)
				}
			}
			l := rng.IntN(n)
			kept := set
			set = set.Clone()
			if got := set.Remove(l); got != saved[l] && in[l] || got != 0 && !in[l] {
				t.Fatalf("removed %v of %v", got, saved[l])
			}
			if in[l] && saved[l] > 0 && kept.rank[l] == 0 {
				t.Fatal("a clone shares what it removes")
			}
			in[l] = false
		}
	}
}

func greedy(again, saved []float64, in []bool, bytes float64) (time float64) {
	used := make([]bool, len(in))
	for bytes > 0 {
		best := -1
		for l := range in {
			if in[l] && !used[l] && (best < 0 || again[l]*saved[best] < again[best]*saved[l]) {
				best = l
			}
		}
		if best < 0 {
			return time
		}
		used[best] = true
		time += again[best] * min(1, bytes/saved[best])
		bytes -= saved[best]
	}
	return time
}
