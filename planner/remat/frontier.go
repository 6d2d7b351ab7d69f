package remat

import (
	"context"
	"fmt"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// Step is a memory limit at which the best makespan of a strategy changes.
type Step struct {
	Memory   int64   // bytes, a_0 included
	Makespan float64 // seconds, from this limit up to the next step
}

// Frontier is everything an exact strategy can do with a chain: one run of its program answers every limit, from the
// smallest at which a sequence exists to the one at which more memory gains nothing. It is immutable and safe for
// concurrent use.
type Frontier struct {
	strategy string
	chain    *chain.Chain
	costs    *costs
	program  program
}

// program is a filled table of an exact dynamic program. Bytes are counted beside a_0.
type program interface {
	solve(ctx context.Context) error
	root() curve                            // the whole chain
	sequence(bytes int64) schedule.Sequence // of a feasible amount
}

// Steps returns the limits at which the makespan changes, memory rising, makespan falling. The last makespan is the
// strategy's best with any memory.
func (f *Frontier) Steps() []Step {
	steps := make([]Step, 0, len(f.program.root()))
	for _, s := range f.program.root() {
		steps = append(steps, Step{s.bytes + f.costs.a[0], f.costs.seconds(s.ticks)})
	}
	return steps
}

// Makespan returns the best makespan, in seconds, within a limit that includes a_0. Errors: *strategy.InfeasibleError.
func (f *Frontier) Makespan(memory int64) (float64, error) {
	ticks, ok := f.program.root().at(f.costs.beside(memory))
	if !ok {
		return 0, f.infeasible(memory)
	}
	return f.costs.seconds(ticks), nil
}

// Sequence returns a fastest sequence within a limit that includes a_0; its peak is the least at which its makespan
// is possible, Memory of the step that holds. Errors: *strategy.InfeasibleError.
func (f *Frontier) Sequence(memory int64) (schedule.Sequence, error) {
	root := f.program.root()
	i := root.index(f.costs.beside(memory))
	if i < 0 {
		return nil, f.infeasible(memory)
	}
	return f.program.sequence(root[i].bytes), nil
}

func (f *Frontier) infeasible(memory int64) error {
	smallest := f.program.root()[0].bytes
	return infeasible(f.strategy, f.chain, memory, smallest+f.costs.a[0], f.program.sequence(smallest))
}

// infeasible says that memory is too small for a strategy whose smallest limit has the sequence seq.
func infeasible(name string, c *chain.Chain, memory, smallest int64, seq schedule.Sequence) error {
	r, err := schedule.Simulate(c, seq, schedule.Limits{Memory: schedule.NoLimit})
	if err != nil {
		return err
	}
	e := &strategy.InfeasibleError{Strategy: name, Memory: memory, Smallest: smallest}
	if r.PeakOp >= 0 {
		e.Op = seq[r.PeakOp]
		e.LayerName = c.Layer(e.Op.Layer).Name
	}
	return e
}

// exact is an exact strategy: a name and the program that it makes of costs and a limit beside a_0.
type exact struct {
	name string
	make func(k *costs, limit int64) program
}

// frontier runs the program up to the limit, a_0 included.
// maxExact bounds the chains of the exact programs, which take minutes on a thousand layers.
const maxExact = 1024

func (x exact) frontier(ctx context.Context, c *chain.Chain, limit int64) (*Frontier, error) {
	k, err := newCosts(c)
	if err != nil {
		return nil, err
	}
	if k.n > maxExact {
		return nil, fmt.Errorf("%w: %d layers with the loss, the limit of %s is %d: use rotor, or group layers", ErrTooLarge, k.n, x.name, maxExact)
	}
	return x.run(ctx, c, k, limit)
}

func (x exact) run(ctx context.Context, c *chain.Chain, k *costs, limit int64) (*Frontier, error) {
	p := x.make(k, k.beside(limit))
	if err := p.solve(ctx); err != nil {
		return nil, err
	}
	return &Frontier{strategy: x.name, chain: c, costs: k, program: p}, nil
}

// solve is strategy.Strategy's Solve: only steps up to the limit are computed.
func (x exact) solve(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
	f, err := x.frontier(ctx, p.Chain, p.Memory)
	if err != nil {
		return nil, err
	}
	if len(f.program.root()) > 0 {
		return f.Sequence(p.Memory)
	}
	return nil, x.infeasible(ctx, f, p.Memory)
}

// infeasible finds the smallest limit with a program that sees no times, whose curves have one step at most, and then
// what the strategy does there.
func (x exact) infeasible(ctx context.Context, f *Frontier, memory int64) error {
	timeless, err := x.run(ctx, f.chain, f.costs.timeless(), schedule.NoLimit)
	if err != nil {
		return err
	}
	smallest, err := x.run(ctx, f.chain, f.costs, timeless.Steps()[0].Memory)
	if err != nil {
		return err
	}
	return smallest.infeasible(memory)
}
