package flush

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/recompute"
	"plimsoll/planner/schedule"
)

// fitting lets the stages of a schedule recompute just as much as the memory of their devices asks. Stages and orders stay.
//
// A stage has the ways of recompute.Sequences for as many microbatches as are in flight there. Each takes the way with the least sum of its time
// and, at a price, of the bytes that all its microbatches hold. The smallest price at which the stages of a device fit into it is found by
// bisection. The rest of the memory then goes to stages that become faster by it, in turn.
//
// On a device where one stage recomputes, all have ops, also those that keep everything. So what they work in is counted as well. Where the
// plan counts inputs alone (pipeline.Inputs), stages without ops stay so.
type fitting struct {
	*recipe
	*placement
	pipeline.Request
	orders order
	live   []int       // by stage: microbatches in flight, on the rank that has most
	ways   [][]keeping // by stage; the first one is without ops
	beside []int64     // by rank: bytes beside what microbatches hold
}

// keeping says how many bytes a microbatch of a stage holds, with its input, when it runs in a way.
type keeping struct {
	ops               schedule.Sequence // nil: everything is kept
	forward, backward int64             // at most while its forward or its backward runs
	held              int64             // between these
	again             float64           // seconds of recomputation
}

// fitted returns the plan of a schedule that does not fit when all stages keep everything.
func (r *recipe) fitted(ctx context.Context, q pipeline.Request, p *placement, whole *pipeline.Plan) (*pipeline.Plan, error) {
	x := newFitting(ctx, r, q, p, whole)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	number := make([]int, len(p.stages))
	for range tries {
		if !x.choose(number) {
			break
		}
		plan, err := x.plan(number)
		var small *pipeline.InfeasibleError
		if !errors.As(err, &small) {
			return plan, err
		}
		for d, device := range p.ranks { // blocks and waiting tensors may be more than before
			x.beside[d] += max(0, small.Best.PerDevicePeak[device]-q.Platform.Memory[device])
		}
	}
	return x.least(ctx)
}

// newFitting returns the fitting of a schedule, of which whole is the plan whose stages keep everything.
func newFitting(ctx context.Context, r *recipe, q pipeline.Request, p *placement, whole *pipeline.Plan) *fitting {
	x := &fitting{recipe: r, placement: p, Request: q, orders: r.order(p.counts)}
	x.live = x.orders.inFlight(len(p.stages))
	x.findWays(recompute.For(ctx, p.sums, slices.Max(q.Platform.Memory)))
	number := make([]int, len(p.stages))
	for d := range x.orders {
		x.beside = append(x.beside, whole.PerDevicePeak[p.ranks[d]]-x.most(d, number))
	}
	return x
}

// tries bounds how often stages are chosen for less memory.
const tries = 3

// findWays finds the ways of all stages.
func (x *fitting) findWays(seqs *recompute.Sequences) {
	x.ways = nil
	for s := range x.stages {
		x.ways = append(x.ways, x.waysOf(s, seqs))
	}
}

// waysOf returns the ways of a stage: without ops, and with ops the fastest first.
func (x *fitting) waysOf(s int, seqs *recompute.Sequences) []keeping {
	st := x.stages[s]
	held := x.sums.Held(st.First, st.Last, x.Accounting)
	all := []keeping{{nil, held, held, held, 0}}
	ways := seqs.Ways(st.First, st.Last, x.live[s])
	for i := range slices.Backward(ways) {
		ops := seqs.Ops(st.First, st.Last, x.live[s], i)
		cost, err := pipeline.MeasureStage(x.sums.Chain, st, ops)
		if err != nil {
			panic("BUG: a stage cannot run in one of its ways: " + err.Error())
		}
		all = append(all, keeping{ops, cost.ForwardPeak, cost.BackwardPeak, cost.Kept, ways[i].Again})
	}
	return all
}

// inFlight returns how many microbatches are in flight in each stage, on the rank that has most.
func (o order) inFlight(stages int) []int {
	most := make([]int, stages)
	for _, ops := range o {
		live := make([]int, stages)
		for _, x := range ops {
			if x.kind != pipeline.F {
				live[x.stage]--
				continue
			}
			live[x.stage]++
			most[x.stage] = max(most[x.stage], live[x.stage])
		}
	}
	return most
}

