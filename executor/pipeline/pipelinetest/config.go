package pipelinetest

import (
	"fmt"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// Stage is a range of layers, counted from 1, both ends included.
type Stage struct{ First, Last int }

// Config describes the model to train, and its training. A minibatch has the model's batch; it is the unit that flows
// through a pipeline, so in a program that flushes it is a microbatch.
type Config struct {
	Model     *models.Model
	Device    runtime.Device // not reserved yet; nothing else may use it before it is closed, which is the caller's to do
	Library   kernels.Library
	Optimizer kernels.Update
	Seed      uint64 // of the weights and of dropout
	// Stages divide the layers; the last one ends with the loss.
	Stages []Stage
	// LR is the learning rate of an update of a stage, both counted from 0. PipeMare's differs from stage to stage.
	LR func(stage, update int) float32
	// Corrected, if not nil, are the weights of backwards, in place of the latest. Other programs than Latest have none.
	Corrected *Corrected
	// MaxNorm clips the gradients of all stages together before their updates, which all have one group; 0: no clipping.
	MaxNorm float32
	// Batch fills a minibatch, counted from 0: images N,H,W,C, labels N. The same number gives the same minibatch.
	Batch func(minibatch int, images []float32, labels []int32)
}

func (c *Config) check() error {
	switch {
	case c.Model == nil || c.Device == nil || c.Library == nil || c.Optimizer == nil || c.LR == nil || c.Batch == nil:
		return fmt.Errorf("%w: Model, Device, Library, Optimizer, LR and Batch must all be given", ErrConfig)
	case c.Model.Wiring().Joins() && len(c.Stages) > 1:
		return fmt.Errorf("%w: model %s has branches %v, and %d stages are for a chain", ErrConfig, c.Model.Name, c.Model.Branches, len(c.Stages))
	}
	next := 1
	for i, s := range c.Stages {
		if s.First != next || s.Last < s.First {
			return fmt.Errorf("%w: stage %d has layers %d to %d, want it to begin with layer %d", ErrConfig, i, s.First, s.Last, next)
		}
		next = s.Last + 1
	}
	if loss := len(c.Model.Layers); next != loss+1 {
		return fmt.Errorf("%w: the stages end with layer %d, want the loss, layer %d", ErrConfig, next-1, loss)
	}
	return nil
}

// trainer is a configuration with the memory that it trains in.
type trainer struct {
	Config
	*memory
}
