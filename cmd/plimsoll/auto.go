package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/planner"
	"plimsoll/planner/auto"
	"plimsoll/planner/bound"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// choice is the strategy that the user named. Of auto it keeps the report of the last plan.
type choice struct {
	pipeline.Strategy
	report *auto.Report
}

// choose looks a strategy up; the options are for auto.
func choose(name string, opt auto.Options) (*choice, error) {
	s, err := planner.LookupSequence(name)
	if err != nil {
		return nil, err
	}
	c := &choice{Strategy: s}
	if name == auto.Name {
		reporting := auto.Strategy()
		reporting.Solve = func(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
			r, err := auto.Plan(ctx, p, opt)
			if err != nil {
				return nil, err
			}
			c.report = r
			return r.Sequence, nil
		}
		c.Strategy = reporting.Strategy()
	}
	return c, nil
}

// autoFigures is auto's result, in JSON: seconds and bytes.
type autoFigures struct {
	Why        string            `json:"why"`
	Winner     string            `json:"winner"`
	Improved   string            `json:"improved,omitempty"` // the strategy whose result the local moves made better
	Moves      int               `json:"local_moves_tried"`
	Passed     *passedFigure     `json:"passed_over,omitempty"`
	Candidates []candidateFigure `json:"candidates"`
}

// candidateFigure is a member of the portfolio: with figures, or a reason why it has none.
type candidateFigure struct {
	Strategy  string       `json:"strategy"`
	MakespanS float64      `json:"makespan_s,omitempty"`
	PeakBytes int64        `json:"peak_bytes,omitempty"`
	Gap       train.Number `json:"gap,omitempty"`   // null where it is no number
	Group     int          `json:"group,omitempty"` // layers that were planned as one, when that is more than one
	Reason    string       `json:"reason,omitempty"`
}

// passedFigure is the fastest plan, when another one was taken that is hardly slower and has less to transfer.
type passedFigure struct {
	Strategy  string  `json:"strategy"`
	MakespanS float64 `json:"makespan_s"`
	TransferS float64 `json:"transfer_s"`
	Tolerance float64 `json:"tolerance"`
}

// figures returns the report for printing, nil of other strategies than auto.
func (c *choice) figures() *autoFigures {
	r := c.report
	if r == nil {
		return nil
	}
	f := &autoFigures{Why: r.Why(), Winner: r.Winner, Improved: r.Start, Moves: r.Steps}
	if p := r.Passed; p != nil {
		f.Passed = &passedFigure{p.Strategy, p.Makespan, p.Transfer, r.Tolerance}
	}
	for _, x := range r.Candidates {
		f.Candidates = append(f.Candidates, figureOf(x, r.Bound))
	}
	return f
}

func figureOf(x auto.Candidate, least float64) candidateFigure {
	if x.Sequence == nil {
		return candidateFigure{Strategy: x.Strategy, Reason: x.Reason}
	}
	f := candidateFigure{Strategy: x.Strategy, MakespanS: x.Makespan, PeakBytes: x.Peak, Gap: train.Number(bound.Gap(x.Makespan, least))}
	if x.Group > 1 {
		f.Group = x.Group
	}
	return f
}

// write prints the candidates for people.
func (f *autoFigures) write(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%s\n", f.Why)
	for _, c := range f.Candidates {
		if c.Reason != "" {
			fmt.Fprintf(w, "  %s\t%s\n", c.Strategy, c.Reason)
			continue
		}
		groups := ""
		if c.Group > 1 {
			groups = fmt.Sprintf(", %d layers as one", c.Group)
		}
		fmt.Fprintf(w, "  %s\t%s, gap %s, peak %s%s\n", c.Strategy, units.Seconds(c.MakespanS), percent(float64(c.Gap)), units.Bytes(c.PeakBytes), groups)
	}
	_ = w.Flush() // of a buffer
}

// percent prints a fraction; what rounds to nothing has no sign.
func percent(fraction float64) string {
	if math.Abs(fraction) > beyond {
		return beyondText
	}
	return fmt.Sprintf("%.1f%%", math.Round(1000*fraction)/10+0)
}

// Fractions beyond any sense are not written out.
const (
	beyond     = 1e7
	beyondText = "over 1e9%"
)
