package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/models/data"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// piped is the job of tiny on some devices.
func piped(t testing.TB, devices, microbatches, batch int) *Job {
	t.Helper()
	s := tiny(batch)
	s.Devices, s.Microbatches, s.Kernels.Threads = fmt.Sprintf("cpu*%d", devices), microbatches, 1
	return opened(t, s)
}

// timed gives a job's chain times that do not depend on the machine.
func timed(j *Job) *chain.Chain {
	c := j.Work.Chain()
	for i := range c.Layers {
		l := &c.Layers[i]
		l.ForwardS, l.BackwardS = 1e-3*float64(1+i%3), 2e-3*float64(1+(i+1)%3)
	}
	return c
}

// request asks for a plan without limit.
func request(t testing.TB, strategy string, devices int) PipeRequest {
	t.Helper()
	s, err := planner.LookupPipeline(strategy)
	must(t, err)
	return PipeRequest{
		Strategy: s, Platform: pipeline.NewPlatform(devices, pipeline.NoLimit, 1e9),
		Options: pipeline.Options{Accounting: pipeline.Saved}, Limit: func(most int64) int64 { return most },
	}
}

// pipeRun returns a run of a strategy on some devices.
func pipeRun(t testing.TB, j *Job, strategy string, devices, steps int) *Run {
	t.Helper()
	q := request(t, strategy, devices)
	if q.Strategy.Type == pipeline.Flushing {
		q.Options.Microbatches = j.Microbatches
	}
	c := timed(j)
	p, err := j.PlanPipe(t.Context(), c, q)
	must(t, err)
	r := &Run{Job: j, Chain: c, Plan: p, Steps: steps, Rate: Rate{Peak: 0.05, Warmup: 3}}
	r.Whole()
	return r
}

func done(t testing.TB, r *Run) *Outcome {
	t.Helper()
	out, err := r.Do(t.Context())
	must(t, err)
	return out
}

// A plan with a flush gives the same bits on any number of devices; with one microbatch they are those of the step that
// knows nothing of pipelines. Losses and evaluations are the same, too.
func TestFlushIsTheSameOnAnyNumberOfDevices(t *testing.T) {
	t.Parallel()
	const steps = 5
	alone := planned(t, opened(t, tiny(8)), steps)
	alone.Rate, alone.EvalEvery = Rate{Peak: 0.05, Warmup: 3}, 2
	for _, microbatches := range []int{1, 4} {
		for _, strategy := range []string{"gpipe", "1f1b-flush"} {
			var want *Outcome
			if microbatches == 1 {
				want = done(t, alone)
			}
			for _, devices := range []int{1, 2, 4} {
				r := pipeRun(t, piped(t, devices, microbatches, 8), strategy, devices, steps)
				r.EvalEvery = 2
				got := done(t, r)
				if want == nil {
					want = got
				}
				if got.WeightsSHA256 != want.WeightsSHA256 || len(got.History.Steps) != steps || len(got.History.Evals) != 3 {
					t.Errorf("%s, %d microbatches on %d devices: weights %s, want %s; %d steps and %d evaluations", strategy, microbatches, devices,
						got.WeightsSHA256, want.WeightsSHA256, len(got.History.Steps), len(got.History.Evals))
				}
				wantHistory(t, got, want)
				wantPeaks(t, got)
			}
		}
	}
}

// wantPeaks compares the audited peaks of a pipeline's devices with the planned ones.
func wantPeaks(t *testing.T, out *Outcome) {
	t.Helper()
	if out.MeasuredPeakBytes != out.PredictedPeakBytes || out.PredictedPeakBytes == 0 {
		t.Errorf("a peak of %d bytes, planned %d", out.MeasuredPeakBytes, out.PredictedPeakBytes)
	}
	for _, d := range out.Pipe.Devices {
		if d.MeasuredPeakBytes != d.PeakBytes {
			t.Errorf("%s: a peak of %d bytes, planned %d", d.Name, d.MeasuredPeakBytes, d.PeakBytes)
		}
	}
}

