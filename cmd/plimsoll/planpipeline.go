package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/profiles"
)

// pipelineFlags are the flags of plimsoll plan for several devices.
type pipelineFlags struct {
	devices      int
	platform     string
	microbatches int
	batch        int
	chunks       int
	perPeriod    int
	versions     string
	zero         int
	accounting   string
	timeLimit    time.Duration
	gap          float64
	svg, trace   string
}

func (f *pipelineFlags) register(cmd *cobra.Command) {
	s, o := cmd.Flags(), optionsOf(cmd)
	s.IntVar(&f.devices, "devices", 0, "number of equal devices, each with --memory, linked at --bandwidth")
	s.StringVar(&f.platform, "platform", "", "platform file, instead of --devices")
	s.IntVar(&f.microbatches, "microbatches", 0, "microbatches of a schedule with a flush (default: the strategy's)")
	s.IntVar(&f.batch, "batch", 0, "samples of a step with a flush: the fastest of the batch sizes that the chain was profiled at is that of its microbatches")
	o.IntVar(&f.chunks, "interleaved.chunks", 0, "")
	o.IntVar(&f.perPeriod, "k-periodic.per-period", 0, "")
	s.StringVar(&f.versions, "versions", "", "weight versions, double_buffered, stash, latest or flush (default: the strategy's)")
	s.IntVar(&f.zero, "zero", 0, zeroUsage)
	s.Var(&oneOf{&f.accounting, []string{string(pipeline.Inputs), string(pipeline.Saved)}}, "accounting", "what a minibatch holds in a stage, inputs (thesis) or saved (default: inputs)")
	o.DurationVar(&f.timeLimit, "milp.time-limit", 0, "")
	o.Var((*portion)(&f.gap), "milp.gap", "")
	s.StringVar(&f.svg, "svg", "", "draw the plan here: the memory over time, of a pipeline the timeline")
	s.StringVar(&f.trace, "trace", "", "write the timeline for Perfetto here")
}

// wanted reports whether the plan is for several devices.
func (f *pipelineFlags) wanted() bool { return f.devices != 0 || f.platform != "" }

// check refuses flags of pipelines without devices, and contradictions.
func (f *pipelineFlags) check(cmd *cobra.Command) error {
	if f.wanted() {
		if f.devices < 0 || f.devices > pipeline.MaxDevices {
			return usage(fmt.Errorf("--devices is %d: give a number from 1 to %d", f.devices, pipeline.MaxDevices))
		}
		if f.devices != 0 && f.platform != "" {
			return usage(errors.New("--devices and --platform both say what there is: give one of them"))
		}
		if f.batch < 0 {
			return usage(fmt.Errorf("--batch is %d: give the samples of a step, as in --batch 64", f.batch))
		}
		return refuseChoices(cmd, "auto.budget", "text", "host-memory")
	}
	return refuse(cmd, "is for pipelines: give --devices 4 or --platform platform.json too",
		"devices", "microbatches", "batch", "interleaved.chunks", "k-periodic.per-period", "versions", "zero", "accounting", "milp.time-limit", "milp.gap")
}

// refuse returns an error for the first of the flags or settings that was given.
func refuse(cmd *cobra.Command, why string, flags ...string) error {
	for _, name := range flags {
		if given := spelling(cmd.Flags(), name); given != "" {
			return usage(fmt.Errorf("%s %s", given, why))
		}
	}
	return nil
}

// refuseChoices refuses, for several devices, settings of strategies for one device, and more.
func refuseChoices(cmd *cobra.Command, more ...string) error {
	choices := append([]string{"rotor.slots", "pofo.slots", "branch-and-bound.states", "periodic.segments", "capper.high-memory"}, more...)
	if given := spelling(cmd.Flags(), "auto.tolerance"); strings.HasPrefix(given, "--option") { // the old flag was passed over
		choices = append(choices, "auto.tolerance")
	}
	return refuse(cmd, "is for one device: a pipeline has no such choice", choices...)
}

