package schedule

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"plimsoll/planner/chain"
)

// randomJoinSequence runs forwards at random, and every backward as soon as the rules allow it. No input is discarded.
func randomJoinSequence(rng *rand.Rand, c *chain.Chain) (seq Sequence) {
	try := func(kind Kind, l int) (done bool) {
		longer := append(seq, Op{Kind: kind, Layer: l})
		err := Verify(c, longer)
		if rule, ok := errors.AsType[*RuleError](err); err == nil || ok && rule.Index == len(longer) {
			seq = longer
		}
		return err == nil
	}
	for range 300 {
		for l := c.Len(); l >= 1; l-- {
			if rng.IntN(3) > 0 && try(Backward, l) {
				return seq
			}
		}
		l := 1 + rng.IntN(c.Len())
		kind := []Kind{ForwardAll, ForwardCheckpoint, ForwardDiscard}[rng.IntN(3)]
		if kind != ForwardDiscard || !c.Wiring().Begins(l) {
			try(kind, l)
		}
	}
	return seq
}

// A join of one branch is a chain: the same verdict, times and memory, for sequences that keep the rules and for ones
// that do not.
func TestOneBranchIsAChain(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	valid, refused := 0, 0
	for range 600 {
		c := randomChain(rng)
		if c.Len() == 1 {
			continue
		}
		one := *c
		one.Branches = []int{1 + rng.IntN(c.Len()-1)}
		seq := randomJoinSequence(rng, &one)
		if len(seq) > 0 && rng.IntN(3) == 0 {
			seq = mutate(rng, seq, c.Len())
		}
		if hasTransfers(seq) {
			continue
		}
		limits := Limits{Memory: NoLimit}
		got, err := Simulate(&one, seq, limits)
		want, wrong := Simulate(c, seq, limits)
		if wrong != nil || err != nil {
			var a, b *RuleError
			if !errors.As(err, &a) || !errors.As(wrong, &b) || a.Index != b.Index {
				t.Fatalf("%v: %v, of a chain %v", seq, err, wrong)
			}
			refused++
			continue
		}
		if c.Gradient(0) > 0 { // of the input, which goes at the end of a join and stays in a chain
			got.Curve = append(got.Curve[:len(got.Curve)-1:len(got.Curve)-1], want.Curve[len(want.Curve)-1:]...)
		}
		if a, b := fmt.Sprint(*got), fmt.Sprint(*want); a != b {
			t.Fatalf("%v:\n%s, of a chain\n%s", seq, a, b)
		}
		valid++
	}
	if valid < 200 || refused < 50 {
		t.Errorf("%d valid sequences, %d refused", valid, refused)
	}
}

// Two branches told step by step: branch 0 is layer 1, branch 1 layers 2 and 3, layer 4 joins them and is the loss.
func TestJoinStory(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{InputBytes: 100, Branches: []int{1, 2}, Layers: make([]chain.Layer, 4)}
	for i := range c.Layers {
		c.Layers[i] = chain.Layer{ForwardS: 1, BackwardS: 2, OutputBytes: 10, SavedBytes: 30, GradientBytes: 7}
	}
	c.Layers[3] = chain.Layer{ForwardS: 1, BackwardS: 2, OutputBytes: 1, SavedBytes: 1}
	seq, err := Parse("Fall1 Fck2 F3 Fall4 B4 B1 Fall2 Fall3 B3 B2")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Simulate(c, seq, Limits{Memory: NoLimit})
	if err != nil {
		t.Fatal(err)
	}
	var used []int64
	for _, p := range r.Curve {
		used = append(used, p.Bytes)
	}
	// Both inputs; ā1; a2; a3, which takes the place of a2; ā4; then δ1 and δ3 for ā4 and a3, ...
	want := []int64{200, 230, 240, 250, 240, 241, 255, 244, 344, 107, 137, 167, 174, 144 - 7, 237, 0}
	if fmt.Sprint(used) != fmt.Sprint(want) || r.Makespan != 14 {
		t.Errorf("in use %v, want %v; %v s", used, want, r.Makespan)
	}
	for text, reason := range map[string]string{
		"Fall1 Fall2 Fall4":                       "activation 3 is not in device memory",
		"Fall1 Fall2 Fall3 Fall4 B3":              "δ_3 is not in memory",
		"Fall1 Fall2 Fall3 F4":                    "the plain a_1 is needed",
		"O1":                                      "no transfers",
		"Fall5":                                   "layers 1 to 4",
		"Fall1 Fall2 Fall3 Fall4 B4 B3 B2":        "1 of the 4 backwards",
		"Fall1 Fall2 Fall3 Fall4 B4 B1 B3 B2 B2":  "activation 5 is not in device memory",
		"Fall1 Fall2 Fall3 Fck4 B4 B1 B3 B2 Fck1": "the saved set ā_4 is not in device memory",
	} {
		seq, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := Verify(c, seq); err == nil || !errors.As(err, new(*RuleError)) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v, want %q", text, err, reason)
		}
	}
}
