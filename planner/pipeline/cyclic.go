package pipeline

import (
	"fmt"
	"math"

	"plimsoll/internal/units"
	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/schedule"
)

// NewCycle returns a plan for one device that says where weights, gradients and optimizer state are: a cyclic plan (package cycle). Its
// costs are not known: PlanCycle simulates them.
func NewCycle(chain, strategy string, seq cycle.Sequence, p *Platform) *Plan {
	out := &Plan{
		Chain: chain, Strategy: strategy, Platform: p, CyclicOps: CyclicOps{Cycle: append(cycle.Sequence{}, seq...)}, // never nil
		Stages:   []Stage{{First: 1, Devices: []int{0}}},
		Versions: Flush, Copies: Copies{WeightCopies: []float64{0}}, Microbatches: 1,
	}
	for _, op := range seq {
		out.Stages[0].Last = max(out.Stages[0].Last, op.Layer) // the backward of every layer is in the sequence
		out.Microbatches = max(out.Microbatches, op.Microbatch)
	}
	for m := range out.Microbatches {
		out.Tasks = append(out.Tasks, Task{Kind: F, Shift: m}, Task{Kind: B, Shift: m})
	}
	return out
}

// PlanCycle simulates a cyclic sequence on the first device of a platform and makes it a plan. Errors: those of cycle.Simulate.
func PlanCycle(c *chain.Chain, strategy string, seq cycle.Sequence, p *Platform) (*Plan, error) {
	out := NewCycle(c.Name, strategy, seq, p)
	if err := out.PredictCycle(c); err != nil {
		return nil, err
	}
	return out, nil
}

// PredictCycle simulates a cyclic plan on its platform and writes into it what it costs. Errors: those of cycle.Simulate.
func (p *Plan) PredictCycle(c *chain.Chain) error {
	_, r, err := p.PlayCycle(c, p.Platform)
	if err != nil {
		return err
	}
	p.Predicted.Makespan, p.PerDevicePeak = r.Period, []int64{max(r.Peak, r.InOrderPeak)}
	return nil
}

// CycleLimits returns the link and the limits of a cyclic plan on the first device of a platform.
func (p *Platform) CycleLimits() (cycle.Link, cycle.Limits) {
	limits := cycle.Limits{Memory: p.Memory[0], Host: p.HostMemory}
	if limits.Host == 0 {
		limits.Host = cycle.NoLimit
	}
	return cycle.Link{ToDevice: p.Host, ToHost: p.Host, Duplex: p.Duplex}, limits
}

// PlayCycle judges and plays a cyclic plan. The simulator says what the device held meanwhile. Errors: those of cycle.Simulate, ErrPlan.
func (p *Plan) PlayCycle(c *chain.Chain, on *Platform) (*cycle.Simulator, *cycle.Result, error) {
	link, limits := on.CycleLimits()
	limits.UpdatesLast, limits.Waits = p.UpdatesLast, p.Waits
	s, err := cycle.NewSimulator(c, link)
	if err != nil {
		return nil, nil, err
	}
	r, err := s.Run(p.Cycle, limits)
	if err != nil {
		return nil, nil, err
	}
	if r.InOrderPeak > limits.Memory {
		return nil, nil, fmt.Errorf("%w: in the order of its ops it needs %s of memory, the limit is %s", ErrPlan, units.Precise(r.InOrderPeak), units.Precise(limits.Memory))
	}
	return s, r, nil
}

// RunCycle judges a cyclic plan and plays the ends of runs of it. Errors: those of cycle.NewRun.
func (p *Plan) RunCycle(c *chain.Chain, on *Platform) (*cycle.Run, error) {
	link, limits := on.CycleLimits()
	limits.UpdatesLast, limits.Waits = p.UpdatesLast, p.Waits
	return cycle.NewRun(c, p.Cycle, link, limits)
}

