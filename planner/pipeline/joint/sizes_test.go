package joint

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// sizes makes a request's chain one of batches 1, 2, 4 and 8: a layer's times have a part that does not grow with the batch, sizes grow
// with it.
func sizes(rng *rand.Rand, r *pipeline.Request) {
	base := *r.Chain
	fixed := rng.Float64()
	for _, batch := range []int{4, 1, 8, 2} {
		c := base
		c.Batch = batch
		c.Layers = append([]chain.Layer(nil), base.Layers...)
		c.InputBytes *= int64(batch)
		for i := range c.Layers {
			l := &c.Layers[i]
			times := fixed + (1-fixed)*float64(batch)
			l.ForwardS, l.BackwardS, l.DiscardForwardS, l.DiscardOverheadBytes = l.ForwardS*times, l.BackwardS*times, nil, nil
			for _, bytes := range []*int64{&l.OutputBytes, &l.SavedBytes, &l.GradientBytes, &l.ForwardOverheadBytes, &l.BackwardOverheadBytes} {
				*bytes *= int64(batch)
			}
		}
		if r.Chain.Batch == 0 {
			r.Chain = &c
		} else {
			r.Chain.Others = append(r.Chain.Others, &c)
		}
	}
	r.Platform = r.Platform.WithMemory(r.Platform.Memory[0] * int64(1+rng.IntN(6)))
}

// TestSizesAreTheBestOfEach: of a chain of several batch sizes, joint and joint-flush take the plan of the size that trains most samples a
// second when each is planned by itself.
func TestSizesAreTheBestOfEach(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(16, 9))
	taken, none, left := map[int]int{}, 0, 0
	for range 60 {
		for _, s := range named(Strategies(), "joint", "joint-flush") {
			r := request(rng, 5, 3)
			r.Versions = ""
			sizes(rng, &r)
			batch := 0
			if s.Type == pipeline.Flushing {
				batch = 4 * (1 + rng.IntN(3))
			}
			var best *pipeline.Plan
			fastest := 0.0
			for _, c := range r.Chain.Sizes() {
				one := r
				if one.Chain = c; batch > 0 {
					if one.Microbatches = batch / c.Batch; one.Microbatches*c.Batch != batch {
						left++
						continue
					}
				}
				p, err := s.Solve(t.Context(), one)
				if errors.Is(err, pipeline.ErrInfeasible) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if p.Batch = c.Batch; best == nil || float64(c.Batch)/p.SecondsPerMinibatch() > fastest {
					best, fastest = p, float64(c.Batch)/p.SecondsPerMinibatch()
				}
			}
			got, c, err := pipeline.SolveSizes(t.Context(), s, r, batch)
			if best == nil {
				if none++; !errors.Is(err, pipeline.ErrInfeasible) {
					t.Errorf("%s: %v, and no size fits", s.Name, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := pipeline.Check(c, r.Platform, got); err != nil || c.Batch != got.Batch || same(t, got) != same(t, best) {
				t.Errorf("%s: %v: batch %d of %d, want %d", s.Name, err, c.Batch, got.Batch, best.Batch)
			}
			taken[got.Batch]++
		}
	}
	t.Logf("batch sizes taken %v, none fits %d, do not divide the step %d", taken, none, left)
	if len(taken) != 4 || none == 0 || left == 0 {
		t.Errorf("batch sizes taken %v, none fits %d, do not divide the step %d: want all cases", taken, none, left)
	}
}

func same(t *testing.T, p *pipeline.Plan) string {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestStepsOfNoSize: a step that no batch size divides, or not into the microbatches that are asked for, is refused.
func TestStepsOfNoSize(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(16, 10))
	r := request(rng, 5, 3)
	r.Versions, r.Platform = "", r.Platform.WithMemory(pipeline.NoLimit)
	sizes(rng, &r)
	r.Platform = r.Platform.WithMemory(pipeline.NoLimit)
	for _, c := range []struct{ batch, microbatches, want int }{{8, 0, -1}, {8, 4, 2}, {8, 5, 0}, {9, 3, 0}} {
		r.Microbatches = c.microbatches
		p, _, err := pipeline.SolveSizes(t.Context(), named(Strategies(), "joint-flush")[0], r, c.batch)
		switch {
		case c.want == 0 && !errors.Is(err, pipeline.ErrBatch):
			t.Errorf("%+v: %v", c, err)
		case c.want != 0 && (err != nil || c.want > 0 && p.Batch != c.want || p.Batch*p.Microbatches != c.batch):
			t.Errorf("%+v: %v, %+v", c, err, p)
		}
	}
}
