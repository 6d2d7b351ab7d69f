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
	if err := l.open(ctx); err != nil {
		return nil, err
	}
	defer func() { err = l.engine.close(err) }()
	if err := l.run(r.World.within(ctx)); err != nil {
		return nil, err
	}
	return out, nil
}

// open binds the plan to its devices and puts the weights to start from in place. After an error nothing is open.
func (l *loop) open(ctx context.Context) (err error) {
	if l.Plan.hasTable() {
		l.engine, err = openPipeline(ctx, l)
		return err
	}
	l.engine, err = openDevice(ctx, l)
	return err
}