// most returns the most bytes that microbatches hold on a rank, whose stages run in some ways.
func (x *fitting) most(rank int, number []int) (most int64) {
	held := int64(0)
	for _, o := range x.orders[rank] {
		w := &x.ways[o.stage][number[o.stage]]
		if o.kind == pipeline.F {
			most, held = max(most, held+w.forward), held+w.held
		} else {
			held -= w.held
			most = max(most, held+w.backward)
		}
	}
	return most
}

// over returns by how many bytes stages that run in some ways need more than there is on one of some ranks; 0 or less: they fit.
func (x *fitting) over(ranks, number []int) (most int64) {
	most = math.MinInt64
	for _, d := range ranks {
		most = max(most, x.beside[d]+x.most(d, number)-x.Platform.Memory[x.ranks[d]])
	}
	return most
}

func (x *fitting) fits(ranks, number []int) bool { return x.over(ranks, number) <= 0 }

// choose sets the ways in which stages run; false: they do not fit in any.
func (x *fitting) choose(number []int) bool {
	for _, ranks := range x.together() {
		stages := x.on(ranks)
		for _, s := range stages {
			number[s] = 0
		}
		if x.fits(ranks, number) {
			continue
		}
		low, high := 0.0, math.Inf(1)
		for price := firstPrice; price < lastPrice && math.IsInf(high, 1); price *= 16 {
			if x.buy(stages, number, price); x.fits(ranks, number) {
				high = price
			} else {
				low = price
			}
		}
		for high > low*(1+1e-3) && low > 0 && high <= lastPrice {
			middle := math.Sqrt(low * high)
			if x.buy(stages, number, middle); x.fits(ranks, number) {
				high = middle
			} else {
				low = middle
			}
		}
		if x.buy(stages, number, high); math.IsInf(high, 1) {
			x.lessen(ranks, stages, number)
		}
		if !x.fits(ranks, number) {
			return false
		}
		x.spend(ranks, stages, number)
	}
	return true
}

// Prices of a byte, in seconds, that are tried. At the first a GiB is worth a nanosecond.
const firstPrice, lastPrice = 1e-18, 1e6

// buy lets stages run in the ways that cost least at a price of a byte; +Inf: of which microbatches hold least.
func (x *fitting) buy(stages, number []int, price float64) {
	for _, s := range stages {
		live, cheapest := float64(x.live[s]), math.Inf(1)
		for i := x.first(s); i < len(x.ways[s]); i++ {
			w := &x.ways[s][i]
			cost := (live-1)*float64(w.held) + float64(max(w.forward, w.backward))
			if !math.IsInf(price, 1) {
				cost = float64(x.micros)*w.again + price*cost
			}
			if cost < cheapest {
				number[s], cheapest = i, cost
			}
		}
	}
}

// lessen changes ways, one at a time, as long as ranks then need less.
func (x *fitting) lessen(ranks, stages, number []int) {
	for over, before := x.over(ranks, number), int64(math.MaxInt64); over < before; {
		before = over
		for _, s := range stages {
			had := number[s]
			for i := x.first(s); i < len(x.ways[s]); i++ {
				number[s] = i
				if now := x.over(ranks, number); now < over {
					had, over = i, now
				}
			}
			number[s] = had
		}
	}
}

// spend lets stages in turn run in the fastest way for which there is room.
func (x *fitting) spend(ranks, stages, number []int) {
	for _, s := range stages {
		had := number[s]
		for i := x.first(s); i < len(x.ways[s]); i++ {
			if number[s] = i; x.ways[s][i].again < x.ways[s][had].again && x.fits(ranks, number) {
				had = i
			}
		}
		number[s] = had
	}
}

// together returns the ranks in groups that have stages together.
func (x *fitting) together() (all [][]int) {
	seen := map[int]bool{}
	for d := range x.orders {
		var group []int
		for _, s := range x.on([]int{d}) {
			for _, e := range x.placement.shape(s, x.devices) {
				if !seen[e] {
					group, seen[e] = append(group, e), true
				}
			}
		}
		if len(group) > 0 {
			all = append(all, group)
		}
	}
	return all
}

