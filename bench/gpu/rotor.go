package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"plimsoll/bench/report"
	"plimsoll/executor"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/internal/stats"
	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/strategy"
)

// rotorRow is rotor's plan under one limit, predicted beside measured. Sizes include weights, gradients and optimizer.
type rotorRow struct {
	Limit     int64   `json:"limit_bytes"`
	Share     float64 `json:"share"` // of what store-all takes beside weights, gradients and optimizer
	Predicted float64 `json:"predicted_s"`
	Measured  float64 `json:"measured_s"` // on the device, a step with its update
	PeakBytes int64   `json:"peak_bytes"` // as it is laid out
	PlanBytes int64   `json:"predicted_peak_bytes"`
	Extent    int64   `json:"extent_bytes"`
	NVML      int64   `json:"nvml_bytes,omitempty"` // by which the memory in use rose
	Images    float64 `json:"images_per_s"`
	Forwards  int     `json:"forwards"`
	Loss      float64 `json:"loss"`
	Same      bool    `json:"same_loss"` // to the bit, as store-all's
	Refused   string  `json:"refused,omitempty"`
}

type rotorFigures struct {
	Model    string     `json:"model"`
	Image    int        `json:"image"`
	Batch    int        `json:"batch"`
	DType    string     `json:"dtype"`
	StoreAll timing     `json:"store_all"`
	Peak     int64      `json:"store_all_peak_bytes"`
	Error    float64    `json:"median_error"` // of the predicted times, a share
	Rows     []rotorRow `json:"rows"`
	Audit    *audited   `json:"audit,omitempty"`
}

// rotorPart is the part that measures rotor's plans.
type rotorPart struct {
	*part
	rotorFigures
}

// audited is a step of a smaller input that checked after every op what it wrote.
type audited struct {
	Image     int   `json:"image"`
	Limit     int64 `json:"limit_bytes"`
	PlanBytes int64 `json:"predicted_peak_bytes"`
	PeakBytes int64 `json:"peak_bytes"` // measured
	Extent    int64 `json:"extent_bytes"`
}

var shares = []float64{1, 0.85, 0.7, 0.6, 0.5, 0.4}

var errOtherLoss = errors.New("plans that recompute give other losses than store-all")

func measureRotor(ctx context.Context, p *part) error {
	j, d := job{"resnet101", 1000, 8}, kernels.BFloat16
	if p.tiny {
		j, d = job{"resnet20", 12, 4}, kernels.Float32
	}
	w, err := p.compile(p.device, j.model, models.Config{Batch: j.batch, Image: j.image, Classes: classes, DType: d})
	if err != nil {
		return err
	}
	r := &rotorPart{part: p, rotorFigures: rotorFigures{Model: j.model, Image: j.image, Batch: j.batch, DType: d.String()}}
	if r.StoreAll, r.Peak, err = p.storeAll(w); err != nil {
		return err
	}
	c, err := p.profile(ctx, w)
	if err != nil {
		return err
	}
	p.printf("%s, %v; store-all takes %s and %s, of which %s weights, gradients and optimizer; limits are shares of the rest.\n\n",
		describeRun(j.model, j.image, j.batch), d, units.Seconds(r.StoreAll.Device), units.Bytes(r.Peak), units.Bytes(w.StaticBytes()))
	p.printf("| limit | predicted | measured | error | predicted peak | peak | extent | NVML | images/s | forwards | loss as store-all's |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, share := range shares {
		if err := r.planAt(ctx, w, c, share); err != nil {
			return fmt.Errorf("at %.0f %%: %w", 100*share, err)
		}
	}
	if err := r.audit(ctx, d); err != nil {
		return err
	}
	return r.judge()
}