// checkCycle judges a cyclic plan.
func checkCycle(c *chain.Chain, p *Platform, plan *Plan) (*Report, error) {
	sim, run, err := plan.PlayCycle(c, p)
	if err != nil {
		return nil, err
	}
	busy, peak := run.Busy[cycle.Compute], max(run.Peak, run.InOrderPeak)
	bubble := 0.0
	if run.Period > 0 {
		bubble = 1 - busy/run.Period
	}
	r := &Report{
		CyclePeak: &CyclePeak{},
		Makespan:  run.Period, PerMinibatch: run.Period / float64(plan.Microbatches), NCA: []int{1}, Bubble: bubble,
		PerDevicePeak: only(p, peak), PerDeviceWeights: only(p, int64(0)), PerDeviceBuffers: only(p, int64(0)),
		PerDeviceBusy: only(p, busy), PerDeviceBubble: only(p, bubble),
	}
	r.CyclePeak.Op, r.CyclePeak.Parts = sim.AtPeak()
	if said := plan.Peak(); said != 0 && said != peak {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the plan predicts a peak of %s, its simulation gives %s", units.Precise(said), units.Precise(peak)))
	}
	if said := plan.Predicted.Makespan; said != 0 && math.Abs(said-run.Period) > 1e-9*run.Period {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the plan predicts a step of %v s, its simulation gives %v s", said, run.Period))
	}
	if least := plan.Predicted.LowerBound; least <= r.PerMinibatch*(1+1e-9) {
		r.LowerBound = least
	}
	return r, nil
}

// simulateCycle plays a cyclic plan. It has no noise yet: durations are those of the chain.
func simulateCycle(c *chain.Chain, p *Platform, plan *Plan, n Noise) (*Outcome, error) {
	if n.Fraction > 0 {
		return nil, fmt.Errorf("%w: noise is for plans without ops of weights and state", ErrPlan)
	}
	r, err := checkCycle(c, p, plan)
	if err != nil {
		return nil, err
	}
	return &Outcome{Makespan: r.Makespan, PerMinibatch: r.PerMinibatch, PerDevicePeak: r.PerDevicePeak, Bubble: r.Bubble}, nil
}

// orderCycle returns the work of a cyclic plan: its ops in their order, whose moments are their positions. An op with a prime is for the last microbatch of the step before.
// Errors: *cycle.RuleError.
func orderCycle(c *chain.Chain, plan *Plan) (*WorkOrder, error) {
	s, err := cycle.NewSimulator(c, cycle.Link{ToDevice: 1, ToHost: 1, Duplex: true})
	if err != nil {
		return nil, err
	}
	if err := s.Verify(plan.Cycle, cycle.Limits{UpdatesLast: plan.UpdatesLast}); err != nil {
		return nil, err
	}
	out := &WorkOrder{Moments: len(plan.Cycle), Ops: make([]*OpMoments, 1), Devices: [][]Work{nil}}
	for i, op := range plan.Cycle {
		if op.Kind == schedule.DropWeights || op.Kind == schedule.DropState {
			continue // that is no work
		}
		w := Work{Kind: CycleOp, Shift: max(op.Microbatch, 1) - 1, Task: None, To: NoDevice, Op: op, Place: Place{Half: 2 * i}}
		switch {
		case op.Prime:
			w.Shift = -1
		case op.Kind.OfState():
			w.Shift = plan.Microbatches - 1
		}
		out.Devices[0] = append(out.Devices[0], w)
	}
	return out, nil
}

// MicrobatchOps returns the ops of a cyclic plan that compute or move activations of a microbatch, from 0, as a sequence, and the position of
// each.
func (p *Plan) MicrobatchOps(microbatch int) (seq schedule.Sequence, at []int) {
	for i, op := range p.Cycle {
		if !op.Kind.OfState() && max(op.Microbatch, 1) == microbatch+1 {
			seq, at = append(seq, schedule.Op{Kind: op.Kind, Layer: op.Layer}), append(at, i)
		}
	}
	return seq, at
}
