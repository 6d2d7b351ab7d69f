package train

import (
	"errors"
	"fmt"

	"plimsoll/executor/estimate"
	"plimsoll/kernels"
	"plimsoll/kernels/library"
	"plimsoll/models"
	"plimsoll/runtime/devices"
)

// Spec says what is trained and where.
type Spec struct {
	Model  string
	Config models.Config // Classes 0 means those of the data set
	// Adapter is a folder with the adapter that Config.LoRA is of, to begin with; "": it begins as new ones do.
	Adapter string
	Data    string // name of a data set: "digits", "folder:/data/flowers"
	Seed    uint64 // of weights, dropout, order and augmentation of the samples
	Devices string // as the user writes it: "cpu"
	// Tokenizer names the tokenizer that makes tokens of text, as tokenizer.Open takes it.
	Tokenizer string
	// Microbatches, when not 0, makes the job one for a pipeline, on all of the devices: so many make a step. The Config's
	// Batch is a step's images when the job is opened and a microbatch's from then on.
	Microbatches int
	// Parts, on one device, are those of a step whose gradients are added up; 0 is 1. The Config's Batch becomes a part's, as above.
	Parts int
	// Processes is how many have devices like these for one pipeline; 0 is 1.
	Processes int
	// Described is a device that is not here, in the place of Devices: the job can be estimated and planned, not run.
	Described *estimate.Device
	Open      devices.Options
	// HostMemory is how much one device is to page-lock, where it would give less by itself.
	HostMemory int64
	// Kernels are the options of the devices' libraries. A Job adds to their Choices those that its own library made.
	Kernels library.Options
	// NoGraph issues every step call by call, also on a device that could repeat it as one graph.
	NoGraph bool
	Update  kernels.Update
	// NarrowGradients keeps gradients of weights in bfloat16, of a Config in that type, in plans that move weights and state.
	NarrowGradients bool
	// SkipBad passes over samples whose bytes are bad; OnSkip, which may be nil, is told of each, on any goroutine.
	SkipBad bool
	OnSkip  func(error)
}

// ErrSpec says that the parts of a spec do not go together; the message names them.
var ErrSpec = errors.New("bad job")

// divide makes the batch that of a microbatch, of a spec that has an optimizer.
func (s *Spec) divide() error {
	if s.Update == nil {
		return fmt.Errorf("%w: it has no optimizer: give one, as in Update: kernels.SGD{Momentum: 0.9}", ErrSpec)
	}
	m, batch := s.parts(), s.Config.Batch
	if batch%m != 0 {
		parts := "microbatches"
		if s.alone() {
			parts = "parts (--accumulate)"
		}
		return fmt.Errorf("%w: --batch is %d, of %d %s: a step's batch is divided into equal ones, give a multiple", ErrSpec, batch, m, parts)
	}
	if max(s.Microbatches, s.Parts) > 0 && models.OfPairs(s.Model) {
		if s.alone() {
			return fmt.Errorf("%w: %s has branches, and parts of a step, and plans that move weights and state, are for single chains: leave --accumulate and --offload-state out, and give --memory", ErrSpec, s.Model)
		}
		return fmt.Errorf("%w: --devices %s: %s has branches, and pipelines are for single chains: train it on one device", ErrSpec, s.Devices, s.Model)
	}
	s.Config.Batch = batch / m
	return nil
}

// alone reports whether the spec is for one device.
func (s *Spec) alone() bool {
	if s.Described != nil {
		return true
	}
	items, err := devices.Parse(s.Devices)
	return s.Processes < 2 && err == nil && len(items) == 1 && items[0].Parts <= 1
}

// parts returns how many batches make a step.
func (s *Spec) parts() int { return max(s.Microbatches, s.Parts, 1) }