// fit refuses flags that the strategy would pass over.
func (f *pipelineFlags) fit(s pipeline.Strategy) error {
	switch {
	case f.microbatches != 0 && s.Type != pipeline.Flushing:
		return usage(fmt.Errorf("--microbatches is for schedules with a flush: %s has none", s.Name))
	case f.batch != 0 && s.Type != pipeline.Flushing:
		return usage(fmt.Errorf("--batch is for schedules with a flush: %s takes the batch size that trains most samples a second, of those that the chain was profiled at", s.Name))
	case f.chunks != 0 && s.Type != pipeline.Flushing:
		return usage(fmt.Errorf("--chunks is for interleaved schedules: %s is none", s.Name))
	case f.perPeriod != 0 && s.Name != "k-periodic":
		return usage(fmt.Errorf("--per-period is for k-periodic: %s has a period of its own", s.Name))
	case f.timeLimit != 0 && s.Name != "milp" && s.Name != "ilp":
		return usage(fmt.Errorf("--time-limit is for milp and ilp, which search: %s does not", s.Name))
	}
	return checkZero(f.zero, s)
}

// request is what the flags ask of a strategy, for a chain.
func (f *planFlags) request(c *chain.Chain) (pipeline.Request, error) {
	p, err := f.pipe.over(f, c)
	if err != nil {
		return pipeline.Request{}, err
	}
	return pipeline.Request{Chain: c, Platform: p, Options: pipeline.Options{
		Microbatches: f.pipe.microbatches, Chunks: f.pipe.chunks, PerPeriod: f.pipe.perPeriod, TimeLimit: f.pipe.timeLimit, Gap: f.pipe.gap,
		Versions: pipeline.Versions(f.pipe.versions), Accounting: pipeline.Accounting(f.pipe.accounting), Zero: pipeline.Zero(f.pipe.zero),
	}}, nil
}

// over returns the platform that the flags describe.
func (f *pipelineFlags) over(plan *planFlags, c *chain.Chain) (*pipeline.Platform, error) {
	memory := int64(pipeline.NoLimit)
	if plan.memoryGiven {
		if plan.memory.IsZero() {
			return nil, usage(errors.New("--memory is 0: give what each device has, as in --memory 8GiB, or leave it out for no limit"))
		}
		if memory = plan.memory.Of(0); memory != plan.memory.Of(1<<40) {
			return nil, usage(fmt.Errorf("--memory is %v: each device of a pipeline has bytes, as in 8GiB", plan.memory))
		}
	}
	if f.platform == "" {
		bandwidth := float64(plan.link.bandwidth)
		if bandwidth == 0 {
			bandwidth = c.Bandwidth
		}
		if bandwidth == 0 && f.devices > 1 {
			return nil, usage(errors.New("--bandwidth is missing: give that of the links between the devices, as in --bandwidth 12GB/s"))
		}
		p := pipeline.NewPlatform(f.devices, memory, bandwidth)
		p.Duplex = plan.link.duplex
		return p, nil
	}
	p, err := pipeline.ReadPlatform(f.platform)
	if err != nil {
		return nil, usage(err)
	}
	if memory != pipeline.NoLimit {
		p = p.WithMemory(memory)
	}
	if plan.link.bandwidth > 0 {
		return nil, usage(errors.New("--bandwidth and --platform both say how fast the links are: give one of them"))
	}
	q := *p
	q.Duplex = q.Duplex || plan.link.duplex
	return &q, nil
}

