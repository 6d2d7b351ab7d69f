package bench

import (
	"context"
	"errors"
	"fmt"

	"plimsoll/bench/report"
	"plimsoll/executor"
	"plimsoll/executor/measure"
	"plimsoll/executor/train"
	"plimsoll/internal/stats"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// Run plans and measures the grid. Errors: those of planning and running; a limit that is too small for a strategy
// is none, but an entry of Skipped.
func (g *Grid) Run(ctx context.Context) (*Report, error) {
	r, err := g.plan(ctx)
	if err != nil {
		return nil, err
	}
	done, total := 0, len(r.Rows)*(g.Steps+1)
	progress := func(steps int) {
		if done += steps; g.Progress != nil {
			g.Progress(done, total)
		}
	}
	for i := range r.Rows {
		if err := g.measureMemory(ctx, &r.Rows[i]); err != nil {
			return nil, fmt.Errorf("%s at %s: %w", r.Rows[i].Strategy, r.Rows[i].Limit, err)
		}
		progress(1)
	}
	samples := measure.NewSamples(g.Job.Work)
	if err := g.measureTimes(ctx, r.Rows, samples, progress); err != nil {
		return nil, err
	}
	r.Reference = g.reference
	return r, g.predict(r, samples)
}

// predict simulates every plan with the costs of ops that were measured in turns with the plans' steps.
func (g *Grid) predict(r *Report, samples *measure.Samples) error {
	if len(r.Rows) == 0 {
		return nil
	}
	var err error
	if g.Latest, err = samples.Chain(); err != nil {
		return err
	}
	g.Latest.CopyContention(g.Chain)
	r.Drift = seconds(g.Latest) / seconds(g.Chain)
	alone, err := samples.Chain()
	if err != nil {
		return err
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		for c, seconds := range map[*chain.Chain]*float64{g.Latest: &row.PredictedS, alone: &row.AsAloneS} {
			sim, err := schedule.Resimulate(g.Chain, c, row.Plan.Sequence(), row.Plan.Limits())
			if err != nil {
				return err
			}
			*seconds = sim.Makespan + executor.UpdateSeconds(c)
		}
		row.Error = report.TimeError(row.PredictedS, row.MeasuredS)
		row.Interval[0], row.Interval[1] = stats.Interval([][]float64{row.times}, func(m []float64) float64 { return report.TimeError(row.PredictedS, m[0]) })
	}
	r.sumUp()
	return g.addReceipts(r)
}

// seconds returns the time of all ops of a chain and the update.
func seconds(c *chain.Chain) float64 {
	sum := executor.UpdateSeconds(c)
	for i := range c.Layers {
		sum += c.Layers[i].ForwardS + c.Layers[i].BackwardS
	}
	return sum
}

// plan makes a row of every strategy at every limit that it fits in.
func (g *Grid) plan(ctx context.Context) (*Report, error) {
	all, err := g.Job.StoreAllBytes()
	if err != nil {
		return nil, err
	}
	r := &Report{
		Model: g.Job.Model, Batch: g.Job.Config.Batch, SampleSize: g.Job.SampleSize(), Data: g.Job.Data,
		Device: g.Job.Device.Model, Steps: g.Steps, Seed: g.Job.Seed,
		StoreAllBytes: all, StaticBytes: g.Job.Work.StaticBytes(), DeviceBytes: g.Job.Device.Memory, Rows: []Row{}, Skipped: []Skip{},
	}
	for _, limit := range g.Limits {
		for _, s := range g.Strategies {
			if err := g.planOne(ctx, r, limit, s); err != nil {
				return nil, fmt.Errorf("%s at %s: %w", s.Name, limit.Name, err)
			}
		}
	}
	return r, nil
}

func (g *Grid) planOne(ctx context.Context, r *Report, limit Limit, s pipeline.Strategy) error {
	if err := train.CheckGradients(g.Job, s.Name); err != nil {
		return err
	}
	p, err := executor.Plan(ctx, g.Job.Work, g.Chain, s, limit.Bytes, g.Options)
	if small := (*executor.TooSmallError)(nil); errors.As(err, &small) {
		r.Skipped = append(r.Skipped, Skip{
			Strategy: s.Name, Limit: limit.Name, LimitBytes: limit.Bytes, SmallestBytes: small.Smallest,
			NeededBy: fmt.Sprintf("%v (%s)", small.Op, small.LayerName), Reason: small.Error(),
		})
		return nil
	}
	if host, ok := errors.AsType[*schedule.HostMemoryError](err); ok {
		r.Skipped = append(r.Skipped, Skip{Strategy: s.Name, Limit: limit.Name, LimitBytes: limit.Bytes, Reason: host.Error()})
		return nil
	}
	if err != nil {
		return err
	}
	planned := g.Job.SequenceOf(g.Chain, p, limit.Bytes)
	row := Row{
		Strategy: s.Name, Winner: p.Winner, Limit: limit.Name, LimitBytes: limit.Bytes, Plan: p, Ops: len(p.Sequence()),
		PredictedPeakBytes: planned.PredictedPeak(), RowTimes: RowTimes{PlannedS: planned.PredictedSeconds()},
	}
	for _, op := range p.Sequence() {
		if op.Kind != schedule.Backward {
			row.Forwards++
		}
	}
	r.Rows = append(r.Rows, row)
	return nil
}
