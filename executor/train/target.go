package train

import (
	"errors"
	"fmt"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/kernels/library"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
	"plimsoll/runtime/devices"
)

// Target opens a fresh device with its kernel library: of a pipeline's devices, the first.
func (s *Spec) Target() (executor.Target, error) {
	all, err := s.Targets()
	if err != nil {
		return executor.Target{}, err
	}
	if s.Microbatches == 0 && len(all) > 1 {
		return executor.Target{}, errors.Join(fmt.Errorf("%w: --devices %s is %d devices, and a job runs on one", ErrSpec, s.Devices, len(all)), closeTargets(all))
	}
	return all[0], closeTargets(all[1:])
}

// Unbounded returns the job on a device as large as the machine has it, whatever size the spec gives the device.
func (j *Job) Unbounded() (*Job, error) {
	large := *j
	large.Open.Memory = 0
	target, err := large.Target()
	if err != nil {
		return nil, err
	}
	large.Device = target.Device.Info()
	return &large, target.Device.Close()
}

// Targets opens all devices afresh, each with its kernel library.
func (s *Spec) Targets() (all []executor.Target, err error) {
	if s.Described != nil {
		target, err := s.Described.Target()
		return []executor.Target{target}, err
	}
	opened, err := devices.Open(s.Devices, s.Open)
	if err != nil {
		return nil, err
	}
	for _, dev := range opened {
		lib, failure := library.Open(dev, library.Options{
			Threads: s.Threads, Reference: s.Reference, Vendor: s.Vendor, VendorPath: s.VendorPath, Note: s.Note, Choices: s.Choices,
		})
		if failure != nil && err == nil {
			err = fmt.Errorf("%w: --devices %s: %w", ErrSpec, s.Devices, failure)
		}
		all = append(all, executor.Target{Device: dev, Library: lib})
	}
	if err != nil {
		return nil, errors.Join(err, closeTargets(all))
	}
	return all, nil
}

// HostUpdater opens what updates the host memory of a target. Errors: library.ErrNone.
func (s *Spec) HostUpdater(target executor.Target) (kernels.Updater, error) {
	if target.Host != nil {
		return target.Host, nil
	}
	return library.OpenHost(target.Device, library.Options{Reference: s.Reference})
}

func closeTargets(all []executor.Target) (err error) {
	for _, t := range all {
		err = errors.Join(err, t.Device.Close())
	}
	return err
}

// Runner is an executor with the device that it owns.
type Runner struct {
	*executor.Executor
	job  *Job
	dev  runtime.Device
	last executor.Result
}

// Start binds a sequence to a fresh device. The caller closes the runner.
func (j *Job) Start(seq schedule.Sequence, opt executor.Options) (*Runner, error) {
	target, err := j.Target()
	if err != nil {
		return nil, err
	}
	opt.Seed, opt.NoGraph, opt.Parts = j.Seed, j.NoGraph, j.Parts
	e, err := executor.New(j.Work, target, seq, opt)
	if err != nil {
		return nil, errors.Join(err, target.Device.Close())
	}
	return &Runner{Executor: e, job: j, dev: target.Device}, nil
}

// Close releases the device.
func (r *Runner) Close() error { return r.dev.Close() }

// Train runs training step number step, from 0, on that step's batches. The result is that of its last part.
func (r *Runner) Train(step int, rate float32) (res *executor.Result, err error) {
	n := r.job.parts()
	for k := range n {
		if err := r.job.load(r.Executor, step*n+k); err != nil {
			return nil, err
		}
		if res, err = r.Step(uint64(step), rate); err != nil {
			return nil, err
		}
	}
	r.last = *res
	return res, nil
}

// Last returns the result of the latest step.
func (r *Runner) Last() *executor.Result { return &r.last }
