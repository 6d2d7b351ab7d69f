package train

import "context"

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
