package flush

import (
	"cmp"
	"context"
	"slices"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// uniform returns a chain of equal layers, one for each stage, with sizes of one byte and no weights.
func uniform(stages int, f, b, w float64) *chain.Chain {
	c := &chain.Chain{Name: "uniform", InputBytes: 1}
	for range stages {
		c.Layers = append(c.Layers, chain.Layer{
			Name: "layer", ForwardS: f, BackwardS: b + w, BackwardInputS: &b, BackwardWeightS: &w,
			OutputBytes: 1, SavedBytes: 1, GradientBytes: 1,
		})
	}
	return c
}

// free returns devices without limits whose links take no time.
func free(devices int) *pipeline.Platform {
	return pipeline.NewPlatform(devices, pipeline.NoLimit, pipeline.Free())
}

func lookup(t testing.TB, name string) pipeline.Strategy {
	t.Helper()
	for _, s := range Strategies() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no strategy %q", name)
	return pipeline.Strategy{}
}

// figures holds the costs of a plan, found from its tasks alone.
type figures struct {
	makespan, bubble float64
	live             []int     // of each device: the most activations, each of one stage
	own              []float64 // of each device: from its first to its last task
}

// planned solves a request on equal stages and measures the plan.
func planned(t testing.TB, name string, devices, chunks, micros int, f, b, w float64) figures {
	t.Helper()
	c := uniform(devices*chunks, f, b, w)
	q := pipeline.Request{Chain: c, Platform: free(devices), Options: pipeline.Options{Microbatches: micros, Chunks: chunks}}
	plan, err := lookup(t, name).Solve(context.Background(), q)
	if err != nil {
		t.Fatalf("%s, %d devices, %d microbatches: %v", name, devices, micros, err)
	}
	out := measure(plan, map[pipeline.Kind]float64{pipeline.F: f, pipeline.B: b, pipeline.W: w})
	if !near(out.makespan, plan.Predicted.Makespan) {
		t.Errorf("%s: makespan %g, its tasks end at %g", name, plan.Predicted.Makespan, out.makespan)
	}
	return out
}

func measure(plan *pipeline.Plan, length map[pipeline.Kind]float64) figures {
	leaves := pipeline.B
	if plan.Split()[0] {
		leaves = pipeline.W
	} else {
		length[pipeline.B] += length[pipeline.W]
	}
	type edge struct {
		at   float64
		step int
	}
	edges := make([][]edge, plan.Platform.Devices)
	out := figures{live: make([]int, len(edges)), own: make([]float64, len(edges))}
	first, last, busy := map[int]float64{}, map[int]float64{}, 0.0
	for _, task := range plan.Tasks {
		d, end := task.Device, task.Start+length[task.Kind]
		if had, ok := first[d]; !ok || task.Start < had {
			first[d] = task.Start
		}
		last[d] = max(last[d], end)
		out.makespan = max(out.makespan, end)
		busy += length[task.Kind]
		switch task.Kind {
		case pipeline.F:
			edges[d] = append(edges[d], edge{task.Start, 1})
		case leaves:
			edges[d] = append(edges[d], edge{end, -1})
		}
	}
	for d, all := range edges {
		slices.SortFunc(all, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), a.step-b.step) })
		live := 0
		for _, e := range all {
			live += e.step
			out.live[d] = max(out.live[d], live)
		}
		out.own[d] = last[d] - first[d]
	}
	out.bubble = 1 - busy/(out.makespan*float64(len(edges)))
	return out
}

func near(x, y float64) bool { return x-y < 1e-9*max(1, x, y) && y-x < 1e-9*max(1, x, y) }
