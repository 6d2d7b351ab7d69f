package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"plimsoll/executor"
	"plimsoll/internal/units"
	"plimsoll/planner"
	"plimsoll/planner/auto"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// planLink says which link to host memory a plan may use.
type planLink struct {
	bandwidth units.Bandwidth
	duplex    bool
	host      units.Size
}

func (f *planLink) register(cmd *cobra.Command) {
	s := cmd.Flags()
	s.Var(&f.host, "host-memory", "limit of the host memory for what leaves the device: 4GiB (default: none)")
	s.Var(&f.bandwidth, "bandwidth", "bandwidth of the link to host memory: 12GB/s (default: that of the chain)")
	s.BoolVar(&f.duplex, "duplex", false, "the link has a queue for each direction")
}

// of returns the link of the flags, or else the one that the chain was measured with.
func (f *planLink) of(c *chain.Chain) (schedule.Link, error) {
	l := executor.LinkOf(c)
	if err := noShare("--host-memory", f.host); err != nil {
		return l, err
	}
	if f.bandwidth > 0 {
		l.Bandwidth = float64(f.bandwidth)
	}
	l.Duplex = l.Duplex || f.duplex
	if f.duplex && l.Bandwidth == 0 {
		return l, usage(errors.New("--duplex without a link: the chain has no bandwidth, give --bandwidth 12GB/s"))
	}
	return l, nil
}

// pipelineFlags are the flags of plimsoll plan for several devices.
type pipelineFlags struct {
	devices      int
	platform     string
	microbatches int
	batch        int
	chunks       int
	trials       int // of residency
	perPeriod    int
	opsAtOnce    float64
	versions     string
	zero         int
	offload      string // what --offload-state keeps in host memory
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
	s.IntVar(&f.batch, "batch", 0, "samples of a step of --model (default: 32), or of a pipeline with a flush: its microbatches have the fastest of the batch sizes that were profiled")
	o.IntVar(&f.trials, "residency.trials", 0, "")
	o.IntVar(&f.chunks, "interleaved.chunks", 0, "")
	o.IntVar(&f.perPeriod, "k-periodic.per-period", 0, "")
	s.StringVar(&f.versions, "versions", "", "weight versions, double_buffered, stash, vertical_sync, latest or flush (default: the strategy's)")
	s.IntVar(&f.zero, "zero", 0, zeroUsage)
	s.Var(newOneOf(&f.offload, offloadsNothing, offloadsOptimizer), "offload-state", "keep in host memory: none or optimizer, of schedules with a flush (of one device: --strategy zero-offload)")
	s.Var(&oneOf{&f.accounting, []string{string(pipeline.Inputs), string(pipeline.Saved)}}, "accounting", "what a minibatch holds in a stage, inputs (thesis) or saved (default: inputs)")
	o.Float64Var(&f.opsAtOnce, "platform.ops-at-once", 0, "")
	o.DurationVar(&f.timeLimit, "milp.time-limit", 0, "")
	o.Var((*portion)(&f.gap), "milp.gap", "")
	s.StringVar(&f.svg, "svg", "", "draw the plan here: the memory over time, of a pipeline the timeline")
	s.StringVar(&f.trace, "trace", "", "write the timeline for Perfetto here")
}

// wanted reports whether the plan is for several devices.
func (f *pipelineFlags) wanted() bool { return f.devices != 0 || f.platform != "" }

// ofStages are flags of pipelines alone.
var ofStages = []string{"devices", "microbatches", "batch", "interleaved.chunks", "k-periodic.per-period", "platform.ops-at-once", "versions", "zero", "offload-state", "accounting", "milp.time-limit", "milp.gap"}

