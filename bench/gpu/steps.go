package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"plimsoll/executor"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/kernels"
	"plimsoll/models"
)

// stepRow is the loss of a training step on the device beside the CPU's in float32.
type stepRow struct {
	Model     string  `json:"model"`
	Image     int     `json:"image"`
	Batch     int     `json:"batch"`
	DType     string  `json:"dtype"` // on the device
	Step      int     `json:"step"`
	Loss      float64 `json:"loss"`
	Reference float64 `json:"cpu_loss"`
	Moved     float64 `json:"moved"`     // relative, how far the CPU's own loss moves when weights are moved by a rounding of the type
	Tolerance float64 `json:"tolerance"` // relative
	Right     bool    `json:"right"`
}

// trainedSteps are enough to see gradients and an update: the second loss depends on all of them.
const trainedSteps = 2

// tolerances of a loss. In bfloat16 each activation is rounded, in TF32 each factor, and a loss sums up the errors of some hundred
// layers. Where batch normalization has few values, a step amplifies roundings. There a loss may differ by mostMoved times what
// the CPU's own loss moves by when its weights are moved by noises of themselves.
var (
	tolerances = map[kernels.DType]float64{kernels.Float32: 1e-4, kernels.TF32: 1e-2, kernels.BFloat16: 3e-2}
	noises     = map[kernels.DType]float32{kernels.Float32: 0x1p-22, kernels.TF32: 0x1p-12, kernels.BFloat16: 0x1p-9}
)

const mostMoved = 4

var errWrong = errors.New("losses differ from the CPU's")

func measureSteps(ctx context.Context, p *part) error {
	cases := []models.Config{{Batch: 8, Image: 64, Classes: classes}}
	names := []string{"resnet50", "densenet121"}
	if p.tiny {
		cases, names = []models.Config{{Batch: 4, Image: 12, Classes: 5}}, []string{"tiny", "resnet20"}
	}
	rows, wrong := []stepRow{}, 0
	p.printf("| model | image | batch | type | step | loss | CPU | relative difference | the CPU's own | at most |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, name := range names {
		for _, config := range cases {
			if err := ctx.Err(); err != nil {
				return err
			}
			more, err := p.compareSteps(name, config)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			for _, row := range more {
				if !row.Right {
					wrong++
				}
				p.printf("| %s | %d | %d | %s | %d | %.6g | %.6g | %.1e | %.1e | %.0e |\n", row.Model, row.Image, row.Batch, row.DType, row.Step,
					row.Loss, row.Reference, math.Abs(row.Loss/row.Reference-1), row.Moved, row.Tolerance)
			}
			rows = append(rows, more...)
		}
	}
	if p.Summary = fmt.Sprintf("%d losses compared with the CPU's, %d differ", len(rows), wrong); wrong > 0 {
		return cmp.Or(p.save(rows), fmt.Errorf("%w: %d of %d", errWrong, wrong, len(rows)))
	}
	return p.save(rows)
}

// compareSteps trains the same model on the same batch on the CPU, and on the device in each type.
func (p *part) compareSteps(name string, config models.Config) (rows []stepRow, err error) {
	config.DType = kernels.Float32
	want, err := p.losses("cpu", name, config, 0)
	if err != nil {
		return nil, err
	}
	for _, d := range floats {
		config.DType = kernels.Float32
		moved, err := p.losses("cpu", name, config, noises[d])
		if err != nil {
			return nil, err
		}
		config.DType = d
		got, err := p.losses(p.device, name, config, 0)
		if errors.Is(err, kernels.ErrType) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range got {
			row := stepRow{Model: name, Image: config.Image, Batch: config.Batch, DType: d.String(), Step: i, Loss: got[i], Reference: want[i]}
			row.Moved = math.Abs(moved[i]/want[i] - 1)
			row.Tolerance = max(tolerances[d], mostMoved*row.Moved)
			row.Right = math.Abs(got[i]/want[i]-1) <= row.Tolerance
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// losses are the losses of some steps. Weights are moved by noise of themselves, up or down.
func (p *part) losses(device, name string, config models.Config, noise float32) (all []float64, err error) {
	w, err := p.compile(device, name, config)
	if err != nil {
		return nil, err
	}
	extent, err := w.Extent(w.StoreAll())
	if err != nil {
		return nil, err
	}
	costs, plan := pipe.Unmeasured(w, w.StoreAll())
	r, err := p.start(w, device, costs, plan, pipe.Options{Limits: []int64{extent}})
	if err != nil {
		return nil, err
	}
	if err := shake(r, noise); err != nil {
		return nil, errors.Join(err, r.close())
	}
	for range trainedSteps {
		res, err := r.Step(rate)
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		all = append(all, res.Loss)
	}
	return all, r.close()
}

// compile compiles a model for a device's kernels.
func (p *part) compile(device, name string, config models.Config) (*executor.Workload, error) {
	on, err := p.open(device)
	if err != nil {
		return nil, err
	}
	w, err := workload(on.Library, name, config)
	return w, errors.Join(err, on.Device.Close())
}

// shake moves each weight by noise of itself, up or down.
func shake(e *runner, noise float32) error {
	random := rand.New(rand.NewPCG(5, 6))
	for _, t := range e.Tensors() {
		if t.Role != "weight" {
			continue
		}
		values := make([]float32, t.Desc.Elements())
		if err := e.Read(t, values); err != nil {
			return err
		}
		for i := range values {
			if random.Uint32()&1 == 0 {
				noise = -noise
			}
			values[i] += noise * values[i]
		}
		if err := e.Write(t, values); err != nil {
			return err
		}
	}
	return nil
}
