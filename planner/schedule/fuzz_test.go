package schedule

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"plimsoll/planner/chain"
)

func FuzzParse(f *testing.F) {
	f.Add("Fck1 F2 Fall3 O1 P1 B3")
	f.Add("B0 F F99999999999999999999 Xx1 \x00\xff")
	f.Fuzz(func(t *testing.T, text string) {
		seq, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(seq.String())
		if err != nil || !reflect.DeepEqual(seq, again) {
			t.Fatalf("%q reads as %s, which reads as %s, %v", text, seq, again, err)
		}
	})
}

// FuzzSimulate judges any sequence on any small chain: Simulate and Verify agree on the rules, errors are of the
// documented types, and the peak is the memory that suffices.
func FuzzSimulate(f *testing.F) {
	f.Add(uint64(1), int64(20), 1.0, false, "Fall1 Fall2 Fall3 B3 B2 B1")
	f.Add(uint64(2), int64(9), 0.5, true, "O1 Fall1 P1 Fall2 B2 B1")
	rng := rand.New(rand.NewPCG(11, 12))
	for seed := range uint64(30) {
		c := randomChain(rand.New(rand.NewPCG(seed, 0)))
		f.Add(seed, NoLimit+rng.Int64N(2)*(-NoLimit+30), 1.0, seed%2 == 0, randomSequence(rng, c, true).String())
	}
	f.Fuzz(func(t *testing.T, seed uint64, memory int64, bandwidth float64, duplex bool, text string) {
		seq, err := Parse(strings.ToValidUTF8(text, ""))
		if err != nil {
			return
		}
		c := randomChain(rand.New(rand.NewPCG(seed, 0)))
		checkAnything(t, c, seq, Limits{Memory: memory, Link: Link{bandwidth, duplex}})
	})
}

func checkAnything(t *testing.T, c *chain.Chain, seq Sequence, limits Limits) {
	broken := Verify(c, seq)
	r, err := Simulate(c, seq, limits)
	var rule *RuleError
	var memory *MemoryError
	switch {
	case errors.As(err, &rule):
		if broken == nil || broken.Error() != err.Error() {
			t.Fatalf("Simulate says %v, Verify %v", err, broken)
		}
	case broken != nil:
		t.Fatalf("Verify says %v, Simulate %v", broken, err)
	case errors.As(err, &memory):
		if memory.Needed <= limits.Memory || memory.InUse > memory.Needed {
			t.Fatalf("%+v with %d bytes", memory, limits.Memory)
		}
	case errors.Is(err, ErrNoLink), errors.Is(err, ErrEndless):
		if !hasTransfers(seq) {
			t.Fatalf("%v without transfers", err)
		}
	case err != nil:
		t.Fatalf("undocumented: %v", err)
	case r.Peak > limits.Memory || r.Idle < 0 || r.Makespan < 0 || len(r.Start) != len(seq):
		t.Fatalf("%+v within %+v", r, limits)
	}
	if broken != nil || hasTransfers(seq) {
		return
	}
	if _, err := Simulate(c, seq, Limits{Memory: NoLimit}); err != nil {
		t.Fatalf("keeps the rules, has no transfers and no limit: %v", err)
	}
}
