package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"plimsoll/bench"
	"plimsoll/bench/report"
	"plimsoll/bench/validate"
	"plimsoll/executor"
	"plimsoll/executor/train"
	"plimsoll/internal/atomicfile"
	"plimsoll/internal/folder"
	"plimsoll/internal/units"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// validateCommand is plimsoll validate.
type validateCommand struct {
	*app
	validateFlags
}

func newValidateCommand(a *app) *cobra.Command {
	c := &validateCommand{app: a, validateFlags: validateFlags{memory: sizes{{Share: 1}, {Share: 0.75}, {Share: 0.5}}}}
	cmd := command("validate", "Compare predicted and measured time and memory over a grid", `Train a few steps along the plan of every strategy under every limit, and print predicted beside measured time and peak.

Losses are compared with store-all's after every step; weights, buffers, gradients and optimizer states after the last one, byte for byte.
The exit code is 1 when a row differs, or its peak from the predicted one.`, nil)
	setDetails(cmd, validateDetails)
	cmd.Example = `  plimsoll validate -m resnet20 --batch 16 --memory 100%,75%,50% --strategy rotor,rotor-exact --steps 3
  plimsoll validate -m densenet121 --image 64 --batch 4 --memory 60% --audit
  plimsoll validate -m resnet20 --image 16 --batch 16 --devices "cpu*2;cpu*4" --strategy gpipe,1f1b-flush,zb-h1 --out out/validated
  plimsoll validate -m resnet20 --image 16 --batch 4 --devices "cpu*4" --strategy "1f1b*,madpipe,eager" --simulated --draws 3 --peer-bandwidth 10MB/s --svg run.svg`
	c.register(a, cmd)
	s := cmd.Flags()
	s.Var(&c.memory, "memory", "memory limits of the arena, separated by commas; of pipelines 100%")
	s.StringVar(&c.strategies, "strategy", "all", "strategies, separated by commas; all is every one")
	s.IntVar(&c.steps, "steps", 3, "training steps of each row")
	s.BoolVar(&c.audit, "audit", false, "compare what every op leaves, too; pipeline with a flush: measure the peak")
	c.out.register(cmd, "", "folder for validate.json, index.html and trace.json, of pipelines also tables.md")
	c.fleet.register(cmd)
	a.registerVerbose(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.prepare(cmd); err != nil {
			return err
		}
		c.job.until = cmd.Context()
		return c.run(cmd.Context())
	}
	return cmd
}

// validateDetails is the end of the help text.
const validateDetails = `With --audit the outputs, gradients, BatchNorm statistics and random state of every op are compared too, and the first layer that differs
is named.

Several --devices compare pipelines: the period of a plan or the makespan of its step, the highest byte of every device and its idle
time, each beside the prediction. The weights after steps with a flush are compared with one device's. A share of --memory is one of the
largest need of a device under a plan without a limit. --plan measures one plan, ours or not, as train runs it.

Where the devices share processors, predictions count how many ops these run at once. With --simulated every task takes exactly its planned time, and
periods can be compared. With --audit a step with a flush stops after every op. No other memory may have been
written than the minibatches in flight hold then. Their largest sum is the measured peak.`

// comparison is the result of a grid: bench.Result of plans for one device, validate.Report of plans for several.
type comparison interface {
	Print(w io.Writer, verbose bool) error
	WriteFolder(at *folder.Dir, facts ...report.Fact) error
	// Failures names the rows, of Size, that broke a promise about bits or bytes.
	Failures() []string
	Size() int
}

func (c *validateCommand) run(ctx context.Context) (err error) {
	place, err := c.out.open(ctx, c.app, "")
	if err != nil {
		return err
	}
	defer func() { err = firstOf(err, place.Close()) }()
	measure := c.measureSteps
	if c.fleet.specs != nil {
		measure = c.measurePipelines
	}
	m, err := measure(ctx)
	if err != nil {
		return err
	}
	return showComparison(c.app, m, place)
}

// showComparison writes what a grid found to a folder, which may be nil, and prints it. It fails when a row broke a promise.
func showComparison(a *app, m comparison, place *folder.Folder) error {
	if place != nil {
		if err := place.Check(); err != nil {
			return err
		}
		if err := m.WriteFolder(place.Dir, a.facts()...); err != nil {
			return err
		}
	}
	if err := a.print(m, func(w io.Writer) { _ = m.Print(w, a.verbose) }); err != nil { // as all that is printed, it is not worth failing for
		return err
	}
	return broken(m.Failures(), m.Size(), "rows")
}

// measureSteps measures plans for one device.
func (c *validateCommand) measureSteps(ctx context.Context) (comparison, error) {
	g, err := c.openGrid(c.app)
	if err != nil {
		return nil, err
	}
	measure, err := c.how.measure(c.progress("profile"))
	if err != nil {
		return nil, err
	}
	if g.Chain, err = c.chain(ctx, c.app, g.Job, measure); err != nil {
		return nil, err
	}
	if g.Strategies == nil {
		g.Strategies = planner.For(executor.LinkOf(g.Chain))
	}
	return g.Measure(ctx, "validate")
}

// openGrid checks the flags and opens the job.
func (f *validateFlags) openGrid(a *app) (*bench.Grid, error) {
	rate, err := f.rate.rate(f.job.optimizer, f.steps)
	if err != nil {
		return nil, err
	}
	if err := f.link.check(); err != nil {
		return nil, err
	}
	strategies, err := namedStrategies(f.strategies)
	if err != nil {
		return nil, err
	}
	f.job.hostMemory = f.link.memory
	job, err := f.job.open()
	if err != nil {
		return nil, err
	}
	limits, err := limitsOf(job, f.memory)
	if err != nil {
		return nil, err
	}
	host := job.HostLimit(f.link.memory.Bytes)
	f.options.HostMemory = job.Work.HostRoom(host)
	return &bench.Grid{
		Job: job, Limits: limits, Strategies: strategies, Options: f.options.Options, Steps: f.steps, Rate: rate,
		Audit: f.audit, HostLimit: host, Progress: a.progress("validate"),
	}, nil
}

