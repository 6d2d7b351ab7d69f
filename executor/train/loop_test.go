package train

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint"
	"plimsoll/internal/folder"
	"plimsoll/models/data"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// spoilt is a data set in which something happens when the training samples from a number on are asked for.
type spoilt struct {
	data.Dataset
	from int64
	fill func(dst []float32) error
}

func (s spoilt) Fill(split data.Split, index int64, dst []float32) (int, error) {
	label, err := s.Dataset.Fill(split, index, dst)
	if err == nil && split == data.Train && index >= s.from {
		err = s.fill(dst)
	}
	return label, err
}

// spoil makes the samples of a job's training batches from a number on bad, in their stored order.
func spoil(t testing.TB, j *Job, from int64, fill func(dst []float32) error) {
	t.Helper()
	var err error
	j.train, err = data.NewBatcher(endless{spoilt{j.Set, from, fill}}, data.Train, j.Config.Batch, j.Seed)
	must(t, err)
}

// endless serves training samples in their stored order.
type endless struct{ data.Dataset }

func (endless) TrainLen() int64 { return 0 }

func infinite(dst []float32) error {
	dst[0] = float32(math.Inf(1))
	return nil
}

// mlp is a model without BatchNorm, whose statistics move with every forward.
func mlp(t testing.TB) *Job {
	t.Helper()
	s := tiny(4)
	s.Model = "mlp"
	return opened(t, s)
}

// A batch that is not finite names the layer where it shows first, ends the run, and saves nothing.
func TestABatchThatIsNotFiniteStopsTheRun(t *testing.T) {
	t.Parallel()
	j := mlp(t)
	r := planned(t, j, 12)
	spoil(t, j, 4*7, infinite)
	r.Saves = Saves{Dir: checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 9), Every: 5, Final: folder.File{Dir: folder.At(t.TempDir()), Name: "final"}}
	var steps []int
	r.Record = func(rec Record) error { steps = append(steps, rec.Step); return nil }
	_, err := r.Do(t.Context())
	first := j.Work.Model.Layers[0].Name
	if !errors.Is(err, ErrDiverged) || !strings.Contains(err.Error(), "step 7") || !strings.Contains(err.Error(), `"`+first+`"`) {
		t.Errorf("%v, want step 7 and layer %q", err, first)
	}
	saved, err := r.Saves.Dir.Steps()
	if err != nil || len(saved) != 1 || saved[0] != 5 || len(steps) != 7 {
		t.Errorf("checkpoints of %v, records of %v, %v", saved, steps, err)
	}
	if _, err := os.Stat(r.Saves.Final.Path()); err == nil {
		t.Error("there are final weights")
	}
}

// With SkipNotFinite a bad step is counted, and the weights are those of a run without it.
// Only this test finds a summary that takes its loss from a skipped step.
func TestSkippedStepsChangeNoWeights(t *testing.T) {
	t.Parallel()
	j := mlp(t)
	want, err := planned(t, j, 7).Do(t.Context())
	must(t, err)
	good := j.train
	spoil(t, j, 0, func([]float32) error { return nil })
	stored, err := planned(t, j, 7).Do(t.Context())
	must(t, err)
	j.train = good
	if stored.WeightsSHA256 == want.WeightsSHA256 {
		t.Error("the order of the samples does not matter")
	}
	spoil(t, j, 4*7, infinite)
	r := planned(t, j, 12)
	r.SkipNotFinite = true
	out, err := r.Do(t.Context())
	must(t, err)
	if out.WeightsSHA256 != stored.WeightsSHA256 || out.Skipped != 5 || len(out.History.Steps) != 12 {
		t.Errorf("weights %s after %d skipped steps, want %s", out.WeightsSHA256, out.Skipped, stored.WeightsSHA256)
	}
	for i, rec := range out.History.Steps {
		if rec.Skipped != (i >= 7) || rec.Skipped == finite(float64(rec.Norm)) {
			t.Errorf("%+v", rec)
		}
	}
	if out.Loss != stored.Loss || !finite(float64(out.TestLoss)) {
		t.Errorf("loss %v, want that of the last good step, %v", out.Loss, stored.Loss)
	}
}

