package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/devices"
)

// validateFlags are the flags of plimsoll validate.
type validateFlags struct {
	trainingFlags
	memory     sizes
	strategies string
	steps      int
	audit      bool
	out        outFlags
	fleet      fleetFlags

	memoryGiven bool // --memory is not the default
}

// fleetFlags are the flags of plimsoll validate for several devices.
type fleetFlags struct {
	stageFlags
	minibatches int
	simulated   bool
	draws       int
	svg         string

	specs      []string // of --devices, for pipelines; nil: one device
	counts     []int    // devices of each
	strategies []pipeline.Strategy
}

// fleetOnly are the flags that mean nothing on one device.
var fleetOnly = append([]string{"microbatches", "minibatches", "simulated", "draws", "svg"}, stageOnly...)

func (f *fleetFlags) register(cmd *cobra.Command) {
	s := cmd.Flags()
	f.stageFlags.register(cmd, "double_buffered, stash, vertical_sync or latest")
	s.IntVar(&f.minibatches, "minibatches", 24, "minibatches in the steady state of each schedule without a flush")
	s.BoolVar(&f.simulated, "simulated", false, "simulated time, tasks take just the time that they are planned to take; cpu only")
	s.IntVar(&f.draws, "draws", 0, "with --simulated, so many chains whose times are drawn at random in place of the measured one")
	s.StringVar(&f.svg, "svg", "", "pipeline: draw the run of the first row here")
	s.Lookup("devices").Usage = `device, or several for a pipeline: cpu, "cpu*4", or lists of them in turn: "cpu*2;cpu*4"`
}

// defaultFleet are the strategies for several devices when --strategy does not say.
const defaultFleet = "joint,1f1b*,madpipe,eager,joint-flush,gpipe,1f1b-flush,interleaved,zb-h1"

// prepare decides whether the grid is one of pipelines, and checks what that means for the flags.
func (f *validateFlags) prepare(cmd *cobra.Command) error {
	p := &f.fleet
	several, onCPU := false, true
	for spec := range strings.SplitSeq(f.job.devices, ";") {
		items, err := devices.Parse(spec)
		if err != nil {
			return err
		}
		n := 0
		for _, item := range items {
			n += max(item.Parts, 1)
			onCPU = onCPU && item.Kind == "cpu"
		}
		p.specs, p.counts = append(p.specs, strings.TrimSpace(spec)), append(p.counts, n)
		several = several || n > 1 || len(p.specs) > 1
	}
	if err := p.given.read(cmd); err != nil {
		return err
	}
	if !several && p.given.plan == nil {
		p.specs = nil
		return refuse(cmd, `is for pipelines: give several --devices, as in --devices "cpu*4"`, fleetOnly...)
	}
	if f.memoryGiven = cmd.Flags().Changed("memory"); !f.memoryGiven {
		f.memory = sizes{{Share: 1}}
	}
	if !cmd.Flags().Changed("strategy") {
		f.strategies = defaultFleet
	}
	if f.audit && p.simulated {
		return usage(errors.New("--audit and --simulated do not go together: in simulated time nothing is computed; leave one of them out"))
	}
	return firstOf(refuseChoices(cmd, "no-graph", "host-memory"),
		p.check(onCPU), f.memory.check(), p.name(f.strategies), p.stageFlags.check(p.strategies), writable("--svg", p.svg))
}

func (f *fleetFlags) check(onCPU bool) error {
	switch {
	case f.minibatches < 2:
		return usage(fmt.Errorf("--minibatches is %d: a period is the time between two of them, give 2 or more", f.minibatches))
	case f.draws < 0:
		return usage(fmt.Errorf("--draws is %d: give a number from 1", f.draws))
	case f.draws > 0 && f.given.plan != nil:
		return usage(errors.New("--draws and --plan do not go together: the plan is for one chain's times"))
	case f.draws > 0 && !f.simulated:
		return usage(errors.New("--draws is for simulated time: kernels take the time that they take; give --simulated too"))
	case f.simulated && !onCPU:
		return usage(errors.New(`--simulated is for cpu, as in --devices "cpu*4": other devices cannot wait for a given time`))
	case !knownVersions(f.versions):
		return unknownVersions(f.versions, "double_buffered, stash, vertical_sync or latest")
	}
	return nil
}

// name looks up the strategies: a plan that is given is one.
func (f *fleetFlags) name(list string) (err error) {
	switch {
	case f.given.plan != nil:
		f.strategies = []pipeline.Strategy{f.given.strategy()}
	case list == "all":
		f.strategies = planner.Pipelines()
	default:
		f.strategies, err = lookupAll(strings.Split(list, ","), planner.LookupPipeline)
	}
	return err
}

// split groups the strategies by the microbatches of their steps, those without a flush first.
func (f *fleetFlags) split(devices int) (groups [][]pipeline.Strategy) {
	by := map[int][]pipeline.Strategy{}
	for _, s := range f.strategies {
		n := f.parts(s, devices)
		by[n] = append(by[n], s)
	}
	for _, n := range slices.Sorted(maps.Keys(by)) {
		groups = append(groups, by[n])
	}
	return groups
}
