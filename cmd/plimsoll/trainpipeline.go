package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"plimsoll/executor"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/executor/train"
	"plimsoll/internal/fields"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// trainPipeFlags are the flags of plimsoll train for several devices.
type trainPipeFlags struct {
	microbatches int
	accumulate   int // microbatches by another name, on one device
	versions     string
	zero         int
	allreduce    string
	links        platformFlags
	given        givenFlags
	patience     time.Duration
	portals      bool
	train.Corrections

	devices    int                 // that --devices names; 0: the run is on one device
	strategies []pipeline.Strategy // in the order in which they are tried
}

// pipelineOnly are the flags that mean nothing on one device.
var pipelineOnly = []string{"plan", "versions", "peer-bandwidth", "platform", "patience", "pipemare.updates", "pipemare.decay", "batchnorm.deferred", "portals", "zero"}

func (f *trainPipeFlags) register(cmd *cobra.Command) {
	s, o, debug := cmd.Flags(), optionsOf(cmd), debugOf(cmd)
	s.IntVar(&f.microbatches, "microbatches", 0, "microbatches of a step with a flush (default: 2 a device)")
	s.IntVar(&f.accumulate, "accumulate", 0, "equal parts of a step on one device, whose gradients are added up")
	s.StringVar(&f.versions, "versions", "", "weight versions: double_buffered, stash, latest or flush (default: the strategy's)")
	s.IntVar(&f.zero, "zero", 0, zeroUsage)
	o.Var(newOneOf(&f.allreduce, "ordered", "nccl"), "world.allreduce", "")
	f.links.register(cmd)
	f.given.register(cmd)
	debug.BoolVar(&f.portals, "portals", true, "")
	debug.DurationVar(&f.patience, "patience", 5*time.Minute, "")
	o.IntVar(&f.PipeMare, "pipemare.updates", 0, "")
	o.Float64Var(&f.PipeMareDecay, "pipemare.decay", 0, "")
	o.BoolVar(&f.DeferredBatchNorm, "batchnorm.deferred", false, "")
	s.Lookup("devices").Usage = `device, or several: cpu, "cpu*4", cuda:0,cuda:1`
	s.Lookup("bandwidth").Usage += offloads
}

// checkSums refuses sums by NCCL where it has none.
func (f *trainFlags) checkSums() error {
	switch {
	case f.pipe.allreduce != "nccl":
		return nil
	case f.world.transport != "nccl":
		return usage(fmt.Errorf("--option world.allreduce=nccl is for --transport nccl, between GPUs: with %s Plimsoll adds up gradients itself, so leave it out", f.world.transport))
	case f.pipe.zero != 0:
		return usage(errors.New("--option world.allreduce=nccl adds up whole gradients, and with --zero 1 each replica adds up a part of them: leave one of the two out"))
	}
	return nil
}

// checkDivided refuses --zero where updates cannot be divided.
func (f *trainFlags) checkDivided() error {
	if f.pipe.zero != 0 && f.job.optimizer == "muon" {
		return usage(errors.New("--zero 1 divides weights among replicas by elements, and --optimizer muon updates a matrix as a whole: leave --zero out, or take adamw"))
	}
	return nil
}

// offloads is what the bandwidth to host memory means for pipelines.
const offloads = "; pipeline: stages may offload"

// prepare decides whether the run is a pipeline, and checks what that means for the flags.
func (f *trainFlags) prepare(cmd *cobra.Command) error {
	n, err := f.job.count()
	if err != nil {
		return err
	}
	if f.processes != nil {
		n = f.processes.Devices()
	}
	f.memoryGiven = cmd.Flags().Changed("memory")
	if err := f.pipe.given.read(cmd); err != nil {
		return err
	}
	strategy := ""
	if cmd.Flags().Changed("strategy") {
		strategy = f.strategy
	}
	if cmd.Flags().Changed("accumulate") {
		if err := f.add(cmd, n, strategy); err != nil {
			return err
		}
	}
	if n == 1 && f.pipe.microbatches == 0 && f.pipe.given.plan == nil && !onlyPipeline(strategy) {
		return refuse(cmd, `is for pipelines: give several --devices, as in --devices "cpu*4"`, pipelineOnly...)
	}
	if f.pipe.devices = n; f.pipe.allreduce == "nccl" {
		f.pipe.Sums = f.processes
	}
	if err := refuseChoices(cmd); err != nil {
		return err
	}
	if err := f.pipe.check(strategy); err != nil {
		return err
	}
	first := f.pipe.strategies[0]
	if err := train.CheckGuard(first.Name, first.Type == pipeline.Flushing, f.clip, f.onNaN == "skip"); err != nil {
		return err
	}
	f.pipe.correct(cmd, cmp.Or(f.rate.every, f.steps))
	return nil
}

