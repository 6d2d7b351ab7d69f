package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"

	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/planner"
	"plimsoll/planner/auto"
	"plimsoll/planner/pipeline"
)

// trainFlags are the flags of plimsoll train.
type trainFlags struct {
	trainingFlags
	memory   units.Size
	strategy string
	offload  string // what --offload-state keeps in host memory
	steps    int
	keep     keepFlags
	clip     float64
	eval     int
	onNaN    string
	init     string
	metrics  string
	table    string // file for the tables of commands
	pipe     trainPipeFlags
	world    worldFlags
}

// trainCommand is plimsoll train: its flags, and what is known before a run is opened.
type trainCommand struct {
	*app
	trainFlags
	processes   *train.World // nil: this one alone
	memoryGiven bool         // --memory is not the default
}

func (f *trainFlags) register(a *app, cmd *cobra.Command) {
	f.trainingFlags.register(a, cmd)
	s := cmd.Flags()
	f.memory = units.Size{Share: 1}
	s.Var(&f.memory, "memory", "memory limit of the arena: 4GiB, or a share as 40%")
	s.StringVar(&f.strategy, "strategy", auto.Name, "strategy (plimsoll plan --list shows them)")
	s.Var(newOneOf(&f.offload, offloadsNothing, offloadsOptimizer, "weights"), "offload-state",
		"keep in host memory: none, optimizer (zero-offload) or weights (layer-window)")
	s.IntVar(&f.steps, "steps", 100, "training steps")
	s.Float64Var(&f.clip, "clip-norm", 0, "clip the norm of all gradients together to this (default: no clipping)")
	s.IntVar(&f.eval, "eval-every", 0, "steps between evaluations on held-out samples (default: the end)")
	s.Var(newOneOf(&f.onNaN, "stop", "skip"), "on-nan", "when a step is not finite: stop, or skip it")
	s.StringVar(&f.init, "init", "", "weights to begin with: a safetensors file, or a folder of Hugging Face")
	s.StringVar(&f.metrics, "metrics", "", "serve Prometheus metrics at this address, as in 127.0.0.1:9090")
	f.keep.register(cmd)
	f.pipe.register(cmd)
	f.world.register(cmd)
	debugOf(cmd).StringVar(&f.table, "table", "", "")
	a.registerVerbose(cmd)
}

// check refuses what no run can do.
func (f *trainFlags) check() error {
	switch {
	case f.memory.IsZero():
		return usage(fmt.Errorf("--memory is 0: give it, as in --memory 4GiB or --memory 40%%"))
	case !(f.clip >= 0 && f.clip <= math.MaxFloat32):
		return usage(fmt.Errorf("--clip-norm is %v: give a positive number, or 0 for no clipping", f.clip))
	case f.eval < 0:
		return usage(fmt.Errorf("--eval-every is %d: give a number of steps, or 0 for the end alone", f.eval))
	case f.init != "":
		if _, err := os.Stat(f.init); err != nil {
			return usage(fmt.Errorf("--init: %w", err))
		}
	}
	return firstOf(f.keep.check(), f.link.check(), writable("--debug table", f.table))
}

// trainPipeFlags are the flags of plimsoll train for several devices.
type trainPipeFlags struct {
	stageFlags
	accumulate int // microbatches by another name, on one device
	trials     int // of residency
	allreduce  string
	patience   time.Duration
	train.Corrections

	devices    int                 // that --devices names; 0: the run is on one device
	batch      int                 // samples of a step
	strategies []pipeline.Strategy // in the order in which they are tried

	updatesLast bool // no layer may be updated before all gradients of its step are there
}

// pipelineOnly are the flags that mean nothing on one device.
var pipelineOnly = append([]string{"patience", "pipemare.updates", "pipemare.decay", "batchnorm.deferred"}, stageOnly...)

