package pipeline

import (
	"fmt"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/runtime"
	"plimsoll/runtime/null"
)

// places returns the devices with those of other processes, which compute nothing: what they would do is laid out and proved here, too.
func (e *Executor) places(on []executor.Target, devices int) ([]executor.Target, error) {
	if e.opt.World == nil {
		return on, nil
	}
	all := make([]executor.Target, devices)
	for d := range all {
		switch {
		case e.here(d) && len(on) == 0:
			return nil, fmt.Errorf("%w: this process has device %d of it, and is given too few", ErrPlan, d)
		case e.here(d):
			all[d], on = on[0], on[1:]
		}
	}
	for d := range all {
		if all[d].Device != nil {
			continue
		}
		dev, err := null.New(null.Config{Name: fmt.Sprintf("device %d, of another process", d)})
		if err != nil {
			return nil, err
		}
		all[d] = executor.Target{Device: dev, Library: elsewhere{}}
	}
	return all, nil
}

// elsewhere is the library of a device of another process: what it prepares is never launched here.
type elsewhere struct{}

// work is what another process does.
var work = null.Cost{Name: "work of another process"}

// Name implements kernels.Library.
func (elsewhere) Name() string { return "of another process" }

// Workspace implements kernels.Library. Workloads are compiled by the library of a device that is here.
func (elsewhere) Workspace(kernels.Call) (int64, error) { panic("BUG: compiled for another process") }

// Prepare implements kernels.Library.
func (elsewhere) Prepare(c kernels.Call, _ kernels.Operands) (runtime.Launch, error) {
	return null.Cost{Name: fmt.Sprintf("%v %v", c.Op, c.Pass)}, nil
}

// PrepareUpdate implements kernels.Library.
func (elsewhere) PrepareUpdate(kernels.Update, ...kernels.UpdateOperands) (runtime.Launch, error) {
	return work, nil
}

// PrepareGuard implements kernels.Library.
func (elsewhere) PrepareGuard(kernels.Guard, kernels.GuardOperands) (runtime.Launch, error) {
	return work, nil
}

// PrepareLookup implements kernels.Library.
func (elsewhere) PrepareLookup(kernels.Lookup, kernels.LookupOperands) (runtime.Launch, error) {
	return work, nil
}

// PrepareMoments implements kernels.Library.
func (elsewhere) PrepareMoments(kernels.Moments, kernels.MomentsOperands) (runtime.Launch, error) {
	return work, nil
}