// wantHistory compares what was computed in two runs.
func wantHistory(t *testing.T, got, want *Outcome) {
	t.Helper()
	for i, g := range got.History.Steps {
		if w := want.History.Steps[i]; g.Step != w.Step || g.Accuracy != w.Accuracy || g.Rate != w.Rate || g.Skipped != w.Skipped || fmt.Sprint(g.Loss, g.Norm) != fmt.Sprint(w.Loss, w.Norm) {
			t.Errorf("step %+v, want %+v", g, w)
		}
	}
	for i, g := range got.History.Evals {
		if w := want.History.Evals[i]; g.Done != w.Done || g.Loss != w.Loss || g.Correct != w.Correct || g.Samples != w.Samples {
			t.Errorf("evaluation %+v, want %+v", g, w)
		}
	}
}

// When an asynchronous run fails after some checkpoint and resumes from it, it ends as an undisturbed run with as many checkpoints. Any
// other plan can resume from such a checkpoint.
func TestAsynchronousRunsGoOn(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"1f1b*", "madpipe", "contiguous"} {
		run := func(steps int) *Run {
			r := pipeRun(t, piped(t, 3, 1, 8), strategy, 3, steps)
			r.EvalEvery, r.Saves = 7, Saves{Dir: checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 9), Every: 4}
			return r
		}
		want := done(t, run(18))
		r := run(18)
		unit := r.Plan.unit()
		var log bytes.Buffer
		full := errors.New("full")
		r.Record = func(rec Record) error {
			if rec.Step == 10 {
				return full
			}
			return appendLine(&log, rec)
		}
		r.Evaluated = func(e Evaluation) error { return appendLine(&log, e) }
		_, err := r.Do(t.Context())
		safe := (8 + unit - 1) / unit * unit
		if !errors.Is(err, full) || !strings.Contains(err.Error(), fmt.Sprintf("the checkpoint of step %d stands", safe)) {
			t.Fatalf("%s: %v", strategy, err)
		}
		resumeLatest(t, r, int64(safe))
		past, err := ReadHistory(&log, safe)
		must(t, err)
		r.Past, r.Record, r.Evaluated = *past, nil, nil
		got := done(t, r)
		if got.WeightsSHA256 != want.WeightsSHA256 || got.ResumedFrom != safe || len(got.History.Steps) != len(want.History.Steps) {
			t.Errorf("%s: weights %s from step %d, want %s", strategy, got.WeightsSHA256, got.ResumedFrom, want.WeightsSHA256)
		}
		wantHistory(t, got, want)
	}
}

// Ctrl-C lets the pipeline of an asynchronous run empty, and saves where it did. A run that goes on from there ends as one that was left
// alone and whose checkpoints come just then.
func TestAsynchronousRunsAreInterruptedWhereTheyEmpty(t *testing.T) {
	t.Parallel()
	const steps = 48
	early := 0
	for i, strategy := range []string{"1f1b*", "madpipe", "list", "1f1b*", "madpipe"} {
		run := func(every int) *Run {
			r := pipeRun(t, piped(t, 3, 1, 8), strategy, 3, steps)
			r.Saves = Saves{Dir: checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 9), Every: every}
			return r
		}
		r := run(0)
		ctx, cancel := context.WithCancel(t.Context())
		r.Record = func(rec Record) error {
			if rec.Step == steps/2+i {
				cancel()
			}
			return nil
		}
		_, err := r.Do(ctx)
		c, _, none := r.Saves.Dir.Latest()
		must(t, none)
		at := int(c.Step)
		must(t, c.Close())
		if want := fmt.Sprintf("after %d of %d steps; they are saved", at, r.Steps); !errors.Is(err, ErrInterrupted) || !strings.Contains(err.Error(), want) {
			t.Fatalf("%s: %v", strategy, err)
		}
		if at%r.Plan.unit() != 0 || at <= steps/2+i {
			t.Errorf("%s: interrupted in step %d, saved after %d", strategy, steps/2+i, at)
		}
		if at < r.Steps {
			early++
		}
		want := done(t, run(at))
		resumeLatest(t, r, int64(at))
		r.Record = nil
		if got := done(t, r); got.WeightsSHA256 != want.WeightsSHA256 || got.ResumedFrom != at {
			t.Errorf("%s: weights %s from step %d, want %s", strategy, got.WeightsSHA256, got.ResumedFrom, want.WeightsSHA256)
		}
	}
	if early == 0 {
		t.Error("no run ended early")
	}
}

