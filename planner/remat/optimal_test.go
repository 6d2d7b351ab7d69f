package remat

import (
	"context"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/schedule"
)

// The search against exhaustive search over every legal sequence, at every limit: equal makespans, proved, and infeasible together. Half
// the chains have gradients and overheads of any size, where the theorems of the thesis fail.
func TestSearchIsOptimal(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 42))
	feasible, infeasible, beaten, chains := 0, 0, 0, 1200
	if testing.Short() {
		chains = 100
	}
	j := &judge{t: t}
	for i := range chains {
		c := randomChain(rng, 1+rng.IntN(5), i%2 == 1)
		if i%4 > 1 {
			for l := range c.Layers {
				c.Layers[l].GradientBytes = rng.Int64N(12)
			}
		}
		k, err := newCosts(c)
		if err != nil {
			t.Fatal(err)
		}
		for memory := int64(0); memory <= storeAllPeak(t, c); memory++ {
			want := (&search{c: c, memory: memory, general: true, best: map[state]float64{}}).run()
			f, err := k.wholeSpace(memory).search(context.Background(), infinite, 1<<20)
			if err != nil || !f.optimal() {
				t.Fatal(err, f)
			}
			if want == nil != (f.seq == nil) || want != nil && *want != k.seconds(f.ticks) {
				t.Fatalf("chain %d at %d: %v, want %v: %+v", i, memory, f, show(want), c)
			}
			if want == nil {
				infeasible++
				continue
			}
			feasible++
			r, err := schedule.Simulate(c, f.seq, schedule.Limits{Memory: memory})
			if err != nil || r.Makespan != *want {
				t.Fatalf("chain %d at %d: %v %v, want %v", i, memory, r, err, *want)
			}
			if memory%8 == 0 {
				if old := bruteForce(c, memory, true); old == nil || *old > *want {
					beaten++
				}
			}
		}
	}
	t.Logf("%d feasible limits, %d infeasible, %d beaten", feasible, infeasible, beaten)
	_ = j
}
