package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"plimsoll/bench/sweep"
	"plimsoll/internal/units"
	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/profiles"
)

// benchPipelinesCommand is plimsoll bench pipelines.
type benchPipelinesCommand struct {
	*app
	chains     []string
	devices    []int
	memory     sizes
	bandwidths bandwidths
	strategies []string
	plans      []string
	host       units.Bandwidth
	accounting string
	node       int
	within     units.Bandwidth
	out        outFlags

	microbatches int
}

func newBenchPipelinesCommand(a *app) *cobra.Command {
	c := &benchPipelinesCommand{app: a}
	cmd := command("pipelines", "Compare strategies for several devices (simulated)", `Plan chains for numbers of devices, memories and bandwidths with several strategies, and compare the throughput. Plans are checked
and simulated; nothing runs. The folder of --out gets points.csv and tables.md.`, nil)
	cmd.Example = `  plimsoll bench pipelines -c resnet50.json --devices 2,4,8 --memory 4GiB,8GiB --bandwidths 12GB/s --strategy contiguous,madpipe,loadline`
	s := cmd.Flags()
	s.StringSliceVarP(&c.chains, "chain", "c", nil, "chain files, separated by commas")
	s.IntSliceVar(&c.devices, "devices", []int{2, 4, 8}, "numbers of devices")
	s.Var(&c.memory, "memory", "memories of a device, separated by commas, as in 4GiB,8GiB")
	s.Var(&c.bandwidths, "bandwidths", "bandwidths between devices, separated by commas, as in 12GB/s,24GB/s")
	s.StringSliceVar(&c.strategies, "strategy", []string{"pipedream", "contiguous", "madpipe", "loadline"}, "strategies, separated by commas")
	s.StringSliceVarP(&c.plans, "plan", "p", nil, "pipeline plan files to compare with the strategies, separated by commas: each counts as it is, where it keeps the rules")
	s.Var(&c.host, "host-bandwidth", "bandwidth between each device and its host: loadline and joint are planned with it too, as loadline+host")
	s.IntVar(&c.node, "node", 0, "devices of a node, within which links have --node-bandwidth and between which --bandwidths (default: all devices are alike)")
	s.Var(&c.within, "node-bandwidth", "bandwidth between two devices of a node, as in 100GB/s")
	s.IntVar(&c.microbatches, "microbatches", 0, "microbatches of schedules with a flush (default: the strategy's)")
	s.Var(&oneOf{&c.accounting, []string{string(pipeline.Inputs), string(pipeline.Saved)}}, "accounting", "what a minibatch holds in a stage: inputs (thesis) or saved (default: inputs)")
	c.out.register(cmd, "out/pipelines", "folder for the results")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) }
	return cmd
}

// grid reads what the flags name.
func (c *benchPipelinesCommand) grid() (*sweep.Pipelines, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	g := &sweep.Pipelines{Devices: c.devices, Given: map[string]*pipeline.Plan{}, Node: c.node, Within: float64(c.within),
		Options: pipeline.Options{Accounting: pipeline.Accounting(c.accounting), Microbatches: c.microbatches}}
	for _, path := range c.chains {
		source, err := profiles.ReadSource(path)
		if err != nil {
			return nil, usage(err)
		}
		g.Chains = append(g.Chains, source)
	}
	for _, m := range c.memory {
		if err := noShare("--memory", m); err != nil {
			return nil, err
		}
		g.Memories = append(g.Memories, m.Bytes)
	}
	for _, b := range c.bandwidths {
		g.Bandwidths = append(g.Bandwidths, float64(b))
	}
	strategies, err := lookupAll(c.strategies, planner.LookupPipeline)
	if err != nil {
		return nil, err
	}
	for _, s := range strategies {
		g.Strategies = append(g.Strategies, s)
		if g.Host = float64(c.host); (s.Name == "loadline" || s.Name == "joint") && g.Host > 0 {
			g.Strategies = append(g.Strategies, sweep.Offloading(s))
		}
	}
	given, err := readGiven(c.plans, true)
	for _, p := range given {
		g.Strategies, g.Given[p.Name] = append(g.Strategies, pipeline.Given(p.Name, p.Plan)), p.Plan
	}
	return g, firstOf(err, c.once(g))
}

// check refuses what is missing, and numbers that mean nothing.
func (c *benchPipelinesCommand) check() error {
	if len(c.chains) == 0 || len(c.memory) == 0 || len(c.bandwidths) == 0 {
		return usage(errors.New("--chain, --memory and --bandwidths say what is swept: give all three, as in -c resnet50.json --memory 4GiB,8GiB --bandwidths 12GB/s"))
	}
	if len(c.strategies) == 0 || len(c.devices) == 0 {
		return usage(errors.New("--strategy and --devices must not be empty: give names and numbers, as in --strategy contiguous,madpipe --devices 2,4"))
	}
	switch {
	case c.node < 0:
		return usage(fmt.Errorf("--node is %d: give the devices of a node, from 1", c.node))
	case (c.node > 0) != (c.within > 0):
		return usage(errors.New("--node and --node-bandwidth say together what a node is: give both, as in --node 8 --node-bandwidth 100GB/s"))
	}
	if err := checkMicrobatches(c.microbatches); err != nil {
		return err
	}
	for _, d := range c.devices {
		switch {
		case d < 1 || d > pipeline.MaxDevices:
			return usage(fmt.Errorf("--devices: %d is not from 1 to %d", d, pipeline.MaxDevices))
		case c.node > 0 && d > c.node && d%c.node != 0:
			return usage(fmt.Errorf("--devices: %d are not whole nodes of %d (--node)", d, c.node))
		}
	}
	return nil
}

// once refuses what is named twice: a table has one place for it.
func (c *benchPipelinesCommand) once(g *sweep.Pipelines) error {
	seen := map[string]bool{}
	for _, source := range g.Chains {
		at := "chain " + source.Chain.Name
		if seen[at] {
			return usage(fmt.Errorf("--chain: two files hold a chain of the name %q: give each once", source.Chain.Name))
		}
		seen[at] = true
	}
	for _, item := range slices.Concat(texts("--strategy", c.strategies), texts("--devices", c.devices), texts("--memory", g.Memories), texts("--bandwidths", g.Bandwidths)) {
		if seen[item] {
			return usage(fmt.Errorf("%s is given twice", item))
		}
		seen[item] = true
	}
	return nil
}

func texts[T any](flag string, values []T) (all []string) {
	for _, v := range values {
		all = append(all, fmt.Sprintf("%s %v", flag, v))
	}
	return all
}

// pipelineBenchFigures is the JSON of bench pipelines.
type pipelineBenchFigures struct {
	Points []sweep.PipelinePoint `json:"points"`
}

func (c *benchPipelinesCommand) run(ctx context.Context) (err error) {
	g, err := c.grid()
	if err != nil {
		return err
	}
	out, err := c.out.open(ctx, c.app, "")
	if err != nil {
		return err
	}
	defer func() { err = firstOf(err, out.Close()) }()
	g.Progress = c.progress("planning")
	points, stopped := g.Run(ctx)
	text := sweep.PipelineTables(points, g.Duels(points))
	if err := sweep.WritePipelines(out.Dir, points, text); err != nil {
		return err
	}
	if stopped != nil {
		return fmt.Errorf("stopped after %d points, which are in %s: %w", len(points), c.out.path, stopped)
	}
	return c.print(pipelineBenchFigures{points}, func(w io.Writer) { _, _ = io.WriteString(w, text) }) // as all that is printed, it is not worth failing for
}
