// Package receipt says where the time of a step went that the prediction did not have: it attributes the gap between the
// predicted and the measured time of one training step to named causes, which add up to the gap to the nanosecond.
//
// It knows times, ops and the rules of package schedule, and no device.
package receipt

import (
	"cmp"
	"slices"
	"time"

	"plimsoll/internal/fields"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// Cause is what a part of a gap comes from. The set is closed.
type Cause uint8

const (
	// Ops took longer than their costs in the chain.
	Ops Cause = iota
	// Update is the optimizer's update, which follows the ops.
	Update
	// Transfers took longer than their bytes over the bandwidth, and an op waited for that long.
	Transfers
	// TransferWaits are other waits for a prefetch: it started late.
	TransferWaits
	// MemoryWaits are other waits for memory that an offload frees.
	MemoryWaits
	// Launches are times in which no op ran though the next one could have: launching, and waiting for a core.
	Launches
	// Residual is what the step took beyond its ops and its update: the time from the last op's end to the update's start.
	Residual
	causes
)

var names = [causes]string{
	"ops slower than profiled", "update slower than profiled", "transfers slower", "waited for a transfer", "waited for memory",
	"launch gaps", "residual",
}

// String returns the name in tables: "transfers slower".
func (c Cause) String() string { return names[c] }

// Step is one training step along a sequence, as it ran. The costs of the chain and the limits are the prediction.
type Step struct {
	Chain  *chain.Chain
	Ops    schedule.Sequence
	Limits schedule.Limits
	Spans  []schedule.Span // of every op, transfers included
	// Update is the time of the update, UpdatePredicted what it was predicted to take; Whole is the time of the step.
	Update, UpdatePredicted, Whole time.Duration
}

// Receipt is the gap of one step. Invariant: Measured - Predicted is the sum of By, exactly.
type Receipt struct {
	Predicted, Measured time.Duration
	By                  [causes]time.Duration // above 0: slower than predicted
	Worst               []OpGap               // the ops that differ most from their costs, at most three
}

// OpGap is by how much an op took longer than its cost.
type OpGap struct {
	Op    schedule.Op
	Layer string
	Gap   time.Duration
}

// New makes the receipt of a step. Errors: those of schedule.Simulate and schedule.Waits.
func New(s Step) (*Receipt, error) {
	sim, err := schedule.Simulate(s.Chain, s.Ops, s.Limits)
	if err != nil {
		return nil, err
	}
	a := attribution{Step: s, predicted: sim.Spans()}
	if a.expected, err = schedule.Waits(s.Chain, s.Ops, s.Limits, a.predicted); err != nil {
		return nil, err
	}
	if a.waited, err = schedule.Waits(s.Chain, s.Ops, s.Limits, s.Spans); err != nil {
		return nil, err
	}
	a.link()
	for p, op := range s.Ops {
		if !op.Kind.Transfer() {
			a.op(p)
		}
	}
	return a.receipt(), nil
}

// attribution is a receipt in the making.
type attribution struct {
	Step
	predicted        []schedule.Span
	expected, waited []schedule.Wait
	excess           []time.Duration // of a transfer: by how much it took longer, as far as no wait was charged with it
	before           []int           // of a transfer: the one before it in its queue, or -1
	released         []time.Duration // of a transfer: when the compute op before it in the sequence had ended
	by               [causes]time.Duration
	worst            []OpGap
}

// link finds the order of the transfers.
func (a *attribution) link() {
	n := len(a.Ops)
	a.excess, a.before, a.released = make([]time.Duration, n), make([]int, n), make([]time.Duration, n)
	last := map[schedule.Kind]int{schedule.Offload: -1, schedule.Prefetch: -1}
	ended := time.Duration(0)
	for p, op := range a.Ops {
		if !op.Kind.Transfer() {
			ended = a.Spans[p].End
			continue
		}
		a.excess[p] = length(a.Spans[p]) - length(a.predicted[p])
		a.before[p], a.released[p] = last[op.Kind], ended
		last[op.Kind] = p
		if !a.Limits.Link.Duplex {
			last[schedule.Offload], last[schedule.Prefetch] = p, p
		}
	}
}

func length(s schedule.Span) time.Duration { return s.End - s.Start }

// op attributes the time of a compute op, and that before it.
func (a *attribution) op(p int) {
	gap := length(a.Spans[p]) - length(a.predicted[p])
	a.by[Ops] += gap
	op := a.Ops[p]
	a.worst = append(a.worst, OpGap{op, a.Chain.Layer(op.Layer).Name, gap})
	is, was := a.waited[p], a.expected[p]
	a.wait(TransferWaits, is.Transfer-was.Transfer, is.By, was.By)
	a.wait(MemoryWaits, is.Memory-was.Memory, is.Freed, was.Freed)
	a.by[Launches] += is.Other - was.Other
}

// wait attributes by how much a wait was longer than predicted: to slower transfers as far as those in the queue up to the
// awaited one were, to the wait itself beyond that.
func (a *attribution) wait(kind Cause, longer time.Duration, awaited, expected int) {
	if awaited < 0 {
		awaited = expected
	}
	if longer == 0 || awaited < 0 {
		a.by[kind] += longer
		return
	}
	slow := min(max(a.charge(awaited), -abs(longer)), abs(longer))
	if (slow < 0) != (longer < 0) {
		slow = 0
	}
	a.by[Transfers] += slow
	a.by[kind] += longer - slow
}

func abs(d time.Duration) time.Duration { return max(d, -d) }

// charge returns by how much the transfers took longer that ran one after another until transfer p had ended, each of them once.
// The run begins with a transfer that waited for the compute op before it rather than for its queue.
func (a *attribution) charge(p int) (sum time.Duration) {
	for p >= 0 {
		sum += a.excess[p]
		a.excess[p] = 0
		before := a.before[p]
		if before < 0 || a.Spans[before].End < a.released[p] {
			break
		}
		p = before
	}
	return sum
}

func (a *attribution) receipt() *Receipt {
	r := &Receipt{Measured: a.Whole, By: a.by}
	var measured time.Duration
	for p, op := range a.Ops {
		if !op.Kind.Transfer() {
			r.Predicted, measured = a.predicted[p].End, a.Spans[p].End
		}
	}
	r.Predicted += a.UpdatePredicted
	r.By[Update] = a.Update - a.UpdatePredicted
	r.By[Residual] = a.Whole - measured - a.Update
	slices.SortStableFunc(a.worst, func(x, y OpGap) int { return cmp.Compare(abs(y.Gap), abs(x.Gap)) })
	r.Worst = a.worst[:min(3, len(a.worst))]
	return r
}

// Gap is the measured less the predicted time.
func (r *Receipt) Gap() time.Duration { return r.Measured - r.Predicted }

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
		PredictedS float64 `json:"predicted_s"`
		MeasuredS  float64 `json:"measured_s"`
		GapS       float64 `json:"gap_s"`
		Causes     []cause `json:"causes"`
		Worst      []op    `json:"worst_ops"`
	}{r.Predicted.Seconds(), r.Measured.Seconds(), r.Gap().Seconds(), []cause{}, []op{}}
	for c, d := range r.By {
		out.Causes = append(out.Causes, cause{Cause(c).String(), d.Seconds()})
	}
	for _, w := range r.Worst {
		out.Worst = append(out.Worst, op{w.Op.String(), w.Layer, w.Gap.Seconds()})
	}
	return fields.Marshal(out)
}