// correct makes a plan of pipemare what its paper trains, unless flags say otherwise: with its decay, and rates that are rescheduled
// over a quarter of the steps before the learning rate first falls (Yang et al. 2021, section 4).
func (f *trainPipeFlags) correct(cmd *cobra.Command, steady int) {
	name := f.strategies[0].Name
	if f.given.plan != nil {
		name = f.given.plan.Strategy
	}
	if name != "pipemare" {
		return
	}
	if spelling(cmd.Flags(), "pipemare.updates") == "" {
		f.PipeMare = max(steady/4, 1)
	}
	if spelling(cmd.Flags(), "pipemare.decay") == "" {
		f.PipeMareDecay = pipeMareDecay
	}
}

// pipeMareDecay is the paper's D.
const pipeMareDecay = 0.135

// add makes the step one of accumulated gradients, on one device: along any plan, or by a schedule with a flush.
func (f *trainFlags) add(cmd *cobra.Command, devices int, strategy string) error {
	n := f.pipe.accumulate
	switch {
	case n < 1:
		return usage(fmt.Errorf("--accumulate is %d: give the number of parts of a step, from 1", n))
	case devices > 1:
		return usage(fmt.Errorf("--accumulate is for one device: give --microbatches %d, into which pipelines divide a step", n))
	case f.job.offload != "" && f.job.offload != executor.OffloadNothing.String():
		return usage(fmt.Errorf("--accumulate and --offload-state %s do not go together: what is offloaded is updated once for a whole batch", f.job.offload))
	case flushes(strategy):
		f.pipe.microbatches = n
	case onlyPipeline(strategy):
		return usage(fmt.Errorf("--accumulate goes with plans for one device and with schedules with a flush, and --strategy %s is neither: leave one of them out", strategy))
	default:
		f.job.parts = n
	}
	return refuse(cmd, "and --accumulate are two names of one thing: give one of them", "microbatches")
}

// flushes reports whether a strategy is a schedule with a flush.
func flushes(name string) bool {
	s, err := planner.LookupPipeline(name)
	return err == nil && s.Type == pipeline.Flushing
}

// onlyPipeline reports whether a strategy is one of several devices alone.
func onlyPipeline(name string) bool {
	_, err := planner.LookupPipeline(name)
	_, single := planner.LookupSequence(name)
	return err == nil && single != nil
}

// defaultPipes and defaultFlushes are the strategies when --strategy does not say: the first whose plan can be run.
var (
	defaultPipes   = []string{defaultPipeline, "loadline", "madpipe", "contiguous"}
	defaultFlushes = []string{defaultFlush, "1f1b-recompute", "1f1b-flush"}
)

// name finds the strategies: a plan that is given is one.
func (f *trainPipeFlags) name(strategy string) error {
	if f.given.plan != nil {
		f.strategies = []pipeline.Strategy{f.given.strategy()}
		return nil
	}
	names := defaultPipes
	switch {
	case strategy != "":
		names = []string{strategy}
	case asksFlush(f.microbatches, f.versions):
		names = defaultFlushes
	}
	for _, name := range names {
		s, err := planner.LookupPipeline(name)
		if err != nil {
			return err
		}
		f.strategies = append(f.strategies, s)
	}
	return nil
}