func (f *trainPipeFlags) register(cmd *cobra.Command) {
	s, o, debug := cmd.Flags(), optionsOf(cmd), debugOf(cmd)
	f.stageFlags.register(cmd, "double_buffered, stash, vertical_sync, latest or flush")
	s.IntVar(&f.accumulate, "accumulate", 0, "equal parts of a step on one device, whose gradients are added up")
	o.IntVar(&f.trials, "residency.trials", 0, "")
	o.Var(newOneOf(&f.allreduce, "ordered", "nccl"), "world.allreduce", "")
	debug.DurationVar(&f.patience, "patience", 5*time.Minute, "")
	o.IntVar(&f.PipeMare, "pipemare.updates", 0, "")
	o.Float64Var(&f.PipeMareDecay, "pipemare.decay", 0, "")
	o.BoolVar(&f.DeferredBatchNorm, "batchnorm.deferred", false, "")
	s.Lookup("devices").Usage = `device, or several: cpu, "cpu*4", cuda:0,cuda:1`
}

// checkSums refuses sums by NCCL where it has none.
func (f *trainFlags) checkSums() error {
	switch {
	case f.pipe.allreduce != "nccl":
		return nil
	case f.world.transport != "nccl":
		return usage(fmt.Errorf("--option world.allreduce=nccl is for --transport nccl, between GPUs: with %s Plimsoll adds up gradients itself, so leave it out", f.world.transport))
	case f.pipe.zero != 0:
		return usage(errors.New("--option world.allreduce=nccl adds up whole gradients, and with --zero each replica adds up a part of them: leave one of the two out"))
	}
	return nil
}

// checkDivided refuses --zero where updates cannot be divided.
func (f *trainFlags) checkDivided() error {
	if f.pipe.zero != 0 && f.job.optimizer == "muon" {
		return usage(errors.New("--zero divides weights among replicas by elements, and --optimizer muon updates a matrix as a whole: leave --zero out, or take adamw"))
	}
	return nil
}

// prepare decides whether the run is a pipeline, and checks what that means for the flags.
func (c *trainCommand) prepare(cmd *cobra.Command) error {
	n, err := countDevices(c.job.devices)
	if err != nil {
		return err
	}
	if c.processes != nil {
		n = c.processes.Devices()
	}
	c.memoryGiven = cmd.Flags().Changed("memory")
	if err := c.pipe.given.read(cmd); err != nil {
		return err
	}
	strategy := ""
	if cmd.Flags().Changed("strategy") {
		strategy = c.strategy
	}
	if c.offload != offloadsNothing {
		if strategy, err = c.offloadState(cmd, n, strategy); err != nil {
			return err
		}
		if !c.pipe.hostState {
			c.strategy = strategy
		}
	}
	if cmd.Flags().Changed("accumulate") {
		if err := c.add(cmd, n, strategy); err != nil {
			return err
		}
	}
	if n == 1 && c.pipe.microbatches == 0 && c.pipe.given.plan == nil && !onlyPipeline(strategy) {
		return refuse(cmd, `is for pipelines: give several --devices, as in --devices "cpu*4"`, pipelineOnly...)
	}
	c.pipe.devices, c.pipe.batch = n, c.job.config.Batch
	if c.pipe.allreduce == "nccl" {
		c.pipe.Sums = c.processes
	}
	if err := refuseChoices(cmd); err != nil {
		return err
	}
	c.pipe.updatesLast = c.updatesLast()
	if err := c.pipe.check(strategy); err != nil {
		return err
	}
	first := c.pipe.strategies[0]
	if plan := c.pipe.given.plan; plan != nil && plan.IsCycle() {
		plan.UpdatesLast = plan.UpdatesLast || c.updatesLast()
	} else if plan != nil {
		c.pipe.hostState = plan.HostState
	}
	if err := train.CheckGuard(first.Name, first.Divides(), c.clip, c.onNaN == "skip"); err != nil {
		return err
	}
	c.pipe.correct(cmd, cmp.Or(c.rate.every, c.steps))
	return nil
}

// offloadStrategies are the strategies that --offload-state takes on one device.
var offloadStrategies = map[string]string{offloadsOptimizer: "zero-offload", "weights": "layer-window"}

