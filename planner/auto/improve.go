package auto

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"

	"plimsoll/planner/bound"
	"plimsoll/planner/improve"
	"plimsoll/planner/schedule"
)

// report improves the best results and takes the best of everything.
func (a *portfolio) report(ctx context.Context, opt Options) (*Report, error) {
	ranking := a.ranking()
	r := &Report{Winner: ranking[0].Strategy, Bound: a.bound}
	for _, e := range a.entries {
		r.Candidates = append(r.Candidates, e.Candidate)
	}
	best := ranking[0]
	if opt.Steps >= 0 {
		m := &improver{portfolio: a, steps: opt.Steps, patient: math.MaxInt}
		if m.steps == 0 {
			m.steps, m.patient = max(1, work/len(best.Sequence)), patient
		}
		var err error
		if best, err = m.run(ctx, ranking); err != nil {
			return nil, err
		}
		r.Steps = m.used
		if best.Makespan < ranking[0].Makespan {
			r.Start = best.Strategy
		}
	}
	quiet, err := a.quieter(best, ranking)
	if err != nil {
		return nil, err
	}
	if quiet != best {
		r.Winner, r.Start, r.Passed, best = quiet.Strategy, "", best, quiet
		r.Tolerance, r.Contention = a.Tolerance, a.Contention
	}
	r.Transfer = best.Transfer
	r.Sequence, r.Makespan, r.Peak = best.Sequence, best.Makespan, best.Peak
	return r, nil
}

// improver makes the best results better: local moves on each of them until none helps, then on random changes of the
// best. The order in which searches end does not matter: those that run together end together.
type improver struct {
	*portfolio
	steps, used int // simulations: the budget of one search, those of all so far
	patient     int // rounds of kicks without success until the search ends
	best        *Candidate
}

// run returns the best candidate, made better where possible. It ends at the bound, when nothing helped for a while, when
// twice the budget of one search is used up, or with the context's deadline.
func (m *improver) run(ctx context.Context, ranking []*Candidate) (*Candidate, error) {
	m.best = ranking[0]
	if err := m.together(ctx, distinct(ranking)); err != nil {
		return nil, err
	}
	for round, idle := uint64(0), 0; idle < m.patient && m.used/2 < m.steps && !m.reached() && ctx.Err() == nil; round++ {
		before := m.best
		changed, err := m.kicked(round)
		if err == nil {
			err = m.together(ctx, changed)
		}
		if err != nil {
			return nil, err
		}
		if idle++; m.best != before {
			idle = 0
		}
	}
	return m.best, nil
}

func (m *improver) reached() bool { return bound.Gap(m.best.Makespan, m.bound) == 0 }

// kicked returns random changes of the best sequence.
func (m *improver) kicked(round uint64) (out []*Candidate, err error) {
	limits := m.Limits()
	for i := range uint64(kicks) {
		k, err := newKicker(m.Chain, limits, kicks*round+i)
		if err != nil {
			return nil, err
		}
		seq, used := k.kick(m.best.Sequence, m.best.Makespan)
		m.used += used
		if seq != nil {
			out = append(out, &Candidate{Strategy: m.best.Strategy, Sequence: seq})
		}
	}
	return out, nil
}

// together runs the local moves on several sequences at a time and keeps the best result.
func (m *improver) together(ctx context.Context, from []*Candidate) error {
	if m.reached() {
		return nil
	}
	found, used, errs := make([]*Candidate, len(from)), make([]int, len(from)), make([]error, len(from))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i, c := range from {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			found[i], used[i], errs[i] = m.descend(ctx, c)
		})
	}
	wg.Wait()
	for i, c := range found {
		m.used += used[i]
		if c != nil && c.compare(m.best) < 0 {
			m.best = c
		}
	}
	return errors.Join(errs...)
}

// descend runs the local moves on one sequence. The result is nil when an executor could not run it.
func (m *improver) descend(ctx context.Context, c *Candidate) (*Candidate, int, error) {
	limits := m.Limits()
	search, err := improve.New(m.Chain, limits, c.Sequence)
	if err != nil {
		return nil, 0, err
	}
	if err := search.Run(ctx, m.steps); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, 0, err
	}
	seq, _ := search.Best()
	if swallows(seq) {
		return nil, search.Steps(), nil
	}
	r, err := schedule.Simulate(m.Chain, seq, limits)
	if err != nil {
		return nil, 0, err
	}
	better := &Candidate{Strategy: c.Strategy, Sequence: seq}
	better.take(r)
	return better, search.Steps(), nil
}
