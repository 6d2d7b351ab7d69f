package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint"
	"plimsoll/internal/atomicfile"
	"plimsoll/internal/units"
	"plimsoll/models/data"
)

// trained is what a loop trains: it is saved, and evaluated.
type trained interface {
	checkpoint.Model
	Evaluate(ctx context.Context) (Score, error)
}

// loop is a run while it runs.
//
// Invariants: weights, optimizer state and history are those after step steps, whenever a method returns; a
// checkpoint is saved between steps only, before the evaluation that is due.
type loop struct {
	*Run
	e       *Runner // on one device
	m       trained
	save    func() // a checkpoint of the steps done
	out     *Outcome
	batches *fetcher
	step    int // steps done, which is the number of the next one
	saved   int // steps of the latest checkpoint of this run, -1 before the first
	failure error
	room    *atomicfile.Room // for the trained weights

	recent       executor.Recent
	ran          int // steps
	busy, waited time.Duration
	idle         idleness
}

// run trains to the last step and evaluates.
func (l *loop) run(ctx context.Context) error {
	if err := l.reserve(); err != nil {
		return err
	}
	defer func() { _ = l.room.Free() }() // a run that ends early is told why
	// Making batches goes on when ctx ends: the step that runs is finished, and may still need one.
	batches, err := l.e.loader(context.WithoutCancel(ctx), data.Train, l.step*l.Job.parts())
	if err != nil {
		return err
	}
	defer batches.Close()
	l.batches = &fetcher{to: l.e, from: batches}
	for {
		if err := l.evaluateIfDue(ctx); err != nil {
			return err
		}
		if l.step >= l.Steps {
			l.finish()
			l.out.Drift, err = l.drift()
			return err
		}
		if ctx.Err() != nil {
			return l.interrupt()
		}
		if err := l.one(); err != nil {
			return err
		}
		if l.SavesAfter(l.step) {
			l.save()
		}
	}
}

// one runs a step, all its parts, and fetches the batch of what follows beside each.
func (l *loop) one() error {
	rec := Record{Step: l.step, Rate: float64(l.Rate.At(l.step))}
	for k := range l.Job.parts() {
		res, err := l.part(k, &rec)
		if err != nil {
			return err
		}
		if bad := res.Skipped || !finite(res.Loss); bad && !l.SkipNotFinite {
			return l.diverged(res)
		}
	}
	n := float64(l.Job.parts())
	rec.Loss, rec.Accuracy = Number(float64(rec.Loss)/n), rec.Accuracy/n
	return l.add(rec)
}

// part runs part k of a step and adds what it gave and took. After an error of the data the state is that of the steps before, which
// is saved, unless an earlier part has moved BatchNorm's statistics.
func (l *loop) part(k int, rec *Record) (*executor.Result, error) {
	start := time.Now()
	waited, err := l.batches.get()
	if err != nil {
		if err = fmt.Errorf("batch of step %d: %w", l.step, err); k == 0 {
			err = errors.Join(err, l.keep())
		}
		return nil, err
	}
	last := l.step+1 == l.Steps && k+1 == l.Job.parts()
	res, late, err := l.batches.step(uint64(l.step), float32(rec.Rate), !last)
	if err != nil {
		return nil, err
	}
	waited += late
	l.busy += time.Since(start)
	l.waited += waited
	l.idle.add(res, waited)
	l.recent.Add(res, k)
	rec.add(res)
	rec.Accuracy += float64(res.Correct) / float64(max(res.Counted, 1))
	rec.Seconds -= late.Seconds()
	rec.DataWaitS += waited.Seconds()
	return res, nil
}

