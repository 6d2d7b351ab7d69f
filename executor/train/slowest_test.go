package train

import (
	"math/rand/v2"
	"testing"

	pipe "plimsoll/executor/pipeline"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// A task that takes far longer than the plan says is named, whatever all tasks take together; where all are alike none is.
func TestSlowest(t *testing.T) {
	t.Parallel()
	layer := chain.Layer{ForwardS: 1, BackwardS: 2, OutputBytes: 1, GradientBytes: 1, SavedBytes: 1}
	c := &chain.Chain{InputBytes: 1}
	for range 6 {
		c.Layers = append(c.Layers, layer)
	}
	platform := pipeline.NewPlatform(3, pipeline.NoLimit, pipeline.Free())
	s, err := planner.LookupPipeline("gpipe")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := s.Solve(t.Context(), pipeline.Request{Chain: c, Platform: platform, Options: pipeline.Options{Microbatches: 4}})
	if err != nil {
		t.Fatal(err)
	}
	p := &JobPlan{Plan: plan, Costs: pipe.Costs{Chain: c, Platform: platform}}
	spans, err := pipeline.Planned(c, platform, plan, 1)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for _, late := range []int{none, 0, 1, 2} {
		var ran []pipe.Timing
		for _, x := range spans {
			task := plan.Tasks[x.Task]
			took := (x.End - x.Start) * 3 * (0.9 + 0.2*r.Float64()) // all are three times as slow
			if task.Kind == pipeline.B && task.Stage == late {
				took *= 2
			}
			ran = append(ran, pipe.Timing{Device: task.Device, Kind: task.Kind, Stage: task.Stage, Start: x.Start, End: x.Start + took})
		}
		got := slowest(p, ran)
		switch {
		case late == none && got != nil:
			t.Errorf("%+v is slow where none is", got)
		case late != none && (got == nil || got.Device != late || got.Task != "B"+string(rune('0'+late)) || got.Factor < 1.7 || got.Factor > 2.3):
			t.Errorf("B%d is twice as slow, and %+v is named", late, got)
		}
	}
}

// none is no stage.
const none = -1
