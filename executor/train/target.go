package train

import (
	"errors"
	"fmt"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/kernels/library"
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
		lib, failure := library.Open(dev, s.Kernels)
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
	return library.OpenHost(target.Device, library.Options{Reference: s.Kernels.Reference})
}

func closeTargets(all []executor.Target) (err error) {
	for _, t := range all {
		err = errors.Join(err, t.Device.Close())
	}
	return err
}
