package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"plimsoll/internal/units"
	"plimsoll/planner/cycle"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/residency"
)

// cycleFigures is a plan that says where weights, gradients and optimizer state are.
type cycleFigures struct {
	Cycle  string         `json:"cycle"`     // its text form
	Counts map[string]int `json:"op_counts"` // of its ops, by kind; forwards are one kind
	// AtPeak lists the bytes on the device when it holds most.
	AtPeak []heldFigures `json:"at_peak"`
	// A run of n steps takes FirstS + (n-2) makespans + LastS: the first step has nothing primed, and the last one waits for all that it began.
	FirstS float64 `json:"first_step_s"`
	LastS  float64 `json:"last_step_s"`

	at string // for people: the op of the peak, and its layer
}

// heldFigures holds the device's memory of one kind.
type heldFigures struct {
	What  string `json:"what"`
	Bytes int64  `json:"bytes"`
}

// newCycleFigures returns the figures of a cyclic plan.
func newCycleFigures(p *anyPlan, peak *pipeline.CyclePeak) (*cycleFigures, error) {
	run, err := p.plan.RunCycle(p.chain, p.platform)
	if err != nil {
		return nil, err
	}
	f := &cycleFigures{FirstS: run.First, LastS: run.Last, Cycle: p.plan.Cycle.String(), Counts: countOps(p.plan.Cycle), at: "between two steps"}
	if peak.Op >= 0 {
		op := p.plan.Cycle[peak.Op]
		f.at = fmt.Sprintf("at op %d, %v (%s)", peak.Op, op, p.chain.Layer(op.Layer).Name)
	}
	for i := range cycle.Items {
		held := heldFigures{What: cycle.Item(i).String()}
		for _, h := range peak.Parts {
			if h.Item == cycle.Item(i) {
				held.Bytes += h.Bytes
			}
		}
		if held.Bytes > 0 {
			f.AtPeak = append(f.AtPeak, held)
		}
	}
	return f, nil
}

// addCycleBound adds the bound of a cyclic plan that does not say it itself.
func (f *planFigures) addCycleBound(p *anyPlan) error {
	if f.LowerBound > 0 {
		return nil
	}
	link, limits := p.platform.CycleLimits()
	period, err := residency.Bound(residency.Request{Chain: p.chain, Link: link, Limits: limits, Microbatches: p.plan.Microbatches})
	if least := period / float64(p.plan.Microbatches); least <= f.PerMinibatch*(1+1e-9) {
		f.LowerBound = least
	}
	return err
}

// writeCycle prints what a plan costs that says where weights and state of one device are.
func (f *planFigures) writeCycle(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "chain\t%s\n", f.Chain)
	fmt.Fprintf(w, "strategy\t%s\n", pipeline.Name(f.Strategy, f.Winner))
	if f.modelFigures == nil { // whose arena is that of the executor's layout
		fmt.Fprintf(w, "peak\t%s, %s\n", units.Precise(f.Peak[0]), f.at)
	} else {
		fmt.Fprintf(w, "plan's peak\t%s\n", f.at)
	}
	for _, held := range f.AtPeak {
		fmt.Fprintf(w, "\t%s of %s\n", units.Bytes(held.Bytes), held.What)
	}
	batches := "1 microbatch"
	if f.Microbatches > 1 {
		batches = fmt.Sprintf("%d microbatches", f.Microbatches)
	}
	fmt.Fprintf(w, "%s\t%s of %s, %s of it computes\n", estimated("step", f.Estimated), units.Seconds(f.Makespan), batches, percent(1-f.Bubble))
	fmt.Fprintf(w, "\tthe first one takes %s, the last one %s\n", units.Seconds(f.FirstS), units.Seconds(f.LastS))
	if f.LowerBound > 0 {
		fmt.Fprintf(w, "bound\t%s: no such plan within the limits is faster, the gap is %s\n",
			units.Seconds(f.LowerBound*float64(f.Microbatches)), percent(max(0, f.PerMinibatch/f.LowerBound-1)))
	}
	var moves []string
	for _, k := range movingKinds {
		if n := f.Counts[k]; n > 0 {
			moves = append(moves, fmt.Sprintf("%d %s", n, k))
		}
	}
	fmt.Fprintf(w, "ops\t%s\n", strings.Join(moves, ", "))
	_ = w.Flush() // of a buffer
}

// movingKinds are the kinds of ops that a cyclic plan counts, in the order in which they are shown.
var movingKinds = []string{
	"forward", "backward", "fetch_weights", "write_weights", "fetch_state", "write_state", "offload_gradient", "fetch_gradient", "update", "host_update",
	"offload", "prefetch",
}

// countOps counts the ops of a cyclic plan by kind.
func countOps(seq cycle.Sequence) map[string]int {
	all := map[string]int{}
	for _, o := range seq {
		name := o.Kind.String()
		if strings.HasPrefix(name, "forward") {
			name = "forward"
		}
		all[name]++
	}
	return all
}
