package main

import (
	"cmp"
	"encoding/json"
	"io"

	"plimsoll/bench/report"
	"plimsoll/bench/timeline"
	"plimsoll/internal/atomicfile"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/interop"
)

// anyPlan is a plan for one device or for several, with what it is for.
type anyPlan struct {
	chain    *chain.Chain
	plan     *pipeline.Plan
	platform *pipeline.Platform
}

// write writes the plan, its drawing and its timeline, as predicted: all files or none.
func (p *anyPlan) write(files planFiles) error {
	p.noteEstimate()
	var all []atomicfile.Output
	add := func(path string, write func(io.Writer) error) {
		if path != "" {
			all = append(all, atomicfile.Output{Path: path, Write: write})
		}
	}
	add(files.plan, p.plan.Encode)
	if files.svg != "" || files.trace != "" {
		svg, trace, err := p.pictures()
		if err != nil {
			return usage(err)
		}
		add(files.svg, svg)
		add(files.trace, trace)
	}
	return atomicfile.WriteAll(atomicfile.OS{}, all...)
}

// pictures returns the function that draws a plan, as memory over time or a pipeline's timeline, and the one that writes its
// timeline for Perfetto.
func (p *anyPlan) pictures() (svg, trace func(io.Writer) error, err error) {
	switch {
	case p.plan.IsCycle():
		c, err := timeline.NewCycle(p.chain, p.plan, p.platform)
		if err != nil {
			return nil, nil, err
		}
		return c.Picture().WriteSVG, c.Trace(p.chain.Name).Write, nil
	case !p.plan.IsSequence():
		t, err := p.timeline()
		if err != nil {
			return nil, nil, err
		}
		picture := &report.Timeline{Title: t.Title, Panels: []report.Panel{timeline.Panel("planned", t)}}
		return picture.WriteSVG, timeline.Trace(t).Write, nil
	}
	t := &timeline.Step{Planned: p.chain, Chain: p.chain, Plan: p.plan}
	chart, err := t.Chart()
	if err != nil {
		return nil, nil, err
	}
	steps, err := t.Trace(p.chain.Name)
	if err != nil {
		return nil, nil, err
	}
	return chart.WriteSVG, steps.Write, nil
}

// timeline returns the timeline of a plan with stages by its own times: the step, or a few periods. Each stage's sequence is drawn as one
// forward and one backward.
func (p *anyPlan) timeline() (*pipeline.Timeline, error) {
	spans, err := pipeline.Planned(p.chain, p.platform, p.plan, shownPeriods)
	if err != nil {
		return nil, err
	}
	return pipeline.NewTimeline(p.chain, p.platform, p.plan, spans)
}

// size returns how many ops, or tasks, a plan has, and how long its step or its period takes.
func (p *anyPlan) size() (ops int, seconds float64) {
	if p.plan.IsCycle() {
		return len(p.plan.Cycle), p.plan.Predicted.Makespan
	}
	if p.plan.IsSequence() {
		return len(p.plan.Sequence()), p.plan.Predicted.Makespan
	}
	return len(p.plan.Tasks), cmp.Or(p.plan.Predicted.Period, p.plan.Period, p.plan.Predicted.Makespan)
}

// ranTable is PyTorch's table of pipeline ops as it ran; it may not have come to its end.
type ranTable struct {
	*interop.Placed
	*interop.Run
}

// noteEstimate says in the plan's file that its predicted times rest on an estimated chain.
func (p *anyPlan) noteEstimate() {
	if !p.chain.Estimated {
		return
	}
	if p.plan.Extra == nil {
		p.plan.Extra = map[string]json.RawMessage{}
	}
	p.plan.Extra["estimated"] = json.RawMessage("true")
}

// planFiles are the files that a plan can be written to; "" is none.
type planFiles struct{ plan, svg, trace string }

// writable refuses what allWritable does.
func (f planFiles) writable(chain string) error {
	return allWritable(chain, output{"--output", f.plan}, output{"--svg", f.svg}, output{"--trace", f.trace})
}

// shownPeriods is how many periods of a periodic plan its timeline shows.
const shownPeriods = 4
