package joint

import (
	"errors"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// Plans that were found in groups of layers are valid plans of the layers, and none is below the bound. On the mean they take at most 2 % longer than
// plans found layer by layer. Where no groups fit, single layers may.
func TestPlansByGroups(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(51, 2))
	cases, fit, sum := 40, 0, 0.0
	if testing.Short() {
		cases = 12
	}
	for k := range cases {
		c := &chain.Chain{Name: "long", InputBytes: 40}
		for range 24 + rng.IntN(16) {
			f, out := 0.5+rng.Float64(), 20+rng.Int64N(40)
			c.Layers = append(c.Layers, chain.Layer{ForwardS: f, BackwardS: 2 * f, OutputBytes: out, SavedBytes: out + rng.Int64N(80), WeightBytes: rng.Int64N(60)})
		}
		devices := 2 + rng.IntN(3)
		r := pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(devices, 1500+rng.Int64N(2500), []float64{20, 200, 1e6}[rng.IntN(3)])}
		r.Accounting = []pipeline.Accounting{pipeline.Inputs, pipeline.Saved}[rng.IntN(2)]
		plan, err := byGroups(t.Context(), r, 16)
		want, failure := Without(t.Context(), r, Ingredients{})
		if (err == nil) != (failure == nil) {
			t.Errorf("case %d: %v, layer by layer %v", k, err, failure)
		}
		if err != nil || failure != nil {
			if err != nil && !errors.As(err, new(*pipeline.InfeasibleError)) {
				t.Errorf("case %d: %v", k, err)
			}
			continue
		}
		if _, err := pipeline.Check(c, r.Platform, plan); err != nil {
			t.Errorf("case %d: %v", k, err)
		}
		if low, got := plan.Predicted.LowerBound, plan.SecondsPerMinibatch(); low > got*(1+1e-9) || !shares(want) && low > want.SecondsPerMinibatch()*(1+1e-9) {
			t.Errorf("case %d: a bound of %g s, plans take %g and %g s", k, low, got, want.SecondsPerMinibatch())
		}
		fit++
		sum += plan.SecondsPerMinibatch() / want.SecondsPerMinibatch()
	}
	if mean := sum / float64(fit); fit < cases/2 || mean > 1.02 {
		t.Errorf("%d of %d fit, and take %.3f times as long on the mean", fit, cases, mean)
	} else {
		t.Logf("%d of %d fit, %.4f times as long on the mean", fit, cases, mean)
	}
}

// Long chains whose layers share weights, which no groups can hold, are planned layer by layer.
func TestLongTiedChain(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "tied", InputBytes: 4}
	for range mostLayers + 2 {
		c.Layers = append(c.Layers, chain.Layer{ForwardS: 1, BackwardS: 2, OutputBytes: 4, SavedBytes: 8, WeightBytes: 8})
	}
	c.Layers[mostLayers].Update.WeightsOf = 1
	r := pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(2, pipeline.NoLimit, 1e9)}
	r.Accounting = pipeline.Saved
	if _, err := solve(t.Context(), r); err != nil {
		t.Error(err)
	}
}