// Interrupted before its first step, a run has nothing to save.
func TestAPipelineInterruptedAtOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, strategy := range []string{"1f1b*", "gpipe"} {
		r := pipeRun(t, piped(t, 2, 1, 8), strategy, 2, 6)
		if _, err := r.Do(ctx); !errors.Is(err, ErrInterrupted) || !strings.Contains(err.Error(), "after 0 of 6 steps; nothing is saved without --out") {
			t.Errorf("%s: %v", strategy, err)
		}
	}
}

// An update that takes several steps begins wherever the run resumes, though the plan before was another. A run that is cut once more ends
// the same, at the same learning rates.
func TestUpdatesBeginWhereARunGoesOn(t *testing.T) {
	t.Parallel()
	before := pipeRun(t, piped(t, 2, 1, 8), "gpipe", 2, 7)
	before.Rate = Rate{Peak: 0.05, Warmup: 30}
	before.Saves = Saves{Dir: checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 9), Every: 7}
	done(t, before)
	unit := 0
	run := func() *Run {
		r := pipeRun(t, piped(t, 3, 1, 8), "madpipe", 3, 1)
		r.Rate, r.Saves = before.Rate, before.Saves
		unit = r.Plan.unit()
		r.Steps = 6 + 4*unit
		c, _, err := r.Saves.Dir.Latest()
		must(t, err)
		t.Cleanup(func() { must(t, c.Close()) })
		_, err = r.Resume(c)
		must(t, err)
		if r.Whole(); r.Steps != 7+4*unit || unit < 2 || 7%unit == 0 {
			t.Fatalf("%d steps, of which an update takes %d", r.Steps, unit)
		}
		r.Saves = Saves{Dir: checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 9), Every: unit}
		return r
	}
	want := done(t, run())
	for i, s := range want.History.Steps {
		if first := want.History.Steps[i/unit*unit]; s.Step != 7+i || s.Rate != first.Rate || i >= unit && s.Rate <= want.History.Steps[i/unit*unit-1].Rate {
			t.Errorf("step %d: the learning rate is %v", s.Step, s.Rate)
		}
	}
	r, full := run(), errors.New("full")
	r.Record = func(rec Record) error {
		if rec.Step == 7+3*unit-1 {
			return full
		}
		return nil
	}
	if _, err := r.Do(t.Context()); !errors.Is(err, full) {
		t.Fatal(err)
	}
	resumeLatest(t, r, int64(7+2*unit))
	r.Record = nil
	got := done(t, r)
	if got.WeightsSHA256 != want.WeightsSHA256 || !slices.EqualFunc(got.History.Steps, want.History.Steps[2*unit:], func(a, b Record) bool { return a.Rate == b.Rate && a.Loss == b.Loss }) {
		t.Errorf("weights %s, want %s", got.WeightsSHA256, want.WeightsSHA256)
	}
	// A run that has ended is resumed to no end, also when fewer steps were asked for than its last update took.
	end := pipeRun(t, piped(t, 3, 1, 8), "madpipe", 3, 1)
	end.Rate, end.Saves, end.Steps = r.Rate, r.Saves, 6+4*unit
	resumeLatest(t, end, int64(7+4*unit))
	if end.Whole(); end.Steps != 7+4*unit {
		t.Errorf("%d steps", end.Steps)
	}
}