func (f *trainPipeFlags) check(strategy string) error {
	if err := firstOf(f.name(strategy), checkMicrobatches(f.microbatches)); err != nil {
		return err
	}
	first := f.strategies[0]
	switch {
	case f.microbatches > 0 && first.Type != pipeline.Flushing:
		return usage(fmt.Errorf("--microbatches is for schedules with a flush: %s has none; give one, as in --strategy 1f1b-flush", first.Name))
	case f.versions != string(pipeline.Flush) && !knownVersions(f.versions):
		return unknownVersions(f.versions, "double_buffered, stash, latest or flush")
	case (f.PipeMare > 0 || f.PipeMareDecay > 0) && first.Type == pipeline.Flushing:
		return usage(fmt.Errorf("--option pipemare.updates and pipemare.decay are for weight versions latest: with %s no weights are stale; give a schedule without a flush, as in --strategy ampnet", first.Name))
	case f.DeferredBatchNorm && first.Type != pipeline.Flushing:
		return usage(fmt.Errorf("--option batchnorm.deferred is for schedules with a flush: %s has none; give one, as in --strategy 1f1b-flush", first.Name))
	}
	return firstOf(checkZero(f.zero, f.strategies...), zeroOfPlan(f.zero, f.given.plan), f.links.check())
}

// parts returns the microbatches of a step: 1 of an asynchronous plan, whose every minibatch is a step, and 0 on one device.
func (f *trainPipeFlags) parts() int {
	switch {
	case f.devices == 0:
		return 0
	case f.strategies[0].Type != pipeline.Flushing:
		return 1
	}
	return cmp.Or(f.microbatches, f.strategies[0].Microbatches, 2*f.devices)
}

// halves reports whether the schedule may split backwards, so that the chain must say what the halves take.
func (f *trainPipeFlags) halves() bool {
	return f.devices > 0 && f.strategies[0].Type == pipeline.Flushing
}

// requestField is the extra field of a run's plan with the flags that it was made for.
const requestField = "request"

// request is everything that a run's plan depends on besides the measured chain.
func (f *trainFlags) request(platform *pipeline.Platform) (json.RawMessage, error) {
	return fields.Marshal(struct {
		Strategy     string             `json:"strategy"`
		Devices      string             `json:"devices"`
		Memory       string             `json:"memory"`
		Batch        int                `json:"batch"`
		Microbatches int                `json:"microbatches"`
		Versions     string             `json:"weight_versions,omitempty"`
		Zero         int                `json:"zero,omitempty"`
		Platform     *pipeline.Platform `json:"platform"`
		Plan         string             `json:"plan_sha256,omitempty"`
		Carried      bool               `json:"carried,omitempty"`
		train.Corrections
	}{
		f.strategy, f.devices(), f.memory.String(), f.job.config.Batch, f.pipe.parts(), f.pipe.versions, f.pipe.zero, platform, f.pipe.given.hash(), !f.pipe.portals, f.pipe.Corrections,
	})
}

// devices names the devices of all processes.
func (f *trainFlags) devices() string {
	if f.processes == nil {
		return f.job.devices
	}
	return fmt.Sprintf("%s in each of %d processes", f.job.devices, f.processes.Size())
}

// planPipe plans a run on several devices. One that goes on has the plan and the chain in its folder if they were made for
// the same flags: with asynchronous weights another plan would train something else.
func (a *app) planPipe(ctx context.Context, r *train.Run, f *trainFlags, place *runFolder, m train.Measure) error {
	platform, err := f.pipe.links.platform(f.pipe.devices, f.job.bandwidth, f.link.duplex, &f.pipe.given)
	if err != nil {
		return err
	}
	request, err := f.request(platform)
	if err != nil {
		return err
	}
	if f.keep.resume {
		a.savedPipe(r, f, place, request)
	}
	if r.Pipe == nil {
		if r.Chain, err = a.measured(ctx, r.Job, f.cache, m); err != nil {
			return err
		}
		if err := a.examine(&f.pipe.given, r.Chain, platform, f.cache.file == "", f.memoryGiven); err != nil {
			return err
		}
		if r.Pipe, err = a.newPipe(ctx, r, f, platform); err != nil {
			return err
		}
		r.Pipe.Plan.Extra[requestField] = request
	}
	r.Limit, r.Pipe.Patience = r.Pipe.Limit, f.pipe.patience
	return nil
}

// whole lets a run end with an update, and says so where that is not as it was asked for.
func (a *app) whole(r *train.Run) {
	steps := r.Steps
	if r.Whole(); r.Steps > steps {
		a.note("%d steps in place of %d: an update takes %d minibatches (double buffered weights)", r.Steps, steps, r.Pipe.Group)
	}
}

