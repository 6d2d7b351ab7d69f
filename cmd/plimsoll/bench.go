package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"plimsoll/bench"
	"plimsoll/bench/sweep"
	"plimsoll/executor"
	"plimsoll/internal/units"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// benchCommand is plimsoll bench.
type benchCommand struct {
	*app
	grid       validateFlags
	chains     []string
	bandwidths bandwidths
	points     int
	plans      []string
	given      []sweep.Given
}

func newBenchCommand(a *app) *cobra.Command {
	c := &benchCommand{app: a, grid: validateFlags{memory: sizes{{Share: 1}, {Share: 0.75}, {Share: 0.5}}}}
	cmd := command("bench", "Sweep limits, strategies and bandwidths, and draw the pictures", `Compare strategies over memory limits and bandwidths of the link, and draw throughput, makespan and offloaded data.

A model (-m) is measured: its steps run on the device, whose link is slowed down to each bandwidth. Chain files (-c) are
simulated; limits are between the least memory in which the chain can be trained and store-all's peak. Simulated
and measured points look different in every picture. Plan files (--plan), whoever made them, run beside the strategies
at every limit in which they fit, under the names of their files.

The folder of --out gets points.jsonl, points.csv, index.html and figures as SVG, named after the figures of
A. Shilova's thesis that they correspond to. A sweep that was interrupted goes on with the same command; what is in
points.jsonl is not done again. Points of a chain that has changed since stay there and are not shown.`, nil)
	cmd.Example = `  plimsoll bench -c resnet50.json,vgg16.json --bandwidths 6GB/s,12GB/s --out out/bench
  plimsoll bench -c c.json --plan mine.json,theirs.json --bandwidths 12GB/s
  plimsoll bench -m densenet121 --batch 16 --memory 100%,90%,80% --bandwidths 250MB/s,1GB/s --strategy rotor,pofo`
	c.grid.register(a, cmd)
	c.grid.link.makeHalf(cmd)
	s := cmd.Flags()
	s.StringSliceVarP(&c.chains, "chain", "c", nil, "chain files to simulate, separated by commas")
	s.StringSliceVarP(&c.plans, "plan", "p", nil, "plan files to compare with the strategies, separated by commas: each runs as it is, on the chain that it names")
	s.Var(&c.bandwidths, "bandwidths", "bandwidths of the link, separated by commas (default: that of the chain or of --bandwidth)")
	s.IntVar(&c.points, "points", 11, "limits of a simulated chain")
	s.Var(&c.grid.memory, "memory", "limits of a measured model, separated by commas")
	s.StringVar(&c.grid.strategies, "strategy", "all", "strategies, separated by commas; all is every one")
	s.IntVar(&c.grid.steps, "steps", 3, "training steps of each measured point")
	c.grid.out.register(cmd, "out/bench", "folder for the results")
	cmd.AddCommand(newBenchPipelinesCommand(a))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c.grid.job.until = cmd.Context()
		return c.run(cmd.Context())
	}
	return cmd
}

// mostPoints is more than a picture can show.
const mostPoints = 10_000

// check refuses what cannot be swept.
func (c *benchCommand) check() error {
	switch {
	case c.grid.job.model == "" && len(c.chains) == 0:
		return usage(errors.New("nothing to sweep: give chain files to simulate, as in -c resnet50.json, or a model to measure, as in -m densenet121"))
	case c.points < 2 || c.points > mostPoints:
		return usage(fmt.Errorf("--points is %d: give a number from 2 to %d", c.points, mostPoints))
	}
	return c.grid.link.check()
}

// givenFor returns the plans for a chain.
func (c *benchCommand) givenFor(swept *chain.Chain) (plans []sweep.Given, err error) {
	for i, g := range c.given {
		if g.Plan.Chain != swept.Name {
			continue
		}
		if err := g.Plan.For(swept); err != nil {
			return nil, usage(fmt.Errorf("--plan %s: %w", c.plans[i], err))
		}
		plans = append(plans, g)
	}
	return plans, nil
}

// sequences are the sequences of the given plans, for a digest.
func (c *benchCommand) sequences() (all []string) {
	for _, g := range c.given {
		all = append(all, g.Plan.Sequence().String())
	}
	return all
}

// readChains reads what is simulated, and refuses plans for other chains.
func (c *benchCommand) readChains() (chains []*chain.Chain, err error) {
	names := []string{c.grid.job.model}
	for _, path := range c.chains {
		swept, err := readPlainChain(path, "a sweep")
		if err != nil {
			return nil, err
		}
		chains, names = append(chains, swept), append(names, swept.Name)
	}
	for i, g := range c.given {
		if !slices.Contains(names, g.Plan.Chain) {
			return nil, usage(fmt.Errorf("--plan %s is for the chain %q, which is not swept: give its chain file, as in -c c.json", c.plans[i], g.Plan.Chain))
		}
	}
	return chains, nil
}

