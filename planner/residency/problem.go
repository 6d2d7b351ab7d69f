package residency

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/schedule"
)

// problem is a request with what the search knows about it.
type problem struct {
	ctx          context.Context
	request      Request
	c            *chain.Chain
	n            int
	microbatches int
	link         cycle.Link
	limits       cycle.Limits
	sim          *cycle.Simulator
	owners       []int   // layers with weights of their own, rising
	users        [][]int // by owner: the layers that read its weights, its own first
	classes      [][]int // owners of equal costs, rising
	strategy     string

	best      *candidate
	evaluated int
	budget    int
	elite     []*candidate // the best plans so far, the best first
	orders    []*order
	random    *rand.Rand
	least     shortage
}

// candidate is a plan that fits.
type candidate struct {
	seq    cycle.Sequence
	excess int64 // bytes of the device over the limit: then there is no sequence
	host   int64 // bytes of the host over the limit
	period float64
	copies float64 // seconds of copies and host updates of a step
	peak   int64   // in order
	clock  []float64
	choice *choice // that made the sequence; nil: it was changed since
	from   string
}

// shortage is the least memory of the plans that did not fit.
type shortage struct {
	bytes, host int64 // 0: none
	op          cycle.Op
}

func newProblem(ctx context.Context, r Request) (*problem, error) {
	sim, err := cycle.NewSimulator(r.Chain, r.Link)
	if err != nil {
		return nil, err
	}
	p := &problem{ctx: ctx, request: r, c: r.Chain, n: r.Chain.Len(), microbatches: max(r.Microbatches, 1), link: r.Link, limits: r.Limits, sim: sim,
		strategy: r.Strategy}
	if p.strategy == "" {
		p.strategy = Auto
	}
	p.users = make([][]int, p.n+1)
	for l := 1; l <= p.n; l++ {
		o := p.c.Owner(l)
		if o == l {
			p.owners = append(p.owners, l)
		}
		if o > 0 {
			p.users[o] = append(p.users[o], l)
		}
	}
	p.limits.Steps = searchSteps
	p.classify()
	return p, nil
}

// searchSteps is the number of steps after which the search gives up a plan whose state has not repeated.
const searchSteps = 60

// classify puts layers of equal costs together.
func (p *problem) classify() {
	type costs struct {
		forward, backward, update, host  float64
		output, weights, gradient, state int64
		users                            int
	}
	number := map[costs]int{}
	for _, o := range p.owners {
		l := p.c.Layer(o)
		k := costs{l.ForwardS, l.BackwardS, l.Update.DeviceS, p.hostSeconds(o), l.OutputBytes, l.WeightBytes, l.WeightGradient(), l.Update.StateBytes, len(p.users[o])}
		i, known := number[k]
		if !known {
			i = len(p.classes)
			number[k], p.classes = i, append(p.classes, nil)
		}
		p.classes[i] = append(p.classes[i], o)
	}
}

// hostSeconds returns the time of an update on the host; +Inf: the host cannot.
func (p *problem) hostSeconds(o int) float64 {
	if s := p.c.Layer(o).Update.HostS; s != nil {
		return *s
	}
	return math.Inf(1)
}

// frozen reports whether a layer has no update.
func (p *problem) frozen(o int) bool { return p.c.Layer(o).WeightGradient() == 0 }

// movable reports whether the host can update a layer: there is a time for it and a link for the gradient.
func (p *problem) movable(o int) bool {
	return !p.frozen(o) && p.c.Layer(o).Update.HostS != nil && p.link.ToDevice > 0 && p.link.ToHost > 0
}

// up and down return the seconds of a copy.
func (p *problem) up(bytes int64) float64   { return float64(bytes) / p.link.ToDevice }
func (p *problem) down(bytes int64) float64 { return float64(bytes) / p.link.ToHost }

// microbatch returns the number that ops of a microbatch carry.
func (p *problem) microbatch(m int) int {
	if p.microbatches == 1 {
		return 0
	}
	return m
}