// savedPipe takes the plan in the run's folder if it is for the same flags.
func (a *app) savedPipe(r *train.Run, f *trainFlags, place *runFolder, request json.RawMessage) {
	path := place.Path("plan.json")
	plan, err := fields.ReadIn[pipeline.Plan](place.Dir, "plan.json")
	if err != nil || plan.IsSequence() {
		return // there is none yet, or it is one for a single device
	}
	if other := otherwise(plan.Extra[requestField], request); other != "" {
		a.note("planned anew, not as %s: %s", path, other)
		return
	}
	c, err := fields.ReadIn[chain.Chain](place.Dir, "chain.json")
	if err == nil {
		c, err = r.Job.ChainOf(place.Path("chain.json"), c)
	}
	if err == nil {
		r.Pipe, err = r.Job.PipeOf(path, plan, c, f.pipe.Corrections)
	}
	if err != nil {
		a.note("planned anew: %v", err)
		r.Pipe = nil
		return
	}
	r.Chain = c
}

// otherwise says in what two objects differ, whatever the blanks between their parts; "" when in nothing.
func otherwise(was, now json.RawMessage) string {
	var a, b map[string]any
	if json.Unmarshal(was, &a) != nil || json.Unmarshal(now, &b) != nil {
		return "it is not known what it was made for"
	}
	text := func(of map[string]any, name string) string {
		value, ok := of[name]
		if !ok {
			return "not given"
		}
		b, _ := json.Marshal(value) // it was JSON
		return string(b)
	}
	var all []string
	both := maps.Clone(a)
	maps.Copy(both, b)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		if x, y := text(a, name), text(b, name); x != y {
			all = append(all, fmt.Sprintf("%s was %s and is %s", name, x, y))
		}
	}
	return strings.Join(all, ", ")
}

// newPipe plans with the first strategy whose plan can be run.
func (a *app) newPipe(ctx context.Context, r *train.Run, f *trainFlags, platform *pipeline.Platform) (p *train.Pipe, err error) {
	for i, s := range f.pipe.strategies {
		p, err = r.Job.PlanPipe(ctx, r.Chain, train.PipeRequest{
			Strategy: s, Platform: platform, Limit: f.memory.Of, Portals: f.pipe.portals && f.pipe.given.plan == nil, Corrections: f.pipe.Corrections,
			Options: pipeline.Options{
				Microbatches: microbatchesOf(s, f.pipe.parts()), Versions: pipeline.Versions(f.pipe.versions), Accounting: pipeline.Saved,
				Zero: pipeline.Zero(f.pipe.zero),
			},
		})
		if !errors.Is(err, pipe.ErrPlan) || i == len(f.pipe.strategies)-1 {
			return p, err
		}
		a.note("%v: trying %s", err, f.pipe.strategies[i+1].Name)
	}
	return p, err
}

// microbatchesOf returns the option of a strategy: those without a flush have none.
func microbatchesOf(s pipeline.Strategy, parts int) int {
	if s.Type != pipeline.Flushing {
		return 0
	}
	return parts
}

// planRest measures and plans what planRun has opened, on one device or several.
func (a *app) planRest(ctx context.Context, f *trainFlags, place *runFolder, r *train.Run, p *planning) (err error) {
	if f.pipe.devices == 0 {
		if err := place.resume(r); err != nil {
			return err
		}
		if r.Limit, err = a.limit(f, r.Job); err != nil {
			return err
		}
		m, check := p.measure, func() error { return r.Job.Feasible(ctx, p.choice.Strategy, r.Limit, f.options.Options) }
		m.Limit, m.Check = r.Limit, check
		if r.Chain, err = a.chain(ctx, r.Job, f.cache, f.link, m); err != nil {
			return err
		}
		return a.planStep(ctx, r, p.choice, f)
	}
	if err := a.planPipe(ctx, r, f, place, p.measure); err != nil {
		return err
	}
	if err := a.tell(ctx, r); err != nil {
		return err
	}
	if err := place.resume(r); err != nil {
		return err
	}
	a.whole(r)
	return nil
}
