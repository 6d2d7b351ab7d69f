package main

import (
	"context"
	"fmt"
	"slices"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// variant is a plan of gpipe-checkpoint with some of what makes it fast.
type variant struct {
	p     *problem
	plan  *pipeline.Plan
	links *pipeline.Platform

	last     bool    // the last microbatch keeps everything and is not recomputed
	early    bool    // a device recomputes while it waits for a gradient
	overlap  bool    // messages are copied beside the computation; else the task that sends lasts until its message has arrived
	straight []int64 // bytes of each boundary's message, either way, where skips go straight to the stage that reads them; nil: all that is carried
}

// run simulates the variant: every device keeps the order of its tasks.
func (v *variant) run() (*pipeline.Outcome, error) {
	plan := *v.plan
	plan.Stages = slices.Clone(plan.Stages)
	if !v.last {
		for s := range plan.Stages {
			plan.Stages[s].LastOps = nil
		}
	}
	spans, err := pipeline.Planned(v.p.costs.Chain, v.links, &plan, 1)
	if err != nil {
		return nil, err
	}
	plan.Timings = make([]*pipeline.Timing, len(plan.Tasks))
	for _, s := range spans {
		if t := plan.Tasks[s.Task]; !t.Kind.Communication() {
			plan.Timings[s.Task] = v.timing(t, s)
		}
	}
	links := *v.links
	if !v.overlap {
		links.Bandwidth = pipeline.Free() // what messages take is in the tasks that send
	}
	return pipeline.Simulate(v.sent(v.p.costs.Chain), &links, &plan, pipeline.Noise{})
}

// sent returns the chain with the sizes of the variant's messages.
func (v *variant) sent(c *chain.Chain) *chain.Chain {
	out := *c
	out.Layers = slices.Clone(c.Layers)
	for s, bytes := range v.straight {
		l := out.Layer(v.plan.Stages[s].Last)
		l.OutputBytes, l.GradientBytes = bytes, bytes
	}
	return &out
}

// timing returns the time of a device's task in the variant.
func (v *variant) timing(t pipeline.Task, s pipeline.Span) *pipeline.Timing {
	out := pipeline.Timing{Length: s.End - s.Start, Early: s.Early}
	if !v.early {
		out.Early = 0
	}
	if !v.overlap {
		out.Length += v.message(boundary(t))
	}
	return &out
}

// boundary returns the boundary over which a task of a stage sends: behind it forward, before it backward.
func boundary(t pipeline.Task) int {
	if t.Kind == pipeline.F {
		return t.Stage
	}
	return t.Stage - 1
}

// message returns the seconds of a message over the boundary behind a stage. δ has the size of a in these models.
func (v *variant) message(stage int) float64 {
	if stage < 0 || stage+1 >= len(v.plan.Stages) {
		return 0
	}
	bytes := v.p.costs.Chain.Activation(v.plan.Stages[stage].Last)
	if v.straight != nil {
		bytes = v.straight[stage]
	}
	return v.links.Seconds(bytes, v.plan.Stages[stage].Devices[0], v.plan.Stages[stage+1].Devices[0])
}

// skip is a tensor that is carried from the layer that makes it to the one that reads it.
type skip struct {
	bytes    int64
	from, to int // layers, counted from 1
}

// skips returns the skips of a model with layers that carry passing skips after their own output, the latest first.
func skips(m *models.Model) []skip {
	var open, all []skip
	before := int64(0)
	for i, l := range m.Layers {
		now := carried(l)
		switch {
		case now > before:
			open = append(open, skip{bytes: now - before, from: i + 1})
		case now < before:
			last := open[len(open)-1]
			open, last.to = open[:len(open)-1], i+1
			all = append(all, last)
		}
		before = now
	}
	return all
}

// carried returns the bytes of a layer's output that are not its own first tensor.
func carried(l *models.Layer) int64 {
	last := l.Nodes[len(l.Nodes)-1]
	if _, packed := last.Op.(kernels.Pack); !packed {
		return 0
	}
	return l.Desc(l.Output()).Bytes() - l.Desc(last.In[0]).Bytes()
}

// straight returns the bytes of the message over each boundary when only the next stage's inputs are sent to it. It also
// returns the bytes of all messages of a microbatch in one direction, with each skip once.
func straight(c *chain.Chain, stages []pipeline.Stage, all []skip) (boundaries []int64, total int64) {
	stage := func(layer int) int {
		return slices.IndexFunc(stages, func(st pipeline.Stage) bool { return layer <= st.Last })
	}
	for s := range len(stages) - 1 {
		bytes := c.Activation(stages[s].Last)
		for _, k := range all {
			if from, to := stage(k.from), stage(k.to); from <= s && s < to && to-from > 1 {
				bytes -= k.bytes
			}
		}
		boundaries, total = append(boundaries, bytes), total+bytes
	}
	for _, k := range all {
		if stage(k.to)-stage(k.from) > 1 {
			total += k.bytes
		}
	}
	return boundaries, total
}

// ablationRow is one schedule of the ablation.
type ablationRow struct {
	what   string
	paper  string // the row of the paper's table 1 that it stands for; "" for none
	over   int    // the row that it is compared with; -1 for none
	rate   float64
	bubble float64
	bytes  int64 // over all links, of a microbatch, both ways
}

// ablation adds one thing after the other to the schedule of the paper, as its table 1 does, and then takes away what is in
// every row of that.
func ablation(ctx context.Context, s *speeds, measured *chain.Chain, r race) ([]ablationRow, error) {
	factor, err := s.factor(ctx, measured)
	if err != nil {
		return nil, err
	}
	p, err := s.problem(r, measured, factor)
	if err != nil {
		return nil, err
	}
	a, err := p.solve(ctx, racers()[0], paperMemory)
	if err != nil {
		return nil, err
	}
	if a.plan == nil {
		return nil, fmt.Errorf("the ablation of %s has no plan: %s", s.model, a.reason)
	}
	some, once := straight(p.costs.Chain, a.plan.Stages, skips(p.work.Model))
	all := int64(0)
	for _, st := range a.plan.Stages[:len(a.plan.Stages)-1] {
		all += p.costs.Chain.Activation(st.Last)
	}
	links := pipeline.NewPlatform(p.devices, pipeline.NoLimit, paperBandwidth)
	var rows []ablationRow
	for _, x := range []struct {
		row ablationRow
		v   variant
	}{
		{ablationRow{what: "messages hold their sender up", paper: "dependency", over: -1, bytes: all}, variant{last: true, early: true}},
		{ablationRow{what: "messages beside the computation", paper: "streams", over: 0, bytes: all}, variant{last: true, early: true, overlap: true}},
		{ablationRow{what: "and skips sent straight to the stage that reads them", paper: "portals", over: 1, bytes: once}, variant{last: true, early: true, overlap: true, straight: some}},
		{ablationRow{what: "all of it, but recomputed only when the gradient is there", over: 2, bytes: once}, variant{last: true, overlap: true, straight: some}},
		{ablationRow{what: "all of it, but the last microbatch recomputed too", over: 2, bytes: once}, variant{early: true, overlap: true, straight: some}},
	} {
		x.v.p, x.v.plan, x.v.links = p, a.plan, links
		o, err := x.v.run()
		if err != nil {
			return nil, err
		}
		x.row.rate, x.row.bubble, x.row.bytes = float64(p.costs.Chain.Batch)/o.PerMinibatch, o.Bubble, 2*x.row.bytes
		rows = append(rows, x.row)
	}
	return rows, nil
}
