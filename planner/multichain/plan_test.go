package multichain

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// randomJoin makes a join of so many branches of 1 to 4 layers and a trunk of 1 to 3, of uneven times and sizes.
func randomJoin(rng *rand.Rand, branches int) *chain.Chain {
	c := &chain.Chain{Name: "random", InputBytes: int64(rng.IntN(9))}
	lengths, layers := make([]int, branches), 1+rng.IntN(3)
	for k := range lengths {
		lengths[k] = 1 + rng.IntN(4)
		layers += lengths[k]
	}
	for range layers {
		out, discard, overhead := int64(rng.IntN(10)), float64(1+rng.IntN(3)), int64(rng.IntN(5))
		c.Layers = append(c.Layers, chain.Layer{
			ForwardS: discard + float64(rng.IntN(2)), BackwardS: float64(rng.IntN(6)), DiscardForwardS: &discard,
			OutputBytes: out, SavedBytes: out + int64(rng.IntN(12)), GradientBytes: int64(rng.IntN(10)),
			ForwardOverheadBytes: int64(rng.IntN(5)), BackwardOverheadBytes: int64(rng.IntN(5)), DiscardOverheadBytes: &overhead,
		})
	}
	c.Branches = lengths
	return c
}

// storeAll recomputes nothing.
func storeAll(c *chain.Chain) (seq schedule.Sequence) {
	for l := 1; l <= c.Len(); l++ {
		seq = append(seq, schedule.Op{Kind: schedule.ForwardAll, Layer: l})
	}
	for l := c.Len(); l >= 1; l-- {
		seq = append(seq, schedule.Op{Kind: schedule.Backward, Layer: l})
	}
	return seq
}

// Plans of joins fit and are the same each time. With the memory of store-all they take the time of store-all. The smallest limit that a
// refusal names works, and one byte less is refused.
func TestPlansOfMeasuredJoins(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	planned, refused := 0, 0
	for n := range 60 {
		c := randomJoin(rng, 1+n%3)
		all := simulated(t, c, storeAll(c))
		for _, s := range Strategies() {
			solve := func(memory int64) (schedule.Sequence, error) {
				return s.Solve(t.Context(), strategy.Problem{Chain: c, Memory: memory})
			}
			for _, memory := range []int64{0, all.Peak / 2, all.Peak * 3 / 4, all.Peak} {
				seq, err := solve(memory)
				if small, ok := errors.AsType[*pipeline.InfeasibleError](err); ok {
					refused++
					checkSmallest(t, c, small, memory, solve)
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				r := simulated(t, c, seq)
				if r.Peak > memory || r.Makespan < all.Makespan || memory == all.Peak && r.Makespan > all.Makespan {
					t.Fatalf("%v, %s with %d: %v: %v s, %d bytes; store-all %v s, %d bytes", c.Branches, s.Name, memory, seq, r.Makespan, r.Peak, all.Makespan, all.Peak)
				}
				if again, err := solve(memory); err != nil || !reflect.DeepEqual(again, seq) {
					t.Fatalf("%v, then %v, %v", seq, again, err)
				}
				planned++
			}
		}
	}
	if planned < 150 || refused < 100 {
		t.Errorf("%d planned, %d refused", planned, refused)
	}
}

func checkSmallest(t *testing.T, c *chain.Chain, small *pipeline.InfeasibleError, memory int64, solve func(int64) (schedule.Sequence, error)) {
	t.Helper()
	seq, err := solve(small.Smallest)
	if err != nil || small.Smallest <= memory {
		t.Fatalf("with %d: %v, and then %v", memory, small, err)
	}
	if r := simulated(t, c, seq); r.Peak > small.Smallest {
		t.Fatalf("%v: %d bytes", small, r.Peak)
	}
	if _, err := solve(small.Smallest - 1); err == nil {
		t.Fatalf("%v: one byte less works too", small)
	}
}

// Less memory never makes a plan faster. If the assumptions of the thesis's model hold, two equal branches are planned in the time that the
// model gives. The model assumes layers of one second and one byte, with a backward that needs no more memory than their input.
func TestEqualLayersAreTheModelOfTheThesis(t *testing.T) {
	t.Parallel()
	last, cases := 0.0, 0
	for memory := int64(30); memory > 0; memory-- {
		zero := 0.0
		c := &chain.Chain{Name: "equal", InputBytes: 1}
		for range 13 { // two branches of six layers, and the loss
			c.Layers = append(c.Layers, chain.Layer{DiscardForwardS: new(float64), BackwardS: 1, OutputBytes: 1, SavedBytes: 1, GradientBytes: 1})
			*c.Layers[len(c.Layers)-1].DiscardForwardS = 1
		}
		c.Layers[12] = chain.Layer{BackwardS: 1, DiscardForwardS: &zero}
		c.Branches = []int{6, 6}
		seq, err := Strategies()[1].Solve(t.Context(), strategy.Problem{Chain: c, Memory: memory})
		if small, ok := errors.AsType[*pipeline.InfeasibleError](err); ok {
			if small.Smallest <= memory {
				t.Error(small)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		r := simulated(t, c, seq)
		if r.Makespan < last {
			t.Errorf("%d bytes: %v s; with one more %v s", memory, r.Makespan, last)
		}
		last = r.Makespan
		// A backward here does not work in place: it takes a saved set and a gradient more than in the model.
		if j := multiEmpty(6, 6); int(memory)-2 >= j.Smallest() {
			steps, err := Solve(j, int(memory)-2)
			if err != nil {
				t.Fatal(err)
			}
			if want, _, err := replay(j, steps); err != nil || r.Makespan > want {
				t.Errorf("%d bytes: %v s, in %d slots of the model %v s, %v", memory, r.Makespan, memory-2, want, err)
			}
			cases++
		}
	}
	if cases < 15 {
		t.Errorf("only %d cases", cases)
	}
}

func simulated(t testing.TB, c *chain.Chain, seq schedule.Sequence) *schedule.Result {
	t.Helper()
	r, err := schedule.Simulate(c, seq, schedule.Limits{Memory: schedule.NoLimit})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
