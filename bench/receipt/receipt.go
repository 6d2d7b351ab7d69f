// Package receipt explains the time of a step beyond the prediction. It attributes the gap between the predicted and the
// measured time of one training step to named causes, which add up to the gap to the nanosecond.
//
// It knows times, ops and the rules of packages schedule and cycle, and no device.
package receipt

import (
	"cmp"
	"slices"
	"time"

	"plimsoll/internal/fields"
	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/schedule"
)

// Cause names the reason for a part of a gap. The set is closed.
type Cause uint8

const (
	// Ops took longer than their costs in the chain.
	Ops Cause = iota
	// Update is the optimizer's update on the device.
	Update
	// HostUpdates took longer than their costs, and an op waited for that long. Plans of activations alone have none.
	HostUpdates
	// Transfers took longer than their bytes over the bandwidth, and an op waited for that long.
	Transfers
	// TransferWaits are other waits for a copy to the device: it started late.
	TransferWaits
	// MemoryWaits are other waits for memory that a copy to the host frees.
	MemoryWaits
	// Launches are times in which no op ran though the next one could have: launching, and waiting for a core.
	Launches
	// Residual is the step's time outside its ops and its update: from the last op's end to the update's start.
	Residual
	// Messages between devices, waits for them and launches: what a step of several devices took beyond its tasks and updates.
	Messages
	causes
)

var names = [causes]string{
	"ops slower than profiled", "update slower than profiled", "host updates slower", "transfers slower", "waited for a transfer", "waited for memory",
	"launch gaps", "residual", "messages and waits",
}

// String returns the name in tables: "transfers slower".
func (c Cause) String() string { return names[c] }

// Step is one training step along a sequence, as it ran. The costs of the chain and the limits are the prediction.
type Step struct {
	Chain  *chain.Chain
	Ops    schedule.Sequence
	Limits schedule.Limits
	// Predicted is the result of a simulation of the ops with the chain's times.
	Predicted *schedule.Result
	Spans     []schedule.Span // of every op, transfers included
	// Update is the time of the update, UpdatePredicted what it was predicted to take; Whole is the time of the step.
	Update, UpdatePredicted, Whole time.Duration
}

// Receipt is the gap of one step. Invariant: Measured - Predicted is the sum of By, exactly.
type Receipt struct {
	Predicted, Measured time.Duration
	By                  [causes]time.Duration // above 0: slower than predicted
	Worst               []OpGap               // the ops that differ most from their costs, at most three
	// Steps is more than 1 where a cyclic plan repeats after several steps: all figures are of these together.
	Steps   int
	hosted  bool // the plan has updates on the host
	devices bool // the plan has tasks of several devices
}

// OpGap is by how much an op took longer than its cost.
type OpGap struct {
	Op, Layer string
	Gap       time.Duration
}

// New makes the receipt of a step. Errors: those of schedule.Waits.
func New(s Step) (*Receipt, error) {
	predicted := s.Predicted.Spans()
	expected, err := schedule.Waits(s.Chain, s.Ops, s.Limits, predicted)
	if err != nil {
		return nil, err
	}
	waited, err := schedule.Waits(s.Chain, s.Ops, s.Limits, s.Spans)
	if err != nil {
		return nil, err
	}
	a := attribution{}
	after, last := s.after(), 0
	for p, op := range s.Ops {
		x := work{name: op.String(), layer: s.Chain.Layer(op.Layer).Name, gap: length(s.Spans[p]) - length(predicted[p]), after: after[p], cause: Transfers}
		if !op.Kind.Transfer() {
			x.cause, x.inside, x.waits, x.expected, x.waited, last = Ops, true, true, expected[p], waited[p], p
		}
		a.ops = append(a.ops, x)
	}
	r := a.receipt()
	r.Predicted, r.Measured, r.Steps = predicted[last].End+s.UpdatePredicted, s.Whole, 1
	r.By[Update] = s.Update - s.UpdatePredicted
	r.By[Residual] = s.Whole - s.Spans[last].End - s.Update
	return r, nil
}

func length(s schedule.Span) time.Duration { return s.End - s.Start }

// after returns, for each transfer, the one before it in its queue, or -1 where it waited longer for the compute op before it.
func (s *Step) after() []int {
	all := make([]int, len(s.Ops))
	last := map[schedule.Kind]int{schedule.Offload: -1, schedule.Prefetch: -1}
	ended := time.Duration(0) // of the compute op before
	for p, op := range s.Ops {
		if !op.Kind.Transfer() {
			ended = s.Spans[p].End
			continue
		}
		if all[p] = last[op.Kind]; all[p] >= 0 && s.Spans[all[p]].End < ended {
			all[p] = -1
		}
		last[op.Kind] = p
		if !s.Limits.Link.Duplex {
			last[schedule.Offload], last[schedule.Prefetch] = p, p
		}
	}
	return all
}

// Cycle is steps of a cyclic plan, as they ran. The simulation is the prediction.
type Cycle struct {
	Chain  *chain.Chain
	Sim    *cycle.Simulator // that has played the plan
	Result *cycle.Result
	Spans  []cycle.Span // of the run
	Window cycle.Window // of the run, of as many steps as the simulation repeats after
}

