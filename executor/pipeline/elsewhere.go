package pipeline

import (
	"fmt"

	"plimsoll/executor"
	"plimsoll/executor/internal/order"
	"plimsoll/kernels"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
	"plimsoll/runtime/null"
)

// places returns the devices with those of other processes, which compute nothing: what they would do is laid out and proved here, too.
func (comp *compilation) places(on []executor.Target, devices int) ([]executor.Target, error) {
	if comp.opt.World == nil {
		return on, nil
	}
	all := make([]executor.Target, devices)
	for d := range all {
		switch {
		case comp.opt.World.has(d) && len(on) == 0:
			return nil, fmt.Errorf("%w: this process has device %d of it, and is given too few", order.ErrPlan, d)
		case comp.opt.World.has(d):
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
		all[d] = executor.Target{Device: dev, Library: elsewhere()}
	}
	return all, nil
}

// noop is a library of kernels that do only the work of launch. It serves a device of another process, of which nothing is launched
// here. It also serves a device in simulated time, where only tasks of a plan take time.
type noop struct {
	launch func(name string) runtime.Launch
}

// elsewhere is the library of a device of another process.
func elsewhere() noop { return noop{func(name string) runtime.Launch { return null.Cost{Name: name} }} }

// simulated is the library of a device in simulated time.
func simulated() noop { return noop{func(name string) runtime.Launch { return host.Pause(name, 0) }} }

// Name implements kernels.Library.
func (noop) Name() string { return "noop" }

// Workspace implements kernels.Library. Workloads are compiled by the library of a device that is here.
func (noop) Workspace(kernels.Call) (int64, error) { panic("BUG: compiled for nothing") }

// Prepare implements kernels.Library.
func (l noop) Prepare(c kernels.Call, _ kernels.Operands) (runtime.Launch, error) {
	return l.launch(fmt.Sprintf("%v %v", c.Op, c.Pass)), nil
}

// UpdateWorkspace implements kernels.Library, as Workspace does.
func (noop) UpdateWorkspace(kernels.Update, kernels.Matrix) (int64, error) {
	panic("BUG: compiled for nothing")
}

// PrepareUpdate implements kernels.Library.
func (l noop) PrepareUpdate(kernels.Update, ...kernels.UpdateOperands) (runtime.Launch, error) {
	return l.launch("update"), nil
}

// PrepareGuard implements kernels.Library.
func (l noop) PrepareGuard(kernels.Guard, kernels.GuardOperands) (runtime.Launch, error) {
	return l.launch("guard"), nil
}

// PrepareLookup implements kernels.Library.
func (l noop) PrepareLookup(kernels.Lookup, kernels.LookupOperands) (runtime.Launch, error) {
	return l.launch("lookup"), nil
}

// PrepareMoments implements kernels.Library.
func (l noop) PrepareMoments(kernels.Moments, kernels.MomentsOperands) (runtime.Launch, error) {
	return l.launch("moments"), nil
}
