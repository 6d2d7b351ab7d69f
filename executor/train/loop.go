package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint"
	"plimsoll/internal/atomicfile"
	"plimsoll/internal/folder"
	"plimsoll/internal/units"
	"plimsoll/models"
	"plimsoll/models/data"
)

// loop is a run while it runs.
//
// Invariants: weights, optimizer state and history are those after step steps, whenever a method returns; a
// checkpoint is saved between steps only, before the evaluation that is due.
type loop struct {
	*Run
	engine  *pipelineEngine
	out     *Outcome
	step    int // steps done, which is the number of the next one
	saved   int // steps of the latest checkpoint of this run, -1 before the first
	failure error
	room    *atomicfile.Room  // for the trained weights
	beside  map[string][]byte // files that are saved with them

	recent       executor.Recent
	ran          int // steps
	busy, waited time.Duration
}

// run trains to the last step and evaluates.
func (l *loop) run(ctx context.Context) error {
	if err := l.reserve(); err != nil {
		return err
	}
	defer func() { _ = l.room.Free() }() // a run that ends early is told why
	for {
		if err := l.evaluateIfDue(l.asked(ctx)); err != nil {
			return err
		}
		if l.step >= l.Steps {
			return l.end()
		}
		if l.asked(ctx).Err() != nil {
			return l.interrupt()
		}
		err := l.engine.pass(ctx)
		if errors.Is(err, ErrInterrupted) {
			return l.interrupt()
		}
		if err != nil {
			return err
		}
	}
}