// NewCycle makes the receipt of the steps of a window: from the start of the first compute op of one to that of a later one.
func NewCycle(c Cycle) *Receipt {
	steady := c.Sim.Steady()
	expected, measured := c.Sim.Replay(c.Result.Spans(), steady), c.Sim.Replay(c.Spans, c.Window)
	a, n := attribution{}, len(measured)/(steady.Steps+2) // ops of a step
	for i := range measured {
		was, is := &expected[i], &measured[i]
		x := work{name: is.Op.String(), layer: c.Chain.Layer(is.Op.Layer).Name, cause: causeOf(is), after: is.After,
			inside: is.Inside, waits: is.Waits, expected: was.Wait, waited: is.Wait}
		if is.Stream != cycle.Compute { // which the steps of the window have, too
			was = &expected[n+(i-n+n*steady.Steps)%(n*steady.Steps)]
		}
		if is.Ran && was.Ran {
			x.gap = length(is.Span) - length(was.Span)
		}
		a.ops = append(a.ops, x)
	}
	r := a.receipt()
	r.Predicted, r.Measured, r.Steps = steady.Length(), c.Window.Length(), steady.Steps
	return r
}

// causeOf returns the cause if an op of a cyclic plan takes longer.
func causeOf(x *cycle.Replayed) Cause {
	switch {
	case x.Op.Kind == schedule.Update:
		return Update
	case x.Stream == cycle.Compute:
		return Ops
	case x.Stream == cycle.Host:
		return HostUpdates
	}
	return Transfers
}

// work is an op, as predicted and as it ran.
type work struct {
	name, layer      string
	cause            Cause         // of its gap
	gap              time.Duration // by which it took longer; of a copy or an update on the host, as far as no wait was charged with it
	after            int           // of these: the one that it followed when it ran; -1: it followed a compute op
	inside, waits    bool          // its time is the step's, and so is the time before it: of a compute op
	expected, waited schedule.Wait
}

// attribution is a receipt in the making.
type attribution struct {
	ops   []work
	by    [causes]time.Duration
	worst []OpGap
}

// op attributes the time of a compute op, and that before it.
func (a *attribution) op(x *work) {
	if x.inside {
		a.by[x.cause] += x.gap
		a.worst = append(a.worst, OpGap{x.name, x.layer, x.gap})
	}
	if !x.waits {
		return
	}
	is, was := x.waited, x.expected
	a.wait(TransferWaits, is.Transfer-was.Transfer, is.By, was.By)
	a.wait(MemoryWaits, is.Memory-was.Memory, is.Freed, was.Freed)
	a.by[Launches] += is.Other - was.Other
}

// wait attributes the excess of a wait over its prediction. Slower copies and updates on the host, up to the awaited one, account for their
// own excess; the wait itself accounts for the rest.
func (a *attribution) wait(kind Cause, longer time.Duration, awaited, expected int) {
	if awaited < 0 {
		awaited = expected
	}
	if longer == 0 || awaited < 0 {
		a.by[kind] += longer
		return
	}
	transfers, host := a.charge(awaited)
	slow := within(transfers+host, longer)
	host = within(host, slow)
	a.by[HostUpdates] += host
	a.by[Transfers] += slow - host
	a.by[kind] += longer - slow
}

// within returns the part of a time between 0 and another one, whatever its sign.
func within(d, most time.Duration) time.Duration { return max(min(d, max(most, 0)), min(most, 0)) }

func abs(d time.Duration) time.Duration { return max(d, -d) }

// charge returns by how much the copies, and the updates on the host, took longer that followed each other until an op had ended, each of them
// once.
func (a *attribution) charge(p int) (transfers, host time.Duration) {
	for ; p >= 0; p = a.ops[p].after {
		x := &a.ops[p]
		switch x.cause {
		case HostUpdates:
			host += x.gap
		case Transfers:
			transfers += x.gap
		default:
			continue // a compute op, whose gap is its own
		}
		x.gap = 0
	}
	return transfers, host
}

// receipt attributes all gaps.
func (a *attribution) receipt() *Receipt {
	hosted := false
	for i := range a.ops {
		a.op(&a.ops[i])
		hosted = hosted || a.ops[i].cause == HostUpdates
	}
	slices.SortStableFunc(a.worst, func(x, y OpGap) int { return cmp.Compare(abs(y.Gap), abs(x.Gap)) })
	return &Receipt{By: a.by, Worst: a.worst[:min(3, len(a.worst))], hosted: hosted}
}

// Gap is the measured less the predicted time.
func (r *Receipt) Gap() time.Duration { return r.Measured - r.Predicted }

// Has reports whether the plan can have a cause.
func (r *Receipt) Has(c Cause) bool {
	switch c {
	case Ops, Update:
		return true
	case Messages:
		return r.devices
	case HostUpdates:
		return r.hosted
	}
	return !r.devices
}

// Largest returns the cause of the largest part of the gap.
func (r *Receipt) Largest() Cause {
	largest := Ops
	for c, d := range r.By {
		if abs(d) > abs(r.By[largest]) {
			largest = Cause(c)
		}
	}
	return largest
}

// MarshalJSON writes seconds, the causes in their order.
func (r *Receipt) MarshalJSON() ([]byte, error) {
	type cause struct {
		Cause   string  `json:"cause"`
		Seconds float64 `json:"seconds"`
	}
	type op struct {
		Op      string  `json:"op"`
		Layer   string  `json:"layer"`
		Seconds float64 `json:"seconds"`
	}
	out := struct {
		Steps      int     `json:"steps"`
		PredictedS float64 `json:"predicted_s"`
		MeasuredS  float64 `json:"measured_s"`
		GapS       float64 `json:"gap_s"`
		Causes     []cause `json:"causes"`
		Worst      []op    `json:"worst_ops"`
	}{r.Steps, r.Predicted.Seconds(), r.Measured.Seconds(), r.Gap().Seconds(), []cause{}, []op{}}
	for c, d := range r.By {
		if r.Has(Cause(c)) {
			out.Causes = append(out.Causes, cause{Cause(c).String(), d.Seconds()})
		}
	}
	for _, w := range r.Worst {
		out.Worst = append(out.Worst, op{w.Op, w.Layer, w.Gap.Seconds()})
	}
	return fields.Marshal(out)
}