func (c *benchCommand) run(ctx context.Context) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	if c.given, err = readGiven(c.plans, false); err != nil {
		return err
	}
	chains, err := c.readChains()
	if err != nil {
		return err
	}
	strategies, err := namedStrategies(c.grid.strategies)
	if err != nil {
		return err
	}
	out, err := c.grid.out.open(ctx, c.app, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	store, err := sweep.Open(out.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	var found []sweep.Claim
	for _, swept := range chains {
		claims, err := c.simulate(ctx, swept, strategies, store)
		if err != nil {
			return err
		}
		found = append(found, claims...)
	}
	if c.grid.job.model != "" {
		if err := c.measure(ctx, store); err != nil {
			return err
		}
	}
	points := store.Current()
	found = append(found, sweep.Claims(points)...)
	figures, err := sweep.WriteFolder(out.Dir, points, found, c.facts()...)
	if err != nil {
		return err
	}
	return c.printPoints(points, found, figures)
}

// simulate sweeps a chain.
func (c *benchCommand) simulate(ctx context.Context, swept *chain.Chain, strategies []pipeline.Strategy, store *sweep.Store) ([]sweep.Claim, error) {
	given, err := c.givenFor(swept)
	if err != nil {
		return nil, err
	}
	if strategies == nil {
		strategies = planner.Sequences()
	}
	s := &sweep.Simulation{Chain: swept, Links: c.links(executor.LinkOf(swept)), Strategies: strategies, Given: given, Options: c.grid.options.Options}
	for i := range c.points {
		s.Alphas = append(s.Alphas, float64(i)/float64(c.points-1))
	}
	if err := s.Run(ctx, store, c.progress(swept.Name)); err != nil {
		return nil, err
	}
	p, err := sweep.ComparePeriodic(ctx, swept)
	if p == nil || err != nil {
		return nil, err
	}
	return []sweep.Claim{p.Claim()}, nil
}

// links are the flags' links, or else the one that the chain was measured with.
func (c *benchCommand) links(own schedule.Link) (all []schedule.Link) {
	for _, b := range c.bandwidths {
		all = append(all, schedule.Link{Bandwidth: float64(b), Duplex: c.grid.link.duplex})
	}
	if len(all) == 0 && own.Bandwidth > 0 {
		own.Duplex = own.Duplex || c.grid.link.duplex
		all = append(all, own)
	}
	return all
}

// measure sweeps a model on the device, a bandwidth after the other.
func (c *benchCommand) measure(ctx context.Context, store *sweep.Store) error {
	list := c.bandwidths
	if len(list) == 0 {
		list = bandwidths{c.grid.job.bandwidth}
	}
	for _, b := range list {
		c.grid.job.bandwidth = b
		if err := c.measureAt(ctx, store); err != nil {
			return err
		}
	}
	return nil
}

// measureAt measures the grid of one bandwidth, unless the store has all of it.
func (c *benchCommand) measureAt(ctx context.Context, store *sweep.Store) error {
	g, err := c.grid.openGrid(c.app)
	if err != nil {
		return err
	}
	digest, err := sweep.Digest(g.Job.Config, g.Job.Data, g.Job.Seed, g.Job.Device.Model, c.grid.job.bandwidth, c.grid.job.optimizer, c.grid.steps, c.sequences())
	if err != nil {
		return err
	}
	link, err := c.fill(ctx, g)
	if err != nil {
		return err
	}
	if complete(g, store, g.Job.Model, digest, link) {
		c.note("%s with %s was measured before", g.Job.Model, units.Rate(link.Bandwidth, "B"))
		return nil
	}
	g.Progress = c.progress(g.Job.Model + " " + units.Rate(link.Bandwidth, "B"))
	r, err := g.Run(ctx)
	if err != nil {
		return err
	}
	points, err := g.Points(r, digest, link)
	if err != nil {
		return err
	}
	for _, p := range points {
		if err := store.Add(p); err != nil {
			return err
		}
	}
	return broken(r.Failures(), len(r.Rows), "points")
}

// fill measures the grid's chain and finds its strategies; it returns the link that points are named after.
func (c *benchCommand) fill(ctx context.Context, g *bench.Grid) (link schedule.Link, err error) {
	measure, err := c.grid.how.measure(c.progress("profile"))
	if err != nil {
		return link, err
	}
	if g.Chain, err = c.grid.chain(ctx, c.app, g.Job, measure); err != nil {
		return link, err
	}
	// Points are named after the link that was asked for, because the measured one differs from time to time.
	link = executor.LinkOf(g.Chain)
	if c.grid.job.bandwidth > 0 {
		link.Bandwidth = float64(c.grid.job.bandwidth)
	}
	if g.Strategies == nil {
		g.Strategies = planner.For(link)
	}
	given, err := c.givenFor(g.Chain)
	for _, p := range given {
		g.Strategies = append(g.Strategies, pipeline.Given(p.Name, p.Plan))
	}
	return link, err
}

// complete reports whether every point of a grid is known.
func complete(g *bench.Grid, store *sweep.Store, model, digest string, link schedule.Link) bool {
	return !slices.ContainsFunc(g.Strategies, func(s pipeline.Strategy) bool {
		return slices.ContainsFunc(g.Limits, func(l bench.Limit) bool {
			return !store.Has(sweep.Key{
				Source: sweep.Measured, Chain: model, Input: digest, Strategy: s.Name, MemoryBytes: l.Bytes,
				Bandwidth: link.Bandwidth, Duplex: link.Duplex,
			})
		})
	})
}

// benchFigures is the JSON of plimsoll bench.
type benchFigures struct {
	Points  []sweep.Point `json:"points"`
	Claims  []sweep.Claim `json:"claims"`
	Figures []string      `json:"figures"`
}

func (c *benchCommand) printPoints(points []sweep.Point, found []sweep.Claim, figures []sweep.Figure) error {
	b := benchFigures{Points: points, Claims: found}
	for _, f := range figures {
		b.Figures = append(b.Figures, f.Name)
	}
	return c.print(b, func(w io.Writer) {
		_ = sweep.ClaimTable(found).Text(w) // as all that is printed, it is not worth failing for
		fmt.Fprintf(w, "\n%d points and %d figures: %s\n", len(points), len(figures), filepath.Join(c.grid.out.path, "index.html"))
	})
}
