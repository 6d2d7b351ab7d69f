package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"plimsoll/bench"
	"plimsoll/internal/units"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// traceFlags are the flags of plimsoll trace.
type traceFlags struct {
	chain, plan, out string
}

func (a *app) trace() *cobra.Command {
	f := &traceFlags{}
	cmd := command("trace", "Write the timeline of a plan", `Write the step of a plan, as predicted, as a timeline: a track for each stream, and the memory over time.

It opens in Perfetto (https://ui.perfetto.dev). The timelines of steps that ran, measured beside predicted, are written
by train --out and validate --out.`, nil)
	cmd.Example = `  plimsoll trace -c c.json -p p.json -o trace.json`
	s := cmd.Flags()
	s.StringVarP(&f.chain, "chain", "c", "", "chain file")
	s.StringVarP(&f.plan, "plan", "p", "", "plan file")
	s.StringVarP(&f.out, "output", "o", "trace.json", "write the timeline here")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.runTrace(cmd.Context(), f) }
	return cmd
}

func (a *app) runTrace(_ context.Context, f *traceFlags) error {
	if err := firstOf(required("--chain", f.chain, "-c c.json"), required("--plan", f.plan, "-p p.json"), writable("--output", f.out)); err != nil {
		return err
	}
	c, err := chain.Read(f.chain)
	if err != nil {
		return usage(err)
	}
	p, err := schedule.Read(f.plan)
	if err != nil {
		return usage(err)
	}
	if err := p.For(c); err != nil {
		return fmt.Errorf("%s: %w", f.plan, err)
	}
	r, err := schedule.Simulate(c, p.Ops, p.Limits)
	if err != nil {
		return fmt.Errorf("%s: %w", f.plan, err)
	}
	t, err := (&bench.Timeline{Chain: c, Plan: p}).Trace(c.Name)
	if err != nil {
		return fmt.Errorf("%s: %w", f.plan, err)
	}
	if err := t.WriteFile(f.out); err != nil {
		return err
	}
	tracks := len(t.Processes[0].Tracks)
	figures := struct {
		File      string  `json:"file"`
		Ops       int     `json:"ops"`
		Tracks    int     `json:"tracks"`
		MakespanS float64 `json:"makespan_s"`
	}{f.out, len(p.Ops), tracks, r.Makespan}
	return a.print(figures, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %d ops on %d tracks, %s\n", f.out, figures.Ops, tracks, units.Seconds(figures.MakespanS))
	})
}
