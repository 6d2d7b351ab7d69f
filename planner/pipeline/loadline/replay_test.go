package loadline

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// The memory of a stage with ops, summed tensor by tensor at every instant of an interleaving of its minibatches: nothing of
// package loadline is used but the plan.

// tensor is something that a minibatch has in memory.
type tensor struct {
	kind  string // "a", "saved", "grad"
	index int
}

// minibatch is one minibatch in a stage: its tensors, and how far its ops are.
type minibatch struct {
	has  map[tensor]bool
	next int
}

func size(c *chain.Chain, x tensor) int64 {
	switch x.kind {
	case "a":
		return c.Activation(x.index)
	case "saved":
		return c.Saved(x.index)
	}
	return c.Gradient(x.index)
}

// sum returns the bytes of all minibatches.
func sum(c *chain.Chain, all []*minibatch) (bytes int64) {
	for _, m := range all {
		for x := range m.has {
			bytes += size(c, x)
		}
	}
	return bytes
}

// arrive is a minibatch at the start of its F: its input is there.
func arrive(st pipeline.Stage) *minibatch {
	return &minibatch{has: map[tensor]bool{{"a", st.First - 1}: true}}
}

// half runs the next part of a minibatch, op by op, and returns the most bytes of all at any instant.
func half(c *chain.Chain, st pipeline.Stage, all []*minibatch, m *minibatch) (peak int64) {
	back := m.next > 0
	if back {
		m.has[tensor{"grad", st.Last}] = true
	}
	peak = sum(c, all)
	for m.next < len(st.Ops) {
		op := st.Ops[m.next]
		m.next++
		peak = max(peak, one(c, all, m, op))
		if !back && op.Layer == st.Last {
			break
		}
	}
	if !back {
		delete(m.has, tensor{"a", st.Last}) // it has been sent
	} else {
		delete(m.has, tensor{"grad", st.First - 1})
	}
	return peak
}

// one runs an op: its output and its overhead come on top of everything that is there, then what it frees goes.
func one(c *chain.Chain, all []*minibatch, m *minibatch, op schedule.Op) (peak int64) {
	l := c.Layer(op.Layer)
	in, out := tensor{"a", op.Layer - 1}, tensor{"a", op.Layer}
	set := tensor{"saved", op.Layer}
	before := sum(c, all)
	switch op.Kind {
	case schedule.ForwardAll:
		peak = before + l.SavedBytes + l.ForwardOverheadBytes
		delete(m.has, out)
		m.has[set] = true
	case schedule.ForwardCheckpoint, schedule.ForwardDiscard:
		peak = before + l.OutputBytes + l.DiscardOverhead()
		if !m.has[set] {
			m.has[out] = true
		}
		if op.Kind == schedule.ForwardDiscard {
			delete(m.has, in)
		}
	case schedule.Backward:
		peak = before + c.Gradient(op.Layer-1) + l.BackwardOverheadBytes
		delete(m.has, set)
		delete(m.has, in)
		delete(m.has, tensor{"grad", op.Layer})
		m.has[tensor{"grad", op.Layer - 1}] = true
	}
	return peak
}

// interleave runs the parts of a stage in the order in which a plan's device runs them, for many periods. It returns the most bytes at any
// instant, weights and buffers not counted, and the most live minibatches.
func interleave(t *testing.T, c *chain.Chain, plan *pipeline.Plan, s int) (peak int64, live int) {
	t.Helper()
	type part struct {
		at, seconds float64
		number      int
		back        bool
	}
	cost, err := pipeline.MeasureStage(c, plan.Stages[s], plan.Stages[s].Ops)
	if err != nil {
		t.Fatal(err)
	}
	var parts []part
	const periods = 30
	for _, task := range plan.Tasks {
		if task.Stage == s && (task.Kind == pipeline.F || task.Kind == pipeline.B) {
			for j := range periods {
				seconds := cost.Forward
				if task.Kind == pipeline.B {
					seconds = cost.Backward
				}
				parts = append(parts, part{float64(j)*plan.Period + task.Start, seconds, j + task.Shift, task.Kind == pipeline.B})
			}
		}
	}
	// Parts that take no time come before parts that begin at the same instant; else a minibatch leaves before another one enters.
	slices.SortStableFunc(parts, func(x, y part) int {
		switch {
		case math.Abs(x.at-y.at) > 1e-9*plan.Period:
			return cmp.Compare(x.at, y.at)
		case (x.seconds == 0) != (y.seconds == 0):
			return cmp.Compare(x.seconds, y.seconds)
		case x.number != y.number:
			return x.number - y.number
		}
		return map[bool]int{true: 1, false: -1}[x.back]
	})
	running := map[int]*minibatch{}
	var all []*minibatch
	for _, p := range parts {
		m := running[p.number]
		if m == nil {
			if p.back {
				continue // of a minibatch that entered before the first period
			}
			m = arrive(plan.Stages[s])
			running[p.number] = m
			all = append(all, m)
		}
		live = max(live, len(all))
		peak = max(peak, half(c, plan.Stages[s], all, m))
		if p.back {
			delete(running, p.number)
			all = slices.DeleteFunc(all, func(x *minibatch) bool { return x == m })
		}
	}
	return peak, live
}

// TestMemoryByReplay: the bytes that the package counts for a stage with ops are never less than the sum at any instant. For one live
// minibatch they are exactly the largest sum. The number of live minibatches is the checker's.
func TestMemoryByReplay(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(11, 1))
	stages, exact, tight := 0, 0, 0
	for range 1500 {
		c := randomChain(rng, 2+rng.IntN(5))
		p := randomPlatform(rng, c)
		plan, err := Contiguous(t.Context(), pipeline.Request{Chain: c, Platform: p, Options: pipeline.Options{Accounting: pipeline.Saved}})
		if err != nil {
			continue
		}
		report, err := pipeline.Check(c, p, plan)
		if err != nil {
			t.Fatal(err)
		}
		for s, st := range plan.Stages {
			if len(st.Ops) == 0 {
				continue
			}
			d := st.Devices[0]
			peak, live := interleave(t, c, plan, s)
			counted := report.PerDevicePeak[d] - report.PerDeviceWeights[d] - report.PerDeviceBuffers[d]
			if live != report.NCA[s] {
				t.Errorf("%d live, the checker says %d", live, report.NCA[s])
			}
			if peak > counted || live == 1 && peak != counted {
				t.Errorf("%d bytes with %d live minibatches, counted %d: %v", peak, live, counted, st.Ops)
			}
			stages++
			if live == 1 {
				exact++
			} else if peak == counted {
				tight++
			}
		}
	}
	t.Logf("%d stages with ops, %d with one live minibatch, of the others %d reach the bound", stages, exact, tight)
	if stages < 300 || exact < 100 || stages-exact < 50 {
		t.Errorf("%d stages with ops, %d with one live minibatch", stages, exact)
	}
}