// A run goes on with another plan on another number of devices, and on one without a pipeline; with a flush it ends with the
// same bits.
func TestResumeOnOtherDevices(t *testing.T) {
	t.Parallel()
	const steps = 7
	want := done(t, pipeRun(t, piped(t, 2, 4, 8), "1f1b-flush", 2, steps))
	first := pipeRun(t, piped(t, 4, 4, 8), "1f1b-flush", 4, 3)
	first.Saves = Saves{Dir: checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 9), Every: 3}
	done(t, first)
	for _, devices := range []int{1, 3} {
		r := pipeRun(t, piped(t, devices, 4, 8), "1f1b-flush", devices, steps)
		r.Saves = first.Saves
		resumeLatest(t, r, 3)
		r.Saves = Saves{}
		if got := done(t, r); got.WeightsSHA256 != want.WeightsSHA256 || got.ResumedFrom != 3 {
			t.Errorf("%d devices: weights %s, want %s", devices, got.WeightsSHA256, want.WeightsSHA256)
		}
	}
	for name, r := range map[string]*Run{
		`microbatches was "4" and is "1" here`: planned(t, opened(t, tiny(8)), steps),
		`microbatches was "4" and is "2" here`: pipeRun(t, piped(t, 2, 2, 8), "gpipe", 2, steps),
		`weight_versions was "flush" and is`:   pipeRun(t, piped(t, 2, 1, 8), "1f1b*", 2, steps),
	} {
		c, _, err := first.Saves.Dir.Latest()
		must(t, err)
		r.Rate = first.Rate
		r.Job.Kernels.Threads = 1
		notes, err := r.Resume(c)
		must(t, err)
		if !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, name) }) {
			t.Errorf("notes %v, want %q", notes, name)
		}
		if got := done(t, r); got.ResumedFrom != 3 || got.Steps < steps {
			t.Errorf("%q: %+v", name, got.Summary)
		}
		must(t, c.Close())
	}
}

// Ctrl-C finishes the step of a plan with a flush and saves it.
func TestAFlushIsInterruptedBetweenSteps(t *testing.T) {
	t.Parallel()
	want := done(t, pipeRun(t, piped(t, 2, 4, 8), "gpipe", 2, 6))
	r := pipeRun(t, piped(t, 2, 4, 8), "gpipe", 2, 6)
	r.Saves.Dir = checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 3)
	ctx, cancel := context.WithCancel(t.Context())
	r.Record = func(rec Record) error {
		if rec.Step == 3 {
			cancel()
		}
		return nil
	}
	if _, err := r.Do(ctx); !errors.Is(err, ErrInterrupted) || !strings.Contains(err.Error(), "after 4 of 6 steps; they are saved") {
		t.Fatal(err)
	}
	resumeLatest(t, r, 4)
	r.Record = nil
	if got := done(t, r); got.WeightsSHA256 != want.WeightsSHA256 {
		t.Errorf("weights %s, want %s", got.WeightsSHA256, want.WeightsSHA256)
	}
}

// The limit is kept to the byte, whatever the strategy's own account of memory; one that is too small is refused with one that
// works.
func TestLimitsOfPipelines(t *testing.T) {
	t.Parallel()
	kept := 0
	for _, strategy := range []string{"gpipe", "1f1b-flush", "1f1b*", "contiguous", "madpipe", "loadline", "joint", "joint-flush"} {
		j := piped(t, 3, 1, 8)
		q := request(t, strategy, 3)
		if q.Strategy.Type == pipeline.Flushing {
			j = piped(t, 3, 4, 8)
			q.Options.Microbatches = 4
		}
		var most int64
		for _, share := range []float64{1, 0.9, 0.8, 0.7, 0.5, 0} {
			q.Limit = func(b int64) int64 { most = b; return int64(share * float64(b)) }
			p, err := j.PlanPipe(t.Context(), timed(j), q)
			var small *executor.TooSmallError
			switch {
			case errors.As(err, &small):
				if small.Smallest <= small.Limit || share == 1 {
					t.Errorf("%s: %v", strategy, err)
				}
				q.Limit = func(int64) int64 { return small.Smallest }
				if p, err = j.PlanPipe(t.Context(), timed(j), q); err != nil {
					t.Fatalf("%s at its smallest: %v", strategy, err)
				}
			case err != nil:
				t.Fatalf("%s at %v: %v", strategy, share, err)
			default:
				kept++
			}
			if got, _ := p.extent(); got > p.Limit || got > most {
				t.Errorf("%s at %v: %d bytes of %d", strategy, share, got, p.Limit)
			}
		}
		q.Limit = func(int64) int64 { return 0 }
		if _, err := j.PlanPipe(t.Context(), timed(j), q); !errors.As(err, new(*executor.TooSmallError)) {
			t.Errorf("%s without memory: %v", strategy, err)
		}
	}
	if kept < 10 {
		t.Errorf("%d plans within a limit", kept)
	}
}

