package pipeline_test

import (
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// turns is one stage on four devices, a minibatch each in turn, that start so many seconds apart.
func turns(apart float64) pipelinetest.Case {
	c := &chain.Chain{Name: "one", InputBytes: 1, Layers: []chain.Layer{layer(1, 3, 1, 1)}}
	k := pipelinetest.Case{Chain: c, Platform: pipeline.NewPlatform(4, pipeline.NoLimit, 1), Plan: &pipeline.Plan{
		Chain: "one", Versions: pipeline.Stash, Period: 4, MinibatchesPerPeriod: 4, Stages: []pipeline.Stage{{First: 1, Last: 1, Devices: []int{0, 1, 2, 3}}},
	}}
	for d := range 4 {
		start, shift := float64(d)*apart+1, d
		if start >= 4 {
			start, shift = start-4, d-4
		}
		k.Plan.Tasks = append(k.Plan.Tasks,
			pipeline.Task{Kind: F, Device: d, Start: float64(d) * apart, Shift: d}, pipeline.Task{Kind: B, Device: d, Start: start, Shift: shift})
	}
	return k
}

// Devices that work abreast are data parallelism: minibatch m sees floor(m/4) updates. A second apart it sees floor((m-3)/4), as each
// update waits for the last of its round, and others have begun the next one by then.
func TestMissedUpdates(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		pipelinetest.Case
		want [][2]int
	}{
		"abreast": {turns(0), [][2]int{{0, 0}}}, "apart": {turns(1), [][2]int{{0, 1}}}, "a little": {turns(0.25), [][2]int{{0, 1}}},
		"within the tolerance": {turns(1e-10), [][2]int{{0, 0}}},
		"straight":             {staircase(), [][2]int{{2, 2}, {1, 1}, {0, 0}}}, "flush": {gpipe(), nil},
	} {
		r, err := pipeline.Check(x.Chain, x.Platform, x.Plan)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !equal(r.Missed, x.want) {
			t.Errorf("%s: minibatches miss %v updates, want %v", name, r.Missed, x.want)
		}
	}
}

// A round is as many minibatches as always give each device one, whether or not they take turns.
func TestRounds(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		on   []int
		want int
	}{{[]int{0}, 1}, {[]int{0, 1}, 2}, {[]int{0, 1, 1, 0}, 2}, {[]int{0, 0, 1, 1}, 4}, {[]int{2, 0, 1, 0, 1, 2}, 3}, {[]int{3, 3}, 1}, {[]int{0, 1, 0}, 3}} {
		p := &pipeline.Plan{MinibatchesPerPeriod: len(x.on), Stages: []pipeline.Stage{{Devices: []int{0, 1, 2, 3}}}}
		for r, d := range x.on {
			p.Tasks = append(p.Tasks, pipeline.Task{Kind: F, Device: d, Shift: r - 2*len(x.on)})
		}
		if got := p.Round(0); got != x.want {
			t.Errorf("%v: rounds of %d, want %d", x.on, got, x.want)
		}
	}
}
