package validate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"plimsoll/bench/report"
	"plimsoll/bench/timeline"
	"plimsoll/executor/train"
	"plimsoll/internal/stats"
	"plimsoll/internal/units"
	"plimsoll/planner/pipeline"
)

// ErrDurations is returned for a plan whose tasks do not take the same time for every minibatch: simulated time gives a task
// one duration.
var ErrDurations = errors.New("tasks of one stage take different times, which simulated time does not know")

// Run plans and measures the fleet. Errors: those of running. A strategy that has no plan is none, but an entry of Skipped,
// unless no strategy has one: then the first of them.
func (f *Fleet) Run(ctx context.Context) (*Report, error) {
	r := f.report()
	if err := f.plan(ctx, r); err != nil {
		return nil, err
	}
	if len(r.Rows) == 0 {
		return nil, r.nothing()
	}
	known := map[*train.Job]*references{}
	for i := range r.Rows {
		row := &r.Rows[i]
		if known[row.from.Job] == nil {
			var err error
			if known[row.from.Job], err = newReferences(f, row.from); err != nil {
				return nil, err
			}
		}
		if err := f.measure(ctx, row, known[row.from.Job]); err != nil {
			return nil, fmt.Errorf("%s on %s: %w", row.Strategy, row.Devices, err)
		}
		if f.Progress != nil {
			f.Progress(i+1, len(r.Rows))
		}
	}
	r.conclude()
	return r, nil
}

// report returns the report without rows.
func (f *Fleet) report() *Report {
	j := f.Cases[0].Job
	r := &Report{
		Title: fmt.Sprintf("%s on %s: pipelines, predicted and measured", j.Model, j.Data), Simulated: f.Simulated,
		Model: j.Model, Samples: j.Images(), SampleSize: j.SampleSize(), Data: j.Data, Device: j.Device.Model, Seed: j.Seed,
		Note: updateNote, Rows: []Row{}, Skipped: []Skip{}, Duels: []Duel{},
	}
	if j.SampleSize().OfImages() {
		r.Images = r.Samples
	}
	if f.Simulated {
		r.Title, r.Note = r.Title+" (simulated time)", simulatedNote
	}
	return r
}

// plan makes a row of every strategy that has a plan.
func (f *Fleet) plan(ctx context.Context, r *Report) error {
	for i := range f.Cases {
		c := &f.Cases[i]
		for _, limit := range f.Limits {
			for _, s := range c.Strategies {
				row, err := f.planOne(ctx, c, s, limit)
				switch {
				case ctx.Err() != nil:
					return ctx.Err()
				case err != nil && strings.HasPrefix(err.Error(), "BUG"):
					return err
				case err != nil:
					r.Skipped = append(r.Skipped, Skip{Strategy: s.Name, Devices: c.Job.Devices, Limit: limit.String(), Draw: c.Draw, Reason: err.Error(), err: err})
				default:
					r.Rows = append(r.Rows, *row)
				}
			}
		}
	}
	return nil
}

func (f *Fleet) planOne(ctx context.Context, c *Case, s pipeline.Strategy, limit units.Size) (*Row, error) {
	options := pipeline.Options{Accounting: pipeline.Saved}
	if s.Type == pipeline.Flushing {
		options.Microbatches, options.Zero = c.Job.Microbatches, f.Zero
	} else {
		options.Versions = f.Versions
	}
	p, err := c.Job.PlanPipe(ctx, c.Chain, train.PipeRequest{Strategy: s, Platform: c.Platform, Options: options, Portals: f.Portals, Limit: limit.Of})
	if err != nil {
		return nil, err
	}
	row := &Row{
		Strategy: s.Name, Devices: c.Job.Devices, Limit: limit.String(), LimitBytes: p.Limit, Draw: c.Draw,
		Kind: "periodic", Versions: cmp.Or(p.Versions, pipeline.DoubleBuffered), Stages: len(p.Stages),
		Minibatches: p.Repeats(), RowTimes: RowTimes{PredictedS: cmp.Or(p.Predicted.Period, p.Period)}, pipe: p, from: c,
	}
	if p.IsFlush() {
		row.Kind, row.PredictedS = "flush", p.Predicted.Makespan
		if !f.Simulated { // else updates take no time
			row.PredictedS = p.PredictedSeconds()
		}
	}
	if row.line, err = timeline.NewPipeline(p.Costs, p.Plan, p.Needs, p.Holds); err != nil {
		return nil, err
	}
	if row.line.Simulated = f.Simulated; !f.Simulated {
		row.Shared = p.SharedProcessors(c.Job, 1)
	}
	if f.Simulated && !row.line.Flat.Even() {
		return nil, fmt.Errorf("%s: %w", s.Name, ErrDurations)
	}
	return row, row.foresee()
}

// foresee fills in what the plan says about each device.
func (r *Row) foresee() error {
	judged, err := pipeline.Check(r.pipe.Costs.Chain, r.pipe.Costs.Platform, r.pipe.Plan)
	if err != nil {
		return fmt.Errorf("BUG: %s made a plan that breaks a rule: %w", r.Strategy, err)
	}
	r.PlannedBubble = judged.Bubble
	for d, m := range r.pipe.Needs {
		r.PerDevice = append(r.PerDevice, Device{
			PredictedIdle:      max(0, judged.PerDeviceBubble[d]), // of a period that is rounded
			PredictedPeakBytes: m.Peak, ExtentBytes: m.Extent,
		})
	}
	return nil
}

// nothing is the error of a fleet in which no strategy has a plan.
func (r *Report) nothing() error {
	if len(r.Skipped) == 0 {
		return errors.New("BUG: a fleet without strategies")
	}
	s := r.Skipped[0]
	return fmt.Errorf("no strategy has a plan; %s on %s: %w", s.Strategy, s.Devices, s.err)
}

// conclude compares the rows.
func (r *Report) conclude() {
	var errs []float64
	for i := range r.Rows {
		errs = append(errs, math.Abs(report.TimeError(r.Rows[i].PredictedS, r.Rows[i].MeasuredS)))
	}
	r.MedianError, r.WorstError = stats.Median(errs), slices.Max(errs)
	if r.Simulated { // else the devices slow each other down
		r.Duels = append(r.Duels, duels(r.Rows)...)
	}
}

// Size returns how many rows were measured.
func (r *Report) Size() int { return len(r.Rows) }

// Failures names the rows that broke a promise about bits or bytes; empty when all kept them.
func (r *Report) Failures() (all []string) {
	for i := range r.Rows {
		row := &r.Rows[i]
		var broken []string
		if row.Identical != nil && !*row.Identical {
			broken = append(broken, "differs from one device: "+row.Difference)
		}
		for d := range row.PerDevice {
			x := &row.PerDevice[d]
			if x.MeasuredPeakBytes > 0 && x.MeasuredPeakBytes != x.PredictedPeakBytes {
				broken = append(broken, fmt.Sprintf("the measured peak of %s is %d bytes, predicted %d", x.Name, x.MeasuredPeakBytes, x.PredictedPeakBytes))
			}
			if x.TouchedBytes > 0 && !x.Exact() {
				broken = append(broken, fmt.Sprintf("%s was written up to byte %d, predicted %d", x.Name, x.TouchedBytes, x.ExtentBytes))
			}
		}
		if len(broken) > 0 {
			all = append(all, fmt.Sprintf("%s on %s at %s: %s", row.Strategy, row.Devices, row.Limit, strings.Join(broken, ", ")))
		}
	}
	return all
}
