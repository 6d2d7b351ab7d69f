package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"plimsoll/bench"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/planner"
	"plimsoll/planner/auto"
	"plimsoll/planner/strategy"
)

// demoCommand is plimsoll demo.
type demoCommand struct {
	*app
	job   jobFlags
	text  string // the language model; "": none
	steps int    // of each row
	out   outFlags
}

func newDemoCommand(a *app) *cobra.Command {
	d := &demoCommand{app: a}
	cmd := command("demo", "Show the main job: a ResNet under five limits, and GPTs", `Measure a ResNet on handwritten digits and train it along plans for 100, 75, 50, 35 and 25 % of the memory that it takes.

Every row compares predicted with measured time and peak, and every bit of the result. The last rows are on a device that has less than
half of the memory that the step takes without a plan. There the model is measured, planned and trained as well. A small GPT on a book
follows, under two limits, and then one on a device that is smaller than its weights.

The folder of --out gets demo.json, index.html and trace.json; its folder text gets the files of the GPT.`, nil)
	d.job.register(a, cmd)
	s := cmd.Flags()
	for name, value := range map[string]string{"model": "resnet56", "batch": "16"} {
		// The flags exist and their defaults parse: an error would be our own bug, and shows in every test.
		if err := s.Lookup(name).Value.Set(value); err != nil {
			panic("BUG: " + err.Error())
		}
		s.Lookup(name).DefValue = value
	}
	a.registerVerbose(cmd)
	d.out.register(cmd, "out/demo", "folder for demo.json, index.html and trace.json")
	s.IntVar(&d.steps, "steps", 8, "training steps of each row")
	s.StringVar(&d.text, "language", "", "language model of the second table (default: gpt2-4-64, and none with another --model)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !s.Changed("model") && !s.Changed("language") {
			d.text = "gpt2-4-64"
		}
		return d.run(cmd.Context())
	}
	return cmd
}

// demoStrategies are one of each kind: nothing saved, PyTorch's checkpoints, the best recomputation, the best
// offloading, both together, and the default. validate runs all.
var demoStrategies = []string{"store-all", "periodic", "rotor-exact", "offload-dynprog", "pofo", "auto"}

// smallStrategies run on a small device. smallKind is what it must at least have memory for.
var smallStrategies = []string{"store-all", "rotor-exact", "auto"}

const smallKind = "rotor-exact"

// smallDevice returns the memory of a device of which store-all needs 2.1 times as much, or that barely fits a plan that recomputes.
func smallDevice(ctx context.Context, job *train.Job) (int64, error) {
	extent, err := job.StoreAllExtent()
	if err != nil {
		return 0, err
	}
	s, err := planner.LookupSequence(smallKind)
	if err != nil {
		return 0, err
	}
	smallest, err := job.Smallest(ctx, planner.KindOf(s))
	return max(int64(float64(extent)/2.1), smallest+smallest/20), err
}

// textShares are the limits of the language model, and textStrategies its plans.
var (
	textShares     = sizes{{Share: 1}, {Share: 0.35}}
	textStrategies = []string{"store-all", "rotor-exact", "auto"}
)

func (d *demoCommand) run(ctx context.Context) (err error) {
	rate, err := (&rateFlags{lr: 0.01, schedule: "constant"}).rate(d.job.optimizer, d.steps)
	if err != nil {
		return err
	}
	place, err := d.out.open(ctx, d.app, "")
	if err != nil {
		return err
	}
	defer func() { err = firstOf(err, place.Close()) }()
	d.job.until = ctx
	words := d.job // before another job's flags are filled in
	shares := sizes{{Share: 1}, {Share: 0.75}, {Share: 0.5}, {Share: 0.35}, {Share: 0.25}}
	g, err := d.grid(ctx, &d.job, shares, demoStrategies)
	if err != nil {
		return err
	}
	device, err := smallDevice(ctx, g.Job)
	if err != nil {
		return err
	}
	d.job.deviceMemory = units.Size{Bytes: device}
	small, err := d.grid(ctx, &d.job, sizes{d.job.deviceMemory}, smallStrategies)
	if err != nil {
		return err
	}
	small.Limits[0].Name = "device"
	all := []*bench.Grid{g, small, nil}
	if d.text != "" {
		words.model, words.data = d.text, ""
		if all[2], err = d.grid(ctx, &words, textShares, textStrategies); err != nil {
			return err
		}
	}
	for _, grid := range all {
		if grid != nil {
			grid.Steps, grid.Rate = d.steps, rate
		}
	}
	r, err := measureAll(ctx, all)
	if err != nil {
		return err
	}
	if d.text != "" {
		moved, err := trainMoved(ctx, d.app, words, d.steps, rate)
		if err != nil {
			return err
		}
		r.AddMoved(moved)
	}
	if err := showComparison(d.app, r, place); err != nil {
		return err
	}
	if !d.json {
		fmt.Fprintf(d.stdout, "written: %s/index.html, %s/trace.json (open it in https://ui.perfetto.dev), %s/demo.json\n", d.out.path, d.out.path, d.out.path)
	}
	return nil
}

// measureAll measures three grids: the second is of the job of the first on a smaller device, the third, which may be nil, of a language model.
func measureAll(ctx context.Context, grids []*bench.Grid) (*bench.Result, error) {
	var all [3]*bench.Result
	for i, g := range grids {
		if g == nil {
			continue
		}
		var err error
		if all[i], err = g.Measure(ctx, "demo"); err != nil {
			return nil, err
		}
	}
	r := all[0]
	if r.AddSmall(all[1]); all[2] != nil {
		r.AddText(all[2])
	}
	return r, nil
}

// grid measures the model of the flags, on their device, for a grid of strategies.
func (d *demoCommand) grid(ctx context.Context, flags *jobFlags, memory sizes, strategies []string) (*bench.Grid, error) {
	job, c, err := profileForDemo(ctx, d.app, flags)
	if err != nil {
		return nil, err
	}
	limits, err := limitsOf(job, memory)
	if err != nil {
		return nil, err
	}
	host := job.HostLimit(0)
	g := &bench.Grid{
		Job: job, Chain: c, Limits: limits, HostLimit: host, Progress: d.progress("demo"),
		Options: strategy.Options{Tolerance: auto.DefaultTolerance, HostMemory: job.Work.HostRoom(host)},
	}
	g.Strategies, err = lookupAll(strategies, planner.LookupSequence)
	return g, err
}
