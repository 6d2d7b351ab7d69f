package pipeline

import (
	"math/big"
	"slices"
	"sort"
)

// moments numbers the instants of a period at which work starts or ends, in order. Instants that differ by no more than rounding have one
// number. The instants of later periods are counted on. A plan with a flush has one period.
type moments struct {
	period ticks   // nil for a flush plan
	eps    ticks   // what rounding may change
	first  []ticks // by moment: the earliest instant that has its number
}

// findMoments numbers the starts and ends of all jobs, and some other times.
func (l *layout) findMoments(others ...ticks) *moments {
	m := &moments{period: l.period, eps: new(big.Int).Div(l.span(), tolerance)}
	for _, j := range l.jobs {
		others = append(others, j.start, j.end())
		if j.early.Sign() > 0 {
			others = append(others, add(j.start, j.early))
		}
	}
	all := make([]ticks, len(others))
	for i, t := range others {
		_, all[i] = m.within(t)
	}
	slices.SortFunc(all, ticks.Cmp)
	for i, t := range all {
		if i == 0 || less(m.eps, sub(t, all[i-1])) {
			m.first = append(m.first, t)
		}
	}
	return m
}

// within returns a time within its period. The end of a period, up to rounding, is the begin of the next one.
func (m *moments) within(t ticks) (periods int, at ticks) {
	if m.period == nil {
		return 0, t
	}
	n := new(big.Int).Div(add(t, m.eps), m.period)
	return int(n.Int64()), sub(t, n.Mul(n, m.period))
}

// count returns how many moments a period has.
func (m *moments) count() int { return len(m.first) }

// number returns the moment of a time that is one of those numbered.
func (m *moments) number(t ticks) int {
	n, at := m.within(t)
	return n*m.count() + sort.Search(m.count(), func(i int) bool { return less(at, m.first[i]) }) - 1
}

// interval returns the moments at which a job starts and ends.
func (m *moments) interval(j *job) Interval { return Interval{m.number(j.start), m.number(j.end())} }

// begin returns the half moment at which a job begins. Each moment has two: work that takes no time, rounding aside, begins in the first
// half of it, other work in the second.
func (m *moments) begin(j *job) (half int) {
	half = 2 * m.number(j.start)
	if less(m.eps, j.length) {
		half++
	}
	return half
}
