package train

import (
	"errors"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/pipeline"
)

// What fit says of pipelines is so: there is a plan at the smallest limit and at the largest batch, and at none beyond.
func TestFitPipe(t *testing.T) {
	t.Parallel()
	platform := pipeline.NewPlatform(2, pipeline.NoLimit, pipeline.Free())
	for _, c := range []struct {
		strategy string
		parts    int
	}{{"gpipe", 4}, {"1f1b-flush", 2}, {"gpipe-checkpoint", 4}, {"1f1b", 1}, {"loadline", 1}, {"joint", 1}} {
		s, err := planner.LookupPipeline(c.strategy)
		must(t, err)
		open := func(batch int) *Job {
			return opened(t, Spec{
				Model: "resnet20", Config: models.Config{Batch: batch, Image: 16}, Data: "digits", Seed: 1, Devices: "cpu*2",
				Update: kernels.SGD{}, Microbatches: c.parts,
			})
		}
		plans := func(batch int, limit int64) bool {
			q := PipeRequest{Strategy: s, Platform: platform, Limit: func(int64) int64 { return limit }, Portals: true}
			q.Options.Accounting = pipeline.Saved
			if s.Type == pipeline.Flushing {
				q.Options.Microbatches = c.parts
			}
			j := open(batch)
			_, err := j.PlanPipe(t.Context(), j.Work.Unmeasured(), q)
			if err != nil && !errors.As(err, new(*PipeMemoryError)) {
				t.Fatal(err)
			}
			return err == nil
		}
		const limit = 6 << 20
		fit, err := open(16).FitPipe(t.Context(), s, platform, limit)
		must(t, err)
		if !plans(16, fit.SmallestBytes) || plans(16, fit.SmallestBytes-1) {
			t.Errorf("%s: %d bytes are not the smallest limit", c.strategy, fit.SmallestBytes)
		}
		if n := fit.LargestBatch; n == 0 || n%c.parts != 0 || !plans(n, limit) || plans(n+c.parts, limit) {
			t.Errorf("%s: %d is not the largest batch", c.strategy, n)
		}
		if none, err := open(16).FitPipe(t.Context(), s, platform, 1); err != nil || none.LargestBatch != 0 {
			t.Errorf("%s in a byte: %+v, %v", c.strategy, none, err)
		}
	}
	s, err := planner.LookupPipeline("gpipe")
	must(t, err)
	j := opened(t, Spec{Model: "tiny", Config: models.Config{Batch: 4, Image: 16}, Data: "digits", Seed: 1, Devices: "cpu*2", Update: kernels.SGD{}, Microbatches: 1})
	if fit, err := j.FitPipe(t.Context(), s, pipeline.NewPlatform(99, pipeline.NoLimit, pipeline.Free()), 1<<30); err != nil || fit.SmallestBytes != 0 || fit.LargestBatch != 0 {
		t.Errorf("more devices than layers: %+v, %v", fit, err)
	}
}
