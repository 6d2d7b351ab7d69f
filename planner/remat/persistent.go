package remat

import (
	"context"
	"fmt"

	"plimsoll/internal/parallel"
	"plimsoll/planner/schedule"
)

// persistent is the table of Theorem 6 to the byte: for each s <= t the least excess of B_t..B_s as a curve over the
// memory beside a_{s-1}, δ_t included.
//
//	all    C(s+1, t, m-ā_s)                                  m >= m_all
//	split  F_s..F_x + C(x+1, t, m-a_x) + C(s, x, m)          s <= x < t, m >= the forwards s..x
//
// The maximum m_∅ of the thesis goes over s..t. The forwards after x are implied by the second term, and stopping
// at x stays right when forwards that save nothing have an overhead of their own.
type persistent struct {
	*costs
	limit int64 // bytes beside a_0
	// plain: activations are stored as a_i only, as in automatic differentiation; F^all_s comes just before B_s.
	plain   bool
	table   []curve // C(s, t) at place(s, t)
	need    []int64 // need[place(s, x)]: what the forwards s..x need beside a_{s-1} and the gradient
	ceiling []int64 // ceiling[place(s, t)]: the excess from which on C(s, t) is of no use
}

// newPersistent returns the program for a limit beside a_0. Sequences of more excess than cut need not be found.
func newPersistent(k *costs, limit, cut int64) *persistent {
	return &persistent{costs: k, limit: limit, need: k.needs(), ceiling: k.ceilings(limit, cut)}
}

// place returns the index of (s, t) in a triangular table in which a row s is contiguous.
func (k *costs) place(s, t int) int { return (s-1)*(2*k.n+2-s)/2 + t - s }

func (p *persistent) at(s, t int) curve { return p.table[p.place(s, t)] }

// maxSteps bounds the steps that an exact program keeps: 16 bytes each.
const maxSteps = 1 << 26

// solve fills the table, diagonal by diagonal. O(n^3) sums of curves.
func (p *persistent) solve(ctx context.Context) error {
	p.table = make([]curve, p.n*(p.n+1)/2)
	steps := 0
	for d := range p.n {
		err := parallel.For(ctx, p.n-d, func(env *envelope, i int) {
			p.table[p.place(i+1, i+1+d)] = p.entry(env, i+1, i+1+d)
		})
		if err != nil {
			return err
		}
		for s := 1; s+d <= p.n; s++ {
			steps += len(p.at(s, s+d))
		}
		if steps > maxSteps {
			return fmt.Errorf("%w: more than %d steps of memory among the first %d of %d diagonals: "+
				"use rotor, whose tables have a fixed size, or group layers", ErrTooLarge, maxSteps, d+1, p.n)
		}
	}
	return nil
}

func (p *persistent) entry(env *envelope, s, t int) curve {
	ceiling := p.ceiling[p.place(s, t)]
	if ceiling <= 0 {
		return nil
	}
	env.reset(p.besideInput(s, p.limit), ceiling)
	switch {
	case s == t:
		env.add(free, 0, p.needAll(s, t), 0)
	case !p.plain:
		env.add(p.at(s+1, t), p.saved[s], p.needAll(s, t), 0)
	}
	for x := s; x < t && p.repeat(s, x) < ceiling; x++ {
		env.sum(p.at(x+1, t), p.at(s, x), p.a[x], p.grad[t]+p.need[p.place(s, x)], p.repeat(s, x))
	}
	return env.steps()
}

func (p *persistent) root() curve { return p.at(1, p.n) }

// sequence appends Algorithm 4's sequence for m bytes, a feasible amount. Each part gets the least memory at which it
// has its excess; of equal choices F^all is taken first, then the shortest run of forwards.
func (p *persistent) sequence(m int64) schedule.Sequence { return p.build(nil, 1, p.n, m) }

func (p *persistent) build(seq schedule.Sequence, s, t int, m int64) schedule.Sequence {
	c := p.at(s, t)
	now := c[c.index(m)]
	m = now.bytes
	if s == t {
		return append(seq, all(s), backward(s))
	}
	if !p.plain && m >= p.needAll(s, t) {
		if got, ok := p.at(s+1, t).at(m - p.saved[s]); ok && got == now.ticks {
			seq = p.build(append(seq, all(s)), s+1, t, m-p.saved[s])
			return append(seq, backward(s))
		}
	}
	x := p.choice(s, t, now)
	seq = p.build(run(seq, s, x), x+1, t, m-p.a[x])
	return p.build(seq, s, x, m)
}

// choice returns the first x whose split gives the step.
func (p *persistent) choice(s, t int, now step) int {
	for x := s; x < t; x++ {
		right, ok1 := p.at(x+1, t).at(now.bytes - p.a[x])
		left, ok2 := p.at(s, x).at(now.bytes)
		if ok1 && ok2 && now.bytes >= p.grad[t]+p.need[p.place(s, x)] && p.repeat(s, x)+right+left == now.ticks {
			return x
		}
	}
	panic(fmt.Sprintf("BUG: no choice gives the step of C(%d,%d) at %d bytes", s, t, now.bytes))
}