// over reports whether the search must end.
func (p *problem) over() bool { return p.evaluated >= p.budget || p.ctx.Err() != nil }

// time judges and times a sequence, and keeps it when it is the best so far. nil: it does not fit, or is none.
func (p *problem) time(seq cycle.Sequence, from string) *candidate {
	p.evaluated++
	if p.best != nil && p.busiest(seq) > slack*p.best.period {
		return nil
	}
	r, err := p.sim.Run(seq, p.limits)
	if err != nil {
		return p.refused(err, from)
	}
	if r.InOrderPeak > p.limits.Memory {
		return nil
	}
	x := &candidate{seq: seq, period: r.Period, peak: r.InOrderPeak, from: from}
	for _, s := range [...]cycle.Stream{cycle.ToDevice, cycle.ToHost, cycle.Host} {
		x.copies += r.Busy[s]
	}
	x.clock = observe(r, seq)
	if x.better(p.best) {
		p.best = x
	}
	return x
}

// slack is by how much a plan may be slower than the best and still be worth a change.
const slack = 1.1

// busiest returns the seconds of a step in which the busiest stream works.
func (p *problem) busiest(seq cycle.Sequence) float64 {
	var busy [4]float64
	for _, op := range seq {
		layer := p.c.Layer(op.Layer)
		switch op.Kind {
		case schedule.Backward:
			busy[cycle.Compute] += layer.BackwardS
		case schedule.ForwardAll:
			busy[cycle.Compute] += layer.ForwardS
		case schedule.ForwardCheckpoint, schedule.ForwardDiscard:
			busy[cycle.Compute] += layer.DiscardSeconds()
		case schedule.Update:
			busy[cycle.Compute] += layer.Update.DeviceS
		case schedule.HostUpdate:
			busy[cycle.Host] += p.hostSeconds(op.Layer)
		case schedule.FetchWeights:
			busy[cycle.ToDevice] += p.up(layer.WeightBytes)
		case schedule.FetchState:
			busy[cycle.ToDevice] += p.up(layer.Update.StateBytes)
		case schedule.FetchGradient:
			busy[cycle.ToDevice] += p.up(layer.WeightGradient())
		case schedule.WriteWeights:
			busy[cycle.ToHost] += p.down(layer.WeightBytes)
		case schedule.WriteState:
			busy[cycle.ToHost] += p.down(layer.Update.StateBytes)
		case schedule.OffloadGradient:
			busy[cycle.ToHost] += p.down(layer.WeightGradient())
		}
	}
	if !p.link.Duplex {
		busy[cycle.ToDevice] += busy[cycle.ToHost]
	}
	return slices.Max(busy[:])
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

// refused returns what is known of a plan that does not fit in host memory: how much it lacks. nil: it is refused for another reason.
func (p *problem) refused(err error, from string) *candidate {
	e, is := errors.AsType[*cycle.HostMemoryError](err)
	if !is {
		return nil
	}
	if p.least.host == 0 || e.Needed < p.least.host {
		p.least.host = e.Needed
	}
	return &candidate{host: e.Needed - e.Limit, period: math.Inf(1), from: from}
}

// noteShortage keeps the least limit at which a layout would fit.
func (p *problem) noteShortage(bytes int64, op cycle.Op) {
	if p.least.bytes == 0 || bytes < p.least.bytes {
		p.least.bytes, p.least.op = bytes, op
	}
}

// refusal says why there is no plan.
func (p *problem) refusal() error {
	if err := p.ctx.Err(); err != nil {
		return err
	}
	if p.least.host > 0 {
		return &HostError{p.strategy, p.limits.Host, p.least.host}
	}
	e := &InfeasibleError{Strategy: p.strategy, Limit: p.limits.Memory, Smallest: p.least.bytes, Op: p.least.op}
	if l := p.least.op.Layer; l > 0 {
		e.Layer = p.c.Layer(l).Name
	}
	return e
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
