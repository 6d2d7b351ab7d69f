package loadline

import (
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// Sequences are the ways in which stages recompute when other minibatches run between the forward and the backward of one: for each
// range of layers and number of minibatches in flight those that no other beats in memory and time.
type Sequences struct {
	ways  *ways
	least *least
}

// NewSequences returns those of a chain that need at most so many bytes.
func NewSequences(k *pipeline.Costs, most int64) *Sequences {
	w := newWays(k, min(most, 1<<60))
	return &Sequences{w, newLeast(w)}
}

// Fastest returns the sequence of a stage that takes the least time among those that hold at most so many bytes beside the inputs of
// the minibatches in flight: its number, and for how many seconds it computes what it has computed before. ok is false when there is none.
func (q *Sequences) Fastest(first, last, live int, bytes int64) (number int, again float64, ok bool) {
	if q.least.stage[first][last] > bytes {
		return none, 0, false
	}
	number, ok = q.ways.fastest(first, last, live, bytes)
	if !ok {
		return none, 0, false
	}
	return number, q.ways.of(first, last, live)[number].again, true
}

// Ops returns a sequence of a stage by its number.
func (q *Sequences) Ops(first, last, live, number int) schedule.Sequence {
	return q.ways.ops(first, last, live, number)
}

// Bytes returns what a stage holds beside the inputs of the minibatches in flight when it keeps nothing else of them.
func (q *Sequences) Bytes(first, last int) int64 {
	need := q.least.inside[first][last]
	for x := first; x <= last; x++ {
		need = max(need, q.ways.forwardNeed(first, x))
	}
	return need
}
