package planner

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"plimsoll/planner/auto"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/flush"
	"plimsoll/planner/pipeline/ilp"
	"plimsoll/planner/pipeline/joint"
	"plimsoll/planner/pipeline/loadline"
	"plimsoll/planner/pipeline/partition"
	"plimsoll/planner/pipeline/periodic"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// longChain is a random chain of so many layers, and the bytes of its saved sets.
func longChain(n int) (c *chain.Chain, saved int64) {
	rng := rand.New(rand.NewPCG(20, 1))
	c = &chain.Chain{Name: "long", InputBytes: 1 << 20}
	for range n {
		out, input, weight := int64(1<<16+rng.IntN(1<<20)), rng.Float64(), rng.Float64()
		l := chain.Layer{
			Name: "layer", ForwardS: 0.1 + rng.Float64(), BackwardS: input + weight, BackwardInputS: &input, BackwardWeightS: &weight,
			OutputBytes: out, SavedBytes: out + rng.Int64N(1<<20), GradientBytes: out, WeightBytes: rng.Int64N(1 << 16),
		}
		c.Layers, saved = append(c.Layers, l), saved+l.SavedBytes
	}
	return c, saved
}

// Every strategy looks at its context again and again, so that work that Solve has left alone when it was canceled
// ends, too. The strategies are asked themselves, not by way of what leaves them alone. Chains are so long that most
// need longer than the tests have; the guard is for strategies that hang.
// Only this test finds a loop of a strategy that does not look at its context.
func TestPlanningEndsWithItsContext(t *testing.T) {
	t.Parallel()
	canceled := 0
	ends := func(name string, solve func(ctx context.Context) error) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		ended := make(chan error, 1)
		begun := time.Now()
		go func() { ended <- solve(ctx) }()
		select {
		case err := <-ended:
			t.Logf("%s: %v, %v", name, time.Since(begun), err)
			if errors.Is(err, context.Canceled) {
				canceled++
			}
		case <-time.After(time.Minute):
			t.Errorf("%s is deaf", name)
		}
	}
	c, saved := longChain(602)
	longer, more := longChain(2002)
	parts := []int64{3, 1 << 12} // it recomputes, or refuses
	if testing.Short() {
		parts = parts[1:]
	}
	for _, part := range parts {
		for _, s := range slices.Concat(auto.Members(schedule.Link{Bandwidth: 1}), []strategy.Sequencer{auto.Strategy()}) {
			p := strategy.Problem{Chain: c, Memory: saved / part, Link: schedule.Link{Bandwidth: 1 << 20}}
			ends(s.Name, func(ctx context.Context) error {
				_, err := s.Solve(ctx, p)
				return err
			})
		}
		for _, s := range slices.Concat(partition.Strategies(), ilp.Strategies(), loadline.Strategies(), joint.Strategies(), periodic.Strategies(), flush.Strategies()) {
			if s.Name == "chimera" {
				continue // searches for nothing, and its plan takes long to check
			}
			r := pipeline.Request{Chain: longer, Platform: pipeline.NewPlatform(8, more/part/4, 1<<20)}
			ends(s.Name, func(ctx context.Context) error {
				_, err := s.Solve(ctx, r)
				return err
			})
		}
	}
	if canceled < 10*len(parts) {
		t.Errorf("only %d were canceled", canceled)
	}
}
