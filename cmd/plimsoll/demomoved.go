package main

import (
	"context"

	"plimsoll/bench"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/residency"
)

// movedModel is the language model of the demo whose weights do not fit its device, movedBatch the samples of a step.
const (
	movedModel = "gpt2-4-256"
	movedBatch = 4
)

// trainMoved trains a language model along plans that move weights and state: with all memory that it needs, and on a device that is
// smaller than the weights.
func trainMoved(ctx context.Context, a *app, flags jobFlags, steps int, rate train.Rate) (*bench.Moved, error) {
	flags.model, flags.data, flags.deviceMemory = movedModel, "", units.Size{}
	flags.config.Batch, flags.microbatches = movedBatch, 1
	job, c, err := profileForDemo(ctx, a, &flags)
	if err != nil {
		return nil, err
	}
	m := &bench.Moved{Job: job, StaticBytes: job.Work.StaticBytes()}
	for i := range c.Layers {
		m.WeightBytes += c.Layers[i].WeightBytes
	}
	for _, row := range []struct {
		strategy string
		limit    int64
	}{{"resident", job.Device.Memory}, {residency.Search, m.WeightBytes - m.WeightBytes/10}} {
		s, err := planner.LookupPipeline(row.strategy)
		if err != nil {
			return nil, err
		}
		platform := pipeline.NewPlatform(1, pipeline.NoLimit, pipeline.Free())
		platform.Host, platform.HostMemory = c.Bandwidth, job.HostLimit(0)
		r := &train.Run{Job: job, Chain: c, Steps: steps, Rate: rate, HostLimit: job.HostLimit(0)}
		r.Plan, err = job.PlanPipe(ctx, c, train.PipeRequest{
			Strategy: s, Platform: platform, Options: pipeline.Options{Accounting: pipeline.Saved, Microbatches: 1},
			Limit: func(most int64) int64 { return min(most, row.limit) },
		})
		if err != nil {
			return nil, err
		}
		out, err := r.Do(ctx)
		if err != nil {
			return nil, err
		}
		m.Add(&out.Summary)
	}
	return m, nil
}

// profileForDemo opens the job of some flags and measures it.
func profileForDemo(ctx context.Context, a *app, flags *jobFlags) (*train.Job, *chain.Chain, error) {
	job, err := flags.open()
	if err != nil {
		return nil, nil, err
	}
	a.note("measuring %s on %s with %s", job.Model, job.Device.Model, units.Bytes(job.Device.Memory))
	c, err := job.Profile(ctx, train.Measure{Warmup: 1, Repeats: 3, Progress: a.progress("profile")})
	return job, c, err
}
