package flush

import (
	"context"
	"fmt"
	"math"
	"slices"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// checkpointing: gpipe whose devices keep only the input of their stage and run its forward again before its backward. The last
// microbatch keeps everything, its backward comes first; a device that waits for a gradient recomputes meanwhile.
//
// On equal stages without communication: makespan (m+P-1)(F+B) + (m-1)F. A device holds the inputs of its stage for m-1
// microbatches, and everything of one more.
func checkpointing() pipeline.Strategy {
	r := gpipe()
	r.name = "gpipe-checkpoint"
	return pipeline.Strategy{
		Name: r.name, Type: pipeline.Flushing,
		Summary: "gpipe whose stages keep their inputs alone and recompute, but for the last microbatch",
		Paper:   "GPipe (Huang et al. 2019)", Section: "section 2.3; torchgpipe (Kim et al. 2020), section 2.1",
		Solve: func(ctx context.Context, q pipeline.Request) (*pipeline.Plan, error) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			return r.recomputed(q)
		},
	}
}

// recomputed is solve for stages that recompute.
func (r *recipe) recomputed(q pipeline.Request) (*pipeline.Plan, error) {
	p, err := r.prepare(q)
	if err != nil {
		return nil, err
	}
	c := p.recomputingCosts()
	t := must(r.name, c, each(p.devices, func(d int) []op { return recomputing(d, p.micros) }), 0)
	if math.IsInf(t.makespan, 0) {
		return nil, fmt.Errorf("%s: %w: its schedule takes longer than a number can say", r.name, ErrOptions)
	}
	plan := p.plan(q, p.withRecomputation(c, t))
	for s, st := range plan.Stages {
		plan.Stages[s].Ops, plan.Stages[s].LastOps = checkpointed(st), stored(st)
	}
	return finish(r.name, q, plan)
}

// checkpointed returns the ops of a stage that keeps its input, and makes everything again before the backwards.
func checkpointed(st pipeline.Stage) schedule.Sequence {
	ops := schedule.Sequence{{Kind: schedule.ForwardCheckpoint, Layer: st.First}}
	for l := st.First + 1; l <= st.Last; l++ {
		ops = append(ops, schedule.Op{Kind: schedule.ForwardDiscard, Layer: l})
	}
	return append(ops, stored(st)...)
}

// stored returns the ops of a stage that keeps everything.
func stored(st pipeline.Stage) (ops schedule.Sequence) {
	for l := st.First; l <= st.Last; l++ {
		ops = append(ops, schedule.Op{Kind: schedule.ForwardAll, Layer: l})
	}
	for l := st.Last; l >= st.First; l-- {
		ops = append(ops, schedule.Op{Kind: schedule.Backward, Layer: l})
	}
	return ops
}

// recomputing is the order of gpipe with a second forward before every backward but the first.
func recomputing(stage, m int) []op {
	out := micros(pipeline.F, stage, m)
	for i, b := range reversed(micros(pipeline.B, stage, m)) {
		if i > 0 {
			out = append(out, op{again, stage, b.micro})
		}
		out = append(out, b)
	}
	return out
}

// recomputingCosts returns the times of the stages' work: first forwards save nothing, except for the last microbatch.
func (p *placement) recomputingCosts() costs {
	c := p.costs(false)
	c.last, c.compute[again] = c.compute[pipeline.F], c.compute[pipeline.F]
	c.compute[pipeline.F] = nil
	for _, st := range p.stages {
		sum := 0.0
		for l := st.First; l <= st.Last; l++ {
			sum += p.sums.Chain.Layer(l).DiscardSeconds()
		}
		c.compute[pipeline.F] = append(c.compute[pipeline.F], sum)
	}
	return c
}

// withRecomputation makes every second forward the beginning of the backward behind it, as late as possible, so that nothing
// comes between them.
func (p *placement) withRecomputation(c costs, t timetable) timetable {
	t.starts = slices.Clone(t.starts)
	t.order = slices.Clone(t.order)
	for d, ops := range t.order {
		t.order[d] = nil
		for _, o := range ops {
			if o.kind != again {
				t.order[d] = append(t.order[d], o)
				continue
			}
			b := c.cell(op{pipeline.B, o.stage, o.micro})
			t.starts[b] = max(t.starts[c.cell(o)], t.starts[b]-c.seconds(o))
		}
	}
	return t
}
