package pipeline

import (
	"fmt"
	"math"
	"slices"

	"plimsoll/internal/units"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// checkSequence judges a plan for one device: the rules of sequences, its memory, its transfers and its copies on the host, as
// schedule.Simulate finds them. Errors: those of schedule.Simulate, ErrPlatform.
func checkSequence(c *chain.Chain, p *Platform, plan *Plan) (*Report, error) {
	run, err := replaySequence(c, p, plan, Noise{})
	if err != nil {
		return nil, err
	}
	n, bubble := float64(plan.Microbatches), 0.0
	busy, makespan := n*(run.Makespan-run.Idle), n*run.Makespan
	if run.Makespan > 0 {
		bubble = run.Idle / run.Makespan
	}
	r := &Report{
		Makespan: makespan, PerMinibatch: run.Makespan, NCA: []int{1}, Bubble: bubble, Sequence: run,
		PerDevicePeak: only(p, run.Peak), PerDeviceWeights: only(p, int64(0)), PerDeviceBuffers: only(p, int64(0)),
		PerDeviceBusy: only(p, busy), PerDeviceBubble: only(p, bubble),
	}
	if said := plan.Peak(); said != 0 && said != run.Peak {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the plan predicts a peak of %s, its simulation gives %s", units.Precise(said), units.Precise(run.Peak)))
	}
	if said := plan.Predicted.Makespan; said != 0 && math.Abs(said-makespan) > 1e-9*makespan {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the plan predicts a makespan of %v s, its simulation gives %v s", said, makespan))
	}
	if least := plan.Predicted.LowerBound; least <= run.Makespan*(1+1e-9) {
		r.LowerBound = least
	}
	return r, nil
}

// replaySequence simulates a plan for one device on the first device of a platform.
func replaySequence(c *chain.Chain, p *Platform, plan *Plan, n Noise) (*schedule.Result, error) {
	if err := p.validateDevices(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPlatform, err)
	}
	s, err := schedule.NewSimulator(c)
	if err != nil {
		return nil, err
	}
	if n.Fraction > 0 {
		planned, err := s.Run(plan.Sequence(), p.Limits(0))
		if err != nil {
			return nil, err
		}
		s.Order = slices.Clone(planned.Order)
		s.Stretch = func(op int) float64 { return n.factor(op, 0) }
	}
	return s.Run(plan.Sequence(), p.Limits(0))
}

// simulateSequence is Simulate of a plan for one device. Its spans are the forward part and the backward part of the sequence.
func simulateSequence(c *chain.Chain, p *Platform, plan *Plan, n Noise) (*Outcome, error) {
	run, err := replaySequence(c, p, plan, n)
	if err != nil {
		return nil, err
	}
	o := &Outcome{Makespan: float64(plan.Microbatches) * run.Makespan, PerMinibatch: run.Makespan, PerDevicePeak: only(p, run.Peak)}
	if run.Makespan > 0 {
		o.Bubble = run.Idle / run.Makespan
	}
	turn := run.End[plan.Stages[0].loss()]
	for k := range plan.Microbatches {
		start := float64(k) * run.Makespan
		o.Spans = append(o.Spans, Span{Task: 2 * k, Minibatch: k, Start: start, End: start + turn}, Span{Task: 2*k + 1, Minibatch: k, Start: start + turn, End: start + run.Makespan})
	}
	return o, nil
}

// parts returns a plan for one device as two tasks of each microbatch, without ops, at the times at which its sequence runs. Where nothing
// takes time, each task takes a second: microbatches follow each other all the same.
func (p *Plan) parts(c *chain.Chain, on *Platform) (*Plan, error) {
	o, err := simulateSequence(c, on, p, Noise{})
	if err != nil {
		return nil, err
	}
	out := *p
	out.Stages, out.Tasks, out.Timings = slices.Clone(p.Stages), slices.Clone(p.Tasks), nil
	out.Stages[0].Ops = nil
	for i, s := range o.Spans {
		if o.Makespan == 0 {
			s.Start, s.End = float64(i), float64(i+1)
		}
		out.Tasks[i].Start = s.Start
		out.Timings = append(out.Timings, &Timing{Length: s.End - s.Start})
	}
	return &out, nil
}
