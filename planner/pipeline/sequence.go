package pipeline

import (
	"encoding/json"
	"fmt"
	"slices"

	"plimsoll/internal/fields"
	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/schedule"
)

// OneDevice returns the platform on which a sequence runs within limits.
func OneDevice(l schedule.Limits) *Platform {
	return &Platform{Devices: 1, Memory: []int64{l.Memory}, Host: l.Link.Bandwidth, Duplex: l.Link.Duplex, HostMemory: l.Host}
}

// Limits returns the limits within which the sequence of one device of the platform runs.
func (p *Platform) Limits(device int) schedule.Limits {
	return schedule.Limits{Memory: p.Memory[device], Link: schedule.Link{Bandwidth: p.Host, Duplex: p.Duplex}, Host: p.HostMemory}
}

// NewSequence returns a plan for one device: one stage of all layers, whose ops are the sequence, for one microbatch. Its limits count
// no weights. Its costs are not known: PlanSequence simulates them.
func NewSequence(chain, strategy string, seq schedule.Sequence, limits schedule.Limits) *Plan {
	last := 0 // the backward of every layer is in the sequence
	for _, op := range seq {
		last = max(last, op.Layer)
	}
	return &Plan{
		Chain: chain, Strategy: strategy, Platform: OneDevice(limits),
		Stages:   []Stage{{First: 1, Last: last, Devices: []int{0}, Ops: append(schedule.Sequence{}, seq...)}}, // never nil
		Versions: Flush, Microbatches: 1, Copies: Copies{WeightCopies: []float64{0}},
		Tasks: []Task{{Kind: F}, {Kind: B}},
	}
}

// PlanSequence simulates a sequence within limits and makes it a plan for one device. Errors: those of schedule.Simulate.
func PlanSequence(c *chain.Chain, strategy string, seq schedule.Sequence, limits schedule.Limits) (*Plan, error) {
	r, err := schedule.Simulate(c, seq, limits)
	if err != nil {
		return nil, err
	}
	p := NewSequence(c.Name, strategy, seq, limits)
	p.Predict(r)
	return p, nil
}

// Predict sets what a plan for one device is predicted to cost by a simulation of its sequence.
func (p *Plan) Predict(r *schedule.Result) {
	p.Predicted.Makespan, p.Predicted.Idle, p.PerDevicePeak = r.Makespan, r.Idle, []int64{r.Peak}
	p.Tasks[1].Start = r.End[p.Stages[0].loss()]
}

// Accumulated returns the plan of a step of n microbatches on one device: each runs the sequence of p behind the microbatch before it. The
// peak is that of p, the step takes n times as long, and one update by the sum of the gradients ends it.
func (p *Plan) Accumulated(n int) *Plan {
	out := *p
	out.Microbatches, out.Predicted.Makespan, out.Predicted.Idle = n, float64(n)*p.Predicted.Makespan, float64(n)*p.Predicted.Idle
	out.Tasks = make([]Task, 0, 2*n)
	for k := range n {
		for _, t := range p.Tasks {
			t.Shift, t.Start = k, float64(k)*p.Predicted.Makespan+t.Start
			out.Tasks = append(out.Tasks, t)
		}
	}
	return &out
}

// IsSequence reports whether the plan is the sequence of one device: it says nothing that the sequence and its limits do not say.
func (p *Plan) IsSequence() bool { return p.Microbatches == 1 && p.RunsSequence() }

// RunsSequence reports whether the plan is a sequence of one device, or an accumulated one.
func (p *Plan) RunsSequence() bool {
	return p.Cycle == nil && len(p.Stages) == 1 && p.Stages[0].isWhole() && p.IsFlush() && p.Platform.isOneDevice() &&
		slices.Equal(p.WeightCopies, []float64{0}) && p.OptimizerCopies == 0 && p.Zero == ZeroNothing && !p.HostState && p.Accounting == "" &&
		p.Period == 0 && p.MinibatchesPerPeriod == 0 && p.Batch == 0 && len(p.Portals)+len(p.Synchronization)+len(p.Timings) == 0 &&
		len(p.PerDevicePeak) <= 1 && p.alternates()
}

// alternates reports whether the tasks are the forward and the backward part of each microbatch in turn.
func (p *Plan) alternates() bool {
	for i := range p.Tasks {
		if kind := F + Kind(i%2); !p.Tasks[i].isPart(kind, i/2) {
			return false
		}
	}
	return p.Microbatches > 0 && len(p.Tasks) == 2*p.Microbatches
}

