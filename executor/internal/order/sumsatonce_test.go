package order

import (
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// stuck reports whether devices that issue their instructions in order would wait for each other in a circle, of a plan with a flush whose
// sums a library makes. A task waits for its message, and a sum for that of all devices of its line.
func (o *Order) stuck() bool {
	type message struct {
		kind             pipeline.Kind
		stage, minibatch int
	}
	sent, at := map[message]bool{}, make([]int, len(o.Instructions))
	head := func(d int) Instruction {
		if at[d] < len(o.Instructions[d]) {
			return o.Instructions[d][at[d]]
		}
		return Instruction{}
	}
	ready := func(t Instruction) bool {
		switch {
		case t.Kind == pipeline.F && t.Stage > 0 && o.Crosses(t.Stage-1, t.Shift):
			return sent[message{pipeline.CF, t.Stage - 1, t.Shift}]
		case t.Kind == pipeline.B && t.Stage+1 < len(o.On) && o.Crosses(t.Stage, t.Shift):
			return sent[message{pipeline.CB, t.Stage, t.Shift}]
		case t.Kind == pipeline.Joining:
			return !slices.ContainsFunc(o.Sums[t.Stage].Line, func(d int) bool { return head(d) != t })
		}
		return true
	}
	for moved := true; moved; {
		moved = false
		for d, list := range o.Instructions {
			for at[d] < len(list) && ready(list[at[d]]) {
				t := list[at[d]]
				sent[message{t.Kind, t.Stage, t.Shift}] = true
				if moved = true; t.Kind != pipeline.Joining {
					at[d]++
					continue
				}
				for _, e := range o.Sums[t.Stage].Line {
					at[e]++
				}
			}
		}
	}
	for d, list := range o.Instructions {
		if at[d] < len(list) {
			return true
		}
	}
	return false
}

// Sums by a library do not make devices wait for each other where stages that recompute share them: messages stand before a backward that
// recomputes before it needs its gradient.
// Only this test finds a sum at once that moves a message behind such a backward.
func TestSumsAtOnceAreNotStuck(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(8, 1))
	s, err := planner.LookupPipeline("chimera")
	if err != nil {
		t.Fatal(err)
	}
	recomputing := 0
	for range 300 {
		const times = 8 << 20
		c := pipelinetest.Chain(rnd, 4+rnd.IntN(5), false)
		for i := range c.Layers {
			l := &c.Layers[i]
			l.SavedBytes, l.WeightBytes = (l.SavedBytes+rnd.Int64N(40))*times, (1+rnd.Int64N(4))*times
			l.OutputBytes, l.GradientBytes = l.OutputBytes*times, l.GradientBytes*times
		}
		p := pipelinetest.Platform(rnd, 4)
		if p.Pairs = nil; p.Bandwidth == pipeline.Free() {
			p.Bandwidth = 5
		}
		p.Bandwidth *= times
		q := pipeline.Request{Chain: c, Platform: p, Options: pipeline.Options{Microbatches: 4 * (1 + rnd.IntN(3)), Accounting: pipeline.Saved}}
		free, err := s.Solve(t.Context(), q)
		if err != nil {
			continue
		}
		q.Platform = p.WithMemory(int64((0.5 + 0.5*rnd.Float64()) * float64(slices.Max(free.PerDevicePeak))))
		plan, err := s.Solve(t.Context(), q)
		if err != nil || !plan.HasOps() || plan.Synchronization == nil {
			continue
		}
		recomputing++
		o, err := New(c, q.Platform, plan, 4, 0)
		if err != nil {
			t.Fatal(err)
		}
		for s, x := range o.Sums {
			if x != nil {
				o.SumAtOnce(s, x.MadeBehind(plan.Stages[s], c, false))
			}
		}
		if o.stuck() {
			t.Errorf("devices wait for each other: %+v on %+v", plan.Stages, *q.Platform)
		}
	}
	if recomputing < 50 {
		t.Errorf("%d plans recompute", recomputing)
	}
}
