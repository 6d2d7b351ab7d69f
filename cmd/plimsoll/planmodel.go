package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"plimsoll/executor"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/planner/auto"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/residency"
)

// ofModel are flags that describe a model alone.
var ofModel = []string{"device", "image", "length", "classes", "loss", "tokenizer", "data", "dtype", "seed", "optimizer", "weight-decay", "freeze", "lora"}

// checkModel refuses flags that do not go with a model, or describe one that is not given.
func (f *planFlags) checkModel(cmd *cobra.Command) error {
	if f.job.model == "" {
		return refuse(cmd, "describes a model, and there is none: give it, as in -m gpt2-xl --device h100", ofModel...)
	}
	stages := slices.DeleteFunc(slices.Clone(ofStages), func(name string) bool { return name == "batch" || name == "microbatches" && cyclic(f.strategy) })
	return firstOf(
		refuse(cmd, "names a chain and --model a model: give one of them", "chain"),
		required("--device", f.job.described, "--device h100; or measure the model with plimsoll profile and give the chain, as in -c c.json"),
		refuse(cmd, "is for a chain file: estimate one with plimsoll profile --device", append(stages, "platform", "auto.budget")...),
	)
}

// runModel plans a model on a device that is only described, with the memory that train counts.
func (c *planCommand) runModel(ctx context.Context) error {
	c.job.config.Batch, c.pipe.batch = cmp.Or(c.pipe.batch, c.job.config.Batch), 0
	if c.job.narrowGradients() && c.strategy == auto.Name {
		c.strategy = residency.Search
	}
	s, err := c.choose()
	if err := firstOf(err, noShare("--host-memory", c.link.host), c.files().writable("")); err != nil {
		return err
	}
	job, p, err := c.planJob(ctx, s)
	small, ok := errors.AsType[*executor.TooSmallError](err)
	if ok && s.report != nil && !job.Work.Model.Wiring().Joins() {
		c.note("auto: activations alone need %s: weights, gradients and optimizer state move too (--strategy %s)", units.Bytes(small.Smallest), residency.Search)
		c.strategy = residency.Search
		if s, err = c.choose(); err == nil {
			job, p, err = c.planJob(ctx, s)
		}
	}
	if err != nil {
		return err
	}
	return c.writePlan(&anyPlan{p.Costs.Chain, p.Plan, p.Costs.Platform}, s, modelFiguresOf(job, p))
}

// planJob opens the job and plans it with a strategy. The job comes with a *executor.TooSmallError, too.
func (f *planFlags) planJob(ctx context.Context, s *choice) (*train.Job, *train.JobPlan, error) {
	flags := f.job
	moves := s.Type == pipeline.Cyclic
	if moves {
		flags.microbatches = max(f.pipe.microbatches, 1)
	}
	job, err := flags.open()
	if err != nil {
		return nil, nil, err
	}
	c, limit, err := f.estimate(ctx, job)
	if err != nil {
		return nil, nil, err
	}
	host := job.HostLimit(f.link.host.Bytes)
	if !moves {
		o := f.options.Options
		o.HostMemory = job.Work.HostRoom(host)
		p, err := job.Plan(ctx, c, s.Strategy, limit, o)
		return job, p, err
	}
	platform := pipeline.NewPlatform(1, pipeline.NoLimit, pipeline.Free())
	platform.Host, platform.Duplex, platform.HostMemory = c.Bandwidth, executor.LinkOf(c).Duplex, host
	p, err := job.PlanPipe(ctx, c, train.PipeRequest{
		Strategy: s.Strategy, Platform: platform, Options: pipeline.Options{Accounting: pipeline.Saved, Microbatches: flags.microbatches, Trials: f.pipe.trials},
		Limit: func(int64) int64 { return limit },
	})
	return job, p, err
}

// estimate returns the chain of a job, with the link that the flags say, and the limit of its arena.
func (f *planFlags) estimate(ctx context.Context, job *train.Job) (c *chain.Chain, limit int64, err error) {
	if c, err = job.Profile(ctx, train.Measure{}); err != nil {
		return nil, 0, err
	}
	link, err := f.link.of(c)
	if err != nil {
		return nil, 0, err
	}
	if c, err = executor.WithLink(c, link); err != nil || !f.memoryGiven {
		return c, job.Device.Memory, err
	}
	all, err := job.StoreAllBytes()
	if limit = f.memory.Of(all); err == nil && limit > job.Device.Memory {
		err = noFit{fmt.Errorf("--memory %v is %s, and %s has %s: give at most that, or leave it out to use all",
			&f.memory, units.Bytes(limit), job.Described.Name, units.Bytes(job.Device.Memory))}
	}
	return c, limit, err
}