// isWhole reports whether the stage is a sequence of all layers on device 0.
func (s *Stage) isWhole() bool {
	last := 0 // the backward of every layer is in a sequence
	for _, op := range s.Ops {
		last = max(last, op.Layer)
	}
	return s.First == 1 && s.Ops != nil && s.Last == last && s.LastOps == nil && slices.Equal(s.Devices, []int{0}) && len(s.Extra) == 0
}

// isOneDevice reports whether limits of a sequence say all of the platform.
func (p *Platform) isOneDevice() bool {
	return p != nil && p.Devices == 1 && p.Bandwidth == 0 && !p.NoBuffers && len(p.Pairs)+len(p.Levels)+len(p.Extra) == 0
}

// isPart reports whether the task is the forward or the backward part of a sequence that a microbatch runs.
func (t *Task) isPart(kind Kind, microbatch int) bool {
	return t.Kind == kind && t.Stage == 0 && t.Device == 0 && t.Shift == microbatch && t.To == 0 && t.Duration == nil && len(t.Extra) == 0
}

// Sequence returns the ops of a plan for one device; of the first stage, of a plan for several.
func (p *Plan) Sequence() schedule.Sequence { return p.Stages[0].Ops }

// Limits returns the limits of a plan for one device.
func (p *Plan) Limits() schedule.Limits { return p.Platform.Limits(0) }

// Name returns the strategy for people, with the one that it chose: "auto (rotor-exact)".
func (p *Plan) Name() string { return Name(p.Strategy, p.Winner) }

// Name is Plan.Name of a strategy and a winner, which may be "".
func Name(strategy, winner string) string {
	if winner == "" {
		return strategy
	}
	return strategy + " (" + winner + ")"
}

// For refuses a chain that a plan for one device was not made for. Errors: ErrOtherChain, *schedule.RuleError.
func (p *Plan) For(c *chain.Chain) error {
	if p.Chain != c.Name {
		return fmt.Errorf("%w: field \"chain\" is %q, the chain's name %q", ErrOtherChain, p.Chain, c.Name)
	}
	return schedule.Verify(c, p.Sequence())
}

// sequenceFields returns the fields of the file of a plan for one device.
func (p *Plan) sequenceFields() fields.List {
	limits := p.Limits()
	out := fields.List{
		{Name: "format", Value: Format},
		{Name: "chain", Value: p.Chain},
		{Name: "strategy", Value: p.Strategy},
	}
	out = fields.Unless(out, "", "winner", p.Winner)
	out = fields.Unless(out, NoLimit, "memory_bytes", limits.Memory)
	out = fields.Unless(out, 0, "bandwidth_bytes_per_s", limits.Link.Bandwidth)
	out = fields.Unless(out, false, "duplex", limits.Link.Duplex)
	out = fields.Unless(out, 0, "host_memory_bytes", limits.Host)
	out = fields.Unless(out, false, "updates_last", p.UpdatesLast)
	var ops any = p.Stages[0].ops()
	if p.IsCycle() {
		ops = cyclicOps(p)
	}
	predicted := fields.List{
		{Name: "makespan_s", Value: p.Predicted.Makespan},
		{Name: "peak_bytes", Value: p.Peak()},
		{Name: "idle_s", Value: p.Predicted.Idle},
	}
	return append(out,
		fields.Field{Name: "predicted", Value: predicted.With(p.Predicted.Extra)},
		fields.Field{Name: "ops", Value: ops}).With(p.Extra)
}

// ops returns the fields of all ops.
func (s *Stage) ops() []fields.List {
	out := make([]fields.List, len(s.Ops))
	for i, op := range s.Ops {
		out[i] = op.Fields().With(s.OpExtra[i])
	}
	return out
}