// check refuses flags of pipelines without devices, and contradictions.
func (f *pipelineFlags) check(cmd *cobra.Command, cyclic bool) error {
	switch {
	case cyclic:
		return refuse(cmd, "is for pipelines, and the strategy plans for one device: leave it out", slices.DeleteFunc(slices.Clone(ofStages), func(name string) bool { return name == "microbatches" })...)
	case f.wanted():
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
	return refuse(cmd, "is for pipelines: give --devices 4 or --platform platform.json too", ofStages...)
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
	case f.microbatches != 0 && !s.Divides():
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
	return firstOf(checkZero(f.zero, s), checkHostState(f.offload == offloadsOptimizer, nil, s))
}

// asked returns the parameters of strategies for several devices.
func (f *pipelineFlags) asked() pipeline.Options {
	return pipeline.Options{
		Microbatches: f.microbatches, Chunks: f.chunks, Trials: f.trials, PerPeriod: f.perPeriod, TimeLimit: f.timeLimit, Gap: f.gap,
		Versions: pipeline.Versions(f.versions), Accounting: pipeline.Accounting(f.accounting), Zero: pipeline.Zero(f.zero),
		HostState: f.offload == offloadsOptimizer,
	}
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
		p.Duplex, p.OpsAtOnce = plan.link.duplex, f.opsAtOnce
		return f.linked(p, c), nil
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
	q.Duplex, q.OpsAtOnce = q.Duplex || plan.link.duplex, cmp.Or(f.opsAtOnce, q.OpsAtOnce)
	return f.linked(&q, c), nil
}

// linked gives a platform whose host has the optimizer's state the links to host memory that the chain was measured with, unless it says its own.
func (f *pipelineFlags) linked(p *pipeline.Platform, c *chain.Chain) *pipeline.Platform {
	if f.offload == offloadsOptimizer && p.Host == 0 {
		p.Host = c.Bandwidth
	}
	return p
}

// defaultPipeline is the strategy for several devices when --strategy does not say; defaultStale that where --versions asks for weights that may
// be stale.
const defaultPipeline, defaultStale = "auto-flush", "joint"

// asksStale reports whether a flag asks for weights that may be stale, which no schedule with a flush has.
func asksStale(versions string) bool {
	return versions != "" && pipeline.Versions(versions) != pipeline.Flush
}

// stales returns the strategies for --versions of stale weights when --strategy does not say: the first whose plan can be run. Plans with
// vertical_sync have no replicas, which those of joint have.
func stales(versions string) []string {
	all := []string{defaultStale, "loadline", "madpipe", "contiguous"}
	if pipeline.Versions(versions) == pipeline.VerticalSync {
		return all[1:]
	}
	return all
}

const zeroUsage = "1: replicas of a stage divide optimizer state (ZeRO-1), 2: and gradients, 3: and weights"

// checkZero refuses a --zero that is none, or not all of some strategies know.
func checkZero(n int, strategies ...pipeline.Strategy) error {
	z, err := pipeline.ParseZero(n)
	if err != nil {
		return usage(fmt.Errorf("--%w", err))
	}
	if i := slices.IndexFunc(strategies, func(s pipeline.Strategy) bool { return s.Type != pipeline.Flushing }); z != pipeline.ZeroNothing && i >= 0 {
		return usage(fmt.Errorf("--zero is for schedules with a flush: %s has none; give one that has replicas, as in --strategy joint-flush", strategies[i].Name))
	}
	return nil
}

// zeroOfPlan refuses --zero beside a plan that says otherwise.
func zeroOfPlan(n int, plan *pipeline.Plan) error {
	if plan != nil && n != 0 && int(plan.Zero) != n {
		return usage(fmt.Errorf("--zero is %d, and the plan's field \"zero\" is %d: leave --zero out, or plan again with it", n, plan.Zero))
	}
	return nil
}

// Values of --offload-state: all is left to --strategy; the host has the optimizer's state.
const offloadsNothing, offloadsOptimizer = "none", "optimizer"

// checkHostState refuses --offload-state where strategies, or the plan that is given, do not know it.
func checkHostState(wanted bool, plan *pipeline.Plan, strategies ...pipeline.Strategy) error {
	if !wanted {
		return nil
	}
	if i := slices.IndexFunc(strategies, func(s pipeline.Strategy) bool { return s.Type != pipeline.Flushing }); i >= 0 {
		return usage(fmt.Errorf("--offload-state optimizer is for one device, or for schedules with a flush: %s has none; give one, as in --strategy joint-flush", strategies[i].Name))
	}
	if plan != nil && !plan.HostState {
		return usage(errors.New("--offload-state optimizer, and the plan leaves the optimizer's state on the devices (field \"host_state\"): leave it out, or plan again with it"))
	}
	return nil
}

// planFlags are the flags of plimsoll plan.
type planFlags struct {
	chain    string
	job      jobFlags
	memory   units.Size
	strategy string
	link     planLink
	options  strategyFlags
	pipe     pipelineFlags

	memoryGiven bool
	budget      time.Duration
	out         string
	text        bool
	list        bool
}

// planCommand is plimsoll plan.
type planCommand struct {
	*app
	planFlags
}

// files are the files that the flags name.
func (f *planFlags) files() planFiles { return planFiles{f.out, f.pipe.svg, f.pipe.trace} }

// choose looks the strategy up, among those for one device or for several.
func (f *planFlags) choose() (*choice, error) {
	if f.pipe.wanted() || cyclic(f.strategy) {
		s, err := planner.LookupPipeline(f.strategy)
		return &choice{Strategy: s}, err
	}
	opt := auto.Options{}
	if f.budget > 0 {
		opt.Steps = math.MaxInt
	}
	return choose(f.strategy, opt)
}

// cyclic reports whether a strategy says where weights and state of one device are.
func cyclic(name string) bool {
	s, err := planner.LookupPipeline(name)
	return err == nil && s.Type == pipeline.Cyclic
}

// writePlan checks a plan, writes its files and prints its figures, with those of its model if it has one.
func (c *planCommand) writePlan(p *anyPlan, s *choice, model *modelFigures) error {
	report, err := pipeline.Check(p.chain, p.platform, p.plan)
	if err != nil {
		return fmt.Errorf("BUG: %s made a plan that breaks a rule: %w", s.Name, err)
	}
	if err := p.write(c.files()); err != nil {
		return err
	}
	figures, err := p.figures(report)
	if err != nil {
		return err
	}
	figures.Valid, figures.Auto, figures.modelFigures = true, s.figures(), model
	return c.print(figures, func(w io.Writer) {
		if c.text {
			fmt.Fprintln(w, figures.text())
			return
		}
		figures.write(w)
	})
}
