package interop

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

var (
	// ErrIllegal: a schedule breaks a rule or waits for ever, so that it is no plan; the message names the op.
	ErrIllegal = errors.New("illegal schedule")
	// ErrChain: a chain has too few layers for a schedule, or lacks a time that it needs.
	ErrChain = errors.New("the chain does not suit the schedule")
)

// UnitChain is a chain of one layer for each stage: F = I = W = 1 s, B = 2 s, no bytes.
func UnitChain(stages int) *chain.Chain {
	one := 1.0
	c := &chain.Chain{Name: "unit"}
	for s := range stages {
		c.Layers = append(c.Layers, chain.Layer{Name: fmt.Sprintf("stage %d", s), ForwardS: 1, BackwardS: 2, BackwardInputS: &one, BackwardWeightS: &one})
	}
	return c
}

// Placed is a schedule on a chain and a platform: rank r is device r.
type Placed struct {
	Schedule *Schedule
	Chain    *chain.Chain
	Platform *pipeline.Platform
	Stages   []pipeline.Stage
	Costs    *Costs
	split    []bool // stages with halves of backwards
}

// Place puts a schedule on a chain, which it divides into as many stages of consecutive layers as the schedule has. The
// longest forward and backward of a stage is as short as possible. The sizes and times of the chain are those of one
// microbatch. Without a platform the devices have no limit and communication takes no time. In a stage that runs backwards
// in halves a whole one takes the time of both, as pipeline plans count it. Errors: ErrChain, chain.ErrFormat,
// pipeline.ErrBranches, pipeline.ErrPlatform.
func (s *Schedule) Place(c *chain.Chain, p *pipeline.Platform) (*Placed, error) {
	if p == nil {
		p = pipeline.NewPlatform(len(s.Rows), pipeline.NoLimit, pipeline.Free())
	}
	if err := (pipeline.Request{Chain: c, Platform: p}).Validate(); err != nil {
		return nil, err
	}
	if c.Len() < s.Stages {
		return nil, fmt.Errorf("%w: it has %d layers with the loss, the schedule %d stages", ErrChain, c.Len(), s.Stages)
	}
	if p.Devices < len(s.Rows) {
		return nil, fmt.Errorf("%w: field \"devices\" is %d, the schedule has %d ranks", pipeline.ErrPlatform, p.Devices, len(s.Rows))
	}
	out := &Placed{Schedule: s, Chain: c, Platform: p, Stages: spread(pipeline.NewCosts(c), s.Stages), split: s.splits()}
	for i := range out.Stages {
		out.Stages[i].Devices = []int{max(s.Rank[i], 0)}
	}
	return out, out.cost()
}

// splits returns which stages have halves of backwards.
func (s *Schedule) splits() []bool {
	split := make([]bool, s.Stages)
	for _, row := range s.Rows {
		for _, op := range row {
			if op.Action == BackwardInput || op.Action == BackwardWeight {
				split[op.Stage] = true
			}
		}
	}
	return split
}

func (p *Placed) cost() error {
	k := pipeline.NewCosts(p.Chain)
	if lacking := k.CanSplit(); lacking != 0 && slices.Contains(p.split, true) {
		return fmt.Errorf("%w: layer %d (%s) lacks backward_input_s or backward_weight_s, and the schedule splits backwards",
			ErrChain, lacking, p.Chain.Layer(lacking).Name)
	}
	p.Costs = &Costs{}
	for s, st := range p.Stages {
		backward := k.Backward(st.First, st.Last)
		if p.split[s] {
			backward = k.BackwardInput(st.First, st.Last) + k.BackwardWeight(st.First, st.Last)
		}
		for a, seconds := range [...]float64{Forward: k.Forward(st.First, st.Last), Backward: backward,
			BackwardInput: k.BackwardInput(st.First, st.Last), BackwardWeight: k.BackwardWeight(st.First, st.Last)} {
			p.Costs.Compute[a] = append(p.Costs.Compute[a], seconds)
		}
		forward, back, err := p.boundary(s)
		if err != nil {
			return err
		}
		p.Costs.Forward, p.Costs.Backward = append(p.Costs.Forward, forward), append(p.Costs.Backward, back)
	}
	return nil
}

