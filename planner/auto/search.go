package auto

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"plimsoll/planner/bound"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// wide is the largest factor of time for a sequence during the search for one that fits.
const wide = 4

// search looks for a sequence where every member refuses the limit, and makes it an entry. From the members' sequences for their own
// smallest limits it follows random changes that need no more memory, and takes each lower peak as the new limit. It ends when the
// asked limit is met, after so many simulations or a few more, or with the context's deadline. It returns how many there were, and the
// walk that came lowest; nil where nothing can fit, and when it found one.
func (a *portfolio) search(ctx context.Context, steps int) (used int, lowest *walk, err error) {
	if a.Memory < bound.Memory(a.Chain, a.Link.Bandwidth > 0) {
		return 0, nil, nil
	}
	walks, err := a.walks(ctx)
	for err == nil && len(walks) > 0 && used < steps && ctx.Err() == nil {
		for _, w := range walks {
			used += w.round()
			if w.peak <= a.Memory {
				w.Reason = ""
				return used, nil, w.judge(a.Problem, w.best)
			}
		}
	}
	if err != nil || len(walks) == 0 {
		return used, nil, err
	}
	return used, slices.MinFunc(walks, func(v, w *walk) int { return cmp.Compare(v.peak, w.peak) }), nil
}

// walk is a member's sequence on its way to a lower peak.
type walk struct {
	*entry
	*kicker
	seq, best schedule.Sequence // where it is, and where its peak was the lowest
	peak      int64             // of both at most: what it may not exceed any more
	bind      schedule.Op       // that needs peak
	most      float64           // seconds that a sequence may take
}

// walks returns walks from the members that need least.
func (a *portfolio) walks(ctx context.Context) (all []*walk, err error) {
	var small []*entry
	for _, e := range a.entries {
		if _, ok := errors.AsType[*pipeline.InfeasibleError](e.err); ok && e.Group == 1 {
			small = append(small, e)
		}
	}
	needs := func(e *entry) int64 {
		needs, _ := errors.AsType[*pipeline.InfeasibleError](e.err)
		return needs.Smallest
	}
	slices.SortStableFunc(small, func(d, e *entry) int { return cmp.Compare(needs(d), needs(e)) })
	for i, e := range small[:min(starts, len(small))] {
		p := a.Problem
		p.Memory = needs(e)
		seq, err := e.member.Within(ctx, p)
		if errors.Is(err, context.DeadlineExceeded) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		k, err := newKicker(p.Chain, p.Limits(), uint64(i))
		if err != nil {
			return nil, err
		}
		w := &walk{entry: e, kicker: k, peak: p.Memory + 1}
		if !w.lower(seq) {
			continue // it keeps to the limit by another rule
		}
		all = append(all, w)
	}
	return all, nil
}

// round tries as many changes as a kick does, and returns the number of simulations.
func (w *walk) round() (used int) {
	for used < tries {
		w.buffer = append(w.buffer[:0], w.seq...)
		for range 1 + w.rnd.IntN(edits) {
			w.buffer = w.edit(w.buffer)
		}
		w.buffer = trimmed(w.buffer)
		used++
		if len(w.buffer) == 0 || w.lower(w.buffer) {
			continue
		}
		used++
		w.limits.Memory = w.peak
		if r, err := w.sim.Run(w.buffer, w.limits); err == nil && r.Makespan <= w.most {
			w.seq = append(w.seq[:0], w.buffer...)
		}
	}
	return used
}

// lower takes a sequence that runs below the peak, and that an executor could run.
func (w *walk) lower(seq schedule.Sequence) bool {
	w.limits.Memory = w.peak - 1
	r, err := w.sim.Run(seq, w.limits)
	if err != nil || w.most > 0 && r.Makespan > w.most || swallows(seq) {
		return false
	}
	if w.most == 0 {
		w.most = wide * r.Makespan
	}
	w.seq, w.best = append(w.seq[:0], seq...), slices.Clone(seq)
	w.peak = r.Peak
	if r.PeakOp >= 0 {
		w.bind = seq[r.PeakOp]
	}
	return true
}
