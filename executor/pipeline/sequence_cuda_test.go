//go:build cuda && linux && amd64

package pipeline

import (
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/planner"
	"plimsoll/planner/strategy"
	cuda "plimsoll/runtime/cuda/driver"
)

// Microbatches that each run a sequence train the same bits on a GPU as graphs and call by call. Transfers and timing op by op make no
// difference. The graphs contain the records that give the times.
func TestGPUsRunSequences(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	m := plainModel(t)
	w, err := Compile(m, gpus(t, 1)[0].Library, optimizer)
	must(t, err)
	c := counted(w, 1)
	c.Chain.Bandwidth = 4e9
	full, err := w.Extent(w.StoreAll())
	must(t, err)
	const parts, steps = 2, 3
	for name, share := range map[string]float64{"store-all": 1, "offload-greedy": 0.85} {
		s, err := planner.Lookup(name)
		must(t, err)
		limit := w.StaticBytes() + int64(share*float64(full-w.StaticBytes()))
		plan, err := executor.Plan(t.Context(), w, c.Chain, s, limit, strategy.Options{HostMemory: 1 << 28})
		must(t, err)
		var want *pipelinetest.Outcome
		for _, opt := range []Options{{NoGraph: true}, {}, {Timed: &Timed{Ops: true}}, {Timed: &Timed{Ops: true}, NoGraph: true}} {
			out := &pipelinetest.Outcome{}
			opt.Feed, opt.Seed, opt.Rate, opt.Limits = feedOf(m), 7, rate, []int64{limit}
			opt.Done = func(r Result) { out.Losses = append(out.Losses, r.Loss) }
			e, err := New(w, gpus(t, 1), Costs{c.Chain, plan.Platform}, plan.Accumulated(parts), opt)
			must(t, err)
			if calls := followingCalls(e); (calls > 0) != opt.NoGraph {
				t.Errorf("%s, no graphs: %v: %d calls follow each other", name, opt.NoGraph, calls)
			}
			for range steps {
				must(t, e.Run(t.Context(), parts))
			}
			ops := 0
			all, err := e.Timings()
			must(t, err)
			for _, x := range all {
				if x.Op > 0 {
					ops++
				}
				if x.End < x.Start || x.Start < 0 {
					t.Errorf("%s: %+v", name, x)
				}
			}
			if (opt.Timed != nil) != (ops == parts*len(plan.Sequence())) {
				t.Errorf("%s: %d ops are timed", name, ops)
			}
			if out.Tensors = tensors(t, e); want == nil {
				want = out
			}
			same(t, want, out)
		}
		if plan.Offloads() != (name != "store-all") {
			t.Errorf("%s: %v", name, plan.Sequence())
		}
	}
}
