package residency

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"plimsoll/planner/cycle"
)

// candidate is a plan that fits.
type candidate struct {
	seq    cycle.Sequence
	excess int64 // bytes of the device over the limit: then there is no sequence
	host   int64 // bytes of the host over the limit
	period float64
	copies float64 // seconds of copies and host updates of a step
	clock  []float64
	choice *choice // that made the sequence; nil: it was changed since
	from   string
}

// better compares candidates: by period, then by what runs beside the computation.
func (x *candidate) better(y *candidate) bool {
	const equal = 1e-12
	switch {
	case y == nil:
		return x != nil
	case x == nil:
		return false
	case x.excess != y.excess:
		return x.excess < y.excess
	case x.host != y.host:
		return x.host < y.host
	case math.Abs(x.period-y.period) > equal*y.period:
		return x.period < y.period
	}
	return x.copies < y.copies
}

// observe returns when each compute op of a step of the steady state started, from its first on, and the period behind them.
func observe(r *cycle.Result, seq cycle.Sequence) []float64 {
	step := r.WarmUp
	clock := make([]float64, 0, len(seq))
	for _, s := range r.Starts {
		if s.Step == step && isCompute(seq[s.Position].Kind) {
			clock = append(clock, s.Start)
		}
	}
	if len(clock) == 0 {
		return nil
	}
	origin := clock[0]
	for i := range clock {
		clock[i] -= origin
	}
	return append(clock, r.Period)
}

// eliteSize is the number of plans that are changed.
const eliteSize = 12

// trials times plans and keeps the best.
type trials struct {
	*problem
	best      *candidate
	elite     []*candidate // the best plans that can be changed, the best first
	evaluated int          // sequences that were timed, or found not to fit
	budget    int          // of them
	least     shortage     // of what did not fit
	failure   error        // of the sequence that was refused last, for another reason
}

// over reports whether the search must end.
func (s *trials) over() bool { return s.evaluated >= s.budget || s.ctx.Err() != nil }

// time judges and times a sequence, and keeps it when it is the best so far. nil: it does not fit, or is none.
func (s *trials) time(seq cycle.Sequence, from string) *candidate {
	s.evaluated++
	if s.best != nil && s.busiest(seq) > slack*s.best.period {
		return nil
	}
	r, err := s.sim.Run(seq, s.limits)
	if err != nil {
		return s.refused(err, from)
	}
	if r.InOrderPeak > s.limits.Memory {
		return nil
	}
	x := &candidate{seq: seq, period: r.Period, from: from}
	for _, s := range [...]cycle.Stream{cycle.ToDevice, cycle.ToHost, cycle.Host} {
		x.copies += r.Busy[s]
	}
	x.clock = observe(r, seq)
	if x.better(s.best) {
		s.best = x
	}
	return x
}

// refused returns a candidate for a plan that does not fit in host memory, with the bytes that it lacks. nil: it is refused for
// another reason.
func (s *trials) refused(err error, from string) *candidate {
	e, is := errors.AsType[*cycle.HostMemoryError](err)
	if !is {
		s.failure = err
		return nil
	}
	if s.least.host == 0 || e.Needed < s.least.host {
		s.least.host = e.Needed
	}
	return &candidate{host: e.Needed - e.Limit, period: math.Inf(1), from: from}
}

// noteShortage keeps the least limit at which a layout would fit.
func (s *trials) noteShortage(lack shortage) {
	if s.least.bytes == 0 || lack.bytes < s.least.bytes {
		s.least.bytes, s.least.op = lack.bytes, lack.op
	}
}

// refusal says why there is no plan.
func (s *trials) refusal() error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if s.least.host > 0 {
		return &HostError{s.strategy, s.limits.Host, s.least.host}
	}
	if s.failure != nil && (s.least.bytes == 0 || errors.Is(s.failure, cycle.ErrNoSteadyState)) {
		return fmt.Errorf("%s: no plan was found; the last one: %w", s.strategy, s.failure)
	}
	e := &InfeasibleError{Strategy: s.strategy, Limit: s.limits.Memory, Smallest: s.least.bytes, Op: s.least.op}
	if l := s.least.op.Layer; l > 0 {
		e.Layer = s.c.Layer(l).Name
	}
	return e
}

// admit puts a candidate among the best, each period and amount of copies once.
func (s *trials) admit(x *candidate) {
	if x == nil || x.choice == nil {
		return
	}
	at, found := slices.BinarySearchFunc(s.elite, x, func(a, b *candidate) int {
		switch {
		case a.better(b):
			return -1
		case b.better(a):
			return 1
		}
		return 0
	})
	switch {
	case found:
		s.elite[at] = x // so that the search drifts among equals
		return
	case at >= eliteSize:
		return
	}
	s.elite = slices.Insert(s.elite, at, x)
	s.elite = s.elite[:min(len(s.elite), eliteSize)]
}

// try builds and times a choice, and again with the times of the first run, and admits the better plan.
func (s *trials) try(x *choice, from string) {
	best := s.once(x, from)
	if best == nil || best.seq == nil {
		s.admit(best)
		return
	}
	y := *x
	y.clock = best.clock
	if c := s.once(&y, from); c.better(best) {
		best = c
	}
	s.admit(best)
}

// once builds and times a choice.
func (s *trials) once(x *choice, from string) *candidate {
	seq, lack := s.build(x)
	if seq == nil {
		s.evaluated++
		s.noteShortage(lack)
		return &candidate{excess: lack.bytes - s.limits.Memory, period: math.Inf(1), choice: x, from: from}
	}
	c := s.time(seq, from)
	if c != nil {
		c.choice = x
	}
	return c
}

// Plan is a sequence within the limits, and what it costs.
type Plan struct {
	Sequence  cycle.Sequence
	Result    *cycle.Result
	Strategy  string // that made it; of auto: where its search began
	Evaluated int    // sequences that were timed
}

// plan returns the best plan, judged once more.
func (s *trials) plan() (*Plan, error) {
	limits := s.limits
	limits.Steps = 0
	result, err := s.sim.Run(s.best.seq, limits)
	if err != nil {
		return nil, errors.Join(errors.New("BUG: the best plan is refused"), err)
	}
	return &Plan{s.best.seq, result, s.best.from, s.evaluated}, nil
}
