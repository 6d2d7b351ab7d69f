package ilp

import (
	"cmp"
	"slices"

	"plimsoll/planner/milp"
)

// sum is a constant and terms: what rows of the program are made of.
type sum struct {
	terms    []milp.Term
	constant float64
}

// of returns a variable as a sum.
func of(v milp.Var) sum { return sum{terms: []milp.Term{{Var: v, Coef: 1}}} }

// number returns a constant as a sum.
func number(x float64) sum { return sum{constant: x} }

// plus returns the sum with a multiple of another one added to it. It does not change its operands.
func (s sum) plus(times float64, t sum) sum {
	if times == 0 {
		return s
	}
	all := slices.Clip(s.terms)
	for _, x := range t.terms {
		all = append(all, milp.Term{Var: x.Var, Coef: times * x.Coef})
	}
	return sum{all, s.constant + times*t.constant}
}

// most returns the largest value of a sum whose variables are between 0 and 1.
func (s sum) most() float64 {
	most := s.constant
	for _, t := range s.collected() {
		most += max(0, t.Coef)
	}
	return most
}

// collected returns the terms with each variable once, in their order.
func (s sum) collected() []milp.Term {
	all := slices.Clone(s.terms)
	slices.SortStableFunc(all, func(a, b milp.Term) int { return cmp.Compare(a.Var, b.Var) })
	out := all[:0]
	for _, t := range all {
		if last := len(out) - 1; last >= 0 && out[last].Var == t.Var {
			out[last].Coef += t.Coef
		} else {
			out = append(out, t)
		}
	}
	return out
}

// rows is a program whose rows are sums.
type rows struct{ milp.Program }

// atLeast adds the row s >= t.
func (r *rows) atLeast(s, t sum) {
	d := s.plus(-1, t)
	r.AtLeast(-d.constant, d.collected()...)
}

// equal adds the row s = t.
func (r *rows) equal(s, t sum) {
	d := s.plus(-1, t)
	r.Equal(-d.constant, d.collected()...)
}
