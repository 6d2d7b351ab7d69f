package remat

import (
	"context"
	"fmt"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// Breakpoint is a memory limit at which the best makespan of a strategy changes.
type Breakpoint struct {
	Memory   int64   // bytes, a_0 included
	Makespan float64 // seconds, from this limit up to the next step
}

// Frontier holds an exact strategy's sequences for a chain at every limit. One run of the program finds all of them,
// from the smallest limit at which a sequence exists to the limit at which more memory gains nothing. It is
// immutable and safe for concurrent use.
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

// Breakpoints returns the limits at which the makespan changes, memory rising, makespan falling. The last makespan is the
// strategy's best with any memory.
func (f *Frontier) Breakpoints() []Breakpoint {
	all := make([]Breakpoint, 0, len(f.program.root()))
	for _, s := range f.program.root() {
		all = append(all, Breakpoint{s.bytes + f.costs.a[0], f.costs.seconds(s.ticks)})
	}
	return all
}

// Sequence returns a fastest sequence within a limit that includes a_0; its peak is the least at which its makespan
// is possible, Memory of the breakpoint that holds. Errors: *pipeline.InfeasibleError.
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
	e := &pipeline.InfeasibleError{Strategy: name, Memory: memory, Smallest: smallest}
	if r.PeakOp >= 0 {
		e.Op = seq[r.PeakOp]
		e.LayerName = c.Layer(e.Op.Layer).Name
	}
	return e
}

// exact is an exact strategy.
type exact struct {
	name string
	// make returns its program for costs and a limit beside a_0; sequences of more excess than cut need not be found.
	make func(k *costs, limit, cut int64) program
	// known returns the excess of a sequence that the program may find within a limit, infinite when none is known; nil: never is.
	known func(x exact, ctx context.Context, k *costs, limit int64) (int64, error)
	// least returns the smallest amount beside a_0 in which there is a sequence.
	least func(ctx context.Context, k *costs) (int64, error)
}

// maxExact bounds the chains of the exact programs.
const maxExact = 1024

func (x exact) costs(c *chain.Chain) (*costs, error) {
	k, err := newCosts(c)
	if err == nil && k.n > maxExact {
		err = fmt.Errorf("%w: %d layers with the loss, the limit of %s is %d: use rotor, or group layers", ErrTooLarge, k.n, x.name, maxExact)
	}
	return k, err
}

// frontier runs the program for all limits.
func (x exact) frontier(ctx context.Context, c *chain.Chain) (*Frontier, error) {
	k, err := x.costs(c)
	if err != nil {
		return nil, err
	}
	p := x.make(k, k.most(), infinite)
	return &Frontier{strategy: x.name, chain: c, costs: k, program: p}, p.solve(ctx)
}

// from runs the program for all limits from one on, a_0 included; below it, and where nothing fits, the frontier has no steps.
func (x exact) from(ctx context.Context, c *chain.Chain, memory int64) (*Frontier, error) {
	k, err := x.costs(c)
	if err != nil {
		return nil, err
	}
	slowest, err := x.excess(ctx, k, min(k.beside(memory), k.most()))
	if err != nil {
		return nil, err
	}
	p := x.make(k, k.most(), slowest)
	return &Frontier{strategy: x.name, chain: c, costs: k, program: p}, p.solve(ctx)
}

// solve is strategy.Sequencer's Solve.
func (x exact) solve(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
	k, err := x.costs(p.Chain)
	if err != nil {
		return nil, err
	}
	best, err := x.within(ctx, k, min(k.beside(p.Memory), k.most()))
	if err != nil {
		return nil, err
	}
	if len(best.root()) == 0 {
		return nil, x.refusal(ctx, k, p)
	}
	return (&Frontier{strategy: x.name, chain: p.Chain, costs: k, program: best}).Sequence(p.Memory)
}

// refusal returns the error of a limit that is too small.
func (x exact) refusal(ctx context.Context, k *costs, p strategy.Problem) error {
	smallest, err := x.least(ctx, k)
	if err != nil {
		return err
	}
	best, err := x.within(ctx, k.refused(), smallest)
	if err != nil {
		return err
	}
	return (&Frontier{strategy: x.name, chain: p.Chain, costs: k, program: best}).infeasible(p.Memory)
}

// within runs the program for one limit: the excess of a sequence that is known rules nearly everything out.
func (x exact) within(ctx context.Context, k *costs, limit int64) (program, error) {
	known := int64(infinite)
	if x.known != nil && k.n >= fewest {
		var err error
		if known, err = x.known(x, ctx, k, limit); err != nil {
			return nil, err
		}
	}
	p := x.make(k, limit, known)
	return p, p.solve(ctx)
}

// fewest is the number of layers below which nothing need be known.
const fewest = 32

// excess returns the least excess within a limit; infinite when nothing fits.
func (x exact) excess(ctx context.Context, k *costs, limit int64) (int64, error) {
	p, err := x.within(ctx, k, limit)
	if err != nil || len(p.root()) == 0 {
		return infinite, err
	}
	root := p.root()
	return root[len(root)-1].ticks, nil
}
