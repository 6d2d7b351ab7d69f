package train

import (
	"context"
	"math"

	"plimsoll/executor"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/strategy"
)

// cyclicKind answers for plans that move weights and state: by the plan with the least memory, as the executor lays it out. Train runs that
// one where it finds no faster one.
func (f *fitter) cyclicKind(ctx context.Context, k strategy.Kind, step int) (fit KindFit, err error) {
	s := k.Strategies[0]
	fit = KindFit{Kind: k.Name, Strategy: s.Name}
	least, err := f.least(ctx, f.Job, s, 0)
	if err != nil {
		return fit, err
	}
	fit.SmallestBytes, _ = least.extent()
	fit.HostBytes = least.Needs[0].Host
	within, err := f.least(ctx, f.Job, s, f.Host)
	if err != nil {
		return fit, err
	}
	fit.Fits = within.fits(f.Limit)
	if fit.LargestBatch, err = f.largestCycle(ctx, s, f.batches()); err != nil || step == 0 {
		return fit, err
	}
	steps, err := f.largestCycle(ctx, s, f.images(step))
	f.setLargest(&fit, steps*step)
	return fit, err
}

// fits reports whether there is a plan, and its arena is within a limit.
func (p *JobPlan) fits(limit int64) bool {
	if p == nil {
		return false
	}
	most, _ := p.extent()
	return most <= limit
}

// least returns the plan of a strategy with the least memory, laid out, within a limit of host memory, 0 for none; nil where there is none.
func (f *fitter) least(ctx context.Context, j *Job, s pipeline.Strategy, host int64) (*JobPlan, error) {
	if f.hosts == nil {
		if err := f.findHosts(); err != nil {
			return nil, err
		}
	}
	c := j.Work.UnmeasuredUpdates(func(layer int) bool { return f.hosts[layer-1] })
	p := pipePlanner{job: j, chain: c, q: PipeRequest{Strategy: s, Platform: pipeline.NewPlatform(1, pipeline.NoLimit, c.Bandwidth)}}
	p.q.Platform.Host, c.Bandwidth = c.Bandwidth, 0
	p.q.Options.Microbatches = j.parts()
	return p.least(ctx, host)
}

// findHosts finds the layers that the host can update.
func (f *fitter) findHosts() error {
	return f.ask(func(target executor.Target) error {
		host, err := f.HostUpdater(target)
		if err != nil {
			return err
		}
		f.hosts = f.Work.HasUpdates(host)
		return nil
	})
}

// largestCycle returns the largest n at whose size the plan with the least memory is within the limits, 0 if there is none.
func (f *fitter) largestCycle(ctx context.Context, s pipeline.Strategy, d dimension) (int, error) {
	return f.largestJob(ctx, d, func(j *Job) (int64, error) {
		least, err := f.least(ctx, j, s, f.Host)
		if least == nil || err != nil {
			return math.MaxInt64, err
		}
		bytes, _ := least.extent()
		return bytes, nil
	})
}
