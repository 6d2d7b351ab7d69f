package auto

import (
	"cmp"

	"plimsoll/planner/schedule"
)

// Candidate holds the plan that a member of the portfolio found.
type Candidate struct {
	Strategy string
	Sequence schedule.Sequence // nil when it has none
	Makespan float64           // seconds, by simulation
	Peak     int64             // bytes
	Transfer float64           // seconds in which the link is busy, offloads and prefetches added up
	Group    int               // layers that the member planned as one; 0 when it did not run
	Reason   string            // why it has no sequence
}

// compare prefers less time, then a lower peak.
func (c *Candidate) compare(o *Candidate) int {
	return cmp.Or(cmp.Compare(c.Makespan, o.Makespan), cmp.Compare(c.Peak, o.Peak))
}

// take keeps the figures of the candidate's sequence.
func (c *Candidate) take(r *schedule.Result) {
	c.Makespan, c.Peak, c.Transfer = r.Makespan, r.Peak, 0
	for p, op := range c.Sequence {
		if op.Kind.Transfer() {
			c.Transfer += r.End[p] - r.Start[p]
		}
	}
}

// swallows reports whether a forward_all replaces a plain activation that was prefetched and that nothing has read.
// The rules let such a transfer take its memory later than it counts, and an executor cannot run it.
func swallows(seq schedule.Sequence) bool {
	unread := map[int]bool{} // activations
	for _, op := range seq {
		switch op.Kind {
		case schedule.Prefetch:
			unread[op.Layer-1] = true
			continue
		case schedule.Offload:
			continue
		case schedule.ForwardAll:
			if unread[op.Layer] {
				return true
			}
		case schedule.Backward:
			delete(unread, op.Layer)
		}
		delete(unread, op.Layer-1)
	}
	return false
}