// In arenas of any size, a strategy that chooses among plans has a plan wherever one of its parts has one. That plan is no slower and has
// the strategy's own name. The smallest limit that the strategy reports is the smallest of its parts' limits.
func TestPlansAmongOthersInArenas(t *testing.T) {
	t.Parallel()
	fewer := 0
	for _, name := range []string{"joint", "joint-flush"} {
		j := piped(t, 4, 1, 8)
		q := request(t, name, 4)
		if q.Strategy.Type == pipeline.Flushing {
			j, q.Options.Microbatches = piped(t, 4, 4, 8), 4
		}
		all := q.Strategy
		plan := func(s pipeline.Strategy, limit int64) (float64, int64, bool) {
			q.Strategy, q.Limit = s, func(int64) int64 { return limit }
			p, err := j.PlanPipe(t.Context(), timed(j), q)
			if small, ok := errors.AsType[*executor.TooSmallError](err); ok {
				return math.Inf(1), small.Smallest, small.Strategy == s.Name
			}
			must(t, err)
			return p.PredictedSeconds(), 0, p.Strategy == s.Name
		}
		_, least, _ := plan(all, 0)
		for _, limit := range []int64{0, least, least * 9 / 8, least * 5 / 4, least * 3 / 2, least * 2, least * 3} {
			seconds, smallest, named := plan(all, limit)
			if !named {
				t.Errorf("%s in %d bytes has another name", name, limit)
			}
			for _, part := range all.Parts {
				other, small, _ := plan(part, limit)
				if other < seconds*(1-1e-9) || small != 0 && small < smallest {
					t.Errorf("%s in %d bytes: %v s, smallest %d; its part %s has %v, %d", name, limit, seconds, smallest, part.Name, other, small)
				}
				if math.IsInf(other, 1) && !math.IsInf(seconds, 1) {
					fewer++
				}
			}
		}
	}
	if fewer < 3 {
		t.Errorf("parts had no plan where there is one %d times", fewer)
	}
}

// A strategy is asked once for each memory: what it has said once it says again, and it may take long.
func TestAPlannerIsAskedOnceForEachMemory(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"1f1b-flush", "1f1b-recompute"} {
		j := piped(t, 2, 4, 8)
		q := request(t, strategy, 2)
		q.Options.Microbatches = 4
		solve, asked, several := q.Strategy.Solve, map[int64]int{}, 0
		q.Strategy.Solve = func(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
			asked[r.Platform.Memory[0]]++
			return solve(ctx, r)
		}
		for _, share := range []float64{1, 0.9, 0.7, 0.5, 0.3, 0} {
			clear(asked)
			q.Limit = func(b int64) int64 { return int64(share * float64(b)) }
			if _, err := j.PlanPipe(t.Context(), timed(j), q); err != nil && !errors.As(err, new(*executor.TooSmallError)) {
				t.Fatal(err)
			}
			for memory, n := range asked {
				if n > 1 {
					t.Errorf("%s within %v: asked %d times for %d bytes", strategy, share, n, memory)
				}
			}
			if len(asked) > 2 {
				several++
			}
		}
		if several == 0 {
			t.Errorf("%s: never asked for several memories", strategy)
		}
	}
}

