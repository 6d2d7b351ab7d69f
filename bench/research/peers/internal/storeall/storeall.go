//go:build cgo

// Package storeall has models that take steps on the processor with nothing planned, for comparisons with other programs.
package storeall

import (
	"errors"

	"plimsoll/executor"
	"plimsoll/executor/pipeline"
	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
	"plimsoll/models"
	"plimsoll/runtime/host"
)

// Options of a model's steps. The zero value is plain gradient descent on all cores.
type Options struct {
	Update  kernels.Update
	Threads int
	// Watch returns the library that runs in the place of another; may be nil.
	Watch func(kernels.Library) kernels.Library
}

// Model takes steps, and predicts, on its batch.
type Model struct {
	*pipeline.Stepper
	Batch *pipeline.Batch
}

// Predict predicts the batch and fills logits.
func (m *Model) Predict(logits []float32) error { return m.Stepper.Predict(m.Batch, logits) }

// Open returns the model with all of a step in memory, and what closes it.
func Open(m *models.Model, o Options) (e *Model, closed func() error, err error) {
	if o.Update == nil {
		o.Update = kernels.SGD{}
	}
	none, err := cpu.New(nil, cpu.Options{Threads: o.Threads})
	if err != nil {
		return nil, nil, err
	}
	w, err := executor.Compile(m, none, o.Update)
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
	lib, err := o.library(dev)
	if err != nil {
		return nil, nil, errors.Join(err, dev.Close())
	}
	e = &Model{Batch: pipeline.NewBatch(m)}
	e.Stepper, err = pipeline.NewAlone(w, executor.Target{Device: dev, Library: lib}, all, pipeline.Options{Feed: e.Batch, Limits: []int64{limit}})
	if err != nil {
		return nil, nil, errors.Join(err, dev.Close())
	}
	return e, dev.Close, nil
}

func (o Options) library(dev *host.Device) (kernels.Library, error) {
	lib, err := cpu.New(dev, cpu.Options{Threads: o.Threads})
	if err != nil || o.Watch == nil {
		return lib, err
	}
	return o.Watch(lib), nil
}