// audit measures a peak byte by byte: at 224 pixels, as every op's memory is read back.
func (r *rotorPart) audit(ctx context.Context, d kernels.DType) error {
	a := &audited{Image: min(r.Image, 224)}
	w, err := r.compile(r.device, r.Model, models.Config{Batch: r.Batch, Image: a.Image, Classes: classes, DType: d})
	if err != nil {
		return err
	}
	peak, err := w.PeakBytes(w.StoreAll())
	if err != nil {
		return err
	}
	a.Limit = w.StaticBytes() + (peak-w.StaticBytes())*6/10
	c, err := r.profile(ctx, w)
	if err != nil {
		return err
	}
	rotor, err := planner.Lookup("rotor")
	if err != nil {
		return err
	}
	plan, err := executor.Plan(ctx, w, c, rotor, a.Limit, strategy.Options{})
	if err != nil {
		return err
	}
	e, err := r.start(w, r.device, pipe.Costs{Chain: c, Platform: plan.Platform}, plan, pipe.Options{Limits: []int64{a.Limit}, Audit: true})
	if err != nil {
		return err
	}
	res := e.Audited()[0]
	if err := e.close(); err != nil {
		return err
	}
	a.PlanBytes, a.PeakBytes, a.Extent = plan.Peak()+w.StaticBytes(), res.PeakBytes, res.ExtentBytes
	r.Audit = a
	r.printf("\nAn audited step at %d pixels within %s: planned peak %s, measured %s, highest byte written %s.\n", a.Image,
		units.Bytes(a.Limit), units.ExactBytes(a.PlanBytes), units.ExactBytes(a.PeakBytes), units.ExactBytes(a.Extent))
	if a.PeakBytes != a.PlanBytes || a.Extent > a.Limit {
		return errOtherPeak
	}
	return nil
}

var errOtherPeak = errors.New("the audited step has another peak than planned, or left its limit")

// planAt adds the row of a limit, a share of what store-all takes beside static memory.
func (r *rotorPart) planAt(ctx context.Context, w *executor.Workload, c *chain.Chain, share float64) error {
	static := w.StaticBytes()
	row := rotorRow{Limit: static + int64(share*float64(r.Peak-static)), Share: share}
	t, err := r.along(ctx, w, c, "rotor", row.Limit, strategy.Options{})
	if err != nil {
		return err
	}
	if row.Refused = t.refused(); row.Refused == "" {
		row.PeakBytes, row.Extent, row.NVML, row.Predicted, row.PlanBytes = t.timing.Peak, t.Extent, t.NVML, t.seconds, t.bytes
		row.Measured, row.Images, row.Loss, row.Same = t.Device, float64(r.Batch)/t.Wall, t.Loss, t.Loss == r.StoreAll.Loss
		row.Forwards = len(t.Sequence()) - len(w.Layers)
	}
	return r.add(row)
}

func (r *rotorPart) add(row rotorRow) error {
	r.Rows = append(r.Rows, row)
	if row.Refused != "" {
		r.printf("| %.0f %% | %s | | | | | | | | | |\n", 100*row.Share, row.Refused)
		return r.save(&r.rotorFigures)
	}
	r.printf("| %.0f %% | %s | %s | %+.1f %% | %s | %s | %s | %s | %.1f | %d | %v |\n", 100*row.Share, units.Seconds(row.Predicted), units.Seconds(row.Measured),
		100*report.TimeError(row.Predicted, row.Measured), units.Bytes(row.PlanBytes), units.Bytes(row.PeakBytes), units.Bytes(row.Extent), byNVML(row.NVML), row.Images, row.Forwards, row.Same)
	return r.save(&r.rotorFigures)
}

// judge sums the rows up. Bits and bytes are promises; a wrong time is a figure.
func (r *rotorPart) judge() error {
	var errs []float64
	other := 0
	for _, row := range r.Rows {
		if row.Refused != "" {
			continue
		}
		errs = append(errs, math.Abs(report.TimeError(row.Predicted, row.Measured)))
		if !row.Same || row.PeakBytes != row.PlanBytes {
			other++
		}
	}
	r.Error = stats.Median(errs)
	r.Summary = fmt.Sprintf("%d limits, median error of the predicted time %.1f %%", len(errs), 100*r.Error)
	if err := r.save(&r.rotorFigures); err != nil || other == 0 {
		return err
	}
	return fmt.Errorf("%w, or another peak than planned: %d of %d", errOtherLoss, other, len(errs))
}
