package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"plimsoll/executor"
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
	Tolerance float64 `json:"tolerance"` // relative
	Right     bool    `json:"right"`
}

// trainedSteps are enough to see gradients and an update: the second loss depends on all of them.
const trainedSteps = 2

// tolerances of a loss. In bfloat16 each activation is rounded, in TF32 each factor, and a loss sums up the errors of some
// hundred layers.
var tolerances = map[kernels.DType]float64{kernels.Float32: 1e-4, kernels.TF32: 1e-2, kernels.BFloat16: 3e-2}

var errWrong = errors.New("losses differ from the CPU's")

func measureSteps(ctx context.Context, p *part) error {
	cases := []models.Config{{Batch: 8, Image: 64, Classes: classes}}
	names := []string{"resnet50", "densenet121"}
	if p.tiny {
		cases, names = []models.Config{{Batch: 4, Image: 12, Classes: 5}}, []string{"tiny", "resnet20"}
	}
	rows, wrong := []stepRow{}, 0
	p.printf("| model | image | batch | type | step | loss | CPU | relative difference | at most |\n|---|---|---|---|---|---|---|---|---|\n")
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
				p.printf("| %s | %d | %d | %s | %d | %.6g | %.6g | %.1e | %.0e |\n", row.Model, row.Image, row.Batch, row.DType, row.Step,
					row.Loss, row.Reference, math.Abs(row.Loss/row.Reference-1), row.Tolerance)
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
	want, err := p.losses("cpu", name, config)
	if err != nil {
		return nil, err
	}
	for _, d := range floats {
		config.DType = d
		got, err := p.losses(p.device, name, config)
		if errors.Is(err, kernels.ErrType) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range got {
			rows = append(rows, stepRow{
				Model: name, Image: config.Image, Batch: config.Batch, DType: d.String(), Step: i, Loss: got[i], Reference: want[i],
				Tolerance: tolerances[d], Right: math.Abs(got[i]/want[i]-1) <= tolerances[d],
			})
		}
	}
	return rows, nil
}

func (p *part) losses(device, name string, config models.Config) (all []float64, err error) {
	w, err := p.compile(device, name, config)
	if err != nil {
		return nil, err
	}
	extent, err := w.Extent(w.StoreAll())
	if err != nil {
		return nil, err
	}
	r, err := p.start(w, device, w.StoreAll(), executor.Options{Limit: extent})
	if err != nil {
		return nil, err
	}
	for range trainedSteps {
		res, err := r.step()
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
