package train

import (
	"errors"
	"path/filepath"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint"
	"plimsoll/planner"
	"plimsoll/planner/strategy"
)

// parted returns a run with the given number of parts in each step. Each part follows a plan of the named strategy. If least is set, the
// plan has the least memory that the strategy works at; otherwise it has no tight limit.
func parted(t testing.TB, s Spec, parts int, name string, least bool) *Run {
	t.Helper()
	s.Parts, s.Config.Batch = parts, max(parts, 1)*s.Config.Batch
	j := opened(t, s)
	c := timed(j)
	c.Bandwidth = 1e8
	by, err := planner.Lookup(name)
	must(t, err)
	limit, err := j.StoreAllExtent()
	must(t, err)
	limit += limit / 8
	if least {
		_, err := executor.Plan(t.Context(), j.Work, c, by, 1, strategy.Options{})
		small, ok := errors.AsType[*executor.TooSmallError](err)
		if !ok {
			t.Fatalf("%s in a byte: %v", name, err)
		}
		limit = small.Smallest
	}
	p, err := executor.Plan(t.Context(), j.Work, c, by, limit, strategy.Options{})
	must(t, err)
	return &Run{Job: j, Chain: c, Plan: j.SequenceOf(c, p, limit), Steps: 4, Rate: Rate{Peak: 0.05, Warmup: 2}, EvalEvery: 3}
}

// expectParts compares runs with parts in their steps with pipelines of one device, which add gradients up in the same order. Weights,
// losses and evaluations are the same bits, whatever the parts' plan. The peak is the planned one.
func expectParts(t *testing.T, device string, parts []int) {
	for _, n := range parts {
		pipe := tiny(2)
		pipe.Devices, pipe.Microbatches, pipe.Config.Batch = device, n, 2*n
		flush := pipeRun(t, opened(t, pipe), "1f1b-flush", 1, 4)
		flush.Rate, flush.EvalEvery = Rate{Peak: 0.05, Warmup: 2}, 3
		want := done(t, flush)
		for name, least := range map[string]bool{"store-all": false, "rotor-exact": true, "revolve": false, "pofo": true, "offload-greedy": true} {
			s := tiny(2)
			s.Devices = device
			r := parted(t, s, n, name, least)
			got := done(t, r)
			if got.WeightsSHA256 != want.WeightsSHA256 || got.TestLoss != want.TestLoss || got.Loss != want.Loss {
				t.Errorf("%d parts along %s: weights %s, loss %v and %v; microbatches %s, %v and %v",
					n, name, got.WeightsSHA256, got.Loss, got.TestLoss, want.WeightsSHA256, want.Loss, want.TestLoss)
			}
			if got.MeasuredPeakBytes != got.PredictedPeakBytes && device == "cpu" || len(got.History.Steps) != 4 {
				t.Errorf("%d parts along %s: peak %d, planned %d; %d steps", n, name, got.MeasuredPeakBytes, got.PredictedPeakBytes, len(got.History.Steps))
			}
		}
	}
}

func TestPartsAreMicrobatches(t *testing.T) {
	t.Parallel()
	expectParts(t, "cpu", []int{1, 2, 3, 5})
}

// A run in parts goes on after any step, in whatever way its step was divided up along which plan, with clipped gradients, too.
func TestPartsGoOn(t *testing.T) {
	t.Parallel()
	clipped := func(name string, least bool) *Run {
		r := parted(t, tiny(2), 3, name, least)
		r.MaxNorm = 0.5
		return r
	}
	want := done(t, clipped("store-all", false)).WeightsSHA256
	first := clipped("rotor-exact", true)
	first.Steps, first.Saves = 2, Saves{Dir: checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 9), Every: 1}
	done(t, first)
	again := clipped("offload-greedy", true)
	again.Saves = first.Saves
	resumeLatest(t, again, 2)
	if got := done(t, again).WeightsSHA256; got != want {
		t.Errorf("weights %s, want %s", got, want)
	}
	if plain := done(t, parted(t, tiny(2), 3, "store-all", false)).WeightsSHA256; plain == want {
		t.Error("nothing is clipped")
	}
}

// If a batch cannot be made in the middle of a step, the run leaves no checkpoint, because BatchNorm's statistics have moved. A loss that
// is not finite ends the run at its part.
func TestPartsThatFail(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken.jpg")
	run := func(from int64, fill func([]float32) error) (*Run, error) {
		r := parted(t, tiny(2), 3, "store-all", false)
		r.Saves = Saves{Dir: checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 9)}
		spoil(t, r.Job, from, fill)
		_, err := r.Do(t.Context())
		return r, err
	}
	for part, saved := range map[int64]bool{3: true, 4: false, 5: false} { // of the second step, by batches of 2
		r, err := run(2*part, func([]float32) error { return broken })
		_, _, none := r.Saves.Dir.Latest()
		if !errors.Is(err, broken) || (none == nil) != saved {
			t.Errorf("batch %d: %v; a checkpoint: %v", part, err, none)
		}
	}
	if _, err := run(8, infinite); !errors.Is(err, ErrDiverged) {
		t.Errorf("an infinite image: %v", err)
	}
}