func limitsOf(job *train.Job, list sizes) ([]bench.Limit, error) {
	if err := list.check(); err != nil {
		return nil, err
	}
	all, err := job.StoreAllBytes()
	if err != nil {
		return nil, err
	}
	var limits []bench.Limit
	for _, size := range list {
		limits = append(limits, bench.Limit{Name: size.String(), Bytes: size.Of(all)})
	}
	return limits, nil
}

// broken is the error of measurements of which some broke a promise about bits or bytes, nil when none did.
func broken(failures []string, of int, what string) error {
	if len(failures) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d %s broke a promise: %s", len(failures), of, what, strings.Join(failures, "; "))
}

// measurePipelines measures plans for several devices, and draws the run of the first one.
func (c *validateCommand) measurePipelines(ctx context.Context) (comparison, error) {
	g, err := c.openFleet(ctx)
	if err != nil {
		return nil, err
	}
	r, err := g.Run(ctx)
	if err != nil || c.fleet.svg == "" {
		return r, err
	}
	t, err := r.Rows[0].Picture()
	if err != nil {
		return nil, err
	}
	return r, atomicfile.WriteFile(c.fleet.svg, t.WriteSVG)
}

// openFleet checks the flags, opens the jobs and measures their chains.
func (c *validateCommand) openFleet(ctx context.Context) (*validate.Fleet, error) {
	rate, err := c.rate.rate(c.job.optimizer, c.steps)
	if err != nil {
		return nil, err
	}
	measure, err := c.how.measure(c.progress("profile"))
	if err != nil {
		return nil, err
	}
	measure.Halves = anyFlushes(c.fleet.strategies)
	k := &fleetChains{validateCommand: c, measure: measure, measured: map[string]*chain.Chain{}}
	for i, spec := range c.fleet.specs {
		for _, strategies := range c.fleet.split(c.fleet.counts[i]) {
			if err := k.add(ctx, spec, c.fleet.counts[i], strategies); err != nil {
				return nil, err
			}
		}
	}
	return &validate.Fleet{
		Cases: k.cases, Limits: c.memory, Versions: pipeline.Versions(c.fleet.versions), Zero: pipeline.Zero(c.fleet.zero), Simulated: c.fleet.simulated, Portals: c.fleet.straight(), Audit: c.audit,
		Steps: c.steps, Minibatches: c.fleet.minibatches, Rate: rate, Progress: c.progress("validate"),
	}, nil
}

// fleetChains makes the cases of a grid. Jobs of the same batch on the same kind of device share a measured chain.
type fleetChains struct {
	*validateCommand
	measure  train.Measure
	measured map[string]*chain.Chain
	cases    []validate.Case
}

// add opens a job for strategies whose steps have as many microbatches, and adds its cases: one, or one for each draw.
func (k *fleetChains) add(ctx context.Context, spec string, devices int, strategies []pipeline.Strategy) error {
	fleet := &k.fleet
	platform, err := fleet.links.platform(devices, k.job.bandwidth, k.link.duplex, &fleet.given)
	if err != nil {
		return err
	}
	flags := k.job
	flags.devices, flags.microbatches = spec, fleet.parts(strategies[0], devices)
	if flags.peerBandwidth, err = fleet.slowed(platform); err != nil {
		return err
	}
	job, err := flags.open()
	if err != nil {
		return err
	}
	c := validate.Case{Job: job, Platform: platform, Strategies: strategies}
	for draw := range k.fleet.draws {
		c.Draw = uint64(draw + 1)
		c.Chain = validate.Drawn(job.Work.Chain(), c.Draw)
		k.cases = append(k.cases, c)
	}
	if k.fleet.draws > 0 {
		return nil
	}
	key := fmt.Sprint(job.Device.Model, job.Config.Batch)
	if k.measured[key] == nil {
		if k.measured[key], err = k.cache.measured(ctx, k.app, job, k.measure); err != nil {
			return err
		}
	}
	c.Chain = k.measured[key]
	if !fleet.simulated {
		if c.Platform, err = k.cache.onProcessors(ctx, platform, job, k.measure); err != nil {
			return err
		}
	}
	k.cases = append(k.cases, c)
	return fleet.given.examine(k.app, c.Chain, c.Platform, k.cache.file == "", k.memoryGiven)
}

// slowed returns the bandwidth to which the links of the cpu are slowed down, 0 where they are not. It is the one of --peer-bandwidth
// or, in simulated time, the platform's.
func (f *fleetFlags) slowed(p *pipeline.Platform) (units.Bandwidth, error) {
	if !f.simulated || p.Devices < 2 || p.Beta(0, 1) == pipeline.Free() {
		return f.links.peerBandwidth, nil
	}
	for x := range p.Devices {
		for y := range x {
			if p.Beta(x, y) != p.Beta(0, 1) {
				return 0, usage(fmt.Errorf("--simulated: links of the cpu all have one bandwidth, the platform has %s between devices 0 and 1, %s between %d and %d: leave it out, or give equal links",
					units.Rate(p.Beta(0, 1), "B"), units.Rate(p.Beta(x, y), "B"), y, x))
			}
		}
	}
	return units.Bandwidth(p.Beta(0, 1)), nil
}
