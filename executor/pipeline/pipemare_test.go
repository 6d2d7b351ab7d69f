package pipeline

import (
	"errors"
	"fmt"
	"testing"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/host"
)

// T1 against the sequential program with PipeMare's rates, at the delays that the checker counts.
func TestPipeMareReschedulesTheLearningRates(t *testing.T) {
	t.Parallel()
	const anneal = 7
	m := testModel(t)
	w := workload(t, m)
	cases, longest := 0, 0.0
	for _, name := range []string{"1f1b*", "pipemare", "contiguous"} {
		for _, devices := range []int{2, 4} {
			t.Run(fmt.Sprintf("%s/%d", name, devices), func(t *testing.T) {
				c := costs(w, devices, uint64(devices))
				plan := planFor(t, name, c, pipeline.Options{Versions: pipeline.Latest, WeightCopies: []float64{6}})
				const n = 12 // updates, more than are annealed
				e, out := trainedWith(t, w, c, plan, n, host.Config{}, Options{PipeMare: &PipeMare{Anneal: anneal}})
				out.Tensors = tensors(t, e)
				missed := delays(t, c, plan)
				tau := make([]float64, len(missed))
				for s, d := range missed {
					tau[s] = max(float64(d), 1)
					if got := e.Delays()[s]; got != float64(d) {
						t.Errorf("stage %d has a delay of %g updates, want %d", s, got, d)
					}
					longest = max(longest, tau[s])
				}
				p := pipelinetest.Latest(missed)
				same(t, referenceAt(t, m, plan, p, n, pipelinetest.Rescheduled(rate, tau, anneal)), out)
				if d := reference(t, m, plan, p, n).FirstDifference(out); tau[0] > 1 && d == "" {
					t.Error("the correction changes nothing")
				}
				cases++
			})
		}
	}
	if cases != 6 || longest < 3 {
		t.Errorf("%d cases with a delay of at most %g updates, want 6 and 3", cases, longest)
	}
}

// Two devices take turns: each has every other minibatch, and a backward behind the forward of one that is `apart` later.
func TestDelaysAreCountedInUpdates(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		apart, local int // local: backwards of an update, on each of the two
		want         float64
	}{{0, 1, 0}, {1, 1, 1}, {2, 1, 2}, {1, 2, 0.5}, {2, 2, 1}, {3, 2, 1.5}, {1, 4, 0.25}} {
		o := &order.Order{Plan: &pipeline.Plan{}, Repeats: 2, Split: []bool{false}, On: [][]int{{0, 1}}}
		for d := range 2 {
			o.Instructions = append(o.Instructions, []order.Instruction{
				{Kind: pipeline.F, Shift: d + 2*x.apart}, {Kind: pipeline.B, Shift: d, Place: pipeline.Place{Half: 1}},
				{Kind: pipeline.Update, Shift: 0, Place: pipeline.Place{Half: 2}}, {Kind: pipeline.Update, Shift: 1, Place: pipeline.Place{Half: 2}},
			})
		}
		if got := delaysOf(o, []order.Rule{{Mode: pipeline.Latest, Group: 2 * x.local, Speaks: 1}}, 2*x.local); len(got) != 1 || got[0] != x.want {
			t.Errorf("%+v: delays %v", x, got)
		}
	}
}

func TestPipeMareIsRefusedWhereItCorrectsNothing(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	c := costs(w, 2, 1)
	for _, x := range []struct {
		name string
		opt  Options
		plan pipeline.Options
	}{
		{"1f1b*", Options{PipeMare: &PipeMare{Anneal: 5}}, pipeline.Options{Versions: pipeline.Stash}},
		{"1f1b-flush", Options{PipeMare: &PipeMare{Anneal: 5}}, pipeline.Options{Microbatches: 4}},
		{"ampnet", Options{PipeMare: &PipeMare{}}, pipeline.Options{}},
	} {
		if _, err := Needs(w, c, planFor(t, x.name, c, x.plan), x.opt); !errors.Is(err, order.ErrPlan) {
			t.Errorf("%s with %+v: error %v, want ErrPlan", x.name, x.opt, err)
		}
	}
}