// runPipeline plans for several devices.
func (a *app) runPipeline(ctx context.Context, f *planFlags) error {
	s, err := planner.LookupPipeline(f.strategy)
	if err != nil {
		return err
	}
	if err := firstOf(required("--chain", f.chain, "-c c.json"), planFiles{f.out, f.pipe.svg, f.pipe.trace}.writable(f.chain)); err != nil {
		return err
	}
	if err := f.pipe.fit(s); err != nil {
		return err
	}
	source, err := profiles.ReadSource(f.chain)
	if err != nil {
		return usage(err)
	}
	r, err := f.request(source.Chain)
	if err != nil {
		return err
	}
	if r.Chain, err = planner.ChainFor(source, s.Name, r.Platform); err != nil {
		return usage(err)
	}
	p, c, err := f.pipe.solve(ctx, s, r)
	var late *pipeline.UnfinishedError
	if errors.As(err, &late) && late.Best != nil {
		a.note("%v", err)
		p, err = cmp.Or(p, late.Best), nil
	}
	if err != nil {
		return err
	}
	r.Chain = c
	report, err := pipeline.Check(r.Chain, r.Platform, p)
	if err != nil {
		return fmt.Errorf("BUG: %s made a plan that breaks a rule: %w", s.Name, err)
	}
	if err := (&anyPlan{r.Chain, p, r.Platform}).write(planFiles{f.out, f.pipe.svg, f.pipe.trace}); err != nil {
		return err
	}
	figures := &pipelineFigures{Devices: r.Platform.Devices, Valid: true}
	figures.add(p, report)
	figures.Placed = placed(p)
	return a.print(figures, func(w io.Writer) {
		writeStages(w, p)
		figures.write(w)
	})
}

// solve plans, at the batch size that trains most samples a second where the chain was profiled at several, or --batch says what makes a
// step. It returns the chain at that size, too.
func (f *pipelineFlags) solve(ctx context.Context, s pipeline.Strategy, r pipeline.Request) (*pipeline.Plan, *chain.Chain, error) {
	switch several := len(r.Chain.Others) > 0; {
	case several && f.batch == 0 && s.Type == pipeline.Flushing:
		return nil, nil, usage(fmt.Errorf("--batch is missing: the chain was profiled at several batch sizes, say how many samples make a step, as in --batch %d", 8*r.Chain.Batch))
	case several || f.batch > 0:
		p, c, err := pipeline.SolveSizes(ctx, s, r, f.batch)
		if errors.Is(err, pipeline.ErrBatch) {
			err = usage(fmt.Errorf("--batch %d: %w", f.batch, err))
		}
		return p, c, err
	}
	p, err := s.Solve(ctx, r)
	return p, r.Chain, err
}

// placedStage is where a stage is.
type placedStage struct {
	FirstLayer int    `json:"first_layer"`
	LastLayer  int    `json:"last_layer"`
	Devices    []int  `json:"devices"`
	Sequence   string `json:"sequence,omitempty"`      // of a stage that recomputes
	Last       string `json:"last_sequence,omitempty"` // of its last microbatch, where that differs
}

func placed(p *pipeline.Plan) (all []placedStage) {
	for _, s := range p.Stages {
		all = append(all, placedStage{s.First, s.Last, s.Devices, s.Ops.String(), s.LastOps.String()})
	}
	return all
}

// writeStages prints which layers are where.
func writeStages(w io.Writer, p *pipeline.Plan) {
	for i, s := range p.Stages {
		fmt.Fprintf(w, "stage %d: layers %d to %d on device", i, s.First, s.Last)
		for k, d := range s.Devices {
			if k > 0 {
				fmt.Fprint(w, ",")
			}
			fmt.Fprintf(w, " %d", d)
		}
		if len(s.Ops) > 0 {
			fmt.Fprintf(w, ": %v", s.Ops)
		}
		if len(s.LastOps) > 0 {
			fmt.Fprintf(w, "; last microbatch: %v", s.LastOps)
		}
		fmt.Fprintln(w)
	}
}

// shownPeriods is how many periods of a periodic plan its timeline shows.
const shownPeriods = 4

// planned returns the timeline of a plan by its own times: the step, or a few periods. Each stage's sequence is drawn as one
// forward and one backward.
func planned(c *chain.Chain, platform *pipeline.Platform, p *pipeline.Plan) (*pipeline.Timeline, error) {
	spans, err := pipeline.Planned(c, platform, p, shownPeriods)
	if err != nil {
		return nil, err
	}
	return pipeline.NewTimeline(c, platform, p, spans)
}

// defaultPipeline and defaultFlush are the strategies for several devices when --strategy does not say.
const defaultPipeline, defaultFlush = "joint", "joint-flush"

// asksFlush reports whether other flags mean a schedule with a flush: microbatches are of no other, and neither are its versions.
func asksFlush(microbatches int, versions string) bool {
	return microbatches != 0 || pipeline.Versions(versions) == pipeline.Flush
}