// offloadState returns the strategy that --offload-state asks for, of one of so many devices. Several devices keep theirs.
func (f *trainFlags) offloadState(cmd *cobra.Command, devices int, strategy string) (string, error) {
	switch {
	case devices > 1 && f.offload != offloadsOptimizer:
		return "", usage(fmt.Errorf("--offload-state %s is for one device: leave it out, give one in --devices, or --offload-state optimizer", f.offload))
	case devices > 1:
		f.pipe.hostState = true
		return strategy, nil
	}
	strategy = offloadStrategies[f.offload]
	return strategy, refuse(cmd, fmt.Sprintf("and --offload-state %s, which is --strategy %s, do not go together: give one of them", f.offload, strategy), "strategy", "plan")
}

// correct gives a plan of pipemare the settings of its paper, unless flags say otherwise (Yang et al. 2021, section 4). These are
// its decay, and rates that are rescheduled over a quarter of the steps before the learning rate first falls.
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
	case flushes(strategy):
		f.pipe.microbatches = n
	case onlyPipeline(strategy):
		return usage(fmt.Errorf("--accumulate goes with plans for one device and with schedules with a flush, and --strategy %s is neither: leave one of them out", strategy))
	default:
		f.job.parts = n
	}
	return refuse(cmd, "and --accumulate are two names of one thing: give one of them", "microbatches")
}

// flushes reports whether a step of a strategy's plans is microbatches.
func flushes(name string) bool {
	s, err := planner.LookupPipeline(name)
	return err == nil && s.Divides()
}

// onlyPipeline reports whether a strategy is one of several devices alone.
func onlyPipeline(name string) bool {
	_, err := planner.LookupPipeline(name)
	_, single := planner.LookupSequence(name)
	return err == nil && single != nil
}

// defaultPipes are the strategies when --strategy does not say: the first whose plan can be run. Of stale weights they are stales.
var defaultPipes = []string{defaultPipeline, "joint-flush", "1f1b-recompute", "1f1b-flush"}

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
	case asksStale(f.versions) || f.PipeMare > 0:
		names = stales(f.versions)
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
	if err := f.name(strategy); err != nil {
		return err
	}
	if err := f.stageFlags.check(f.strategies); err != nil {
		return err
	}
	first := f.strategies[0]
	switch {
	case f.microbatches > 0 && !first.Divides():
		return usage(fmt.Errorf("--microbatches is for schedules with a flush: %s has none; give one, as in --strategy 1f1b-flush", first.Name))
	case f.versions != string(pipeline.Flush) && !knownVersions(f.versions):
		return unknownVersions(f.versions, "double_buffered, stash, vertical_sync, latest or flush")
	case (f.PipeMare > 0 || f.PipeMareDecay > 0) && first.Type == pipeline.Flushing:
		return usage(fmt.Errorf("--option pipemare.updates and pipemare.decay are for weight versions latest: with %s no weights are stale; give a schedule without a flush, as in --strategy ampnet", first.Name))
	case f.DeferredBatchNorm && first.Type != pipeline.Flushing:
		return usage(fmt.Errorf("--option batchnorm.deferred is for schedules with a flush: %s has none; give one, as in --strategy 1f1b-flush", first.Name))
	}
	return nil
}

// movesState reports whether the run's plan moves weights, gradients and state.
func (f *trainPipeFlags) movesState() bool {
	return f.devices > 0 && f.strategies[0].Type == pipeline.Cyclic
}

// stepParts returns the microbatches of a step, 0 on one device. Where nothing says how many, they are as many as divide the batch, at most two
// a device.
func (f *trainPipeFlags) stepParts() int {
	if f.devices == 0 {
		return 0
	}
	s := f.strategies[0]
	n := f.parts(s, f.devices)
	for f.microbatches == 0 && s.Microbatches == 0 && n > 1 && f.batch%n != 0 {
		n--
	}
	return n
}

// updatesLast reports whether no layer may be updated before all gradients of its step are there.
func (f *trainFlags) updatesLast() bool { return f.clip > 0 || f.onNaN == "skip" }