// add adds what a part of a step gave and took: the norm, the update and whether it was skipped are those of the last one.
func (r *Record) add(res *executor.Result) {
	r.Loss += Number(res.Loss)
	r.Norm, r.Skipped, r.UpdateS, r.PeakBytes = Number(res.Norm), res.Skipped, res.Update, res.PeakBytes
	r.Seconds += res.Seconds
	r.SequenceS += res.Sequence
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

// diverged names the first layer whose output is not finite. The step's own weights are still there: an update is
// skipped unless the loss alone is not finite. Where weights are kept in host memory, each layer is updated before the gradients
// of those below it are known, and some weights are already the next step's.
func (l *loop) diverged(res *executor.Result) error {
	l.e.Swap() // back to the batch of this step
	layer, err := l.e.FirstNotFinite()
	where := fmt.Sprintf("layer %q is the first whose output is not finite", layer)
	if layer == "" {
		where = "every layer's output is finite, the gradients are not"
	}
	if err != nil {
		where = fmt.Sprintf("which layer is the first cannot be told: %v", err)
	}
	advice := "lower --lr, give --clip-norm, or pass over such steps with --on-nan skip"
	if l.Job.Offload == executor.OffloadWeights { // which can do neither
		advice = "lower --lr, or keep the optimizer's state alone in host memory (--offload-state optimizer), with --clip-norm or --on-nan skip"
	}
	return fmt.Errorf("%w: loss %v, norm %v at step %d; %s: %s", ErrDiverged, res.Loss, res.Norm, l.step, where, advice)
}

// evaluateIfDue evaluates after every EvalEvery steps and at the end, unless the history has it already.
func (l *loop) evaluateIfDue(ctx context.Context) error {
	last := l.step >= l.Steps
	due := last || l.crossed(l.step, l.EvalEvery)
	if !due || l.out.History.Eval(l.step) != nil {
		return nil
	}
	start := time.Now()
	score, err := l.m.Evaluate(ctx)
	if ctx.Err() != nil {
		return l.interrupt()
	}
	if err != nil {
		return errors.Join(err, l.keep())
	}
	eval := Evaluation{
		Done: l.step, Loss: Number(score.MeanLoss()), Accuracy: score.Accuracy(), MeanIoU: score.MeanIoU(), Correct: score.Correct, Samples: score.Samples,
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
	l.save()
	return l.failure
}

// saveWhole saves a checkpoint in one file.
func (l *loop) saveWhole() {
	l.attempted(l.step, l.Saves.Dir.Save(l.m, l.meta(int64(l.step), l.e.Updates())))
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

// finish sums the run up and keeps its weights.
func (l *loop) finish() {
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
	o.Measured.Live, o.MeasuredS, o.StateWaitS = live, o.Measured.Step, o.Measured.StateWait
	if l.busy > 0 {
		o.SamplesPerS = float64(l.ran*l.Job.Images()) / l.busy.Seconds()
		if o.TokensPerS = o.SamplesPerS * float64(l.Job.Tokens()); l.Job.Tokens() == 0 {
			o.ImagesPerS = o.SamplesPerS
		}
		o.DataWaitShare = l.waited.Seconds() / l.busy.Seconds()
		if l.e != nil {
			o.Idle = l.idle.shares(l.busy.Seconds())
		}
	}
	l.keepWeights()
}

// ErrNoRoom says that the trained weights could not be saved, before anything is trained.
var ErrNoRoom = errors.New("the trained weights cannot be saved there: make room for them, or give another folder")

// reserve keeps room for the trained weights, so that no checkpoint takes it. Errors: ErrNoRoom.
func (l *loop) reserve() error {
	at := l.Saves.Final
	if at.IsZero() {
		return nil
	}
	bytes, err := checkpoint.WeightsBytes(l.m, l.Job.constants())
	if err != nil {
		return err
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
func (l *loop) keepWeights() {
	l.out.Unsaved = l.failure
	at := l.Saves.Final
	if at.IsZero() {
		return
	}
	err := l.Saves.Dir.Check()
	if err == nil {
		freed := l.room.Free()
		if err = at.Dir.Write(at.Name, func(w io.Writer) error {
			return checkpoint.EncodeWeights(w, l.m, l.seen(l.step), l.Job.constants())
		}); err != nil {
			err = errors.Join(err, freed)
		}
	}
	if err != nil {
		l.out.Unsaved = errors.Join(l.out.Unsaved, fmt.Errorf("the trained weights are not saved: %w", err))
	}
}
