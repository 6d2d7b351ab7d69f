package pipeline_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// A plan of any strategy, given, is the plan on its own platform. With less memory than it needs, it says how much it needs. On a chain
// that is slower, it breaks rules.
func TestGiven(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "given", InputBytes: 8}
	for i := range 6 {
		in, w := 0.5+float64(i%2), 1.0
		c.Layers = append(c.Layers, chain.Layer{
			Name: "l", ForwardS: 1 + float64(i%3), BackwardS: in + w, BackwardInputS: &in, BackwardWeightS: &w,
			OutputBytes: 8, SavedBytes: 12, GradientBytes: 8, WeightBytes: 4,
		})
	}
	p := pipeline.NewPlatform(2, pipeline.NoLimit, 100)
	asked := 0
	for _, name := range []string{"1f1b*", "madpipe", "loadline", "gpipe", "zb-h1", "gpipe-checkpoint"} {
		s, err := planner.LookupPipeline(name)
		if err != nil {
			t.Fatal(err)
		}
		want, err := s.Solve(context.Background(), pipeline.Request{Chain: c, Platform: p})
		if err != nil {
			t.Fatal(err)
		}
		g := pipeline.Given(name, want)
		got, err := g.Solve(context.Background(), pipeline.Request{Chain: c, Platform: p})
		if err != nil || !reflect.DeepEqual(got.Stages, want.Stages) || !reflect.DeepEqual(got.Tasks, want.Tasks) || !slices.Equal(got.PerDevicePeak, want.PerDevicePeak) {
			t.Errorf("%s: another plan: %v", name, err)
		}
		if g.Name != name || (g.Type == pipeline.Flushing) != want.IsFlush() || want.IsFlush() && g.Microbatches != want.Microbatches {
			t.Errorf("%s: %+v", name, g)
		}
		need := slices.Max(want.PerDevicePeak)
		var small *pipeline.InfeasibleError
		if _, err := g.Solve(context.Background(), pipeline.Request{Chain: c, Platform: p.WithMemory(need - 1)}); !errors.As(err, &small) || small.Smallest != need {
			t.Errorf("%s in %d bytes: %v", name, need-1, err)
		}
		if _, err := g.Solve(context.Background(), pipeline.Request{Chain: c, Platform: p.WithMemory(need)}); err != nil {
			t.Errorf("%s in %d bytes: %v", name, need, err)
		}
		slow := *c
		slow.Layers = slices.Clone(c.Layers)
		slow.Layers[0].ForwardS *= 10
		if _, err := g.Solve(context.Background(), pipeline.Request{Chain: &slow, Platform: p}); !errors.Is(err, pipeline.ErrInvalid) {
			t.Errorf("%s on a slower chain: %v", name, err)
		}
		asked++
	}
	if asked != 6 {
		t.Errorf("%d strategies", asked)
	}
}
