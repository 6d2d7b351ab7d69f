package train

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint"
	"plimsoll/kernels"
)

var bothOffloadings = []executor.Offloading{executor.OffloadOptimizer, executor.OffloadWeights}

// offloadedSpec is a job whose state lives where mode says.
func offloadedSpec(mode executor.Offloading) Spec {
	s := tiny(8)
	s.Update = kernels.Adam{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	s.Open.Bandwidth, s.Offload = 200e6, mode
	return s
}

// A run with offloaded state ends as one without: weights, loss and accuracy; it says what the state cost, and its steps
// take at least as long as the link needs.
// Only this test finds a step with offloaded state that is reported faster than its link can copy.
func TestOffloadedStateTrainsToTheSameWeights(t *testing.T) {
	t.Parallel()
	want, err := planned(t, opened(t, offloadedSpec(executor.OffloadNothing)), 6).Do(t.Context())
	must(t, err)
	if want.State != nil || want.StateWaitS != 0 {
		t.Errorf("without offloading: %+v", want.State)
	}
	for _, mode := range bothOffloadings {
		j := opened(t, offloadedSpec(mode))
		out, err := planned(t, j, 6).Do(t.Context())
		must(t, err)
		if out.WeightsSHA256 != want.WeightsSHA256 || out.Loss != want.Loss || out.TestLoss != want.TestLoss {
			t.Errorf("%v: %+v, without offloading %+v", mode, out.Summary, want.Summary)
		}
		if out.MeasuredPeakBytes != out.PredictedPeakBytes || out.MeasuredPeakBytes >= want.MeasuredPeakBytes {
			t.Errorf("%v: peak %d, predicted %d, without offloading %d", mode, out.MeasuredPeakBytes, out.PredictedPeakBytes, want.MeasuredPeakBytes)
		}
		x := out.State
		if x == nil || x.Offloading != mode.String() || out.HostBytes < x.HostBytes || x.LeastS < out.PredictedS || x.MostS < out.PredictedS+x.TransferS*0.999 {
			t.Fatalf("%v: %+v, predicted %v", mode, x, out.PredictedS)
		}
		if link := float64(x.ToDeviceBytes) / j.Open.Bandwidth; out.MeasuredS < 0.95*link || out.StateWaitS <= 0 {
			t.Errorf("%v: a step took %v, its copies to the device alone %v; it waited %v", mode, out.MeasuredS, link, out.StateWaitS)
		}
	}
}

// What a checkpoint keeps does not depend on where it lived: a run goes on with other offloading, to the same weights.
// Only this test finds a checkpoint that depends on where weights and the optimizer's state lived.
func TestRunsGoOnWithOtherOffloading(t *testing.T) {
	t.Parallel()
	want, err := planned(t, opened(t, offloadedSpec(executor.OffloadNothing)), 6).Do(t.Context())
	must(t, err)
	dir := checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 3)
	for i, mode := range []executor.Offloading{executor.OffloadWeights, executor.OffloadOptimizer, executor.OffloadNothing} {
		r := planned(t, opened(t, offloadedSpec(mode)), 6)
		r.Saves.Dir = dir
		ctx, cancel := context.WithCancel(t.Context())
		stop := 2*i + 1
		r.Record = func(rec Record) error {
			if rec.Step == stop {
				cancel()
			}
			return nil
		}
		if i > 0 {
			resumeLatest(t, r, int64(2*i))
		}
		out, err := r.Do(ctx)
		cancel()
		if i < 2 {
			if !errors.Is(err, ErrInterrupted) {
				t.Fatalf("%v: %v", mode, err)
			}
			continue
		}
		if err == nil && out.WeightsSHA256 == want.WeightsSHA256 && out.ResumedFrom == 4 {
			return
		}
		resumeLatest(t, r, 6) // interrupted behind the last step, before the evaluation
		if out, err = r.Do(t.Context()); err != nil || out.WeightsSHA256 != want.WeightsSHA256 {
			t.Errorf("%v: %v, %+v, want weights %s", mode, err, out, want.WeightsSHA256)
		}
	}
}

func TestOffloadingRefusals(t *testing.T) {
	t.Parallel()
	r := planned(t, opened(t, offloadedSpec(executor.OffloadWeights)), 2)
	clipped, skipping, poor := *r, *r, *r
	clipped.MaxNorm, skipping.SkipNotFinite, poor.HostLimit = 1, true, 1000
	for what, x := range map[string]struct {
		run *Run
		as  error
	}{"--clip-norm": {&clipped, executor.ErrAtOnce}, "--on-nan": {&skipping, executor.ErrAtOnce}} {
		if err := x.run.Check(); !errors.Is(err, x.as) || !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := x.run.Do(t.Context()); !errors.Is(err, x.as) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var refused *executor.HostLimitError
	if err := poor.Check(); !errors.As(err, &refused) || refused.State != r.Job.Work.HostStateBytes() || refused.State < 1000 {
		t.Fatalf("1000 bytes of host memory: %v", err)
	}
	poor.HostLimit = refused.Needed
	if out, err := poor.Do(t.Context()); err != nil || out.HostBytes != refused.Needed {
		t.Errorf("with the host memory that was asked for: %v", err)
	}
	s := offloadedSpec(executor.OffloadOptimizer)
	s.Update = kernels.SGD{}
	if _, err := Open(s); !errors.Is(err, ErrSpec) || !errors.Is(err, executor.ErrNoState) {
		t.Errorf("an optimizer without state: %v", err)
	}
}