// A sample that cannot be read ends the run with what was trained saved, and the run goes on when it can.
func TestABadSampleSavesWhatWasTrained(t *testing.T) {
	t.Parallel()
	j := opened(t, tiny(4))
	r := planned(t, j, 10)
	spoil(t, j, 0, func([]float32) error { return nil })
	want, err := r.Do(t.Context())
	must(t, err)
	broken := errors.New("broken.jpg")
	spoil(t, j, 4*6, func([]float32) error { return broken })
	r.Saves.Dir = checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 3)
	if _, err := r.Do(t.Context()); !errors.Is(err, broken) || !strings.Contains(err.Error(), "step 6") {
		t.Errorf("%v", err)
	}
	spoil(t, j, 0, func([]float32) error { return nil })
	resumeLatest(t, r, 6)
	got, err := r.Do(t.Context())
	must(t, err)
	if got.WeightsSHA256 != want.WeightsSHA256 || got.ResumedFrom != 6 {
		t.Errorf("weights %s from step %d, want %s", got.WeightsSHA256, got.ResumedFrom, want.WeightsSHA256)
	}
}

func resumeLatest(t testing.TB, r *Run, step int64) {
	t.Helper()
	c, bad, err := r.Saves.Dir.Latest()
	must(t, err)
	if len(bad) > 0 || c.Step != step {
		t.Fatalf("the newest checkpoint is of step %d, want %d; bad are %v", c.Step, step, bad)
	}
	notes, err := r.Resume(c)
	must(t, err)
	if len(notes) > 0 {
		t.Errorf("notes: %v", notes)
	}
	t.Cleanup(func() { must(t, c.Close()) })
}

// A run that is interrupted at any step, even in its evaluations, goes on to the same weights and evaluations.
// If Ctrl-C comes between a step and its evaluation, only this test finds that evaluation lost or repeated.
func TestInterruptedAnywhere(t *testing.T) {
	t.Parallel()
	j := opened(t, tiny(8))
	r := planned(t, j, 9)
	r.EvalEvery, r.MaxNorm = 3, 1
	want, err := r.Do(t.Context())
	must(t, err)
	if len(want.History.Evals) != 3 {
		t.Fatalf("%d evaluations", len(want.History.Evals))
	}
	interrupted := 0
	for at := range 9 {
		r := planned(t, j, 9)
		r.EvalEvery, r.MaxNorm = 3, 1
		r.Saves.Dir = checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 3)
		ctx, cancel := context.WithCancel(t.Context())
		var log bytes.Buffer
		r.Record = func(rec Record) error {
			if rec.Step == at {
				cancel() // before the evaluation that may be due
			}
			return appendLine(&log, rec)
		}
		r.Evaluated = func(e Evaluation) error { return appendLine(&log, e) }
		if _, err := r.Do(ctx); !errors.Is(err, ErrInterrupted) || !strings.Contains(err.Error(), "--resume") {
			t.Fatalf("step %d: %v", at, err)
		}
		resumeLatest(t, r, int64(at+1))
		past, err := ReadHistory(&log, at+1)
		must(t, err)
		r.Past = *past
		got, err := r.Do(t.Context())
		must(t, err)
		same := got.WeightsSHA256 == want.WeightsSHA256 && len(got.History.Steps) == 9 && len(got.History.Evals) == 3
		for i := range got.History.Evals {
			a, b := got.History.Evals[i], want.History.Evals[i]
			same = same && a.Done == b.Done && a.Loss == b.Loss && a.Correct == b.Correct
		}
		if !same || got.Loss != want.Loss || got.Accuracy != want.Accuracy {
			t.Errorf("interrupted at step %d: %+v, want %+v", at, got.Summary, want.Summary)
		}
		interrupted++
	}
	if interrupted != 9 {
		t.Errorf("%d runs", interrupted)
	}
}

func appendLine(log *bytes.Buffer, entry any) error {
	line, err := Line(entry)
	log.Write(line)
	return err
}

