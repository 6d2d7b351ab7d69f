package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"plimsoll/bench/sweep"
	"plimsoll/internal/units"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/interop"
)

// stageFlags say how a model is planned on several devices, in train and in validate.
type stageFlags struct {
	microbatches int
	versions     string
	zero         int
	hostState    bool // the host has the optimizer's state
	links        platformFlags
	given        givenFlags
	portals      bool
}

// stageOnly are the flags that mean nothing on one device, microbatches aside.
var stageOnly = []string{"plan", "versions", "peer-bandwidth", "platform", "portals", "zero"}

// register registers the flags, of which versions may name some.
func (f *stageFlags) register(cmd *cobra.Command, versions string) {
	s := cmd.Flags()
	s.IntVar(&f.microbatches, "microbatches", 0, microbatchesUsage)
	s.StringVar(&f.versions, "versions", "", "weight versions: "+versions+" (default: the strategy's)")
	s.IntVar(&f.zero, "zero", 0, zeroUsage)
	f.links.register(cmd)
	f.given.register(cmd)
	debugOf(cmd).BoolVar(&f.portals, "portals", true, "")
	s.Lookup("bandwidth").Usage += "; pipeline: stages may offload"
}

// check refuses what the strategies do not know.
func (f *stageFlags) check(strategies []pipeline.Strategy) error {
	return firstOf(checkMicrobatches(f.microbatches), checkZero(f.zero, strategies...), zeroOfPlan(f.zero, f.given.plan), checkHostState(f.hostState, f.given.plan, strategies...), f.links.check())
}

// straight reports whether skips may go straight from stage to stage: a plan that is given says its own.
func (f *stageFlags) straight() bool { return f.portals && f.given.plan == nil }

// parts returns the microbatches of a step of a strategy on so many devices: 1 without a flush, where every minibatch is a step.
func (f *stageFlags) parts(s pipeline.Strategy, devices int) int {
	switch {
	case s.Type == pipeline.Cyclic:
		return cmp.Or(f.microbatches, s.Microbatches, 1)
	case s.Type != pipeline.Flushing:
		return 1
	}
	return cmp.Or(f.microbatches, s.Microbatches, 2*devices)
}

// anyFlushes reports whether a schedule may split backwards, so that the chain must say what the halves take.
func anyFlushes(all []pipeline.Strategy) bool {
	return slices.ContainsFunc(all, func(s pipeline.Strategy) bool { return s.Type == pipeline.Flushing })
}

const microbatchesUsage = "microbatches of a step with a flush (default: at most 2 a device, as the batch divides)"

// checkMicrobatches refuses a number of microbatches below 0, which is the default's.
func checkMicrobatches(n int) error {
	if n < 0 {
		return usage(fmt.Errorf("--microbatches is %d: give a number from 1", n))
	}
	return nil
}

// givenFlags name a pipeline plan that is run as it is.
type givenFlags struct {
	path string
	plan *pipeline.Plan // nil without the flag
}

func (f *givenFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.path, "plan", "p", "", "plan file to run as it is, ours or not, in place of --strategy")
}

// saidByPlan are flags whose values a plan has.
var saidByPlan = []string{"strategy", "microbatches", "versions", "portals"}

// read reads the plan and refuses flags that would say otherwise than it does.
func (f *givenFlags) read(cmd *cobra.Command) (err error) {
	switch {
	case f.path == "":
		return nil
	case interop.IsTable(f.path):
		return usage(fmt.Errorf("--plan %s is a table, which is a strategy: give it as --strategy %s", f.path, f.path))
	}
	if err := refuse(cmd, "and --plan do not go together: the plan says it", saidByPlan...); err != nil {
		return err
	}
	f.plan, err = pipeline.Read(f.path)
	if err == nil && f.plan.IsSequence() {
		err = fmt.Errorf("%s: a plan for one device: --plan is for several devices", f.path)
	}
	if err != nil {
		return usage(fmt.Errorf("--plan: %w", err))
	}
	if f.plan.IsFlush() && f.plan.Microbatches == 0 {
		return usage(fmt.Errorf("--plan: %s: field \"microbatches\" is missing: a plan with a flush says how many a step has", f.path))
	}
	return nil
}

// strategy returns the plan as a strategy.
func (f *givenFlags) strategy() pipeline.Strategy {
	return pipeline.Given(cmp.Or(f.plan.Strategy, "given"), f.plan)
}