// A loss that is not finite names the task; the checkpoint before it stands and is finite.
func TestAPipelineThatDiverges(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"gpipe", "madpipe"} {
		parts := map[string]int{"gpipe": 4, "madpipe": 1}[strategy]
		j := piped(t, 2, parts, 8)
		r := pipeRun(t, j, strategy, 2, 40)
		unit := r.Plan.unit()
		bad := int64(8 * (5*unit + 1))
		var err error
		j.train, err = data.NewBatcher(endless{spoilt{j.Set, bad, infinite}}, data.Train, j.Config.Batch, j.Seed)
		must(t, err)
		r.Saves = Saves{Dir: checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 9), Every: unit}
		_, err = r.Do(t.Context())
		var task *pipe.TaskError
		last := fmt.Sprintf("F%d", len(r.Plan.Stages)-1)
		if !errors.Is(err, ErrDiverged) || !errors.As(err, &task) || task.Task != last || !strings.Contains(err.Error(), "stands") {
			t.Errorf("%s: %v", strategy, err)
		}
		c, bads, err := r.Saves.Dir.Latest()
		must(t, err)
		if len(bads) > 0 || int(c.Step) < 4*unit || int(c.Step) > 6*unit {
			t.Errorf("%s: the last checkpoint is of step %d; bad are %v", strategy, c.Step, bads)
		}
		must(t, c.Close())
	}
}

// Weights that are no longer finite are not saved, although the loss before them was.
func TestAPipelineSavesWhatIsFinite(t *testing.T) {
	t.Parallel()
	r := pipeRun(t, piped(t, 2, 4, 8), "gpipe", 2, 9)
	r.Rate = Rate{Peak: math.Inf(1)}
	r.Saves = Saves{Dir: checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 9), Every: 1}
	refused := 0
	r.Saved = func(_ int, err error) {
		if errors.Is(err, ErrDiverged) {
			refused++
		}
	}
	_, err := r.Do(t.Context())
	_, _, none := r.Saves.Dir.Latest()
	if !errors.Is(err, ErrDiverged) || refused != 1 || !errors.Is(none, checkpoint.ErrNone) {
		t.Errorf("%v; %d checkpoints refused; %v", err, refused, none)
	}
}

// A sample that cannot be read stops all devices, and the run goes on from the checkpoint when it can be.
func TestABadSampleInAPipeline(t *testing.T) {
	t.Parallel()
	j := piped(t, 2, 4, 8)
	r := pipeRun(t, j, "gpipe", 2, 8)
	spoil(t, j, 0, func([]float32) error { return nil })
	want := done(t, r)
	broken := errors.New("broken.jpg")
	spoil(t, j, 8*5+3, func([]float32) error { return broken })
	r.Saves = Saves{Dir: checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 3), Every: 2}
	var task *pipe.TaskError
	if _, err := r.Do(t.Context()); !errors.Is(err, broken) || !errors.As(err, &task) || task.Device != 0 || task.Task != "F0" || task.Minibatch != 4*5+1 {
		t.Errorf("%v", err)
	}
	spoil(t, j, 0, func([]float32) error { return nil })
	resumeLatest(t, r, 4)
	if got := done(t, r); got.WeightsSHA256 != want.WeightsSHA256 {
		t.Errorf("weights %s, want %s", got.WeightsSHA256, want.WeightsSHA256)
	}
}

// An error of a run's function ends the run.
func TestARecordThatFails(t *testing.T) {
	t.Parallel()
	full := errors.New("full")
	for _, strategy := range []string{"gpipe", "1f1b*"} {
		r := pipeRun(t, piped(t, 2, 1, 8), strategy, 2, 30)
		r.Record = func(rec Record) error {
			if rec.Step == 5 {
				return full
			}
			return nil
		}
		if _, err := r.Do(t.Context()); !errors.Is(err, full) {
			t.Errorf("%s: %v", strategy, err)
		}
	}
}

