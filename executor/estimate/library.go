package estimate

import (
	"errors"
	"fmt"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/runtime"
	"plimsoll/runtime/null"
)

// ErrNothingRuns is returned for launches on a device that is only described.
var ErrNothingRuns = errors.New("the device is only described: nothing runs on it")

// Target returns the device with a library that says what calls need, and computes nothing.
func (d *Device) Target() (executor.Target, error) {
	toDevice, toHost := d.Link()
	dev, err := null.New(null.Config{Name: d.Name, Memory: d.Memory, Bandwidth: min(toDevice, toHost)})
	return executor.Target{Device: &simulated{dev, d}, Library: library{d}, Host: host{library{d}}}, err
}

// simulated is a null device that has the names and the host memory of a description.
type simulated struct {
	*null.Device
	of *Device
}

// Info implements runtime.Device.
func (s *simulated) Info() runtime.Info {
	info := s.Device.Info()
	info.Kind, info.Model, info.HostMemory = "described", s.of.Name, s.of.HostBytes
	return info
}

// library is the kernels.Library of a described device.
type library struct{ *Device }

// Name implements kernels.Library.
func (l library) Name() string { return "none (estimated for " + l.Device.Name + ")" }

// Workspace implements kernels.Library. Errors: *kernels.TypeError where the device has no rate of the call's type.
func (l library) Workspace(c kernels.Call) (int64, error) {
	_, operations, err := c.Cost()
	if t := c.Computes(); err == nil && l.Rates[t.String()] == 0 {
		err = l.lacks(t)
	}
	if err != nil || operations == 0 {
		return 0, err
	}
	return l.Device.Workspace, nil
}

// lacks says that the device has no rate of a type.
func (d *Device) lacks(t kernels.DType) error {
	return &kernels.TypeError{Needs: fmt.Sprintf("a rate of %v in field \"flop_per_s\" of device %s", t, d.Name)}
}

// Prepare implements kernels.Library.
func (library) Prepare(kernels.Call, kernels.Operands) (runtime.Launch, error) {
	return nil, ErrNothingRuns
}

// PrepareLookup implements kernels.Library.
func (library) PrepareLookup(kernels.Lookup, kernels.LookupOperands) (runtime.Launch, error) {
	return nil, ErrNothingRuns
}

// PrepareMoments implements kernels.Library.
func (library) PrepareMoments(kernels.Moments, kernels.MomentsOperands) (runtime.Launch, error) {
	return nil, ErrNothingRuns
}

// UpdateWorkspace implements kernels.Updater. A matrix of Muon takes the places of its iteration.
func (l library) UpdateWorkspace(u kernels.Update, m kernels.Matrix) (int64, error) {
	if err := kernels.CheckMatrix(u, m); err != nil || !m.Muons(u) {
		return 0, err
	}
	b := m.MuonBytes()
	return b.X + b.Next + b.Square + b.Again + l.Device.Workspace, nil
}

// PrepareUpdate implements kernels.Updater.
func (library) PrepareUpdate(kernels.Update, ...kernels.UpdateOperands) (runtime.Launch, error) {
	return nil, ErrNothingRuns
}

// PrepareGuard implements kernels.Updater.
func (library) PrepareGuard(kernels.Guard, kernels.GuardOperands) (runtime.Launch, error) {
	return nil, ErrNothingRuns
}

// host is the kernels.Updater of the host beside a described device.
type host struct{ library }

// UpdateWorkspace implements kernels.Updater. Errors: ErrNoKernel for a matrix of Muon, which the host of a GPU does not update either.
func (h host) UpdateWorkspace(u kernels.Update, m kernels.Matrix) (int64, error) {
	if m.Muons(u) {
		return 0, fmt.Errorf("%s: %w on the host", u.Kind(), kernels.ErrNoKernel)
	}
	return 0, kernels.CheckMatrix(u, m)
}
