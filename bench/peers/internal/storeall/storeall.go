//go:build cgo

// Package storeall has models that take steps on the processor with nothing planned, for comparisons with other programs.
package storeall

import (
	"errors"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
	"plimsoll/models"
	"plimsoll/runtime/host"
)

// Open returns the model with all of a step in memory, and what closes it. Updates are plain gradient descent.
func Open(m *models.Model) (e *executor.Executor, closed func() error, err error) {
	none, err := cpu.New(nil, cpu.Options{})
	if err != nil {
		return nil, nil, err
	}
	w, err := executor.Compile(m, none, kernels.SGD{})
	if err != nil {
		return nil, nil, err
	}
	all := w.StoreAll()
	limit, err := w.PeakBytes(all)
	if err != nil {
		return nil, nil, err
	}
	limit += limit/8 + 16<<20 // what fragments, and what the library has
	dev, err := host.New(host.Config{Memory: limit, HostMemory: limit})
	if err != nil {
		return nil, nil, err
	}
	lib, err := cpu.New(dev, cpu.Options{})
	if err != nil {
		return nil, nil, errors.Join(err, dev.Close())
	}
	e, err = executor.New(w, executor.Target{Device: dev, Library: lib}, all, executor.Options{Limit: limit})
	if err != nil {
		return nil, nil, errors.Join(err, dev.Close())
	}
	return e, dev.Close, nil
}