// on returns the stages of some ranks.
func (x *fitting) on(ranks []int) (all []int) {
	for s := range x.stages {
		if slices.ContainsFunc(x.placement.shape(s, x.devices), func(d int) bool { return slices.Contains(ranks, d) }) {
			all = append(all, s)
		}
	}
	return all
}

// plan returns the plan of stages that run in some ways, judged.
func (x *fitting) plan(number []int) (*pipeline.Plan, error) {
	ops := make([]schedule.Sequence, len(number))
	for s, i := range number {
		ops[s] = x.ways[s][i].ops
	}
	c, t, err := x.recomputing(x.placement, x.orders, ops)
	if err != nil {
		return nil, err
	}
	plan := x.placement.plan(x.Request, x.withRecomputation(c, t))
	plan.Stages = slices.Clone(plan.Stages)
	for s := range plan.Stages {
		plan.Stages[s].Ops = ops[s]
	}
	return finish(x.name, x.Request, plan)
}

// first returns the first way of a stage of a device that recomputes: that without ops where it has no others, or the plan counts inputs alone.
func (x *fitting) first(s int) int {
	if x.Accounting == pipeline.Saved && len(x.ways[s]) > 1 {
		return 1
	}
	return 0
}

// least returns the plan of stages that hold least. If it does not fit, its memory is the smallest that was found.
func (x *fitting) least(ctx context.Context) (*pipeline.Plan, error) {
	x.findWays(recompute.New(x.sums, math.MaxInt64).Until(ctx))
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	number := make([]int, len(x.stages))
	for _, ranks := range x.together() {
		x.buy(x.on(ranks), number, math.Inf(1))
		x.lessen(ranks, x.on(ranks), number)
	}
	plan, err := x.plan(number)
	if small, ok := err.(*pipeline.InfeasibleError); ok {
		small.Found, small.Reason = true, "not even with stages that hold least and recompute the rest: "+small.Reason
	}
	return plan, err
}

// recomputing returns the costs and the timetable of orders in which stages run by ops; nil: they keep everything.
func (r *recipe) recomputing(p *placement, orders order, ops []schedule.Sequence) (costs, timetable, error) {
	c := p.costs(false)
	c.compute[again] = make([]float64, len(p.stages))
	for s, st := range p.stages {
		if st.Ops = ops[s]; len(st.Ops) > 0 {
			c.compute[pipeline.F][s], c.compute[again][s], c.compute[pipeline.B][s] = parts(p.sums.Chain, st)
		}
	}
	all := slices.Clone(orders)
	for d := range all {
		all[d] = withAgain(all[d], c)
	}
	t := must(r.name, c, all, 0)
	if math.IsInf(t.makespan, 0) {
		return c, t, fmt.Errorf("%s: %w: its schedule takes longer than a number can say", r.name, ErrOptions)
	}
	return c, t, nil
}

// withAgain puts what a backward recomputes before it needs its gradient in front of it.
func withAgain(ops []op, c costs) (out []op) {
	for _, o := range ops {
		if o.kind == pipeline.B && c.compute[again][o.stage] > 0 {
			out = append(out, op{again, o.stage, o.micro})
		}
		out = append(out, o)
	}
	return out
}

// parts returns the seconds of the forward of a stage with ops, of what its backward computes before it needs its gradient, and of the
// rest of that.
func parts(c *chain.Chain, st pipeline.Stage) (forward, before, backward float64) {
	turn := 1 + slices.IndexFunc(st.Ops, func(o schedule.Op) bool { return o.Layer == st.Last })
	needed := turn + slices.IndexFunc(st.Ops[turn:], func(o schedule.Op) bool { return o.Kind == schedule.Backward })
	for i, o := range st.Ops {
		switch seconds := o.Seconds(c); {
		case i < turn:
			forward += seconds
		case i < needed:
			before += seconds
		default:
			backward += seconds
		}
	}
	return forward, before, backward
}
