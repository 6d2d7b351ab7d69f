package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"plimsoll/internal/stats"
	"plimsoll/internal/units"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// portion is a flag with a part of something, above 0 and at most 1: "10%" or "0.1".
type portion float64

// String prints it as a percentage, "" when none was given.
func (s *portion) String() string {
	if *s == 0 {
		return ""
	}
	return units.Percent(float64(*s))
}

// Set implements pflag.Value.
func (s *portion) Set(text string) error {
	x, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if strings.HasSuffix(strings.TrimSpace(text), "%") {
		if x, err = units.ParsePercent(text); err != nil {
			return err
		}
	}
	if err != nil || !(x > 0 && x <= 1) {
		return fmt.Errorf(`%q is no part above 0 and at most 1: write it as "10%%" or 0.1`, text)
	}
	*s = portion(x)
	return nil
}

// Type implements pflag.Value.
func (s *portion) Type() string { return "portion" }

// noiseFlags are the flags of check --noise.
type noiseFlags struct {
	fraction portion
	seed     uint64
	runs     int
	given    func(name string) bool // the user wrote the flag
}

// mostNoisyRuns bounds the runs, so that a slip of the finger does not take days.
const mostNoisyRuns = 1_000_000

func (f *noiseFlags) register(cmd *cobra.Command) {
	s := cmd.Flags()
	s.Var(&f.fraction, "noise", "simulate with durations that are this much longer or shorter at random, as in 10% or 0.1")
	s.Uint64Var(&f.seed, "seed", 1, "seed of --noise")
	s.IntVar(&f.runs, "runs", 100, "runs of --noise")
	f.given = func(name string) bool { return s.Lookup(name).Changed }
}

func (f *noiseFlags) wanted() bool { return f.fraction > 0 }

// check refuses numbers of runs that cannot be, and what belongs to --noise without it.
func (f *noiseFlags) check() error {
	if f.runs < 1 || f.runs > mostNoisyRuns {
		return usage(fmt.Errorf("--runs is %d: give a number from 1 to %d", f.runs, mostNoisyRuns))
	}
	for _, name := range []string{"seed", "runs"} {
		if f.given(name) && !f.wanted() {
			return usage(fmt.Errorf("--%s is for --noise: give it too, as in --noise 10%%", name))
		}
	}
	return nil
}

// noiseFigures is how long a plan takes when durations vary. Everything but Plan is simulated.
type noiseFigures struct {
	Simulated bool     `json:"simulated"` // always: no device runs
	Fraction  float64  `json:"noise_fraction"`
	Seed      uint64   `json:"seed"`
	Runs      int      `json:"runs"`
	Of        string   `json:"of"` // what the seconds are: "period" or "makespan"
	Plan      noiseRow `json:"plan"`
	Without   noiseRow `json:"without_noise"`
	Mean      noiseRow `json:"mean"`   // of each figure over the runs
	Median    noiseRow `json:"median"` // likewise
	Worst     noiseRow `json:"worst"`  // the run that takes longest
}

// noiseRow is a run, or several.
type noiseRow struct {
	Seconds float64 `json:"seconds"`
	Ratio   float64 `json:"ratio_to_plan"`
	Bubble  float64 `json:"bubble_fraction"`
}

// run simulates a valid plan: without noise, and so many times with it.
func (f *noiseFlags) run(ctx context.Context, c *chain.Chain, p *pipeline.Platform, plan *pipeline.Plan, r *pipeline.Report) (*noiseFigures, error) {
	for s, st := range plan.Stages {
		if !plan.IsSequence() && slices.ContainsFunc(st.Ops, func(o schedule.Op) bool { return o.Kind.Transfer() }) {
			return nil, usage(fmt.Errorf("stage %d offloads, and the simulation of noise knows no copies to host memory", s))
		}
	}
	n := &noiseFigures{Simulated: true, Fraction: float64(f.fraction), Seed: f.seed, Runs: f.runs, Of: "period", Plan: noiseRow{r.Period, 1, r.Bubble}}
	if plan.IsFlush() {
		n.Of, n.Plan.Seconds = "makespan", r.Makespan
	}
	var err error
	if n.Without, err = n.simulate(c, p, plan, pipeline.Noise{}); err != nil {
		return nil, err
	}
	seeds, rows := rand.New(rand.NewPCG(f.seed, 0)), make([]noiseRow, f.runs)
	for i := range rows {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if rows[i], err = n.simulate(c, p, plan, pipeline.Noise{Fraction: n.Fraction, Seed: seeds.Uint64()}); err != nil {
			return nil, err
		}
	}
	n.summarize(rows)
	return n, nil
}

// simulate is one run. A plan that is too large to simulate is the user's.
func (n *noiseFigures) simulate(c *chain.Chain, p *pipeline.Platform, plan *pipeline.Plan, noise pipeline.Noise) (noiseRow, error) {
	o, err := pipeline.Simulate(c, p, plan, noise)
	if errors.Is(err, pipeline.ErrPlan) {
		err = usage(err)
	}
	if err != nil {
		return noiseRow{}, err
	}
	row := noiseRow{Seconds: o.Period, Ratio: 1, Bubble: o.Bubble}
	if plan.IsFlush() {
		row.Seconds = o.Makespan
	}
	if n.Plan.Seconds > 0 {
		row.Ratio = row.Seconds / n.Plan.Seconds
	}
	return row, nil
}

// summarize fills in what the runs come to.
func (n *noiseFigures) summarize(rows []noiseRow) {
	column := func(of func(noiseRow) float64) (mean, median float64) {
		all := make([]float64, len(rows))
		for i, row := range rows {
			all[i] = of(row)
			mean += all[i] / float64(len(rows))
		}
		return mean, stats.Median(all)
	}
	n.Mean.Seconds, n.Median.Seconds = column(func(r noiseRow) float64 { return r.Seconds })
	n.Mean.Ratio, n.Median.Ratio = column(func(r noiseRow) float64 { return r.Ratio })
	n.Mean.Bubble, n.Median.Bubble = column(func(r noiseRow) float64 { return r.Bubble })
	n.Worst = slices.MaxFunc(rows, func(a, b noiseRow) int { return cmp.Compare(a.Seconds, b.Seconds) })
}

func (n *noiseFigures) write(out io.Writer) {
	fmt.Fprintf(out, "noise of %s, %d simulated runs, seed %d:\n", units.Percent(n.Fraction), n.Runs, n.Seed)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\t%s\tof the plan's\tbubble\t\n", n.Of)
	for _, row := range []struct {
		name string
		noiseRow
	}{{"plan", n.Plan}, {"without noise", n.Without}, {"mean", n.Mean}, {"median", n.Median}, {"worst", n.Worst}} {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t\n", row.name, units.Seconds(row.Seconds), percent(row.Ratio), percent(row.Bubble))
	}
	_ = w.Flush() // of a buffer
}
