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

// longest is the time that longer times are cut to, 104 days: sums of a thousand have room in a time.Duration.
const longest = 1 << 53

// Duration rounds seconds from 0 on to nanoseconds; what begins when something else ends still does.
func Duration(seconds float64) time.Duration { return time.Duration(min(seconds*1e9+0.5, longest)) }

// Wait divides a compute op's wait by its reasons. The three together are the time from the end of the compute op before
// it, or from 0, to its start.
type Wait struct {
	Transfer time.Duration // until the last prefetch of what it reads has ended
	Memory   time.Duration // from then on, until an offload has freed what it takes
	Other    time.Duration // from then on: the rules of a sequence would have let it start
	// By is the position of the transfer that ended the wait for a transfer; -1: no such wait. Freed is the position
	// of the transfer that ended the wait for memory; -1: no such wait.
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
	u := NewUsage(c.AllInputBytes(), r.transfers(seq, spans))
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
		arrived, by := last, none
		for _, q := range r.steps[p].waits {
			if q != none && spans[q].End > arrived {
				arrived, by = min(spans[q].End, at.Start), int(q)
			}
		}
		all[p] = u.Wait(last, arrived, at.Start, by, limits.Memory-r.steps[p].takes)
		u.Used += r.steps[p].leaves // from its end on, which is where the next wait begins
		last = at.End
	}
	return all, nil
}

// Usage is the bytes in use as a run goes on.
type Usage struct {
	Used    int64
	changes []Change // that are still to come
}

// Change is bytes that an op takes (above 0) or frees.
type Change struct {
	At    time.Duration
	Bytes int64
	By    int
}

// NewUsage returns the usage of a run with the changes, which it sorts by time.
func NewUsage(used int64, changes []Change) *Usage {
	slices.SortFunc(changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.By, b.By))
	})
	return &Usage{used, changes}
}

// transfers lists the changes of memory by transfers.
func (r *replay) transfers(seq Sequence, spans []Span) (all []Change) {
	free := map[int32]time.Duration{} // by offload, when the device copy is free
	for p, op := range seq {
		if op.Kind == Prefetch {
			all = append(all, Change{spans[p].Start, r.steps[p].takes, p})
		}
		for _, o := range r.steps[p].releases {
			if o != none {
				free[o] = max(free[o], spans[p].End)
			}
		}
	}
	for o, at := range free {
		all = append(all, Change{at, -r.steps[o].bytes, int(o)})
	}
	return all
}

// Wait splits the time from the end of the compute op before an op to its start. The op waited until another one, by, had brought its operands;
// -1: they were there. By the rules it starts when at most so many bytes are in use.
func (u *Usage) Wait(from, arrived, to time.Duration, by int, most int64) Wait {
	out := Wait{By: by, Freed: none}
	fits, freed := u.fits(from, to, most)
	if fits > arrived {
		out.Freed = freed
	}
	fits = max(fits, arrived)
	out.Transfer, out.Memory, out.Other = arrived-from, fits-arrived, to-fits
	return out
}

// fits returns when at most so many bytes were in use for good before an instant, from at the earliest, and what freed them. When there
// were always more by the rules, that is the last time that something was freed.
func (u *Usage) fits(from, to time.Duration, most int64) (at time.Duration, by int) {
	for len(u.changes) > 0 && u.changes[0].At <= from {
		u.change()
	}
	at, by = from, none
	for len(u.changes) > 0 && u.changes[0].At <= to {
		enough := u.Used <= most
		if x := u.change(); x.Bytes < 0 && !enough {
			at, by = x.At, x.By
		}
	}
	return at, by
}

// change makes the next change.
func (u *Usage) change() Change {
	x := u.changes[0]
	u.changes = u.changes[1:]
	u.Used += x.Bytes
	return x
}