// A folder that takes no checkpoint for a while costs those checkpoints; one that takes none at the end is said there.
func TestFailedCheckpoints(t *testing.T) {
	t.Parallel()
	r := planned(t, opened(t, tiny(4)), 8)
	path := filepath.Join(t.TempDir(), "run")
	r.Saves = Saves{Dir: checkpoint.NewDir(filepath.Join(path, "checkpoints"), 3), Every: 2}
	must(t, os.WriteFile(path, nil, 0o666)) // a file is in the way
	r.Record = func(rec Record) error {
		if rec.Step == 4 {
			return os.Remove(path)
		}
		return nil
	}
	failed := map[int]bool{}
	r.Saved = func(step int, err error) { failed[step] = err != nil }
	out, err := r.Do(t.Context())
	must(t, err)
	if out.Checkpoints != 2 || out.CheckpointsFailed != 2 || out.Unsaved != nil || !failed[2] || !failed[4] || failed[6] || failed[8] {
		t.Errorf("%d saved, %d failed: %v; %v", out.Checkpoints, out.CheckpointsFailed, failed, out.Unsaved)
	}
	must(t, os.RemoveAll(path))
	r.Record = func(rec Record) error {
		if rec.Step == 7 {
			return errors.Join(os.RemoveAll(path), os.WriteFile(path, nil, 0o666))
		}
		return nil
	}
	r.Saves.Final = SavesTo(path, 3, 2).Final
	out, err = r.Do(t.Context())
	must(t, err)
	var save *checkpoint.SaveError
	if out.Checkpoints != 3 || out.CheckpointsFailed != 1 || !errors.As(out.Unsaved, &save) || !strings.Contains(out.Unsaved.Error(), "trained weights") {
		t.Errorf("%d saved, %d failed; %v", out.Checkpoints, out.CheckpointsFailed, out.Unsaved)
	}
}

// A plan with transfers ends at the weights of one without, also when it is interrupted: what a checkpoint keeps never
// leaves the device's static memory.
// Only this test finds a checkpoint that misses bytes because a transfer has moved them to the host.
func TestTransfersTrainToTheSameWeights(t *testing.T) {
	t.Parallel()
	spec := tiny(8)
	spec.Open.Bandwidth = 100e6
	j := opened(t, spec)
	want, err := planned(t, j, 6).Do(t.Context())
	must(t, err)
	run := func() *Run {
		r := planned(t, j, 6)
		n := r.Chain.Len()
		seq := slices.Insert(j.Work.StoreAll(), n+1, schedule.Op{Kind: schedule.Prefetch, Layer: 2})
		seq = slices.Insert(seq, 2, schedule.Op{Kind: schedule.Offload, Layer: 2})
		p, err := pipeline.PlanSequence(r.Chain, "by hand", seq, schedule.Limits{Memory: schedule.NoLimit, Link: executor.LinkOf(r.Chain)})
		must(t, err)
		r.Plan = j.SequenceOf(r.Chain, p, r.Plan.Limit)
		return r
	}
	r := run()
	got, err := r.Do(t.Context())
	must(t, err)
	if got.WeightsSHA256 != want.WeightsSHA256 || got.MeasuredPeakBytes != got.PredictedPeakBytes {
		t.Errorf("weights %s, peak %d of %d predicted; without transfers %s", got.WeightsSHA256, got.MeasuredPeakBytes, got.PredictedPeakBytes, want.WeightsSHA256)
	}
	if got.CopiesBytes != r.Chain.Saved(1) || len(got.Measured.Intervals) != len(r.Plan.Sequence()) {
		t.Errorf("%d bytes on the host, %d intervals", got.CopiesBytes, len(got.Measured.Intervals))
	}
	r = run()
	r.Saves.Dir = checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 3)
	ctx, cancel := context.WithCancel(t.Context())
	r.Record = func(rec Record) error {
		if rec.Step == 2 {
			cancel()
		}
		return nil
	}
	if _, err := r.Do(ctx); !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	resumeLatest(t, r, 3)
	r.Record = nil
	if got, err = r.Do(t.Context()); err != nil || got.WeightsSHA256 != want.WeightsSHA256 || got.ResumedFrom != 3 {
		t.Errorf("resumed: %v, %+v", err, got)
	}
	r.HostLimit = 1
	if _, err := r.Do(t.Context()); !errors.As(err, new(*executor.HostLimitError)) {
		t.Errorf("with one byte of host memory: %v", err)
	}
}