// The two ends of a pipeline ask in any order for what the loader gives in its own.
func TestFeed(t *testing.T) {
	t.Parallel()
	j := piped(t, 2, 2, 4)
	f, err := j.newFeed(t.Context(), j.Work, 3)
	must(t, err)
	defer f.from.Close()
	s := j.Set.Shape()
	pixels := j.Config.Batch * s[0] * s[1] * s[2]
	asked := 0
	for _, ask := range []struct {
		batch  int
		labels bool
	}{{4, false}, {3, true}, {5, true}, {3, false}, {4, true}, {5, false}, {7, true}, {6, false}, {6, true}, {7, false}} {
		wantImages, wantLabels := make([]float32, pixels), make([]int32, j.Config.Batch)
		_, err := j.train.Fill(int64(ask.batch), wantImages, wantLabels)
		must(t, err)
		images, labels := make([]float32, pixels), make([]int32, j.Config.Batch)
		if ask.labels {
			must(t, f.Labels(ask.batch, labels))
		} else {
			must(t, f.Images(ask.batch, images))
		}
		if ask.labels && !slices.Equal(labels, wantLabels) || !ask.labels && !slices.Equal(images, wantImages) {
			t.Errorf("batch %d, labels %v: another batch's", ask.batch, ask.labels)
		}
		asked++
	}
	if asked != 10 || len(f.held) != 0 || len(f.spare) > 3 {
		t.Errorf("%d batches are held, %d buffers", len(f.held), len(f.spare))
	}
}

