package train

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint"
	"plimsoll/kernels"
)

// adamSpec is a job whose optimizer has state.
func adamSpec() Spec {
	s := tiny(8)
	s.Update = kernels.Adam{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	return s
}

// movingRun returns a run of a strategy that moves weights and state, which clips.
func movingRun(t *testing.T, strategy string, steps int) *Run {
	t.Helper()
	s := adamSpec()
	s.Microbatches = 1
	j := opened(t, s)
	c := j.Work.UnmeasuredUpdates(func(int) bool { return true })
	q := request(t, strategy, 1)
	q.Platform.Host, q.Options.Microbatches, q.Options.UpdatesLast = c.Bandwidth, 1, true
	p, err := j.PlanPipe(t.Context(), c, q)
	must(t, err)
	return &Run{Job: j, Chain: c, Plan: p, Steps: steps, Rate: Rate{Peak: 0.05}, MaxNorm: 1}
}

// residentRun is movingRun of a plan of activations alone.
func residentRun(t *testing.T, steps int) *Run {
	t.Helper()
	r := planned(t, opened(t, adamSpec()), steps)
	r.MaxNorm = 1
	return r
}

// offloading are the strategies of --offload-state.
var offloading = []string{"zero-offload", "layer-window"}

// A run whose state and weights live with the host ends as one without: weights, norms, loss and accuracy, with a smaller peak.
// Only this test finds a run along such a plan that clips otherwise, or whose summary has another peak than was predicted.
func TestOffloadedStateTrainsToTheSameWeights(t *testing.T) {
	t.Parallel()
	resident, clipped := residentRun(t, 6), 0
	want := done(t, resident)
	all, err := resident.Job.StoreAllBytes()
	must(t, err)
	for _, name := range offloading {
		out := done(t, movingRun(t, name, 6))
		if out.WeightsSHA256 != want.WeightsSHA256 || out.Loss != want.Loss || out.TestLoss != want.TestLoss {
			t.Errorf("%s: %+v, without offloading %+v", name, out.Summary, want.Summary)
		}
		if out.MeasuredPeakBytes != out.PredictedPeakBytes || out.MeasuredPeakBytes >= all {
			t.Errorf("%s: peak %d, predicted %d, store-all takes %d", name, out.MeasuredPeakBytes, out.PredictedPeakBytes, all)
		}
		for i, rec := range out.History.Steps {
			if rec.Norm != want.History.Steps[i].Norm {
				t.Errorf("%s, step %d: norm %v, want %v", name, i, rec.Norm, want.History.Steps[i].Norm)
			}
			if rec.Norm > 1 {
				clipped++
			}
		}
	}
	if clipped == 0 {
		t.Error("no step is clipped")
	}
}

// A checkpoint does not depend on where its tensors lived: a run goes on with another plan, to the same weights.
// Only this test finds a checkpoint that depends on where weights and the optimizer's state lived.
func TestRunsGoOnWithOtherOffloading(t *testing.T) {
	t.Parallel()
	want := done(t, residentRun(t, 6))
	dir := checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 3)
	for i, name := range append(slices.Clone(offloading), "") {
		r := residentRun(t, 6)
		if name != "" {
			r = movingRun(t, name, 6)
		}
		r.Saves = Saves{Dir: dir, Every: 2}
		if i > 0 {
			resumeLatest(t, r, int64(2*i))
		}
		if r.Steps = 2 * (i + 1); i == 2 {
			r.Steps = 6
		}
		out := done(t, r)
		if i == 2 && (out.WeightsSHA256 != want.WeightsSHA256 || out.ResumedFrom != 4) {
			t.Errorf("%+v, want weights %s", out.Summary, want.WeightsSHA256)
		}
	}
}

// A run along a plan that moves weights and state is interrupted between steps, and goes on.
func TestMovingRunsAreInterrupted(t *testing.T) {
	t.Parallel()
	want := done(t, movingRun(t, offloading[0], 6)).WeightsSHA256
	r := movingRun(t, offloading[0], 6)
	r.Saves.Dir = checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 3)
	ctx, cancel := context.WithCancel(t.Context())
	r.Record = func(rec Record) error {
		if rec.Step == 2 {
			cancel()
		}
		return nil
	}
	_, err := r.Do(ctx)
	cancel()
	if !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	again := movingRun(t, offloading[1], 6)
	c, _, err := r.Saves.Dir.Latest()
	must(t, err)
	again.From = c
	if got := done(t, again).WeightsSHA256; got != want {
		t.Errorf("weights %s, want %s", got, want)
	}
}

// Host memory that is too small is refused with the bytes that the plan takes.
func TestOffloadingNeedsHostMemory(t *testing.T) {
	t.Parallel()
	r := movingRun(t, "layer-window", 2)
	r.HostLimit = r.Plan.Needs[0].Host - 1
	_, err := r.Do(t.Context())
	small, ok := errors.AsType[*executor.HostLimitError](err)
	if !ok || small.Needed != r.Plan.Needs[0].Host {
		t.Fatalf("%v, want %d bytes", err, r.Plan.Needs[0].Host)
	}
	r.HostLimit = small.Needed
	if out := done(t, r); out.HostBytes != small.Needed {
		t.Errorf("%d bytes of host memory, %d were asked for", out.HostBytes, small.Needed)
	}
}
