package remat

// dtr: Dynamic Tensor Rematerialization, run ahead of time. When memory runs out, the set with the least h is evicted: h = (cost + cost of
// its evicted neighbourhood) / (size * staleness). So evicted sets are cheap to compute again, large and unused for long.
//
// Paper: M. Kirisame et al., "Dynamic Tensor Rematerialization", ICLR 2021, section 4.1 (h_DTR) and 2 (its runtime). The saved set of a
// layer is evicted as a whole. In the sequence, an evicted set becomes a forward that does not save. The runtime is simulated under a fixed
// set of budgets. The sequences are judged by simulation under the true rules, so that a budget above the limit may serve and one below may
// not. O(budgets * computations * L).

import (
	"context"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

const (
	dtrBudgets = 256 // equal steps from the largest need of one op to the peak of store-all
	// dtrThrash is the number of computations for each layer after which a budget is given up.
	dtrThrash = 64
)

func solveDTR(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
	sim, err := schedule.NewSimulator(p.Chain)
	if err != nil {
		return nil, err
	}
	peak, err := sim.Run(StoreAll(p.Chain), schedule.Limits{Memory: schedule.NoLimit})
	if err != nil {
		return nil, err
	}
	var tried trials
	for k := range int64(dtrBudgets) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		order := newEvictor(p.Chain, peak.Peak-peak.Peak/dtrBudgets*k).order()
		if order == nil {
			continue // a smaller budget may still serve: eviction is a heuristic
		}
		seq := sequenceOf(order, p.Chain.Len())
		r, err := sim.Run(seq, schedule.Limits{Memory: schedule.NoLimit})
		if err != nil {
			return nil, err
		}
		tried.add(candidate{seq, r.Makespan, r.Peak}, p.Memory)
	}
	return tried.best("dtr", p)
}

// evictor is the simulated runtime.
//
// Invariants: used is the bytes of a_0, of the present sets and of the newest gradient; it never exceeds budget.
type evictor struct {
	c       *chain.Chain
	budget  int64
	used    int64
	clock   float64
	present []bool    // ā_l; a_0 always
	touched []float64 // when ā_l was last written or read
	reached int       // the highest layer computed so far
	done    int       // layers from here on have had their backward
	steps   []compute
}

func newEvictor(c *chain.Chain, budget int64) *evictor {
	n := c.Len()
	e := &evictor{c: c, budget: budget, used: c.Activation(0), present: make([]bool, n+1), touched: make([]float64, n+1), done: n + 1}
	e.present[0] = true
	return e
}

// order returns the computations of one step, nil when the budget does not suffice.
func (e *evictor) order() []compute {
	n := e.c.Len()
	for l := 1; l <= n; l++ {
		if !e.forward(l, l) {
			return nil
		}
	}
	for l := n; l >= 1; l-- {
		if !e.restore(l, l) || !e.restore(l-1, l) || !e.backward(l) {
			return nil
		}
	}
	return e.steps
}

// restore computes ā_l again where it was evicted; ā_keep stays.
func (e *evictor) restore(l, keep int) bool {
	from := l
	for !e.present[from] {
		from--
	}
	for i := from + 1; i <= l; i++ {
		if !e.forward(i, keep) {
			return false
		}
	}
	return true
}

func (e *evictor) forward(l, keep int) bool {
	layer := e.c.Layer(l)
	if !e.makeRoom(e.c.Saved(l)+layer.ForwardOverheadBytes, l-1, keep) {
		return false
	}
	e.used += e.c.Saved(l)
	e.present[l] = true
	e.reached = max(e.reached, l)
	e.ran(compute{layer: l}, layer.ForwardS)
	return true
}

func (e *evictor) backward(l int) bool {
	layer := e.c.Layer(l)
	if !e.makeRoom(e.c.Gradient(l-1)+layer.BackwardOverheadBytes, l-1, l) {
		return false
	}
	e.used += e.c.Gradient(l-1) - e.c.Gradient(l) - e.c.Saved(l)
	e.present[l] = false
	e.done = l
	e.ran(compute{layer: l, back: true}, layer.BackwardS)
	return true
}

func (e *evictor) ran(op compute, seconds float64) {
	e.steps = append(e.steps, op)
	e.clock += seconds
	e.touched[op.layer-1], e.touched[op.layer] = e.clock, e.clock
}

// makeRoom evicts until so many bytes fit, never what the operation reads.
func (e *evictor) makeRoom(bytes int64, read, keep int) bool {
	for e.used+bytes > e.budget {
		victim := e.victim(read, keep)
		if victim == 0 {
			return false
		}
		e.present[victim] = false
		e.used -= e.c.Saved(victim)
	}
	return len(e.steps) < dtrThrash*e.c.Len()
}

// victim returns the evictable set with the least h, the lowest of equals; 0 when there is none.
func (e *evictor) victim(read, keep int) int {
	best, bestCost, bestWeight := 0, 0.0, 0.0
	for l := 1; l < e.done && l <= e.reached; l++ {
		if !e.present[l] || l == read || l == keep || e.c.Saved(l) == 0 {
			continue
		}
		cost, weight := e.neighbourhood(l), float64(e.c.Saved(l))*(e.clock-e.touched[l])
		if best == 0 || cost*bestWeight < bestCost*weight {
			best, bestCost, bestWeight = l, cost, weight
		}
	}
	return best
}

// neighbourhood returns the time to compute layer l again, with the evicted layers next to it.
func (e *evictor) neighbourhood(l int) float64 {
	cost := e.c.Layer(l).ForwardS
	for i := l - 1; !e.present[i]; i-- {
		cost += e.c.Layer(i).ForwardS
	}
	for i := l + 1; i < e.done && i <= e.reached && !e.present[i]; i++ {
		cost += e.c.Layer(i).ForwardS
	}
	return cost
}
