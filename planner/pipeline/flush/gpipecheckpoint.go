package flush

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"plimsoll/planner/pipeline"
)

// Checkpointed is gpipe whose devices keep only the input of their stage and run its forward again before its backward.
//
// It is no pipeline.Plan: there all backwards of a stage take the same time, and here that of the last microbatch, which
// is not checkpointed, is shorter.
type Checkpointed struct {
	Makespan      float64 // seconds
	PerDevicePeak []int64 // bytes, as pipeline.Check counts them; a microbatch is whole while its backward runs
	Spans         []Span  // in order of their start
	Stages        []pipeline.Stage
}

// Span is the run of a task. Again marks a forward that runs for the second time.
type Span struct {
	pipeline.Task
	Again bool
	End   float64 // seconds
}

// GPipeCheckpointed schedules gpipe with checkpointing: the last microbatch keeps everything, its backward comes first;
// all others recompute, and a device that waits for a gradient recomputes meanwhile.
//
// On equal stages without communication: makespan (m+P-1)(F+B) + (m-1)F; a device holds m inputs of its stage and,
// once, the inputs of its other layers.
//
// Source: GPipe (Huang et al. 2019), section 2.3. Errors: those of the strategy gpipe.
func GPipeCheckpointed(q pipeline.Request) (*Checkpointed, error) {
	r := gpipe()
	r.name = checkpointing
	if err := validate(q); err != nil {
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
	p, err := r.place(q)
	if err != nil {
		return nil, err
	}
	if err := r.usable(q, p); err != nil {
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
	c := p.costs(false)
	c.compute[again] = c.compute[pipeline.F]
	t := must(r.name, c, each(p.devices, func(d int) []op { return recomputing(d, p.micros) }), 0)
	if math.IsInf(t.makespan, 0) {
		return nil, fmt.Errorf("%s: %w: its schedule takes longer than a number can say", r.name, ErrOptions)
	}
	return p.checkpointed(q, c, t)
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

// checkpointed writes a timetable down and measures its memory.
func (p *placement) checkpointed(q pipeline.Request, c costs, t timetable) (*Checkpointed, error) {
	out := &Checkpointed{Makespan: t.makespan, Stages: p.stages, PerDevicePeak: make([]int64, q.Platform.Devices)}
	for rank, ops := range t.order {
		for _, o := range ops {
			out.Spans = append(out.Spans, p.span(o, t.starts[c.cell(o)], c.compute[o.kind][o.stage], rank))
		}
	}
	for _, s := range t.sends {
		out.Spans = append(out.Spans, p.span(s.op, s.start, p.message(s.kind, s.stage, s.from, s.to), s.from))
	}
	slices.SortStableFunc(out.Spans, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
	for s, st := range p.stages {
		out.PerDevicePeak[st.Devices[0]] = p.checkpointedPeak(q, s)
	}
	for d, need := range out.PerDevicePeak {
		if need > q.Platform.Memory[d] {
			return nil, &pipeline.InfeasibleError{
				Strategy: checkpointing, Smallest: slices.Max(out.PerDevicePeak),
				Reason: fmt.Sprintf("device %d needs %d bytes, it has %d", d, need, q.Platform.Memory[d]),
			}
		}
	}
	return out, nil
}

const checkpointing = "gpipe with checkpointing"

// checkpointedPeak returns the memory of the device of a stage.
func (p *placement) checkpointedPeak(q pipeline.Request, s int) int64 {
	st, copies := p.stages[s], 2.0
	if n := len(q.WeightCopies); n > 0 {
		copies = q.WeightCopies[min(s, n-1)]
	}
	need := int64(math.Ceil(copies*float64(p.sums.Weights(st.First, st.Last)))) + p.kept(st, q.Accounting)
	if !q.Platform.NoBuffers {
		need += p.sums.Buffers(st.First, st.Last)
	}
	return need
}

// kept returns what the microbatches hold at the most: all their inputs, and one of them everything. The last microbatch
// enters when all are there, and leaves before the first recomputation, so this is the peak at both times.
func (p *placement) kept(st pipeline.Stage, a pipeline.Accounting) int64 {
	return int64(p.micros-1)*p.sums.Chain.Activation(st.First-1) + p.sums.Held(st.First, st.Last, a)
}

func (p *placement) span(o op, start, length float64, rank int) Span {
	s := Span{Task: pipeline.Task{Kind: o.kind, Stage: o.stage, Device: p.ranks[rank], Start: start, Shift: o.micro}, End: start + length}
	if o.kind == again {
		s.Kind, s.Again = pipeline.F, true
	}
	return s
}
