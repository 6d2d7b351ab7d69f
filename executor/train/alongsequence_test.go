package train

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// A run along a sequence trains the weights of store-all, whatever it recomputes and offloads. Evaluations and every record are the same;
// the peak and the memory of each op are as predicted. The run tells how long each op took, where a step's time went, and how far the
// machine was from its profile.
func TestRunsAlongSequencesTrainAsStoreAll(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name   string
		parts  int
		model  string
		staged bool
	}{
		{"rotor-exact", 3, "tiny", false}, {"offload-greedy", 1, "tiny", false}, {"pofo", 2, "tiny", false},
		{"multi-empty", 0, "siamese", false}, {"multi-empty", 0, "siamese", true}, {"rotor-exact", 3, "tiny", true}, {"offload-greedy", 1, "tiny", true},
	} {
		s := tiny(2)
		s.Model, s.Kernels.Threads = x.model, 1 // how far scratch is written depends on which thread of several takes what
		if x.staged {
			s.Data = pictures(t)
		}
		run := func(name string) (*Run, *Outcome) {
			r := parted(t, s, x.parts, name, name == x.name)
			if x.staged && name == x.name {
				limit := r.Plan.Limit + r.Job.StagedBytes()
				r.Plan = r.Job.SequenceOf(r.Chain, executor.Staged(r.Job.staged().Work, r.Chain, r.Plan.Plan, limit), limit)
			}
			r.MaxNorm = 0.5
			r.Saves = Saves{Dir: checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 9), Every: 2}
			return r, done(t, r)
		}
		_, want := run(map[bool]string{true: "multi-empty", false: "store-all"}[x.model == "siamese"])
		r, got := run(x.name)
		if got.WeightsSHA256 != want.WeightsSHA256 || got.TestLoss != want.TestLoss || got.Checkpoints != want.Checkpoints || got.Checkpoints != 2 {
			t.Errorf("%s: %+v, want %+v", x.name, got.Summary, want.Summary)
		}
		if got.MeasuredPeakBytes != r.Plan.PredictedPeak() || got.ExtentBytes > r.Plan.Limit || (got.StagedBytes > 0) != x.staged {
			t.Errorf("%s: %+v, predicted %d", x.name, got.Summary, r.Plan.PredictedPeak())
		}
		if live := slices.Max(got.Measured.Live); len(got.Measured.Live) != len(r.Plan.Sequence()) || live != got.MeasuredPeakBytes {
			t.Errorf("%s: live bytes %v, the peak is %d", x.name, got.Measured.Live, got.MeasuredPeakBytes)
		}
		for i, rec := range got.History.Steps {
			own := want.History.Steps[i]
			if rec.Step != own.Step || rec.Loss != own.Loss || rec.Norm != own.Norm || rec.Rate != own.Rate || math.Abs(float64(rec.Accuracy-own.Accuracy)) > 1e-12 {
				t.Errorf("%s: %+v, want %+v", x.name, rec, own)
			}
			if !(rec.UpdateS > 0 && rec.SequenceS > rec.UpdateS/100 && rec.Seconds >= rec.SequenceS+rec.UpdateS) {
				t.Errorf("%s: times of %+v", x.name, rec)
			}
		}
		if len(got.Measured.Intervals) != len(r.Plan.Sequence()) || got.Pipe != nil || got.Drift == nil || got.Drift.Ops == 0 || got.Drift.Interval[0] > got.Drift.Interval[1] {
			t.Errorf("%s: %d intervals, drift %+v, %+v", x.name, len(got.Measured.Intervals), got.Drift, got.Pipe)
		}
		if i := got.Idle; !(i.Share > 0 && i.Share < 1 && i.Host >= 0 && i.Batch > 0) {
			t.Errorf("%s: idle %+v", x.name, i)
		}
	}
}

// The times of a step's part follow from the times at which its tasks and ops ran.
func TestPartsOfAStep(t *testing.T) {
	t.Parallel()
	seq := schedule.Sequence{{Kind: schedule.ForwardAll, Layer: 1}, {Kind: schedule.Offload, Layer: 1}, {Kind: schedule.Backward, Layer: 1}}
	var ran []pipe.Timing
	for k, at := range []float64{1, 11} {
		ran = append(ran,
			pipe.Timing{Kind: pipeline.F, Op: pipe.TheBatch, Minibatch: k, Start: at - 0.5, End: at - 0.25},
			pipe.Timing{Kind: pipeline.F, Minibatch: k, Start: at, End: at + 2},
			pipe.Timing{Kind: pipeline.F, Op: 1, Minibatch: k, Start: at, End: at + 2},
			pipe.Timing{Kind: pipeline.B, Op: 2, Minibatch: k, Start: at + 2, End: at + 5},
			pipe.Timing{Kind: pipeline.B, Op: 3, Minibatch: k, Start: at + 4, End: at + 7},
			pipe.Timing{Kind: pipeline.B, Minibatch: k, Start: at + 2, End: at + 7},
		)
	}
	ran = append(ran, pipe.Timing{Kind: pipeline.Update, Minibatch: 1, Start: 18, End: 18.5})
	want := executor.Times{Upload: 0.5, Sequence: 7, Busy: 5}
	for k, x := range pipe.PartTimes(ran, seq, 2) {
		if k == 1 {
			want.Update, want.Busy = 0.5, 5.5
		}
		if x.Upload != want.Upload || x.Sequence != want.Sequence || x.Busy != want.Busy || x.Update != want.Update {
			t.Errorf("part %d: %+v, want %+v", k, x, want)
		}
		if !slices.Equal(x.Intervals, []executor.Interval{{Start: 0, End: 2}, {Start: 2, End: 5}, {Start: 4, End: 7}}) {
			t.Errorf("part %d: %+v", k, x.Intervals)
		}
	}
}
