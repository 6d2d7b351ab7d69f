package train

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/strategy"
)

// Fit's answers on pipelines are exact: a plan exists at the smallest limit and at the largest batch, and none exists beyond them.
func TestFitPipe(t *testing.T) {
	t.Parallel()
	asked := func(j *Job, devices int, limit int64, s pipeline.Strategy) (KindFit, []string) {
		f, err := j.Fit(t.Context(), FitRequest{Devices: devices, Limit: limit, Kinds: []strategy.Kind{{Name: s.Name, Strategies: []pipeline.Strategy{s}}}})
		must(t, err)
		return f.Kinds[0], f.Helps
	}
	platform := pipeline.NewPlatform(2, pipeline.NoLimit, pipeline.Free())
	for _, c := range []struct {
		strategy string
		parts    int
	}{{"gpipe", 4}, {"1f1b-flush", 2}, {"gpipe-checkpoint", 4}, {"1f1b", 1}, {"loadline", 1}, {"joint", 1}} {
		s, err := planner.LookupPipeline(c.strategy)
		must(t, err)
		open := func(batch, parts int) *Job {
			return opened(t, Spec{
				Model: "resnet20", Config: models.Config{Batch: batch, Image: 16}, Data: "digits", Seed: 1, Devices: "cpu*2",
				Update: kernels.SGD{}, Microbatches: parts,
			})
		}
		plans := func(batch int, limit int64) bool {
			q := PipeRequest{Strategy: s, Platform: platform, Limit: func(int64) int64 { return limit }, Portals: true}
			q.Options.Accounting = pipeline.Saved
			if s.Type == pipeline.Flushing {
				q.Options.Microbatches = c.parts
			}
			j := open(batch, c.parts)
			_, err := j.PlanPipe(t.Context(), j.Work.Unmeasured(), q)
			if err != nil && !errors.As(err, new(*executor.TooSmallError)) {
				t.Fatal(err)
			}
			return err == nil
		}
		const limit = 6 << 20
		asks := max(c.parts, 2) // a strategy without a flush does not divide the batches of a job that does
		fit, _ := asked(open(16, asks), 2, limit, s)
		if !plans(16, fit.SmallestBytes) || plans(16, fit.SmallestBytes-1) {
			t.Errorf("%s: %d bytes are not the smallest limit", c.strategy, fit.SmallestBytes)
		}
		if n := fit.LargestBatch; n == 0 || n%c.parts != 0 || !plans(n, limit) || plans(n+c.parts, limit) {
			t.Errorf("%s: %d is not the largest batch", c.strategy, n)
		}
		if none, helps := asked(open(16, asks), 2, 1, s); none.LargestBatch != 0 || none.Fits || helps[0] != fmt.Sprintf("--memory %d", none.SmallestBytes) {
			t.Errorf("%s in a byte: %+v, %q", c.strategy, none, helps)
		}
	}
	s, err := planner.LookupPipeline("gpipe")
	must(t, err)
	j := opened(t, Spec{Model: "tiny", Config: models.Config{Batch: 4, Image: 16}, Data: "digits", Seed: 1, Devices: "cpu*2", Update: kernels.SGD{}, Microbatches: 1})
	if fit, helps := asked(j, 99, 1<<30, s); fit.SmallestBytes != 0 || fit.LargestBatch != 0 || fit.Fits || !slices.Equal(helps, []string{"fewer --devices"}) {
		t.Errorf("more devices than layers: %+v, %q", fit, helps)
	}
}
