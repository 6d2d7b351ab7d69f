package joint

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/flush"
)

// blocks returns a chain of equal blocks whose backward has two halves, as a transformer's.
func blocks(n int) *chain.Chain {
	c := &chain.Chain{Name: "blocks", InputBytes: 4}
	for i := range n {
		input, weight := 1.0, 1.0
		c.Layers = append(c.Layers, chain.Layer{
			Name: fmt.Sprint("block", i), ForwardS: 1, BackwardS: 2, BackwardInputS: &input, BackwardWeightS: &weight,
			OutputBytes: 4, SavedBytes: 8, WeightBytes: 8,
		})
	}
	return c
}

// auto-flush is never slower than a schedule with a flush that has a plan, with and without divided updates. It names the one that it took, and
// the next one. Chains have equal blocks or are random, memory is tight or not.
func TestAutoIsTheFastestSchedule(t *testing.T) {
	t.Parallel()
	others := slices.Concat(flush.Strategies(), Strategies())
	winners := map[string]int{}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(77, seed))
		c := blocks([]int{4, 8, 12}[seed%3])
		if seed%2 == 1 {
			for i := range c.Layers {
				l := &c.Layers[i]
				a, b := 0.5+r.Float64(), 0.5+r.Float64()
				l.ForwardS, l.BackwardInputS, l.BackwardWeightS, l.BackwardS = 0.5+r.Float64(), &a, &b, a+b
			}
		}
		if seed%3 == 0 {
			for i := range c.Layers {
				c.Layers[i].Update = chain.Update{DeviceS: r.Float64(), NormS: r.Float64() / 4}
			}
		}
		devices := []int{2, 4}[r.IntN(2)]
		memory := []int64{pipeline.NoLimit, int64(60 + r.IntN(400))}[r.IntN(2)]
		q := pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(devices, memory, []float64{1, 10, 1e9}[r.IntN(3)])}
		q.Microbatches, q.Accounting = []int{2, 4, 8, 6}[r.IntN(4)], pipeline.Saved
		q.WholeUpdates = r.IntN(2) == 0
		step := func(p *pipeline.Plan) float64 {
			return p.Predicted.Makespan + pipeline.UpdateSeconds(c, q.Platform, p)
		}
		auto, failure := solveAuto(context.Background(), q)
		for _, s := range others {
			if s.Type != pipeline.Flushing || s.Name == automatic {
				continue
			}
			p, err := s.Solve(context.Background(), q)
			switch {
			case err != nil:
			case failure != nil:
				t.Errorf("seed %d: %s has a plan, auto-flush says %v", seed, s.Name, failure)
			case step(p) < step(auto)*(1-1e-9):
				t.Errorf("seed %d: %s takes %g s, auto-flush (%s) %g s", seed, s.Name, step(p), auto.Winner, step(auto))
			}
		}
		if failure != nil {
			continue
		}
		winners[auto.Winner]++
		if q.WholeUpdates && auto.Zero != pipeline.ZeroNothing {
			t.Errorf("seed %d: updates are divided", seed)
		}
		if auto.Zero != pipeline.ZeroNothing && !slices.ContainsFunc(auto.Stages, func(st pipeline.Stage) bool { return len(st.Devices) > 1 }) {
			t.Errorf("seed %d: updates are divided among one device", seed)
		}
		if next := auto.RunnerUp; next != nil && (next.Seconds < step(auto)*(1-1e-12) || next.Strategy == auto.Winner) {
			t.Errorf("seed %d: %s takes %g s, the runner-up %+v", seed, auto.Winner, step(auto), *next)
		}
		if _, err := pipeline.Check(c, q.Platform, auto); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	t.Log(winners)
	if len(winners) < 4 {
		t.Errorf("plans are of %v only", winners)
	}
}

// Where all devices are replicas and gradients are long, sums go in parts: half the time for GNMT on eight devices, of 396 ms along a line.
// Updates are divided without being asked for where they take long.
func TestAutoDividesSumsAndUpdates(t *testing.T) {
	t.Parallel()
	c, err := chain.Read("../../../docs/chains/gnmt.json")
	if err != nil {
		t.Fatal(err)
	}
	q := pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(8, 8<<30, 12e9)}
	q.Microbatches, q.Accounting = 16, pipeline.Saved
	solve := func(solve func(context.Context, pipeline.Request) (*pipeline.Plan, error), zero pipeline.Zero, whole bool) *pipeline.Plan {
		q.Zero, q.WholeUpdates = zero, whole
		plan, err := solve(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	sums, divided := solve(solveFlush, pipeline.ZeroNothing, false), solve(solveFlush, pipeline.ZeroShards, false)
	if x, y := sums.Predicted.Makespan, divided.Predicted.Makespan; x > 0.2 || x > y {
		t.Errorf("sums in parts take %g s, divided updates %g s", x, y)
	}
	for i := range c.Layers {
		c.Layers[i].Update.DeviceS = float64(c.Layers[i].WeightBytes) / 20e9
	}
	if auto, whole := solve(solveAuto, pipeline.ZeroNothing, false), solve(solveAuto, pipeline.ZeroNothing, true); auto.Zero != pipeline.ZeroShards || whole.Zero != pipeline.ZeroNothing {
		t.Errorf("%s, zero %d; with whole updates %s, zero %d", auto.Winner, auto.Zero, whole.Winner, whole.Zero)
	}
}