// hash tells plans apart; "" without one.
func (f *givenFlags) hash() string {
	if f.plan == nil {
		return ""
	}
	text, err := json.Marshal(f.plan)
	if err != nil {
		panic("BUG: a plan that was read has no JSON: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// devices returns how many devices the plan is for: as many as its platform has or, on another one, as its stages name.
func (f *givenFlags) devices(elsewhere bool) (n int) {
	if f.plan.Platform != nil && !elsewhere {
		return f.plan.Platform.Devices
	}
	for _, st := range f.plan.Stages {
		for _, d := range st.Devices {
			n = max(n, d+1)
		}
	}
	return n
}

// knownVersions reports whether --versions is one that a strategy without a flush can plan with, or not given.
func knownVersions(versions string) bool {
	return slices.Contains([]pipeline.Versions{"", pipeline.DoubleBuffered, pipeline.Stash, pipeline.VerticalSync, pipeline.Latest}, pipeline.Versions(versions))
}

func unknownVersions(versions, known string) error {
	return usage(fmt.Errorf("--versions is %q: give %s", versions, known))
}

// platformFlags say what links a pipeline's devices.
type platformFlags struct {
	file          string
	peerBandwidth units.Bandwidth
	opsAtOnce     float64
}

func (f *platformFlags) register(cmd *cobra.Command) {
	s := cmd.Flags()
	s.Var(&f.peerBandwidth, "peer-bandwidth", "bandwidth between cpu parts (default: not slowed)")
	s.StringVar(&f.file, "platform", "", "file of plimsoll devices -o with the links (default: --plan's)")
	optionsOf(cmd).Float64Var(&f.opsAtOnce, "platform.ops-at-once", 0, "")
}

func (f *platformFlags) check() error {
	if f.file != "" && f.peerBandwidth > 0 {
		return usage(errors.New("--peer-bandwidth and --platform both say how fast the links are: give one of them"))
	}
	return nil
}

// platform returns so many devices, that --devices names, as the platform to plan with: that of the file, or else of the plan, or
// else alike and linked at --peer-bandwidth. Stages offload where it says how fast, or a bandwidth to the host does, which is 0
// when it is not given.
func (f *platformFlags) platform(devices int, host units.Bandwidth, duplex bool, given *givenFlags) (p *pipeline.Platform, err error) {
	bandwidth := pipeline.Free()
	if f.peerBandwidth > 0 {
		bandwidth = float64(f.peerBandwidth)
	}
	switch {
	case f.file != "":
		if p, err = pipeline.ReadPlatform(f.file); err != nil {
			return nil, usage(err)
		}
		if p.Devices != devices {
			return nil, usage(fmt.Errorf("--platform %s has %d devices, --devices names %d", f.file, p.Devices, devices))
		}
	case given.plan != nil && given.plan.Platform == nil:
		return nil, usage(fmt.Errorf("--plan %s does not say its platform: give it, as in --platform platform.json", given.path))
	case given.plan != nil:
		p = given.plan.Platform
	default:
		p = pipeline.NewPlatform(devices, pipeline.NoLimit, bandwidth)
	}
	if given.plan != nil {
		if n := given.devices(f.file != ""); n > devices || n < devices && f.file == "" {
			return nil, usage(fmt.Errorf("--plan %s is for %d devices, --devices names %d: give as many, as in --devices \"cpu*%d\"", given.path, n, devices, n))
		}
	}
	q := *p
	if f.peerBandwidth > 0 {
		q.Bandwidth, q.Levels, q.Pairs = bandwidth, nil, nil
	}
	if host > 0 {
		if f.file != "" && q.Host > 0 {
			return nil, usage(fmt.Errorf("--bandwidth and field \"host_bandwidth_bytes_per_s\" of --platform %s both say how fast the links to host memory are: give one of them", f.file))
		}
		q.Host = float64(host)
	}
	q.Duplex = q.Duplex || duplex
	q.OpsAtOnce = cmp.Or(f.opsAtOnce, q.OpsAtOnce)
	return &q, nil
}

// examine refuses a plan that is given and breaks a rule on a chain and a platform, as check does: it says every violation. Measured
// means that the chain is not from a file; anyMemory, that the platform's memory does not count.
func (f *givenFlags) examine(a *app, c *chain.Chain, p *pipeline.Platform, measured, anyMemory bool) error {
	if f.plan == nil {
		return nil
	}
	if name := f.plan.Chain; name != "" && name != c.Name {
		return usage(fmt.Errorf("--plan %s: field \"chain\" is %q, the chain's name %q: the plan is for another chain", f.path, name, c.Name))
	}
	if n := len(f.plan.Stages); n > 0 && f.plan.Stages[n-1].Last != c.Len() {
		return usage(fmt.Errorf("--plan %s: its stages end with layer %d, %s has %d layers: the plan is for another chain", f.path, f.plan.Stages[n-1].Last, cmp.Or(c.Name, "the chain"), c.Len()))
	}
	if n := f.plan.Batch; n > 0 && c.Batch > 0 && n != c.Batch {
		return usage(fmt.Errorf("--plan %s: field \"batch\" is %d: its minibatches, or microbatches, have so many samples, here they have %d: give --batch %d", f.path, n, c.Batch, n*max(1, f.plan.Microbatches)))
	}
	if anyMemory {
		p = p.WithMemory(pipeline.NoLimit)
	}
	_, err := pipeline.Check(c, p, f.plan)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("--plan %s: %w", f.path, err)
	var invalid *pipeline.InvalidError
	if !errors.As(err, &invalid) {
		return usage(err)
	}
	for _, v := range invalid.Violations {
		a.note("%s", v.Reason)
	}
	switch {
	case invalid.OnlyMemory():
		return noFit{err}
	case measured:
		return usage(fmt.Errorf("%w; the times are those that were measured here: give the chain that the plan was made with, as in --profile c.json", err))
	}
	return usage(err)
}

// readGiven reads plans to compare with strategies, for one device or for several. Rows are named after their files.
func readGiven(paths []string, several bool) (all []sweep.Given, err error) {
	for _, path := range paths {
		p, err := pipeline.Read(path)
		switch {
		case err != nil:
		case several && p.IsSequence():
			err = fmt.Errorf("%s: a plan for one device: give it to plimsoll bench", path)
		case !several && !p.IsSequence():
			err = fmt.Errorf("%s: a pipeline plan, not a plan for one device: give it to plimsoll bench pipelines", path)
		}
		if err != nil {
			return nil, usage(fmt.Errorf("--plan: %w", err))
		}
		name := filepath.Base(path)
		if slices.ContainsFunc(planner.Strategies(), func(s pipeline.Strategy) bool { return s.Name == name }) {
			return nil, usage(fmt.Errorf("--plan %s: rows are named after the files, and %s is a strategy: rename the file", path, name))
		}
		if slices.ContainsFunc(all, func(g sweep.Given) bool { return g.Name == name }) {
			return nil, usage(fmt.Errorf("--plan: two files are named %s, and rows are named after the files: rename one", name))
		}
		all = append(all, sweep.Given{Name: name, Plan: p})
	}
	return all, nil
}
