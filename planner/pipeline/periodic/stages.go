package periodic

import (
	"fmt"
	"math"

	"plimsoll/internal/units"
	"plimsoll/planner/pipeline"
)

// problem is a request that has been looked at.
type problem struct {
	pipeline.Request
	strategy string
	costs    *pipeline.Costs
	stages   []pipeline.Stage
	ops      []*pipeline.StageCost // of stages with ops; nil for the others
	need     *Footprint
	messages bool // between replicas
}

func newProblem(strategy string, r pipeline.Request) (*problem, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	p := &problem{Request: r, strategy: strategy, costs: pipeline.NewCosts(r.Chain), stages: r.Stages}
	if len(p.stages) == 0 {
		p.stages = equalLoads(p.costs, r.Platform.Devices)
	}
	if err := p.cover(); err != nil {
		return nil, err
	}
	if err := p.joined(); err != nil {
		return nil, err
	}
	if err := p.measure(); err != nil {
		return nil, err
	}
	p.messages = p.addsUp()
	var err error
	p.need, err = NewFootprint(p.costs, r, len(p.stages))
	return p, err
}

// cover checks that the stages are the layers 1..n in order, on devices of the platform.
func (p *problem) cover() error {
	next := 1
	for s, st := range p.stages {
		if st.First != next || st.Last < st.First {
			return fmt.Errorf("%w: stage %d holds layers %d to %d, it must begin with layer %d", ErrStages, s, st.First, st.Last, next)
		}
		next = st.Last + 1
		seen := map[int]bool{}
		for _, d := range st.Devices {
			if d < 0 || d >= p.Platform.Devices || seen[d] {
				return fmt.Errorf("%w: stage %d names device %d, twice or beyond the %d of the platform", ErrStages, s, d, p.Platform.Devices)
			}
			seen[d] = true
		}
		if len(seen) == 0 {
			return fmt.Errorf("%w: stage %d has no device", ErrStages, s)
		}
	}
	if next != p.Chain.Len()+1 {
		return fmt.Errorf("%w: the stages end with layer %d, the chain has %d", ErrStages, next-1, p.Chain.Len())
	}
	return nil
}

// joined refuses a platform on which a minibatch passes between two devices without a link. Replicas take turns: those
// at x and y of two neighbouring stages meet when x and y differ by a multiple of the common divisor of their numbers.
func (p *problem) joined() error {
	for s := range len(p.stages) - 1 {
		from, to := p.stages[s].Devices, p.stages[s+1].Devices
		common := len(from) / (LCM(len(from), len(to)) / len(to))
		for i, x := range from {
			for j := i % common; j < len(to); j += common {
				if y := to[j]; x != y && p.Platform.Beta(x, y) == 0 {
					return fmt.Errorf("%w: stages %d and %d are on devices %d and %d, which no link joins: give a bandwidth above 0 for \"%d-%d\", or stages on other devices",
						pipeline.ErrPlatform, s, s+1, x, y, min(x, y), max(x, y))
				}
			}
		}
	}
	return nil
}

// measure finds what stages with ops cost.
func (p *problem) measure() (err error) {
	p.ops = make([]*pipeline.StageCost, len(p.stages))
	for s, st := range p.stages {
		if len(st.Ops) == 0 {
			continue
		}
		if p.ops[s], err = pipeline.MeasureStage(p.Chain, st, st.Ops); err != nil {
			return fmt.Errorf("%w: stage %d: %w", ErrStages, s, err)
		}
		if p.ops[s].Moves() > 0 {
			return fmt.Errorf("%w: stage %d offloads; %s schedules stages that recompute, at most", ErrStages, s, p.strategy)
		}
	}
	return nil
}

// plain checks that no stage has ops of its own.
func (p *problem) plain() error {
	for s, cost := range p.ops {
		if cost != nil {
			return fmt.Errorf("%w: stage %d has ops of its own; %s schedules stages without, 1f1b and 1f1b* those with", ErrStages, s, p.strategy)
		}
	}
	return nil
}

// seconds returns the times of the forward and the backward of a stage.
func (p *problem) seconds(stage int) (forward, backward float64) {
	if cost := p.ops[stage]; cost != nil {
		return cost.Forward, cost.Backward
	}
	st := p.stages[stage]
	return p.costs.Forward(st.First, st.Last), p.costs.Backward(st.First, st.Last)
}

