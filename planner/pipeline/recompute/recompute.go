// Package recompute has the ways in which stages of a pipeline recompute: sequences of rotor's (thesis, Theorem 6). A sequence is for as
// many minibatches as are in flight between the forward and the backward of one. Strategies choose among them.
package recompute

import (
	"context"
	"slices"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// Sequences are, for each range of layers and number of minibatches in flight, the ways that no other one beats in memory and time.
type Sequences struct {
	*ways
	least *least
}

// New returns the sequences of a chain that need at most the given bytes.
func New(k *pipeline.Costs, most int64) *Sequences {
	return &Sequences{ways: newWays(k, most)}
}

// shared are the sequences of requests that follow each other.
type shared struct{ all []*Sequences }

// sharedKey is the key of shared in a context.
type sharedKey struct{}

// Share returns a context in which For gives the requests that follow each other the same sequences, as they find most of them again. No two
// of these may run at once.
func Share(ctx context.Context) context.Context {
	if ctx.Value(sharedKey{}) != nil {
		return ctx
	}
	return context.WithValue(ctx, sharedKey{}, &shared{})
}

// For returns the sequences of a chain that need at most the given bytes, none when the context has ended.
func For(ctx context.Context, k *pipeline.Costs, most int64) *Sequences {
	s, _ := ctx.Value(sharedKey{}).(*shared)
	if s == nil {
		return New(k, most).Until(ctx)
	}
	i := slices.IndexFunc(s.all, func(q *Sequences) bool { return q.c == k.Chain && q.limit == most })
	if i < 0 {
		i, s.all = len(s.all), append(s.all, New(k, most))
	}
	return s.all[i].Until(ctx)
}

// Until makes ways none as soon as the context has ended: whoever asks looks at the context before an answer means anything.
func (q *Sequences) Until(ctx context.Context) *Sequences {
	q.ended = func() bool { return ctx.Err() != nil }
	return q
}

// Fastest returns the number of a stage's fastest sequence that holds at most the given bytes beside the inputs of the minibatches in
// flight. Again is the time in seconds that it spends on recomputation; ok is false if there is no such sequence.
func (q *Sequences) Fastest(first, last, live int, bytes int64) (number int, again float64, ok bool) {
	if !q.unpruned && q.Least(first, last) > bytes {
		return 0, 0, false
	}
	if number, ok = q.fastest(first, last, live, bytes); !ok {
		return 0, 0, false
	}
	return number, q.of(first, last, live)[number].Again, true
}

// Ways returns the ways of a stage, by their numbers: the fastest is the last.
func (q *Sequences) Ways(first, last, live int) []Way { return q.of(first, last, live) }

// Ops returns the sequence of a way of a stage by its number.
func (q *Sequences) Ops(first, last, live, number int) schedule.Sequence {
	return q.ops(first, last, live, number)
}

// Least returns the fewest bytes, beside its input, in which a stage can run for one minibatch in flight.
func (q *Sequences) Least(first, last int) int64 { return q.smallest().stage[first][last] }

// Bytes returns the bytes that a stage holds beside the inputs of the minibatches in flight, if it keeps nothing else of
// them.
func (q *Sequences) Bytes(first, last int) int64 {
	need := q.smallest().inside[first][last]
	for x := first; x <= last; x++ {
		need = max(need, q.forwardNeed(first, x))
	}
	return need
}

// smallest returns the table of what is needed at least, which not everybody asks for.
func (q *Sequences) smallest() *least {
	if q.least == nil {
		q.least = newLeast(q.ways)
	}
	return q.least
}
