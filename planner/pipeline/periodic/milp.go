package periodic

// milp: the optimal 1-periodic schedule of any allocation, by integer programs.
//
// Thesis, section 7.2: the program of chapter 6 for stages instead of layers, their devices given. Here the period is not a variable but a
// question. With T fixed, start = τ + h·T with a whole h is linear, and large constants disappear. The number of live minibatches at the
// start of a forward is a sum of h and of the binaries that order tasks in the period. The period is bisected between the largest load and
// the list scheduler's. Only orders and h are taken from a program's answer. Times and the exact smallest period for them follow from
// longest paths, so that the solver's tolerance does not matter. Stops at a relative gap (Options.Gap, 1e-5 by default and at least); the
// links' and devices' orders make it exponential. Needs HiGHS (see package milp). A stage may not share a device with its neighbour: they
// are one stage.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"plimsoll/planner/milp"
	"plimsoll/planner/pipeline"
)

func solveMILP(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	const name = "milp"
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := newProblem(name, r)
	if err != nil {
		return nil, err
	}
	if err := p.plain(); err != nil {
		return nil, err
	}
	if !milp.Built {
		return nil, fmt.Errorf("%s: %w", name, milp.ErrNoSolver)
	}
	if err := errors.Join(p.single(), p.separate()); err != nil {
		return nil, err
	}
	l := newLister(p)
	if err := l.infeasible(); err != nil {
		return nil, err
	}
	best, err := l.search(ctx)
	if err != nil {
		return nil, err
	}
	best, gap, err := l.prove(ctx, best)
	if err != nil {
		return nil, err
	}
	plan, err := pipeline.Finish(name, r, l.plan(best))
	if err == nil && gap > l.gap() {
		return nil, &pipeline.UnfinishedError{Strategy: name, Best: plan, Gap: gap}
	}
	return plan, err
}

// separate checks that neighbours are on different devices.
func (p *problem) separate() error {
	for s := 1; s < len(p.stages); s++ {
		if p.stages[s].Devices[0] == p.stages[s-1].Devices[0] {
			return fmt.Errorf("%w: stages %d and %d are both on device %d: make them one stage", ErrStages, s-1, s, p.stages[s].Devices[0])
		}
	}
	return nil
}

// gap returns at which relative gap to stop: not below ten times the tolerance of the solver.
func (l *lister) gap() float64 { return max(l.Gap, 1e-5) }

// prove improves a schedule until its period is within the gap of a lower bound, or the time of the limit or of the
// context is over. It returns the gap that is left. Errors: the context's when it was cancelled.
func (l *lister) prove(ctx context.Context, best *board) (*board, float64, error) {
	low, high := l.periods()[0], best.period
	end := l.end(ctx)
	for first := true; high-low > l.gap()*high; first = false {
		if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
			break
		} else if err != nil {
			return nil, 0, err
		}
		o := milp.Options{}
		if !end.IsZero() {
			if o.Seconds = time.Until(end).Seconds(); o.Seconds <= 0 {
				break
			}
		}
		period := (low + high) / 2
		if first {
			period = high * (1 - l.gap()) // mostly nothing is better
		}
		b, err := l.program(period).solve(ctx, o)
		switch {
		case errors.Is(err, milp.ErrInfeasible):
			low = period
		case errors.Is(err, milp.ErrStopped), errors.Is(err, context.DeadlineExceeded):
			return best, (high - low) / high, nil
		case err != nil:
			return nil, 0, err
		case b.period < high:
			best, high = b, b.period
		default: // a schedule only within the solver's tolerance
			low = period
		}
	}
	return best, max(0, (high-low)/high), nil
}

// end returns when the time is over: what comes first of the limit and the context's deadline; zero: never.
func (l *lister) end(ctx context.Context) time.Time {
	end, _ := ctx.Deadline()
	if l.TimeLimit > 0 {
		if limit := time.Now().Add(l.TimeLimit); end.IsZero() || limit.Before(end) {
			end = limit
		}
	}
	return end
}

// program asks for a schedule of a period. Tasks are numbered in the order in which a minibatch passes them: forwards of
// the steps, then backwards. Times are in periods.
type program struct {
	*lister
	period   float64
	p        milp.Program
	resource []int
	length   []float64
	start    []milp.Var // τ
	turn     []milp.Var // h
	order    map[[2]int]milp.Var
}

func (l *lister) program(period float64) *program {
	m := &program{lister: l, period: period, order: map[[2]int]milp.Var{}}
	for _, s := range l.steps {
		m.resource, m.length = append(m.resource, s.there), append(m.length, s.Forward/period)
	}
	for x := len(l.steps) - 1; x >= 0; x-- {
		m.resource, m.length = append(m.resource, l.steps[x].back), append(m.length, l.steps[x].Backward/period)
	}
	for i := range m.length {
		most := min(1, float64(i)) // the first task starts the period
		m.start = append(m.start, m.p.Var(0, 0, most))
		m.turn = append(m.turn, m.p.Integer(0, 0, most*float64(2*len(m.length))))
	}
	m.path()
	m.resources()
	for d := range l.on {
		m.device(d)
	}
	return m
}

// backward returns the task that is the backward of a step.
func (m *program) backward(x int) int { return len(m.length) - 1 - x }

