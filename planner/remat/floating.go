package remat

import (
	"context"
	"fmt"

	"plimsoll/internal/parallel"
	"plimsoll/planner/schedule"
)

// floating is the table of Theorem 5, repaired, to the byte. It has, for each s <= l <= t, the least excess of B_t..B_l,
// starting with a_{s-1} and δ_t stored, as a curve over the memory beside a_{s-1}, δ_t included. Afterwards only δ_{l-1}
// is left.
//
//	all   s = l:  C(s+1, t, s+1, m-ā_s)                                       m >= m_all
//	keep  l < t:  F_s..F_x + C(x+1, t, t', m-a_x) + C(s, t'-1, l, m)          s <= x < t', l < t' <= t, m >= the forwards s..x
//	move  s < l:  F_s + C(s+1, t, l, m + a_{s-1} - a_s)                       m >= δ_t + a_s + o_F
//
// The printed theorem differs. Its equation 2.6 has no move that stands alone, checks the forwards of a move as if
// a_{s-1} were still there, and Algorithm 2 passes the wrong memory on.
type floating struct {
	*costs
	limit int64     // bytes beside a_0
	table [][]curve // C(s, t, l) at [place(s, t)][l-s]
	need  []int64   // as in type persistent
	cut   int64     // sequences of more excess need not be found
}

func newFloating(k *costs, limit, cut int64) *floating {
	return &floating{costs: k, limit: limit, cut: cut, need: k.needs()}
}

func (p *floating) at(s, t, l int) curve { return p.table[p.place(s, t)][l-s] }

// maxFloating bounds the length of chains: at n = 64, 45760 entries choose among up to 2016 splits each.
const maxFloating = 64

// solve fills the table, diagonal by diagonal. O(n^5) sums of curves.
func (p *floating) solve(ctx context.Context) error {
	if p.n > maxFloating {
		return fmt.Errorf("%w: rotor-floating takes chains of at most %d layers with the loss, this one has %d: "+
			"group layers, or use rotor-exact", ErrTooLarge, maxFloating, p.n)
	}
	p.table = make([][]curve, p.n*(p.n+1)/2)
	steps := 0
	for d := range p.n {
		for s := 1; s+d <= p.n; s++ {
			p.table[p.place(s, s+d)] = make([]curve, d+1)
		}
		err := parallel.For(ctx, (p.n-d)*(d+1), func(env *envelope, i int) {
			s, l := i/(d+1)+1, i/(d+1)+1+i%(d+1)
			p.table[p.place(s, s+d)][l-s] = p.entry(env, s, s+d, l)
		})
		if err != nil {
			return err
		}
		for s := 1; s+d <= p.n; s++ {
			for _, c := range p.table[p.place(s, s+d)] {
				steps += len(c)
			}
		}
		if steps > maxSteps {
			return fmt.Errorf("%w: more than %d steps of memory among the first %d of %d diagonals: "+
				"use rotor-exact or rotor, or group layers", ErrTooLarge, maxSteps, d+1, p.n)
		}
	}
	return nil
}

func (p *floating) entry(env *envelope, s, t, l int) curve {
	ceiling := p.cut + 1
	if t < p.n {
		ceiling -= p.repeat(l, t) // they ran before B_n
	}
	env.reset(p.besideInput(s, p.limit), ceiling)
	switch s {
	case t:
		env.add(free, 0, p.needAll(s, t), 0)
	case l:
		env.add(p.at(s+1, t, s+1), p.saved[s], p.needAll(s, t), 0)
	default:
		env.add(p.at(s+1, t, l), p.a[s]-p.a[s-1], p.grad[t]+p.needFirst(s), p.repeat(s, s))
	}
	for next := l + 1; next <= t; next++ {
		for x := s; x < next && p.repeat(s, x) < ceiling; x++ {
			env.sum(p.at(x+1, t, next), p.at(s, next-1, l), p.a[x], p.grad[t]+p.need[p.place(s, x)], p.repeat(s, x))
		}
	}
	return env.steps()
}

func (p *floating) root() curve { return p.at(1, p.n, 1) }

// sequence appends Algorithm 2's sequence, repaired, for m bytes, a feasible amount. Each part gets the least memory
// at which it has its excess; of equal choices F^all and moves are taken first, then the first split.
func (p *floating) sequence(m int64) schedule.Sequence { return p.build(nil, 1, p.n, 1, m) }

func (p *floating) build(seq schedule.Sequence, s, t, l int, m int64) schedule.Sequence {
	c := p.at(s, t, l)
	now := c[c.index(m)]
	m = now.bytes
	switch {
	case s == t:
		return append(seq, all(s), backward(s))
	case p.startsAll(s, t, l, now):
		seq = p.build(append(seq, all(s)), s+1, t, s+1, m-p.saved[s])
		return append(seq, backward(s))
	case p.startsMove(s, t, l, now):
		return p.build(append(seq, discard(s)), s+1, t, l, m+p.a[s-1]-p.a[s])
	}
	x, next := p.split(s, t, l, now)
	seq = p.build(run(seq, s, x), x+1, t, next, m-p.a[x])
	return p.build(seq, s, next-1, l, m)
}

// startsAll reports whether the choice all gives the step.
func (p *floating) startsAll(s, t, l int, now step) bool {
	if s != l || now.bytes < p.needAll(s, t) {
		return false
	}
	got, ok := p.at(s+1, t, s+1).at(now.bytes - p.saved[s])
	return ok && got == now.ticks
}

// startsMove reports whether the choice move gives the step.
func (p *floating) startsMove(s, t, l int, now step) bool {
	if s == l || now.bytes < p.grad[t]+p.needFirst(s) {
		return false
	}
	got, ok := p.at(s+1, t, l).at(now.bytes + p.a[s-1] - p.a[s])
	return ok && got+p.repeat(s, s) == now.ticks
}

// split returns the first x and t' of the choice keep that give the step.
func (p *floating) split(s, t, l int, now step) (x, next int) {
	for next := l + 1; next <= t; next++ {
		left, ok := p.at(s, next-1, l).at(now.bytes)
		need := p.needFirst(s)
		for x := s; ok && x < next; x++ {
			if x > s {
				need = max(need, p.needNext(x))
			}
			right, ok := p.at(x+1, t, next).at(now.bytes - p.a[x])
			if ok && now.bytes >= p.grad[t]+need && p.repeat(s, x)+right+left == now.ticks {
				return x, next
			}
		}
	}
	panic(fmt.Sprintf("BUG: no choice gives the step of C(%d,%d,%d) at %d bytes", s, t, l, now.bytes))
}
