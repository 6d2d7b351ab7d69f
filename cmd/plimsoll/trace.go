package main

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"plimsoll/internal/units"
)

// traceCommand is plimsoll trace.
type traceCommand struct {
	*app
	plan     planInput
	of       planFor
	out, svg string
}

func newTraceCommand(a *app) *cobra.Command {
	c := &traceCommand{app: a}
	cmd := command("trace", "Write and draw the timeline of a plan", `Write the step of a plan, as predicted, as a timeline that opens in Perfetto (https://ui.perfetto.dev). It has a track for each stream,
and the memory over time; the timeline of a pipeline has a process for each device and link. With --svg the plan is drawn, too. The
drawing is the memory over time, for a pipeline the timeline, for a plan that moves weights and state both.

The plan is whatever plimsoll check reads. The timelines of steps that ran, measured beside predicted, are written by train --out and
validate --out.`, nil)
	cmd.Example = `  plimsoll trace -c c.json -p p.json -o trace.json
  plimsoll trace -c c.json --text "Fall1 Fall2 B2 B1" --svg memory.svg`
	c.plan.register(cmd)
	c.of.register(cmd)
	s := cmd.Flags()
	s.StringVarP(&c.out, "output", "o", "", "write the timeline here (default: trace.json, without --svg)")
	s.StringVar(&c.svg, "svg", "", "draw the plan here")
	cmd.RunE = func(*cobra.Command, []string) error { return c.run() }
	return cmd
}

// traceFigures is the JSON of trace.
type traceFigures struct {
	File      string  `json:"file,omitempty"`
	Picture   string  `json:"picture,omitempty"`
	Ops       int     `json:"ops"`        // of a pipeline, tasks
	MakespanS float64 `json:"makespan_s"` // of a plan that repeats a period, that
}

func (c *traceCommand) run() error {
	if c.svg == "" {
		c.out = cmp.Or(c.out, "trace.json")
	}
	if err := allWritable(c.of.chain, output{"--output", c.out}, output{"--svg", c.svg}); err != nil {
		return err
	}
	p, err := c.plan.plan(c.stdin, &c.of)
	if err != nil {
		return err
	}
	if err := p.write(planFiles{svg: c.svg, trace: c.out}); err != nil {
		if isInput(err) {
			err = fmt.Errorf("%s: %w", &c.plan, err)
		}
		return err
	}
	figures := traceFigures{File: c.out, Picture: c.svg}
	figures.Ops, figures.MakespanS = p.size()
	return c.print(figures, func(w io.Writer) {
		for _, file := range []string{c.out, c.svg} {
			if file != "" {
				fmt.Fprintf(w, "%s: %d ops, %s\n", file, figures.Ops, units.Seconds(figures.MakespanS))
			}
		}
	})
}