// path: each task of a minibatch starts when the one before has ended.
func (m *program) path() {
	for i := 1; i < len(m.length); i++ {
		m.p.AtLeast(m.length[i-1], milp.Term{Var: m.start[i], Coef: 1}, milp.Term{Var: m.turn[i], Coef: 1},
			milp.Term{Var: m.start[i-1], Coef: -1}, milp.Term{Var: m.turn[i-1], Coef: -1})
	}
}

// resources: of two tasks of a resource one is before the other in the period, and both are around once in it.
func (m *program) resources() {
	for i := range m.length {
		for j := i + 1; j < len(m.length); j++ {
			if m.resource[i] != m.resource[j] {
				continue
			}
			o := m.p.Binary(0) // i is before j
			m.order[[2]int{i, j}] = o
			later := []milp.Term{{Var: m.start[j], Coef: 1}, {Var: m.start[i], Coef: -1}, {Var: o, Coef: -1}}
			m.p.AtLeast(m.length[i]-1, later...)
			m.p.AtMost(-m.length[j], later...)
		}
	}
}

// before adds a multiple of "i is before j in the period" to a row, and returns what that adds to its constant.
func (m *program) before(row []milp.Term, i, j int, times float64) ([]milp.Term, float64) {
	if i < j {
		return append(row, milp.Term{Var: m.order[[2]int{i, j}], Coef: times}), 0
	}
	return append(row, milp.Term{Var: m.order[[2]int{j, i}], Coef: -times}), times
}

// device: at the start of each forward of a device, what is live fits. Sizes are in memories.
func (m *program) device(d int) {
	limit := m.Platform.Memory[d]
	if limit == pipeline.NoLimit {
		return
	}
	var on []int // the steps that are stages of the device
	for x, s := range m.steps {
		if !s.Boundary && m.stages[s.Stage].Devices[0] == d {
			on = append(on, x)
		}
	}
	unit := float64(max(limit, 1))
	for _, f := range on {
		var row []milp.Term
		room := float64(limit-m.buffers[d]) / unit
		for _, x := range on {
			s := m.steps[x].Stage
			var used float64
			row, used = m.live(row, x, f, float64(m.held(s))/unit)
			more := float64(m.static(s, 2) - m.static(s, 1)) // for each live minibatch: stashed weights
			room -= used + (float64(m.static(s, 1))-more)/unit
			row, used = m.live(row, x, x, more/unit)
			room -= used
		}
		m.p.AtMost(room, row...)
	}
}

// live adds, to a row, a multiple of the minibatches of step x that are live at the start of the forward f. Those have
// started and not ended.
func (m *program) live(row []milp.Term, x, f int, times float64) ([]milp.Term, float64) {
	if times == 0 {
		return row, 0
	}
	b := m.backward(x)
	row = append(row, milp.Term{Var: m.turn[b], Coef: times}, milp.Term{Var: m.turn[x], Coef: -times})
	used := times
	if x != f {
		row, used = m.before(row, x, f, times)
	}
	row, ended := m.before(row, b, f, -times)
	return row, used + ended
}

// solve returns a schedule of at most about the period. Errors: those of milp.
func (m *program) solve(ctx context.Context, o milp.Options) (*board, error) {
	s, err := m.p.Solve(ctx, o)
	if err != nil {
		return nil, err
	}
	edges := m.edges(s)
	low, high := m.periods()[0], m.period*(1+1e-5)
	times := m.times(edges, high)
	if times == nil {
		return nil, fmt.Errorf("%w: its orders do not hold", milp.ErrStopped)
	}
	for high-low > 1e-13*high {
		middle := (low + high) / 2
		if middle <= low || middle >= high {
			break
		}
		if t := m.times(edges, middle); t != nil {
			times, high = t, middle
		} else {
			low = middle
		}
	}
	b := m.empty(high)
	for x := range m.steps {
		b.there[x] = times[x] + high*math.Round(s.Value(m.turn[x]))
		b.back[x] = times[m.backward(x)] + high*math.Round(s.Value(m.turn[m.backward(x)]))
	}
	for d, limit := range m.Platform.Memory {
		if m.bytes(b, d, 0) > limit {
			return nil, fmt.Errorf("%w: its memory does not hold", milp.ErrStopped)
		}
	}
	return b, nil
}

// edge says that task j starts at least so many seconds, less some periods, after task i.
type edge struct {
	i, j    int
	seconds float64
	periods float64
}

// edges reads which orders a solution has chosen.
func (m *program) edges(s *milp.Solution) []edge {
	var all []edge
	for i := 1; i < len(m.length); i++ {
		all = append(all, edge{i - 1, i, m.length[i-1] * m.period, math.Round(s.Value(m.turn[i])) - math.Round(s.Value(m.turn[i-1]))})
	}
	for i := range m.length {
		for j := i + 1; j < len(m.length); j++ {
			o, ok := m.order[[2]int{i, j}]
			if !ok {
				continue
			}
			x, y := i, j
			if s.Value(o) < 0.5 {
				x, y = j, i
			}
			all = append(all, edge{x, y, m.length[x] * m.period, 0}, edge{y, x, m.length[y] * m.period, 1})
		}
	}
	return all
}

// times returns the earliest starts with these edges and a period: longest paths; nil when the period is too short.
func (m *program) times(edges []edge, period float64) []float64 {
	start := make([]float64, len(m.length))
	for range len(start) + 1 {
		moved := false
		for _, e := range edges {
			if at := start[e.i] + e.seconds - e.periods*period; at > start[e.j]+period*slack {
				start[e.j], moved = at, true
			}
		}
		if !moved {
			return start
		}
	}
	return nil
}
