package pofo

// least-memory: the sequence that needs the least memory of all that rematerialize and offload, whatever it takes.
//
// Paper: A. Shilova, thesis, Theorems 6 and 12 without their times: every input that leaves is offloaded, and waiting is always
// possible, so neither times nor the bandwidth matter. Complexity: O(n^3) time, O(n^2) memory.

import (
	"cmp"
	"context"
	"math"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// Smallest returns the smallest limits, in bytes with a_0, at which a chain has a sequence that recomputes and one that also
// offloads. Errors: those of chain.Validate, ErrTooLarge.
func Smallest(c *chain.Chain) (recompute, both int64, err error) {
	k, err := newCosts(strategy.Problem{Chain: c, Link: schedule.Link{Bandwidth: 1}})
	if err != nil {
		return 0, 0, err
	}
	l := k.newLeast(context.Background())
	both = l.memory()
	l.alone = true
	return l.memory(), both, nil
}

func solveLeast(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
	return leastOf(ctx, p, false)
}

// solveAlone is solveLeast without transfers, whatever the link.
func solveAlone(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
	p.Link = schedule.Link{Bandwidth: 1}
	return leastOf(ctx, p, true)
}

func leastOf(ctx context.Context, p strategy.Problem, alone bool) (schedule.Sequence, error) {
	k, err := newCosts(p)
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return nil, err
	}
	l := k.newLeast(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.alone = alone
	l.sequence()
	return l.seq, l.refuse("least-memory", p)
}

// refuse returns the error of a strategy that has a sequence wherever there is one, when the limit is below the smallest.
func (l *least) refuse(name string, p strategy.Problem) error {
	smallest := l.memory()
	if p.Memory >= smallest {
		return nil
	}
	if l.seq == nil {
		l.sequence()
	}
	return infeasible(name, p, smallest, l.seq)
}

// choice is the best entry of a table: its bytes, and the number of its continuation.
type choice struct {
	bytes float64
	way   int // the last layer of the run whose forward saves nothing; keep: the first layer is saved
}

// keep is the way that saves the first layer.
const keep = 0

// least are the tables of the least memory.
type least struct {
	*costs
	alone    bool        // nothing is offloaded
	segments []choice    // for s <= t: beside the input of s, to run B_t..B_s from it
	rests    [2][]choice // of s..n when nothing else is stored, by what the input of s is: plain or saved
	seq      schedule.Sequence
}

// newLeast fills the tables, which mean nothing when the context has ended.
func (k *costs) newLeast(ctx context.Context) *least {
	l := &least{costs: k, segments: make([]choice, (k.n+1)*(k.n+1))}
	l.fillSegments(ctx)
	l.fillRests()
	return l
}

func (l *least) at(s, t int) *choice { return &l.segments[s*(l.n+1)+t] }

// segment returns the least memory beside the input of s in which B_t..B_s can be run from it.
func (l *least) segment(s, t int) float64 { return l.at(s, t).bytes }

// memory returns the smallest limit.
func (l *least) memory() int64 {
	if l.alone {
		return int64(math.Ceil(l.input(1, false) + l.segment(1, l.n)))
	}
	return int64(math.Ceil(l.rests[0][1].bytes))
}

// sequence makes the sequence of the smallest limit.
func (l *least) sequence() {
	if l.alone {
		l.run(1, l.n)
	} else {
		l.rest(1, false)
	}
}

// take takes a way that needs less.
func (c *choice) take(bytes float64, way int) {
	if bytes < c.bytes {
		*c = choice{bytes, way}
	}
}

func (l *least) fillSegments(ctx context.Context) {
	for d := 0; d < l.n && ctx.Err() == nil; d++ {
		for s := 1; s+d <= l.n; s++ {
			t := s + d
			best := choice{max(l.grad[t]+l.needAll[s], l.needBack[s]), keep}
			if s < t {
				best.bytes = max(best.bytes, l.saved[s]+l.segment(s+1, t))
			}
			need := 0.0
			for x := s; x < t; x++ {
				need = max(need, l.grad[t]+l.needForward(s, x))
				best.take(max(need, l.segment(s, x), l.a[x]+l.segment(x+1, t)), x)
			}
			*l.at(s, t) = best
		}
	}
}

func (l *least) fillRests() {
	for x := range l.rests {
		l.rests[x] = make([]choice, l.n+1)
		l.rests[x][l.n] = choice{l.input(l.n, x == 1) + max(l.needAll[l.n], l.needBack[l.n]), keep}
	}
	for s := l.n - 1; s >= 1; s-- {
		for x := range l.rests {
			in := l.input(s, x == 1)
			best := choice{max(in+l.needAll[s], in+l.needBack[s], l.rests[1][s+1].bytes), keep}
			need := in + l.needForward(s, s)
			for t := s; t < l.n; t++ {
				if t > s {
					need = max(need, l.needForward(s, t))
				}
				best.take(max(need, in+l.segment(s, t), l.rests[0][t+1].bytes), t)
			}
			l.rests[x][s] = best
		}
	}
}

func (l *least) op(kind schedule.Kind, layer int) {
	l.seq = append(l.seq, schedule.Op{Kind: kind, Layer: layer})
}

// rest appends the sequence of s..n, whose input leaves while the layers behind run.
func (l *least) rest(s int, saved bool) {
	x := 0
	if saved {
		x = 1
	}
	way := l.rests[x][s].way
	if s < l.n {
		l.op(schedule.Offload, s)
	}
	if way == keep {
		l.op(schedule.ForwardAll, s)
		if s < l.n {
			l.rest(s+1, true)
			l.op(schedule.Prefetch, s)
		}
		l.op(schedule.Backward, s)
		return
	}
	l.forward(s, way)
	l.rest(way+1, false)
	l.op(schedule.Prefetch, s)
	l.run(s, way)
}

// forward appends forwards s..t that save nothing but a_t; the input of s stays, or leaves.
func (l *least) forward(s, t int) {
	l.op(schedule.ForwardCheckpoint, s)
	for h := s + 1; h <= t; h++ {
		l.op(schedule.ForwardDiscard, h)
	}
}

// run appends the sequence of a segment.
func (l *least) run(s, t int) {
	if way := l.at(s, t).way; way != keep {
		l.forward(s, way)
		l.run(way+1, t)
		l.run(s, way)
		return
	}
	l.op(schedule.ForwardAll, s)
	if s < t {
		l.run(s+1, t)
	}
	l.op(schedule.Backward, s)
}
