package pipeline

import (
	"math"

	"plimsoll/planner/pipeline"
)

// clock says when, by the plan, the tasks of the minibatch whose number is a residue start and end, in seconds.
type clock struct {
	period  float64 // 0 for a flush plan
	eps     float64 // what rounding may change
	repeats int
	at      map[taskKey]pipeline.Span
	portals map[portalTask]pipeline.Span
	early   map[taskKey]float64 // by how much a backward starts before it needs its gradient
	sums    []pipeline.Span     // of messages between replicas, in the order of the plan
}

type taskKey struct {
	kind           pipeline.Kind
	stage, residue int
}

// newClock reads the times of a plan. Errors: those of pipeline.Planned.
func newClock(c Costs, p *pipeline.Plan) (*clock, error) {
	spans, err := pipeline.Planned(c.Chain, c.Platform, p, 1)
	if err != nil {
		return nil, err
	}
	k := &clock{repeats: p.Repeats(), at: map[taskKey]pipeline.Span{}, portals: map[portalTask]pipeline.Span{}, early: map[taskKey]float64{}, sums: make([]pipeline.Span, len(p.Synchronization))}
	if !p.IsFlush() {
		k.period = p.Period
	}
	for _, s := range spans {
		if i := s.Task - len(p.Tasks); i >= 0 {
			k.sums[i] = k.message(&p.Synchronization[i], s)
			continue
		}
		t := p.Tasks[s.Task]
		if t.To > 0 {
			k.portals[portalTask{t.Kind, t.Stage, t.To, s.Minibatch}] = s
		} else {
			k.at[taskKey{t.Kind, t.Stage, s.Minibatch}] = s
		}
		if s.Early > 0 {
			k.early[taskKey{t.Kind, t.Stage, s.Minibatch}] = s.Early
		}
		k.eps = max(k.eps, 1e-9*max(s.End, k.period))
	}
	return k, nil
}

// message returns when a message between replicas is under way, of the minibatch whose number is its residue.
func (k *clock) message(m *pipeline.Synchronization, s pipeline.Span) pipeline.Span {
	length := s.End - s.Start
	s.Start = m.Start - float64(floorDiv(m.Shift, k.repeats))*k.period
	s.End = s.Start + length
	return s
}

// span returns the time of a task; communications that the plan leaves out take none, behind the task before them.
func (k *clock) span(kind pipeline.Kind, stage, residue int) pipeline.Span {
	if s, ok := k.at[taskKey{kind, stage, residue}]; ok {
		return s
	}
	before := k.at[taskKey{pipeline.F, stage, residue}]
	if kind == pipeline.CB {
		before = k.at[taskKey{pipeline.B, stage + 1, residue}]
	}
	return pipeline.Span{Start: before.End, End: before.End}
}

// length returns how long a task takes, in seconds.
func (k *clock) length(kind pipeline.Kind, stage, residue int) float64 {
	s := k.span(kind, stage, residue)
	return s.End - s.Start
}

// sending returns how long a communication takes, in seconds, of a plan with one minibatch a period.
func (k *clock) sending(t instruction) float64 {
	if t.far == 0 {
		return k.length(t.kind, t.stage, 0)
	}
	s := k.portals[portalTask{t.kind, t.stage, t.far, 0}]
	return s.End - s.Start
}

// interval is a time during which a minibatch holds something.
type interval struct{ from, to float64 }

// most returns the largest number of intervals that hold at one instant, when they repeat with the period. An end counts
// as before a start at the same time, up to rounding.
func (k *clock) most(list []interval) int {
	eps := k.eps
	held := func(i interval, t float64) int {
		if k.period == 0 {
			if i.from <= t && t < i.to-eps || i.from == t {
				return 1
			}
			return 0
		}
		n := math.Floor((t+eps-i.from)/k.period) - math.Floor((t+eps-i.to)/k.period)
		return int(max(n, 0))
	}
	best := 0
	for _, at := range list {
		n := 0
		for _, i := range list {
			n += held(i, at.from)
		}
		best = max(best, n)
	}
	return max(best, min(1, len(list)))
}
