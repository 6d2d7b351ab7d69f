package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"plimsoll/bench/report"
	"plimsoll/executor"
	"plimsoll/internal/stats"
	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// offloadRow is a plan with transfers under one limit, beside the same computation with everything in memory.
type offloadRow struct {
	Strategy  string  `json:"strategy"`
	Share     float64 `json:"share"` // of what store-all takes beside weights, gradients and optimizer
	Duplex    bool    `json:"duplex"`
	Predicted float64 `json:"predicted_s"`
	Measured  float64 `json:"measured_s"` // on the device, a step with its update
	Compute   float64 `json:"compute_s"`  // measured, without the transfers
	Copies    float64 `json:"copies_s"`   // of the transfers alone, at the measured bandwidth
	Hidden    float64 `json:"hidden"`     // the share of that beside which something was computed
	PlanBytes int64   `json:"predicted_peak_bytes"`
	Extent    int64   `json:"extent_bytes"`
	NVML      int64   `json:"nvml_bytes,omitempty"`
	Same      bool    `json:"same_loss"` // to the bit, as store-all's
	Refused   string  `json:"refused,omitempty"`
}

type offloadFigures struct {
	Model    string       `json:"model"`
	Image    int          `json:"image"`
	Batch    int          `json:"batch"`
	DType    string       `json:"dtype"`
	StoreAll timing       `json:"store_all"`
	Peak     int64        `json:"store_all_peak_bytes"`
	Link     string       `json:"link"`
	Rows     []offloadRow `json:"rows"`
}

var (
	offloadShares     = []float64{0.6, 0.35}
	offloadStrategies = []string{"offload-dynprog", "auto"}
	errNotSame        = errors.New("plans that offload give other losses than store-all")
)

func measureOffload(ctx context.Context, p *part) error {
	j, d := job{"resnet50", 224, 128}, kernels.BFloat16
	shares := offloadShares
	if p.tiny {
		j, d, shares = job{"resnet20", 12, 4}, kernels.Float32, []float64{0.85, 0.65}
	}
	w, err := p.compile(p.device, j.model, models.Config{Batch: j.batch, Image: j.image, Classes: classes, DType: d})
	if err != nil {
		return err
	}
	all, peak, err := p.storeAll(w)
	if err != nil {
		return err
	}
	c, err := p.profile(ctx, w)
	if err != nil {
		return err
	}
	link := executor.LinkOf(c)
	f := &offloadFigures{Model: j.model, Image: j.image, Batch: j.batch, DType: d.String(), StoreAll: all, Peak: peak, Link: units.Rate(link.Bandwidth, "B")}
	p.printf("%s, %v; store-all takes %s and %s, of which %s weights, gradients and optimizer; limits are shares of the rest. The link to host memory: %s.\n\n",
		describeRun(j.model, j.image, j.batch), d, units.Seconds(f.StoreAll.Device), units.Bytes(f.Peak), units.Bytes(w.StaticBytes()), f.Link)
	p.printf("| limit | strategy | duplex | predicted | measured | error | without transfers | transfers alone | hidden | planned peak | extent | NVML | loss as store-all's |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, share := range shares {
		for _, name := range offloadStrategies {
			for _, duplex := range []bool{false, true} {
				row := offloadRow{Strategy: name, Share: share, Duplex: duplex}
				if err := p.offloadAt(ctx, w, c, f, &row); err != nil {
					return fmt.Errorf("%s at %.0f %%: %w", name, 100*share, err)
				}
				f.Rows = append(f.Rows, row)
				p.printOffload(row)
				if err := p.save(f); err != nil {
					return err
				}
			}
		}
	}
	return p.judgeOffload(f)
}

// offloadAt plans and runs a row, and its computation alone.
func (p *part) offloadAt(ctx context.Context, w *executor.Workload, c *chain.Chain, f *offloadFigures, row *offloadRow) error {
	link := executor.LinkOf(c)
	link.Duplex = row.Duplex
	c, err := executor.WithLink(c, link)
	if err != nil {
		return err
	}
	limit := w.StaticBytes() + int64(row.Share*float64(f.Peak-w.StaticBytes()))
	t, err := p.along(ctx, w, c, row.Strategy, limit, strategy.Options{})
	if row.Refused = t.refused(); err != nil || row.Refused != "" {
		return err
	}
	compute, err := p.timeAlone(w, withoutTransfers(t.Sequence()))
	if err != nil {
		return err
	}
	row.Predicted, row.PlanBytes = t.seconds, t.bytes
	row.Measured, row.Extent, row.NVML, row.Same = t.Device, t.Extent, t.NVML, t.Loss == f.StoreAll.Loss
	row.Compute, row.Hidden = compute.Device, 1
	if row.Copies, err = transferSeconds(c, t.Plan); row.Copies > 0 {
		row.Hidden = min(max(1-(row.Measured-row.Compute)/row.Copies, 0), 1)
	}
	return err
}

// transferSeconds returns the predicted time of a plan's transfers together.
func transferSeconds(c *chain.Chain, plan *pipeline.Plan) (seconds float64, err error) {
	sim, err := schedule.Simulate(c, plan.Sequence(), plan.Limits())
	if err != nil {
		return 0, err
	}
	for i, op := range plan.Sequence() {
		if op.Kind.Transfer() {
			seconds += sim.End[i] - sim.Start[i]
		}
	}
	return seconds, nil
}

// withoutTransfers returns the computation of a sequence. Activations that left stay, as they come back before they are
// read.
func withoutTransfers(seq schedule.Sequence) schedule.Sequence {
	return slices.DeleteFunc(slices.Clone(seq), func(op schedule.Op) bool { return op.Kind.Transfer() })
}

func (p *part) printOffload(row offloadRow) {
	if row.Refused != "" {
		p.printf("| %.0f %% | %s | %v | %s | | | | | | | | | |\n", 100*row.Share, row.Strategy, row.Duplex, row.Refused)
		return
	}
	p.printf("| %.0f %% | %s | %v | %s | %s | %+.1f %% | %s | %s | %.0f %% | %s | %s | %s | %v |\n", 100*row.Share, row.Strategy, row.Duplex,
		units.Seconds(row.Predicted), units.Seconds(row.Measured), 100*report.TimeError(row.Predicted, row.Measured), units.Seconds(row.Compute),
		units.Seconds(row.Copies), 100*row.Hidden, units.Bytes(row.PlanBytes), units.Bytes(row.Extent), byNVML(row.NVML), row.Same)
}

func (p *part) judgeOffload(f *offloadFigures) error {
	var errs, hidden []float64
	other := 0
	for _, row := range f.Rows {
		if row.Refused != "" {
			continue
		}
		errs, hidden = append(errs, math.Abs(report.TimeError(row.Predicted, row.Measured))), append(hidden, row.Hidden)
		if !row.Same {
			other++
		}
	}
	p.Summary = fmt.Sprintf("%d plans that offload, median error of the predicted time %.1f %%, %.0f %% of the transfers hidden", len(errs), 100*stats.Median(errs), 100*stats.Median(hidden))
	if err := p.save(f); err != nil || other == 0 {
		return err
	}
	return fmt.Errorf("%w: %d of %d", errNotSame, other, len(errs))
}
