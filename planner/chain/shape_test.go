package chain_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

func ptr[T any](x T) *T { return &x }

// example has two layers that are merged by hand below, and the loss.
func example() *chain.Chain {
	return &chain.Chain{Name: "example", InputBytes: 8, Extra: map[string]json.RawMessage{"note": json.RawMessage(`"kept"`)}, Layers: []chain.Layer{
		{
			Name: "a", ForwardS: 1, BackwardS: 2, OutputBytes: 10, SavedBytes: 12, GradientBytes: 9,
			ForwardOverheadBytes: 30, BackwardOverheadBytes: 5, WeightBytes: 100, DiscardForwardS: ptr(0.5),
			BackwardInputS: ptr(1.5), BackwardWeightS: ptr(0.5), Extra: map[string]json.RawMessage{"k": json.RawMessage("1")},
		},
		{
			Name: "b", ForwardS: 4, BackwardS: 8, OutputBytes: 3, SavedBytes: 7, GradientBytes: 3,
			ForwardOverheadBytes: 6, BackwardOverheadBytes: 40, WeightBytes: 50, DiscardOverheadBytes: ptr(int64(1)),
			BackwardInputS: ptr(6.0),
		},
		{Name: "loss", ForwardS: 1, BackwardS: 1, OutputBytes: 1, SavedBytes: 1, GradientBytes: 1, Extra: map[string]json.RawMessage{"k": json.RawMessage("2")}},
	}}
}

// TestGroupByHand:
//
//	F_all: a takes 12+30 = 42, then b, with ā_a stored, 12+7+6 = 25; so 42 = saved 19 + 23.
//	F_ck:  a takes 10+30 = 40, then b, with a_a stored, 10+3+1 = 14; so 40 = output 3 + 37.
//	B:     b takes δ_a 9 + 40 = 49; then a, when ā_b 7 and δ_b 3 are gone and δ_a 9 is there: 9-10 + δ_0 8 + 5 = 12;
//	       so 49 = δ_0 8 + 41.
func TestGroupByHand(t *testing.T) {
	t.Parallel()
	g, err := chain.Group(example(), []int{2, 3})
	if err != nil {
		t.Fatal(err)
	}
	want := example()
	want.Layers = []chain.Layer{{
		Name: "a..b", ForwardS: 5, BackwardS: 10, OutputBytes: 3, SavedBytes: 19, GradientBytes: 3,
		ForwardOverheadBytes: 23, BackwardOverheadBytes: 41, WeightBytes: 150,
		DiscardForwardS: ptr(4.5), DiscardOverheadBytes: ptr(int64(37)), BackwardInputS: ptr(7.5),
	}, want.Layers[2]}
	got, _ := json.Marshal(g)
	if w, _ := json.Marshal(want); string(got) != string(w) {
		t.Errorf("grouped\n%s\nwant\n%s", got, w)
	}
}

func TestGroupRefusesGaps(t *testing.T) {
	t.Parallel()
	for _, lasts := range [][]int{nil, {2}, {2, 2, 3}, {2, 1, 3}, {0, 3}, {3, 4}, {-1, 3}} {
		if g, err := chain.Group(example(), lasts); !errors.Is(err, chain.ErrGroups) {
			t.Errorf("%v: %v, %v", lasts, g, err)
		}
	}
	if _, err := chain.GroupEvery(example(), 0); !errors.Is(err, chain.ErrGroups) {
		t.Errorf("groups of 0: %v", err)
	}
	if _, err := chain.Group(&chain.Chain{}, []int{0}); !errors.Is(err, chain.ErrFormat) {
		t.Errorf("empty chain: %v", err)
	}
}

func TestGroupEveryLeavesTheLossAlone(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	for _, k := range []int{1, 2, 3, 6, 7, 8, math.MaxInt} {
		c := randomChain(rng, 8)
		g, err := chain.GroupEvery(c, k)
		if err != nil {
			t.Fatal(err)
		}
		if want := 1 + (7+min(k, 7)-1)/min(k, 7); g.Len() != want || g.Layer(want).Name != "l8" {
			t.Errorf("groups of %d: %d layers, the last is %s; want %d", k, g.Len(), g.Layer(g.Len()).Name, want)
		}
	}
	if g, err := chain.GroupEvery(randomChain(rng, 1), 3); err != nil || g.Len() != 1 {
		t.Errorf("the loss alone: %v", err)
	}
}

func randomChain(rng *rand.Rand, n int) *chain.Chain {
	c := &chain.Chain{Name: "random", InputBytes: rng.Int64N(10)}
	for i := range n {
		out := rng.Int64N(10)
		l := chain.Layer{
			Name: fmt.Sprint("l", i+1), ForwardS: float64(rng.IntN(9)), BackwardS: float64(rng.IntN(9)),
			OutputBytes: out, SavedBytes: out + rng.Int64N(6), GradientBytes: rng.Int64N(10),
			ForwardOverheadBytes: rng.Int64N(12), BackwardOverheadBytes: rng.Int64N(12),
		}
		if rng.IntN(2) == 0 {
			l.DiscardForwardS, l.DiscardOverheadBytes = ptr(float64(rng.IntN(9))), ptr(rng.Int64N(12))
		}
		c.Layers = append(c.Layers, l)
	}
	return c
}

