package ilp

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"plimsoll/internal/shared"
	"plimsoll/planner/chain"
	"plimsoll/planner/milp"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/partition"
	"plimsoll/planner/pipeline/pipelinetest"
)

// need skips where no solver is built in.
func need(t *testing.T) {
	t.Helper()
	if !milp.Built {
		t.Skip(milp.ErrNoSolver)
	}
}

// general is section general of vectors/pipeline_small.json: tiny chains with the best period of all allocations and schedules.
type general struct {
	General struct {
		Cases []struct {
			Chain   *chain.Chain `json:"chain"`
			Devices int          `json:"devices"`
			Memory  *int64       `json:"memory_bytes"`
			Period  *float64     `json:"period_s"` // nil: nothing fits
		} `json:"cases"`
	} `json:"general"`
}

// tiny returns the requests of the section, and their periods, 0 where nothing fits.
func tiny(t *testing.T) (all []pipeline.Request, periods []float64) {
	t.Helper()
	var v general
	data, err := os.ReadFile(shared.Path(t, "vectors", "pipeline_small.json"))
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range v.General.Cases {
		p := pipeline.NewPlatform(c.Devices, pipeline.NoLimit, pipeline.Free())
		if c.Memory != nil {
			p = p.WithMemory(*c.Memory)
		}
		period := 0.0
		if c.Period != nil {
			period = *c.Period
		}
		all, periods = append(all, pipeline.Request{Chain: c.Chain, Platform: p}), append(periods, period)
	}
	return all, periods
}

// searchOf returns the search of a request.
func searchOf(t testing.TB, r pipeline.Request) *search {
	t.Helper()
	in, err := newInstance(r)
	if err != nil {
		t.Fatal(err)
	}
	return newSearch(context.Background(), in)
}

// with solves a request with another strategy.
func with(t testing.TB, name string, r pipeline.Request) (*pipeline.Plan, error) {
	t.Helper()
	for _, s := range partition.Strategies() {
		if s.Name == name {
			return s.Solve(context.Background(), r)
		}
	}
	t.Fatalf("BUG: no strategy %s", name)
	return nil, nil
}

// request returns a random request of n layers, on any platform.
func request(rng *rand.Rand, n, devices int) pipeline.Request {
	r := pipeline.Request{Chain: pipelinetest.Chain(rng, n, rng.IntN(2) == 0), Platform: pipelinetest.Platform(rng, devices)}
	r.Versions = []pipeline.Versions{"", pipeline.Latest, pipeline.Stash, pipeline.VerticalSync}[rng.IntN(4)]
	if r.Versions == pipeline.VerticalSync {
		r.WeightCopies = []float64{2.5}
	}
	r.Accounting = []pipeline.Accounting{"", pipeline.Inputs, pipeline.Saved}[rng.IntN(3)]
	if rng.IntN(4) > 0 {
		r.Platform = r.Platform.WithMemory(5 + rng.Int64N(60))
		if rng.IntN(3) == 0 {
			r.Platform.Memory[rng.IntN(devices)] += rng.Int64N(30)
		}
	}
	return r
}

// row returns a chain of n layers that take a second each way and send a byte.
func row(n int) *chain.Chain {
	c := &chain.Chain{Name: "row", InputBytes: 1}
	for range n {
		c.Layers = append(c.Layers, chain.Layer{Name: "layer", ForwardS: 1, BackwardS: 1, OutputBytes: 1, SavedBytes: 1, GradientBytes: 1})
	}
	return c
}

func close(x, y float64) bool { return math.Abs(x-y) <= 1e-9*max(1, math.Abs(x), math.Abs(y)) }
