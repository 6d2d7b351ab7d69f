package main

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"plimsoll/executor"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/internal/stats"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
)

// optimizer is the same on both sides of every comparison.
var optimizer = kernels.SGD{Momentum: 0.9, WeightDecay: 1e-4}

const (
	classes    = 1000
	vocabulary = 50257 // GPT-2's
)

func workload(lib kernels.Library, name string, config models.Config) (*executor.Workload, error) {
	m, err := models.New(name, config)
	if err != nil {
		return nil, err
	}
	return executor.Compile(m, lib, optimizer)
}

// runner is an executor with the device that it owns, and the batch that it trains on.
type runner struct {
	*pipe.Stepper
	on    executor.Target
	batch *pipe.Batch
}

// start binds a plan to a fresh device and trains on a random batch.
func (p *part) start(w *executor.Workload, device string, costs pipe.Costs, plan *pipeline.Plan, opt pipe.Options) (*runner, error) {
	on, err := p.open(device)
	if err != nil {
		return nil, err
	}
	r := &runner{on: on, batch: pipe.NewBatch(w.Model)}
	fill(w.Model, r.batch.Input, r.batch.Target)
	opt.Seed, opt.Feed, opt.Timed = 1, r.batch, &pipe.Timed{}
	if w.StagedBytes() > 0 {
		opt.Feed = newPixels(r.batch)
	}
	if r.Stepper, err = pipe.NewStepper(w, on, costs, plan, opt); err != nil {
		return nil, errors.Join(err, on.Device.Close())
	}
	return r, nil
}

func (r *runner) close() error { return r.on.Device.Close() }

// fill draws the same random images and labels for every executor of a model.
func fill(m *models.Model, images []float32, labels []int32) {
	random := rand.New(rand.NewPCG(3, 4))
	for i := range images {
		images[i] = random.Float32()*2 - 1
	}
	for i := range labels {
		labels[i] = int32(random.IntN(m.Classes))
	}
}

// pixels is a batch of images that are bytes.
type pixels struct {
	*pipe.Batch
	bytes []uint8
}

func newPixels(b *pipe.Batch) pixels {
	p := pixels{b, make([]uint8, len(b.Input))}
	for i, x := range b.Input {
		p.bytes[i] = uint8(127.5 * (x + 1))
	}
	return p
}

// Pixels implements pipeline.PixelFeed.
func (p pixels) Pixels(_ int, dst []uint8) error {
	if copy(dst, p.bytes) < len(dst) {
		return fmt.Errorf("a batch of %d bytes is asked for, of %d", len(dst), len(p.bytes))
	}
	return nil
}

// palette is the value of each byte in each channel, from -1 to 1.
func palette(channels int) (all []float32) {
	for range channels {
		for b := range 256 {
			all = append(all, float32(b)/127.5-1)
		}
	}
	return all
}

// rate is so small that the rounding of one update stays far below what losses are compared to.
const rate = 1e-3

// timing is the medians of some steps.
type timing struct {
	Wall         float64 `json:"step_s"`               // as the caller sees a step, the batch's upload included
	Device       float64 `json:"device_step_s"`        // of the sequence and the update, by the device's events
	Loss         float64 `json:"loss"`                 // of the last step
	NVML         int64   `json:"nvml_bytes,omitempty"` // by which the memory in use rose
	Peak, Extent int64   `json:"-"`                    // as they are laid out, weights included
}

// time runs so many steps that do not count, then some that do.
func (r *runner) time(warmup, steps int) (t timing, err error) {
	var wall, device []float64
	for i := range warmup + steps {
		res, err := r.Step(rate)
		if err != nil {
			return t, err
		}
		if took := res.Parts[0]; i >= warmup {
			wall, device = append(wall, res.Seconds), append(device, took.Sequence+took.Update)
		}
		t.Loss = res.Loss
	}
	t.Wall, t.Device = stats.Median(wall), stats.Median(device)
	return t, nil
}

// short names a type as PyTorch's peers do.
func short(d kernels.DType) string {
	switch d {
	case kernels.BFloat16:
		return "bf16"
	case kernels.TF32:
		return "tf32"
	}
	return "fp32"
}

func describeRun(model string, image, batch int) string {
	return fmt.Sprintf("%s at %d, batch %d", model, image, batch)
}