// randomLasts cuts n layers into random groups.
func randomLasts(rng *rand.Rand, n int) (lasts []int) {
	for l := 1; l < n; l++ {
		if rng.IntN(2) == 0 {
			lasts = append(lasts, l)
		}
	}
	return append(lasts, n)
}

// randomPlan keeps a random subset of saved sets and checkpoints on the way up, and recomputes on the way down.
func randomPlan(rng *rand.Rand, n int, discard bool) (seq schedule.Sequence) {
	stored := make([]schedule.Kind, n+1) // how an activation was made
	has := make([]bool, n+1)
	has[0], stored[0] = true, schedule.ForwardCheckpoint
	run := func(kind schedule.Kind, l int) {
		seq = append(seq, schedule.Op{Kind: kind, Layer: l})
		has[l], stored[l] = true, kind
		if kind == schedule.ForwardDiscard {
			has[l-1] = false
		}
	}
	forward := func(l int) {
		kind := schedule.Kind(rng.IntN(3))
		if kind == schedule.ForwardDiscard && (!discard || l == 1 || stored[l-1] == schedule.ForwardAll) {
			kind = schedule.ForwardCheckpoint
		}
		run(kind, l)
	}
	for l := 1; l < n; l++ {
		forward(l)
	}
	for g := n; g >= 1; g-- {
		for !has[g] || stored[g] != schedule.ForwardAll || !has[g-1] {
			from := g - 1
			for !has[from] {
				from--
			}
			if from == g-1 {
				run(schedule.ForwardAll, g)
			} else {
				run(schedule.ForwardCheckpoint, from+1)
			}
		}
		run(schedule.Backward, g)
		has[g], has[g-1] = false, g > 1 && stored[g-1] == schedule.ForwardAll || g == 1
	}
	return seq
}

// TestGroupedPlansCanBeCarriedOut runs random plans of grouped chains on the grouped chain and, member by member,
// on the original: same makespan, never a higher peak.
func TestGroupedPlansCanBeCarriedOut(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(2, 2))
	merged, tight := 0, 0
	for range 3000 {
		c := randomChain(rng, 1+rng.IntN(7))
		lasts := randomLasts(rng, c.Len())
		g, err := chain.Group(c, lasts)
		if err != nil {
			t.Fatal(err)
		}
		seq := randomPlan(rng, g.Len(), rng.IntN(2) == 0)
		promised, err := schedule.Simulate(g, seq, schedule.Limits{Memory: schedule.NoLimit})
		if err != nil {
			t.Fatalf("%s: %v", seq, err)
		}
		members := schedule.Ungroup(seq, lasts)
		real, err := schedule.Simulate(c, members, schedule.Limits{Memory: schedule.NoLimit})
		if err != nil {
			t.Fatalf("%s as %s: %v", seq, members, err)
		}
		if real.Makespan != promised.Makespan || real.Peak > promised.Peak {
			t.Fatalf("%s takes %g s, %d bytes; as %s %g s, %d bytes",
				seq, promised.Makespan, promised.Peak, members, real.Makespan, real.Peak)
		}
		if g.Len() < c.Len() {
			merged++
			if real.Peak == promised.Peak {
				tight++
			}
		}
	}
	if merged < 2000 || tight < merged*8/10 {
		t.Errorf("%d chains with merged layers, the peak is that of the members in %d", merged, tight)
	}
}

// TestForwardsOfGroupsAreTight: a merged forward_all and forward_checkpoint peak where their members do.
func TestForwardsOfGroupsAreTight(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 3))
	for range 500 {
		c := randomChain(rng, 5)
		lasts := []int{3, 4, 5}
		g, err := chain.Group(c, lasts)
		if err != nil {
			t.Fatal(err)
		}
		for _, first := range []schedule.Kind{schedule.ForwardAll, schedule.ForwardCheckpoint} {
			seq := append(schedule.Sequence{{Kind: first, Layer: 1}}, schedule.Sequence{
				{Kind: schedule.ForwardAll, Layer: 1}, {Kind: schedule.ForwardAll, Layer: 2}, {Kind: schedule.ForwardAll, Layer: 3},
				{Kind: schedule.Backward, Layer: 3}, {Kind: schedule.Backward, Layer: 2}, {Kind: schedule.Backward, Layer: 1},
			}[map[bool]int{true: 1, false: 0}[first == schedule.ForwardAll]:]...)
			if promised, real := topOfFirst(t, g, seq, 1), topOfFirst(t, c, schedule.Ungroup(seq, lasts), 3); promised != real {
				t.Fatalf("%s: the first op peaks at %d, its members at %d", seq, promised, real)
			}
		}
	}
}

// topOfFirst returns the most bytes in use until the op at position ops starts.
func topOfFirst(t *testing.T, c *chain.Chain, seq schedule.Sequence, ops int) (top int64) {
	t.Helper()
	slow := *c // ops of length 0 would share an instant with the next ones
	slow.Layers = append([]chain.Layer(nil), c.Layers...)
	for i := range slow.Layers {
		slow.Layers[i].ForwardS, slow.Layers[i].DiscardForwardS = 1, nil
	}
	r, err := schedule.Simulate(&slow, seq, schedule.Limits{Memory: schedule.NoLimit})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Curve {
		if p.Time < r.Start[ops] {
			top = max(top, p.Bytes)
		}
	}
	return top
}
