package flush

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// A request that a schedule cannot serve is refused by name, with what would work.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	type edit = func(q *pipeline.Request)
	stages := func(all ...pipeline.Stage) edit { return func(q *pipeline.Request) { q.Stages = all } }
	nolink := pipeline.NewPlatform(3, pipeline.NoLimit, 1)
	nolink.Pairs = map[[2]int]float64{{0, 1}: 0}
	for _, x := range []struct {
		strategy string
		edit     edit
		is       error
		says     string
	}{
		{"gpipe", func(q *pipeline.Request) { q.Microbatches = -1 }, ErrOptions, "microbatches is -1"},
		{"gpipe", func(q *pipeline.Request) { q.Microbatches = 1 << 20 }, ErrOptions, "want 1 to 65536"},
		{"interleaved", func(q *pipeline.Request) { q.Chunks = -2 }, ErrOptions, "chunks is -2"},
		{"interleaved", func(q *pipeline.Request) { q.Microbatches = 6 }, ErrOptions, "give 4 or 8"},
		{"interleaved", func(q *pipeline.Request) { q.Microbatches = 3 }, ErrOptions, "give 4 or 8"},
		{"interleaved", func(q *pipeline.Request) { q.Chunks = 3 }, pipeline.ErrInfeasible, "it has enough for 2 devices"},
		{"chimera", func(q *pipeline.Request) { q.Platform = free(3) }, ErrOptions, "an even number: give 2"},
		{"chimera", func(q *pipeline.Request) { q.Platform = free(1) }, ErrOptions, "an even number: give 2"},
		{"dualpipe-v", func(q *pipeline.Request) { q.Microbatches = 7 }, ErrOptions, "give 8 or more"},
		{"1f1b-flush", func(q *pipeline.Request) { q.Platform = free(9) }, pipeline.ErrInfeasible, "it has enough for 8 devices"},
		{"chimera", func(q *pipeline.Request) { q.Platform, q.Chain = free(9), uniform(7, 1, 1, 1) }, pipeline.ErrInfeasible, "it has enough for 6 devices"},
		{"interleaved", func(q *pipeline.Request) { q.Platform, q.Microbatches = free(5), 6 }, pipeline.ErrInfeasible, "it has enough for 3 devices"},
		{"zb-v", func(q *pipeline.Request) { q.Platform = free(5) }, pipeline.ErrInfeasible, "it has enough for 4 devices"},
		{"zb-h1", func(q *pipeline.Request) { q.Chain.Layers[2].BackwardWeightS = nil }, ErrHalves, "layer 3 (layer) lacks"},
		{"gpipe", func(q *pipeline.Request) { q.Versions = pipeline.Stash }, ErrOptions, "weight versions are \"stash\""},
		{"gpipe", func(q *pipeline.Request) { q.Accounting = "half" }, ErrOptions, "accounting is \"half\""},
		{"gpipe", func(q *pipeline.Request) { q.WeightCopies = []float64{1, 2} }, ErrOptions, "2 weight copies for 4 stages"},
		{"gpipe", func(q *pipeline.Request) { q.WeightCopies = []float64{math.NaN()} }, ErrOptions, "weight copies are NaN"},
		{"gpipe", func(q *pipeline.Request) { q.Chain = nil }, ErrOptions, "a chain and a platform"},
		{"gpipe", func(q *pipeline.Request) { q.Chain = &chain.Chain{} }, chain.ErrFormat, ""},
		{"gpipe", func(q *pipeline.Request) { q.Chain.Branches = []int{3, 4} }, pipeline.ErrBranches, "\"branches\" of \"uniform\" is [3 4]"},
		{"ampnet", func(q *pipeline.Request) { q.Chain.Branches = []int{3, 4} }, pipeline.ErrBranches, "single chains"},
		{"gpipe", func(q *pipeline.Request) { q.Platform = free(0) }, pipeline.ErrPlatform, "devices"},
		{"gpipe", func(q *pipeline.Request) { q.Platform = nolink }, pipeline.ErrPlatform, "give a bandwidth above 0 for \"0-1\""},
		{"gpipe", func(q *pipeline.Request) { q.Chain.Layers[0].ForwardS = 1e308 }, ErrOptions, "longer than a number can say"},
		{"zb-v", stages(pipeline.Stage{First: 1, Last: 8}), ErrOptions, "give a multiple of 2"},
		{"gpipe", stages(slices.Repeat([]pipeline.Stage{{First: 1, Last: 1}}, 5)...), ErrOptions, "need 5 devices, the platform has 4"},
		{"gpipe", stages(pipeline.Stage{First: 2, Last: 8}), ErrOptions, "it must start at layer 1"},
		{"gpipe", stages(pipeline.Stage{First: 1, Last: 7}), ErrOptions, "end at layer 7, the chain has 8"},
		{"gpipe", stages(pipeline.Stage{First: 1, Last: 9}), ErrOptions, "end at 8 at most"},
		{"gpipe", stages(pipeline.Stage{First: 1, Last: 8, Devices: []int{4}}), ErrOptions, "the platform has 0 to 3"},
		{"gpipe", stages(pipeline.Stage{First: 1, Last: 8, Devices: []int{1, 2}}), ErrOptions, "names 2 devices"},
		{"gpipe", stages(pipeline.Stage{First: 1, Last: 4, Devices: []int{1}}, pipeline.Stage{First: 5, Last: 8, Devices: []int{1}}), ErrOptions, "has other stages already"},
		{"zb-v", stages(pipeline.Stage{First: 1, Last: 4, Devices: []int{1}}, pipeline.Stage{First: 5, Last: 8, Devices: []int{2}}), ErrOptions, "shares device 1 with an earlier stage"},
	} {
		q := pipeline.Request{Chain: uniform(8, 1, 1, 1), Platform: free(4)}
		x.edit(&q)
		_, err := lookup(t, x.strategy).Solve(context.Background(), q)
		if !errors.Is(err, x.is) || !strings.Contains(err.Error(), x.says) || !strings.HasPrefix(err.Error(), x.strategy) {
			t.Errorf("%s: %v, want %v with %q", x.strategy, err, x.is, x.says)
		}
	}
}

// Stages of the request are kept, on the devices that they name; the others get the free ones.
func TestGivenStages(t *testing.T) {
	t.Parallel()
	q := pipeline.Request{Chain: uniform(8, 1, 1, 1), Platform: free(4)}
	q.Stages = []pipeline.Stage{{First: 1, Last: 3, Devices: []int{2}}, {First: 4, Last: 4}, {First: 5, Last: 5}, {First: 6, Last: 8}}
	plan, err := lookup(t, "zb-v").Solve(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	for s, want := range []int{2, 0, 0, 2} {
		if got := plan.Stages[s]; !slices.Equal(got.Devices, []int{want}) || got.First != q.Stages[s].First || got.Last != q.Stages[s].Last {
			t.Errorf("stage %d is %+v, want device %d", s, got, want)
		}
	}
	if plan.Microbatches != 4 {
		t.Errorf("%d microbatches, two for each device are 4", plan.Microbatches)
	}
}
