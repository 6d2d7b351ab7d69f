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

// beyondPart is the part that trains what store-all has no room for.
type beyondPart struct {
	*part
	beyondFigures
}

var beyondStrategies = []string{"rotor", "auto"}

// measureBeyond trains a batch that store-all does not fit in the whole device with: measured, planned and trained within it.
func measureBeyond(ctx context.Context, p *part) error {
	b := &beyondPart{part: p, beyondFigures: beyondFigures{Model: "resnet101", Image: 1000, Rows: []beyondRow{}}}
	types := []kernels.DType{kernels.BFloat16, kernels.TF32}
	if p.tiny {
		b.Model, b.Image, types = "resnet20", 12, types[1:]
	}
	if err := b.findBatch(types[0]); err != nil {
		return err
	}
	p.printf("%s: store-all takes %s in %v, the device has %s.\n\n", describeRun(b.Model, b.Image, b.Batch), units.Bytes(b.StoreAll), types[0], units.Bytes(b.Device))
	p.printf("| system | precision | plan | predicted | measured | error | images/s | planned peak | peak | NVML |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, d := range types {
		if err := b.addOurs(ctx, d); err != nil {
			return err
		}
	}
	b.addPeers(ctx)
	return p.save(&b.beyondFigures)
}

// findBatch finds the batch: the smallest power of two whose store-all is larger than the device. A tiny device is made instead.
func (b *beyondPart) findBatch(d kernels.DType) error {
	for b.Batch = 8; ; b.Batch *= 2 {
		w, err := b.compile(b.device, b.Model, models.Config{Batch: b.Batch, Image: b.Image, Classes: classes, DType: d})
		if err != nil {
			return err
		}
		if b.StoreAll, err = w.Extent(w.StoreAll()); err != nil {
			return err
		}
		if b.tiny {
			b.memory = w.StaticBytes() + (b.StoreAll-w.StaticBytes())*2/3
		}
		t, err := b.target()
		if err != nil {
			return err
		}
		b.Device = t.Device.Info().Memory
		if err := t.Device.Close(); err != nil || b.StoreAll > b.Device {
			return err
		}
	}
}

// addOurs adds our rows of a type.
func (b *beyondPart) addOurs(ctx context.Context, d kernels.DType) error {
	w, err := b.compile(b.device, b.Model, models.Config{Batch: b.Batch, Image: b.Image, Classes: classes, DType: d})
	if err != nil {
		return err
	}
	host, err := ram.HalfOfAvailable()
	if err != nil {
		return err
	}
	c, err := b.profile(ctx, w)
	if err != nil {
		return err
	}
	for _, name := range beyondStrategies {
		row := beyondRow{System: ours, Precision: short(d), Mode: name}
		t, err := b.along(ctx, w, c, name, b.Device, strategy.Options{HostMemory: host})
		if err != nil {
			return err
		}
		if t.small != nil {
			row.Error = t.small.Error()
		} else {
			row.Mode, row.Predicted, row.PlanBytes = t.Name(), t.seconds, t.bytes
			row.StepS, row.Images, row.PeakBytes, row.NVML = t.Device, float64(b.Batch)/t.Wall, t.Extent, t.NVML
		}
		if err := b.add(row); err != nil {
			return err
		}
	}
	return nil
}

// addPeers adds PyTorch's rows, whose allocator may have as much as our arena.
func (b *beyondPart) addPeers(ctx context.Context) {
	j := job{b.Model, b.Image, b.Batch}
	if b.tiny { // the smallest that PyTorch has too
		j = job{"resnet18", 32, 4}
	}
	all := []string{
		j.peer("bf16", "checkpoint"), j.peer("bf16", "save_on_cpu"), j.peer("bf16", "eager"), j.peer("tf32", "checkpoint"), j.peer("tf32", "eager"), j.peer("bf16", "compile"),
	}
	err := b.peerRows(ctx, append([]string{"--memory", fmt.Sprint(b.Device)}, all...), func(row peerRow) error {
		s, err := speedOf(row)
		if err != nil {
			return err
		}
		return b.add(beyondRow{System: s.System, Precision: s.Precision, Mode: s.Mode, StepS: s.StepS, Images: s.Images, PeakBytes: s.PeakBytes, Error: s.Error})
	})
	if err != nil {
		b.printf("| PyTorch | | %v | | | | | | | |\n", err)
	}
}

func (b *beyondPart) add(row beyondRow) error {
	b.Rows = append(b.Rows, row)
	if row.Error != "" {
		b.printf("| %s | %s | %s: %s | | | | | | | |\n", row.System, row.Precision, row.Mode, row.Error)
		return b.save(&b.beyondFigures)
	}
	predicted, off, planned := "", "", ""
	if row.Predicted > 0 {
		predicted, off, planned = units.Seconds(row.Predicted), fmt.Sprintf("%+.1f %%", 100*report.TimeError(row.Predicted, row.StepS)), units.Bytes(row.PlanBytes)
		b.sumUp("%s by %s %.1f images/s, predicted within %s", row.Precision, row.Mode, row.Images, off)
	}
	b.printf("| %s | %s | %s | %s | %s | %s | %.1f | %s | %s | %s |\n", row.System, row.Precision, row.Mode, predicted, units.Seconds(row.StepS), off,
		row.Images, planned, units.Bytes(row.PeakBytes), byNVML(row.NVML))
	return b.save(&b.beyondFigures)
}