// asked ends when the run is asked to. Several processes agree on that where a pass begins, and nowhere else.
func (l *loop) asked(ctx context.Context) context.Context {
	if l.World != nil {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// end sums up a run that is through.
func (l *loop) end() error {
	trained, sum, err := l.engine.gather()
	if err != nil {
		return err
	}
	l.out.WeightsSHA256 = sum
	l.finish(trained)
	return l.engine.measure()
}

// add counts a step.
func (l *loop) add(rec Record) error {
	l.step++
	l.ran++
	l.out.History.Steps = append(l.out.History.Steps, rec)
	if l.Record == nil {
		return nil
	}
	return l.Record(rec)
}

// evaluateIfDue evaluates after every EvalEvery steps and at the end, unless the history has it already.
func (l *loop) evaluateIfDue(ctx context.Context) error {
	last := l.step >= l.Steps
	due := last || l.crossed(l.step, l.EvalEvery)
	if !due || l.out.History.Eval(l.step) != nil {
		return nil
	}
	start := time.Now()
	score, err := l.engine.Evaluate(ctx)
	if ctx.Err() != nil {
		return l.interrupt()
	}
	if err != nil {
		return errors.Join(err, l.keep())
	}
	eval := Evaluation{
		Done: l.step, Loss: Number(score.MeanLoss()), Accuracy: Number(score.Accuracy()), MeanIoU: score.MeanIoU(), Correct: score.Correct, Samples: score.Samples,
		Seconds: time.Since(start).Seconds(),
	}
	l.out.History.Evals = append(l.out.History.Evals, eval)
	if l.Evaluated == nil {
		return nil
	}
	return l.Evaluated(eval)
}

// interrupt saves what was trained and says how far the run is.
func (l *loop) interrupt() error {
	err := fmt.Errorf("%w after %d of %d steps", ErrInterrupted, l.step, l.Steps)
	if l.Saves.Dir == nil {
		return fmt.Errorf("%w; nothing is saved without --out", err)
	}
	if failure := l.keep(); failure != nil {
		return fmt.Errorf("%w: %w", err, failure)
	}
	return fmt.Errorf("%w; they are saved: the same command with --resume goes on from there", err)
}

// keep saves the state before the run ends early, unless that is done, or other processes no longer do. Errors: *checkpoint.SaveError.
func (l *loop) keep() error {
	if l.Saves.Dir == nil || l.World.ended() || l.saved == l.step || l.From != nil && int(l.From.Step) == l.step {
		return nil
	}
	l.engine.save()
	return l.failure
}

// attempted counts a checkpoint. The run goes on when it could not be saved, and an earlier one is untouched.
func (l *loop) attempted(step int, err error) {
	if l.failure = err; err == nil || errors.Is(err, checkpoint.ErrNotRemoved) {
		l.out.Checkpoints++
		l.saved, l.failure = step, nil
	} else {
		l.out.CheckpointsFailed++
	}
	if l.Saved != nil {
		l.Saved(step, err)
	}
}

// finish fills in what was trained, and keeps the weights.
func (l *loop) finish(trained checkpoint.Model) {
	o := l.out
	o.Loss = o.History.loss()
	eval := o.History.Eval(l.step)
	o.Accuracy, o.MeanIoU, o.TestLoss, o.TestCorrect, o.TestSamples = eval.Accuracy, eval.MeanIoU, eval.Loss, eval.Correct, eval.Samples
	for _, r := range o.History.Steps {
		if r.Skipped {
			o.Skipped++
		}
	}
	o.BadSamples = data.Skipped(l.Job.Set)
	live := o.Measured.Live
	o.Measured = l.recent.Middle()
	o.Measured.Live, o.MeasuredS = live, o.Measured.Step
	if l.busy > 0 {
		o.SamplesPerS = float64(l.ran*l.Job.Images()) / l.busy.Seconds()
		if o.TokensPerS = o.SamplesPerS * float64(l.Job.Tokens()); l.Job.SampleSize().OfImages() {
			o.ImagesPerS = o.SamplesPerS
		}
		o.DataWaitShare = l.waited.Seconds() / l.busy.Seconds()
	}
	l.keepWeights(trained)
}

// ErrNoRoom says that the trained weights could not be saved, before anything is trained.
var ErrNoRoom = errors.New("the trained weights cannot be saved there: make room for them, or give another folder")

// reserve keeps room for the trained weights, so that no checkpoint takes it. Errors: ErrNoRoom.
func (l *loop) reserve() error {
	at := l.Saves.Final
	if at.IsZero() {
		return nil
	}
	bytes, err := checkpoint.WeightsBytes(l.engine, l.Job.constants())
	if err != nil {
		return err
	}
	if f, is, _ := models.Open(l.Job.Model); is && f.Beside != nil && l.Job.Config.LoRA.Rank == 0 {
		if l.beside, err = f.Beside(); err != nil {
			return err
		}
	}
	if err = at.Dir.Make(); err == nil {
		l.room, err = at.Dir.Reserve(at.Name, bytes)
	}
	if err != nil {
		return fmt.Errorf("%w: %s takes %s: %w", ErrNoRoom, at.Path(), units.Bytes(bytes), err)
	}
	return nil
}

// keepWeights writes the trained weights. A run whose state cannot be saved is trained all the same.
func (l *loop) keepWeights(trained checkpoint.Model) {
	l.out.Unsaved = l.failure
	at := l.Saves.Final
	if at.IsZero() {
		return
	}
	err := l.Saves.Dir.Check()
	for _, name := range slices.Sorted(maps.Keys(l.beside)) { // before the weights, which make the folder whole
		if err == nil {
			err = at.Dir.Write(name, func(w io.Writer) error { _, err := w.Write(l.beside[name]); return err })
		}
	}
	if err == nil {
		freed := l.room.Free()
		if err = at.Dir.Write(at.Name, func(w io.Writer) error {
			return checkpoint.EncodeWeights(w, trained, l.seen(l.step), l.Job.constants())
		}); err != nil {
			err = errors.Join(err, freed)
		}
	}
	if err == nil && l.Job.Config.LoRA.Rank > 0 {
		err = l.keepAdapter(at.Dir, trained)
	}
	if err != nil {
		l.out.Unsaved = errors.Join(l.out.Unsaved, fmt.Errorf("the trained weights are not saved: %w", err))
	}
}

// keepAdapter writes the adapter as PEFT reads it, its settings last.
func (l *loop) keepAdapter(to *folder.Dir, trained checkpoint.Model) error {
	if err := to.Write(checkpoint.AdapterWeights, func(w io.Writer) error { return checkpoint.EncodeAdapter(w, trained) }); err != nil {
		return err
	}
	return to.Write(checkpoint.AdapterSettings, func(w io.Writer) error {
		return checkpoint.EncodeAdapterSettings(w, l.Job.Config.LoRA, cmp.Or(l.Init, l.Job.Model), transposed(l.Job.Work.Model))
	})
}

// Do measures the peak of one step, trains, and evaluates on the test samples. When ctx ends it finishes the step that
// runs, saves a checkpoint and returns ErrInterrupted. Errors: ErrDiverged, ErrOtherRun, those of the executor, the data
// and the run's functions; a checkpoint that cannot be saved is none (Saved, Outcome.Unsaved).
func (r *Run) Do(ctx context.Context) (out *Outcome, err error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	out = &Outcome{History: r.Past, Summary: r.summary()}
	l := &loop{Run: r, out: out, step: out.ResumedFrom, saved: -1}
	// The plan is bound to its devices, and the weights to start from are put in place. After an error nothing is open.
	if l.engine, err = openPipeline(ctx, l); err != nil {
		return nil, err
	}
	defer func() { err = l.engine.close(err) }()
	if err := l.run(r.World.within(ctx)); err != nil {
		return nil, err
	}
	return out, nil
}
