package pipeline

import (
	"slices"

	"plimsoll/planner/chain"
)

// enough is by how many times less memory, or time, a plan must take that divides its stages more often.
const enough = 1.01

// synchronizeDivided is synchronizeAndCheck for a plan that divides gradients. They are all there from the backward of a stage on. So its stages
// are divided, too. A plan that fits goes before one that does not. Of those that fit into a limit the fastest is taken, else the one with the least
// memory.
func synchronizeDivided(c *chain.Chain, on *Platform, p *Plan) (best *Plan, report *Report, refused, err error) {
	most := mostStages(c, p)
	for parts := 1; parts < 2*most; parts *= 2 {
		out, r, wrong, err := synchronizeAndCheck(c, on, DivideStages(c, p, min(parts, most)))
		switch {
		case best == nil && (err != nil || r == nil):
			return out, r, wrong, err
		case err != nil || r == nil: // the plan before it will do
			return best, report, refused, nil
		case best == nil || better(on, r, report, wrong == nil, refused == nil):
			best, report, refused = out, r, wrong
		}
	}
	return best, report, refused, nil
}

// better reports whether a plan is to be taken instead of one before it.
func better(on *Platform, r, before *Report, fits, fitted bool) bool {
	limited := slices.ContainsFunc(on.Memory, func(m int64) bool { return m != NoLimit })
	switch {
	case fits != fitted:
		return fits
	case fits && limited && before.Makespan > enough*r.Makespan:
		return true
	case fits && limited && r.Makespan > enough*before.Makespan:
		return false
	}
	return enough*float64(slices.Max(r.PerDevicePeak)) < float64(slices.Max(before.PerDevicePeak))
}

// mostStages returns into how many stages one with replicas is divided at most, so that a replica's part of any is not too small.
func mostStages(c *chain.Chain, p *Plan) int {
	most := 1
	for _, st := range p.Stages {
		all := weights(c, st.First, st.Last)
		most = max(most, min(st.Len(), int(all/(smallestPart*int64(len(st.Devices))))))
	}
	return most
}

// DivideStages returns a plan without messages between replicas, whose stages with replicas are up to so many stages each. These have about equal
// weights, and are on the devices of the stage. A task is those of its parts, one right behind the other: all devices do the same at the same
// times. Stages with ops stay whole. So do all in a plan without a flush, with times of its own, with portals, or with copies of weights for each
// stage.
func DivideStages(c *chain.Chain, p *Plan, parts int) *Plan {
	out := p.bare()
	if !p.IsFlush() || p.Timings != nil || len(p.Portals) > 0 || len(p.WeightCopies) > 1 {
		return out
	}
	out.Stages, out.Tasks = nil, nil
	first, split, costs := make([]int, len(p.Stages)), p.Split(), NewCosts(c)
	for s, st := range p.Stages {
		first[s] = len(out.Stages)
		out.Stages = append(out.Stages, st.divided(c, parts)...)
	}
	for _, t := range p.Tasks {
		from, to := first[t.Stage], len(out.Stages)
		if t.Stage+1 < len(first) {
			to = first[t.Stage+1]
		}
		if t.Kind.Communication() || to-from == 1 {
			if t.Stage = from; t.Kind.Communication() {
				t.Stage = to - 1
			}
			out.Tasks = append(out.Tasks, t)
			continue
		}
		t.Duration = nil
		at, halves := t.Start, split[t.Stage]
		for i := range to - from {
			if t.Stage = from + i; t.Kind != F {
				t.Stage = to - 1 - i
			}
			t.Start = at
			out.Tasks = append(out.Tasks, t)
			at += costs.seconds(out.Stages[t.Stage], t.Kind, halves)
		}
	}
	return out
}

// divided returns up to so many stages in place of one with replicas. Each has weights, and ends where its share of them is nearest.
func (s Stage) divided(c *chain.Chain, parts int) (all []Stage) {
	if len(s.Devices) < 2 || s.hasOps() {
		return []Stage{s}
	}
	total, done, before, next := weights(c, s.First, s.Last), int64(0), int64(0), s
	for i := s.First; i < s.Last; i++ {
		done += c.SummedWeights(i)
		share := int64(len(all)+1) * total
		if behind := c.SummedWeights(i + 1); behind > 0 && done > before && len(all) < parts-1 && 2*(done*int64(parts)-share)+behind*int64(parts) > 0 {
			next.Last = i
			all, before = append(all, next), done
			next = s
			next.First = i + 1
		}
	}
	return append(all, next)
}

// seconds returns the time of a task of a stage without ops.
func (k *Costs) seconds(st Stage, kind Kind, split bool) float64 {
	switch {
	case kind == F:
		return k.Forward(st.First, st.Last)
	case kind == W:
		return k.BackwardWeight(st.First, st.Last)
	case split:
		return k.BackwardInput(st.First, st.Last)
	}
	return k.Backward(st.First, st.Last)
}