func TestPipelinesThatCannotBe(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Spec){
		"--batch is 6, of 4 microbatches": func(s *Spec) { s.Config.Batch, s.Microbatches = 6, 4 },
		"siamese has branches":            func(s *Spec) { s.Model, s.Microbatches = "siamese", 2 },
	} {
		s := tiny(4)
		s.Devices = "cpu*2"
		change(&s)
		if _, err := Open(s); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for want, change := range map[string]func(*Run){
		"--clip-norm 3 needs all stages' gradients before any update, and 1f1b* updates each on its own": func(r *Run) { r.MaxNorm = 3 },
		"--on-nan skip":  func(r *Run) { r.SkipNotFinite = true },
		"--host-memory ": func(r *Run) { r.HostLimit = 1 << 40 },
	} {
		r := pipeRun(t, piped(t, 2, 1, 4), "1f1b*", 2, 2)
		change(r)
		if _, err := r.Do(t.Context()); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Where the platform says how fast its devices talk to their host, a plan that must do with little memory offloads, and is faster
// than the one that must not. The summary counts the host's memory, and a run that goes on finds the same plan.
func TestPipelinesOffload(t *testing.T) {
	t.Parallel()
	const devices, steps = 3, 6
	j := piped(t, devices, 1, 16)
	c := timed(j)
	run := func(host float64, share float64) *Run {
		q := request(t, "loadline", devices)
		q.Options.Versions = pipeline.Stash
		q.Platform.Host = host
		q.Limit = func(most int64) int64 { return int64(share * float64(most)) }
		p, err := j.PlanPipe(t.Context(), c, q)
		must(t, err)
		return &Run{Job: j, Chain: c, Plan: p, Steps: steps, Rate: Rate{Peak: 0.05, Warmup: 3}}
	}
	found := false
	for share := 0.9; share > 0.4 && !found; share -= 0.1 {
		with, without := run(1e8, share), run(0, share)
		if with.Plan.PredictedSeconds() > without.Plan.PredictedSeconds() {
			t.Errorf("at %v of the memory a step takes %v s, without offloads %v s", share, with.Plan.PredictedSeconds(), without.Plan.PredictedSeconds())
		}
		if found = with.Plan.PredictedSeconds() < without.Plan.PredictedSeconds(); !found {
			continue
		}
		got := done(t, with)
		offloaded := int64(0)
		for _, d := range got.Pipe.Devices {
			offloaded += d.OffloadedBytes
		}
		if offloaded == 0 || got.HostBytes <= offloaded {
			t.Errorf("%d bytes of host memory, %d of them for what is offloaded", got.HostBytes, offloaded)
		}
		path := filepath.Join(t.TempDir(), "plan.json")
		must(t, with.Plan.Write(path))
		again, err := readPipe(j, path, c)
		must(t, err)
		if !reflect.DeepEqual(again.Needs, with.Plan.Needs) {
			t.Errorf("the plan that was written needs %+v, it was %+v", again.Needs, with.Plan.Needs)
		}
	}
	if !found {
		t.Error("no limit makes a plan offload")
	}
}

// A run of a pipeline tells when its tasks ran. With a flush, it has the tasks and updates of one step, and they took the measured time.
// Without a flush, it has the tasks of the last minibatches, up to a bound.
func TestARunTellsWhenItsTasksRan(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		strategy     string
		microbatches int
		steps        int
	}{{"1f1b-flush", 4, 5}, {"gpipe", 4, 20}, {"1f1b*", 1, 90}} {
		r := pipeRun(t, piped(t, 2, x.microbatches, 8), x.strategy, 2, x.steps)
		out := done(t, r)
		if i, d := out.Idle, out.Drift; i == nil || d == nil || i.Share > 1 || i.Bubble < 0 || i.Bubble > i.Share || i.Host < 0 || !(d.PredictedS > 0) {
			t.Errorf("%s: idle %+v, drift %+v", x.strategy, i, d)
		}
		counts := map[pipeline.Kind]int{}
		last := 0
		for _, task := range out.Tasks {
			counts[task.Kind]++
			last = max(last, task.Minibatch)
			if task.End < task.Start || task.Start < 0 {
				t.Errorf("%s: %+v", x.strategy, task)
			}
		}
		stages := len(r.Plan.Stages)
		if r.Plan.IsFlush() {
			if counts[pipeline.F] != 4*stages || counts[pipeline.B] != 4*stages || counts[pipeline.Update] != stages || out.MeasuredS != lastEnd(out.Tasks) || out.MeasuredS <= 0 {
				t.Errorf("%s: tasks %v of %d stages, a step of %v, the last ends at %v", x.strategy, counts, stages, out.MeasuredS, lastEnd(out.Tasks))
			}
			continue
		}
		if most := r.Plan.timedPeriods() * 2 * len(r.Plan.Tasks) * 2; last != r.Steps-1 || counts[pipeline.F] < 8*stages || len(out.Tasks) > most || counts[pipeline.F] >= r.Steps*stages {
			t.Errorf("%s: tasks %v up to minibatch %d, at most %d are kept", x.strategy, counts, last, most)
		}
	}
}

// readPipe returns the pipeline of a plan file.
func readPipe(j *Job, path string, c *chain.Chain) (*JobPlan, error) {
	plan, err := pipeline.Read(path)
	if err != nil {
		return nil, err
	}
	return j.PipeOf(path, plan, c, Corrections{})
}

// Predicted steps count updates once: behind the tasks of a plan with a flush, and among the ops of a cyclic plan.
func TestPredictedStepsCountUpdates(t *testing.T) {
	t.Parallel()
	for strategy, devices := range map[string]int{"1f1b-flush": 2, "layer-window": 1} {
		j := piped(t, devices, 4, 8)
		c := timed(j)
		for i := range c.Layers {
			c.Layers[i].Update.DeviceS, c.Layers[i].Update.NormS = 0.003, 0.001
		}
		q := request(t, strategy, devices)
		q.Options.Microbatches = j.Microbatches
		p, err := j.PlanPipe(t.Context(), c, q)
		must(t, err)
		want := p.Predicted.Makespan
		if !p.IsCycle() {
			most := 0
			for _, s := range p.Stages {
				most = max(most, s.Last-s.First+1)
			}
			want += 0.004 * float64(most)
		}
		if got := p.PredictedSeconds(); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %g s, want %g", strategy, got, want)
		}
		shared := *p.Costs.Platform
		shared.OpsAtOnce = 1
		if got, all := pipeline.UpdateSeconds(c, &shared, p.Plan), 0.004*float64(c.Len()); !p.IsCycle() && math.Abs(got-all) > 1e-9 {
			t.Errorf("%s: updates of %g s on one processor, want %g", strategy, got, all)
		}
	}
}
