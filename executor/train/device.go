package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint"
	"plimsoll/models/data"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// deviceEngine trains on one device along a sequence that no table is made for yet (JobPlan.hasTable).
type deviceEngine struct {
	*loop
	*deviceRunner
	batches *fetcher
	idle    idleness
}

// openDevice measures the peak of one step, and binds the plan to the device.
func openDevice(ctx context.Context, l *loop) (engine, error) {
	plan := l.Plan.Plan
	opt := l.deviceOptions()
	job, o := l.Job.Planned(plan), l.out
	audit, err := job.auditDevice(plan.Sequence(), executor.Options{Limit: opt.Limit, HostLimit: opt.HostLimit, Sim: opt.Sim})
	if err != nil {
		return nil, err
	}
	o.Measured.Live = audit.Live
	o.MeasuredPeakBytes, o.ExtentBytes, o.HostBytes, o.CopiesBytes = audit.PeakBytes, audit.ExtentBytes, audit.HostBytes, audit.CopiesBytes
	o.StagedBytes, o.State = job.Work.StagedBytes(), l.Job.Work.StateCost(l.Chain, plan)
	e := &deviceEngine{loop: l}
	if e.deviceRunner, err = job.startDevice(plan.Sequence(), opt); err != nil {
		return nil, err
	}
	if err := l.begin(e.deviceRunner); err != nil {
		return nil, e.close(err)
	}
	// Making batches goes on when ctx ends: the step that runs is finished, and may still need one.
	batches, err := l.Job.loader(context.WithoutCancel(ctx), e.Workload, data.Train, l.step*l.Job.parts())
	if err != nil {
		return nil, e.close(err)
	}
	e.batches = &fetcher{to: e.deviceRunner, from: batches}
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
	times := &executor.Times{Upload: res.Upload, Sequence: res.Sequence, Update: res.Update, Busy: res.Busy, Intervals: res.Intervals}
	e.idle.add(times, waited)
	e.recent.Add(times, k)
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
	e.attempted(e.step, e.Saves.Dir.Save(e.deviceRunner, e.meta(int64(e.step), e.Updates())))
}

// gather implements engine: the device has all weights.
func (e *deviceEngine) gather() (trained checkpoint.Model, sha256 string, err error) {
	sha256, err = e.Hash()
	return e.deviceRunner, sha256, err
}

// measure adds how long the device computed nothing, and how far it went from its profile.
func (e *deviceEngine) measure() error { return e.measureDevice(&e.idle) }

// deviceRunner is an executor with the device that it owns.
type deviceRunner struct {
	*executor.Executor
	job  *Job
	dev  runtime.Device
	last executor.Result
}

// startDevice binds a sequence to a fresh device. The caller closes the runner.
func (j *Job) startDevice(seq schedule.Sequence, opt executor.Options) (*deviceRunner, error) {
	target, err := j.Target()
	if err != nil {
		return nil, err
	}
	opt.Seed, opt.NoGraph, opt.Parts = j.Seed, j.NoGraph, j.Parts
	e, err := executor.New(j.Work, target, seq, opt)
	if err != nil {
		return nil, errors.Join(err, target.Device.Close())
	}
	return &deviceRunner{Executor: e, job: j, dev: target.Device}, nil
}

// Close releases the device.
func (r *deviceRunner) Close() error { return r.dev.Close() }

// Train runs training step number step, from 0, on that step's batches. The result is that of its last part.
func (r *deviceRunner) Train(step int, rate float32) (res *executor.Result, err error) {
	n := r.job.parts()
	for k := range n {
		if err := r.job.loadDevice(r.Executor, step*n+k); err != nil {
			return nil, err
		}
		if res, err = r.Step(uint64(step), rate); err != nil {
			return nil, err
		}
	}
	r.last = *res
	return res, nil
}

// loadDevice puts a training batch into the executor's page-locked buffers.
func (j *Job) loadDevice(e *executor.Executor, step int) error {
	if e.StagedBytes() > 0 {
		return loadInto(e, &j.raw, room.Pixels, step, j.Config.Batch)
	}
	return loadInto(e, &j.feeds, room.Images, step, j.Config.Batch)
}

// deviceAudited is the memory of one step, measured: each op's bytes are checked against what its tensors own.
type deviceAudited struct {
	PeakBytes   int64   // the most that was owned while an op ran, static memory included
	ExtentBytes int64   // the end of the highest byte that was written
	Live        []int64 // bytes owned when each op started
	HostBytes   int64   // page-locked memory
	CopiesBytes int64   // of which for what is offloaded
}

// auditDevice runs one step that stops after every op and looks at the whole arena.
func (j *Job) auditDevice(seq schedule.Sequence, opt executor.Options) (a *deviceAudited, err error) {
	opt.Audit = true
	e, err := j.startDevice(seq, opt)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	res, err := e.Train(0, 0)
	if err != nil {
		return nil, err
	}
	return &deviceAudited{
		PeakBytes: res.PeakBytes, ExtentBytes: res.ExtentBytes, Live: slices.Clone(res.Live),
		HostBytes: res.HostBytes, CopiesBytes: res.CopiesBytes,
	}, nil
}

// Evaluate predicts every test sample once; the last batch is filled up, and what fills it does not count.
func (r *deviceRunner) Evaluate(ctx context.Context) (Score, error) {
	s := r.job.newScore()
	batches, err := r.job.loader(ctx, r.Workload, data.Test, 0)
	if err != nil {
		return s, err
	}
	defer batches.Close()
	r.Swap() // the other batch may be that of the next step
	defer r.Swap()
	classes := r.job.Config.Classes
	logits := make([]float32, r.job.labels()*classes)
	for {
		fresh, labels, err := batches.next(r)
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return s, err
		}
		if err := r.Predict(logits); err != nil {
			return s, err
		}
		s.addAll(logits, labels[:fresh*data.Labels(r.job.Set)], classes)
	}
}

// fetcher brings the batches of a run to the page-locked memory of its executor, and where they are staged on to the device: while a
// step runs, the batch of the next one.
type fetcher struct {
	to    *deviceRunner
	from  loader
	there bool // the batch of the next step is, or err in its place
	err   error
}

// get makes sure that the batch of the next step is there, and returns how long it had to wait until it was made.
func (f *fetcher) get() (waited time.Duration, err error) {
	if !f.there {
		waited = f.fetch()
	}
	f.there = false
	return waited, f.err
}

func (f *fetcher) fetch() time.Duration {
	before := f.from.Waited()
	if _, _, f.err = f.from.next(f.to); f.err == nil {
		f.err = f.to.Stage()
	}
	f.there = true
	return f.from.Waited() - before
}

// step runs a step on the batch that is there. Where more follow it fetches the next batch meanwhile, and returns by how much that
// was late: the step had ended, and the batch was not made.
func (f *fetcher) step(number uint64, rate float32, more bool) (res *executor.Result, late time.Duration, err error) {
	start := time.Now()
	if err := f.to.Begin(number, rate); err != nil {
		return nil, 0, err
	}
	f.to.Swap()
	if more {
		late = f.fetch()
	}
	fetched := time.Since(start)
	res, err = f.to.End()
	if err != nil {
		return nil, 0, err
	}
	return res, max(min(late, fetched-time.Duration(res.Device*float64(time.Second))), 0), nil
}
