package schedule

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// Whoever follows a sequence hears of the rules what Verify says of the whole, and what every op leaves adds up to what is stored.
func TestFollow(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(41, 1))
	refused, sums := 0, 0
	for range 3000 {
		c := randomChain(rng)
		seq := randomSequence(rng, c, rng.IntN(2) == 0)
		f, gradient := Follow(c), c.Len()
		used, moved, peak := c.InputBytes, false, c.InputBytes
		var err error
		for _, op := range seq {
			var e Effect
			if e, err = f.Do(op); err != nil {
				break
			}
			peak, used, moved = max(peak, used+e.Takes), used+e.Leaves, moved || op.Kind.Transfer()
			if op.Kind == Backward {
				gradient = op.Layer - 1
			}
			stored := c.Gradient(gradient)
			for i := range c.Len() + 1 {
				stored += f.Bytes(i)
			}
			if sums++; !moved && used != stored {
				t.Fatalf("%v: %d bytes behind %v, %d are stored", seq, used, op, stored)
			}
		}
		if err == nil {
			err = f.End()
		}
		if want := Verify(c, seq); err != nil || want != nil {
			var x, y *RuleError
			if !errors.As(err, &x) || !errors.As(want, &y) || *x != *y {
				t.Fatalf("%v: %v, Verify says %v", seq, err, want)
			}
			if _, again := f.Do(Op{ForwardAll, 1}); x.Index < len(seq) && again != err {
				t.Fatalf("%v: goes on behind %v", seq, err)
			}
			refused++
			continue
		}
		if r, err := Simulate(c, seq, Limits{Memory: NoLimit, Link: Link{Bandwidth: 1}}); err != nil || !moved && r.Peak != peak {
			t.Fatalf("%v: peak %d, simulated %+v, %v", seq, peak, r, err)
		}
	}
	if refused < 300 || sums < 10000 {
		t.Errorf("%d refused, %d sums", refused, sums)
	}
}

// A stage begins with its input, and its gradient comes when the loss has been passed; a plain output has left by then.
func TestFollowStage(t *testing.T) {
	t.Parallel()
	c := randomChain(rand.New(rand.NewPCG(41, 2)))
	for c.Len() < 3 {
		c.Layers = append(c.Layers, c.Layers[0])
	}
	c.Layer(2).OutputBytes, c.Layer(2).GradientBytes = 5, 7
	f := FollowStage(c, 2, 2)
	if _, err := f.Do(Op{Backward, 2}); err == nil || err.Error() != "op 0 (backward 2): δ_2 is not in memory" {
		t.Error(err)
	}
	f = FollowStage(c, 2, 2)
	if _, err := f.Do(Op{ForwardCheckpoint, 2}); err != nil || f.Stored(2) != Plain || f.Stored(1) != Plain || f.Stored(0) != Nothing {
		t.Errorf("%v, %v, %v, %v", err, f.Stored(0), f.Stored(1), f.Stored(2))
	}
	if gone, come := f.Turn(); gone != 5 || come != 7 || f.Stored(2) != Nothing {
		t.Errorf("%d bytes gone, %d come", gone, come)
	}
	if err := f.End(); err == nil {
		t.Error("a stage without its backward has ended")
	}
	for _, op := range []Op{{ForwardAll, 2}, {Backward, 2}} {
		if _, err := f.Do(op); err != nil {
			t.Error(err)
		}
	}
	if err := f.End(); err != nil {
		t.Error(err)
	}
}
