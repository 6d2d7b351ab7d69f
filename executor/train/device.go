package train

import (
	"context"
	"errors"
	"fmt"
	"time"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint"
	"plimsoll/models/data"
)

// deviceEngine trains on one device along a sequence that no table is made for yet (JobPlan.hasTable).
type deviceEngine struct {
	*loop
	*Runner
	batches *fetcher
	idle    idleness
}

// openDevice measures the peak of one step, and binds the plan to the device.
func openDevice(ctx context.Context, l *loop) (engine, error) {
	plan := l.Plan.Plan
	opt := l.deviceOptions()
	job, o := l.Job.Planned(plan), l.out
	audit, err := job.Audit(plan.Sequence(), executor.Options{Limit: opt.Limit, HostLimit: opt.HostLimit, Sim: opt.Sim})
	if err != nil {
		return nil, err
	}
	o.Measured.Live = audit.Live
	o.MeasuredPeakBytes, o.ExtentBytes, o.HostBytes, o.CopiesBytes = audit.PeakBytes, audit.ExtentBytes, audit.HostBytes, audit.CopiesBytes
	o.StagedBytes, o.State = job.Work.StagedBytes(), l.Job.Work.StateCost(l.Chain, plan)
	e := &deviceEngine{loop: l}
	if e.Runner, err = job.Start(plan.Sequence(), opt); err != nil {
		return nil, err
	}
	if err := l.begin(e.Runner); err != nil {
		return nil, e.close(err)
	}
	// Making batches goes on when ctx ends: the step that runs is finished, and may still need one.
	batches, err := l.Job.loader(context.WithoutCancel(ctx), e.Workload, data.Train, l.step*l.Job.parts())
	if err != nil {
		return nil, e.close(err)
	}
	e.batches = &fetcher{to: e.Runner, from: batches}
	return e, nil
}

// deviceOptions are those of the executor of a run on one device.
func (r *Run) deviceOptions() executor.Options {
	return executor.Options{
		Limit: r.Plan.Limit, HostLimit: r.HostLimit, Sim: executor.Following(r.Chain, r.Plan.Plan), Timed: true, MaxNorm: r.MaxNorm, Updates: r.updates(),
	}
}

// close implements engine.
func (e *deviceEngine) close(err error) error {
	if e.batches != nil {
		e.batches.from.Close()
	}
	return errors.Join(err, e.Close())
}

// pass runs a step, and saves what is due behind it.
func (e *deviceEngine) pass(context.Context) error {
	if err := e.one(); err != nil {
		return err
	}
	if e.SavesAfter(e.step) {
		e.save()
	}
	return nil
}

// one runs a step, all its parts, and fetches the batch of what follows beside each.
func (e *deviceEngine) one() error {
	rec := Record{Step: e.step, Rate: float64(e.Rate.At(e.step))}
	for k := range e.Job.parts() {
		res, err := e.part(k, &rec)
		if err != nil {
			return err
		}
		if bad := res.Skipped || !finite(res.Loss); bad && !e.SkipNotFinite {
			return e.diverged(res)
		}
	}
	n := float64(e.Job.parts())
	rec.Loss, rec.Accuracy = Number(float64(rec.Loss)/n), rec.Accuracy/n
	return e.add(rec)
}

// part runs part k of a step and adds what it gave and took. After an error of the data the state is that of the steps before, which
// is saved, unless an earlier part has moved BatchNorm's statistics.
func (e *deviceEngine) part(k int, rec *Record) (*executor.Result, error) {
	start := time.Now()
	waited, err := e.batches.get()
	if err != nil {
		if err = fmt.Errorf("batch of step %d: %w", e.step, err); k == 0 {
			err = errors.Join(err, e.keep())
		}
		return nil, err
	}
	last := e.step+1 == e.Steps && k+1 == e.Job.parts()
	res, late, err := e.batches.step(uint64(e.step), float32(rec.Rate), !last)
	if err != nil {
		return nil, err
	}
	waited += late
	e.busy += time.Since(start)
	e.waited += waited
	e.idle.add(res, waited)
	e.recent.Add(res, k)
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

// diverged names the first layer whose output is not finite. The step's own weights are still there: an update is
// skipped unless the loss alone is not finite. Where weights are kept in host memory, each layer is updated before the gradients
// of those below it are known, and some weights are already the next step's.
func (e *deviceEngine) diverged(res *executor.Result) error {
	e.Swap() // back to the batch of this step
	layer, err := e.FirstNotFinite()
	advice := "lower --lr, give --clip-norm, or pass over such steps with --on-nan skip"
	if e.Job.Offload == executor.OffloadWeights { // which can do neither
		advice = "lower --lr, or keep the optimizer's state alone in host memory (--offload-state optimizer), with --clip-norm or --on-nan skip"
	}
	return diverged(e.step, res.Loss, res.Norm, layer, err, advice)
}

// save saves a checkpoint in one file.
func (e *deviceEngine) save() {
	e.attempted(e.step, e.Saves.Dir.Save(e.Runner, e.meta(int64(e.step), e.Updates())))
}

// gather implements engine: the device has all weights.
func (e *deviceEngine) gather() (trained checkpoint.Model, sha256 string, err error) {
	sha256, err = e.Hash()
	return e.Runner, sha256, err
}

// measure adds how long the device computed nothing, and how far it went from its profile.
func (e *deviceEngine) measure() error { return e.measureDevice(&e.idle) }
