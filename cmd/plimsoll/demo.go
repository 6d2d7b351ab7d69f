package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"plimsoll/bench"
	"plimsoll/executor/train"
	"plimsoll/planner"
	"plimsoll/planner/auto"
	"plimsoll/planner/strategy"
)

func (a *app) demo() *cobra.Command {
	job := &jobFlags{}
	var out outFlags
	var steps int
	cmd := command("demo", "Show the main job: a ResNet under five limits", `Measure a ResNet on handwritten digits, plan it with every strategy for 100, 75, 50, 35 and 25 % of the memory that it
takes, train along each plan, and compare: predicted and measured time and peak, and every bit of the result.

The folder of --out gets demo.json, index.html and trace.json.`, nil)
	job.register(cmd)
	s := cmd.Flags()
	for name, value := range map[string]string{"model": "resnet56", "batch": "16"} {
		// The flags exist and their defaults parse: an error would be our own bug, and shows in every test.
		if err := s.Lookup(name).Value.Set(value); err != nil {
			panic("BUG: " + err.Error())
		}
		s.Lookup(name).DefValue = value
	}
	out.register(cmd, "out/demo", "folder for demo.json, index.html and trace.json")
	s.IntVar(&steps, "steps", 8, "training steps of each row")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.runDemo(cmd.Context(), job, steps, out) }
	return cmd
}

// demoStrategies are one of each kind: nothing saved, what PyTorch's checkpoints do, the best recomputation, the best
// offloading, both together, and what the user gets who does not choose. validate runs all.
var demoStrategies = []string{"store-all", "periodic", "rotor-exact", "offload-dynprog", "pofo", "auto"}

func (a *app) runDemo(ctx context.Context, flags *jobFlags, steps int, out outFlags) (err error) {
	rate, err := (&rateFlags{lr: 0.01, schedule: "constant"}).rate(flags.optimizer, steps)
	if err != nil {
		return err
	}
	place, err := out.open(ctx, a)
	if err != nil {
		return err
	}
	defer func() { err = firstOf(err, place.Close()) }()
	flags.until = ctx
	job, err := flags.open()
	if err != nil {
		return err
	}
	limits, err := limitsOf(job, sizes{{Share: 1}, {Share: 0.75}, {Share: 0.5}, {Share: 0.35}, {Share: 0.25}})
	if err != nil {
		return err
	}
	a.note("measuring %s on %s", job.Model, job.Device.Model)
	c, err := job.Profile(ctx, train.Measure{Warmup: 1, Repeats: 3, Progress: a.progress("profile")})
	if err != nil {
		return err
	}
	host := job.HostLimit(0)
	g := &bench.Grid{Job: job, Chain: c, Limits: limits, HostLimit: host, Options: strategy.Options{Tolerance: auto.DefaultTolerance, HostMemory: job.Work.HostRoom(host)}, Steps: steps, Rate: rate, Progress: a.progress("demo")}
	for _, name := range demoStrategies {
		s, err := planner.Lookup(name)
		if err != nil {
			return err
		}
		g.Strategies = append(g.Strategies, s)
	}
	if err := a.runGrid(ctx, g, place, "demo"); err != nil {
		return err
	}
	if !a.json {
		fmt.Fprintf(a.out, "written: %s/index.html, %s/trace.json (open it in https://ui.perfetto.dev), %s/demo.json\n", out.path, out.path, out.path)
	}
	return nil
}
