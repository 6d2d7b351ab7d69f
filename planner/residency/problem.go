package residency

import (
	"context"
	"math"
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/schedule"
)

// Request asks for a cyclic plan.
type Request struct {
	Chain        *chain.Chain
	Link         cycle.Link
	Limits       cycle.Limits
	Microbatches int    // of a step; 0: one
	Strategy     string // one of Strategies; "": auto
	// Evaluations bounds the sequences that auto times in one round; 0: as many as fit the length of the chain, in rounds.
	Evaluations int
}

// Auto is the strategy that searches.
const Auto = "auto"

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
}

func newProblem(ctx context.Context, r Request) (*problem, error) {
	sim, err := cycle.NewSimulator(r.Chain, r.Link)
	if err != nil {
		return nil, err
	}
	p := &problem{ctx: ctx, request: r, c: r.Chain, n: r.Chain.Len(), microbatches: max(r.Microbatches, 1), link: r.Link,
		limits: r.Limits, sim: sim, strategy: r.Strategy}
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
		forward, backward                float64
		update, host, norm               float64
		output, weights, gradient, state int64
		users                            int
	}
	number := map[costs]int{}
	for _, o := range p.owners {
		l := p.c.Layer(o)
		k := costs{l.ForwardS, l.BackwardS, l.Update.DeviceS, p.hostSeconds(o), l.Update.NormS,
			l.OutputBytes, l.WeightBytes, l.WeightGradient(), l.Update.StateBytes, len(p.users[o])}
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

func isCompute(k schedule.Kind) bool {
	return k < schedule.Backward || k == schedule.Backward || k == schedule.Update
}
