package train

import (
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/executor/checkpoint"
	"plimsoll/kernels"
	"plimsoll/models/data"
)

// badStep makes the images of some training samples infinite.
type badStep struct {
	data.Dataset
	from, to int64
}

func (b badStep) Fill(split data.Split, index int64, dst []float32) (int, error) {
	label, err := b.Dataset.Fill(split, index, dst)
	if split == data.Train && index >= b.from && index < b.to {
		dst[0] = float32(math.Inf(1))
	}
	return label, err
}

// guardedSpec is a model without BatchNorm, trained by Adam, which counts updates, in microbatches of 2.
func guardedSpec(devices string) Spec {
	s := tiny(2)
	s.Model, s.Devices, s.Kernels.Threads, s.Update = "mlp", devices, 1, kernels.Adam{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	return s
}

// guardedRun clips, and passes over its third step of six, of 8 images, whose samples are bad.
func guardedRun(t *testing.T, r *Run) *Run {
	t.Helper()
	must(t, r.Check())
	var err error
	r.Job.train, err = data.NewBatcher(endless{badStep{r.Job.Set, 16, 17}}, data.Train, r.Job.Config.Batch, r.Job.Seed)
	must(t, err)
	r.Rate, r.Steps, r.EvalEvery, r.MaxNorm, r.SkipNotFinite = Rate{Peak: 0.01}, 6, 3, 2, true
	return r
}

// Clipped and skipped steps give the same bits on any number of devices as on one device that knows no pipelines. This holds for weights,
// losses, norms, and the counts in checkpoints. Any of these runs can resume from these checkpoints.
func TestPipelinesClipAndSkipAsOneDevice(t *testing.T) {
	t.Parallel()
	alone := func() *Run { return guardedRun(t, parted(t, guardedSpec("cpu"), 4, "rotor-exact", true)) }
	want := done(t, alone())
	if want.Skipped != 1 || !want.History.Steps[2].Skipped || !finite(float64(want.TestLoss)) {
		t.Errorf("%d steps are skipped: %+v", want.Skipped, want.History.Steps)
	}
	clipped := 0
	for _, s := range want.History.Steps {
		if s.Norm > 2 {
			clipped++
		}
	}
	if clipped == 0 || clipped == 5 {
		t.Errorf("%d steps are clipped", clipped)
	}
	for _, x := range []struct {
		strategy string
		devices  int
	}{{"1f1b-flush", 1}, {"1f1b-flush", 2}, {"interleaved", 2}, {"1f1b-flush", 3}} {
		on := func() *Run {
			s := guardedSpec("cpu*" + string(rune('0'+x.devices)))
			s.Microbatches, s.Config.Batch = 4, 8
			return guardedRun(t, pipeRun(t, opened(t, s), x.strategy, x.devices, 6))
		}
		got := done(t, on())
		if got.WeightsSHA256 != want.WeightsSHA256 || got.Skipped != 1 {
			t.Errorf("%s on %d devices: weights %s, want %s; %d steps are skipped", x.strategy, x.devices, got.WeightsSHA256, want.WeightsSHA256, got.Skipped)
		}
		wantHistory(t, got, want)
		for name, runs := range map[string][2]func() *Run{"a pipeline": {on, on}, "one device": {on, alone}, "a pipeline behind one device": {alone, on}} {
			first := runs[0]()
			first.Steps, first.Saves = 4, Saves{Dir: checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 9), Every: 1}
			done(t, first)
			again := runs[1]()
			again.Saves = first.Saves
			resumeLatest(t, again, 4)
			if got := done(t, again).WeightsSHA256; got != want.WeightsSHA256 {
				t.Errorf("%s on %d devices, %s goes on: weights %s, want %s", x.strategy, x.devices, name, got, want.WeightsSHA256)
			}
		}
	}
}

// Without --on-nan skip a bad step ends the run of a pipeline, with the weights of the step before.
func TestPipelinesStopAtABadStep(t *testing.T) {
	t.Parallel()
	s := guardedSpec("cpu*2")
	s.Microbatches, s.Config.Batch = 4, 8
	r := guardedRun(t, pipeRun(t, opened(t, s), "1f1b-flush", 2, 6))
	r.SkipNotFinite = false
	_, err := r.Do(t.Context())
	if !errors.Is(err, ErrDiverged) || !strings.Contains(err.Error(), "at step 2") || !strings.Contains(err.Error(), "--on-nan skip") {
		t.Error(err)
	}
}