// takeSequence takes a plan for one device. Only chain and ops must be there.
func takeSequence(o *fields.Object) (*Plan, error) {
	o.Require("chain", "ops")
	chain, strategy, winner := o.String("chain", ""), o.String("strategy", ""), o.String("winner", "")
	limits := schedule.Limits{
		Memory: o.Size("memory_bytes", NoLimit),
		Link:   schedule.Link{Bandwidth: o.NotNegative("bandwidth_bytes_per_s", 0), Duplex: o.Bool("duplex", false)},
		Host:   o.Size("host_memory_bytes", 0),
	}
	updatesLast := o.Bool("updates_last", false)
	predicted := o.Object("predicted")
	raw := o.Array("ops")
	if err := o.Err(); err != nil {
		return nil, err
	}
	costs, peak := Predicted{Makespan: predicted.NotNegative("makespan_s", 0)}, predicted.Size("peak_bytes", 0)
	costs.Idle = predicted.NotNegative("idle_s", 0)
	costs.Extra = predicted.Rest()
	if err := predicted.Err(); err != nil {
		return nil, fmt.Errorf("field \"predicted\": %w", err)
	}
	p, err := takePlanOps(chain, strategy, raw, limits)
	if err != nil {
		return nil, err
	}
	p.Winner, p.UpdatesLast, p.Predicted, p.Extra = winner, updatesLast, costs, o.Rest()
	if peak > 0 {
		p.PerDevicePeak = []int64{peak}
	}
	return p, nil
}

// takePlanOps takes the ops of a plan for one device: of a cyclic one where one of them moves or updates weights, gradients or state.
func takePlanOps(chain, strategy string, raw []json.RawMessage, limits schedule.Limits) (*Plan, error) {
	var of struct{ Op string }
	for _, r := range raw {
		if json.Unmarshal(r, &of) != nil {
			continue // takeOps says what is wrong
		}
		if k, err := schedule.ParseKind(of.Op); err == nil && k.OfState() {
			return takeCycle(chain, strategy, raw, limits)
		}
	}
	ops, extra, err := takeOps(raw)
	if err != nil {
		return nil, err
	}
	p := NewSequence(chain, strategy, ops, limits)
	p.Stages[0].OpExtra = extra
	return p, nil
}

// takeOps takes the ops of a sequence, and by position the fields of each that are not known.
func takeOps(raw []json.RawMessage) (ops schedule.Sequence, extra map[int]map[string]json.RawMessage, err error) {
	ops = make(schedule.Sequence, len(raw))
	for i, r := range raw {
		o, err := fields.Parse(r)
		if err == nil {
			ops[i], err = schedule.TakeOp(o)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("op %d: %w", i, err)
		}
		if rest := o.Rest(); rest != nil {
			if extra == nil {
				extra = map[int]map[string]json.RawMessage{}
			}
			extra[i] = rest
		}
	}
	return ops, extra, nil
}

// takeCycle takes the ops of a cyclic plan.
func takeCycle(chain, strategy string, raw []json.RawMessage, limits schedule.Limits) (*Plan, error) {
	seq, waits := make(cycle.Sequence, len(raw)), make([][]int, len(raw))
	for i, r := range raw {
		err := seq[i].UnmarshalJSON(r)
		if err == nil {
			waits[i], err = takeWaits(r, len(raw))
		}
		if err != nil {
			return nil, fmt.Errorf("op %d: %w", i, err)
		}
	}
	p := NewCycle(chain, strategy, seq, OneDevice(limits))
	if slices.ContainsFunc(waits, func(w []int) bool { return w != nil }) {
		p.Waits = waits
	}
	return p, nil
}

// takeWaits takes the positions of the ops that an op of a cyclic plan waits for, of so many ops; nil: there are none.
func takeWaits(raw json.RawMessage, ops int) (waits []int, err error) {
	o, err := fields.Parse(raw)
	if err != nil {
		return nil, err
	}
	for _, r := range o.Array(waitsFor) {
		at := -1
		if json.Unmarshal(r, &at) != nil || at < 0 || at >= ops {
			return nil, &fields.Error{Field: waitsFor, Value: string(r), Reason: fmt.Sprintf("is no position of an op: give 0 to %d", ops-1)}
		}
		waits = append(waits, at)
	}
	return waits, o.Err()
}

// waitsFor is the field of an op of a cyclic plan for CyclicOps.Waits.
const waitsFor = "waits_for"

// cyclicOps returns the fields of the ops of a cyclic plan.
func cyclicOps(p *Plan) []fields.List {
	out := make([]fields.List, len(p.Cycle))
	for i, op := range p.Cycle {
		if out[i] = op.Fields(); p.Waits != nil && len(p.Waits[i]) > 0 {
			out[i] = append(out[i], fields.Field{Name: waitsFor, Value: p.Waits[i]})
		}
	}
	return out
}
