package recompute

import (
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
	"plimsoll/planner/schedule"
)

// TestMeasureAsSchedule compares one minibatch with package schedule's result for the stage's layers and a last layer without cost. Times
// are equal. If F ends with a saved set, memory is equal; otherwise schedule has at most a_j more, which it keeps until B.
func TestMeasureAsSchedule(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(11, 2))
	same, sent := 0, 0
	for range 400 {
		c := overheads(rng, pipelinetest.Chain(rng, 1+rng.IntN(5), false))
		k := pipeline.NewCosts(c)
		q := New(k, 1<<50)
		first := 1 + rng.IntN(c.Len())
		if first > 1 { // the gradient of a chain's input has the input's size
			c.Layer(first - 1).GradientBytes = c.Activation(first - 1)
		}
		st := pipeline.Stage{First: first, Last: first + rng.IntN(c.Len()-first+1)}
		for i, l := range q.Ways(st.First, st.Last, 1) {
			st.Ops = q.Ops(st.First, st.Last, 1, i)
			cost, err := pipeline.MeasureStage(c, st, st.Ops)
			if err != nil {
				t.Fatal(err)
			}
			in := c.Activation(st.First - 1)
			if total := k.U(st.First, st.Last) + l.Again; math.Abs(cost.Forward+cost.Backward-total) > 1e-9 || cost.Kept != in+l.Kept || cost.Bytes(1) != in+l.Peak {
				t.Errorf("%v: %+v, the way says %+v and %v s", st.Ops, cost, l, total)
			}
			part := &chain.Chain{InputBytes: in}
			part.Layers = append(append(part.Layers, c.Layers[st.First-1:st.Last]...), chain.Layer{})
			part.Layers[st.Len()-1].GradientBytes = c.Gradient(st.Last) // none behind the loss
			var seq schedule.Sequence
			turned, plain := false, false
			for _, op := range st.Ops {
				seq = append(seq, schedule.Op{Kind: op.Kind, Layer: op.Layer - st.First + 1})
				if op.Layer == st.Last && !turned {
					turned, plain = true, op.Kind != schedule.ForwardAll
					seq = append(seq, schedule.Op{Kind: schedule.ForwardAll, Layer: part.Len()}, schedule.Op{Kind: schedule.Backward, Layer: part.Len()})
				}
			}
			r, err := schedule.Simulate(part, seq, schedule.Limits{Memory: schedule.NoLimit})
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(r.Makespan-cost.Forward-cost.Backward) > 1e-9 {
				t.Errorf("%v: %v s, schedule says %v", st.Ops, cost.Forward+cost.Backward, r.Makespan)
			}
			turn := cost.Kept + c.Activation(st.Last) + c.Gradient(st.Last) // what schedule has at the turn after a plain a_j
			if want := max(cost.Bytes(1), turn); !plain && r.Peak != cost.Bytes(1) || plain && r.Peak != want {
				t.Errorf("%v: peak %d, schedule says %d", st.Ops, cost.Bytes(1), r.Peak)
			}
			if plain {
				sent++
			} else {
				same++
			}
		}
	}
	if same < 400 || sent < 300 {
		t.Errorf("%d sequences that end F with a saved set, %d that do not", same, sent)
	}
}

// TestPruningLosesNothing: what is left out makes no stage slower in any memory, neither in chains of which all ways are kept nor in
// longer ones.
func TestPruningLosesNothing(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(31, 7))
	asked, again := 0, 0
	for range 150 {
		k := pipeline.NewCosts(overheads(rng, pipelinetest.Chain(rng, 1+rng.IntN(14), false)))
		pruned, all := New(k, 1<<50), New(k, 1<<50)
		all.unpruned = true
		for range 20 {
			live, first := 1+rng.IntN(4), 1+rng.IntN(k.Len())
			last := first + rng.IntN(k.Len()-first+1)
			ways := all.Ways(first, last, live)
			bytes := ways[rng.IntN(len(ways))].worth(live) - rng.Int64N(2)
			_, x, fits := pruned.Fastest(first, last, live, bytes)
			_, y, want := all.Fastest(first, last, live, bytes)
			if fits != want || x != y {
				t.Fatalf("layers %d to %d, %d in flight, %d bytes: %v s more, %v; without pruning %v s, %v", first, last, live, bytes, x, fits, y, want)
			}
			asked++
			if x > 0 {
				again++
			}
		}
	}
	if again < asked/4 || again == asked {
		t.Errorf("%d of %d recompute", again, asked)
	}
}

// overheads gives a chain saved sets, overheads, and forwards that save nothing with costs of their own.
func overheads(rng *rand.Rand, c *chain.Chain) *chain.Chain {
	for i := range c.Layers {
		l := &c.Layers[i]
		l.SavedBytes = l.OutputBytes + rng.Int64N(40)
		l.ForwardOverheadBytes, l.BackwardOverheadBytes = rng.Int64N(5), rng.Int64N(5)
		if rng.IntN(3) == 0 {
			seconds, bytes := float64(rng.IntN(6)), rng.Int64N(5)
			l.DiscardForwardS, l.DiscardOverheadBytes = &seconds, &bytes
		}
	}
	return c
}
