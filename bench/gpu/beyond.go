package main

import (
	"context"
	"fmt"

	"plimsoll/bench/report"
	"plimsoll/internal/ram"
	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/strategy"
)

// beyondRow is a step whose store-all is larger than the device: of ours, or of PyTorch with the same memory.
type beyondRow struct {
	System    string  `json:"system"`
	Precision string  `json:"precision"`
	Mode      string  `json:"mode"`
	Predicted float64 `json:"predicted_s,omitempty"`
	StepS     float64 `json:"step_s"`
	Images    float64 `json:"images_per_s"`
	PlanBytes int64   `json:"predicted_peak_bytes,omitempty"`
	PeakBytes int64   `json:"peak_bytes"` // ours: the arena's extent, weights included
	NVML      int64   `json:"nvml_bytes,omitempty"`
	Error     string  `json:"error,omitempty"`
}

type beyondFigures struct {
	Model    string      `json:"model"`
	Image    int         `json:"image"`
	Batch    int         `json:"batch"`
	Device   int64       `json:"device_bytes"`    // that an arena can have
	StoreAll int64       `json:"store_all_bytes"` // more than that
	Rows     []beyondRow `json:"rows"`
}

var beyondStrategies = []string{"rotor", "auto"}

// measureBeyond trains a batch that store-all does not fit in the whole device with: measured, planned and trained within it.
func measureBeyond(ctx context.Context, p *part) error {
	f := &beyondFigures{Model: "resnet101", Image: 1000, Rows: []beyondRow{}}
	types := []kernels.DType{kernels.BFloat16, kernels.TF32}
	if p.tiny {
		f.Model, f.Image, types = "resnet20", 12, types[1:]
	}
	if err := p.oversized(f, types[0]); err != nil {
		return err
	}
	p.printf("%s: store-all takes %s in %v, the device has %s.\n\n", describeRun(f.Model, f.Image, f.Batch), units.Bytes(f.StoreAll), types[0], units.Bytes(f.Device))
	p.printf("| system | precision | plan | predicted | measured | error | images/s | planned peak | peak | NVML |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, d := range types {
		if err := p.beyondOurs(ctx, f, d); err != nil {
			return err
		}
	}
	p.beyondPeers(ctx, f)
	return p.save(f)
}

// oversized finds the batch: the smallest power of two whose store-all is larger than the device. A tiny device is made instead.
func (p *part) oversized(f *beyondFigures, d kernels.DType) error {
	for f.Batch = 8; ; f.Batch *= 2 {
		w, err := p.compile(p.device, f.Model, models.Config{Batch: f.Batch, Image: f.Image, Classes: classes, DType: d})
		if err != nil {
			return err
		}
		if f.StoreAll, err = w.Extent(w.StoreAll()); err != nil {
			return err
		}
		if p.tiny {
			p.memory = w.StaticBytes() + (f.StoreAll-w.StaticBytes())*2/3
		}
		t, err := p.target()
		if err != nil {
			return err
		}
		f.Device = t.Device.Info().Memory
		if err := t.Device.Close(); err != nil || f.StoreAll > f.Device {
			return err
		}
	}
}

// beyondOurs adds our rows of a type.
func (p *part) beyondOurs(ctx context.Context, f *beyondFigures, d kernels.DType) error {
	w, err := p.compile(p.device, f.Model, models.Config{Batch: f.Batch, Image: f.Image, Classes: classes, DType: d})
	if err != nil {
		return err
	}
	host, err := ram.HalfOfAvailable()
	if err != nil {
		return err
	}
	c, err := p.profile(ctx, w)
	if err != nil {
		return err
	}
	for _, name := range beyondStrategies {
		row := beyondRow{System: ours, Precision: short(d), Mode: name}
		t, err := p.along(ctx, w, c, name, f.Device, strategy.Options{HostMemory: host})
		if err != nil {
			return err
		}
		if t.small != nil {
			row.Error = t.small.Error()
		} else {
			row.Mode, row.Predicted, row.PlanBytes = t.Name(), t.seconds, t.bytes
			row.StepS, row.Images, row.PeakBytes, row.NVML = t.Device, float64(f.Batch)/t.Wall, t.Extent, t.NVML
		}
		if err := p.addBeyond(f, row); err != nil {
			return err
		}
	}
	return nil
}

// beyondPeers adds PyTorch's rows, whose allocator may have as much as our arena.
func (p *part) beyondPeers(ctx context.Context, f *beyondFigures) {
	j := job{f.Model, f.Image, f.Batch}
	if p.tiny { // the smallest that PyTorch has too
		j = job{"resnet18", 32, 4}
	}
	all := []string{
		j.peer("bf16", "checkpoint"), j.peer("bf16", "save_on_cpu"), j.peer("bf16", "eager"), j.peer("tf32", "checkpoint"), j.peer("tf32", "eager"), j.peer("bf16", "compile"),
	}
	err := p.peerRows(ctx, append([]string{"--memory", fmt.Sprint(f.Device)}, all...), func(row peerRow) error {
		s, err := speedOf(row)
		if err != nil {
			return err
		}
		return p.addBeyond(f, beyondRow{System: s.System, Precision: s.Precision, Mode: s.Mode, StepS: s.StepS, Images: s.Images, PeakBytes: s.PeakBytes, Error: s.Error})
	})
	if err != nil {
		p.printf("| PyTorch | | %v | | | | | | | |\n", err)
	}
}

func (p *part) addBeyond(f *beyondFigures, row beyondRow) error {
	f.Rows = append(f.Rows, row)
	if row.Error != "" {
		p.printf("| %s | %s | %s: %s | | | | | | | |\n", row.System, row.Precision, row.Mode, row.Error)
		return p.save(f)
	}
	predicted, off, planned := "", "", ""
	if row.Predicted > 0 {
		predicted, off, planned = units.Seconds(row.Predicted), fmt.Sprintf("%+.1f %%", 100*report.TimeError(row.Predicted, row.StepS)), units.Bytes(row.PlanBytes)
		p.sumUp("%s by %s %.1f images/s, predicted within %s", row.Precision, row.Mode, row.Images, off)
	}
	p.printf("| %s | %s | %s | %s | %s | %s | %.1f | %s | %s | %s |\n", row.System, row.Precision, row.Mode, predicted, units.Seconds(row.StepS), off,
		row.Images, planned, units.Bytes(row.PeakBytes), byNVML(row.NVML))
	return p.save(f)
}
