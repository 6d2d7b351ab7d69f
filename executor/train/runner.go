package train

import (
	"context"
	"errors"

	"plimsoll/executor"
	pipe "plimsoll/executor/pipeline"
)

// Runner trains along a sequence on a device that it owns, a step at a time.
type Runner struct {
	*pipe.Stepper
	job     *Job
	on      executor.Target
	batches *trainingBatches
	last    *pipe.Step
}

// StoreAll returns the plan of a step that recomputes nothing, in the least memory that it has room in.
func (j *Job) StoreAll() (*JobPlan, error) {
	limit, err := j.StoreAllExtent()
	costs, plan := pipe.Unmeasured(j.Work, j.Work.StoreAll())
	return &JobPlan{Plan: plan, Work: j.Work, Costs: costs, Limit: limit, Group: j.parts()}, err
}

// Start binds the sequence of a plan to a fresh device. Seed, feed, graphs and the arena's limit are the job's and the plan's. The caller
// closes the runner.
func (j *Job) Start(p *JobPlan, opt pipe.Options) (*Runner, error) {
	target, err := j.Target()
	if err != nil {
		return nil, err
	}
	r := &Runner{job: j, on: target, batches: &trainingBatches{of: &j.batches, held: j.newHeld(p.Work), number: -1}}
	opt.Seed, opt.NoGraph, opt.Feed, opt.Limits = j.Seed, j.NoGraph, r.batches, []int64{p.Limit}
	if r.Stepper, err = pipe.NewStepper(p.Work, target, p.Costs, p.steps(), opt); err != nil {
		return nil, errors.Join(err, target.Device.Close())
	}
	return r, nil
}

// Close releases the device.
func (r *Runner) Close() error { return r.on.Device.Close() }

// Train trains the next step.
func (r *Runner) Train(rate float32) (step *pipe.Step, err error) {
	if err := r.batches.load(r.Done()); err != nil {
		return nil, err
	}
	r.last, err = r.Step(rate)
	return r.last, err
}

// Last returns the latest step.
func (r *Runner) Last() *pipe.Step { return r.last }

// Tensors lists weights, buffers, optimizer states and the gradients of the latest step.
func (r *Runner) Tensors() []executor.Tensor { return append(r.Stepper.Tensors(), r.Gradients()...) }

// Evaluate predicts every test sample once.
func (r *Runner) Evaluate(ctx context.Context) (Score, error) {
	return r.job.score(ctx, r.Executor, r.Workload)
}

// trainingBatches is a feed of a job's training batches, for one device, which asks for one after the other.
type trainingBatches struct {
	of     *batches
	held   *held
	number int // of the batch that is held
}

// load makes sure that a batch is held.
func (b *trainingBatches) load(batch int) error {
	if b.number == batch {
		return nil
	}
	b.number = batch
	return b.of.load(b.held, batch)
}

// Images implements pipeline.Feed.
func (b *trainingBatches) Images(batch int, dst []float32) error {
	if err := b.load(batch); err != nil {
		return err
	}
	copy(dst, b.held.values)
	return nil
}

// Labels implements pipeline.Feed.
func (b *trainingBatches) Labels(batch int, dst []int32) error {
	if err := b.load(batch); err != nil {
		return err
	}
	copy(dst, b.held.labels)
	return nil
}
