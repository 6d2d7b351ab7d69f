package pipeline

import (
	"plimsoll/executor/internal/order"
	"plimsoll/planner/pipeline"
)

// clock says when, by the plan, the tasks of the minibatch whose number is a residue start and end, in seconds. Tests judge orders by it.
type clock struct {
	period  float64 // 0 for a flush plan
	eps     float64 // what rounding may change
	repeats int
	at      map[order.TaskKey]pipeline.Span
	sums    []pipeline.Span // of messages between replicas, in the order of the plan
}

// newClock reads the times of a plan. Errors: those of pipeline.Planned.
func newClock(c Costs, p *pipeline.Plan) (*clock, error) {
	spans, err := pipeline.Planned(c.Chain, c.Platform, p, 1)
	if err != nil {
		return nil, err
	}
	k := &clock{repeats: p.Repeats(), at: map[order.TaskKey]pipeline.Span{}, sums: make([]pipeline.Span, len(p.Synchronization))}
	if !p.IsFlush() {
		k.period = p.Period
	}
	for _, s := range spans {
		if i := s.Task - len(p.Tasks); i >= 0 {
			k.sums[i] = k.message(&p.Synchronization[i], s)
			continue
		}
		if t := p.Tasks[s.Task]; t.To == 0 {
			k.at[order.TaskKey{Kind: t.Kind, Stage: t.Stage, Residue: s.Minibatch}] = s
		}
		k.eps = max(k.eps, 1e-9*max(s.End, k.period))
	}
	return k, nil
}

// message returns when a message between replicas is under way, of the minibatch whose number is its residue.
func (k *clock) message(m *pipeline.Synchronization, s pipeline.Span) pipeline.Span {
	length := s.End - s.Start
	s.Start = k.since(m.Start, m.Shift)
	s.End = s.Start + length
	return s
}

// since returns a time of the period in which a shift is that of a minibatch, counted from the period in which its residue is.
func (k *clock) since(at float64, shift int) float64 {
	return at - float64(order.FloorDiv(shift, k.repeats))*k.period
}

// span returns the time of a task; communications that the plan leaves out take none, behind the task before them.
func (k *clock) span(kind pipeline.Kind, stage, residue int) pipeline.Span {
	if s, ok := k.at[order.TaskKey{Kind: kind, Stage: stage, Residue: residue}]; ok {
		return s
	}
	before := k.at[order.TaskKey{Kind: pipeline.F, Stage: stage, Residue: residue}]
	if kind == pipeline.CB {
		before = k.at[order.TaskKey{Kind: pipeline.B, Stage: stage + 1, Residue: residue}]
	}
	return pipeline.Span{Start: before.End, End: before.End}
}

// length returns how long a task takes, in seconds.
func (k *clock) length(kind pipeline.Kind, stage, residue int) float64 {
	s := k.span(kind, stage, residue)
	return s.End - s.Start
}
