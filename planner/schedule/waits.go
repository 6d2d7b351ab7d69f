package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"plimsoll/planner/chain"
)

// Span is when an op ran, measured or simulated, from the start of the sequence.
type Span struct{ Start, End time.Duration }

// Spans returns when the ops of a simulation ran, rounded to nanoseconds.
func (r *Result) Spans() []Span {
	spans := make([]Span, len(r.Start))
	for p := range spans {
		spans[p] = Span{Duration(r.Start[p]), Duration(r.End[p])}
	}
	return spans
}

// longest is what a longer time counts as, 104 days: sums of a thousand have room in a time.Duration.
const longest = 1 << 53

// Duration rounds seconds from 0 on to nanoseconds; what begins when something else ends still does.
func Duration(seconds float64) time.Duration { return time.Duration(min(seconds*1e9+0.5, longest)) }

// Wait is what a compute op waited for. The three together are the time from the end of the compute op before it, or from
// 0, to its start.
type Wait struct {
	Transfer time.Duration // until the last prefetch of what it reads has ended
	Memory   time.Duration // from then on, until an offload has freed what it takes
	Other    time.Duration // from then on: the rules of a sequence would have let it start
	// By is the position of the transfer that ended the wait for a transfer, Freed that of the one that ended the wait
	// for memory; -1 where there was no such wait.
	By, Freed int
}

// Waits replays a sequence that ran as spans says, and tells what every compute op waited for by the rules of Simulate;
// transfers have the zero Wait. A wait in which the memory would have sufficed is none for memory, whatever the device did.
//
// Errors: those of Verify; spans of another number than the ops, or of compute ops that overlap.
func Waits(c *chain.Chain, seq Sequence, limits Limits, spans []Span) ([]Wait, error) {
	var r replay
	if err := r.judge(c, seq); err != nil {
		return nil, err
	}
	if len(spans) != len(seq) {
		return nil, fmt.Errorf("%d spans for %d ops", len(spans), len(seq))
	}
	w := waitFinder{replay: &r, spans: spans, limit: limits.Memory, used: c.AllInputBytes()}
	w.list(seq)
	all := make([]Wait, len(seq))
	last := time.Duration(0)
	for p, op := range seq {
		if op.Kind.Transfer() {
			continue
		}
		at := spans[p]
		if at.Start < last || at.End < at.Start {
			return nil, fmt.Errorf("op %d (%v) ran from %v to %v, and the one before it until %v", p, op, at.Start, at.End, last)
		}
		all[p] = w.wait(p, last, at.Start)
		w.used += w.steps[p].leaves // from its end on, which is where the next wait begins
		last = at.End
	}
	return all, nil
}

// waitFinder follows the memory through spans.
type waitFinder struct {
	*replay
	spans   []Span
	limit   int64
	used    int64
	changes []change
	next    int // in changes
}

// change is bytes that a transfer takes (above 0) or frees.
type change struct {
	at    time.Duration
	bytes int64
	by    int
}

// list lists all changes of memory by transfers in the order of time.
func (w *waitFinder) list(seq Sequence) {
	free := map[int32]time.Duration{} // by offload, when the device copy is free
	for p, op := range seq {
		if st := &w.steps[p]; op.Kind == Prefetch {
			w.changes = append(w.changes, change{w.spans[p].Start, st.takes, p})
		}
		for _, o := range w.steps[p].releases {
			if o != none {
				free[o] = max(free[o], w.spans[p].End)
			}
		}
	}
	for o, at := range free {
		w.changes = append(w.changes, change{at, -w.steps[o].bytes, int(o)})
	}
	slices.SortFunc(w.changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.by, b.by))
	})
}

// wait splits the time from the end of the compute op before op p to its start.
func (w *waitFinder) wait(p int, from, to time.Duration) Wait {
	out := Wait{By: none, Freed: none}
	arrived := from
	for _, q := range w.steps[p].waits {
		if q != none && w.spans[q].End > arrived {
			arrived, out.By = min(w.spans[q].End, to), int(q)
		}
	}
	fits, freed := w.fits(p, from, to)
	if fits > arrived {
		out.Freed = freed
	}
	fits = max(fits, arrived)
	out.Transfer, out.Memory, out.Other = arrived-from, fits-arrived, to-fits
	return out
}

// fits returns when the memory of op p sufficed for good before it started, from at the earliest, and what freed it. When it
// never did by the rules, that is the last time that something was freed.
func (w *waitFinder) fits(p int, from, to time.Duration) (at time.Duration, by int) {
	for w.next < len(w.changes) && w.changes[w.next].at <= from {
		w.change()
	}
	at, by = from, none
	for w.next < len(w.changes) && w.changes[w.next].at <= to {
		enough := w.used+w.steps[p].takes <= w.limit
		if x := w.change(); x.bytes < 0 && !enough {
			at, by = x.at, x.by
		}
	}
	return at, by
}

// change makes the next change.
func (w *waitFinder) change() change {
	x := w.changes[w.next]
	w.next++
	w.used += x.bytes
	return x
}
