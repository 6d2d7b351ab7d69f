package train

import (
	"errors"
	"path/filepath"
	"reflect"
	"testing"

	"plimsoll/executor"
	"plimsoll/planner/pipeline"
)

// skippingJob is a job of a U-Net.
func skippingJob(t testing.TB, microbatches, batch int) *Job {
	t.Helper()
	s := tiny(batch)
	s.Model, s.Config.Image, s.Devices, s.Microbatches, s.Kernels.Threads = "unet-1-4", 32, "cpu*4", microbatches, 1
	return opened(t, s)
}

// Skips go straight where that makes no plan slower and no arena larger, and their runs train the same weights. (Without a
// flush, weights are those of the schedule, and shorter messages make another one.)
// Only this test finds portals that make a plan slower or an arena larger.
func TestPortalsThatCostNothing(t *testing.T) {
	t.Parallel()
	taken := 0
	for _, strategy := range []string{"gpipe", "gpipe-checkpoint", "1f1b-flush", "interleaved", "zb-h1", "1f1b*", "madpipe"} {
		microbatches := 1
		q := request(t, strategy, 4)
		if q.Platform = pipeline.NewPlatform(4, pipeline.NoLimit, 1e7); q.Strategy.Type == pipeline.Flushing {
			microbatches = 4
			q.Options.Microbatches = microbatches
		}
		j := skippingJob(t, microbatches, 8)
		c := timed(j)
		for i := range c.Layers {
			half := c.Layers[i].BackwardS / 2
			c.Layers[i].BackwardInputS, c.Layers[i].BackwardWeightS = &half, &half
		}
		plain, err := j.PlanPipe(t.Context(), c, q)
		must(t, err)
		q.Portals = true
		straight, err := j.PlanPipe(t.Context(), c, q)
		must(t, err)
		if len(plain.Portals) > 0 || plain.Work != j.Work {
			t.Errorf("%s: portals that nobody asked for: %v", strategy, plain.Portals)
		}
		a, _ := plain.extent()
		b, _ := straight.extent()
		if b > a || straight.PredictedSeconds() > plain.PredictedSeconds()*(1+1e-9) {
			t.Errorf("%s: %d bytes and %v s with portals, %d and %v without", strategy, b, straight.PredictedSeconds(), a, plain.PredictedSeconds())
		}
		if len(straight.Portals) == 0 {
			continue
		}
		taken++
		path := filepath.Join(t.TempDir(), "plan.json")
		must(t, straight.Write(path))
		again, err := readPipe(j, path, c)
		must(t, err)
		if again.Work != straight.Work || !reflect.DeepEqual(again.Needs, straight.Needs) {
			t.Errorf("%s: the plan of the file takes %v, want %v", strategy, again.Needs, straight.Needs)
		}
		var want *Outcome
		for _, p := range []*JobPlan{plain, straight, again} {
			r := &Run{Job: j, Chain: c, Plan: p, Steps: 2, Rate: Rate{Peak: 0.01}}
			r.Whole()
			got := done(t, r)
			if want == nil || p == straight && !p.IsFlush() {
				want = got
			}
			if got.WeightsSHA256 != want.WeightsSHA256 {
				t.Errorf("%s: weights %s with portals, %s without", strategy, got.WeightsSHA256, want.WeightsSHA256)
			}
			wantHistory(t, got, want)
		}
	}
	if taken < 5 {
		t.Errorf("%d strategies have portals", taken)
	}
}

// If the stages of a plan offload, its skips still go straight. The plan that is read back from its file needs arenas of the same size.
// Runs of both plans train the same weights.
func TestPortalsOfStagesThatOffload(t *testing.T) {
	t.Parallel()
	j := skippingJob(t, 1, 8)
	c := timed(j)
	q := request(t, "loadline", 4)
	q.Options.Versions, q.Portals = pipeline.Stash, true
	q.Platform = pipeline.NewPlatform(4, pipeline.NoLimit, 1e9)
	q.Platform.Host = 2e8
	both := 0
	for share := int64(30); share <= 50; share += 5 {
		q.Limit = func(most int64) int64 { return most * share / 100 }
		p, err := j.PlanPipe(t.Context(), c, q)
		var small *executor.TooSmallError
		if errors.As(err, &small) {
			continue
		}
		must(t, err)
		if !p.Offloads() || len(p.Portals) == 0 {
			continue
		}
		both++
		path := filepath.Join(t.TempDir(), "plan.json")
		must(t, p.Write(path))
		again, err := readPipe(j, path, c)
		must(t, err)
		if !reflect.DeepEqual(again.Needs, p.Needs) {
			t.Errorf("the plan of the file takes %v, want %v", again.Needs, p.Needs)
		}
		var sums []string
		for _, x := range []*JobPlan{p, again} {
			r := &Run{Job: j, Chain: c, Plan: x, Steps: 3, Rate: Rate{Peak: 0.01}}
			r.Whole()
			sums = append(sums, done(t, r).WeightsSHA256)
		}
		if sums[0] != sums[1] {
			t.Errorf("at %d %%: weights %v", share, sums)
		}
	}
	if both == 0 {
		t.Error("no plan offloads and has portals")
	}
}