// contiguous checks that no device has two stages.
func (p *problem) contiguous() error {
	at := map[int]int{}
	for s, st := range p.stages {
		for _, d := range st.Devices {
			if other, ok := at[d]; ok {
				return fmt.Errorf("%w: device %d has stages %d and %d, %s takes one stage a device; list takes several", ErrStages, d, other, s, p.strategy)
			}
			at[d] = s
		}
	}
	return nil
}

// single checks that no stage has replicas.
func (p *problem) single() error {
	for s, st := range p.stages {
		if len(st.Devices) > 1 {
			return fmt.Errorf("%w: stage %d has %d replicas, %s takes stages without; 1f1b and 1f1b* take them", ErrStages, s, len(st.Devices), p.strategy)
		}
	}
	return nil
}

// memory returns the least memory of the devices of a stage.
func (p *problem) memory(stage int) int64 {
	least := int64(pipeline.NoLimit)
	for _, d := range p.stages[stage].Devices {
		least = min(least, p.Platform.Memory[d])
	}
	return least
}

// bytes returns the bytes of a stage that has its devices alone, with g live minibatches.
func (p *problem) bytes(stage, g int) int64 {
	st, sums := p.stages[stage], int64(0)
	if p.messages && len(st.Devices) > 1 {
		sums = p.need.Sums(st.First, st.Last)
	}
	if cost := p.ops[stage]; cost != nil {
		return sums + p.need.Static(stage, st.First, st.Last, g) + cost.Bytes(g)
	}
	return sums + p.need.Bytes(stage, st.First, st.Last, g)
}

// addsUp reports whether messages add up the gradients of replicas (pipeline.Synchronize): links join all that follow each other, and some
// take time.
func (p *problem) addsUp() (takesTime bool) {
	for _, st := range p.stages {
		for i := 1; i < len(st.Devices) && p.costs.Summed(st.First, st.Last) > 0; i++ {
			beta := p.Platform.Beta(st.Devices[i-1], st.Devices[i])
			if beta == 0 {
				return false
			}
			takesTime = takesTime || !math.IsInf(beta, 1)
		}
	}
	return takesTime
}

// fits reports whether all stages fit with these numbers of live minibatches.
func (p *problem) fits(live []int) bool {
	for s, g := range live {
		if p.bytes(s, g) > p.memory(s) {
			return false
		}
	}
	return true
}

// infeasible returns the error for a memory that is too small even for these numbers of live minibatches, the fewest of
// the strategy. Argument best is a plan that has them.
func (p *problem) infeasible(live []int, best *pipeline.Plan) error {
	e := &pipeline.InfeasibleError{Strategy: p.strategy, Best: best}
	for s, g := range live {
		need := p.bytes(s, g)
		if need > p.memory(s) && e.Reason == "" {
			e.Reason = fmt.Sprintf("stage %d (layers %d to %d) needs %s with %d live minibatches, its device has %s",
				s, p.stages[s].First, p.stages[s].Last, units.Precise(need), g, units.Precise(p.memory(s)))
		}
		e.Smallest = max(e.Smallest, need)
	}
	return e
}

// equalLoads returns at most so many stages, one a device, whose largest load is as small as it can be.
func equalLoads(k *pipeline.Costs, devices int) []pipeline.Stage {
	n := k.Len()
	parts := min(n, devices)
	load, cut := make([][]float64, parts+1), make([][]int, parts+1)
	for p := range load {
		load[p], cut[p] = make([]float64, n+1), make([]int, n+1)
	}
	for j := 1; j <= n; j++ {
		load[0][j] = math.Inf(1)
		for p := 1; p <= parts; p++ {
			load[p][j] = math.Inf(1)
			for i := j; i >= 1; i-- {
				if x := max(load[p-1][i-1], k.U(i, j)); x < load[p][j] {
					load[p][j], cut[p][j] = x, i
				}
			}
		}
	}
	best := 1
	for p := range parts {
		if load[p+1][n] < load[best][n] {
			best = p + 1
		}
	}
	stages := make([]pipeline.Stage, best)
	for p, j := best, n; p >= 1; p-- {
		i := cut[p][j]
		stages[p-1] = pipeline.Stage{First: i, Last: j, Devices: []int{p - 1}}
		j = i - 1
	}
	return stages
}