// boundary returns the times of the communications behind a stage.
func (p *Placed) boundary(s int) (forward, backward float64, err error) {
	if s+1 == len(p.Stages) {
		return 0, 0, nil
	}
	l, x, y := p.Stages[s].Last, p.Stages[s].Devices[0], p.Stages[s+1].Devices[0]
	forward, backward = p.Platform.Seconds(p.Chain.Activation(l), x, y), p.Platform.Seconds(p.Chain.Gradient(l), x, y)
	if math.IsInf(forward+backward, 0) {
		return 0, 0, fmt.Errorf("%w: stages %d and %d are on devices %d and %d, which no link joins", pipeline.ErrPlatform, s, s+1, x, y)
	}
	return forward, backward, nil
}

// spread cuts the chain into so many stages, the longest as short as possible; of equal cuts each stage takes the most layers.
// All stages have a layer, so that only n - stages of the n layers can move. Stage s begins with layer s+1+x and ends with
// layer s+1+y, 0 <= x <= y <= n - stages. Here x and y count the layers beyond one of the stages before s, and of those up to
// s.
func spread(k *pipeline.Costs, stages int) []pipeline.Stage {
	slack := k.Len() - stages
	best := slices.Repeat([]float64{math.Inf(1)}, slack+1) // best[x]: the longest of the stages from s on
	best[slack] = 0                                        // behind the last stage no layer is left
	cuts := make([][]int, stages)                          // y, by s and x
	for s := stages - 1; s >= 0; s-- {
		cuts[s] = make([]int, slack+1)
		for x := range best {
			least := math.Inf(1)
			for y := slack; y >= x; y-- {
				if longest := max(k.U(s+1+x, s+1+y), best[y]); longest < least {
					least, cuts[s][x] = longest, y
				}
			}
			best[x] = least // a larger x does not look here again
		}
	}
	out := make([]pipeline.Stage, stages)
	x := 0
	for s := range out {
		out[s] = pipeline.Stage{First: s + 1 + x, Last: s + 1 + cuts[s][x]}
		x = cuts[s][x]
	}
	return out
}

// Run runs the schedule with the costs of the chain.
func (p *Placed) Run() (*Run, error) { return p.Schedule.Run(p.Costs, p.Platform.Duplex) }

// Plan returns the run as a flush plan with a task for each op and each communication that takes time. A whole backward of a
// stage with halves is a B and a W right behind it. Errors: ErrIllegal.
func (p *Placed) Plan(r *Run) (*pipeline.Plan, error) {
	if v := p.Schedule.Violations(); len(v) > 0 {
		return nil, fmt.Errorf("%w: %v", ErrIllegal, v[0])
	}
	if r.Deadlock() {
		return nil, fmt.Errorf("%w: %v", ErrIllegal, r.Stuck[0])
	}
	out := &pipeline.Plan{Chain: p.Chain.Name, Strategy: p.Schedule.Name, Platform: p.Platform, Stages: p.Stages,
		Versions: pipeline.Flush, Microbatches: p.Schedule.Microbatches}
	out.Predicted.Makespan = r.Makespan
	for rank, row := range p.Schedule.Rows {
		for i, op := range row {
			out.Tasks = append(out.Tasks, p.tasks(op, rank, r.Start[rank][i])...)
		}
	}
	for _, t := range r.Transfers {
		kind, stage := pipeline.CF, t.Op.Stage
		if t.Op.Action == SendBackward {
			kind, stage = pipeline.CB, stage-1
		}
		out.Tasks = append(out.Tasks, pipeline.Task{Kind: kind, Stage: stage, Device: pipeline.NoDevice, Start: t.Start, Shift: t.Op.Microbatch})
	}
	return out, nil
}

// tasks returns the tasks of a plan that an op becomes: none for sends and receives, which take no time at the device.
func (p *Placed) tasks(op Op, rank int, start float64) []pipeline.Task {
	task := func(kind pipeline.Kind, start float64) pipeline.Task {
		return pipeline.Task{Kind: kind, Stage: op.Stage, Device: rank, Start: start, Shift: op.Microbatch}
	}
	switch op.Action {
	case Forward:
		return []pipeline.Task{task(pipeline.F, start)}
	case Backward:
		if p.split[op.Stage] {
			return []pipeline.Task{task(pipeline.B, start), task(pipeline.W, start+p.Costs.Compute[BackwardInput][op.Stage])}
		}
		return []pipeline.Task{task(pipeline.B, start)}
	case BackwardInput:
		return []pipeline.Task{task(pipeline.B, start)}
	case BackwardWeight:
		return []pipeline.Task{task(pipeline.W, start)}
	}
	return nil
}
